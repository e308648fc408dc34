"""Connections to nodes that hang: callers share the making of a connection, and wait no longer than they may."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.kraft.pool import ConnectionPartition, ConnectionPool
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire import errors
from confplane.kraft.wire.errors import RightsError, UnreachableError
from confplane.kraft.wire.messages import DescribeClusterResponse
from confplane.kraft.wire.options import Address, Options
from tests.support.kraft_client import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.kraft.wire.connection import KraftConnection


def soon(seconds: float = 60) -> float:
    return time.monotonic() + seconds


class Silent:
    """A node that takes connections and never answers; ``connections`` counts them."""

    def __init__(self) -> None:
        self.connections = 0
        self.address = Address("127.0.0.1", 0)
        self.connected = asyncio.Event()


@asynccontextmanager
async def silent_node() -> AsyncIterator[Silent]:
    node, writers = Silent(), []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node.connections += 1
        node.connected.set()
        writers.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    node.address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield node
    finally:
        for each in writers:
            each.close()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def pool_of(node: Silent, **limits: Any) -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool([node.address], Options(), cluster_id=None, **limits)
    try:
        yield made
    finally:
        await made.close()


async def test_nobody_waits_for_a_connection_longer_than_until_the_own_deadline() -> None:
    async with silent_node() as node, pool_of(node) as pool:
        patient = asyncio.create_task(pool.any(soon()))
        await node.connected.wait()
        with pytest.raises(UnreachableError, match="did not answer in time"):
            await pool.any(soon(0.05))
        assert not patient.done()
        # Both waited for the same connection.
        assert node.connections == 1
        await pool.close()
        with pytest.raises(UnreachableError, match="were closed"):
            await patient


async def test_a_node_that_hung_holds_its_callers_up_no_more() -> None:
    async with silent_node() as node, pool_of(node, connect_s=0.05, hung_s=0.05) as pool:
        with pytest.raises(UnreachableError):
            await pool.any(soon())
        pool.connect_s = 3600
        (slot,) = pool._slots.values()
        slot.not_before = 0.0
        for _ in range(2):
            with pytest.raises(UnreachableError, match="did not answer in time"):
                await pool.any(soon())
            # The connection is made all the same, for those who come later.
            assert slot.opening is not None
        assert node.connections == 2


async def test_partitions_have_connections_of_their_own() -> None:
    async with silent_node() as node, pool_of(node) as pool:
        for lane in ConnectionPartition:
            with pytest.raises(UnreachableError):
                await pool.any(soon(0.05), lane)
        assert node.connections == len(ConnectionPartition)


@pytest.mark.parametrize("port", [-738_161_045, -1, 65_536, 2**31 - 1])
async def test_a_node_whose_port_can_not_be_is_away(port: int) -> None:
    """The metadata of a broker may name such a port for another broker."""
    pool = ConnectionPool([Address("127.0.0.1", port)], Options(), cluster_id=None)
    try:
        for _ in range(2):
            with pytest.raises(UnreachableError, match=f"There is no connection to 127.0.0.1:{port}: "):
                await pool.any(soon())
    finally:
        await pool.close()


@pytest.mark.parametrize("name", ["x", "-1", "1.5", "\u0663"])
async def test_nothing_is_asked_of_a_broker_whose_name_is_no_number_of_kafka(name: str) -> None:
    """Arabic digits are one for Python alone."""
    resource = Resource(ConfigResourceType.BROKER, name)
    async with client_of("127.0.0.1:1") as client:
        [found] = await client.describe_configs([resource], soon())
    assert str(found.error) == f"There is no broker {name!r}."


class _Controller:
    """A controller that refuses to describe its cluster to those without ALTER on it."""

    address = Address("127.0.0.1", 9093)

    async def call(self, *_: object) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            error_code=errors.CLUSTER_AUTHORIZATION_FAILED, error_message="Not authorized", cluster_id=""
        )


@pytest.mark.parametrize("cluster_id", ["the one", None])
async def test_a_controller_that_describes_nothing_is_used_if_the_id_of_its_cluster_is_known(
    cluster_id: str | None,
) -> None:
    pool = ConnectionPool([_Controller.address], Options(), cluster_id=cluster_id, controllers=True)
    try:
        with nullcontext() if cluster_id else pytest.raises(RightsError):
            await pool.refresh(cast("KraftConnection", _Controller()), soon())
    finally:
        await pool.close()
