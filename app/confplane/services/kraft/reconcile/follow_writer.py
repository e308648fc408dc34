"""Writes the changes that follow a cluster, in loads that share transactions."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.access.identities import SERVICE
from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    CorruptZnodeError,
    InvalidRequestError,
    ListFullError,
)
from confplane.domain.facets import Tree, full_path
from confplane.services.changes.bulk import AT_ONCE, run_together
from confplane.services.changes.callers import Caller
from confplane.services.changes.draft import ChangeJob
from confplane.services.kraft.decisions import UNWRITTEN, ClusterDecisions, FollowDecision
from confplane.services.kraft.observe.poller import Poller
from confplane.services.kraft.pending_entity import PendingEntity
from confplane.services.kraft.reconcile.enforce import SOURCE, Enforcer
from confplane.services.kraft.reconcile.follow_drafts import FollowDrafts
from confplane.services.kraft.reconcile.lost_updates import LostUpdates
from confplane.services.metrics import span
from confplane.services.ports.applying import NO_STATE
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.domain.entities import Entity
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
    stale: list[EntityObservation] = field(default_factory=list)
    """Observations that are older than the znodes, or that a concurrent change overtook."""
    refused: dict[str, str] = field(default_factory=dict)
    """Entity id -> the reason why ZooKeeper can't hold its config."""
    pending: set[str] = field(default_factory=set)
    """Ids of entities with client changes that the cluster has not applied yet, or with values that are put back."""
    queued: list[EntityObservation] = field(default_factory=list)
    """Observations of entities in :attr:`pending` whose changes wait for delivery."""
    enforced: list[EntityObservation] = field(default_factory=list)
    """Observations of external changes that are to be put back."""
    corrections: dict[str, Correction] = field(default_factory=dict)
    """Entity id -> the decision on its external changes."""
    waiting: bool = False
    """External changes wait because the cluster refused a client change of the entity."""

    @property
    def may_have_left(self) -> bool:
        """True if external changes may have been left alone. Their rows follow later."""
        return self.waiting or bool(self.pending)

    def refuse_unindexed(self) -> None:
        """Refuse the entities whose ids are too long for the states in Postgres."""
        for each in (*self.enforced, *self.queued):
            try:
                each.entity.check_new()
            except InvalidRequestError as error:
                self.refused[each.entity.id] = error.detail
        self.enforced = [each for each in self.enforced if each.entity.id not in self.refused]
        self.queued = [each for each in self.queued if each.entity.id not in self.refused]

    def add_unwritten(self, observed: EntityObservation, decision: FollowDecision) -> None:
        """Add an observation that was not written."""
        if decision is FollowDecision.STALE:
            self.stale.append(observed)
        elif decision is FollowDecision.ENFORCED:
            self.enforced.append(observed)
        elif decision is FollowDecision.PENDING:
            self.pending.add(observed.entity.id)
            self.queued.append(observed)
        elif decision is FollowDecision.REFUSED:
            self.waiting = True


