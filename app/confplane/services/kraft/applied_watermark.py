"""The frontier of the application: the revision up to which no change of a caller waits, found and told by the leader.

Every change up to this revision is applied to the Kafka cluster, refused by it, left because nothing of it is to be
sent, or listed in the report as held: it waits alone, for a broker that is away for instance. All processes follow the
revision in the znode ``/confplane/applied``, with one watch each. The znode is written whenever changes have ended,
also where the revision stays: whoever waits for one of them looks then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from confplane.services.ports.store import ClusterStore


class AppliedWatermark:
    """The frontier of one cluster, in the leader's process.

    Args:
        store: The cluster's store.
    """

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.begin_term()

    def begin_term(self) -> None:
        """Begin anew: nothing is collected yet. The revision that an earlier leader told stays true."""
        self._collected: int | None = None
        self._first: dict[str, int] = {}
        """Entity id -> the first revision that may be one of a change that waits."""
        self._published: int | None = None
        self._completed = self._completed_published = 0
        """Changes that ended while later ones of their entities wait, and those of them that all processes know of."""

    def record_completed(self, entity_id: str, revision: int) -> None:
        """Take note that the changes of an entity up to a revision have ended, while a later one waits."""
        self._first[entity_id] = max(self._first.get(entity_id, 0), revision + 1)
        self._completed += 1

    def record_collected(self, found: Mapping[str, int | None], revision: int) -> None:
        """Take note of entities with changes that wait.

        Args:
            found: Entity id -> the first revision of its changes; None where it is not known, because the journal does
                not reach back.
            revision: The revision up to which all changes are known.
        """
        behind = self._known + 1
        for entity_id, first in found.items():
            self._first.setdefault(entity_id, behind if first is None else first)
        self._collected = revision

    @property
    def _known(self) -> int:
        """The revision up to which no change waits, by this leader and the one before; 0 before the first."""
        return self._published or self._store.applied_revision() or 0

    async def publish(self, waiting: Container[str], deadline: float) -> None:
        """Tell all processes, where changes have ended or the revision has risen.

        Args:
            waiting: Ids of the entities whose changes still wait.
            deadline: Until when.

        Raises:
            UnavailableError: ZooKeeper did not answer.
        """
        if self._collected is None:
            return
        first = {entity_id: revision for entity_id, revision in self._first.items() if entity_id in waiting}
        reached = max(self._known, min([self._collected, *(revision - 1 for revision in first.values())]))
        completed = self._completed
        if reached != self._published or completed != self._completed_published or len(first) < len(self._first):
            await self._store.publish_applied(reached, deadline)
            # Some may have ended meanwhile.
            self._first = {entity_id: revision for entity_id, revision in self._first.items() if entity_id in first}
            self._published, self._completed_published = reached, completed
