"""Alters of client quotas and configs on a real cluster: the end of each entity, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from confplane.kraft import alters
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire import errors
from confplane.kraft.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from confplane.kraft.wire.messages.configs import AlterConfigsResourceResponse
from confplane.kraft.wire.messages.quotas import AlterClientQuotasResponseEntityData, AlterClientQuotasResponseEntryData
from confplane.kraft.wire.options import Options
from confplane.kraft.wire.sasl import Scram
from confplane.services.ports.applying import AlterApplied, AlterRefused, AlterRetriable, AlterUnknown
from tests.support.kraft import PASSWORDS
from tests.support.kraft_client import client_of, settle
from tests.support.kraft_writer import KraftWriter
from tests.support.proxy import proxy
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.kraft.wire.connection import KraftConnection
    from tests.support.kraft import KraftCluster

RATE = "producer_byte_rate"


def soon() -> float:
    return time.monotonic() + 60


def user(name: str) -> tuple[tuple[str, str | None], ...]:
    return (("user", name),)


async def test_each_entity_has_its_own_outcome(kraft: KraftCluster) -> None:
    async with client_of(*kraft.bootstrap) as client:
        names: list[alters.Name] = [
            user("alter-\u00fc 1"),
            (("user", "alter-2"), ("client-id", None)),
            (("client-id", "alter-3"),),
            (("ip", "10.9.9.9"),),
        ]
        good: list[alters.QuotaOps] = [
            (name, {"connection_creation_rate" if name[0][0] == "ip" else RATE: 12.0}) for name in names
        ]
        bad: list[alters.QuotaOps] = [
            (user("alter-bad-1"), {"no_such_key": 1.0}),
            (user("alter-bad-2"), {RATE: 0.5}),
            ((("ip", "10.9.9.8"),), {RATE: 1.0}),
        ]
        mixed = [good[0], bad[0], good[1], bad[1], bad[2], good[2], good[3]]
        ends = await client.quota_alters.alter(mixed, soon)
        assert [type(each) for each in ends] == [
            AlterApplied,
            AlterRefused,
            AlterApplied,
            AlterRefused,
            AlterRefused,
            AlterApplied,
            AlterApplied,
        ]
        assert {each.code for each in ends if isinstance(each, AlterRefused)} == {errors.INVALID_REQUEST}
        await client.barrier(soon())
        for name, ops in good:
            assert await client.describe_quotas_of(name, soon()) == ops
        # A removal; a removal of what is not there; the same value again.
        again: list[alters.QuotaOps] = [
            (names[0], {RATE: None}),
            (names[2], {RATE: 12.0}),
            (user("alter-absent"), {RATE: None}),
        ]
        assert await client.quota_alters.alter(again, soon) == [AlterApplied()] * 3
        await client.barrier(soon())
        assert await client.describe_quotas_of(names[0], soon()) is None


async def test_each_config_has_its_own_outcome(kraft: KraftCluster) -> None:
    async with client_of(*kraft.bootstrap) as client, KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics("alter-topic")
        topic, absent = (Resource(ConfigResourceType.TOPIC, name) for name in ("alter-topic", "alter-no-topic"))
        group, metrics = (
            Resource(ConfigResourceType.GROUP, "alter-g"),
            Resource(ConfigResourceType.CLIENT_METRICS, "alter-m"),
        )
        mixed: list[alters.ConfigOps] = [
            (topic, {"retention.ms": "5000"}),
            (absent, {"retention.ms": "5000"}),
            (group, {"consumer.session.timeout.ms": "46000"}),
            (metrics, {"interval.ms": "1"}),
            (Resource(ConfigResourceType.BROKER, ""), {"log.cleaner.threads": "2"}),
        ]
        shared, own = client.config_alters(), client.config_alters(1)
        for validate_only in (True, False):
            ends = await shared.alter(mixed, soon, validate_only=validate_only)
            assert [type(each) for each in ends] == [
                AlterApplied,
                AlterRefused,
                AlterApplied,
                AlterRefused,
                AlterApplied,
            ]
            assert [each.code for each in ends if isinstance(each, AlterRefused)] == [
                errors.UNKNOWN_TOPIC_OR_PARTITION,
                errors.INVALID_REQUEST,
            ]
            await settle(client)
            described = await client.describe_configs([topic, group], soon(), keys=["retention.ms"])
            assert (described[0].entries[0].value == "5000") is not validate_only
        broker = Resource(ConfigResourceType.BROKER, "1")
        assert await own.alter([(broker, {"log.cleaner.threads": "3"})], soon) == [AlterApplied()]
        # What the broker itself would not start with.
        (end,) = await own.alter([(broker, {"log.cleaner.threads": "x"})], soon)
        assert isinstance(end, AlterRefused)
        with pytest.raises(errors.UnreachableError, match="not available"):
            await client.config_alters(77).alter(
                [(Resource(ConfigResourceType.BROKER, "77"), {"num.io.threads": "9"})], soon
            )
        removals: list[alters.ConfigOps] = [(each, dict.fromkeys(ops)) for each, ops in (mixed[0], mixed[2], mixed[4])]
        assert await shared.alter(removals, soon) == [AlterApplied()] * 3
        assert await own.alter([(broker, {"log.cleaner.threads": None})], soon) == [AlterApplied()]


async def test_a_request_that_is_refused_whole_is_halved_until_the_bad_entry_stands_alone(
    kraft: KraftCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def counted(connection: KraftConnection, entries: Any, deadline: float, *, validate_only: bool) -> Any:
        asked.append(len(entries))
        return await alters.send_quota_alters(connection, entries, deadline, validate_only=validate_only)

    many: list[alters.QuotaOps] = [(user(f"alter-many-{at}"), {RATE: 1.0 + at}) for at in range(10_001)]
    async with client_of(*kraft.bootstrap) as client:
        # More than the controller takes in one request (10,000 records).
        monkeypatch.setattr(alters, "MOST_RECORDS", 20_000)
        quotas: alters.AlterSender[alters.Name, float] = alters.AlterSender(counted, client.quota_alters._connect)
        assert await quotas.alter(many, soon) == [AlterApplied()] * len(many)
        assert asked == [10_001, 5_000, 5_001]
        asked.clear()
        monkeypatch.undo()
        removals: list[alters.QuotaOps] = [(name, {RATE: None}) for name, _ in many]
        assert await quotas.alter(removals, soon) == [AlterApplied()] * len(many)
        assert asked == [4_000, 4_000, 2_001]
        asked.clear()
        bad: list[alters.QuotaOps] = [(user(f"alter-bad-{at}"), {RATE: -1.0}) for at in range(4)]
        assert [type(each) for each in await quotas.alter(bad, soon)] == [AlterRefused] * 4
        assert asked == [4, 2, 1, 1, 2, 1, 1]


async def test_a_request_beyond_the_size_of_a_batch_is_halved(
    kraft: KraftCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is small enough, and all of them are more than the controller writes as one batch (8 MiB)."""
    asked: list[int] = []

    async def counted(connection: KraftConnection, entries: Any, deadline: float, *, validate_only: bool) -> Any:
        asked.append(len(entries))
        return await alters.send_config_alters(connection, entries, deadline, validate_only=validate_only)

    names = [Resource(ConfigResourceType.CLIENT_METRICS, f"alter-large-{at}") for at in range(420)]
    async with client_of(*kraft.bootstrap) as client:
        configs: alters.AlterSender[Resource, str] = alters.AlterSender(counted, client.config_alters()._connect)
        monkeypatch.setattr(alters, "MOST_BYTES", 64 * 1024 * 1024)
        for letter in "ab":
            values = [(name, {"metrics": f"org.apache.{letter * 24_000}"}) for name in names]
            assert await configs.alter(values, soon) == [AlterApplied()] * len(names)
            await settle(client)
            (described,) = await client.describe_configs([names[-1]], soon(), keys=["metrics"])
            assert described.entries[0].value == values[-1][1]["metrics"]
            # The second time no request is too large.
            assert asked == ([420, 210, 210] if letter == "a" else [174, 174, 72])
            asked.clear()
            monkeypatch.undo()
        removals: list[alters.ConfigOps] = [(name, {"metrics": None}) for name in names]
        assert await configs.alter(removals, soon) == [AlterApplied()] * len(names)


