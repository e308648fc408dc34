"""Follows a cluster's configs in a mirror: loads it, reads notifications, finds gaps, and knows its complete revision.

**Following.** ZooKeeper numbers notifications by the count of creations below ``/config/changes``: the numbers have no
holes, and the parent's Stat gives the next one. So the mirror sets an exists-watch on the **next** notification instead
of a child watch on the parent. An event then costs one read and not a list of up to 37,000 names, and purges wake
nobody. When the watch fires, the notifications up to the parent's count are read in one window, then the nodes they
name.

**Gaps.** Every pass (at every event, after every reconnect, for every ``catch_up``, about once a second) compares the
parent's count with the notifications read. A missing number below the count (purged while we were away, or used up by a
stray child), or a count below ours (the parent was recreated), is a gap: everything is loaded again, while the old copy
is served as stale.

**Own commits.** The reply to a commit names its notifications and its content is known, so both are applied as the
reply arrives and those numbers are not read: a write costs no reads. Replies, and with them reads and commits, are
applied in the order of their arrival on the connection, which is ZooKeeper's order for one session.

**Revision.** The highest R with every notification of czxid <= R applied. A transaction's notifications are numbered in
one piece, so a pass up to the parent's count never ends within one.

Numbers stay below 2**31, as in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kazoo.exceptions import NoNodeError, ZookeeperError

from confplane.domain.errors import UnavailableError, WriteOutcome
from confplane.domain.facets import Tree
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.store import MirrorState
from confplane.store import znodes
from confplane.store.mirror import loader, memory
from confplane.store.mirror.anomalies import Anomalies
from confplane.store.mirror.journal import MirrorJournal
from confplane.store.mirror.metadata import TopicMetadata
from confplane.store.mirror.nodes import Mirror
from confplane.store.session.reads import FORBIDDEN, ReadWindow, SizeEstimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.store.mirror.nodes import FacetIndex
    from confplane.store.session.session import Session, Watcher

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.5
_OVERDUE_SECONDS: Final = 3.0
"""Seconds without a pass after which the copy counts as stale, connected or not; a pass comes about every second."""
_CHUNK: Final = 500
"""Notifications read before the reads of their entities."""
_EARLY: Final = 4
"""Notifications read together with the parent's count, before their number is known."""
_NOTIFIED: Final = "of notifications"
_DEBOUNCE_SECONDS: Final = 0.005
"""Seconds of wait for replies to own commits: during own commits most events are theirs, with the replies right
behind."""


class TreeOrder(Protocol):
    """The order of reads of a node in both trees that may have it, so that none is missed during a move."""

    def __call__(self, *, loading: bool) -> tuple[Tree, Tree]:
        """Return the trees; ``loading`` while they are read as wholes."""


class _GapError(Exception):
    """Notifications were missed."""


