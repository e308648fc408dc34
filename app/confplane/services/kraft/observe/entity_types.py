"""The entity types of an observed cluster: when each is polled next, and the report on each."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity, EntityType
from confplane.services.kraft.observe.poller import PIECE, PollRound
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.services.kraft.observe.poller import PollResult
    from confplane.services.ports.observation_report import EntityTypeReport

INTERVALS_S: Final = {
    KraftEntityType.QUOTAS: 2.0,
    KraftEntityType.TOPICS: 2.0,
    KraftEntityType.BROKERS: 10.0,
    KraftEntityType.GROUPS: 30.0,
    KraftEntityType.CLIENT_METRICS: 30.0,
}
"""Seconds between two polls of an entity type, or of the same topic, unless :data:`COST_FACTOR` requires more."""
SHORTEST_S: Final = 2.0
"""Seconds between two polls at least, whatever the greatest age; for all pieces of the topics together."""
LOG_FACTOR: Final = 10
TOPICS_LOG_FACTOR: Final = 30
"""While the log is followed, the intervals of all polls, and of those of topics, grow by these factors."""
COST_FACTOR: Final = 50
"""The pause after a poll is at least this many times its CPU time in this process: 2 % of a core."""
BROKER_FACTOR: Final = 9
"""The pause after a poll is at least this many times its duration: a broker is busy with it a tenth of the time."""
AGE_SHARE: Final = 2 / 3
"""The next poll begins within this share of the greatest age, whatever polls cost; the rest is for the poll."""
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


@dataclass(slots=True)
class EntityTypeState:
    """The state of one entity type on the leader."""

    entity_type: KraftEntityType
    report: EntityTypeReport
    max_age_s: float
    """The greatest age of the last complete poll."""
    due: float = 0.0
    """The time of the next poll, on the clock of ``time.monotonic()``."""
    brokers: dict[str, int] = field(default_factory=dict)
    """The report's offset for each broker's own configs, by entity id, if known to this leader: a broker that was away
    may have changed its own configs before."""
    digest: bytes = b""
    """The digest of the last poll that counted. Polls with the same digest need no comparison."""
    touched: bool = False
    """True if the next poll must be compared regardless of its digest, for example after a delivery. A poll clears it
    at its begin."""
    reached: int = -1
    """The offset of the last complete poll, also if it left external changes alone."""
    left: bool = False
    """The last poll with a new answer left external changes alone."""
    failures: int = 0
    """The number of polls in a row that the cluster did not answer."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of polls by result: ``changed`` if some entities differed, ``unchanged``, ``behind`` if the broker
    lagged, ``refused`` by the cluster, or ``failed`` without an answer."""
    polls: PollRound = field(init=False)
    """The polls so far, until all topics were polled."""

    def __post_init__(self) -> None:
        """Begin with all topics."""
        self.polls = PollRound(self.entity_type)

    @property
    def permitted(self) -> bool:
        """True if the cluster shows the entity type."""
        return self.report.permission is not EntityTypePermission.NONE

    def permit(self, permission: EntityTypePermission, reason: str) -> None:
        """Set the permission for the entity type."""
        self.report = replace(self.report, permission=permission, reason=reason)

    def restart(self) -> None:
        """Poll everything as soon as possible."""
        self.touched, self.due, self.polls = True, 0.0, PollRound(self.entity_type)

    def forget_offsets(self) -> None:
        """Forget the offsets at which the mirror equaled the cluster."""
        self.report = replace(self.report, offset=None)
        self.brokers.clear()

    def take_digest(self) -> bytes:
        """Return the digest of a poll without differences, for the next poll; empty if unknown."""
        if self.touched:
            self.digest, self.touched = b"", False
        return self.digest

    def covered(self, result: PollResult, entity_ids: Iterable[str]) -> set[str]:
        """Return those of some entities of any types that a poll covers, with or without configs.

        Call it before the poll is recorded.
        """

        def is_covered(entity: Entity) -> bool:
            kind, name = entity.components[0]
            if kraft_type_of(entity) is not self.entity_type or entity.id in result.denied:
                return False
            if kind is EntityType.TOPIC:
                return self.polls.covers(name or "")
            return kind is not EntityType.BROKER or name is None or entity.id in result.brokers

        return {each for each in entity_ids if is_covered(Entity.from_id(each))}

    def record_poll(self, result: PollResult, refused: Mapping[str, str], *, with_log: bool, left: bool) -> None:
        """Record a poll that counts: the mirror equals the poll, except for external changes that were left alone.

        Args:
            result: The poll.
            refused: Entity id -> the reason why ZooKeeper can't hold its config.
            with_log: The log is followed as well.
            left: External changes were left alone because client changes of the same entities wait. Their rows follow
                later.
        """
        self.failures = 0
        self.counts["changed" if result.differing else "unchanged"] += 1
        self.due = time.monotonic() + self._pause_s(result, with_log=with_log)
        polls = self.polls
        polls.add(replace(result, unmanaged={**result.unmanaged, **refused}), left=left)
        total = polls.total
        if total is None or not polls.ended:
            return
        self.polls, self.digest, self.reached = PollRound(self.entity_type), result.digest, total.after
        if not result.unchanged:
            self.left = polls.left
        offset = self.report.offset if self.left else total.after
        if not self.left:
            self.brokers |= total.brokers
        if result.unchanged:
            self.report = replace(self.report, observed_at=result.at_ms, offset=offset, problem="")
        else:
            self.report = total.report(self.report, offset)

    def _pause_s(self, poll: PollResult, *, with_log: bool) -> float:
        """Return the seconds to the next poll. The greatest age has precedence over the interval and the share."""
        pieces = max(1, -(-len(self.polls.names) // PIECE))
        log_factor = TOPICS_LOG_FACTOR if self.entity_type is KraftEntityType.TOPICS else LOG_FACTOR
        interval_s = INTERVALS_S[self.entity_type] * (log_factor if with_log else 1) / pieces
        share_s = max(COST_FACTOR * min(poll.cpu_s, poll.wall_s), BROKER_FACTOR * poll.wall_s)
        longest_s = AGE_SHARE * self.max_age_s / pieces - poll.wall_s
        return max(min(interval_s, SHORTEST_S / pieces), min(max(interval_s, share_s), longest_s))

    def record_refused(self, reason: str) -> None:
        """Record that the cluster does not show the entity type."""
        self.counts["refused"] += 1
        self.permit(EntityTypePermission.NONE, reason)

    def record_behind(self, offset: int) -> None:
        """Record a poll of a broker that is behind an offset."""
        problem = f"The broker asked is behind the metadata offset {offset} that was seen before; it is asked again"
        self._record_uncounted("behind", RETRY_S, problem)

    def record_failed(self, problem: str) -> None:
        """Record a poll that the cluster did not answer. The pause before the next one grows with each in a row."""
        self.failures += 1
        pause_s = min(2.0 ** min(self.failures, 10) / 2, _SLOWEST_RETRY_S, AGE_SHARE * self.max_age_s)
        self._record_uncounted("failed", pause_s, problem)

    def _record_uncounted(self, result: str, pause_s: float, problem: str) -> None:
        self.counts[result] += 1
        self.due = time.monotonic() + pause_s
        self.report = replace(self.report, problem=problem)
