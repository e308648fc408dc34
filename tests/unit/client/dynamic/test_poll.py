from __future__ import annotations

from itertools import pairwise

import httpx
import pytest

from confplane.client.dynamic import CONFLUENT_KAFKA
from confplane.client.dynamic.config_follower import ConfigFollower
from confplane.client.dynamic.source import DynamicValues, SourceUnavailable, SourceUnsupported, UnchangedValues
from confplane.domain.definitions import ConfigKind
from tests.unit.client.dynamic.scripted import OWN, Served, body, values

PROBLEM = {"title": "Refused", "detail": "for a reason"}


async def test_the_first_poll_registers_and_the_next_ones_are_conditional() -> None:
    served = Served(lambda request: values(request, acks="all"))
    found = await served.updates(4)
    assert found == [
        DynamicValues({"acks": "all"}),
        DynamicValues({"acks": "all"}),
        UnchangedValues(),
        UnchangedValues(),
    ]
    assert [at for at, _ in served.requests] == [0, 300, 600, 900]
    first, second, third, _ = [request for _, request in served.requests]
    assert body(first) == {
        "components": [
            {"entityType": "user", "matchType": "exact", "match": "alice"},
            {"entityType": "client-id", "matchType": "exact", "match": "billing"},
        ],
        "strict": False,
        "resolveEntity": True,
        "supportedConfigs": ["acks"],
        "clientInformation": {"softwareName": "kafka-python", "softwareVersion": "3.0.12"},
    }
    assert second.url.path == "/v1/clusters/default/client-configs/user=alice,client-id=billing/effective"
    assert "if-none-match" not in second.headers
    assert third.headers["if-none-match"] == '"1"'


async def test_a_client_registers_once_a_day() -> None:
    served = Served(lambda request: values(request, acks="all"), max_age_s=10_000)
    await served.updates(12)
    assert [at for at, request in served.requests if request.method == "POST"] == [0, 90_000]


@pytest.mark.parametrize(("status", "code"), [(404, None), (405, None), (501, None), (400, 35), (400, 42), (422, 42)])
async def test_a_service_without_the_feature(status: int, code: int | None) -> None:
    served = Served(lambda _: httpx.Response(status, json=PROBLEM | {"kafkaErrorCode": code}))
    assert await served.poll.next() == SourceUnsupported(f"{status} Refused: for a reason")


@pytest.mark.parametrize("status", [400, 401, 403, 409, 429, 500, 503])
async def test_other_errors_leave_it_on(status: int) -> None:
    served = Served(lambda _: httpx.Response(status, json=PROBLEM))
    assert await served.updates(2) == [SourceUnavailable(f"{status} Refused: for a reason")] * 2


async def test_retries_back_off_up_to_the_age_and_honor_retry_after() -> None:
    answers = [httpx.Response(503, json=PROBLEM)] * 11 + [
        httpx.Response(429, json=PROBLEM, headers={"Retry-After": "600"})
    ]
    served = Served(lambda request: answers.pop(0) if answers else values(request))
    await served.updates(14)
    times = [at for at, _ in served.requests]
    assert [later - earlier for earlier, later in pairwise(times)] == [
        *(0.75, 1.5, 3, 6, 12, 24, 48, 96, 192, 225, 225),
        *(660, 300),
    ]


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout])
async def test_no_answer_leaves_it_on(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("lost", request=request)

    assert isinstance(await Served(fail).poll.next(), SourceUnavailable)


@pytest.mark.parametrize("error", [httpx.DecodingError, ValueError, AttributeError, RecursionError])
async def test_no_failure_to_read_an_answer_ends_the_polls(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        if served.now < 600:
            raise error("strange")
        return values(_, acks="all")

    served = Served(fail)
    follower = ConfigFollower(ConfigKind.PRODUCER, OWN, CONFLUENT_KAFKA, label="producer", file=None)
    while served.now < 1000:
        follower.take(await served.poll.next())
    assert follower.settings["acks"] == "all"
    (record,) = [record for record in caplog.records if record.levelname == "WARNING" and "can't be read" in record.msg]
    assert "strange" in record.getMessage()


@pytest.mark.parametrize(
    "content",
    [b"<html>login</html>", b"", b"[]", b"{}", b'{"entries": [1]}', b'{"entries": [{"values": [{"key": "a"}]}]}'],
)
async def test_answers_of_something_in_between_leave_it_on(content: bytes) -> None:
    assert isinstance(await Served(lambda _: httpx.Response(200, content=content)).poll.next(), SourceUnavailable)


async def test_a_restored_store_with_other_values_and_the_same_tag_forms_a_change() -> None:
    state = {"etag": '"7"', "acks": "all"}
    served = Served(lambda request: values(request, state["etag"], acks=state["acks"]))
    await served.updates(3)
    state |= {"etag": '"3"', "acks": "1"}
    assert await served.poll.next() == DynamicValues({"acks": "1"})


async def test_an_hour_away_then_back_with_other_values(caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if 600 <= served.now < 4200:
            return httpx.Response(503, json=PROBLEM, headers={"Retry-After": "1"})
        return values(request, acks="all") if served.now < 600 else values(request, '"2"', acks="1")

    served = Served(answer)
    caplog.set_level("INFO")
    follower = ConfigFollower(ConfigKind.PRODUCER, OWN, CONFLUENT_KAFKA, label="producer", file=None)
    seen: list[tuple[float, str]] = []
    while served.now < 4800:
        follower.take(await served.poll.next())
        seen.append((served.now, follower.settings["acks"]))
    assert {acks for at, acks in seen if at < 4200} == {"all"}
    assert {acks for at, acks in seen if at >= 4200} == {"1"}
    assert [record.getMessage() for record in caplog.records if record.name.startswith("confplane.")] == [
        "producer: accepted the dynamic config acks=all",
        "producer: dynamic configs can't be read, those in force stay: 503 Refused: for a reason",
        "producer: dynamic configs can be read again",
        "producer: accepted the dynamic config acks=1",
    ]
