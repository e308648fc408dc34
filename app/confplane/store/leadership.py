"""The leader of a cluster: the process whose session made ``/confplane/leader``, an ephemeral node.

The leader settles the open changes of other processes and sweeps markers (services/upkeep/reconcile.py). All its
decisions are made in ZooKeeper or are unique in Postgres, so two leaders for a moment do no harm, and leading needs no
fence.

While the states of deliveries to a Kafka cluster are those of an earlier release, its processes have precedence: this
release leads once none of them is registered. Then the leader moves the states (services/kraft/round.py).

There is no lock recipe here: kazoo's still says "acquired" while it is cut off. Instead the node is read before each
round of work, behind a write to the own writer node. The session lives for at least its timeout from the moment before
that write. By our own clock the term ends with the timeout, or at once when the connection is lost.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, Final

import orjson
from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency

from confplane.domain.errors import RestoredStoreError
from confplane.store import znodes
from confplane.store.session.session_manager import zookeeper_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.store.session.session import Session
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.guard import Guard, IncarnationGate

UNREADABLE: Final = "an unreadable node"


class ZooKeeperLeadership:
    """One process's part in the leadership of one cluster.

    Args:
        name: The cluster.
        session_manager: The session that leads.
        guard: The known target of the cluster.
        clock: A monotonic clock, by which a term ends.

    Attributes:
        leader: ``host:pid`` of the leader, as last read; None when there was none.
    """

    def __init__(
        self,
        name: str,
        session_manager: SessionManager,
        gate: IncarnationGate,
        guard: Guard,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.leader: str | None = None
        self._name = name
        self._session_manager = session_manager
        self._gate = gate
        self._guard = guard
        self._clock = clock
        self._self = f"{socket.gethostname()}:{os.getpid()}"
        self._session: Session | None = None
        self._until = 0.0

    @property
    def held(self) -> bool:
        """True while this process leads, by its own clock and connection."""
        session = self._session
        return self._gate.open and session is not None and session.connected and self._clock() < self._until

    async def seek(self, deadline: float) -> bool:
        """Become or stay the leader if possible, and return whether this process leads."""
        try:
            led = await self._seek(deadline)
        except BaseException:
            self._session = None
            raise
        if not led:
            self._session = None
        return led

    async def _seek(self, deadline: float) -> bool:
        # A leader of a restored store would record its earlier state as external changes.
        try:
            await self._gate.enter(deadline)
        except RestoredStoreError:
            return False
        # Until the reply the earlier term continues, as far as it lasts.
        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            began = self._clock()
            led = await self._led_by(session)
            if led == session.writer:
                try:
                    await session.touch()
                except NoNodeError:
                    self._session_manager.replace(session)
                    raise
                # The first read may have been from a server that was behind.
                led = await self._led_by(session)
            self._guard.earlier = await self._count_earlier(session)
            if led == session.writer and self._guard.earlier:
                await session.delete(znodes.LEADER)
                led = self.leader = None
            elif led is None and not self._guard.earlier and await self._claim(session):
                led = session.writer
        if led != session.writer:
            return False
        self.leader = self._self
        self._session, self._until = session, began + session.timeout_s
        return True

    async def _count_earlier(self, session: Session) -> int:
        """Return the number of registered processes that lead before this one."""
        target = self._guard.target
        if target is None or not target.applies or target.states_by_key:
            return 0
        writers, _ = await session.children(znodes.WRITERS)
        return sum(not each.endswith(znodes.KEYED) for each in writers)

    async def _led_by(self, session: Session) -> str | None:
        """Return the writer of the leader's session."""
        try:
            data, stat = await session.get(znodes.LEADER)
            if not stat.ephemeralOwner:
                # No session's node: it is from a copy of another ZooKeeper, and would stay for good.
                await session.delete(znodes.LEADER)
                raise NoNodeError  # noqa: TRY301 - now it is absent
        except NoNodeError:
            self.leader = None
            return None
        match _read(data):
            case {"process": str(process), "writer": str(writer)}:
                self.leader = process
                return writer
        self.leader = UNREADABLE
        return ""

    async def _claim(self, session: Session) -> bool:
        content = orjson.dumps({"version": 1, "process": self._self, "writer": session.writer})
        results = await session.multi(
            [("set", znodes.writer_path(session.writer), b"", -1), ("ephemeral", znodes.LEADER, content)]
        )
        touched, created = results
        if isinstance(touched, NoNodeError):
            self._session_manager.replace(session)
        if isinstance(created, NoNodeError):
            await session.ensure_roots()
        for result in results:
            if isinstance(result, Exception) and not isinstance(
                result, (NodeExistsError, RolledBackError, RuntimeInconsistency)
            ):
                raise result
        return not isinstance(created, Exception)


def _read(data: bytes | None) -> Any:
    try:
        return orjson.loads(data or b"")
    except ValueError:
        return None
