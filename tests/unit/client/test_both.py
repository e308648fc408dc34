"""Retries, Idempotency-Keys, pages, ETags, updates and errors: the same with the blocking and the asynchronous client."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.client import (
    Answer,
    Change,
    ClientError,
    ConnectionFailedError,
    InvalidConfigError,
    PreconditionFailedError,
    ProblemError,
    ResourceNotFoundError,
    ThrottlingQuotaExceededError,
    UnauthenticatedError,
)
from tests.support.both_clients import KINDS, Flaky, Kind, bodies, connected, done, items

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.parametrize("kind", KINDS)

QUOTA: Final = {"producer_byte_rate": 1}
AWAY: Final = {
    "type": "/problems/unavailable",
    "title": "A store is not available",
    "status": 503,
    "detail": "Postgres is away",
    "kafkaErrorCode": 13,
    "kafkaErrorName": "NETWORK_EXCEPTION",
    "retriable": True,
    "outcome": "not_applied",
    "errors": [],
}


def away(**members: object) -> httpx.Response:
    return httpx.Response(503, json={**AWAY, **members}, headers={"Retry-After": "0"})


async def test_reads_are_repeated(kind: Kind) -> None:
    reads: tuple[Callable[[Any], Any], ...] = (
        lambda client: client.client_quotas.get("user=alice"),
        lambda client: client.client_quotas.describe(),
    )
    for read in reads:
        service = Flaky(away(), httpx.ReadError("cut"))
        async with connected(kind, transport=service.transport) as client:
            answer = await done(read(client))
        assert answer == Answer(200, {"ok": True}, None, None, None, None)
        assert service.keys == [None, None, None]


async def test_each_write_has_a_key_of_its_own_in_all_its_tries(kind: Kind) -> None:
    service = Flaky(httpx.ReadTimeout("lost"), away(outcome="unknown"))
    async with connected(kind, transport=service.transport) as client:
        await done(client.client_quotas.put("user=alice", QUOTA))
        await done(client.client_quotas.alter([Change("user=alice", QUOTA)]))
    first, *again, other = service.keys
    assert again == [first, first]
    assert uuid.UUID(first) != uuid.UUID(other)


@pytest.mark.parametrize("content", [b"<html>", b"", b'{"message": "no healthy upstream"}'])
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
async def test_an_error_of_something_in_between_that_may_pass_is_waited_out(
    kind: Kind, status: int, content: bytes
) -> None:
    def failure() -> httpx.Response:
        return httpx.Response(status, content=content, headers={"Retry-After": "0"})

    reads, writes, keyless = (Flaky(failure(), failure()) for _ in range(3))
    async with connected(kind, transport=reads.transport) as client:
        await done(client.client_quotas.get("user=alice"))
    async with connected(kind, transport=writes.transport) as client:
        await done(client.client_quotas.put("user=alice", QUOTA))
    assert reads.keys == [None] * 3
    assert writes.keys == [writes.keys[0]] * 3
    async with connected(kind, transport=keyless.transport) as client:
        if status < 500:  # the request was not passed on
            await done(client.tokens.create({"principal": "User:alice"}))
            assert len(keyless.keys) == 3
        else:
            with pytest.raises(ProblemError) as raised:
                await done(client.tokens.create({"principal": "User:alice"}))
            assert (raised.value.may_be_applied, len(keyless.keys)) == (True, 1)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited, none of them really."""
    found: list[float] = []

    async def rest(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(asyncio, "sleep", rest)
    return found


async def test_a_time_to_retry_is_waited_for_whole_or_not_at_all(kind: Kind, pauses: list[float]) -> None:
    service = Flaky(httpx.Response(503, headers={"Retry-After": "25"}))
    async with connected(kind, transport=service.transport) as client:
        await done(client.client_quotas.get("user=alice"))
    assert len(pauses) == 1
    assert 25 <= pauses[0] <= 30
    service = Flaky(httpx.Response(503, headers={"Retry-After": "25"}))
    async with connected(kind, transport=service.transport, timeout_s=20) as client:
        with pytest.raises(ProblemError) as raised:
            await done(client.client_quotas.get("user=alice"))
    assert (raised.value.retry_after_s, raised.value.retriable, len(service.keys), len(pauses)) == (25, True, 1, 1)


async def test_a_call_that_lasts_longer_waits_longer_for_the_limits_of_the_service(
    kind: Kind, pauses: list[float]
) -> None:
    service = Flaky(httpx.Response(429, headers={"Retry-After": "50"}))
    async with connected(kind, transport=service.transport) as client:
        await done(client.manifests.plan({}))
    assert len(pauses) == 1
    assert 50 <= pauses[0] <= 60


class Refusing:
    """A service that accepts one token, and is once away for requests with another one."""

    def __init__(self, accepted: str, away_for: str | None = None) -> None:
        self.accepted = accepted
        self.away_for = away_for
        self.seen: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        if self.seen[-1] == self.away_for:
            return away()
        if self.seen[-1] != self.accepted:
            return httpx.Response(401, json={"type": "/problems/unauthenticated", "kafkaErrorCode": 31})
        return httpx.Response(200, json={"events": [{"changeId": "a"}], "position": "p"})


@pytest.mark.parametrize(
    ("tokens", "away_for", "sent"),
    [
        ("old new", None, ["old", "new"]),
        ("old old new", None, ["old"]),
        ("old older new", None, ["old", "older"]),
        ("old away older new", "away", ["old", "away", "older"]),
        ("old", None, ["old"]),
    ],
    ids=["another", "the same", "refused too", "once for all attempts", "none"],
)
async def test_a_refused_token_is_read_again_once_for_each_call(
    kind: Kind, tokens: str, away_for: str | None, sent: list[str]
) -> None:
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda client: done(client.client_quotas.get("user=alice")),
        lambda client: done(client.tokens.create({"principal": "User:alice"})),
        lambda client: _following(client.changes()),
    )
    for call in calls:
        service, given = Refusing("new", away_for), iter(tokens.split())
        async with connected(
            kind, token=lambda given=given: next(given), transport=httpx.MockTransport(service)
        ) as one:
            if sent[-1] == "new":
                await call(one)
            else:
                with pytest.raises(UnauthenticatedError):
                    await call(one)
        assert service.seen == sent