async def test_without_the_right_nothing_is_altered(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes

    def login() -> Scram:
        return Scram("bob", PASSWORDS["bob"])

    async with client_of(node.listener("SASL"), options=Options(login=login)) as client:
        (end,) = await client.quota_alters.alter([(user("alter-denied"), {RATE: 1.0})], soon)
        assert isinstance(end, AlterRetriable)
        assert "not permitted" in end.reason
    async with client_of(*kraft.bootstrap) as client:
        assert await client.describe_quotas_of(user("alter-denied"), soon()) is None


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_without_an_answer_the_end_is_unknown(kraft: KraftCluster, lost: str) -> None:
    name, after = user(f"alter-lost-{lost}"), {RATE: 7.0}
    async with (
        proxy(kraft.bootstrap[0]) as line,
        client_of(f"127.0.0.1:{line.port}") as client,
        client_of(*kraft.bootstrap) as other,
    ):
        # The connection is there, as it is in a running service.
        assert await client.quota_alters.alter([(name, {RATE: None})], soon) == [AlterApplied()]
        if lost == "request":
            line.swallowing = True
        else:
            line.replies.clear()
        altering = asyncio.create_task(client.quota_alters.alter([(name, after)], soon))

        async def arrived() -> bool:
            return bool(line.swallowed) or await other.describe_quotas_of(name, soon()) == after

        await until(arrived)
        line.cut()
        (end,) = await altering
        assert isinstance(end, AlterUnknown)
        assert await other.describe_quotas_of(name, soon()) == (None if lost == "request" else after)
        assert await other.quota_alters.alter([(name, {RATE: None})], soon) == [AlterApplied()]


class OtherAnswers:
    """A connection with answers of its own: of users, or of the group and the topic of a name."""

    def __init__(self, *answered: tuple[str, int]) -> None:
        self._answered = answered
        self.requests: list[AlterClientQuotasRequest | IncrementalAlterConfigsRequest] = []

    async def call(
        self, request: AlterClientQuotasRequest | IncrementalAlterConfigsRequest, *_: object
    ) -> AlterClientQuotasResponse | IncrementalAlterConfigsResponse:
        self.requests.append(request)
        if isinstance(request, AlterClientQuotasRequest):
            entries = [
                AlterClientQuotasResponseEntryData(code, "said", (AlterClientQuotasResponseEntityData("user", name),))
                for name, code in self._answered
            ]
            return AlterClientQuotasResponse(entries=tuple(entries))
        responses = []
        for named, code in self._answered:
            kind, resource = named.split(" ")
            responses.append(AlterConfigsResourceResponse(code, "said", int(ConfigResourceType[kind]), resource))
        return IncrementalAlterConfigsResponse(responses=tuple(responses))


async def test_answers_in_another_order_with_more_and_less() -> None:
    connection = OtherAnswers(("c", 0), ("b", 42), ("b", 42), ("stranger", 0), ("a", 7), ("e", 161))

    async def connect(_deadline: float) -> OtherAnswers:
        return connection

    made: alters.AlterSender[alters.Name, float] = alters.AlterSender(alters.send_quota_alters, connect)  # type: ignore[arg-type]
    asked: list[alters.QuotaOps] = [(user(name), {RATE: 1.0}) for name in ("a", "b", "c", "d", "e")]
    assert await made.alter(asked, soon) == [
        AlterUnknown("REQUEST_TIMED_OUT: said"),
        AlterRefused(42, "said"),
        AlterApplied(),
        AlterUnknown("The answer of the broker left the entity out"),
        AlterUnknown("An error that this release does not know: said (code 161)", 161),
    ]
    assert len(connection.requests) == 1


async def test_an_entry_with_an_unexpected_error_stands_alone_and_says_so() -> None:
    """The error of one entry is that of each request with it, as where a policy or the size of all is at fault."""
    asked: list[list[str]] = []
    reachable = True

    async def ask(
        connection: Any, entries: Any, deadline: float, *, validate_only: bool
    ) -> list[alters.AlterEntryResult | None]:
        assert connection is None
        assert deadline
        assert not validate_only
        names = [name for name, _ in entries]
        asked.append(names)
        return [alters.AlterEntryResult(-1 if "bad" in names else 0, "a policy threw")] * len(names)

    async def connect(_deadline: float) -> Any:
        if not reachable or len(asked) == 3:
            raise errors.UnreachableError("gone")

    made: alters.AlterSender[str, str] = alters.AlterSender(ask, connect)
    entries: list[tuple[str, dict[str, str | None]]] = [(name, {"k": "v"}) for name in ("a", "bad", "c", "d")]
    ends = await made.alter(entries, soon)
    # The connection is gone before the second half, of which nothing was sent.
    assert asked == [["a", "bad", "c", "d"], ["a", "bad"], ["a"]]
    assert ends == [AlterApplied(), AlterUnknown("gone"), AlterUnknown("gone"), AlterUnknown("gone")]
    asked.clear()
    asked.append([])
    ends = await made.alter([entries[1]], soon)
    assert ends == [AlterUnknown("UNKNOWN_SERVER_ERROR: a policy threw (code -1)", -1)]
    reachable = False
    with pytest.raises(errors.UnreachableError):
        await made.alter(entries, soon)


async def test_answers_about_configs_in_another_order_with_more_and_less() -> None:
    connection = OtherAnswers(
        ("TOPIC c", 0), ("GROUP a", 42), ("BROKER ", 40), ("GROUP stranger", 0), ("TOPIC a", 7), ("GROUP a", 42)
    )

    async def connect(_deadline: float) -> OtherAnswers:
        return connection

    made: alters.AlterSender[Resource, str] = alters.AlterSender(alters.send_config_alters, connect)  # type: ignore[arg-type]
    kinds = (
        (ConfigResourceType.TOPIC, "a"),
        (ConfigResourceType.GROUP, "a"),
        (ConfigResourceType.TOPIC, "c"),
        (ConfigResourceType.BROKER, ""),
    )
    asked: list[alters.ConfigOps] = [(Resource(kind, name), {"k": "v"}) for kind, name in kinds]
    asked.append((Resource(ConfigResourceType.CLIENT_METRICS, "a"), {"k": "v"}))
    assert await made.alter(asked, soon) == [
        AlterUnknown("REQUEST_TIMED_OUT: said"),
        AlterRefused(42, "said"),
        AlterApplied(),
        AlterRefused(40, "said"),
        AlterUnknown("The answer of the broker left the entity out"),
    ]
    assert len(connection.requests) == 1
