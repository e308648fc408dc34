"""One ZooKeeper session, and its transactions.

A session is one ``KazooClient`` and one random **writer** node, ephemeral, created right after connecting. Every
transaction writes to the writer node that it started under, so none can commit after that session has ended, however
late its bytes arrive. kazoo would reopen an expired session by itself, send calls of the old one over it and report
nothing while cut off. Therefore a client is never used beyond its first session: on LOST, or after a disconnect longer
than the negotiated timeout by our own clock, the whole client is discarded (session_manager.py).

Nothing is submitted while the connection is down. The outcome of calls submitted before it went down is unknown to the
caller.

A transaction (opcode 14) is one request, laid out in one pass: kazoo makes objects of each operation.

The ACL of a new node is open, or secure. Open is Kafka's default: anyone may do anything. Secure is the ACL of brokers
with ``zookeeper.set.acl=true``: all rights for the creator, and reading for anyone except below ``/config/users`` and
``/config/brokers``, which hold SCRAM keys and passwords. Of this service's own nodes, markers and the freeze can't be
read by anyone either: they hold principals, request ids and reasons. Brokers name the creator alone. Here two parties
may need the nodes: the brokers, whose identity the ACL names, and this service, by the credentials of its session
(scheme ``auth``, which ZooKeeper replaces by the session's identity). Existing nodes keep their ACL.

Source: core/src/main/scala/kafka/zk/ZkData.scala (defaultAcls, sensitivePath);
org.apache.zookeeper.MultiOperationRecord, MultiResponse; CreateRequest, SetDataRequest, CheckVersionRequest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, MarshallingError, NodeExistsError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    SetData,
    Sync,
    Transaction,
    int_struct,
    multiheader_struct,
    stat_struct,
)
from kazoo.protocol.states import EventType, KazooState, ZnodeStat

from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.texts import shown
from confplane.store import znodes
from confplane.store.session.asyncio_adapter import LoopHandler, Mailbox, Replies, Reply
from confplane.store.session.capability_probe import CapabilityProbe
from confplane.store.session.multiread import MultiRead
from confplane.store.session.persistent_watch import AddWatch, RecordedEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.store.session.access import NodeAcls, ZooKeeperAccess

    Watcher = Callable[[Any], None]

_kazoo_logger = logging.getLogger("confplane.store.kazoo")
# kazoo logs every attempt to connect; the session manager logs the important events once.
_kazoo_logger.setLevel(logging.CRITICAL)

_RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.3}
LONGEST_TIMEOUT_MS: Final = 45_000
"""The longest session timeout that settling allows: a settler acts on a read of up to 15 s before, and markers are
dropped a minute after their outcome (store/write/markers.py)."""


def unavailable(detail: str) -> UnavailableError:
    """Return the error of a call that was not submitted."""
    return UnavailableError(detail, outcome=WriteOutcome.NOT_APPLIED)


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
        on_time: Called with ZooKeeper's time in replies to :meth:`touch`, in milliseconds.
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
        on_time: Callable[[int], None] | None = None,
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
        self._on_time = on_time
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
        return reply if self._on_time is None else reply.then(self._note_time)

    def _note_time(self, stat: Any, error: Exception | None) -> None:
        if self._on_time is not None and error is None:
            self._on_time(stat.mtime)

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
        if self._on_time is not None:
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


# ---------------------------------------------------------------- transactions


Operation = tuple[Any, ...]
"""``("set", path, data, version)``, ``("check", path, version)``, ``("create", path, data)``, ``("sequence", path,
data)``, ``("ephemeral", path, data)`` or ``("delete", path)``. The data None are those of a node without data."""

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, 1, -1)
_NO_DATA: Final = int_struct.pack(-1)
_ANY_VERSION: Final = int_struct.pack(-1)
_KINDS: Final[dict[str, int]] = {"set": SetData.type, "check": CheckVersion.type, "delete": Delete.type}
_HEADS: Final = {
    kind: multiheader_struct.pack(_KINDS.get(kind, Create.type), 0, -1)
    for kind in ("set", "check", "delete", "create", "ephemeral", "sequence")
}
_FLAGS: Final = {"create": int_struct.pack(0), "ephemeral": int_struct.pack(1), "sequence": int_struct.pack(2)}
"""The flags of each kind of creation."""
_SENSITIVE: Final = ("/config/users", "/config/brokers", f"{znodes.COMMITS}/", znodes.FREEZE)


def acl_of(acls: NodeAcls, path: str) -> bytes:
    """Return the ACL of a new node, as it is in a request; the path is below the chroot."""
    # The test is a plain prefix, as in Kafka.
    return acls.sensitive if path.startswith(_SENSITIVE) else acls.others


class Multi:
    """One transaction, in the form of kazoo's own requests.

    Args:
        operations: The operations, with paths below the chroot that znodes can have.
        chroot: ``""`` or ``/path``.
        acls: The ACLs of new nodes.
    """

    type = Transaction.type

    def __init__(self, operations: Sequence[Operation], chroot: str, acls: NodeAcls) -> None:
        self._operations = operations
        self._chroot = chroot
        self._acls = acls

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        number, chroot, acls = int_struct.pack, self._chroot, self._acls
        parts: list[bytes] = []
        for operation in self._operations:
            kind, below = operation[:2]
            path = (chroot + below).encode()
            parts += _HEADS[kind], number(len(path)), path
            if kind == "check":
                parts.append(number(operation[2]))
            elif kind == "delete":
                parts.append(_ANY_VERSION)
            else:
                data = operation[2]
                parts += (_NO_DATA,) if data is None else (number(len(data)), data)
                parts += (number(operation[3]),) if kind == "set" else (acl_of(acls, below), _FLAGS[kind])
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Any]:
        """Return the results of the operations, in order.

        The result of a creation is the path, that of a set the Stat, that of a check or deletion True; that of an
        operation of a refused transaction is an exception.

        Raises:
            MarshallingError: The reply is not of a transaction.
            struct.error: The reply ends too early.
        """
        results: list[Any] = []
        header, number = multiheader_struct.unpack_from, int_struct.unpack_from
        while True:
            kind, done, _ = header(buffer, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == Create.type:
                start = offset + int_struct.size
                offset = start + number(buffer, offset)[0]
                results.append(buffer[start:offset].decode())
            elif kind == SetData.type:
                results.append(ZnodeStat._make(stat_struct.unpack_from(buffer, offset)))
                offset += stat_struct.size
            elif kind in {CheckVersion.type, Delete.type}:
                results.append(True)
            elif kind == _ERROR:
                results.append(EXCEPTIONS[number(buffer, offset)[0]]())
                offset += int_struct.size
            else:
                raise MarshallingError(f"result {len(results)} of a transaction is of the unknown kind {kind}")