async def test_a_refused_token_of_a_file_is_replaced_and_a_fixed_one_is_not(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    def rotating(request: httpx.Request) -> httpx.Response:
        file.write_text("new")
        return service(request)

    for token, sent in ((file, ["old", "new"]), ("old", ["old"])):
        service = Refusing("new")
        async with connected(kind, token=token, transport=httpx.MockTransport(rotating)) as client:
            if sent[-1] == "new":
                await done(client.client_quotas.get("user=alice"))
            else:
                with pytest.raises(UnauthenticatedError):
                    await done(client.client_quotas.get("user=alice"))
        assert service.seen == sent


async def test_a_process_that_is_not_ready_is_asked_once(kind: Kind) -> None:
    report = {"status": "unavailable"}
    service = Flaky(httpx.Response(503, json=report))
    async with connected(kind, transport=service.transport) as client:
        with pytest.raises(ProblemError) as raised:
            await done(client.service.readyz())
    assert (raised.value.body, len(service.keys)) == (report, 1)


async def test_with_one_try_a_write_has_a_key_only_where_it_is_given_one(kind: Kind) -> None:
    service = Flaky(away(), away())
    async with connected(kind, transport=service.transport, tries=1) as client:
        for key in (None, "mine"):
            with pytest.raises(ProblemError):
                await done(client.client_quotas.put("user=alice", QUOTA, idempotency_key=key))
    assert service.keys == [None, "mine"]


@pytest.mark.parametrize(
    ("failure", "sent"),
    [
        (lambda: httpx.ConnectError("refused"), 2),
        (lambda: httpx.ConnectTimeout("no connection yet"), 2),
        (lambda: httpx.PoolTimeout("no connection free"), 2),
        (away, 2),
        (lambda: away(outcome="unknown"), 1),
        (lambda: httpx.ReadError("cut"), 1),
        (lambda: httpx.ReadTimeout("the response is lost"), 1),
        (lambda: httpx.WriteTimeout("a part was sent"), 1),
        (lambda: httpx.Response(500, json={"title": "?", "retriable": True}), 1),
    ],
    ids=[
        *("no connection", "connect timeout", "pool timeout", "not applied"),
        *("unknown", "cut off", "read timeout", "write timeout", "says nothing"),
    ],
)
async def test_a_write_without_keys_is_repeated_where_nothing_can_have_happened(
    kind: Kind, failure: Callable[[], httpx.Response | Exception], sent: int
) -> None:
    service = Flaky(failure())
    async with connected(kind, transport=service.transport) as client:
        try:
            await done(client.tokens.create({"principal": "User:alice"}))
        except ClientError as error:
            assert error.may_be_applied
    assert service.keys == [None] * sent


async def test_the_last_failure_is_raised(kind: Kind) -> None:
    service = Flaky(*(httpx.ReadError("cut") for _ in range(2)))
    async with connected(kind, transport=service.transport, tries=2) as client:
        with pytest.raises(
            ConnectionFailedError,
            match=r"PUT http://confplane\.test/v1/clusters/default/client-quotas/user=alice: ReadError",
        ) as raised:
            await done(client.client_quotas.put("user=alice", QUOTA))
    assert raised.value.may_be_applied
    assert len(service.keys) == 2


async def test_a_final_error_is_raised_at_once_with_its_field_and_rule(kind: Kind) -> None:
    problem = {
        "type": "/problems/invalid-config",
        "title": "Invalid config",
        "detail": "Two of them",
        "kafkaErrorCode": 40,
        "kafkaErrorName": "INVALID_CONFIG",
        "retriable": False,
        "errors": [{"pointer": "/configs/acks", "detail": "must be one of all, -1, 0, 1"}],
    }
    service = Flaky(httpx.Response(422, json=problem))
    async with connected(kind, transport=service.transport) as client:
        with pytest.raises(InvalidConfigError) as raised:
            await done(client.client_configs.put("user=alice", {"acks": "2"}))
    error = raised.value
    assert len(service.keys) == 1
    assert (error.code, error.kafka_error_code, error.kafka_error_name) == (40, 40, "INVALID_CONFIG")
    assert (error.field, error.errors[0]["detail"]) == ("/configs/acks", "must be one of all, -1, 0, 1")
    assert (error.retriable, error.may_be_applied, error.problem_type) == (False, False, "invalid-config")


async def test_a_limit_is_waited_for_no_longer_than_tries_allow(kind: Kind) -> None:
    problem = {"type": "/problems/limit-exceeded", "kafkaErrorCode": 89, "retriable": True}
    service = Flaky(*(httpx.Response(429, json=problem, headers={"Retry-After": "0"}) for _ in range(2)))
    async with connected(kind, transport=service.transport, tries=2) as client:
        with pytest.raises(ThrottlingQuotaExceededError) as raised:
            await done(client.tokens.create({"principal": "User:alice"}))
    assert (raised.value.retry_after_s, len(service.keys)) == (0.0, 2)


def test_a_client_sends_at_least_once(kind: Kind) -> None:
    with pytest.raises(ValueError, match="tries"):
        kind("http://confplane.test", token=None, tries=0)


@pytest.mark.parametrize("form", ["file", "function"])
async def test_a_rotated_token_is_sent_with_the_next_request(kind: Kind, tmp_path: Path, form: str) -> None:
    sent: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={})

    file = tmp_path / "token"
    token = file if form == "file" else file.read_text
    async with connected(kind, token=token, transport=httpx.MockTransport(answer)) as client:
        for text in ("first", "second\n"):
            file.write_text(text)
            await done(client.service.whoami())
        file.unlink()
        with pytest.raises(ClientError, match="the token can't be read: No such file or directory"):
            await done(client.service.whoami())
    assert sent == ["Bearer first", "Bearer second"]