class FollowWriter:
    """Writes the changes of one cluster."""

    def __init__(self, runner: ChangeRunner, store: ClusterStore, drafts: FollowDrafts, states: TargetStates) -> None:
        self._runner = runner
        self._store = store
        self._drafts = drafts
        self._states = states
        self.enforcer = Enforcer(store, drafts, states)
        self.lost_updates = LostUpdates(store, drafts, states)
        self._revisions: dict[int, None] = {}
        self.written = 0
        """The number of entities written since the start."""

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
            size = 1 if self._drafts.decisions.imported else _IN_IMPORT

            async def work() -> None:
                for load in loads:
                    await self._commit_load([load[start : start + size] for start in range(0, len(load), size)], result)

            await asyncio.gather(*(work() for _ in range(1 if in_order else AT_ONCE)))
            result.refuse_unindexed()
            enforced = {each.entity.id for each in result.enforced}
            stale = [each for each in observations if each.stale_writes and each.entity.id not in enforced]
            if enforced or stale:
                await self._correct(stale, result)
            if result.queued and not self._drafts.decisions.has_earlier_states:
                await self.lost_updates.record(result.queued)
            return result

    async def _correct(self, stale: Sequence[EntityObservation], result: FollowResult) -> None:
        ready = [each for each in stale if self._drafts.decisions.puts_back(each)]
        if self._store.status().frozen is not None or self._drafts.decisions.has_earlier_states:
            # Nothing is delivered during a freeze, or by this process.
            result.pending.update(each.entity.id for each in (*result.enforced, *stale))
            return
        result.corrections = await self.enforcer.correct(result.enforced, ready)
        left = [each for each in (*result.enforced, *ready) if each.entity.id not in result.corrections]
        result.stale += left
        result.pending.update(each.entity.id for each in stale if each not in ready)
        result.pending.update(each.entity_id for each in result.corrections.values() if each.reapply)

    async def _with_states(self, observations: Sequence[EntityObservation]) -> Sequence[EntityObservation]:
        """Return the observations, with the delivery states of polled entities that clients write."""
        applies_to = self._drafts.decisions.applies_to
        adopted = {
            each.entity.id for each in observations if not each.is_from_log and applies_to(kraft_type_of(each.entity))
        }
        if not adopted:
            return observations
        known = await self._states.load(self._store.name, sorted(adopted))
        outlived = {
            each.entity.id: topic_id
            for each in observations
            # A poll that is older than the last delivery may show an earlier topic.
            if (state := known.get(each.entity.id, NO_STATE)).applied_offset <= each.after
            and (topic_id := self._pending(each.entity, state).outlived(each.topic_id)) is not None
        }
        await self._states.drop(self._store.name, outlived)
        known |= dict.fromkeys(outlived, NO_STATE)
        return [self._drafts.with_state(each, known.get(each.entity.id, NO_STATE)) for each in observations]

    def _pending(self, entity: Entity, state: TargetState) -> PendingEntity:
        return PendingEntity(self._store.get(Tree.CONFIG, entity.id), state)

    async def _commit_load(self, load: Sequence[Sequence[EntityObservation]], result: FollowResult) -> None:
        """Write a load: the observations of each change. Changes that must be drafted again form another load."""
        left = load
        while left:
            ends = await self._commit_together(left)
            again: list[Sequence[EntityObservation]] = []
            gone: dict[str, str] = {}
            for observations, end in zip(left, ends, strict=True):
                if isinstance(end, _ENTITY_ERRORS):
                    if len(observations) == 1:
                        result.refused[observations[0].entity.id] = end.detail
                    else:
                        again += [(each,) for each in observations]  # alone, each gets its own reason
                elif isinstance(end, ConcurrentChangeError):
                    # Other processes follow the same entity. The next poll finds the remaining differences.
                    result.stale += observations
                elif isinstance(end, Exception):
                    raise end
                else:
                    again += self._add_outcome(observations, end, result, gone)
            await self._states.drop(self._store.name, gone)
            left = again

    def _add_outcome(
        self,
        observations: Sequence[EntityObservation],
        end: ChangeRun[tuple[FollowDecision, ...]],
        result: FollowResult,
        gone: dict[str, str],
    ) -> list[Sequence[EntityObservation]]:
        """Record the outcome of a change; return the observations of recreated topics, and add topics that are gone."""
        again: list[Sequence[EntityObservation]] = []
        if end.committed is not None:
            self._remember_revision(end.committed.revision)
        for each, decision in zip(observations, end.decided, strict=True):
            if end.committed is None or decision in UNWRITTEN:
                result.add_unwritten(each, decision)
                continue
            result.written += 1
            self.written += 1
            if decision in {FollowDecision.REMOVED, FollowDecision.RECREATED} and each.state.topic_id is not None:
                gone[each.entity.id] = each.state.topic_id
            if decision is FollowDecision.RECREATED:
                again.append((replace(each, emptied=end.committed.revision, state=NO_STATE),))
        return again

    async def _commit_together(
        self, load: Sequence[Sequence[EntityObservation]]
    ) -> list[ChangeRun[tuple[FollowDecision, ...]] | Exception]:
        deadline = time.monotonic() + _LOAD_S
        external = Caller.operator(EXTERNAL_PRINCIPAL, SOURCE, "", deadline)
        own = Caller.operator(SERVICE, SOURCE, "", deadline, reason=_NO_TOPIC)
        jobs = [
            ChangeJob(
                partial(self._drafts.decide, observations, deadline=deadline),
                [full_path(Tree.CONFIG, each.entity) for each in observations],
                waits=any(each.emptied is not None for each in observations),
            )
            for observations in load
        ]
        undone = [number for number, each in enumerate(load) if all(map(self._has_no_topic, each))]
        followed = sorted(set(range(len(load))).difference(undone))
        ends: dict[int, asyncio.Future[ChangeRun[tuple[FollowDecision, ...]] | Exception]] = {}
        for caller, numbers in ((external, followed), (own, undone)):
            if numbers:
                some = [jobs[number] for number in numbers]
                ends |= zip(numbers, await run_together(self._runner, self._store, some, caller), strict=True)
        return [await ends[number] for number in range(len(load))]

    def _has_no_topic(self, observed: EntityObservation) -> bool:
        """Return whether a topic is gone, or never was, and its znode has only client changes that no topic got."""
        pending = self._pending(observed.entity, observed.state)
        return (
            observed.observation is None
            and not observed.is_from_log
            and bool(pending.pending_keys)
            and pending.metadata.topic_id is None
        )

    def _remember_revision(self, revision: int) -> None:
        self._revisions[revision] = None
        if len(self._revisions) > _REVISIONS:
            del self._revisions[next(iter(self._revisions))]


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
        self.drafts = FollowDrafts(store, rules, redact, self.decisions)
        self.writer = FollowWriter(runner, store, self.drafts, states)
        self.poller = Poller(cluster, store, rules, self.decisions)


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
