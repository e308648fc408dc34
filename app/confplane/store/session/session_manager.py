"""One ZooKeeper session, and the manager that replaces it with a new one when it ends.

A session is one ``KazooClient`` and one random **writer** node, ephemeral, created right after connecting. Every
transaction writes to the writer node that it started under, so none can commit after that session has ended, however
late its bytes arrive. kazoo would reopen an expired session by itself, send calls of the old one over it and report
nothing while cut off. Therefore a client is never used beyond its first session: on LOST, or after a disconnect longer
than the negotiated timeout by our own clock, the whole client is discarded.

Nothing is submitted while the connection is down. The outcome of calls submitted before it went down is unknown to the
caller.

An error on kazoo's thread ends that thread, and with it everything that the session has under way. So paths are checked
before they are handed over, and a thread that ends all the same ends the session, which is replaced and reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, ZookeeperError
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import EventType, KazooState

from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.texts import shown
from confplane.services.background import BackgroundTask
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.store import SessionState
from confplane.store import znodes
from confplane.store.session.asyncio_adapter import LoopHandler, Mailbox, Replies, Reply
from confplane.store.session.capability_probe import CapabilityProbe
from confplane.store.session.clock import ZooKeeperClock
from confplane.store.session.multi import Multi, Operation
from confplane.store.session.multiread import MultiRead
from confplane.store.session.persistent_watch import AddWatch, RecordedEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from confplane.store.session.access import ZooKeeperAccess

    Watcher = Callable[[Any], None]

logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger("confplane.store.kazoo")
# kazoo logs every attempt to connect; the session manager logs the important events once.
_kazoo_logger.setLevel(logging.CRITICAL)

_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.3}
_SETUP_SECONDS: Final = 30.0
_RETRY_SETUP_SECONDS: Final = 1.0
_REOPEN_SECONDS: Final = 0.1
_FAILURE_LOG_SECONDS: Final = 900.0
"""Seconds for which a failure of kazoo's thread is a warning."""
LONGEST_TIMEOUT_MS: Final = 45_000
"""The longest session timeout that settling allows: a settler acts on a read of up to 15 s before, and markers are
dropped a minute after their outcome (store/write/markers.py)."""
_CLOSE_SECONDS: Final = 5.0


def unavailable(detail: str) -> UnavailableError:
    """Return the error of a call that was not submitted."""
    return UnavailableError(detail, outcome=WriteOutcome.NOT_APPLIED)


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