class Listed:
    """A service with a list of three pages."""

    TOKENS: Final = (None, "t1", "t2")
    ETAG: Final = '"run"'

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(dict(request.url.params))
        place = self.TOKENS.index(request.url.params.get("pageToken"))
        following = (*self.TOKENS, None)[place + 1]
        page = {
            "items": [{"id": f"{place}a"}, {"id": f"{place}b"}],
            "nextPageToken": following,
            "skipped": [str(place)],
        }
        if request.headers.get("If-None-Match") == self.ETAG:
            return httpx.Response(304, headers={"ETag": self.ETAG})
        return httpx.Response(200, json=page, headers={"ETag": self.ETAG})


async def test_a_list_is_read_to_its_end(kind: Kind) -> None:
    service = Listed()
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        found = await items(client.client_quotas.list(user="x y", page_size=2))
        skipped = [page["skipped"] for page in await bodies(client.client_quotas.list())]
    assert [item["id"] for item in found] == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert skipped == [["0"], ["1"], ["2"]]
    assert service.asked[:2] == [{"user": "x y", "pageSize": "2"}, {"user": "x y", "pageSize": "2", "pageToken": "t1"}]


async def test_an_empty_page_with_a_token_does_not_end_a_list(kind: Kind) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        number = int(request.url.params.get("pageToken", "0"))
        found = {
            "items": [{"id": "late"}] if number == 3 else [],
            "nextPageToken": None if number == 4 else f"{number + 1}",
        }
        return httpx.Response(200, json={**found, "skipped": []})

    async with connected(kind, transport=httpx.MockTransport(answer)) as client:
        assert await items(client.client_quotas.list(key="rare")) == [{"id": "late"}]
        assert len(await bodies(client.configs.list(key="rare"))) == 5


