"""The areas of an observed cluster: when each is looked at next, and the report on each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType
from confplane.services.kraft.poller import PIECE
from confplane.services.kraft.report import EntityTypeReport, ListedNames
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confplane.services.kraft.poller import PollResult

QUOTAS_S: Final = 2.0
TOPICS_S: Final = 2.0
"""Seconds between two looks at the same topic, where :data:`COST_FACTOR` asks for no more."""
TOPICS_WITH_LOG_S: Final = 60.0
"""The same while the log is followed."""
INTERVALS_S: Final = {KraftEntityType.BROKERS: 10.0, KraftEntityType.GROUPS: 30.0, KraftEntityType.CLIENT_METRICS: 30.0}
"""Seconds between two looks at an area."""
COST_FACTOR: Final = 50
"""The time between two looks at quotas, or at pieces of topics, is at least so many times that of one: 2 %."""
LOG_INTERVAL_FACTOR: Final = 10
"""Looks at all but topics are rarer by this factor while the log is followed."""
RETRY_S: Final = 0.2
"""Seconds before the next try of a look that did not count: the broker asked was behind."""


@dataclass(slots=True)
class TopicsRound:
    """A round over all topics, piece by piece."""

    names: list[str] = field(default_factory=list)
    named_at: int = -1
    """A metadata offset that the names are not behind."""
    at: int = 0
    began: float = 0.0
    first: PollResult | None = None
    """The first look of the round."""
    left: bool = False
    """Some look of the round left changes by others where they were."""
    entities: int = 0
    unmanaged: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    @property
    def piece(self) -> list[str]:
        """The names to look at next."""
        return self.names[self.at : self.at + PIECE]

    @property
    def elsewhere(self) -> set[str]:
        """The names in other pieces."""
        return {*self.names[: self.at], *self.names[self.at + PIECE :]}

    @property
    def ended(self) -> bool:
        """True once all names were looked at."""
        return self.at >= len(self.names)

    def add(self, result: PollResult, *, left: bool) -> None:
        """Take a look at the piece, and go to the next."""
        self.at += PIECE
        self.left = self.left or left
        self.first = self.first or replace(result, after=min(self.named_at, result.after))
        self.entities += result.entities
        self.unmanaged |= result.unmanaged
        self.hidden |= result.hidden


@dataclass(slots=True)
class EntityTypeState:
    """One area on the leader."""

    entity_type: KraftEntityType
    report: EntityTypeReport
    due: float = 0.0
    """The time of the next look, on the clock of ``time.monotonic()``."""
    since: int | None = None
    """A metadata offset at which the mirror was as the cluster in this area; None: unknown. A broker that was away may
    have changed its own configs before."""
    brokers: dict[str, int] = field(default_factory=dict)
    """Such an offset of each broker's own configs, by entity id, as far as this leader knows one."""
    digest: bytes = b""
    """The digest of the last look that counted; looks with the same one need no comparison."""
    touched: int = 0
    """The number of reasons to compare the next look, whatever its digest: callers' changes that were sent, for one."""
    compared: int = 0
    """The number of these before the last look that counted."""
    left: bool = False
    """The last look that showed other configs than the look before left changes by others where they were."""
    topics: TopicsRound = field(default_factory=TopicsRound)

    @property
    def permitted(self) -> bool:
        """True where the cluster shows the area."""
        return self.report.permission is not EntityTypePermission.NONE

    def permit(self, permission: EntityTypePermission, reason: str) -> None:
        """Take the permission for the area."""
        self.report = replace(self.report, permission=permission, reason=reason)

    @property
    def known_digest(self) -> bytes:
        """The digest of a look without a difference; empty where none is known."""
        return self.digest if self.compared == self.touched else b""

    def touch(self) -> None:
        """Have the next look compared whatever its digest, also where a look is under way."""
        self.touched += 1

    def restart(self) -> None:
        """Look at everything as soon as possible."""
        self.touch()
        self.due = 0.0
        self.topics = TopicsRound()

    def covered(self, result: PollResult | None, entity_ids: Iterable[str]) -> set[str]:
        """Return the entities that a look shows, or shows to have no configs, before it is counted.

        Args:
            looked: A look at the area, or at the present piece of the topics; None: there are no topics.
            entity_ids: Entities of any areas.
        """
        entities = [entity for each in entity_ids if kraft_type_of(entity := Entity.from_id(each)) is self.entity_type]
        if self.entity_type is KraftEntityType.TOPICS and entities:
            elsewhere = self.topics.elsewhere
            entities = [each for each in entities if each.get(EntityType.TOPIC) not in elsewhere]
        elif self.entity_type is KraftEntityType.BROKERS and result is not None:
            entities = [each for each in entities if each.components[0][1] is None or each.id in result.brokers]
        return {each.id for each in entities}

    def record_poll(
        self, result: PollResult, refused: dict[str, str], cost_s: float, *, with_log: bool, left: bool
    ) -> None:
        """Take a look that counts: the mirror is as it was seen, but for what was left.

        Args:
            looked: The look.
            refused: Entity id -> the reason why ZooKeeper can't hold its config.
            cost_s: The duration of the look, in seconds.
            beside_log: The log is followed as well.
            left: Changes by others were left, as callers' changes of the same entities wait: their rows come later.
        """
        now = time.monotonic()
        if self.entity_type is KraftEntityType.TOPICS:
            self._record_piece(result, refused, cost_s, now, with_log=with_log, left=left)
        else:
            rest = (
                max(QUOTAS_S, COST_FACTOR * cost_s)
                if self.entity_type is KraftEntityType.QUOTAS
                else INTERVALS_S[self.entity_type]
            )
            self.due = now + rest * (LOG_INTERVAL_FACTOR if with_log else 1)
            if not result.unchanged:
                self.left = left
            if not self.left:
                self.since = result.after
                self.brokers |= result.brokers
            self.digest = result.digest
            if result.unchanged:
                self.report = replace(self.report, observed_at=result.at_ms, offset=self.since, problem="")
            else:
                self._show(result, result.entities, {**result.unmanaged, **refused}, result.hidden)

    def record_no_topics(self, *, with_log: bool) -> None:
        """Take note that the cluster has no topics at all, and the mirror no configs of any."""
        self.due = time.monotonic() + _round_s(with_log=with_log)
        self.topics = TopicsRound()
        self.report = replace(self.report, observed_at=int(time.time() * 1000), entities=0, problem="")

    def _record_piece(
        self, result: PollResult, refused: dict[str, str], cost_s: float, now: float, *, with_log: bool, left: bool
    ) -> None:
        topics = self.topics
        topics.add(replace(result, unmanaged={**result.unmanaged, **refused}), left=left)
        pieces = -(-len(topics.names) // PIECE)
        self.due = now + max(_round_s(with_log=with_log) / pieces, COST_FACTOR * cost_s)
        if topics.ended and topics.first is not None:
            if not topics.left:
                self.since = topics.first.after
            self._show(topics.first, topics.entities, topics.unmanaged, topics.hidden)
            self.topics = TopicsRound()

    def _show(self, result: PollResult, entities: int, unmanaged: dict[str, str], hidden: dict[str, str]) -> None:
        self.report = replace(
            self.report,
            observed_at=result.at_ms,
            offset=self.since,
            entities=entities,
            unmanaged=ListedNames.of(unmanaged),
            hidden=ListedNames.of(hidden),
            problem="",
        )

    def postpone(self, seconds: float, problem: str) -> None:
        """Take note of a look that did not count."""
        self.due = time.monotonic() + seconds
        self.report = replace(self.report, problem=problem)


def _round_s(*, with_log: bool) -> float:
    """Return the seconds of a round over all topics, at least."""
    return TOPICS_WITH_LOG_S if with_log else TOPICS_S
