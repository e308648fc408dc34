"""Writes the changes that follow a cluster, in loads that share transactions."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import SERVICE
from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    CorruptZnodeError,
    InvalidRequestError,
    ListFullError,
)
from confplane.services.changes.bulk import AT_ONCE, run_together
from confplane.services.changes.callers import Caller
from confplane.services.kraft.decisions import UNWRITTEN, ClusterDecisions, FollowDecision, puts_back
from confplane.services.kraft.observe.poller import Poller
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.kraft.reconcile.enforce import SOURCE, Enforcer
from confplane.services.kraft.reconcile.follow_drafts import FollowDrafts
from confplane.services.metrics import span
from confplane.services.ports.applying import NO_STATE
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.domain.observed import ObservedRules
    from confplane.domain.redaction import Redact
    from confplane.services.changes.commit import ChangeRun
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.kraft.decisions import EntityObservation
    from confplane.services.ports.applying import Correction, TargetState, TargetStates, WritableKafkaCluster
    from confplane.services.ports.store import ClusterStore

_MOST: Final = 200
"""The greatest number of entities in a load. A change of a user's client-id takes a kilobyte of the shared transaction,
which has room for 250 of them; loads of larger changes are halved at their admission."""
_IN_IMPORT: Final = 25
"""The greatest number of entities in one change of an import. A change of its own for each would cost twice as much."""
_NO_TOPIC: Final = "The cluster has no topic of this name, so that the waiting change can't be applied"
_LOAD_S: Final = 60.0
_ENTITY_ERRORS: Final = (BodyTooLargeError, CorruptZnodeError, InvalidRequestError, ListFullError)
"""Errors that concern only one entity."""
_REVISIONS: Final = 10_000


@dataclass(slots=True)
class FollowResult:
    """The result of writing changes that follow a cluster."""

    written: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """Entity id -> the reason why ZooKeeper, or the states in Postgres, can't hold the entity."""
    unwritten: defaultdict[FollowDecision, list[EntityObservation]] = field(default_factory=lambda: defaultdict(list))
    """The observations that were not written, by decision."""
    pending: set[str] = field(default_factory=set)
    """Ids of entities with client changes that the cluster has not applied yet, or with values that are put back."""
    corrections: dict[str, Correction] = field(default_factory=dict)
    """Entity id -> the decision on its external changes."""

    @property
    def stale(self) -> list[EntityObservation]:
        """Observations that are older than the znodes, or that a concurrent change overtook."""
        return self.unwritten[FollowDecision.STALE]

    @property
    def may_have_left(self) -> bool:
        """True if external changes may have been left alone. Their rows follow later."""
        return bool(self.unwritten[FollowDecision.REFUSED] or self.pending)

    def storable(self, decision: FollowDecision) -> list[EntityObservation]:
        """Return the unwritten observations with a decision. Refuse those with ids too long for the states."""
        found = []
        for each in self.unwritten[decision]:
            try:
                each.entity.check_new()
            except InvalidRequestError as error:
                self.refused[each.entity.id] = error.detail
            else:
                found.append(each)
        return found


