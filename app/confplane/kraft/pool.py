"""Connections to the nodes of one cluster: opened when needed, checked for the cluster's id, and kept open."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from confplane.kraft.wire import errors
from confplane.kraft.wire.connection import KraftConnection
from confplane.kraft.wire.errors import UnreachableError, WrongClusterError
from confplane.kraft.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from confplane.kraft.wire.options import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from confplane.kraft.wire.options import Options


_CLOSED: Final = "The connections of this cluster were closed."
_BACK_OFF_S: Final = (0.1, 10.0)
_OTHER_ENDPOINT: Final = 114
"""MISMATCHED_ENDPOINT_TYPE: a broker was asked as a controller."""
_CONTROLLERS: Final = 2  # DescribeCluster's number for controllers


class ConnectionPartition(IntEnum):
    """Separate connections to a node, because a node processes the requests of one connection one after the other."""

    SHORT = 0
    LONG = 1
    """Responses of megabytes, and requests that wait for the end of the log."""
    ALTERS = 2
    """Alters, which a broker forwards one after the other."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is alive, according to the cluster's metadata."""

    node_id: int
    address: Address


@dataclass(slots=True)
class _Slot:
    """The place of one connection."""

    connection: KraftConnection | None = None
    opening: asyncio.Task[KraftConnection] | None = None
    """The task that opens the connection. All callers wait for it together."""
    began: float = 0.0
    """The time at which the opening began."""
    hung: bool = False
    """True if the node did not respond in time to the previous attempt."""
    failures: int = 0
    not_before: float = 0.0
    error: UnreachableError | None = None


