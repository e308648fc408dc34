"""The store of one cluster, assembled from its parts for the services' port."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from typing_extensions import override

from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, UnavailableError
from confplane.domain.extra_keys import Catalogs
from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.cluster_states import Freeze, Incarnation, Layout, StoredState, Target
from confplane.services.ports.incarnation import StorePosition
from confplane.services.ports.store import ClusterStore, Leadership, Markers, MirrorLoad, StoreStatus
from confplane.services.ports.transactions import (
    Committed,
    Conflict,
    Guarded,
    SessionEnded,
    StateWrite,
    TransactionUnknown,
)
from confplane.services.znode_metadata import read_metadata
from confplane.store import metrics, warnings, znodes
from confplane.store.inspection import StoreInspection
from confplane.store.leadership import ZooKeeperLeadership
from confplane.store.mirror import metadata
from confplane.store.mirror.follower import MirrorFollower
from confplane.store.recording import StoreRecording
from confplane.store.session.access import ZooKeeperAccess
from confplane.store.session.reads import FORBIDDEN, ReadWindow, SizeEstimate
from confplane.store.session.session import Session, unavailable
from confplane.store.session.session_manager import SessionManager, best_effort, split_connect_string, zookeeper_calls
from confplane.store.watched_nodes import AppliedWatermarkNode, ObservationReportNode
from confplane.store.write import compaction, transactions
from confplane.store.write.guard import Admission, Guard, IncarnationGate
from confplane.store.write.markers import CommitMarkers
from confplane.store.write.purge import PERIOD_SECONDS, Purger
from confplane.store.write.unnotified import UnnotifiedWrites

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.changes import Node
    from confplane.domain.definitions import Catalog
    from confplane.services.ports.cluster_states import LayoutCheck, Place, S
    from confplane.services.ports.journal import Journal
    from confplane.services.ports.transactions import CommitResult, Removal, Transaction, Write
    from confplane.store.mirror.nodes import FacetIndex

_FROZEN: Final = "An operator froze the cluster; with a token the reason is shown"
_PATHS: Final[Mapping[type, str]] = {
    Freeze: znodes.FREEZE,
    Layout: znodes.LAYOUT,
    Target: znodes.TARGET,
    Incarnation: znodes.INCARNATION,
}
_DECODERS: Final[Mapping[type, Callable[[bytes | None, int], Any]]] = {
    Freeze: znodes.decode_freeze,
    Layout: lambda data, _: znodes.decode_layout(data),
    Target: lambda data, _: znodes.decode_target(data),
    Incarnation: lambda data, _: znodes.decode_incarnation(data),
}
_REPLACED: Final = "the session that the attempt was begun under was replaced"


class ZooKeeperStore(ClusterStore):
    """The configs of one cluster in ZooKeeper.

    After ``start()``, on the event loop that uses it, it connects in the background, for as
    long as it takes, and reconnects automatically when ZooKeeper is available again.

    Args:
        name: The cluster's name, for errors and logs.
        connect: ``host:port[,host:port...][/chroot]``, as Kafka's ``zookeeper.connect``. A missing chroot is created.
        session_timeout_ms: The session timeout to ask for, 45 s at most; the server may grant another.
        max_packet: Largest transaction in bytes.
        notifications_max: Most notifications while brokers are registered.
        jute_maxbuffer: The brokers' jute.maxbuffer: the limit in bytes for a list of names while brokers are
        registered.
        facets: By facet name, the mirror's index of the facet.
        access: This service's identity in ZooKeeper, and the ACL of its nodes; if omitted, there is no identity and the
            ACL is open.
        layout: The settings' layout of client configs, which applies until a layout is stored.
        catalogs: The cluster's definitions; if omitted, Kafka's own.
        mirrored: Keep a copy of the configs. A store without one can read entities from ZooKeeper, and write its own
            znodes.
    """

    def __init__(  # noqa: PLR0913 - a cluster's settings
        self,
        name: str,
        *,
        connect: str,
        session_timeout_ms: int,
        max_packet: int,
        notifications_max: int,
        jute_maxbuffer: int,
        facets: Mapping[str, FacetIndex],
        access: ZooKeeperAccess | None = None,
        layout: Tree | None = None,
        catalogs: Catalogs | None = None,
        mirrored: bool = True,
    ) -> None:
        self.name = name
        hosts, chroot = split_connect_string(connect)
        access = access or ZooKeeperAccess()
        self._limits = transactions.PacketLimits(max_packet, chroot, access.acls)
        self._notifications_max = notifications_max
        self._jute_maxbuffer = jute_maxbuffer
        self.transactions = transactions.TransactionMetrics()
        trees: dict[Tree, dict[str, FacetIndex]] = {Tree.CONFIG: {}}
        for facet, index in facets.items():
            for tree in (index.tree, *(() if index.also is None else (index.also,))):
                trees.setdefault(tree, {})[facet] = index
        self._catalogs = catalogs or Catalogs()
        self._size = SizeEstimate()
        self._session_manager = SessionManager(
            hosts,
            chroot,
            session_timeout_ms,
            access=access,
            name=name,
            on_ready=self._on_ready,
            on_down=self._on_down,
        )
        self._follower = MirrorFollower(name, trees if mirrored else {}, self._session_manager.replace, self._order)
        self.journal: Journal = self._follower.journal
        self._guard = Guard(name, layout, self._follower)
        self._layout = self._guard.layout
        self._observation = ObservationReportNode()
        self._applied = AppliedWatermarkNode()
        self._gate = IncarnationGate(name)
        self._admission = Admission(
            name,
            self._limits,
            notifications_max,
            jute_maxbuffer,
            session_manager=self._session_manager,
            guard=self._guard,
            follower=self._follower,
            purge_s=PERIOD_SECONDS,
        )
        self._purger = Purger(name, self._session_manager, self._follower, self._guard, notifications_max)
        self._markers = CommitMarkers(name, self._session_manager)
        self.markers: Markers = self._markers
        self.leadership: Leadership = ZooKeeperLeadership(name, self._session_manager, self._gate, self._guard)
        unnotified = UnnotifiedWrites(
            name, self._session_manager, self._follower, self._guard, notifications_max=notifications_max
        )
        self.recording = StoreRecording(
            name,
            *(self._session_manager, self._follower, self._purger, unnotified, self._markers),
            trees=tuple(trees),
        )
        self.inspection = StoreInspection(name, self._session_manager, self._follower)

    # -- life cycle

    def start(self, *, purges: bool = True) -> None:
        """Start to connect, and return at once.

        Args:
            purges: Remove notifications that are too old or too many.
        """
        self._follower.start()
        if purges:
            self._purger.start()
        self._session_manager.start()

    async def stop(self) -> None:
        """End the session; waits a few seconds at most. Reads of the mirror continue."""
        await self._purger.stop()
        await self._follower.stop()
        await self._guard.stop()
        await self._session_manager.stop()

    def _order(self, *, loading: bool) -> tuple[Tree, Tree]:
        return self._layout.order(loading=loading)

    def _on_ready(self, session: Session) -> None:
        self._gate.next_connection()
        self._guard.begin(session)
        self._observation.begin(session)
        self._applied.begin(session)
        self._follower.begin(session)

    def _on_down(self) -> None:
        self._gate.next_connection()
        self._guard.down()
        self._follower.down()

    # -- the mirror

    @override
    def status(self) -> StoreStatus:
        follower = self._follower
        session, seconds = self._session_manager.state
        progress = follower.progress
        return StoreStatus(
            session=session,
            session_ms=int(seconds * 1000),
            mirror=follower.state,
            revision=follower.revision,
            stale_ms=follower.stale_ms,
            brokers_registered=self._guard.brokers > 0,
            notifications=follower.notifications,
            checked=self._gate.checked,
            warnings=(
                *self._session_manager.warnings(),
                *self._layout.warnings(),
                *self._guard.warnings(),
                *self._gate.warnings(),
                *warnings.mirror_warnings(follower),
                *self._lists(),
            ),
            frozen=None if self._guard.freeze is None else OperatorWarning(_FROZEN, self._guard.freeze.reason),
            load=None if progress is None else MirrorLoad(progress.read, progress.listed, int(progress.seconds * 1000)),
        )

    def _lists(self) -> Iterator[OperatorWarning]:
        if self._guard.brokers and self._follower.mirror is not None:
            yield from warnings.list_size_warnings(self._follower.mirror, self._jute_maxbuffer)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; see :mod:`confplane.telemetry`."""
        return of_cluster(self.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield from self.transactions.metrics()
        yield from self._markers.metrics()
        yield from metrics.session_metrics(self._session_manager)
        yield from self._session_manager.clock.metrics()
        yield from metrics.mirror_metrics(self._follower)
        yield Sample("leader", self.leadership.held)
        yield Sample("store_restored", self.restored)
        yield Sample("frozen", self._guard.freeze is not None)
        yield Sample("brokers_registered", self._guard.brokers > 0)
        yield Sample("notifications_limit", self._notifications_max)
        yield Sample("list_bytes_limit", self._jute_maxbuffer)
        yield Sample("notifications_purged", self._purger.purged)

    @override
    def freshness(self) -> tuple[int, int | None] | None:
        follower = self._follower
        return None if follower.mirror is None else (follower.revision, follower.stale_ms)

    @override
    def get(self, tree: Tree, entity_id: str) -> Node | None:
        return self._follower.loaded().trees[tree].nodes.get(entity_id)

    @override
    def with_keys(
        self, tree: Tree, facet: str, *, after: str | None = None, prefix: str = "", within: NameRanges | None = None
    ) -> Iterator[Node]:
        return self._follower.loaded().trees[tree].with_keys(facet, after=after, prefix=prefix, within=within)

    @override
    async def moment(
        self,
        tree: Tree,
        facet: str,
        *,
        prefix: str = "",
        client_id: tuple[str | None] | None = None,
        within: NameRanges | None = None,
    ) -> list[Node]:
        copy = self._follower.loaded().trees[tree]
        return await copy.moment(facet, prefix=prefix, client_id=client_id, within=within)

    @override
    def place(self) -> Place:
        return self._layout.place

    def kafka_release(self) -> str:
        """Return the release of an observed cluster, or the last release that runs on ZooKeeper."""
        return ON_ZOOKEEPER if self._guard.target is None else self._observation.release

    @override
    def catalog(self, release: str | None = None) -> Catalog:
        return self._catalogs.of(release or self.kafka_release())

    @override
    def keeps_eligible_replicas(self) -> bool:
        return self._guard.target is not None and self._observation.eligible_replicas

    @override
    def topic_exists(self, name: str) -> bool | None:
        self._follower.loaded()
        names = self._follower.metadata.names
        return None if names is None else name in names

    @override
    def with_client_id(
        self, tree: Tree, client_id: str | None, *, after: str | None = None, within: NameRanges | None = None
    ) -> Iterator[Node]:
        return self._follower.loaded().trees[tree].with_client_id(client_id, after=after, within=within)

    # -- ZooKeeper itself

    @override
    async def catch_up(self, deadline: float) -> int:
        revision = await self._follower.catch_up(deadline)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._layout.wait_idle()
        except TimeoutError:
            raise unavailable(f"Cluster {self.name}: ZooKeeper did not answer in time") from None
        return revision

    @override
    async def wait_for(self, revision: int, deadline: float) -> None:
        await self._follower.wait_for(revision, deadline)

    @override
    def writer(self) -> str:
        return self._session_manager.current.writer

    @override
    async def read(self, tree: Tree, entity: Entity, deadline: float) -> Node | None:
        [node] = await self.read_many(tree, [entity], deadline)
        if isinstance(node, UnavailableError):
            raise node
        return node

    @override
    async def read_many(
        self, tree: Tree, entities: Sequence[Entity], deadline: float
    ) -> list[Node | UnavailableError | None]:
        session, place = self._session_manager.current, self.place()
        # An entity that is no longer in this tree is in the other one, and must be in the mirror first.
        trees = (place.tree, tree) if place.source is not None and tree is place.source else (tree,)
        places = {znodes.path_of(each, entity): (each, entity) for entity in entities for each in trees}
        found: dict[str, Any] = {}

        def taken(paths: Sequence[str], values: Sequence[Any]) -> None:
            for path, value in zip(paths, values, strict=True):
                each, entity = places[path]
                if value is not FORBIDDEN:
                    self._follower.apply_read(session, each, entity.path, value)
                if each is tree:
                    found[entity.id] = value

        # A read is served by one server, which may lag, but within one session it never precedes that session's writes.
        touched = session.touch()
        reads = ReadWindow(session)
        reads.data(taken, self._size).request(places)
        reads.start()
        await self._answer(touched, deadline, session)
        await self._answer(reads.done(), deadline, None)
        return [self._node(entity, found[entity.id]) for entity in entities]

    def _node(self, entity: Entity, value: Any) -> Node | UnavailableError | None:
        if value is FORBIDDEN:
            return unavailable(f"Cluster {self.name}: ZooKeeper answered {NoAuthError.__name__}")
        return None if value is None else znodes.node_of(entity.id, *value)

    @override
    async def read_raw(self, path: str, deadline: float) -> bytes | None:
        found = await self._read(self._session_manager.current, path, deadline)
        return None if found is None else found[0] or b""

    @override
    async def replication_factor(self, topic: str, deadline: float) -> int | None:
        if self._guard.target is not None:
            return None
        try:
            found = await self._answer(self._session_manager.current.get(znodes.topic_path(topic)), deadline, None)
        except NoNodeError:
            return None
        return metadata.replication_factor(found[0])

    async def reassigned_topics(self, topics: Collection[str], deadline: float) -> frozenset[str] | None:
        """Return the topics with a reassignment in progress: those among the given ones, and all that are requested.

        Returns None if ZooKeeper's ACLs do not permit this.

        Raises:
            UnavailableError: ZooKeeper did not answer in time.
        """
        by_path = {znodes.topic_path(topic): topic for topic in topics}
        found, forbidden = set[str](), list[str]()

        def take(paths: Sequence[str], values: Sequence[Any]) -> None:
            for path, value in zip(paths, values, strict=True):
                if value is FORBIDDEN:
                    forbidden.append(path)
                elif value is not None and path == znodes.REASSIGNED:
                    found.update(metadata.requested_reassignments(value[0]))
                elif value is not None and metadata.is_reassigned(value[0]):
                    found.add(by_path[path])

        reads = ReadWindow(self._session_manager.current)
        reads.data(take, SizeEstimate()).request([znodes.REASSIGNED, *by_path])
        reads.start()
        await self._answer(reads.done(), deadline, None)
        return None if forbidden else frozenset(found)

    async def _read(self, session: Session, path: str, deadline: float) -> tuple[bytes | None, Any] | None:
        """Read a node's data and Stat after all writes before the call. Returns None if the node is absent."""
        return (await self._read_some(session, [path], deadline))[0]

    async def _read_some(
        self, session: Session, paths: Sequence[str], deadline: float
    ) -> list[tuple[bytes | None, Any] | None]:
        """Read nodes as :meth:`_read` does, after one write to the writer node."""
        touched, replies = session.touch(), [session.get(path) for path in paths]
        await self._answer(touched, deadline, session)
        found: list[tuple[bytes | None, Any] | None] = []
        for reply in replies:
            try:
                found.append(await self._answer(reply, deadline, None))
            except NoNodeError:
                found.append(None)
        return found

    @override
    async def confirm(
        self,
        writer: str,
        expectations: Sequence[tuple[Tree, Entity, int | None]],
        deadline: float,
        *,
        layout: LayoutCheck | None = None,
    ) -> int | None:
        """Prove that nodes are still at the versions read, or still absent.

        The versions hold at the revision itself. An absence was observed right after it.
        """
        await self._gate.enter(deadline)
        await self._admission.check_topics((entity for _, entity, _ in expectations), deadline)
        session = self._session_manager.current
        if session.writer != writer:
            raise unavailable(f"Cluster {self.name}: the ZooKeeper session was replaced")
        operations: list[tuple[Any, ...]] = [("set", znodes.writer_path(writer), b"", -1)]
        operations += [
            ("check", znodes.path_of(tree, entity), version)
            for tree, entity, version in expectations
            if version is not None
        ]
        if layout is not None:
            operations.append(("check", znodes.LAYOUT, layout.version))
        reply = session.multi(operations)
        absences = [
            session.exists(znodes.path_of(tree, entity)) for tree, entity, version in expectations if version is None
        ]
        results = await self._answer(reply, deadline, session)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                if index == 0:
                    self._session_manager.replace(session)
                elif isinstance(result, (BadVersionError, NoNodeError)):
                    if layout is not None:
                        await best_effort(self._guard.refresh(), deadline)
                    return None
                raise unavailable(f"Cluster {self.name}: ZooKeeper refused with {type(result).__name__}")
        for absence in absences:
            if await self._answer(absence, deadline, None) is not None:
                return None
        return int(results[0].mzxid)

    @override
    async def check_admission(
        self, writes: Sequence[Write], deadline: float, *, guarded: Guarded = Guarded.CALLER, changes: int = 1
    ) -> float:
        if not _starts_incarnation(writes):
            await self._gate.enter(deadline)
        return await self._admission.check(writes, deadline, guarded=guarded, changes=changes)

    @override
    async def commit(self, transaction: Transaction, deadline: float) -> CommitResult:
        session = self._session_manager.current
        if transaction.writer != session.writer:
            return SessionEnded(_REPLACED)
        missing, topics = await self._admission.prerequisites(session, transaction, deadline)
        writes = transactions.writes_of(transaction)
        if not _starts_incarnation(writes):
            # The connection may be another one than at the admission.
            self._gate.verify()
        guard = self._guard.checks(transaction.guarded, writes)
        made = transactions.operations_of(transaction, guard=guard, missing=missing, topics=topics)
        transactions.check_packet(made.operations, self._limits)
        result = await self._run(session, made, deadline)
        if isinstance(result, Committed) and any(isinstance(write, StateWrite) for write in writes):
            # Read at once, so that this process shows the new state. Other processes learn of it from their watches or
            # from a failed check.
            await best_effort(self._guard.refresh(), deadline)
        return result

    @override
    async def read_state(self, kind: type[S], deadline: float) -> StoredState[S]:
        [found] = await self._owned([_PATHS[kind]], deadline)
        return _stored(kind, *found)

    @override
    def target(self) -> Target | None:
        return self._guard.target

    @override
    async def read_target_and_freeze(self, deadline: float) -> tuple[StoredState[Target], StoredState[Freeze]]:
        target, freeze = await self._owned([znodes.TARGET, znodes.FREEZE], deadline)
        return _stored(Target, *target), _stored(Freeze, *freeze)

    @override
    async def claim_states(self, deadline: float) -> bool:
        stored = await self.read_state(Target, deadline)
        if stored.value is None or stored.value.states_by_key:
            return stored.value is not None
        if not all(each.endswith(znodes.KEYED) for each in await self._markers.writers(deadline)):
            return False
        data = znodes.encode_target(replace(stored.value, states_by_key=True))
        operations = [("set", znodes.TARGET, data, stored.version)]
        [result] = await self._answer(self._session_manager.current.multi(operations), deadline, None)
        if isinstance(result, Exception):
            raise unavailable(f"Cluster {self.name}: the target was changed at the same time: {type(result).__name__}")
        await best_effort(self._guard.refresh(), deadline)
        return True

    @override
    def observation(self) -> bytes | None:
        return self._observation.report

    @override
    async def publish_observation(self, report: bytes, deadline: float) -> None:
        await self._publish(znodes.OBSERVATION, report, deadline)

    @override
    def applied_revision(self) -> int | None:
        target, applied = self._guard.target, self._applied.revision
        if target is None or not target.applies or applied is None:
            return None
        return max(applied, self._follower.revision) if self.journal.latest <= applied else applied

    @override
    def on_applied(self, call: Callable[[], None]) -> None:
        self._applied.callbacks.append(call)

    @override
    async def publish_applied(self, revision: int, deadline: float) -> None:
        await self._publish(znodes.APPLIED, b"%d" % revision, deadline)

    async def _publish(self, path: str, data: bytes, deadline: float) -> None:
        [result] = await self._answer(self._session_manager.current.multi([("set", path, data, -1)]), deadline, None)
        if isinstance(result, Exception):
            raise unavailable(f"Cluster {self.name}: ZooKeeper refused {path} with {type(result).__name__}")

    async def _owned(self, paths: Sequence[str], deadline: float) -> list[tuple[bytes | None, Any]]:
        """Read nodes of this service, after one write. Every session recreates these nodes if they are absent."""
        session = self._session_manager.current
        found = []
        for path, each in zip(paths, await self._read_some(session, paths, deadline), strict=True):
            if each is None:
                await best_effort(session.ensure_roots(), deadline)
                raise unavailable(f"Cluster {self.name}: the znode {path} was deleted, and is made again")
            found.append(each)
        return found

    def seemingly_empty(self) -> list[tuple[Tree, str]]:
        """Return the entities that are empty according to the mirror; see :mod:`confplane.services.upkeep.compact`."""
        return compaction.seemingly_empty(self._follower.loaded())

    @override
    def entities_with_pending_keys(self) -> list[str]:
        nodes = self._follower.loaded().trees[Tree.CONFIG].nodes
        return [entity_id for entity_id, node in nodes.items() if read_metadata(node.extra).pending_keys]

    async def emptiness(self, tree: Tree, entity_id: str, age_s: float, deadline: float) -> tuple[Removal, ...] | None:
        """Check that an entity is empty in ZooKeeper; see :mod:`confplane.services.upkeep.compact`."""
        session = self._session_manager.current
        async with zookeeper_calls(self.name, deadline):
            return await compaction.find_removals(session, tree, Entity.from_id(entity_id), age_s)

    async def _run(self, session: Session, made: transactions.Operations, deadline: float) -> CommitResult:
        """Submit a transaction and wait for its result."""
        if time.monotonic() >= deadline:
            raise unavailable(f"Cluster {self.name}: the deadline passed before anything was submitted")
        reply = session.multi(made.operations)
        follower = self._follower
        follower.in_flight += 1
        result: transactions.TransactionResult | None = None

        def delivered(results: Any, error: Exception | None) -> None:
            # The wait is here and not below, so that the commit keeps its position among all replies and is applied
            # even if the caller is cancelled.
            nonlocal result
            follower.in_flight -= 1
            if error is None:
                result = transactions.classify_reply(made, results)
                if isinstance(result, transactions.TransactionApplied):
                    self._session_manager.clock.record(result.result.time_ms)
                    follower.apply_commit(session, result.result.revision, result.sequences, result.entities)
                    if follower.notifications > self._purger.early and not self._guard.brokers:
                        self._purger.wake.set()

        reply.then(delivered)
        began = time.monotonic()
        try:
            async with asyncio.timeout(deadline - began):
                await reply
        except (TimeoutError, ZookeeperError):
            self.transactions.record(None, time.monotonic() - began)
            return TransactionUnknown()
        self.transactions.record(result, time.monotonic() - began)
        return await self._result(session, result, deadline)

    async def _result(
        self, session: Session, result: transactions.TransactionResult | None, deadline: float
    ) -> CommitResult:
        if isinstance(result, transactions.TransactionApplied):
            return result.result
        if isinstance(result, SessionEnded):
            if result.reason == transactions.WRITER_GONE:
                self._session_manager.replace(session)
            return result
        if isinstance(result, transactions.GuardConflict):
            await best_effort(self._guard.refresh(), deadline)
            return Conflict()
        if isinstance(result, transactions.RootsMissing):
            await best_effort(session.ensure_roots(), deadline)
            return Conflict()
        if isinstance(result, transactions.TransactionRefused):
            if result.change_id is not None:
                return Conflict(result.change_id)  # sent alone, it gets the reason
            raise unavailable(f"Cluster {self.name}: ZooKeeper refused the transaction: {result.reason}")
        return result or TransactionUnknown()

    async def _answer(self, reply: Any, deadline: float, touched: Session | None) -> Any:
        """Wait for the reply to a call that makes no important change.

        Args:
            reply: The reply.
            deadline: The deadline, on the clock of ``time.monotonic()``.
            touched: The session, when the call writes to its writer node.

        Raises:
            UnavailableError: No reply came; nothing was applied.
            NoNodeError: The node is absent.
        """
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await reply
        except TimeoutError:
            raise unavailable(f"Cluster {self.name}: ZooKeeper did not answer in time") from None
        except NoNodeError:
            if touched is None:
                raise
            self._session_manager.replace(touched)
            raise unavailable(f"Cluster {self.name}: the ZooKeeper session ended") from None
        except ZookeeperError as error:
            raise unavailable(f"Cluster {self.name}: ZooKeeper answered {type(error).__name__}") from None

    @override
    def new_change_id(self) -> UUID:
        return self._session_manager.clock.new_id()

    # -- the incarnation

    @property
    @override
    def incarnation(self) -> int:
        return self._gate.number

    @property
    @override
    def restored(self) -> bool:
        return self._gate.rejected is not None

    @property
    def rejected(self) -> str | None:
        """The reason why the store is taken for a restored one; None otherwise."""
        return self._gate.rejected

    @property
    @override
    def accepted(self) -> bool:
        return self._gate.open

    def check_connections(self, check: Callable[[float], Awaitable[None]]) -> None:
        """Refuse writes on each connection until it was accepted."""
        self._gate.check_connections(check)

    @property
    def checked(self) -> bool:
        """True if the current connection was accepted or rejected."""
        return self._gate.checked

    async def read_position(self, deadline: float) -> StorePosition:
        """Read the position of the store."""
        session, connection = self._session_manager.current, self._gate.connection
        touched, node, commits = session.touch(), session.get(znodes.INCARNATION), session.exists(znodes.COMMITS)
        stat = await self._answer(touched, deadline, session)
        incarnation, version = None, None
        try:
            found = _stored(Incarnation, *await self._answer(node, deadline, None))
            incarnation, version = found.value, found.version
        except NoNodeError:
            pass
        parent = await self._answer(commits, deadline, None)
        if parent is None:
            await best_effort(session.ensure_roots(), deadline)
            raise unavailable(f"Cluster {self.name}: the znode {znodes.COMMITS} was deleted, and is made again")
        return StorePosition(incarnation, version, parent.cversion, parent.pzxid, stat.mzxid, stat.mtime, connection)

    def accept(self, connection: int, number: int) -> None:
        """Let writes through."""
        self._gate.accept(connection, number)

    def reject(self, connection: int, reason: str) -> None:
        """Refuse writes and leadership."""
        if not self.restored:
            self._follower.reload()
        self._gate.reject(connection, reason)

    def begin_incarnation(self, number: int) -> None:
        """Give outcomes written from now on another incarnation."""
        self._gate.number = number

    async def write_incarnation(self, incarnation: Incarnation | None, version: int | None, deadline: float) -> None:
        """Write the node of the incarnation, unless it has changed."""
        data = znodes.encode_state(incarnation)
        operation = (
            ("create", znodes.INCARNATION, data) if version is None else ("set", znodes.INCARNATION, data, version)
        )
        [result] = await self._answer(self._session_manager.current.multi([operation]), deadline, None)
        if isinstance(result, Exception) and not isinstance(result, (BadVersionError, NodeExistsError, NoNodeError)):
            raise unavailable(f"Cluster {self.name}: ZooKeeper refused with {type(result).__name__}")


def _starts_incarnation(writes: Sequence[Write]) -> bool:
    return any(isinstance(write, StateWrite) and isinstance(write.value, Incarnation) for write in writes)


def _stored(kind: type[S], data: bytes | None, stat: Any) -> StoredState[S]:
    path, decode = _PATHS[kind], _DECODERS[kind]
    try:
        return StoredState(stat.version, decode(data, stat.mtime), stat.czxid)
    except ValueError as error:
        raise CorruptZnodeError(path, f"can't be read: {error}") from None
