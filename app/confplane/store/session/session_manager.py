"""The manager of a cluster's ZooKeeper session, which replaces a session that ends, and the clock that it keeps.

An error on kazoo's thread ends that thread, and with it everything that the session has under way. So paths are checked
before they are handed over, and a thread that ends all the same ends the session, which is replaced and reported.

The ids of changes order the trail, so the processes of a cluster make them by one clock: ZooKeeper's, from the Stats of
a session's own writes. Between two such Stats this process's monotonic clock counts, which no correction of the wall
clock moves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections import Counter, deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kazoo.exceptions import ZookeeperError
from kazoo.protocol.states import KazooState

from confplane.domain.errors import UnavailableError
from confplane.services.background import BackgroundTask
from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.store import SessionState
from confplane.store.session.asyncio_adapter import Mailbox
from confplane.store.session.session import LONGEST_TIMEOUT_MS, Session, unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from confplane.store.session.access import ZooKeeperAccess

logger = logging.getLogger(__name__)

_SETUP_SECONDS: Final = 30.0
_RETRY_SETUP_SECONDS: Final = 1.0
_REOPEN_SECONDS: Final = 0.1
_FAILURE_LOG_SECONDS: Final = 900.0
"""Seconds for which a failure of kazoo's thread is a warning."""
_CLOSE_SECONDS: Final = 5.0

TOLERATED_S: Final = 60.0
"""Seconds between the process's own clock and ZooKeeper's from which a warning is given."""
_SAMPLES: Final = 16
"""Replies kept. The quickest of them counts, and a ZooKeeper clock that is set back is followed after so many
replies."""
_RANDOM_BITS: Final = 74
_LOW_BITS: Final = 62
_STEP_BITS: Final = 32
_RANDOM: Final = random.Random()  # noqa: S311 - ids are no secrets, and a system call for each costs 10 µs
# Python seeds its own generator anew in a fork, and no other: forks would make the same ids in the same millisecond.
os.register_at_fork(after_in_child=_RANDOM.seed)


def split_connect_string(connect: str) -> tuple[str, str]:
    """Return the servers and the chroot (``""`` or ``/path``) of a connect string."""
    hosts, _, path = connect.partition("/")
    path = path.strip("/")
    return hosts, f"/{path}" if path else ""


@asynccontextmanager
async def zookeeper_calls(name: str, deadline: float) -> AsyncIterator[None]:
    """Run calls to a cluster's ZooKeeper until a deadline.

    Raises:
        UnavailableError: The calls failed, or took longer. Submitted calls may be done all the same.
    """
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise unavailable(f"Cluster {name}: ZooKeeper did not answer in time") from None
    except ZookeeperError as error:
        raise unavailable(f"Cluster {name}: ZooKeeper answered {type(error).__name__}") from None


