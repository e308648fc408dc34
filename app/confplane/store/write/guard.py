"""The permission to write to a cluster: of the connection, by a gate, of the cluster, by the guard, and of the writes.

A connection may lead to a ZooKeeper that was restored, even within a session: after an election the restored servers
have a higher zxid than this client has seen, and a copy of their files has its session. So the gate is closed until the
connection was checked (services/upkeep/incarnation.py).

The guard is the permission to write this cluster's configs through ZooKeeper, and its checks in the transaction.
Brokers refuse config writes unless ``/controller`` exists and is not that of a KRaft controller, and check that node's
version in their transaction. A KRaft takeover deletes and creates the node, which leaves its version at 0, so
``/controller_epoch`` is checked as well. A store that no broker uses has neither node and needs no guard.

The guard also covers the freeze. Each transaction checks the freeze node at the version that was read as "not frozen":
nothing commits after a freeze, even in a process that has not read it yet.
Each transaction also checks the node ``/confplane/target``. While the configs follow a Kafka cluster without ZooKeeper,
clients can't write that cluster's quotas and configs. Client configs of KIP-649, which no broker has, can be written.

The admission of writes checks before their intent what the transaction checks as well, and what it can't: its size, and
the notifications and names that brokers have to read. It also finds the parents and topics that a transaction needs.

The state is kept by watches and read again after every reconnect and every conflict.

Source: KIP-866; KafkaZkClient.registerKRaftControllerAsZkController and setOrCreateEntityConfigs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError, ZookeeperError

from confplane.domain.errors import (
    CorruptZnodeError,
    FrozenError,
    ListFullError,
    ObservedError,
    RestoredStoreError,
    StaleControllerError,
    ThrottledError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.domain.facets import Tree
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.ports.trail import FIRST_INCARNATION
from confplane.services.ports.transactions import EntityWrite, Guarded
from confplane.store import warnings, znodes
from confplane.store.mirror import metadata
from confplane.store.session.session import unavailable
from confplane.store.session.session_manager import best_effort, zookeeper_calls
from confplane.store.write import transactions
from confplane.store.write.layout import LayoutNode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.ports.cluster_states import Freeze, Target
    from confplane.services.ports.transactions import Transaction, Write
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session import Session, Watcher
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.layout import MirrorPosition

logger = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 1.0


class Guard:
    """The known state of a cluster's controller, its brokers, its freeze, its layout and its target.

    Args:
        name: The cluster.
        chosen: The layout in the settings, or None.
        mirror: The mirror, which must not be ahead of the layout.
    """

    def __init__(self, name: str, chosen: Tree | None, mirror: MirrorPosition) -> None:
        self._name = name
        self.layout = LayoutNode(name, chosen, mirror, on_missing=self._refresh_soon)
        self._session: Session | None = None
        self._watcher: Watcher | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self.observed_checks: tuple[tuple[str, str, int], ...] = ()
        self.target_check: tuple[str, str, int] = ("check", znodes.TARGET, -1)
        self.freeze: Freeze | None = None
        self.target: Target | None = None
        self.target_defect: str | None = None
        self._refusal: str | None = "its state is not known yet"
        self.brokers = 0
        self.earlier = 0
        """The number of processes of an earlier release whose end this process waits for before it leads."""
        self.known = False
        """False until the first read on the current session, and again after a failed read."""

    def checks(self, guarded: Guarded, writes: Iterable[Write]) -> tuple[tuple[str, str, int], ...]:
        """Return the ``check`` operations of a transaction.

        Raises:
            FrozenError: A person froze the cluster.
            StaleControllerError: Brokers would refuse this write as well.
            ObservedError: Callers write no quotas and configs of this cluster; or nothing is observed now.
            CorruptZnodeError: The target can't be read.
            UnavailableError: The state is not known yet.
        """
        if guarded is Guarded.NONE:
            return ()
        if not self.known:
            raise UnavailableError(
                f"Cluster {self._name}: the controller is not known yet", outcome=WriteOutcome.NOT_APPLIED
            )
        if self.target_defect is not None:
            raise CorruptZnodeError(
                znodes.TARGET, f"can't be read: {self.target_defect}", outcome=WriteOutcome.NOT_APPLIED
            )
        if guarded is Guarded.OBSERVED:
            if self.target is None or self.target.paused:
                raise ObservedError(
                    f"Cluster {self._name}: nothing follows a target now", outcome=WriteOutcome.NOT_APPLIED
                )
            return (self.target_check,)
        if self.freeze is not None:
            raise FrozenError(
                f"Cluster {self._name} is frozen {self.freeze}. Reads continue; `confplane thaw --cluster {self._name}"
                " --reason TEXT` lets writes go on",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        if self._refusal is not None:
            raise StaleControllerError(f"Cluster {self._name}: {self._refusal}", outcome=WriteOutcome.NOT_APPLIED)
        if self.target is not None:
            self._check_target(self.target, writes)
        return (*self.observed_checks, self.target_check)

    def _check_target(self, target: Target, writes: Iterable[Write]) -> None:
        """Refuse clients' writes of configs that are only written externally.

        Raises:
            ObservedError: One of the writes is such.
        """
        for write in writes:
            if not isinstance(write, EntityWrite) or write.tree is not Tree.CONFIG:
                continue
            entity_type = kraft_type_of(write.entity)
            if not target.applies_to(entity_type):
                what = str(entity_type) if target.applies else "quotas and configs"
                raise ObservedError(
                    f"Cluster {self._name} is observed: its {what} are followed from the Kafka cluster"
                    f" {target.cluster_id}, and this service does not write them. Alter them with Kafka's own tools;"
                    " client configs can be written here as usual",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            # A write that was drafted before the cluster had a target names no altered keys: it would never be applied.
            if not write.applied:
                raise ObservedError(
                    f"Cluster {self._name}: the write was decided before its configs were those of the Kafka cluster"
                    f" {target.cluster_id}; send it again",
                    outcome=WriteOutcome.NOT_APPLIED,
                )

    def begin(self, session: Session) -> None:
        """Set the watches on a session, new or reconnected."""
        if session is not self._session:
            self._session = session
            self._watcher = session.watcher(self._refresh_soon)
            if self._task is not None:
                # A call of the old session that was queued as the session ended may never be answered.
                self._task.cancel()
                self._task = None
        self.known = False
        self.layout.begin(session)
        self._refresh_soon()

    def down(self) -> None:
        """Forget the state, which may change unseen."""
        self.known = False

    async def refresh(self) -> None:
        """Read the state again, and wait for the read."""
        self._refresh_soon()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _refresh_soon(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._refresh(), name=f"zookeeper-guard-{self._name}")

    async def _refresh(self) -> None:
        while self._again:
            self._again = False
            session = self._session
            try:
                if session is not None and session.connected:
                    await self._read(session)
            except ZookeeperError as error:
                # The watches may not have been set; without them the next change would be missed.
                logger.warning("Cluster %s: could not read the controller: %r", self._name, error)
                self.known = False
                await asyncio.sleep(_RETRY_SECONDS)
                self._again = session is not None and session.connected
            except UnavailableError:
                self.known = False

    async def _read(self, session: Session) -> None:
        watch = self._watcher
        # An absent node can be watched by exists only. A change between two of these calls fires the watch.
        epoch = session.exists(znodes.CONTROLLER_EPOCH, watch)
        watched = session.exists(znodes.CONTROLLER, watch)
        controller = session.get(znodes.CONTROLLER)
        frozen = session.get(znodes.FREEZE, watch)
        layout = self.layout.read(session)
        target = session.get(znodes.TARGET, watch)
        brokers_exist = session.exists(znodes.BROKER_IDS, watch)
        broker_ids = session.children(znodes.BROKER_IDS, watch)
        await watched
        await brokers_exist
        epoch_stat = await epoch
        try:
            data, stat = await controller
        except NoNodeError:
            data, stat = None, None
        try:
            brokers = len((await broker_ids)[0])
        except NoNodeError:
            brokers = 0
        try:
            await layout
            freeze_data, freeze_stat = await frozen
            target_data, target_stat = await target
        except NoNodeError:
            # Somebody deleted the node. A transaction needs an existing node for its check.
            await session.ensure_roots()
            self._again = True
            return
        if session is not self._session:
            return
        self.freeze = znodes.decode_freeze(freeze_data, freeze_stat.mtime)
        self.brokers = brokers
        self._update_target(target_data, target_stat)
        self._refusal = None
        self.observed_checks = (("check", znodes.FREEZE, freeze_stat.version),)
        if stat is None:
            if brokers:
                self._refusal = "brokers are registered, but there is no controller"
        elif znodes.kraft_controller(data):
            self._refusal = "a KRaft controller owns the metadata; config writes through ZooKeeper are over"
        else:
            self.observed_checks += (("check", znodes.CONTROLLER, stat.version),)
            if epoch_stat is not None:
                self.observed_checks += (("check", znodes.CONTROLLER_EPOCH, epoch_stat.version),)
        self.known = True

    def _update_target(self, data: bytes | None, stat: Any) -> None:
        self.target_check = ("check", znodes.TARGET, stat.version)
        try:
            self.target, self.target_defect = znodes.decode_target(data), None
        except ValueError as error:
            self.target_defect = str(error)

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        if self.target_defect is not None:
            unread = f"The znode {znodes.TARGET} can't be read, so no config can be written"
            yield OperatorWarning(unread, f"{unread}: {self.target_defect}")
        if self.earlier:
            waits = "Processes of an earlier release are running: this release applies changes once they have stopped"
            yield OperatorWarning(waits, f"{waits} ({self.earlier} registered)")


class IncarnationGate:
    """The gate that writes to one cluster pass. It is open if nothing checks connections.

    Attributes:
        number: The incarnation of the store.
        connection: The number of the current connection.
        rejected: The reason why the store is taken for a restored one; None if it is not.
    """

    def __init__(self, name: str) -> None:
        self.number = FIRST_INCARNATION
        self.connection = 0
        self.rejected: str | None = None
        self._name = name
        self._checked = 0
        self._check: Callable[[float], Awaitable[None]] | None = None

    def check_connections(self, check: Callable[[float], Awaitable[None]]) -> None:
        """Close the gate on each connection until it was checked; call a function when a write waits for that."""
        self._check = check

    def next_connection(self) -> None:
        """Close the gate: the connection was lost, or there is another one."""
        self.connection += 1

    @property
    def checked(self) -> bool:
        """True if the current connection was checked."""
        return self._check is None or self._checked == self.connection

    @property
    def open(self) -> bool:
        """True if writes may pass."""
        return self.checked and self.rejected is None

    async def enter(self, deadline: float) -> None:
        """Wait for the check of the current connection, and pass.

        Raises:
            RestoredStoreError: The store was restored.
            UnavailableError: A store did not answer by the deadline; nothing was changed.
        """
        if self._check is not None and not self.checked:
            await self._check(deadline)
        self.verify()

    def verify(self) -> None:
        """Pass.

        Raises:
            RestoredStoreError: The store was restored.
            UnavailableError: The connection was not checked yet; nothing was changed.
        """
        if self.rejected is not None:
            text = warnings.restored_text(self._name, self.rejected)
            raise RestoredStoreError(text, outcome=WriteOutcome.NOT_APPLIED)
        if not self.checked:
            raise unavailable(f"Cluster {self._name}: the connection to ZooKeeper is new and not checked yet")

    def accept(self, connection: int, number: int) -> None:
        """Open the gate, if the connection is still the current one."""
        if connection == self.connection:
            self.number, self._checked, self.rejected = number, connection, None

    def reject(self, connection: int, reason: str) -> None:
        """Keep the gate closed, if the connection is still the current one."""
        if connection == self.connection:
            self._checked, self.rejected = connection, reason

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        if self.rejected is not None:
            yield OperatorWarning(warnings.restored_text(self._name, self.rejected))


class Admission:
    """Admits the writes of one cluster.

    Args:
        name: The cluster's name.
        limits: Sizes of requests.
        notifications_max: Most notifications while brokers are registered.
        jute_maxbuffer: Bytes that a list of names stays below while brokers are registered.
        session_manager: The session manager.
        guard: The known state of the controller and the freeze.
        follower: The mirror.
        purge_s: Seconds between two purges of notifications.
    """

    def __init__(
        self,
        name: str,
        limits: transactions.PacketLimits,
        notifications_max: int,
        jute_maxbuffer: int,
        *,
        session_manager: SessionManager,
        guard: Guard,
        follower: MirrorFollower,
        purge_s: float,
    ) -> None:
        self._name = name
        self._limits = limits
        self._notifications_max = notifications_max
        self._jute_maxbuffer = jute_maxbuffer
        self._session_manager = session_manager
        self._guard = guard
        self._follower = follower
        self._purge_s = purge_s

    async def check(self, writes: Sequence[Write], deadline: float, *, guarded: Guarded, changes: int) -> float:
        """Refuse writes that may not be tried now; see ``ClusterStore.check_admission``."""
        size = transactions.check_size(writes, self._limits, changes)
        try:
            self._guard.checks(guarded, writes)
        except (FrozenError, StaleControllerError, ObservedError, CorruptZnodeError):
            # A refusal is never decided on an earlier read: the controller may have returned this moment.
            await best_effort(self._guard.refresh(), deadline)
            self._guard.checks(guarded, writes)
        self._check_notifications(transactions.notifications_of(writes))
        await self._check_lists([write for write in writes if isinstance(write, EntityWrite)], deadline)
        if guarded is not Guarded.OBSERVED:
            await self.check_topics(transactions.entities_of(writes), deadline)
        return size / self._limits.shared_packet

    def _check_notifications(self, more: int) -> None:
        """Check that the brokers may be sent more notifications.

        Raises:
            ThrottledError: Too many notifications wait for the brokers.
        """
        if more and self._guard.brokers:
            after = self._follower.notifications + more
            if after > self._notifications_max:
                raise ThrottledError(
                    f"Cluster {self._name}: {self._follower.notifications} config changes of the last 15 minutes wait"
                    f" for the brokers; at most {self._notifications_max} may",
                    outcome=WriteOutcome.NOT_APPLIED,
                    retry_after_s=int(self._purge_s),
                )

    async def _check_lists(self, writes: Sequence[EntityWrite], deadline: float) -> None:
        """Check that the brokers could still list the entities after the creation of these.

        Raises:
            ListFullError: They could not. Existing entities may be altered and removed all the same.
        """
        new = [(write.tree, write.entity.id) for write in writes if write.expected is None]
        if new and self._guard.brokers and self._longer_list(new) is not None:
            # Other clients may have made room, or created this entity.
            await best_effort(self._follower.catch_up(deadline), deadline)
            if (found := self._longer_list(new)) is not None:
                text = warnings.full_list_text(self._name, *found, limit=self._jute_maxbuffer)
                raise ListFullError(text, outcome=WriteOutcome.NOT_APPLIED)

    def _longer_list(self, new: Sequence[tuple[Tree, str]]) -> tuple[str, int] | None:
        mirror = self._follower.mirror
        return None if mirror is None else mirror.longer_list(new, self._jute_maxbuffer)

    async def check_topics(self, entities: Iterable[Entity], deadline: float) -> None:
        """Check in ZooKeeper that the topics among some entities exist; those of a cluster with a target are its own.

        Raises:
            UnknownTopicError: The cluster lacks one of them.
            UnavailableError: ZooKeeper did not answer by the deadline.
        """
        topics = transactions.topics_of(entities)
        if not topics or self._guard.target is not None:
            return
        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            try:
                unknown = await metadata.unknown_topics(session, topics)
            except NoNodeError:
                self._session_manager.replace(session)
                raise unavailable(f"Cluster {self._name}: the ZooKeeper session ended") from None
        if unknown:
            raise UnknownTopicError(
                f"The metadata of cluster {self._name} ({znodes.BROKER_TOPICS}) have no topic"
                f" {warnings.abbreviate(unknown)}. Create the topic first, with Kafka's own tools",
                topics=frozenset(unknown),
                outcome=WriteOutcome.NOT_APPLIED,
            )

    async def prerequisites(
        self, session: Session, transaction: Transaction, deadline: float
    ) -> tuple[frozenset[str], list[str]]:
        """Return the parents that have to be created, and the topics that the cluster's metadata must have.

        Raises:
            UnavailableError: ZooKeeper did not answer by the deadline.
        """
        parents: dict[str, None] = {}
        for change, writes in zip(transaction.changes, transaction.writes, strict=True):
            for write in writes:
                if not isinstance(write, EntityWrite) or write.expected is not None:
                    continue
                if transaction.again or change.attempt > 1 or not self._parents_known(write):
                    parents.update(dict.fromkeys(znodes.parents_of(write.tree, write.entity)))
        # The topics of a cluster with a target are its own: metadata left in ZooKeeper are those of an earlier time.
        own = transaction.guarded is Guarded.OBSERVED or self._guard.target is not None
        topics = [] if own else transactions.topics_of(transactions.entities_of(transactions.writes_of(transaction)))
        if not parents and not topics:
            return frozenset(), []
        replies = [session.exists(path) for path in parents]
        root = session.exists(znodes.BROKER_TOPICS) if topics else None
        async with zookeeper_calls(self._name, deadline):
            missing = [path for path, reply in zip(parents, replies, strict=True) if await reply is None]
            if root is None or await root is None:
                topics = []
        return frozenset(missing), topics

    def _parents_known(self, write: EntityWrite) -> bool:
        """Return True where the mirror shows that all parents of a node exist. A second attempt does not trust it."""
        if len(write.entity.components) == 1 and write.tree is Tree.CONFIG:
            return True
        mirror = self._follower.mirror
        if mirror is None or write.tree not in mirror.trees:
            return False
        # Siblings have the same parents.
        head, comma, _ = write.entity.id.partition(",")
        return mirror.trees[write.tree].any_below(head + comma if comma else f"{write.entity.types[0].value}")
