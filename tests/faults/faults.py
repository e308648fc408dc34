"""The faults: each begins, lasts for some seconds, and ends.

A fault has targets. While it lasts, no other fault begins on one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from confplane.devstack.errors import DevStackError
from tests.faults import kinds
from tests.faults.topology import answer, stop_processes

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from confplane.devstack.process import Server
    from tests.faults.ensemble import Ensemble
    from tests.faults.topology import Replica, Topology
    from tests.support.proxy import Proxy

_KAZOO_S: Final = 5.0
_STEP_S: Final = 8.0
"""Seconds to wait until a process reaches a step."""
_NOTIFIED_S: Final = 2.0
"""Seconds to wait for a notification; well below a session's timeout."""


@dataclass(eq=False, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: The name under which a report counts it.
        targets: The parts of the topology that it concerns.
        seconds: The time between its begin and its end.
        begin: Injects it; returns False if there was nothing to inject it into, for example no leader.
        end: Ends it, regardless of what happened in the meantime.
    """

    kind: str
    targets: frozenset[str]
    seconds: float
    begin: Callable[[], Awaitable[bool]]
    end: Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """End a fault that has no duration."""


def name_of(replica: Replica) -> str:
    """Return a replica as a target."""
    return f"confplane {replica.number}"


# ---------------------------------------------------------------- processes


def stop_server(kind: str, name: str, server: Server, seconds: float, *, gracefully: bool = False) -> Fault:
    """SIGKILL a ZooKeeper or Postgres (its postmaster; its other processes end themselves), then start it again."""

    async def begin() -> bool:
        await asyncio.to_thread(server.stop if gracefully else server.kill)
        return True

    async def end() -> None:
        await asyncio.to_thread(start_again, server)

    return Fault(kind, frozenset({name}), seconds, begin, end)


def start_again(server: Server, seconds: float = 180.0) -> None:
    """Start a server that was killed, several times if necessary: its predecessor may have left something behind.

    Raises:
        DevStackError: It does not start.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            server.start()
        except DevStackError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


def pause(kind: str, name: str, pid: Callable[[], int], seconds: float) -> Fault:
    """SIGSTOP a process and its children, then SIGCONT."""

    async def begin() -> bool:
        stop_processes(pid(), resume=False)
        return True

    async def end() -> None:
        stop_processes(pid(), resume=True)

    return Fault(kind, frozenset({name}), seconds, begin, end)


def stop_replica(replica: Replica, seconds: float, *, gracefully: bool = False) -> Fault:
    """SIGKILL a replica, or end it by SIGTERM, then start it again."""

    async def begin() -> bool:
        await asyncio.to_thread(replica.service.stop, kill=not gracefully)
        return True

    async def end() -> None:
        replica.start()

    kind = kinds.CONFPLANE_TERMINATED if gracefully else kinds.CONFPLANE_KILLED
    return Fault(kind, frozenset({name_of(replica)}), seconds, begin, end)


def at_step(
    kind: str, replicas: Sequence[Replica], step: str, seconds: float, *, pause: bool, within_s: float = _STEP_S
) -> Fault:
    """Kill or pause the first of some replicas that reaches a step of the protocol."""
    stopped: list[Replica] = []

    async def begin() -> bool:
        for replica in replicas:
            replica.arm(step, signal.SIGSTOP if pause else signal.SIGKILL)
        deadline = time.monotonic() + within_s
        while all(replica.armed for replica in replicas) and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.02)
        # Two may have reached it at once.
        stopped[:] = [replica for replica in replicas if not replica.disarm()]
        return bool(stopped)

    async def end() -> None:
        for replica in stopped:
            if pause:
                stop_processes(replica.service.pid, resume=True)
            else:
                await replica.kill()  # waits for its end
                replica.start()

    return Fault(kind, frozenset(map(name_of, replicas)), seconds, begin, end)


def chain(kind: str, first: Fault, second: Fault, *, after_s: float = 0.0) -> Fault:
    """Stop a replica, and then another one at the step to which that leads it, after a time in seconds."""

    async def begin() -> bool:
        if not await first.begin():
            return False
        await asyncio.sleep(after_s)
        if not await second.begin():
            await first.end()
            return False
        return True

    async def end() -> None:
        await first.end()
        await second.end()

    return Fault(kind, first.targets | second.targets, second.seconds, begin, end)


# ---------------------------------------------------------------- connections


def cut(to: str, name: str, connections: Sequence[Proxy], seconds: float) -> Fault:
    """Break connections, and accept none for a while."""

    async def begin() -> bool:
        for proxy in connections:
            proxy.accepting = False
            proxy.cut()
        return True

    async def end() -> None:
        for proxy in connections:
            proxy.accepting = True

    return Fault(kinds.connection_cut(to), frozenset({name}), seconds, begin, end)


def slow(to: str, name: str, connections: Sequence[Proxy], seconds: float, delay_s: float) -> Fault:
    """Delay everything that is sent over connections."""

    def delay(delay_s: float) -> None:
        for proxy in connections:
            proxy.delay_s = delay_s

    async def begin() -> bool:
        delay(delay_s)
        return True

    async def end() -> None:
        delay(0.0)

    return Fault(kinds.connection_slowed(to), frozenset({name}), seconds, begin, end)


def lose(part: str, to: str, name: str, connections: Sequence[Proxy], seconds: float) -> Fault:
    """Lose requests or responses on connections, and break these at the end."""

    async def begin() -> bool:
        for proxy in connections:
            proxy.lose(requests=part == "requests", replies=part == "responses")
        return True

    async def end() -> None:
        for proxy in connections:
            proxy.restore()

    return Fault(kinds.lost(part, to), frozenset({name}), seconds, begin, end)