async def test_a_list_with_an_etag_is_read_only_when_it_has_changed(kind: Kind) -> None:
    service = Listed()
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        changed = client.rollups.drift(if_none_match='"an earlier run"')
        assert [item["id"] for item in await items(changed)] == ["0a", "0b", "1a", "1b", "2a", "2b"]
        assert (changed.etag, changed.unchanged, len(service.asked)) == (Listed.ETAG, False, 3)
        same = client.rollups.drift(if_none_match=changed.etag)
        assert await items(same) == []
        assert (same.etag, same.unchanged, same.next_token, len(service.asked)) == (Listed.ETAG, True, None, 4)


async def test_a_page_is_read_when_it_is_reached_and_a_list_is_taken_up_again(kind: Kind) -> None:
    service = Listed()
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        pages = client.client_quotas.list()
        first = await anext(aiter(pages)) if hasattr(pages, "__aiter__") else next(iter(pages))
        assert (first["id"], len(service.asked), pages.next_token) == ("0a", 1, "t1")
        rest = client.client_quotas.list(page_token=pages.next_token)
        assert [item["id"] for item in await items(rest)] == ["1a", "1b", "2a", "2b"]
        assert rest.next_token is None


async def test_an_unchanged_resource_has_no_body(kind: Kind) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("If-None-Match"))
        return httpx.Response(304 if seen[-1] else 200, json=None if seen[-1] else {"id": "a"}, headers={"ETag": '"a"'})

    async with connected(kind, transport=httpx.MockTransport(answer)) as client:
        first = await done(client.configs.get.if_none_match(None, "topic=orders"))
        second = await done(client.configs.get.if_none_match(first.etag, "topic=orders"))
    assert (first.status, first.body, second.status, second.etag) == (200, {"id": "a"}, 304, '"a"')
    assert seen == [None, '"a"']


class Contested:
    """A service with one entity, which others change before each of the first writes."""

    def __init__(self, values: dict[str, Any] | None, conflicts: int) -> None:
        self.values, self.conflicts = values, conflicts
        self.conditions: list[dict[str, str]] = []
        self.reads: list[dict[str, str]] = []
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            self.reads.append(dict(request.url.params))
            if self.values is None:
                return httpx.Response(404, json={"type": "/problems/not-found", "kafkaErrorCode": 91})
            return httpx.Response(200, json={"quotas": self.values}, headers={"ETag": f'"{len(self.conditions)}"'})
        self.keys.append(request.headers.get("Idempotency-Key"))
        names = ("If-Match", "If-None-Match")
        self.conditions.append({name: request.headers[name] for name in names if name in request.headers})
        if self.conflicts:
            self.conflicts -= 1
            self.values = {**(self.values or {}), "consumer_byte_rate": self.conflicts}
            problem = {"type": "/problems/precondition-failed", "kafkaErrorCode": 95, "etag": '"b"'}
            return httpx.Response(412, json=problem)
        self.values = json.loads(request.content)["quotas"]
        return httpx.Response(200, json={"quotas": self.values})


async def test_an_update_is_retried_after_concurrent_changes(kind: Kind, pauses: list[float]) -> None:
    service = Contested(None, conflicts=2)
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        answer = await done(client.client_quotas.update("user=alice", lambda values: {**values, **QUOTA}))
    assert answer.body == {"quotas": {"consumer_byte_rate": 0, **QUOTA}}
    assert service.conditions == [{"If-None-Match": "*"}, {"If-Match": '"1"'}, {"If-Match": '"2"'}]
    assert service.reads == [{}, {"consistency": "strong"}, {"consistency": "strong"}]
    assert len(pauses) == 2
    assert pauses[0] > 0.1


