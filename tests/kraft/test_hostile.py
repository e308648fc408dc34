"""Bytes and nodes that mean harm, or are broken: errors in time, and nothing that hangs, crashes or takes memory."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.wire import errors, messages, quotas
from confplane.kraft.wire.connection import KraftConnection
from confplane.kraft.wire.errors import WireError
from confplane.kraft.wire.message import run
from confplane.kraft.wire.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse
from confplane.kraft.wire.messages.cluster import MetadataResponseBroker
from confplane.kraft.wire.messages.connection import ApiVersion
from confplane.kraft.wire.options import Address, Options
from tests.kraft.samples import ALL, kio_type, sample
from tests.kraft.test_messages import encoded
from tests.support.kraft_client import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from confplane.kraft.wire.message import Message

MUTATIONS = 2000
CLUSTER = "AClustersIdOfTestsAAAA"


def mutated(data: bytes, chooser: random.Random) -> bytes:
    changed = bytearray(data)
    match chooser.randrange(4):
        case 0:
            return data[: chooser.randrange(len(data) + 1)]
        case 1:
            return data + chooser.randbytes(chooser.randint(1, 9))
        case 2:
            at = chooser.randrange(len(data) + 1)
            changed[at:at] = chooser.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x00", b"\x80" * 12))
    for _ in range(chooser.randint(1, 5)):
        changed[chooser.randrange(len(changed))] = chooser.randrange(256)
    return bytes(changed)


def test_mutated_answers_are_errors_or_values() -> None:
    chooser = random.Random(4)  # noqa: S311 - seeded
    answers = [each for each in ALL if each[1] == "response"]
    originals = [(each, encoded(sample(kio_type(*each), chooser))) for each in answers for _ in range(4)]
    originals = [(each, data) for each, data in originals if data]
    outcomes = {"error": 0, "value": 0}
    for _ in range(MUTATIONS):
        (name, _, version), data = chooser.choice(originals)
        kind: type[Message] = getattr(messages, f"{name}Response")
        changed = mutated(data, chooser)
        try:
            if kind is messages.DescribeClientQuotasResponse:
                run(quotas.steps(changed, version, 0))
            kind.decode(changed, version)
            outcomes["value"] += 1
        except WireError as error:
            outcomes["error"] += 1
            assert error.name == kind.NAME
            assert error.at is not None
            assert error.name in str(error)
    assert min(outcomes.values()) > MUTATIONS / 20


@pytest.mark.parametrize(
    ("kind", "version", "data"),
    [
        (messages.DescribeClientQuotasResponse, 1, b"\0\0\0\0\0\0\0" + b"\xff\xff\xff\xff\x0f"),
        (messages.DescribeClientQuotasResponse, 0, b"\0\0\0\0\0\0\xff\xff" + b"\x7f\xff\xff\xff"),
        (messages.SaslAuthenticateResponse, 2, b"\0\0\0" + b"\xff\xff\xff\xff\x0f"),
        (messages.SaslAuthenticateResponse, 2, b"\0\0" + b"\xff\xff\xff\xff\xff\xff\x0f"),
        (messages.ListConfigResourcesResponse, 1, b"\0\0\0\0\0\0\1" + b"\xff\xff\xff\xff\x0f"),
        (messages.SaslHandshakeResponse, 1, b"\0\0\0\0\0\1\0\2\xff\xfe"),
    ],
)
def test_a_length_beyond_the_bytes_is_an_error_at_once(kind: type[Message], version: int, data: bytes) -> None:
    with pytest.raises(WireError, match="at byte"):
        kind.decode(data, version)


def versions_answer() -> ApiVersionsResponse:
    return ApiVersionsResponse(0, tuple(ApiVersion(key, 0, 13 if key == 3 else 4) for key in (3, 17, 18, 36, 48)))


def metadata_answer(port: int, cluster_id: str = CLUSTER) -> MetadataResponse:
    return MetadataResponse(brokers=(MetadataResponseBroker(1, "127.0.0.1", port),), cluster_id=cluster_id)


@asynccontextmanager
async def node(answer: Callable[[int, int], Awaitable[bytes | None]]) -> AsyncIterator[Address]:
    """A server whose answers, without length and number, depend on the API and its version; None: no answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                key, version, number = struct.unpack_from(">hhi", data)
                body = await answer(key, version)
                if body is not None:
                    writer.write(struct.pack(">ii", len(body) + 4, number) + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def soon(seconds: float = 10) -> float:
    return time.monotonic() + seconds


async def test_a_node_that_never_answers_is_given_up_at_the_deadline() -> None:
    async def silent(_key: int, _version: int) -> None:
        return None

    async with node(silent) as address:
        began = time.monotonic()
        with pytest.raises(errors.UnreachableError, match="did not answer in time"):
            await KraftConnection.open(address, Options(), soon(0.3))
        assert time.monotonic() - began < 5


async def test_a_request_without_an_answer_ends_the_connection_and_the_next_call_makes_another() -> None:
    quotas, port = 0, 0

    async def answer(key: int, version: int) -> bytes | None:
        nonlocal quotas
        if key == 18:
            return versions_answer().encode(version)
        if key == 3:
            return b"\0" + metadata_answer(port).encode(version)
        quotas += 1
        return (
            None if quotas == 1 else b"\0" + messages.DescribeClientQuotasResponse(error_message=None).encode(version)
        )

    async with node(answer) as address, client_of(address) as client:
        port = address.port
        with pytest.raises(errors.UnreachableError, match="did not answer in time"):
            await client.describe_quotas(None, soon(0.5))
        assert await client.describe_quotas(None, soon()) is not None
        assert quotas == 2


async def test_a_caller_that_is_cancelled_leaves_the_connection_to_the_others() -> None:
    release = asyncio.Event()

    async def answer(key: int, version: int) -> bytes | None:
        if key == 18:
            return versions_answer().encode(version)
        await release.wait()
        return b"\0" + metadata_answer(1).encode(version)

    async with node(answer) as address:
        connection = await KraftConnection.open(address, Options(), soon())
        try:
            request = MetadataRequest(topics=())
            gone = asyncio.create_task(connection.call(request, MetadataResponse, soon()))
            await asyncio.sleep(0.05)
            gone.cancel()
            stays = asyncio.create_task(connection.call(request, MetadataResponse, soon()))
            release.set()
            assert (await stays).cluster_id == CLUSTER
            assert connection.usable
        finally:
            await connection.close()


async def test_a_node_that_knows_only_older_versions_is_asked_with_these() -> None:
    asked: list[int] = []

    older = ApiVersionsResponse(35, (ApiVersion(18, 0, 2),))

    async def old(_key: int, version: int) -> bytes:
        asked.append(version)
        return older.encode(0) if version > 2 else versions_answer().encode(version)

    async with node(old) as address:
        connection = await KraftConnection.open(address, Options(), soon())
        await connection.close()
    assert asked == [4, 2]


async def test_a_node_without_an_api_is_named_with_its_versions() -> None:
    async def answer(_key: int, version: int) -> bytes:
        return ApiVersionsResponse(0, (ApiVersion(18, 0, 4), ApiVersion(3, 0, 8))).encode(version)

    async with node(answer) as address:
        connection = await KraftConnection.open(address, Options(), soon())
        try:
            with pytest.raises(
                errors.UnsupportedError, match=r"Metadata in versions 0 to 8; this service speaks 11 to"
            ):
                await connection.call(MetadataRequest(), MetadataResponse, soon())
            with pytest.raises(errors.UnsupportedError, match="has no API DescribeQuorum"):
                await connection.call(messages.DescribeQuorumRequest(), messages.DescribeQuorumResponse, soon())
        finally:
            await connection.close()


@pytest.mark.parametrize("body", [b"", b"\xff" * 40, b"\0" * 3, b"\0\0" + b"\xff\xff\xff\xff\x0f"])
async def test_a_malformed_answer_ends_the_connection_with_a_protocol_error(body: bytes) -> None:
    async def answer(key: int, version: int) -> bytes:
        return versions_answer().encode(version) if key == 18 else body

    async with node(answer) as address:
        connection = await KraftConnection.open(address, Options(), soon())
        try:
            with pytest.raises(errors.ProtocolError):
                await connection.call(MetadataRequest(), MetadataResponse, soon())
            assert not connection.usable
        finally:
            await connection.close()


async def test_another_cluster_is_asked_for_nothing_but_its_id() -> None:
    asked: list[int] = []

    async def answer(key: int, version: int) -> bytes:
        asked.append(key)
        return versions_answer().encode(version) if key == 18 else b"\0" + metadata_answer(1).encode(version)

    async with node(answer) as address, client_of(address, cluster_id="TheClusterThatIsMeant_") as client:
        with pytest.raises(errors.WrongClusterError, match=f"{CLUSTER}, not to TheClusterThatIsMeant_"):
            await client.describe_quotas(None, soon())
    assert set(asked) == {18, 3}


async def test_a_closed_client_leaves_no_task() -> None:
    async def answer(key: int, version: int) -> bytes:
        return versions_answer().encode(version) if key == 18 else b"\0" + metadata_answer(1).encode(version)

    async with node(answer) as address, client_of(address) as client:
        assert await client.cluster_id(soon()) == CLUSTER
        assert any(task.get_name().startswith("kafka ") for task in asyncio.all_tasks())
        await client.close()
        assert not any(task.get_name().startswith("kafka ") for task in asyncio.all_tasks())
        with pytest.raises(errors.UnreachableError, match="were closed"):
            await client.cluster_id(soon())


@pytest.mark.parametrize("text", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "::1:9092", "kafka:9092x"])
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        Address.parse(text)


def test_addresses() -> None:
    assert Address.parse("kafka1:9092") == Address("kafka1", 9092)
    assert str(Address.parse("[::1]:9092")) == "[::1]:9092"