def partition(kind: str, name: str, ensemble: Ensemble, index: int, seconds: float) -> Fault:
    """Lose everything between one ZooKeeper server and the others; clients reach all of them."""

    async def begin() -> bool:
        ensemble.partition(index)
        return True

    async def end() -> None:
        ensemble.heal(index)

    return Fault(kind, frozenset({name}), seconds, begin, end)


# ---------------------------------------------------------------- ZooKeeper's data and sessions


def expire_session(topology: Topology, chooser: random.Random) -> Fault:
    """End the ZooKeeper session of a replica, by a client that has its id and password."""

    async def begin() -> bool:
        zk = topology.zk
        try:
            writers = await answer(zk.get_children_async("/confplane/writers"), _KAZOO_S)
            if not writers:
                return False
            path = f"/confplane/writers/{chooser.choice(sorted(writers))}"
            stat = await answer(zk.exists_async(path), _KAZOO_S)
        except (KazooException, TimeoutError):
            return False
        return stat is not None and await asyncio.to_thread(_close, topology.ensemble.hosts, stat.ephemeralOwner)

    return Fault(kinds.SESSION_EXPIRED, frozenset(), 0.0, begin, _nothing)


def _close(hosts: str, session: int) -> bool:
    client = KazooClient(hosts, client_id=(session, session_password(session)), timeout=10.0)
    try:
        client.start(timeout=_KAZOO_S)
        return bool(client.client_id[0] == session)
    except Exception:  # noqa: BLE001 - kazoo's own kind of timeout depends on its handler
        return False
    finally:
        client.stop()
        client.close()


def session_password(session: int) -> bytes:
    """Return a session's password, which ZooKeeper derives from its id (SessionTrackerImpl, ZooKeeperServer)."""
    mask, found = (1 << 48) - 1, b""
    state = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    while len(found) < 16:
        # java.util.Random.nextBytes: the four bytes of each nextInt, the lowest first.
        state = (state * 0x5DEECE66D + 0xB) & mask
        found += struct.pack("<I", state >> 16)
    return found


def fill_disk(topology: Topology, seconds: float) -> Fault:
    """Fill the file system of Postgres's data, for a while."""

    async def begin() -> bool:
        await asyncio.to_thread(topology.resize_disk, full=True)
        return True

    async def end() -> None:
        await asyncio.to_thread(topology.resize_disk, full=False)
        if not topology.postgres.running():
            # It may have given up because it could not write its log.
            await asyncio.to_thread(topology.postgres.kill)
        await asyncio.to_thread(start_again, topology.postgres)

    return Fault(kinds.DISK_FULL, frozenset({"postgres"}), seconds, begin, end)


def move_controller(topology: Topology, seconds: float) -> Fault:
    """Let the brokers elect another controller: /controller is deleted and created, and its epoch is raised."""
    zk = topology.zk

    async def begin() -> bool:
        # Without an answer it may still be deleted, so the fault has an end in any case.
        with contextlib.suppress(KazooException, TimeoutError):
            await answer(zk.delete_async("/controller"), _KAZOO_S)
        return True

    async def end() -> None:
        controller = b'{"version":1,"brokerid":0,"timestamp":"1"}'
        deadline = time.monotonic() + 120
        while True:
            try:
                await answer(zk.set_async("/controller_epoch", b"2"), _KAZOO_S)
                if await answer(zk.exists_async("/controller"), _KAZOO_S) is None:
                    await answer(zk.create_async("/controller", controller), _KAZOO_S)
            except (KazooException, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    return Fault(kinds.CONTROLLER_MOVED, frozenset({"controller"}), seconds, begin, end)


def delete_notifications(topology: Topology) -> Fault:
    """Delete the newest notifications: a gap for each replica that has not read them."""

    async def begin() -> bool:
        try:
            return bool(await _delete(topology, (await _notifications(topology))[-3:]))
        except (KazooException, TimeoutError):
            return False

    return Fault(kinds.NOTIFICATIONS_DELETED, frozenset(), 0.0, begin, _nothing)


def delete_unread_notifications(topology: Topology, replica: Replica, name: str, seconds: float) -> Fault:
    """Delete notifications, as Kafka's purge does, that a replica can't have read: it receives nothing until the end."""

    def receive(*, receiving: bool) -> None:
        for proxy in replica.zookeeper:
            (proxy.replies.set if receiving else proxy.replies.clear)()

    async def begin() -> bool:
        try:
            before = await _notifications(topology)
            receive(receiving=False)
            deadline = time.monotonic() + _NOTIFIED_S
            while time.monotonic() < deadline:
                unread = [name for name in await _notifications(topology) if name > (before or [""])[-1]]
                if await _delete(topology, unread):
                    return True
                await asyncio.sleep(0.02)
        except (KazooException, TimeoutError):
            pass
        receive(receiving=True)
        return False

    async def end() -> None:
        receive(receiving=True)

    return Fault(kinds.UNREAD_NOTIFICATIONS_DELETED, frozenset({name}), seconds, begin, end)


async def _notifications(topology: Topology) -> list[str]:
    return sorted(await answer(topology.zk.get_children_async("/config/changes"), _KAZOO_S))


async def _delete(topology: Topology, names: Iterable[str]) -> int:
    """Delete notifications and return how many there were."""
    deleted = 0
    for name in names:
        with contextlib.suppress(NoNodeError):
            await answer(topology.zk.delete_async(f"/config/changes/{name}"), _KAZOO_S)
            deleted += 1
    return deleted