class ConnectionPool:
    """Connections to the brokers, or to the controllers, of one cluster; one for each address and partition.

    Args:
        bootstrap: Addresses to begin with.
        options: Options of all connections.
        cluster_id: The id that every node must report right after the login. None means that of the first node.
        controllers: True if the addresses are those of controllers.
        connect_s: The time limit for a connection with its login, so that a node that hangs leaves time for another
            one.
        hung_s: The time that callers wait for a connection to a node that hung before. The connection is opened in any
            case.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        options: Options,
        *,
        cluster_id: str | None,
        controllers: bool = False,
        connect_s: float = 10.0,
        hung_s: float = 0.5,
    ) -> None:
        self.connect_s = connect_s
        self._hung_s = hung_s
        self.cluster_id = cluster_id
        self.brokers: tuple[Broker, ...] = ()
        """The brokers according to the newest metadata. Empty for controllers."""
        self._bootstrap = tuple(dict.fromkeys(bootstrap))
        self._options = options
        self._controllers = controllers
        self._slots: dict[tuple[Address, ConnectionPartition], _Slot] = {}
        self._favourite: Address | None = None
        self._closed = False

    @property
    def favourite(self) -> Address | None:
        """The node that :meth:`any` prefers: the one that was connected last, until it fails."""
        return self._favourite

    def prefer(self, address: Address | None) -> None:
        """Make a node the favourite, such as the active controller. None means any node."""
        self._favourite = address

    async def any(self, deadline: float, partition: ConnectionPartition = ConnectionPartition.SHORT) -> KraftConnection:
        """Return a connection to the favourite, or to another node; each is tried once.

        Raises:
            UnreachableError: No node is reachable. Failed nodes are not tried again for a while, 0.1 s at first and at
                most 10 s.
            KraftLoginError, WrongClusterError, ProtocolError, UnsupportedError: As reported by the first node that is
                reached.
        """
        last: UnreachableError | None = None
        for address in self._order():
            try:
                found = await self.to(address, deadline, partition)
            except UnreachableError as error:
                last = error
                if self._favourite == address:
                    self._favourite = None
                if time.monotonic() >= deadline:
                    break
            else:
                self._favourite = address
                return found
        kind = "controller" if self._controllers else "broker"
        raise UnreachableError(f"No {kind} of the cluster answers. {last}") from None

    def _order(self) -> list[Address]:
        known = [broker.address for broker in self.brokers]
        others = [each for each in dict.fromkeys([*known, *self._bootstrap]) if each != self._favourite]
        random.shuffle(others)
        return ([self._favourite] if self._favourite is not None else []) + others

    async def to(
        self, address: Address, deadline: float, partition: ConnectionPartition = ConnectionPartition.SHORT
    ) -> KraftConnection:
        """Return a connection to an address; the errors are those of :meth:`any`.

        A node that hung before is connected in the background, and delays its callers only briefly at each try.
        """
        slot = self._slots.setdefault((address, partition), _Slot())
        if slot.connection is not None and slot.connection.usable:
            return slot.connection
        if self._closed:
            raise UnreachableError(_CLOSED)
        if slot.opening is None:
            if slot.error is not None and time.monotonic() < slot.not_before:
                raise slot.error.with_traceback(None)
            slot.began = time.monotonic()
            slot.opening = asyncio.create_task(self._open(slot, address), name=f"kafka-connect-{address}")
            slot.opening.add_done_callback(_retrieve_error)
        opening = slot.opening
        until = min(deadline, slot.began + self._hung_s) if slot.hung else deadline
        await asyncio.wait({opening}, timeout=max(0.0, until - time.monotonic()))
        if not opening.done():
            raise UnreachableError(f"{address} did not answer in time (connecting).")
        if opening.cancelled():
            raise UnreachableError(_CLOSED)
        error = opening.exception()
        if error is not None:
            raise error.with_traceback(None)
        return opening.result()

    async def _open(self, slot: _Slot, address: Address) -> KraftConnection:
        deadline = slot.began + self.connect_s
        try:
            if slot.connection is not None:
                await slot.connection.close()
            connection = await KraftConnection.open(address, self._options, deadline)
            try:
                await self.refresh(connection, deadline)
            except BaseException:
                await connection.close()
                raise
        except UnreachableError as error:
            slot.failures += 1
            slot.hung = time.monotonic() >= deadline
            least, most = _BACK_OFF_S
            pause = min(most, least * 2 ** min(slot.failures, 10)) * random.uniform(0.5, 1)  # noqa: S311 - spread
            slot.not_before, slot.error = time.monotonic() + pause, error
            raise
        else:
            slot.connection, slot.hung, slot.failures, slot.error = connection, False, 0, None
            return connection
        finally:
            slot.opening = None

    async def refresh(self, connection: KraftConnection, deadline: float) -> None:
        """Ask a node for its cluster's id and, if it is a broker, for the brokers that are alive.

        Raises:
            WrongClusterError: The node belongs to another cluster.
        """
        if self._controllers:
            request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
            described = await connection.call(request, DescribeClusterResponse, deadline)
            if described.error_code in errors.RIGHTS and self.cluster_id is not None:
                # Controllers require ALTER on the cluster for this request. They check the cluster id in each request
                # for the log.
                return
            if described.error_code == _OTHER_ENDPOINT:
                raise UnreachableError(
                    f"{connection.address} is the port of a broker, not of a controller: name controllers in"
                    " `kafka.controllers`, and brokers in `kafka.bootstrap`."
                )
            errors.check("DescribeCluster", described.error_code, described.error_message)
            self._check(connection.address, described.cluster_id)
            return
        if not connection.offers(MetadataRequest):
            raise UnreachableError(
                f"{connection.address} is the port of a controller, not of a broker: name brokers in `kafka.bootstrap`,"
                " and controllers in `kafka.controllers`."
            )
        metadata = await connection.call(
            MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse, deadline
        )
        errors.check("Metadata", metadata.error_code)
        self._check(connection.address, metadata.cluster_id)
        self.brokers = tuple(Broker(each.node_id, Address(each.host, each.port)) for each in metadata.brokers)

    def _check(self, address: Address, found: str | None) -> None:
        if self.cluster_id is None:
            self.cluster_id = found
        elif found != self.cluster_id:
            raise WrongClusterError(str(address), self.cluster_id, found)

    async def broker(
        self, node_id: int, deadline: float, partition: ConnectionPartition = ConnectionPartition.SHORT
    ) -> KraftConnection:
        """Return a connection to one broker by its number.

        Raises:
            UnreachableError: It is not alive. Other errors are those of :meth:`any`.
        """
        known = self._address_of(node_id)
        if known is not None:
            try:
                return await self.to(known, deadline, partition)
            except UnreachableError:
                pass  # it may have another address by now
        await self.refresh(await self.any(deadline), deadline)
        address = self._address_of(node_id)
        if address is None:
            raise UnreachableError(f"Broker {node_id} is not available, and no other broker can answer for it.")
        return await self.to(address, deadline, partition)

    def _address_of(self, node_id: int) -> Address | None:
        return next((broker.address for broker in self.brokers if broker.node_id == node_id), None)

    async def close(self) -> None:
        """Close all connections. No new ones are opened."""
        self._closed = True
        slots = list(self._slots.values())
        openings = [slot.opening for slot in slots if slot.opening is not None]
        for each in openings:
            each.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        for slot in slots:
            if slot.connection is not None:
                await slot.connection.close()


def _retrieve_error(opening: asyncio.Task[KraftConnection]) -> None:
    """Retrieve the error, because every caller may be gone."""
    if not opening.cancelled():
        opening.exception()


_B = TypeVar("_B")
_T = TypeVar("_T")

_AT_ONCE: Final = 32


async def fan_out(brokers: Iterable[_B], ask: Callable[[_B], Awaitable[_T]]) -> list[_T]:
    """Ask about brokers, some dozens at a time. Return the answers in order, or raise the first error."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(broker: _B) -> _T:
        async with slots:
            return await ask(broker)

    return await asyncio.gather(*map(one, brokers))
