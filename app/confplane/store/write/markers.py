"""Markers: ``/confplane/commits/<changeId>``, the one node that decides whether a change was applied.

A transaction creates its change's marker, so a marker with a commit's content proves that commit, and its czxid and
ctime are the commit's revision and time. A settler creates the same node with the content "aborted". The first creation
decides: if the settler's succeeds, the change's transaction can't any more, however late it arrives.

A commit's marker is dropped a minute after the outcome was written, once the outcome is durable: by the process that
wrote it (services/upkeep/dropping.py), or, where that process is gone, by the leader's sweep
(services/upkeep/reconcile.py). An abort marker stays as long as the writer that it blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson
from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.states import ZnodeStat

from confplane.domain.errors import CorruptZnodeError
from confplane.services.metrics import Sample
from confplane.services.ports.store import Marker
from confplane.services.ports.transactions import Removal
from confplane.store import znodes
from confplane.store.mirror import loader
from confplane.store.session.reads import FORBIDDEN, ReadWindow
from confplane.store.session.session import unavailable
from confplane.store.session.session_manager import zookeeper_calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from confplane.services.ports.trail import Intent
    from confplane.services.ports.transactions import Write
    from confplane.store.session.session import Session
    from confplane.store.session.session_manager import SessionManager

RELEASE_SECONDS: Final = 60.0
"""Seconds from the writing of an outcome to the drop of its marker. services/changes/settle.py relies on half of
it."""
_DROP_SECONDS: Final = 10.0
_YIELD: Final = 1_000
"""Names read before other tasks get their turn."""
_PIECE: Final = 2_000
"""Released markers in one query of Postgres."""
_BATCH: Final = 200
"""Markers deleted at a time."""
_COMMITTED: Final = "committed"
_ABORTED: Final = "aborted"


# ---------------------------------------------------------------- content


def encode_committed(intent: Intent, writes: Sequence[Write]) -> bytes:
    """Return the marker of a commit: its author, its paths and the versions they got; never a value.

    Removals are in a member of their own, which releases without removals ignore.
    """
    content = {
        "version": 1,
        "state": _COMMITTED,
        "attempt": intent.attempt,
        "writer": intent.writer,
        "principal": intent.principal,
        "requestId": intent.request_id,
        "writes": [
            {"path": write.path, "version": 0 if write.expected is None else write.expected + 1}
            for write in writes
            if not isinstance(write, Removal)
        ],
    }
    removed = [
        {"path": write.path, "version": write.expected}
        for write in writes
        if isinstance(write, Removal) and write.entity is not None
    ]
    if removed:
        content["removed"] = removed
    return orjson.dumps(content)


def encode_aborted(settler: str) -> bytes:
    """Return an abort marker; ``settler`` is the writer node of the session that decided so."""
    return orjson.dumps({"version": 1, "state": _ABORTED, "settler": settler})


def decode(change_id: UUID, data: bytes | None, czxid: int, ctime_ms: int) -> Marker:
    """Read a marker.

    Raises:
        CorruptZnodeError: The data are neither a commit's nor an abort marker, and decide nothing.
    """
    try:
        match orjson.loads(data or b""):
            case {"version": 1, "state": "aborted"}:
                return Marker(change_id, committed=False)
            case {"version": 1, "state": "committed", "attempt": int(attempt), "writes": list(writes)} as content:
                versions = {str(write["path"]): int(write["version"]) for write in writes}
                return Marker(
                    change_id,
                    committed=True,
                    attempt=attempt,
                    revision=czxid,
                    time_ms=ctime_ms,
                    versions=versions,
                    removed={str(each["path"]): int(each["version"]) for each in content.get("removed", ())},
                    principal=str(content.get("principal", "")),
                    writer=str(content.get("writer", "")),
                    request_id=str(content.get("requestId", "")),
                )
    except (ValueError, TypeError, KeyError):
        pass
    raise CorruptZnodeError(znodes.marker_path(change_id), "is not a readable marker")


# ---------------------------------------------------------------- ZooKeeper


class CommitMarkers:
    """The commit markers of one cluster: settling changes by them, and dropping them.

    All calls raise ``UnavailableError`` when ZooKeeper did not answer; the requested work may be done all the same.
    """

    def __init__(self, name: str, session_manager: SessionManager) -> None:
        self._name = name
        self._session_manager = session_manager
        self._released: deque[tuple[float, bytes]] = deque()
        self._settlements: Counter[str] = Counter()
        self._dropped = 0

    async def settle(self, change_id: UUID, deadline: float) -> Marker | None:
        """Create an abort marker, or read the existing marker: see ``ClusterStore.settle``."""
        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            marker = await self._settle(session, change_id)
        if marker is not None:
            self._settlements[_COMMITTED if marker.committed else _ABORTED] += 1
        return marker

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("markers_released", len(self._released))
        yield Sample("markers_dropped", self._dropped)
        for outcome in (_COMMITTED, _ABORTED):
            yield Sample("settlements", self._settlements[outcome], (outcome,))

    async def _settle(self, session: Session, change_id: UUID) -> Marker | None:
        path = znodes.marker_path(change_id)
        while True:
            # With the settler's own writer node: a settler paused past its session's end settles nothing.
            results = await session.multi(
                [
                    ("set", znodes.writer_path(session.writer), b"", -1),
                    ("create", path, encode_aborted(session.writer)),
                ]
            )
            touched, created = results
            if isinstance(touched, NoNodeError):
                self._session_manager.replace(session)
                raise unavailable(f"Cluster {self._name}: the ZooKeeper session ended")
            if isinstance(created, NodeExistsError):
                # The refusal is from this session's server, so the server has the blocking marker, unless it was
                # dropped since.
                try:
                    data, stat = await session.get(path)
                except NoNodeError:
                    return None
                return decode(change_id, data, stat.czxid, stat.ctime)
            if isinstance(created, NoNodeError):
                await session.ensure_roots()
                continue
            for result in results:
                if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                    raise result
            if isinstance(created, Exception):
                raise unavailable(f"Cluster {self._name}: ZooKeeper refused the abort marker of change {change_id}")
            return Marker(change_id, committed=False)

    async def found(self, deadline: float) -> tuple[list[UUID], list[str]]:
        """Return the changes that have markers, and the names of other nodes beside them. There may be many."""
        names = await self._listed(znodes.COMMITS, deadline)
        change_ids, strays = [], []
        for index, name in enumerate(names):
            change_id = change_id_of(name)
            if change_id is None:
                strays.append(name)
            else:
                change_ids.append(change_id)
            if not index % _YIELD:
                await asyncio.sleep(0)
        return change_ids, strays

    async def commits(self, change_ids: Sequence[UUID], deadline: float) -> list[Marker]:
        """Read the commit markers of some changes."""
        session = self._session_manager.current
        found: list[Marker] = []

        def take(paths: Sequence[str], values: Sequence[Any]) -> None:
            for path, value in zip(paths, values, strict=True):
                if value is not None and value is not FORBIDDEN:
                    data, stat = value[0], ZnodeStat._make(value[1])
                    with contextlib.suppress(CorruptZnodeError):
                        marker = decode(by_path[path], data, stat.czxid, stat.ctime)
                        if marker.committed:
                            found.append(marker)

        by_path = {znodes.marker_path(change_id): change_id for change_id in change_ids}
        reads = ReadWindow(session)
        async with zookeeper_calls(self._name, deadline):
            await self._touched(session, session.touch())
            reads.data(take).request(by_path)
            await reads.done()
        return found

    async def writers(self, deadline: float) -> frozenset[str]:
        """List the existing writer nodes, behind all writes committed before the call."""
        return frozenset(await self._listed(znodes.WRITERS, deadline))

    async def _listed(self, path: str, deadline: float) -> list[str]:
        """List a node's children, behind all writes committed before the call; none where the node is absent.

        The server of a new session may be behind the server that the mirror was read from.
        """
        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            touched, listed = session.touch(), session.children(path)
            await self._touched(session, touched)
            try:
                names, _ = await listed
            except NoNodeError:
                return []
            return list(names)

    async def _touched(self, session: Session, touched: Awaitable[ZnodeStat]) -> None:
        """Wait for a write to the writer node, and replace a session without one."""
        try:
            await touched
        except NoNodeError:
            self._session_manager.replace(session)
            raise

    # -- dropping

    def release(self, change_id: UUID) -> None:
        """Schedule the drop of a marker, a while from now."""
        # As bytes, which the garbage collector does not look at: there may be hundreds of thousands.
        self._released.append((time.monotonic() + RELEASE_SECONDS, change_id.bytes))

    async def drop_released(self, now: float, lasting: Callable[[Sequence[UUID]], Awaitable[Collection[UUID]]]) -> int:
        """Drop the released markers that are due and whose outcome lasts; the others wait another while."""
        dropped = 0
        while self._released and self._released[0][0] <= now:
            due = list(itertools.takewhile(lambda each: each[0] <= now, itertools.islice(self._released, _PIECE)))
            for _ in due:
                self._released.popleft()
            change_ids = [UUID(bytes=change_id) for _, change_id in due]
            try:
                going = await lasting(change_ids)
                await self.drop([change_id for change_id in change_ids if change_id in going])
            except BaseException:
                # A second drop of a dropped marker does no harm.
                self._released.extendleft(reversed(due))
                raise
            dropped += len(going)
            self._released.extend(
                (now + RELEASE_SECONDS, change_id.bytes) for change_id in change_ids if change_id not in going
            )
        return dropped

    async def drop(self, change_ids: Sequence[UUID]) -> None:
        """Drop markers whose outcome is durable and a minute old, but no abort marker of a living writer."""
        paths = [znodes.marker_path(change_id) for change_id in change_ids]
        for start in range(0, len(paths), _BATCH):
            session = self._session_manager.current
            async with zookeeper_calls(self._name, time.monotonic() + _DROP_SECONDS):
                await loader.delete(session, paths[start : start + _BATCH])
            self._dropped += len(paths[start : start + _BATCH])


def change_id_of(name: str) -> UUID | None:
    """Return the change of a marker's name, or None for any other name."""
    try:
        change_id = UUID(name)
    except ValueError:
        return None
    return change_id if str(change_id) == name else None
