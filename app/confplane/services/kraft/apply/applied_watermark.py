"""The applied watermark: the revision up to which no client change is queued. The leader computes and publishes it.

Every change up to this revision is in one of these states:

- applied to the Kafka cluster, or refused by it;
- completed because it needs no delivery;
- held, and listed in the report: it is retried alone, for example because a broker is unavailable.

All processes follow the revision in the znode ``/confplane/applied``, with one watch each. The znode is written
whenever changes complete, even if the revision stays the same, because that wakes the waits for these changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from confplane.services.ports.store import ClusterStore


class AppliedWatermark:
    """The applied watermark of one cluster, in the leader's process."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.begin_term()

    def begin_term(self) -> None:
        """Start over with nothing collected. The revision that an earlier leader published stays valid."""
        self._collected: int | None = None
        self._first: dict[str, int] = {}
        """Entity id -> the first revision that may belong to a queued change."""
        self._published: int | None = None
        self._completed = self._completed_published = 0
        """Changes that completed while later ones of their entities are queued, and the published number of them."""

    def record_completed(self, entity_id: str, revision: int) -> None:
        """Record that the changes of an entity up to a revision are completed, while a later one is queued."""
        self._first[entity_id] = max(self._first.get(entity_id, 0), revision + 1)
        self._completed += 1

    def record_collected(self, found: Mapping[str, int | None], revision: int) -> None:
        """Record entities with queued changes.

        Args:
            found: Entity id -> the first revision of its changes; None if it is unknown, because the journal does not
                reach back.
            revision: The revision up to which all changes are known.
        """
        behind = self._known + 1
        for entity_id, first in found.items():
            self._first.setdefault(entity_id, behind if first is None else first)
        self._collected = revision

    @property
    def _known(self) -> int:
        """The watermark that this leader or the one before published; 0 before the first."""
        return self._published or self._store.applied_revision() or 0

    async def publish(self, waiting: Container[str], deadline: float) -> None:
        """Publish the watermark below the entities that wait, if changes completed or the revision rose."""
        if self._collected is None:
            return
        first = {entity_id: revision for entity_id, revision in self._first.items() if entity_id in waiting}
        reached = max(self._known, min([self._collected, *(revision - 1 for revision in first.values())]))
        completed = self._completed
        if reached != self._published or completed != self._completed_published or len(first) < len(self._first):
            await self._store.publish_applied(reached, deadline)
            # Some may have completed during the write.
            self._first = {entity_id: revision for entity_id, revision in self._first.items() if entity_id in first}
            self._published, self._completed_published = reached, completed