async def best_effort(work: Awaitable[object], deadline: float) -> None:
    """Await work that prepares the next attempt. A passed deadline and errors of ZooKeeper are ignored."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            await work
    except (TimeoutError, ZookeeperError, UnavailableError):
        return


class SessionManager:
    """Opens a session, watches its state, and replaces it. ``current`` is the live session.

    Args:
        hosts: ``host:port[,host:port...]``.
        chroot: ``""`` or ``/path``.
        timeout_ms: The session timeout to request, at most LONGEST_TIMEOUT_MS.
        access: The session's credentials, and the ACLs of its nodes.
        on_ready: Called when a session is ready, and again after a disconnect, which loses its watches.
        on_down: Called when the connection or the session is lost.

    Attributes:
        clock: ZooKeeper's clock, from the session's own writes.
        entered: Number of entries into each state.
        failures: Number of sessions ended by an error of ours or kazoo's.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        timeout_ms: int,
        *,
        access: ZooKeeperAccess,
        name: str,
        on_ready: Callable[[Session], None],
        on_down: Callable[[], None],
    ) -> None:
        self.clock = ZooKeeperClock(name)
        self._new: Callable[[Mailbox], Session] = partial(
            Session,
            hosts=hosts,
            chroot=chroot,
            timeout_ms=timeout_ms,
            access=access,
            on_time=self.clock.record,
            on_state=self._note,
            on_failure=self._failed,
        )
        self._name = name
        self._timeout_ms = timeout_ms
        self._on_ready = on_ready
        self._on_down = on_down
        self._session: Session | None = None
        self._state = SessionState.CONNECTING
        self._since = time.monotonic()
        self.entered: Counter[SessionState] = Counter()
        self.failures = 0
        self._failure: tuple[float, str] | None = None
        self._states: asyncio.Queue[tuple[Session, str]] = asyncio.Queue()
        self._background = BackgroundTask(self._run, name=f"zookeeper-session-{name}")

    @property
    def current(self) -> Session:
        """The live session.

        Raises:
            UnavailableError: There is no live session; nothing was submitted.
        """
        session = self._session
        if session is None or not session.ready or not session.connected:
            raise unavailable(f"Cluster {self._name}: ZooKeeper is not connected")
        return session

    @property
    def connected(self) -> bool:
        """True while there is a live session."""
        session = self._session
        return session is not None and session.ready and session.connected

    @property
    def state(self) -> tuple[SessionState, float]:
        """The session's state, and the seconds in it."""
        if self._state is SessionState.CONNECTED and not self.connected:
            return SessionState.SUSPENDED, 0.0  # the client knows, and this loop is about to learn it
        return self._state, time.monotonic() - self._since

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        yield from self.clock.warnings()
        if self._session is not None and self._session.timeout_too_long:
            yield OperatorWarning(self._session.refusal)
        if self._failure is not None and (ago := time.monotonic() - self._failure[0]) < _FAILURE_LOG_SECONDS:
            yield OperatorWarning(
                f"An error of this service, {self._failure[1]}, ended the ZooKeeper session {ago:.0f} s ago;"
                f" another was opened. Such errors since the start: {self.failures}. Report the traceback in the log"
            )

    def _enter(self, state: SessionState) -> None:
        self._state, self._since = state, time.monotonic()
        self.entered[state] += 1

    def replace(self, session: Session) -> None:
        """Give up a session whose writer node is gone while the connection lives."""
        self._states.put_nowait((session, str(KazooState.LOST)))

    def start(self) -> None:
        """Start in the background."""
        if self._timeout_ms > LONGEST_TIMEOUT_MS:
            logger.warning(
                "Cluster %s: session_timeout_ms is %d, and %d are asked for: settling bears no more",
                self._name,
                self._timeout_ms,
                LONGEST_TIMEOUT_MS,
            )
        self._background.start()

    async def stop(self) -> None:
        """End the session and wait for it, a few seconds at most."""
        await self._background.stop()
        session, self._session = self._session, None
        if session is not None and not session.retired:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.retire().wait()

    async def _run(self) -> None:
        mailbox = Mailbox(asyncio.get_running_loop())
        while True:
            session = self._session = self._new(mailbox)
            try:
                session.open()
                await self._live(session)
            except Exception as error:  # noqa: BLE001 - logged, and another session is opened
                self._failed(error)
            finally:
                if not self._background.stopping:
                    if session.ready:
                        self._enter(SessionState.LOST)
                    session.retire()
                    self._on_down()
                    logger.warning("Cluster %s: the ZooKeeper session ended; a new one is opened", self._name)
            await asyncio.sleep(_REOPEN_SECONDS)

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        self._failure = time.monotonic(), type(error).__name__
        logger.error("Cluster %s: an error of this service ended the ZooKeeper session", self._name, exc_info=error)

    def _note(self, session: Session, state: str) -> None:
        self._states.put_nowait((session, state))

    async def _live(self, session: Session) -> None:
        """Follow one session from its first connection to its end."""
        state = await self._next_state(session, None)
        while True:
            if state == KazooState.CONNECTED:
                state = await self._connected(session)
            elif state == KazooState.SUSPENDED:
                if session.ready:
                    self._enter(SessionState.SUSPENDED)
                self._on_down()
                logger.warning("Cluster %s: disconnected from ZooKeeper", self._name)
                # After the timeout by our own clock the session counts as lost, whatever kazoo reports later. Before
                # the writer exists nothing was begun under this session, and connecting may take any time.
                state = await self._next_state(session, session.timeout_s if session.ready else None)
            else:
                return

    async def _connected(self, session: Session) -> str:
        """Make a connected session usable, then wait until it is not."""
        waiting = asyncio.ensure_future(self._next_state(session, None))
        try:
            while not waiting.done():
                if await self._made_ready(session):
                    self._enter(SessionState.CONNECTED)
                    self._on_ready(session)
                    break
                # The timeout granted to this connection stays as it is.
                await asyncio.wait({waiting}, timeout=None if session.timeout_too_long else _RETRY_SETUP_SECONDS)
            return await waiting
        finally:
            waiting.cancel()

    async def _made_ready(self, session: Session) -> bool:
        if session.ready and not session.timeout_too_long:
            return True
        self.clock.begin()
        try:
            async with asyncio.timeout(_SETUP_SECONDS):
                await session.set_up()
        except (ZookeeperError, UnavailableError, TimeoutError) as error:
            logger.warning("Cluster %s: could not set up in ZooKeeper: %r", self._name, error)
            return False
        logger.info("Cluster %s: connected to ZooKeeper, writer %s", self._name, session.writer)
        return True

    async def _next_state(self, session: Session, seconds: float | None) -> str:
        """Wait for the session's next state; LOST when none comes in time."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    of, state = await self._states.get()
                    if of is session:
                        return state
        except TimeoutError:
            return str(KazooState.LOST)


# ---------------------------------------------------------------- the clock


class ZooKeeperClock:
    """A process's knowledge of a cluster's ZooKeeper clock. Before the first :meth:`record` the own clock counts.

    Args:
        name: The cluster's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ahead: deque[float] = deque(maxlen=_SAMPLES)
        """Seconds by which ZooKeeper's clock was ahead of the monotonic one, at least, at each of the last replies."""
        self._skewed = False
        self._milliseconds = 0
        self._random = 0

    def begin(self) -> None:
        """Forget all samples: a new session begins, possibly after this machine was suspended."""
        self._ahead.clear()

    def record(self, mtime_ms: int) -> None:
        """Record the time of one of this session's writes, when its reply arrives."""
        self._ahead.append(mtime_ms / 1000 - time.monotonic())
        off = self.skew_s
        if (abs(off) > TOLERATED_S) is not self._skewed:
            self._skewed = not self._skewed
            if self._skewed:
                logger.warning("Cluster %s: %s", self._name, self._warning())
            else:
                logger.info("Cluster %s: this process's clock agrees with ZooKeeper's again", self._name)

    @property
    def skew_s(self) -> float:
        """Seconds by which the own clock is ahead of ZooKeeper's; 0 while unknown."""
        return time.time() - time.monotonic() - max(self._ahead) if self._ahead else 0.0

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        if abs(self.skew_s) > TOLERATED_S:
            yield OperatorWarning(self._warning())

    def _warning(self) -> str:
        off = self.skew_s
        side = "ahead of" if off > 0 else "behind"
        return (
            f"This process's clock is {abs(off):.0f} s {side} ZooKeeper's. Set this machine's clock, or that of"
            " ZooKeeper's leader: times in the trail are ZooKeeper's"
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("clock_ahead_seconds", self.skew_s)

    def new_id(self) -> UUID:
        """Return a UUIDv7 of ZooKeeper's time, above all earlier ones of this process."""
        now = int((time.monotonic() + max(self._ahead) if self._ahead else time.time()) * 1000)
        if now > self._milliseconds:
            self._milliseconds, self._random = now, _RANDOM.getrandbits(_RANDOM_BITS - 1)
        else:
            self._random += 1 + _RANDOM.getrandbits(_STEP_BITS)
            if self._random >> _RANDOM_BITS:
                self._milliseconds, self._random = self._milliseconds + 1, _RANDOM.getrandbits(_RANDOM_BITS - 1)
        high, low = self._random >> _LOW_BITS, self._random & ((1 << _LOW_BITS) - 1)
        return UUID(int=self._milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