class MirrorFollower(BackgroundService):
    """A cluster's mirror and its upkeep.

    Attributes:
        mirror: The full copy, or None before the first load.
        journal: The changes of the copy.
        revision: Highest R with every notification of czxid <= R applied.
        notifications: Children of ``/config/changes`` when last seen.
        anomalies: Warnings about these children.
        trouble: The reason why the last update of the copy failed; None if it succeeded.
        in_flight: Own commits submitted and not answered; counted by their submitter.
        metadata: The topics of the cluster; followed before the mirror is shown.
        loads: Number of loads.
        gaps: Number of gaps.
        load_s: Seconds of the last load; 0 before.
        progress: The progress of the load that is under way; None if there is none.
    """

    def __init__(
        self,
        name: str,
        trees: Mapping[Tree, Mapping[str, FacetIndex]],
        on_writer_gone: Callable[[Session], None],
        order: TreeOrder,
    ) -> None:
        self.mirror: Mirror | None = None
        self.journal = MirrorJournal()
        self.revision = 0
        self.next = 0
        self.notifications = 0
        self.anomalies = Anomalies()
        self.trouble: str | None = None
        self.in_flight = 0
        self.loads = 0
        self.gaps = 0
        self.load_s = 0.0
        self.progress: loader.LoadProgress | None = None
        self._wake = asyncio.Event()
        self.metadata = TopicMetadata(self._wake.set)
        self._name = name
        self._trees = trees
        self._on_writer_gone = on_writer_gone
        self._trees_in_order = order
        self._loading: Mirror | None = None
        self._sizes: defaultdict[str, SizeEstimate] = defaultdict(SizeEstimate)
        self._reload = True
        self._session: Session | None = None
        self._watch: Watcher | None = None
        self._topics_watch: Watcher | None = None
        self._live = False
        self._armed: int | None = None
        self._fired: int | None = None
        self._topics_fired = False
        self._confirmed = time.monotonic()
        self._own: dict[int, int] = {}
        self._strong: list[asyncio.Future[int]] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._background = BackgroundTask(self._run, name=f"zookeeper-mirror-{name}")
        self._step: asyncio.Task[None] | None = None
        self._freeing: asyncio.Task[None] | None = None

    # -- life

    async def stop(self) -> None:
        """Stop following; the copy stays."""
        await self._background.stop()
        if self._freeing is not None:
            self._freeing.cancel()
        self._fail_strong()

    def begin(self, session: Session) -> None:
        """Follow on this session: a new one, or one that was disconnected and lost its watches."""
        if session is not self._session:
            self._session = session
            if self._step is not None:
                # A call of the old session that was queued as the session ended may never be answered.
                self._step.cancel()
            self._watch = session.watcher(self._on_event)
            self._topics_watch = session.watcher(self._on_topics)
            self.metadata.begin(session)
        self._live = False
        self._armed = None
        self._topics_fired = True
        self.metadata.mark_stale()

    def down(self) -> None:
        """Record that watches are lost, and fail waits that can't be fulfilled now."""
        self._live = False
        self._armed = None
        if self.mirror is not None:
            waiting, self._waiting = self._waiting, []
            _fail([future for _, _, future in waiting], f"Cluster {self._name}: ZooKeeper is not connected")

    def reload(self) -> None:
        """Load the copy again, in the place of a copy of a store that was restored since."""
        self._reload = True
        self._wake.set()

    def loaded(self) -> Mirror:
        """Return the copy.

        Raises:
            UnavailableError: It was never loaded.
        """
        if self.mirror is None:
            raise UnavailableError(
                f"Cluster {self._name}: its configs were not loaded from ZooKeeper yet",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        return self.mirror

    @property
    def stale_ms(self) -> int | None:
        """Milliseconds since the copy was known to be complete, or None while it is."""
        age = time.monotonic() - self._confirmed
        session = self._session
        if (
            self.mirror is not None
            and not self._reload
            and self._live
            and session is not None
            and session.connected
            and age < _OVERDUE_SECONDS
        ):
            return None
        return int(age * 1000)

    @property
    def state(self) -> MirrorState:
        """The state of the copy."""
        if self.mirror is None:
            return MirrorState.LOADING
        if self._loading is not None:
            return MirrorState.RELOADING
        return MirrorState.FRESH if self.stale_ms is None else MirrorState.STALE

    # -- events, all on the loop

    def _on_event(self) -> None:
        self._fired = self._armed
        self._armed = None
        self._wake.set()

    def _on_topics(self) -> None:
        self._topics_fired = True
        self._wake.set()

    def apply_commit(
        self, session: Session, revision: int, sequences: tuple[int, ...], nodes: Iterable[tuple[Tree, Node]]
    ) -> None:
        """Apply an own transaction at the moment its reply is delivered."""
        if session is not self._session:
            # Replies of a replaced session are out of order; its notifications will be read.
            return
        for mirror in self._mirrors():
            for tree, node in nodes:
                if tree in mirror.trees:
                    mirror.trees[tree].put_node(node)
        self.notifications += len(sequences)
        for number in sequences:
            if number >= self.next:
                self._own[number] = revision
        self._apply_own()

    def apply_read(self, session: Session, tree: Tree, path: str, value: Any, *, seen_at: int = 0) -> None:
        """Apply the result of a read of one node, at the moment its reply is delivered.

        Args:
            session: The session of the reply.
            tree: The node's tree.
            path: The node's path below the tree's root.
            value: The reply; None: the node is absent.
            seen_at: A revision that the reply is not older than, if one is known.
        """
        if session is self._session:
            for mirror in self._mirrors():
                if tree in mirror.trees:
                    loader.apply_node(mirror, tree, path, value, seen_at)

    def _mirrors(self) -> list[Mirror]:
        return [mirror for mirror in (self.mirror, self._loading) if mirror is not None]

    def _apply_own(self) -> None:
        """Skip own notifications that are next in line."""
        while (revision := self._own.pop(self.next, None)) is not None:
            self.next += 1
            if self.next not in self._own:
                self._advance(revision)

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        self.journal.advance(self.revision)
        while self._waiting and self._waiting[0][0] <= self.revision:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    # -- waiting

    async def catch_up(self, deadline: float) -> int:
        """Bring the mirror to at least the moment of the call and return its revision.

        Raises:
            UnavailableError: The deadline passed.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ask(future)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await future
        except TimeoutError:
            raise self._timeout_error() from None

    async def wait_for(self, revision: int, deadline: float) -> None:
        """Wait until the mirror is at a revision.

        Raises:
            UnavailableError: The deadline passed, or the connection is down, which is not waited for except before the
                first load.
        """
        if self.mirror is not None:
            if self.revision >= revision:
                return
            if self._session is None or not self._session.connected:
                raise self._timeout_error()
        loop = asyncio.get_running_loop()
        reached: asyncio.Future[None] = loop.create_future()
        entry = (revision, next(self._order), reached)
        heapq.heappush(self._waiting, entry)
        self.advance_soon()  # looked for now, and not at the next tick
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await reached
        except TimeoutError:
            raise self._timeout_error() from None
        finally:
            # A cancelled waiter may have been removed already, too.
            if (not reached.done() or reached.cancelled()) and entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    def advance_soon(self) -> None:
        """Bring the revision to this moment, if the connection allows it."""
        with contextlib.suppress(UnavailableError):
            self._ask(asyncio.get_running_loop().create_future())

    def _ask(self, future: asyncio.Future[int]) -> None:
        session = self._session
        if session is None or not session.ready or not session.connected:
            raise UnavailableError(f"Cluster {self._name}: ZooKeeper is not connected")
        self._strong.append(future)
        self._wake.set()

    def _timeout_error(self) -> UnavailableError:
        session = self._session
        if session is None or not session.connected:
            return UnavailableError(f"Cluster {self._name}: ZooKeeper is not connected")
        return UnavailableError(f"Cluster {self._name}: the mirror did not catch up in time")

    def _fail_strong(self) -> None:
        waiters, self._strong = self._strong, []
        _fail(waiters, f"Cluster {self._name}: the connection to ZooKeeper went down")

    # -- the task

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            session = self._session
            if session is None or not session.ready or not session.connected:
                self.trouble = None  # the state of the session is reported instead
                self._fail_strong()
                continue
            self._step = asyncio.create_task(self.run_once(session), name=f"zookeeper-mirror-step-{self._name}")
            try:
                await asyncio.wait({self._step})
            finally:
                self._step.cancel()
            try:
                self._step.result()
                self.trouble = None
            except asyncio.CancelledError:
                self._wake.set()
            except _GapError as gap:
                self.gaps += 1
                logger.warning("Cluster %s: %s; the mirror is loaded again", self._name, gap)
                self._reload = True
                self._wake.set()
            except (ZookeeperError, UnavailableError) as error:
                self._armed = None
                if isinstance(error, NoNodeError):
                    # The writer node, or a root that somebody deleted: a new session makes both.
                    self._on_writer_gone(session)
                self.trouble = type(error).__name__
                logger.info("Cluster %s: following was interrupted: %r", self._name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
            except Exception as error:
                self.trouble = type(error).__name__
                self._armed = None
                self._reload = True
                logger.exception("Cluster %s: following failed; the mirror is loaded again", self._name)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def run_once(self, session: Session) -> None:
        """Load if necessary, apply what is new, and set the watches again."""
        waiters, self._strong = self._strong, []
        try:
            if self._reload:
                await self._load(session)
            await self._follow_fired(session)
            if self._fired is not None and self.in_flight:
                await asyncio.sleep(_DEBOUNCE_SECONDS)
            overdue = time.monotonic() - self._confirmed >= _TICK_SECONDS
            if waiters or overdue or self._fired is None or self._fired >= self.next:
                waiters += self._strong
                self._strong = []
                # Entries that the journal still holds back at the next tick need a strong pass: no notification will
                # release them.
                await self._pass(session, strong=bool(waiters) or (overdue and self.journal.waiting))
                # By the end of a strong pass the watches of topics created or deleted before it have fired.
                await self._follow_fired(session)
            await self._arm(session)
        except _GapError:
            # The waiters are answered after the load.
            self._strong = waiters + self._strong
            raise
        except BaseException:
            _fail(waiters, f"Cluster {self._name}: the connection to ZooKeeper went down")
            raise
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(self.revision)

    async def _load(self, session: Session) -> None:
        mirror = self._loading = Mirror(self._trees)
        progress = self.progress = loader.LoadProgress(self._name)
        # The load lists the topics with the watch set; topics that fire it during the load are read afterwards.
        self._topics_fired = False
        try:
            revision = (await session.touch()).mzxid
            await self.metadata.follow(session)
            names, stat = await session.children(znodes.CHANGES)
            order = self._trees_in_order(loading=True)
            with memory.gc_paused(mirror):
                await loader.load(session, mirror, order, self._topics_watch, self._sizes, progress)
            self._publish(mirror)
        except BaseException:
            self._topics_fired = True
            raise
        finally:
            self._loading = self.progress = None
        self._reload = False
        self.loads += 1
        self.load_s = progress.seconds
        self.next = znodes.next_sequence(stat.cversion, stat.numChildren)
        self.record_listing(names, stat)
        for number in [number for number in self._own if number < self.next]:
            del self._own[number]
        # Not max(): after a restore from a backup ZooKeeper's zxids are lower than those seen before.
        self.revision = revision
        mirror.journal_to(self.journal)
        self.journal.begin(revision, mirror.newest())
        self._advance(revision)
        self._apply_own()
        logger.info(
            "Cluster %s: loaded %d nodes in %.2f s at revision %d",
            self._name,
            mirror.entities(),
            self.load_s,
            revision,
        )

    def _publish(self, mirror: Mirror) -> None:
        before, self.mirror = self.mirror, mirror
        if before is not None:
            self._freeing = asyncio.create_task(memory.free(before), name=f"zookeeper-mirror-freeing-{self._name}")

    def record_listing(self, names: list[str], stat: Any) -> None:
        """Record a list of ``/config/changes`` and its Stat."""
        self.notifications = len(names)
        self.anomalies.record_listing(names, stat)

    async def _pass(self, session: Session, *, strong: bool) -> None:
        """Read and apply all existing notifications."""
        begun = time.monotonic()
        fired, self._fired = self._fired, None
        touched = session.touch() if strong else None
        behind: list[int] = []

        def count(stat: Any, _error: Exception | None) -> None:
            # Own commits continue during the pass, and come after this count if their replies do.
            behind.append(self.next)
            if stat is not None:
                self.notifications = stat.numChildren

        counted = session.exists(znodes.CHANGES).then(count)
        early = {}
        if fired is not None:
            numbers = (number for number in itertools.count(self.next) if number not in self._own)
            early = {number: session.get(znodes.change_path(number)) for number in itertools.islice(numbers, _EARLY)}
        stat = await counted
        if stat is None:
            await session.ensure_roots()
            raise _GapError(f"{znodes.CHANGES} was deleted")
        target = znodes.next_sequence(stat.cversion, stat.numChildren)
        if target < behind[0]:
            raise _GapError(f"{znodes.CHANGES} was created again")
        while self.next < target:
            end = min(target, self.next + _CHUNK)
            last = await self._read_chunk(session, end, early)
            # A chunk that is not the last may end within a transaction.
            self.next = max(self.next, end)
            for number in [number for number in self._own if number < end]:
                last = max(last, self._own.pop(number))
            self._advance(last if end == target else last - 1)
            self._apply_own()
        if touched is not None:
            self._advance((await touched).mzxid)
        if self.anomalies.needs_relisting(stat):
            self.record_listing(*await session.children(znodes.CHANGES))
        self._confirmed = begun

    async def _read_chunk(self, session: Session, end: int, early: Mapping[int, Any]) -> int:
        """Apply the notifications from ``next`` to ``end``; return the last one's zxid, 0 when all were own."""
        numbers = [number for number in range(self.next, end) if number not in self._own]
        found: dict[int, Any] = {}
        for number in numbers:
            if number in early:
                with contextlib.suppress(ZookeeperError):
                    found[number] = await early[number]
        paths_of = {znodes.change_path(number): number for number in numbers if number not in found}
        reads = ReadWindow(session)
        reads.data(
            lambda paths, values: found.update(zip((paths_of[path] for path in paths), values, strict=True)),
            self._sizes[znodes.CHANGES],
        ).request(paths_of)
        await reads.done()
        paths: dict[str, int] = {}
        last = 0
        for number in numbers:
            value = found.get(number)
            if value is FORBIDDEN:
                # A load reads its entity, whichever it is.
                raise _GapError(f"notification {number} may not be read")
            if value is None:
                raise _GapError(f"notification {number} is gone, {end - number} after it are not read")
            data, (last, *_) = value  # a Stat begins with the czxid
            if (path := znodes.decode_notification(data)) is None:
                self.anomalies.record_nameless(number)
            else:
                paths[path] = last
        await self._read_entities(session, paths)
        return last

    async def _read_entities(self, session: Session, paths: Mapping[str, int]) -> None:
        """Read the nodes at these paths below the trees' roots, and the nodes that their presence or absence affects.

        Args:
            session: The session.
            paths: Each path with the revision of its last notification, 0 where there was none.
        """
        absent: list[tuple[Tree, str]] = []
        unseen: list[tuple[Tree, str]] = []
        present: set[str] = set()
        asked = self._with_parents(paths)

        def taken(tree: Tree, path: str, value: Any) -> None:
            if not asked[tree, path]:
                self.apply_read(session, tree, path, value)
                return
            if value is not None:
                present.add(path)
            else:
                absent.append((tree, path))
                if self._unknown(tree, path):
                    unseen.append((tree, path))
            self.apply_read(session, tree, path, value, seen_at=paths[path])
            self._record_notified(tree, path, paths[path])

        await self._request_reads(session, asked, taken).done()
        for tree, path in unseen:
            # The node may have been made and deleted. Most paths are in one tree only.
            if path not in present and (entity_id := znodes.entity_id(path)) is not None:
                self.journal.record(tree, entity_id, None, None, paths[path])
        await self._read_ancestors(session, absent)

    def _with_parents(self, paths: Iterable[str]) -> dict[tuple[Tree, str], bool]:
        """Return the nodes to read, in this order; True for a notified node, False for the parent of one."""
        asked: dict[tuple[Tree, str], bool] = {}
        for path in paths:
            parts = path.split("/")
            for tree in self._trees_in_order(loading=False):
                if tree in self._trees and (tree is Tree.CONFIG or parts[0] == "users"):
                    asked[tree, path] = True
                    user = "/".join(parts[:2])
                    if user != path and self._unknown(tree, user):
                        # The parent was created with the node, and its version is needed for the first write to it.
                        asked.setdefault((tree, user), False)
        return asked

    def _request_reads(
        self, session: Session, asked: Iterable[tuple[Tree, str]], take: Callable[[Tree, str, Any], None]
    ) -> ReadWindow:
        """Return a window of reads of these nodes, each by its tree and its path below the root, in this order."""
        of = {f"{tree.value}/{path}": (tree, path) for tree, path in asked}

        def taken(paths: Sequence[str], values: Sequence[Any]) -> None:
            for path, value in zip(paths, values, strict=True):
                take(*of[path], value)

        reads = ReadWindow(session)
        reads.data(taken, self._sizes[_NOTIFIED]).request(of)
        return reads

    async def _read_ancestors(self, session: Session, absent: Iterable[tuple[Tree, str]]) -> None:
        """Read the ancestors of absent nodes: a recursive delete notifies once, and everything below is gone."""
        pairs = ((tree, path.split("/")) for tree, path in absent)
        users = {(tree, "/".join(parts[:2])): None for tree, parts in pairs if len(parts) == 4}  # noqa: PLR2004 - users/<u>/clients/<c>
        reads = self._request_reads(session, users, partial(self.apply_read, session))
        for tree, user in users:
            clients = session.exists(f"{tree.value}/{user}/clients")
            reads.add(clients, partial(self._pairs_gone, session, tree, user))
        await reads.done()

    def _record_notified(self, tree: Tree, path: str, revision: int) -> None:
        """Record a notification that came after the node's last write: that of an external write, or one of none."""
        entity_id = znodes.entity_id(path)
        node = None if self.mirror is None or entity_id is None else self.mirror.trees[tree].nodes.get(entity_id)
        if node is not None and node.mzxid < revision:
            self.journal.record(tree, node.id, node, node, revision)

    def _unknown(self, tree: Tree, path: str) -> bool:
        entity_id = znodes.entity_id(path)
        return self.mirror is None or entity_id not in self.mirror.trees[tree].nodes

    def _pairs_gone(self, session: Session, tree: Tree, user: str, stat: Any) -> None:
        entity_id = znodes.entity_id(user)
        if stat is None and entity_id is not None and session is self._session:
            for mirror in self._mirrors():
                mirror.trees[tree].remove_below(f"{entity_id},")

    async def _follow_topics(self, session: Session) -> None:
        """Compare the topics with the mirror's: their creation and deletion have no notification."""
        self._topics_fired = False
        if Tree.CONFIG not in self._trees:
            return
        try:
            names, stat = await session.children(znodes.TOPIC_CONFIGS, self._topics_watch)
        except ZookeeperError:
            self._topics_fired = True
            raise
        if self.mirror is None:
            return
        tree = self.mirror.trees[Tree.CONFIG]
        ids = await in_slices(lambda name: znodes.entity_id(f"topics/{name}"), names)
        present = {entity_id: name for entity_id, name in zip(ids, names, strict=True) if entity_id is not None}
        for entity_id in tree.below("topic"):
            # A topic created since the list, by an own commit for example, is not among these names.
            if entity_id not in present and tree.nodes[entity_id].czxid <= stat.pzxid:
                tree.remove(entity_id)
        await self._read_entities(
            session, {f"topics/{name}": 0 for entity_id, name in present.items() if entity_id not in tree.nodes}
        )

    async def _follow_fired(self, session: Session) -> None:
        """Read the topics whose watches have fired."""
        if self.metadata.stale:
            await self.metadata.follow(session)
        if self._topics_fired:
            await self._follow_topics(session)

    async def _arm(self, session: Session) -> None:
        """Set the watch on the next notification."""
        if self._armed != self.next:
            number = self.next
            self._armed = number
            self._fired = None
            if await session.exists(znodes.change_path(number), self._watch) is not None and number >= self.next:
                self._fired = number
                self._wake.set()
        self._live = True


def _fail(waiters: Iterable[asyncio.Future[Any]], detail: str) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(UnavailableError(detail))
            # All waiters may be gone.
            waiter.exception()
