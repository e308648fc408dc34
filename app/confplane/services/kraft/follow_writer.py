"""The changes that follow a cluster, written in loads that share transactions."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    CorruptZnodeError,
    InvalidRequestError,
    ListFullError,
)
from confplane.domain.facets import Tree, full_path
from confplane.services.changes.bulk import AT_ONCE
from confplane.services.changes.callers import Caller
from confplane.services.changes.runner import Job
from confplane.services.kraft import topics
from confplane.services.kraft.enforce import SOURCE, Enforcer
from confplane.services.kraft.overwritten import Overwritten
from confplane.services.kraft.verdicts import LEFT, Verdict
from confplane.services.ports.kafka import area_of
from confplane.services.recorder.recorded import PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from confplane.services.changes.change import Ended
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.kraft.follow import Decisions
    from confplane.services.kraft.verdicts import Seen
    from confplane.services.ports.applying import Correction, TargetStates
    from confplane.services.ports.store import ClusterStore

_MOST: Final = 200
"""The greatest number of entities in a load. A change of a user's client-id takes a kilobyte of the shared transaction,
which has room for 250 of them; loads of larger changes are halved at their admission."""
_IN_IMPORT: Final = 25
"""The greatest number of entities in one change of an import. A change of its own for each would cost twice as much."""
_LOAD_S: Final = 60.0
_OF_ONE: Final = (BodyTooLargeError, CorruptZnodeError, InvalidRequestError, ListFullError)
"""Errors that concern one entity alone."""
_REVISIONS: Final = 10_000


@dataclass(slots=True)
class Followed:
    """The ends of changes that followed a cluster."""

    written: int = 0
    stale: list[Seen] = field(default_factory=list)
    """Sights that are older than the znodes, or that others overtook."""
    refused: dict[str, str] = field(default_factory=dict)
    """Entity id -> the reason why ZooKeeper can't hold its config."""
    pending: list[str] = field(default_factory=list)
    """Ids of entities with callers' changes that the cluster has not taken yet; these were left."""
    waits: list[Seen] = field(default_factory=list)
    """Sights of entities among :attr:`pending` whose changes wait to be sent."""
    late: dict[str, frozenset[str]] = field(default_factory=dict)
    """Entity id -> keys with late values of this service, which are put back."""
    enforced: list[Seen] = field(default_factory=list)
    """Sights of what others changed, and what is to be put back."""
    corrections: dict[str, Correction] = field(default_factory=dict)
    """Entity id -> the decision on what others changed."""
    waiting: bool = False
    """Changes by others wait, as the cluster refused what callers wrote to the entity."""

    @property
    def left(self) -> bool:
        """True where changes by others may have been left, whose rows come later."""
        return self.waiting or bool(self.pending or self.late)

    def leave(self, seen: Seen, verdict: Verdict) -> None:
        """Take a sight of which nothing was written."""
        if verdict is Verdict.STALE:
            self.stale.append(seen)
        elif verdict is Verdict.ENFORCED:
            self.enforced.append(seen)
        elif verdict is Verdict.PENDING:
            self.pending.append(seen.entity.id)
            self.waits.append(seen)
        elif verdict is Verdict.REFUSED:
            self.waiting = True


