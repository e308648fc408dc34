"""Which process leads a cluster: the one whose session made ``/confplane/leader``, an ephemeral node.

The leader settles what others left open and sweeps markers (app/services/upkeep/reconcile.py). Everything it
does is decided in ZooKeeper or unique in Postgres, so two leaders for a moment do no harm, and leading needs no fence.

There is no lock recipe here: kazoo's goes on saying "acquired" while it is cut off. Instead the node is looked at
before each round of work, behind a write to the own writer node. From the moment before that write the session lives
for at least its timeout, and by our own clock the term ends there, or at once when the connection goes down.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, Final

import orjson
from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency

from app.store import znodes
from app.store.session.keeper import answered

if TYPE_CHECKING:
    from app.store.session.keeper import Keeper, Session

UNREADABLE: Final = "an unreadable node"


class Leadership:
    """One process's part in the leadership of one cluster.

    Attributes:
        leader: ``host:pid`` of whoever leads, as last read; None when nobody did.
    """

    def __init__(self, name: str, keeper: Keeper) -> None:
        self.leader: str | None = None
        self._name = name
        self._keeper = keeper
        self._self = f"{socket.gethostname()}:{os.getpid()}"
        self._session: Session | None = None
        self._until = 0.0

    @property
    def held(self) -> bool:
        """Whether this process leads now, for all that its own clock and connection tell."""
        session = self._session
        return session is not None and session.connected and time.monotonic() < self._until

    async def seek(self, deadline: float) -> bool:
        """Become or stay the leader if that can be, and say whether it is so.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline.
        """
        try:
            led = await self._seek(deadline)
        except BaseException:
            self._session = None
            raise
        if not led:
            self._session = None
        return led

    async def _seek(self, deadline: float) -> bool:
        # Until its answer the term that was found before goes on, as far as it reaches.
        session = self._keeper.current
        async with answered(self._name, deadline):
            began = time.monotonic()
            led = await self._led_by(session)
            if led == session.writer:
                try:
                    await session.touch()
                except NoNodeError:
                    self._keeper.replace(session)
                    raise
                # The first look may have been at a server that was behind.
                led = await self._led_by(session)
            if led is None and await self._take(session):
                led = session.writer
        if led != session.writer:
            return False
        self.leader = self._self
        self._session, self._until = session, began + session.timeout_s
        return True

    async def _led_by(self, session: Session) -> str | None:
        """Return the writer of the session that leads."""
        try:
            data, stat = await session.get(znodes.LEADER)
            if not stat.ephemeralOwner:
                # No session's: it came with a copy of another ZooKeeper, and would stay for good.
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

    async def _take(self, session: Session) -> bool:
        content = orjson.dumps({"version": 1, "process": self._self, "writer": session.writer})
        results = await session.multi(
            [("set", znodes.writer_path(session.writer), b"", -1), ("ephemeral", znodes.LEADER, content)]
        )
        touched, created = results
        if isinstance(touched, NoNodeError):
            self._keeper.replace(session)
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