class Session:
    """One client of one ZooKeeper session. All methods must be called on the event loop.

    Paths are relative to the chroot. Calls return a :class:`~confplane.store.session.asyncio_adapter.Reply`. Awaiting
    it raises kazoo's exceptions. The calls themselves raise UnavailableError while the connection is down, and
    ValueError for a path that no znode can have.

    Args:
        mailbox: Carries replies and events to the loop.
        hosts: ``host:port[,host:port...]``.
        chroot: ``""`` or ``/path``.
        timeout_ms: The session timeout to request.
        access: The session's credentials, and the ACLs of its nodes.
        clock: Records ZooKeeper's time in replies to own writes.
        on_state: Called with the session and each new state of kazoo's.
        on_failure: Called with the error that ended kazoo's thread, if one ever does. The state is LOST then.

    Attributes:
        writer: The name of this session's ephemeral node, new for every session.
        ready: True once the writer node exists, until the session is given up.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        hosts: str,
        chroot: str,
        timeout_ms: int,
        access: ZooKeeperAccess,
        clock: ZooKeeperClock | None = None,
        *,
        on_state: Callable[[Session, str], None],
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.writer = secrets.token_hex(16) + znodes.KEYED
        self.ready = False
        self.retired = False
        asked_s = min(timeout_ms, LONGEST_TIMEOUT_MS) / 1000
        self._mailbox = mailbox
        self._chroot = chroot
        self.access = access
        self._clock = clock
        self._on_state = on_state
        self._on_failure = on_failure
        self._client = KazooClient(
            hosts,
            timeout=asked_s,
            handler=LoopHandler(mailbox, access.tls, self._on_end),
            connection_retry=_RETRY,
            auth_data=access.auth,
            logger=_kazoo_logger,
        )
        self._probe = CapabilityProbe(self._client, asked_s)

    @property
    def timeout_s(self) -> float:
        """The requested session timeout; once connected, the timeout that the server granted."""
        return self._probe.timeout_s

    @property
    def multi_reads(self) -> bool:
        """True where the server knows MultiRead; valid while connected."""
        return self._probe.multi_reads

    @property
    def zxid(self) -> int:
        """The zxid of the last reply: the server's, whose state has everything up to it."""
        return int(self._client.last_zxid)

    @zxid.setter
    def zxid(self, least: int) -> None:
        """Set, before the session is opened, the least zxid of servers to connect to."""
        self._client.last_zxid = least

    # -- life

    def open(self) -> None:
        """Start connecting, in the background and for as long as it takes."""

        def listener(state: str) -> None:
            self._mailbox.post(lambda value, _error: self._on_state(self, value), state, None)

        self._client.add_listener(listener)
        self._client.start_async()

    def _on_end(self, failure: BaseException | None) -> None:
        # The connection is dead, whatever kazoo has reported.
        if failure is not None and self._on_failure is not None:
            self._on_failure(failure)
        self._on_state(self, str(KazooState.LOST))

    def retire(self) -> asyncio.Event:
        """Give the session up: nothing more is submitted. The event is set when its client has stopped."""
        self.ready = False
        self.retired = True
        stopped = asyncio.Event()
        # kazoo's stop waits for its connection. A connection that hangs (a server that swallows packets) ends by
        # itself.
        threading.Thread(target=self._stop, args=(stopped,), name="zookeeper-retire", daemon=True).start()
        return stopped

    def _stop(self, stopped: asyncio.Event) -> None:
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()
        self._mailbox.post(lambda _value, _error: stopped.set(), None, None)

    @property
    def connected(self) -> bool:
        """True while calls may be submitted; read from the client itself, which knows before the loop."""
        return not self.retired and self._client.state == KazooState.CONNECTED and not self.timeout_too_long

    @property
    def timeout_too_long(self) -> bool:
        """True where the server granted a longer timeout than settling allows: nothing may be submitted."""
        return self.timeout_s * 1000 > LONGEST_TIMEOUT_MS

    # -- calls

    def get(self, path: str, watch: Watcher | None = None) -> Reply:
        """Read a node's data and Stat."""
        return self._made(self._checked().get_async(self._at(path), watch))

    def read(
        self, kind: int, paths: Sequence[str], errors: Mapping[int, Any], deliver_slice: Callable[[list[Any]], None]
    ) -> Reply:
        """Read many nodes in one request, on servers that know MultiRead (:attr:`multi_reads`).

        Args:
            kind: multiread.DATA or multiread.CHILDREN.
            paths: The paths of the nodes.
            errors: The results of failed reads, by ZooKeeper's error code. Any other error fails all reads.
            deliver_slice: Called with the results of the first paths, then with those of the next ones, and so on: data
                and the fields of the Stat, or names. Never called where the reply is a failure.
        """
        client = self._checked()
        # The check of all paths as one text: any invalid path makes the text invalid.
        if paths:
            self._at("".join(paths))
        replies = Replies(self._mailbox, deliver_slice)
        client._call(MultiRead(kind, [self._chroot + path for path in paths], errors), replies)  # noqa: SLF001 - kazoo has none
        return self._made(replies)

    def exists(self, path: str, watch: Watcher | None = None) -> Reply:
        """Read a node's Stat, None when it is absent."""
        return self._made(self._checked().exists_async(self._at(path), watch))

    def children(self, path: str, watch: Watcher | None = None) -> Reply:
        """List a node's children with its Stat."""
        return self._made(self._checked().get_children_async(self._at(path), watch, include_data=True))

    def sync(self) -> Reply:
        """Make the server catch up with the leader before it answers the session's next calls."""
        # kazoo's own method can't be used: its callback must run on the thread of the reply.
        return self._submit(Sync(self._chroot or "/"))

    def delete(self, path: str) -> Reply:
        """Delete a node in any version."""
        return self._made(self._checked().delete_async(self._at(path)))

    def touch(self) -> Reply:
        """Write to the writer node: a quorum write, whose Stat has ZooKeeper's last zxid and its time."""
        reply = self._made(self._checked().set_async(self._at(znodes.writer_path(self.writer)), b""))
        return reply if self._clock is None else reply.then(self._note_time)

    def _note_time(self, stat: Any, error: Exception | None) -> None:
        if self._clock is not None and error is None:
            self._clock.record(stat.mtime)

    def create(self, path: str, *, ephemeral: bool = False) -> Reply:
        """Create a node without data."""
        return self.multi([("ephemeral" if ephemeral else "create", path, None)])

    def multi(self, operations: Sequence[Operation]) -> Reply:
        """Submit a transaction; the reply is the list of results."""
        for operation in operations:
            self._at(operation[1])
        return self._submit(Multi(operations, self._chroot, self.access.acls))

    async def record_events(self, paths: Sequence[str]) -> RecordedEvents:
        """Record the events of all znodes at and below some paths from now on, until the connection is lost.

        Raises:
            UnavailableError: The server does not support this.
        """
        if not self.multi_reads:
            raise unavailable("ZooKeeper is older than 3.6, which is needed to follow all changes")
        events = RecordedEvents(self._chroot)
        self._checked()._data_watchers = events  # noqa: SLF001 - kazoo has no persistent watches
        for reply in [self._submit(AddWatch(self._at(path))) for path in paths]:
            await reply
        return events

    def _submit(self, request: Any) -> Reply:
        """Submit a request that kazoo has no call for."""
        client = self._checked()
        reply: Reply = client.handler.async_result()
        client._call(request, reply)  # noqa: SLF001 - as above
        return self._made(reply)

    def watcher(self, callback: Callable[[], None]) -> Watcher:
        """Return a watch callback that calls ``callback()`` on the loop. Pass the same watch to every call."""

        def deliver(_value: Any, _error: Exception | None) -> None:
            if not self.retired:
                callback()

        def watch(event: Any) -> None:
            # kazoo also calls watchers when it forgets them at a disconnect; the reconnect is handled elsewhere.
            if event.type != EventType.NONE:
                self._mailbox.post(deliver, None, None)

        return watch

    def _at(self, path: str) -> str:
        """Return a path with the chroot before it, in kazoo's form.

        Raises:
            ValueError: No znode can have this path; on its own thread kazoo would fail on it.
        """
        if not znodes.is_path(path):
            raise ValueError(f"No znode can have the path {shown(path)}")
        return self._chroot + path

    def _checked(self) -> KazooClient:
        if not self.connected:
            raise unavailable(self.refusal)
        return self._client

    @property
    def refusal(self) -> str:
        """The reason why nothing may be submitted now."""
        if not self.timeout_too_long:
            return "ZooKeeper is not connected"
        return (
            f"ZooKeeper grants sessions of {self.timeout_s:g} s, and settling bears {LONGEST_TIMEOUT_MS // 1000} s at"
            " most: lower minSessionTimeout, or tickTime, of its servers"
        )

    def _made(self, reply: Reply) -> Reply:
        if reply.refused is not None:
            raise unavailable("ZooKeeper's session just ended")
        return reply

    # -- setting up

    async def set_up(self) -> None:
        """Create what must exist, then the writer node. Its creation is a quorum write: no read after it on this
        session sees a state older than it.
        """  # noqa: D205 - one thought
        await self.ensure_roots()
        for result in await self.create(znodes.writer_path(self.writer), ephemeral=True):
            # The reply to a first try may have been lost with the connection.
            if isinstance(result, Exception) and not isinstance(result, NodeExistsError):
                raise result
        if self._clock is not None:
            self._clock.begin()
            await self.touch()
        self.ready = True

    async def ensure_roots(self) -> None:
        """Create the chroot and the missing roots, without data, as brokers do."""
        elements = self._chroot.strip("/").split("/") if self._chroot else []
        roots = [("", "/" + "/".join(elements[: depth + 1])) for depth in range(len(elements))]
        roots += [(self._chroot, root) for root in znodes.PERSISTENT_ROOTS]
        stats = [self._made(self._checked().exists_async(chroot + root)) for chroot, root in roots]
        for (chroot, root), stat in zip(roots, stats, strict=True):
            if await stat is None:
                [result] = await self._submit(Multi([("create", root, None)], chroot, self.access.acls))
                if isinstance(result, Exception) and not isinstance(result, NodeExistsError):
                    raise result


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
            clock=self.clock,
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
