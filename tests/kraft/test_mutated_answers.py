"""Answers of a real broker that are changed on their way: errors in plain words, in time, and a client that recovers."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.errors import KraftError
from confplane.kraft.wire.options import Address
from confplane.services.ports.applying import AlterApplied, AlterRefused, AlterUnknown
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from confplane.kraft.alters import QuotaOps
    from confplane.kraft.client import KraftClient
    from confplane.services.ports.applying import AlterOutcome
    from tests.support.kraft import KraftCluster

CALLERS = 16
CALL_S = 0.25
"""The deadline of a call; an answer that never comes whole costs as much."""
LONGEST_CALL_S = 8.0
"""The deadline after many failures: on a busy machine a connection alone may take longer than a call's."""
SHARE = 0.3
"""The share of answers that are changed."""
GRACE_S = 10.0
"""Seconds behind a deadline that a busy machine may take."""


class MutatingProxy:
    """A proxy to a broker that changes some of the answers.

    Attributes:
        port: Of the clients.
        share: The share of answers that are changed.
        changed: Answers that were changed so far.
    """

    def __init__(self, target: str, seed: int) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._random = random.Random(seed)  # noqa: S311 - seeded
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.share = 0.0
        self.changed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        above, below = await asyncio.open_connection(*self._target)
        self._writers |= {writer, below}
        pumps = asyncio.create_task(self._requests(reader, below)), asyncio.create_task(self._answers(above, writer))
        with suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for each in (writer, below):
            each.transport.abort()
            self._writers.discard(each)

    async def _requests(self, reader: asyncio.StreamReader, below: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            below.write(data)
            await below.drain()

    async def _answers(self, above: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await above.readexactly(4))
            answer = await above.readexactly(size)
            frame: bytes | None = struct.pack(">i", size) + answer
            if self._random.random() < self.share:
                self.changed += 1
                frame = self._mutated(struct.pack(">i", size) + answer)
            if frame is None:
                return
            writer.write(frame)
            await writer.drain()

    def _mutated(self, frame: bytes) -> bytes | None:
        """Return other bytes than the broker's; None cuts the connection."""
        chooser, changed = self._random, bytearray(frame)
        match chooser.randrange(16):
            case 0:
                return None
            case 1:  # the length says another number
                changed[:4] = struct.pack(">i", chooser.choice((-1, 0, 3, len(frame) + 9, 2**31 - 1)))
            case 2:  # the frame ends early, and says so
                left = frame[4 : 4 + chooser.randrange(len(frame) - 3)]
                return struct.pack(">i", len(left)) + left
            case 3:  # the answer of another request
                changed[4:8] = struct.pack(">i", chooser.randrange(-5, 500))
            case 4 | 5:  # a count or a length within that is too large
                at = chooser.randrange(8, len(frame) + 1)
                more = chooser.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80" * 12))
                changed[at : at + len(more)] = more
                changed[:4] = struct.pack(">i", len(changed) - 4)
            case _:
                for _ in range(chooser.randint(1, 6)):
                    changed[chooser.randrange(8, len(changed))] = chooser.randrange(256)
        return bytes(changed)


@asynccontextmanager
async def mutating_proxy(target: str, seed: int) -> AsyncIterator[MutatingProxy]:
    """Run a proxy to a broker."""
    proxy = MutatingProxy(target, seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for writer in list(proxy._writers):
            writer.transport.abort()
        await server.wait_closed()


def calls_of(client: KraftClient) -> list[Callable[[float], Awaitable[Any]]]:
    """Return every describe and alter of a client, with a deadline as its argument."""
    resources = [
        Resource(ConfigResourceType.TOPIC, "mutated"), Resource(ConfigResourceType.BROKER, ""),
        Resource(ConfigResourceType.GROUP, "mutated"), Resource(ConfigResourceType.CLIENT_METRICS, "mutated"),
    ]  # fmt: skip

    async def configs(deadline: float) -> Any:
        return [each.error for each in await client.describe_configs(resources, deadline, keys=["retention.ms"])]

    async def altered_quotas(deadline: float) -> list[AlterOutcome]:
        ops: list[QuotaOps] = [((("user", name),), {"producer_byte_rate": 1.0}) for name in ("mutated", "mutated-too")]
        return _known(await client.quota_alters.alter(ops, lambda: deadline))

    async def altered_configs(deadline: float) -> list[AlterOutcome]:
        ops = [
            (each, {"retention.ms": "1"} if each.type is ConfigResourceType.TOPIC else {"k": "v"}) for each in resources
        ]
        return _known(await client.config_alters().alter(ops, lambda: deadline, validate_only=True))

    return [
        client.cluster_id,
        client.features,
        client.quorum,
        client.topics,
        configs,
        altered_quotas,
        altered_configs,
        lambda deadline: client.describe_quotas(None, deadline),
        lambda deadline: client.describe_quotas_of([("user", "mutated")], deadline),
        lambda deadline: client.list_config_resources(
            [ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS], deadline
        ),
    ]


def _known(ends: list[AlterOutcome]) -> list[AlterOutcome]:
    """Return the ends of alters; one that is not known is an error here, with its reason."""
    unknown = [each.reason for each in ends if isinstance(each, AlterUnknown)]
    if unknown:
        raise KraftError(unknown[0])
    return ends


@pytest.mark.parametrize("mutations", [250, pytest.param(2_000, marks=pytest.mark.long)])
async def test_mutated_answers_end_in_errors_and_the_client_recovers(kraft: KraftCluster, mutations: int) -> None:
    loop, unheard = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    async with KraftWriter(kraft.bootstrap[0]) as writer, mutating_proxy(kraft.bootstrap[0], 11) as proxy:
        await writer.create_topics("mutated", configs={"retention.ms": "1"})
        await writer.quotas(({"user": "mutated"}, {"producer_byte_rate": 1.0}))
        broker = Address("127.0.0.1", proxy.port)  # behind the proxy
        ends: Counter[str] = Counter()

        async def call(number: int) -> None:
            """Call until the client fails, and go on with a new client, which does not wait before it connects."""
            chooser = random.Random(number)  # noqa: S311 - seeded
            call_s = CALL_S
            while proxy.changed < mutations:
                failed = False
                async with client_of(broker, cluster_id=kraft.cluster_id) as client:
                    while not failed and proxy.changed < mutations:
                        begun = time.monotonic()
                        try:
                            await chooser.choice(calls_of(client))(begun + call_s)
                            ends["value"] += 1
                            call_s = CALL_S
                        except KraftError as error:
                            failed = True
                            call_s = min(1.5 * call_s, LONGEST_CALL_S)
                            ends[type(error).__name__] += 1
                            assert str(error)[0].isupper() or str(error)[0].isdigit(), str(error)
                        assert time.monotonic() < begun + LONGEST_CALL_S + GRACE_S

        proxy.share = SHARE
        await asyncio.gather(*(call(number) for number in range(CALLERS)))
        assert min(ends["value"], ends.total() - ends["value"]) > mutations / 20, ends

        # One client through all of it: bad answers again, and then good ones.
        async with client_of(broker, cluster_id=kraft.cluster_id) as client:
            for each in 20 * calls_of(client):
                with suppress(KraftError):
                    await each(time.monotonic() + CALL_S)
                await asyncio.sleep(0)
            proxy.share = 0.0
            answers = [await _until_answered(each) for each in calls_of(client)]
            assert (answers[0], answers[-2]) == (kraft.cluster_id, {"producer_byte_rate": 1.0})
            assert answers[5] == [AlterApplied()] * 2
            assert [type(each) for each in answers[6]] == [AlterApplied, AlterApplied, AlterRefused, AlterRefused]
        await writer.quotas(*(({"user": name}, {"producer_byte_rate": None}) for name in ("mutated", "mutated-too")))
        await writer.delete_topics("mutated")
    assert unheard == []


async def _until_answered(call: Callable[[float], Awaitable[Any]]) -> Any:
    """Call until the pause after failures is over."""
    end = time.monotonic() + 30
    while True:
        try:
            return await call(time.monotonic() + 10)
        except KraftError:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
