"""Requests to a cluster are counted by API and by the code of the answer, or by what became of them without one."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.connection import KraftConnection
from confplane.kraft.wire.errors import ProtocolError, UnreachableError, WireError
from confplane.kraft.wire.messages import MetadataRequest, MetadataResponse
from confplane.kraft.wire.options import Options, RequestCounts
from tests.kraft.test_hostile import metadata_answer, node, soon, versions_answer
from tests.support.kraft_client import client_of

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster

VERSIONS = 18
LONG_S = 60.0


def ends_of(requests: RequestCounts, api: str) -> dict[str, int]:
    return {code: count for (name, code), count in requests.outcomes.items() if name == api}


async def test_each_code_of_an_answer_counts_once(kraft: KraftCluster) -> None:
    options = Options()

    def by() -> float:
        return soon(LONG_S)

    topic = Resource(ConfigResourceType.TOPIC, "requests-absent")
    metrics = [Resource(ConfigResourceType.CLIENT_METRICS, name) for name in ("requests-a", "requests-b")]
    async with client_of(*kraft.bootstrap, options=options) as client:
        await client.quota_alters.alter(
            [((("user", "requests"),), {"producer_byte_rate": 12.0})], by, validate_only=True
        )
        await client.config_alters().alter(
            [(topic, {"retention.ms": "5"}), *((each, {"interval.ms": "1000"}) for each in metrics)],
            by,
            validate_only=True,
        )
        found = await client.describe_quotas(None, by())
        assert (await client.describe_quotas(found.digest, by())).entries is None
    requests = options.requests
    assert ends_of(requests, "AlterClientQuotas") == {"NONE": 1}
    assert ends_of(requests, "IncrementalAlterConfigs") == {"NONE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    assert ends_of(requests, "DescribeClientQuotas") == {"NONE": 2}
    assert ends_of(requests, "ApiVersions").keys() == ends_of(requests, "Metadata").keys() == {"NONE"}


@pytest.mark.parametrize(
    ("code", "name"),
    [(7, "REQUEST_TIMED_OUT"), (-1, "UNKNOWN_SERVER_ERROR"), (12345, "OTHER"), (54321 - 65536, "OTHER")],
)
async def test_a_code_has_kafkas_name_and_any_other_code_the_same_one(code: int, name: str) -> None:
    async def answer(key: int, version: int) -> bytes:
        if key == VERSIONS:
            return versions_answer().encode(version)
        return b"\0" + MetadataResponse(error_code=code).encode(version)

    options = Options()
    async with node(answer) as address:
        connection = await KraftConnection.open(address, options, soon())
        await connection.call(MetadataRequest(topics=()), MetadataResponse, soon())
        await connection.close()
    assert ends_of(options.requests, "Metadata") == {name: 1}


async def test_requests_without_an_answer_count_by_what_became_of_them() -> None:
    silent = asyncio.Event()

    async def answer(key: int, version: int) -> bytes | None:
        if key == VERSIONS:
            return versions_answer().encode(version)
        silent.set()
        return None

    options = Options()
    async with node(answer) as address:
        connection = await KraftConnection.open(address, options, soon())
        with pytest.raises(UnreachableError, match="in time"):
            await connection.call(MetadataRequest(topics=()), MetadataResponse, time.monotonic() + 0.2)
        connection = await KraftConnection.open(address, options, soon())
        silent.clear()
        call = asyncio.create_task(connection.call(MetadataRequest(topics=()), MetadataResponse, soon(LONG_S)))
        await silent.wait()
        await connection.close()
        with pytest.raises(UnreachableError, match="closed"):
            await call
    assert ends_of(options.requests, "Metadata") == {"timeout": 1, "disconnected": 1}
    assert ends_of(options.requests, "ApiVersions") == {"NONE": 2}


@pytest.mark.parametrize("broken", [b"\0\0\0\0\1", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"], ids=["body", "header"])
async def test_an_answer_that_is_no_message_is_malformed(broken: bytes) -> None:
    async def answer(key: int, version: int) -> bytes:
        return versions_answer().encode(version) if key == VERSIONS else broken

    options = Options()
    async with node(answer) as address:
        connection = await KraftConnection.open(address, options, soon())
        with pytest.raises((WireError, ProtocolError)):
            await connection.call(MetadataRequest(topics=()), MetadataResponse, soon())
        await connection.close()
    assert ends_of(options.requests, "Metadata") == {"malformed": 1}


def test_an_answer_of_metadata_has_one_code_whatever_its_topics() -> None:
    requests = RequestCounts()
    requests.answered("Metadata", metadata_answer(1))
    assert requests.outcomes == {("Metadata", "NONE"): 1}