@pytest.mark.usefixtures("pauses")
async def test_a_given_key_is_that_of_the_first_try_of_an_update(kind: Kind) -> None:
    service = Contested(None, conflicts=2)
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        update = client.client_quotas.update
        await done(update("user=alice", lambda values: {**values, **QUOTA}, idempotency_key="mine"))
    first, *others = service.keys
    assert first == "mine"
    assert len({*others, "mine"}) == 3


async def test_an_update_without_a_difference_writes_nothing(kind: Kind) -> None:
    service = Contested(dict(QUOTA), conflicts=0)
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        answer = await done(client.client_quotas.update("user=alice", lambda values: {**values, **QUOTA}))
    assert answer.body == {"quotas": QUOTA}
    assert service.conditions == []


async def test_an_update_of_nothing_to_nothing_writes_nothing(kind: Kind) -> None:
    service = Contested(None, conflicts=0)
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        with pytest.raises(ResourceNotFoundError):
            await done(client.client_quotas.update("user=alice", lambda values: values))
    assert service.conditions == []


async def test_an_update_gives_up_when_concurrent_changes_continue(kind: Kind, pauses: list[float]) -> None:
    service = Contested({}, conflicts=100)
    async with connected(kind, transport=httpx.MockTransport(service)) as client:
        with pytest.raises(PreconditionFailedError) as raised:
            await done(client.client_quotas.update("user=alice", lambda values: {**values, **QUOTA}))
    assert raised.value.etag == '"b"'
    assert len(service.conditions) == 5
    assert len(pauses) == 4


@pytest.mark.parametrize(
    "answer",
    [
        lambda: httpx.Response(200, content=b"<html>"),
        lambda: httpx.Response(200),
        lambda: httpx.Response(204),
        lambda: httpx.Response(200, content=b'"up"'),
        lambda: httpx.Response(200, content=b"[" * 100_000),
        lambda: httpx.Response(200, json={}, headers={"Confplane-Revision": "5, 5"}),
        lambda: httpx.Response(200, json={}, headers={"Confplane-Stale-Ms": "?"}),
        lambda: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"{}")),
    ],
    ids=["html", "empty", "no content", "text", "deep", "doubled header", "mangled header", "wrong encoding"],
)
async def test_a_success_of_something_in_between_is_an_error_and_a_write_may_be_applied(
    kind: Kind, answer: Callable[[], httpx.Response]
) -> None:
    service = Flaky(answer(), answer())
    async with connected(kind, transport=service.transport) as client:
        for sent, may_be_applied in (client.client_quotas.get, False), (client.client_quotas.delete, True):
            with pytest.raises(ClientError, match="is this the URL of a Confplane") as raised:
                await done(sent("user=alice"))
            assert (raised.value.retriable, raised.value.may_be_applied) == (False, may_be_applied)
    assert len(service.keys) == 2


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_a_redirect_is_no_success(kind: Kind, status: int) -> None:
    redirect = httpx.Response(status, headers={"Location": "https://confplane.test/"})
    service = Flaky(redirect, redirect, redirect)
    async with connected(kind, transport=service.transport) as client:
        sends: list[Callable[[], Any]] = [
            lambda: client.client_quotas.put("user=alice", QUOTA),
            lambda: client.client_quotas.delete("user=alice"),
            lambda: client.client_configs.get.if_none_match('"a"', "user=alice"),
        ]
        for send in sends:
            with pytest.raises(ProblemError, match=r"to https://confplane\.test/") as raised:
                await done(send())
            error = raised.value
            assert (error.status, error.retriable, error.may_be_applied) == (status, False, False)
    assert len(service.keys) == 3


async def test_not_modified_answers_only_a_read_with_an_etag(kind: Kind) -> None:
    service = Flaky(*(httpx.Response(304) for _ in range(2)))
    async with connected(kind, transport=service.transport) as client:
        sends: list[Callable[[], Any]] = [
            lambda: client.client_quotas.put("user=alice", QUOTA, if_none_match="*"),
            lambda: client.client_configs.get("user=alice"),
        ]
        for send in sends:
            with pytest.raises(ProblemError, match="304"):
                await done(send())


