"""The checks before a transaction: the permission to try its writes now, and its parents and topics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kazoo.exceptions import NoNodeError, ZookeeperError

from confplane.domain.errors import (
    CorruptZnodeError,
    FrozenError,
    ListFullError,
    ObservedError,
    StaleControllerError,
    ThrottledError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.domain.facets import Tree
from confplane.domain.texts import clipped
from confplane.services.ports.transactions import EntityWrite, Guarded
from confplane.store import warnings, znodes
from confplane.store.mirror import metadata
from confplane.store.session.session import unavailable
from confplane.store.session.session_manager import zookeeper_calls
from confplane.store.write import transactions
from confplane.store.write.purge import PERIOD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.ports.transactions import Transaction, Write
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session import Session
    from confplane.store.session.session_manager import SessionManager
    from confplane.store.write.guard import Guard


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
    ) -> None:
        self._name = name
        self._limits = limits
        self._notifications_max = notifications_max
        self._jute_maxbuffer = jute_maxbuffer
        self._session_manager = session_manager
        self._guard = guard
        self._follower = follower

    async def check(self, writes: Sequence[Write], deadline: float, *, guarded: Guarded, changes: int) -> None:
        """Refuse writes that may not be tried now; see ``ClusterStore.check_admission``."""
        transactions.check_size(writes, self._limits, changes)
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
                    retry_after_s=int(PERIOD_SECONDS),
                )

    async def _check_lists(self, writes: Sequence[EntityWrite], deadline: float) -> None:
        """Check that the brokers could still list the entities after the creation of these.

        Raises:
            ListFullError: They could not. Existing entities may be altered and removed all the same.
        """
        if self._guard.brokers and any(write.expected is None for write in writes) and self._too_long(writes):
            # Other clients may have made room, or created this entity.
            await best_effort(self._follower.catch_up(deadline), deadline)
            if (found := self._too_long(writes)) is not None:
                path, size = found
                raise ListFullError(
                    f"Cluster {self._name}: with this the names below {clipped(path)} would take {size} bytes, and"
                    f" brokers list them in one answer of less than {self._jute_maxbuffer} (their jute.maxbuffer)."
                    f" Remove what is not needed (`confplane compact --cluster {self._name}` finds empty entities); or"
                    " raise jute.maxbuffer of all brokers and tools, and then the cluster's setting jute_maxbuffer",
                    outcome=WriteOutcome.NOT_APPLIED,
                )

    def _too_long(self, writes: Sequence[EntityWrite]) -> tuple[str, int] | None:
        """Return a parent whose list would become too long, and its size then, or None."""
        mirror = self._follower.mirror
        for tree, copy in {} if mirror is None else mirror.trees.items():
            new: dict[str, None] = {}
            for write in writes:
                if write.expected is None and write.tree is tree:
                    # A user is created with its first client.
                    user = write.entity.id.partition(",")[0]
                    new.update(dict.fromkeys(each for each in (user, write.entity.id) if each not in copy.nodes))
            for path, size in copy.list_sizes.with_more(new):
                if size >= self._jute_maxbuffer:
                    return f"{tree.value}/{path}", size
        return None

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


async def best_effort(work: Awaitable[object], deadline: float) -> None:
    """Await work that prepares the next attempt. A passed deadline and errors of ZooKeeper are ignored."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            await work
    except (TimeoutError, ZookeeperError, UnavailableError):
        return