class Follower:
    """Writes the changes of one cluster.

    Args:
        runner: Runs the changes.
        store: The cluster's store.
        decisions: Decides each change.
        states: The states of entities in the cluster, as far as changed from here.
    """

    def __init__(self, runner: ChangeRunner, store: ClusterStore, decisions: Decisions, states: TargetStates) -> None:
        self._runner = runner
        self._store = store
        self._decisions = decisions
        self._states = states
        self.enforcer = Enforcer(store, decisions, states)
        self.overwritten = Overwritten(store, decisions, states)
        self._revisions: dict[int, None] = {}
        self.written = 0
        """The number of entities written since the start."""

    def wrote(self, revision: int) -> bool:
        """Say whether a revision is one of this follower's latest ten thousand transactions."""
        return revision in self._revisions

    async def follow(
        self, seen: Sequence[Seen], *, in_order: bool = False, told: Callable[[int], None] = lambda _: None
    ) -> Followed:
        """Write what differs from the znodes, and return once each change has ended.

        Each entity is a change of its own; until the import is complete, some are one change.

        Args:
            seen: The sights: of different entities; or, in order, of any.
            in_order: Commit the changes in the order of their sights. Otherwise several loads are under way at once.
            told: Called after each load with the number of its sights.

        Raises:
            UnavailableError: A store is away; some changes may be made, and the others are found again.
            ObservedError: Nothing is observed now: the target was paused.
        """
        result = Followed()
        seen = await self._beside(seen)
        loads = iter(_in_order(seen) if in_order else _loads(seen))
        size = 1 if self._decisions.judge.imported else _IN_IMPORT

        async def work() -> None:
            for load in loads:
                await self._load([load[start : start + size] for start in range(0, len(load), size)], result)
                told(len(load))

        await asyncio.gather(*(work() for _ in range(1 if in_order else AT_ONCE)))
        enforced = {each.entity.id for each in result.enforced}
        late = [each for each in seen if each.late and each.entity.id not in enforced]
        if enforced or late:
            await self._correct(late, result)
        if result.waits:
            await self.overwritten.note(result.waits)
        return result

    async def _correct(self, late: Sequence[Seen], result: Followed) -> None:
        ready = [each for each in late if self._decisions.puts_back(each)]
        if self._store.status().frozen is not None:
            # Nothing is sent while a freeze stands.
            result.pending += [each.entity.id for each in (*result.enforced, *late)]
            return
        result.corrections = await self.enforcer.correct(result.enforced, ready)
        left = [each for each in (*result.enforced, *ready) if each.entity.id not in result.corrections]
        result.stale += left
        result.pending += [each.entity.id for each in late if each not in ready]
        result.pending += [each.entity_id for each in result.corrections.values() if each.reapply]
        result.late = {each.entity_id: frozenset(each.late) for each in result.corrections.values() if each.late}

    async def left_alone(self) -> list[str]:
        """Return the ids of the entities that may have drift, by the durable states.

        Raises:
            UnavailableError: Postgres is away.
        """
        return await self._states.drifting(self._store.name)

    async def settle(self, entity_ids: Collection[str]) -> None:
        """Drop the drift of some entities: they differ no more.

        Raises:
            UnavailableError: Postgres is away.
        """
        await self._states.settle(self._store.name, entity_ids)

    async def _beside(self, seen: Sequence[Seen]) -> Sequence[Seen]:
        """Return the sights of looks beside what was sent to the cluster, where callers write the entities."""
        applies_to = self._decisions.judge.applies_to
        adopted = {each.entity.id for each in seen if not each.of_log and applies_to(area_of(each.entity))}
        if not adopted:
            return seen
        known = await self._states.known(self._store.name, sorted(adopted))
        # A look in front of what was sent may show an earlier topic.
        topic_ids = {
            each.entity.id: each.topic_id
            for each in seen
            if (state := known.get(each.entity.id)) is not None and each.after >= state.applied_offset
        }
        nodes = {each: node for each in topic_ids if (node := self._store.get(Tree.CONFIG, each)) is not None}
        outlived = topics.outlived(topic_ids, nodes, known)
        await self._drop(outlived)
        known = {entity_id: each for entity_id, each in known.items() if entity_id not in outlived}
        return [self._decisions.beside(each, known.get(each.entity.id)) for each in seen]

    async def _drop(self, topic_ids: Mapping[str, str]) -> None:
        """Drop the states of topics that are gone."""
        if topic_ids:
            await self._states.drop(self._store.name, topic_ids)

    async def _load(self, load: Sequence[Sequence[Seen]], result: Followed) -> None:
        """Write a load: the sights of each change. Those that are to be written in another way make a second one."""
        left = load
        while left:
            ends = await self._together(left)
            again: list[Sequence[Seen]] = []
            gone: dict[str, str] = {}
            for seen, end in zip(left, ends, strict=True):
                if isinstance(end, _OF_ONE):
                    if len(seen) == 1:
                        result.refused[seen[0].entity.id] = end.detail
                    else:
                        again += [(each,) for each in seen]  # alone, each is told its own reason
                elif isinstance(end, ConcurrentChangeError):
                    # Other processes follow the same entity: whatever they left is looked at again.
                    result.stale += seen
                elif isinstance(end, Exception):
                    raise end
                else:
                    again += self._end(seen, end, result, gone)
            await self._drop(gone)
            left = again

    def _end(
        self, seen: Sequence[Seen], end: Ended[tuple[Verdict, ...]], result: Followed, gone: dict[str, str]
    ) -> list[Sequence[Seen]]:
        """Take the end of a change; return the sights of topics that were made anew, and add topics that are gone."""
        again: list[Sequence[Seen]] = []
        if end.committed is not None:
            self._note(end.committed.revision)
        for each, verdict in zip(seen, end.decided, strict=True):
            if end.committed is None or verdict in LEFT:
                result.leave(each, verdict)
                continue
            result.written += 1
            self.written += 1
            if verdict in {Verdict.REMOVED, Verdict.REMADE} and each.state is not None:
                gone[each.entity.id] = each.state.topic_id or ""
            if verdict is Verdict.REMADE:
                again.append((replace(each, emptied=end.committed.revision, state=None),))
        return again

    async def _together(self, load: Sequence[Sequence[Seen]]) -> list[Ended[tuple[Verdict, ...]] | Exception]:
        caller = Caller.operator(PRINCIPAL, SOURCE, "", time.monotonic() + _LOAD_S)
        ends: dict[int, Ended[tuple[Verdict, ...]] | Exception] = {}
        all_ended = asyncio.Event()

        def told(number: int, end: Ended[tuple[Verdict, ...]] | Exception) -> None:
            ends[number] = end
            if len(ends) == len(load):
                all_ended.set()

        jobs = [
            Job(
                partial(self._decisions.decide, seen, deadline=caller.deadline),
                [full_path(Tree.CONFIG, each.entity) for each in seen],
                waits=any(each.emptied is not None for each in seen),
            )
            for seen in load
        ]
        await self._runner.run_together(self._store, jobs, caller, told)
        await all_ended.wait()
        return [ends[number] for number in range(len(load))]

    def _note(self, revision: int) -> None:
        self._revisions[revision] = None
        if len(self._revisions) > _REVISIONS:
            del self._revisions[next(iter(self._revisions))]


def _loads(seen: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
    left = iter(seen)
    while load := list(islice(left, _MOST)):
        yield load


def _in_order(seen: Sequence[Seen]) -> Iterator[Sequence[Seen]]:
    """Cut sights into loads of different entities, in order."""
    load: dict[str, Seen] = {}
    for each in seen:
        if each.entity.id in load or len(load) == _MOST:
            yield list(load.values())
            load = {}
        load[each.entity.id] = each
    if load:
        yield list(load.values())