@pytest.mark.parametrize(
    "members",
    [
        {"errors": ["a text"]},
        {"errors": {"message": "a text"}},
        {"errors": [{"pointer": 5}, None]},
        {"kafkaErrorCode": "42", "kafkaErrorName": 42, "retriable": "false", "outcome": [], "type": {}},
        {"type": None, "etag": 5, "changeId": {}},
        {"type": 7, "kafkaErrorCode": [42], "errors": "none"},
    ],
)
async def test_an_error_of_something_in_between_is_an_error_of_this_library(
    kind: Kind, members: dict[str, Any]
) -> None:
    service = Flaky(httpx.Response(400, json=members))
    async with connected(kind, transport=service.transport) as client:
        with pytest.raises(ProblemError) as raised:
            await done(client.service.whoami())
    error = raised.value
    assert type(error) is ProblemError
    assert (error.status, error.retriable, error.kafka_error_code, error.field) == (400, False, None, None)
    assert error.body == members
    assert all(isinstance(part, dict) for part in error.errors)


async def test_an_error_of_tls_during_an_answer_is_an_error_of_this_library(kind: Kind) -> None:
    service = Flaky(ssl.SSLError("TLSV13_ALERT_CERTIFICATE_REQUIRED"))
    async with connected(kind, transport=service.transport, tries=1) as client:
        with pytest.raises(ConnectionFailedError, match="CERTIFICATE_REQUIRED"):
            await done(client.service.whoami())


@pytest.mark.parametrize(
    ("url", "etag"), [("confplane.test", '"a"'), ("ftp://confplane.test", '"a"'), ("http://confplane.test", '"ä"')]
)
async def test_a_request_that_can_not_be_sent_is_an_error_at_once(kind: Kind, url: str, etag: str) -> None:
    async with connected(kind, url) as client:
        with pytest.raises(ClientError, match="can't be sent") as raised:
            await done(client.client_quotas.put("user=alice", QUOTA, if_match=etag))
    assert (raised.value.retriable, raised.value.may_be_applied) == (False, False)


@pytest.mark.parametrize("page", [{}, {"items": []}, {"items": {}, "nextPageToken": None}, {"nextPageToken": "t"}])
async def test_a_page_of_something_in_between_is_an_error_of_this_library(kind: Kind, page: dict[str, Any]) -> None:
    async with connected(kind, transport=Flaky(httpx.Response(200, json=page)).transport) as client:
        with pytest.raises(ClientError, match="is this the URL of a Confplane"):
            await items(client.client_quotas.list())


@pytest.mark.parametrize(
    "answer",
    [
        lambda: httpx.Response(200, json={"message": "welcome"}, headers={"ETag": '"a"'}),
        lambda: httpx.Response(200, json={"quotas": {}}),
    ],
    ids=["no quotas", "no ETag"],
)
async def test_an_update_writes_nothing_over_an_answer_of_something_in_between(
    kind: Kind, answer: Callable[[], httpx.Response]
) -> None:
    service = Flaky(answer())
    async with connected(kind, transport=service.transport) as client:
        with pytest.raises(ClientError, match="is this the URL of a Confplane"):
            await done(client.client_quotas.update("user=alice", lambda values: {**values, **QUOTA}))
    assert len(service.keys) == 1


async def _following(events: Any) -> Any:
    return await anext(events) if isinstance(events, AsyncIterator) else next(events)


async def test_events_without_an_id_that_several_polls_return_are_yielded_once(kind: Kind) -> None:
    first, second, third = ({"changeId": name} for name in "abc")
    positioned = {"changeId": "a", "id": "p1"}
    pages = ([first, second], [first, second, third], [positioned])
    polls = [httpx.Response(200, json={"events": page, "position": "p"}) for page in pages]
    async with connected(kind, transport=Flaky(*polls, httpx.Response(410, json={})).transport) as client:
        events = client.changes()
        assert [await _following(events) for _ in range(4)] == [first, second, third, positioned]
        with pytest.raises(ProblemError):
            await _following(events)


async def test_a_poll_of_the_feed_may_take_as_long_as_it_waits(kind: Kind) -> None:
    read_timeouts: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        read_timeouts.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"events": [], "position": "p"})

    async with connected(kind, transport=httpx.MockTransport(answer)) as client:
        await done(client.feed.poll(wait_s=60))
    assert read_timeouts[0] > 60


@pytest.mark.parametrize("timeout_s", [0.5, 5.0, 30.0])
async def test_an_iteration_over_changes_waits_for_the_next_one(kind: Kind, timeout_s: float) -> None:
    waits: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(int(request.url.params["wait"]))
        return httpx.Response(410, json={})

    async with connected(kind, transport=httpx.MockTransport(answer), timeout_s=timeout_s) as client:
        with pytest.raises(ProblemError):
            await _following(client.changes())
    assert waits[0] >= 1