class FollowWriter:
    """Writes the changes of one cluster.

    Attributes:
        written: The number of entities written since the start.
    """

    def __init__(self, runner: ChangeRunner, store: ClusterStore, drafts: FollowDrafts, states: TargetStates) -> None:
        self._runner = runner
        self._store = store
        self._drafts = drafts
        self._decisions = drafts.decisions
        self._states = states
        self.enforcer = Enforcer(store, drafts, states)
        self._revisions: dict[int, None] = {}
        self.written = 0

    def wrote(self, revision: int) -> bool:
        """Return whether a revision is one of this writer's latest ten thousand transactions."""
        return revision in self._revisions

    async def follow(self, observations: Sequence[EntityObservation], *, in_order: bool = False) -> FollowResult:
        """Write all differences to the znodes, and return after each change has ended.

        Each entity is a separate change. Until the import is complete, a change may have several entities.

        Args:
            observations: The observations. Unless they are in order, each is of a different entity.
            in_order: Commit the changes in the order of the observations. Otherwise several loads run concurrently.

        Raises:
            UnavailableError: A store is unavailable. Some changes may have been made; the next poll finds the rest.
            ObservedError: The observation was paused.
        """
        with span("write", cluster=self._store.name, entities=len(observations)):
            result = FollowResult()
            observations = await self._with_states(observations)
            loads = _loads(observations)
            size = 1 if self._decisions.target.imported else _IN_IMPORT

            async def work() -> None:
                for load in loads:
                    own = [(each,) for each in load if self._has_no_topic(each)]
                    followed = [each for each in load if not self._has_no_topic(each)]
                    pieces = [followed[start : start + size] for start in range(0, len(followed), size)]
                    await self._commit(pieces, EXTERNAL_PRINCIPAL, result)
                    await self._commit(own, SERVICE, result)

            await asyncio.gather(*(work() for _ in range(1 if in_order else AT_ONCE)))
            queued = result.storable(FollowDecision.PENDING)
            result.pending.update(each.entity.id for each in result.unwritten[FollowDecision.PENDING])
            await self._correct(observations, result)
            if queued and not self._decisions.has_earlier_states:
                await self.enforcer.record_lost_updates(queued)
            return result

    async def _with_states(self, observations: Sequence[EntityObservation]) -> Sequence[EntityObservation]:
        """Return the observations, with the delivery states of polled entities that clients write."""
        adopted = {
            each.entity.id
            for each in observations
            if not each.is_from_log and self._decisions.mode_of(each.entity) is not TargetMode.OBSERVE
        }
        if not adopted:
            return observations
        known = await self._states.load(self._store.name, sorted(adopted))
        outlived = {
            each.entity.id: topic_id
            for each in observations
            # A poll that is older than the last delivery may show an earlier topic.
            if (state := known.get(each.entity.id, NO_STATE)).applied_offset <= each.after
            and (topic_id := self._pending(each, state).outlived(each.topic_id)) is not None
        }
        await self._states.drop(self._store.name, outlived)
        known |= dict.fromkeys(outlived, NO_STATE)
        return [self._decisions.with_state(each, known.get(each.entity.id, NO_STATE)) for each in observations]

    def _pending(self, observed: EntityObservation, state: TargetState) -> PendingEntity:
        return PendingEntity(self._decisions.node(observed.entity), state)

    def _has_no_topic(self, observed: EntityObservation) -> bool:
        """Return whether a topic is gone, or never was, and its znode has only client changes that no topic got."""
        if observed.observation is not None or observed.is_from_log:
            return False
        pending = self._pending(observed, observed.state)
        return bool(pending.pending_keys) and pending.metadata.topic_id is None

    async def _commit(
        self, changes: Sequence[Sequence[EntityObservation]], principal: str, result: FollowResult
    ) -> None:
        """Write the observations of each change. Changes that must be drafted again are written after the others."""
        while changes:
            deadline = time.monotonic() + _LOAD_S
            reason = _NO_TOPIC if principal == SERVICE else None
            caller = Caller.operator(principal, SOURCE, "", deadline, reason=reason)
            jobs = [self._drafts.job(observations, deadline) for observations in changes]
            running = await run_together(self._runner, self._store, jobs, caller)
            ends = [await each for each in running]
            again: list[Sequence[EntityObservation]] = []
            gone: dict[str, str] = {}
            for observations, end in zip(changes, ends, strict=True):
                if isinstance(end, _ENTITY_ERRORS):
                    if len(observations) == 1:
                        result.refused[observations[0].entity.id] = end.detail
                    else:
                        again += [(each,) for each in observations]  # alone, each gets its own reason
                elif isinstance(end, ConcurrentChangeError):
                    # Other processes follow the same entity. The next poll finds the remaining differences.
                    result.stale.extend(observations)
                elif isinstance(end, Exception):
                    raise end
                else:
                    again += self._add_result(observations, end, result, gone)
            await self._states.drop(self._store.name, gone)
            changes = again

    def _add_result(
        self,
        observations: Sequence[EntityObservation],
        end: ChangeRun[tuple[FollowDecision, ...]],
        result: FollowResult,
        gone: dict[str, str],
    ) -> list[Sequence[EntityObservation]]:
        """Record the result of a change; return the observations of recreated topics, and add topics that are gone."""
        again: list[Sequence[EntityObservation]] = []
        for each, decision in zip(observations, end.decided, strict=True):
            if end.committed is None or decision in UNWRITTEN:
                result.unwritten[decision].append(each)
                continue
            result.written += 1
            self.written += 1
            self._revisions[end.committed.revision] = None
            if decision in {FollowDecision.REMOVED, FollowDecision.RECREATED} and each.state.topic_id is not None:
                gone[each.entity.id] = each.state.topic_id
            if decision is FollowDecision.RECREATED:
                again.append((replace(each, emptied=end.committed.revision, state=NO_STATE),))
        while len(self._revisions) > _REVISIONS:
            del self._revisions[next(iter(self._revisions))]
        return again

    async def _correct(self, observations: Sequence[EntityObservation], result: FollowResult) -> None:
        """Put back external changes under ``enforce``, and stale in-flight writes."""
        ready = result.storable(FollowDecision.ENFORCED)
        enforced = {each.entity.id for each in ready}
        stale = [each for each in observations if each.stale_writes and each.entity.id not in enforced]
        if not ready and not stale:
            return
        if self._store.status().frozen is not None or self._decisions.has_earlier_states:
            # Nothing is delivered during a freeze, or by this process.
            result.pending.update(each.entity.id for each in (*ready, *stale))
            return
        late = [each for each in stale if puts_back(self._decisions.node(each.entity), each)]
        result.corrections = await self.enforcer.correct(ready, late)
        result.stale.extend(each for each in (*ready, *late) if each.entity.id not in result.corrections)
        result.pending |= {each.entity.id for each in stale} - {each.entity.id for each in late}
        result.pending |= {each.entity_id for each in result.corrections.values() if each.put_back}


class FollowParts:
    """The parts that compare a Kafka cluster with its znodes, and write the differences to these."""

    def __init__(
        self,
        cluster: WritableKafkaCluster,
        store: ClusterStore,
        runner: ChangeRunner,
        rules: ObservedRules,
        redact: Redact,
        states: TargetStates,
    ) -> None:
        self.cluster = cluster
        self.states = states
        self.decisions = ClusterDecisions(store, rules)
        self.writer = FollowWriter(runner, store, FollowDrafts(store, redact, self.decisions), states)
        self.poller = Poller(cluster, store, self.decisions)


def _loads(observations: Sequence[EntityObservation]) -> Iterator[Sequence[EntityObservation]]:
    """Split observations into loads of different entities, in order."""
    load: dict[str, EntityObservation] = {}
    for each in observations:
        if each.entity.id in load or len(load) == _MOST:
            yield list(load.values())
            load = {}
        load[each.entity.id] = each
    if load:
        yield list(load.values())
