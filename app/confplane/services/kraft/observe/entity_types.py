"""The entity types of an observed cluster: when each is polled next, and the report on each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.entities import Entity, EntityType
from confplane.services.kraft.observe.poller import PIECE, PollResult
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.services.ports.observation_report import EntityTypeReport

QUOTAS_S: Final = 2.0
TOPICS_S: Final = 2.0
"""Seconds between two polls of the same topic, unless :data:`COST_FACTOR` requires more."""
TOPICS_WITH_LOG_S: Final = 60.0
"""Seconds between two polls of the same topic while the log is followed."""
INTERVALS_S: Final = {KraftEntityType.BROKERS: 10.0, KraftEntityType.GROUPS: 30.0, KraftEntityType.CLIENT_METRICS: 30.0}
"""Seconds between two polls of an entity type."""
COST_FACTOR: Final = 50
"""The pause after a poll is at least this many times its CPU time in this process: 2 % of a core."""
BROKER_FACTOR: Final = 9
"""The pause after a poll is at least this many times its duration: a broker is busy with it a tenth of the time."""
AGE_SHARE: Final = 2 / 3
"""The next poll begins within this share of the greatest age, whatever polls cost; the rest is for the poll."""
LOG_INTERVAL_FACTOR: Final = 10
"""While the log is followed, the interval of all polls except those of topics grows by this factor."""
RETRY_S: Final = 0.2
"""Seconds before a poll that did not count is repeated: the broker lagged behind."""
_SLOWEST_RETRY_S: Final = 30.0
"""Seconds before a poll is repeated that the cluster did not answer several times."""


@dataclass(frozen=True, slots=True)
class PollSettings:
    """The settings of polls."""

    max_ages: Mapping[KraftEntityType, float]
    """The greatest age in seconds of the last complete poll of each entity type."""
    follows_log: bool = False
    """Follow the metadata log too: the settings name controllers."""


class PollCost(NamedTuple):
    """The cost of a poll, in seconds."""

    wall_s: float
    cpu_s: float
    """CPU time of this process. It includes concurrent work, so it is an upper bound."""

    @property
    def share_s(self) -> float:
        """The pause after which polls take their share of the time."""
        return max(COST_FACTOR * min(self.cpu_s, self.wall_s), BROKER_FACTOR * self.wall_s)


@dataclass(slots=True)
class TopicPollRound:
    """A round over all topics, piece by piece."""

    names: list[str] = field(default_factory=list)
    named_at: int = -1
    """The names are current as of this metadata offset."""
    at: int = 0
    total: PollResult | None = None
    """The totals of the round, as of its first poll."""
    left: bool = False
    """Some poll of the round left external changes alone."""

    @property
    def piece(self) -> list[str]:
        """The names to poll next."""
        return self.names[self.at : self.at + PIECE]

    @property
    def elsewhere(self) -> set[str]:
        """The names in other pieces."""
        return {*self.names[: self.at], *self.names[self.at + PIECE :]}

    @property
    def ended(self) -> bool:
        """True after all names were polled."""
        return self.at >= len(self.names)

    def add(self, result: PollResult, *, left: bool) -> None:
        """Add a poll of the current piece, and continue with the next one."""
        self.at += PIECE
        self.left = self.left or left
        self.total = self.total or PollResult(min(self.named_at, result.after), result.until, result.at_ms)
        self.total.add_totals(result)


@dataclass(slots=True)
class EntityTypeState:
    """The state of one entity type on the leader."""

    entity_type: KraftEntityType
    report: EntityTypeReport
    max_age_s: float
    """The greatest age of the last complete poll."""
    due: float = 0.0
    """The time of the next poll, on the clock of ``time.monotonic()``."""
    since: int | None = None
    """A metadata offset at which the mirror equaled the cluster for this entity type; None if unknown. A broker that
    was away may have changed its own configs before."""
    brokers: dict[str, int] = field(default_factory=dict)
    """The same offset for each broker's own configs, by entity id, if known to this leader."""
    digest: bytes = b""
    """The digest of the last poll that counted. Polls with the same digest need no comparison."""
    touched: int = 0
    """The number of reasons to compare the next poll regardless of its digest, for example delivered client changes."""
    compared: int = 0
    """The value of :attr:`touched` before the last poll that counted."""
    left: bool = False
    """The last poll with a new answer left external changes alone."""
    failures: int = 0
    """The number of polls in a row that the cluster did not answer."""
    topics: TopicPollRound = field(default_factory=TopicPollRound)

    @property
    def permitted(self) -> bool:
        """True if the cluster shows the entity type."""
        return self.report.permission is not EntityTypePermission.NONE

    def permit(self, permission: EntityTypePermission, reason: str) -> None:
        """Set the permission for the entity type."""
        self.report = replace(self.report, permission=permission, reason=reason)

    @property
    def known_digest(self) -> bytes:
        """The digest of a poll without differences; empty if unknown."""
        return self.digest if self.compared == self.touched else b""

    def touch(self) -> None:
        """Have the next poll compared regardless of its digest, even if a poll is in progress."""
        self.touched += 1

    def restart(self) -> None:
        """Poll everything as soon as possible."""
        self.touch()
        self.due = 0.0
        self.topics = TopicPollRound()

    def covered(self, result: PollResult | None, entity_ids: Iterable[str]) -> set[str]:
        """Return the entities that a poll covers, with or without configs, before it is recorded.

        Args:
            result: A poll of the entity type, or of the current piece of the topics. None if there are no topics.
            entity_ids: Entities of any types.
        """
        entities = [entity for each in entity_ids if kraft_type_of(entity := Entity.from_id(each)) is self.entity_type]
        if self.entity_type is KraftEntityType.TOPICS and entities:
            elsewhere = self.topics.elsewhere
            entities = [each for each in entities if each.get(EntityType.TOPIC) not in elsewhere]
        elif self.entity_type is KraftEntityType.BROKERS and result is not None:
            entities = [each for each in entities if each.components[0][1] is None or each.id in result.brokers]
        return {each.id for each in entities} - (set() if result is None else result.denied.keys())

    def record_poll(
        self, result: PollResult, refused: dict[str, str], cost: PollCost, *, with_log: bool, left: bool
    ) -> None:
        """Record a poll that counts: the mirror equals the poll, except for external changes that were left alone.

        Args:
            result: The poll.
            refused: Entity id -> the reason why ZooKeeper can't hold its config.
            cost: The cost of the poll.
            with_log: The log is followed as well.
            left: External changes were left alone because client changes of the same entities wait. Their rows follow
                later.
        """
        now, self.failures = time.monotonic(), 0
        if self.entity_type is KraftEntityType.TOPICS:
            self._record_piece(result, refused, cost, now, with_log=with_log, left=left)
        else:
            interval = INTERVALS_S.get(self.entity_type, QUOTAS_S) * (LOG_INTERVAL_FACTOR if with_log else 1)
            self.due = now + self._pause_s(interval, cost)
            if not result.unchanged:
                self.left = left
            if not self.left:
                self.since = result.after
                self.brokers |= result.brokers
            self.digest = result.digest
            if result.unchanged:
                self.report = replace(self.report, observed_at=result.at_ms, offset=self.since, problem="")
            else:
                shown = replace(result, unmanaged={**result.unmanaged, **refused})
                self.report = shown.report(self.report, self.since)

    def record_no_topics(self, *, with_log: bool) -> None:
        """Record that the cluster has no topics at all, and the mirror no configs of topics."""
        self.due = time.monotonic() + _round_s(with_log=with_log)
        self.topics = TopicPollRound()
        self.report = replace(self.report, observed_at=int(time.time() * 1000), entities=0, problem="")

    def _record_piece(
        self, result: PollResult, refused: dict[str, str], cost: PollCost, now: float, *, with_log: bool, left: bool
    ) -> None:
        topics = self.topics
        topics.add(replace(result, unmanaged={**result.unmanaged, **refused}), left=left)
        pieces = -(-len(topics.names) // PIECE)
        self.due = now + self._pause_s(_round_s(with_log=with_log) / pieces, cost, pieces)
        if topics.ended and topics.total is not None:
            if not topics.left:
                self.since = topics.total.after
            self.report = topics.total.report(self.report, self.since)
            self.topics = TopicPollRound()

    def _pause_s(self, interval_s: float, cost: PollCost, pieces: int = 1) -> float:
        """Return the seconds to the next poll. The greatest age has precedence over the interval and the share."""
        longest = AGE_SHARE * self.max_age_s / pieces - cost.wall_s
        return max(min(interval_s, QUOTAS_S / pieces), min(max(interval_s, cost.share_s), longest))

    def record_unavailable(self, problem: str) -> None:
        """Record a poll that the cluster did not answer. The pause before the next one grows with each in a row."""
        self.failures += 1
        pause_s = min(2.0 ** min(self.failures, 10) / 2, _SLOWEST_RETRY_S, AGE_SHARE * self.max_age_s)
        self.record_failed_poll(pause_s, problem)

    def record_failed_poll(self, seconds: float, problem: str) -> None:
        """Record a poll that did not count."""
        self.due = time.monotonic() + seconds
        self.report = replace(self.report, problem=problem)


def _round_s(*, with_log: bool) -> float:
    """Return the minimum duration of a round over all topics, in seconds."""
    return TOPICS_WITH_LOG_S if with_log else TOPICS_S
