"""Alter: entries of a request, each in its own change, or all in one change (``atomic``).

An entry has the edits of one entity, one for each facet that it alters, and always is one change or part of one. The
caller's grants are checked first: an edit of an entity that the caller may not alter fails before anything is read.
Any other edit is encoded once, and decided by its facet's drafter against each node that is read
(services/changes/entities_change.py); the runner does the rest (services/changes/runner.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from confplane.domain.access.operations import Operation
from confplane.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    KafkaCode,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.policies import Policies
from confplane.services.changes.bulk import BulkRunner
from confplane.services.changes.config_drafts import deleted_unknown_keys, unknown_key_error
from confplane.services.changes.edits import Edit, EditResult, EntryResult, not_attempted, offender
from confplane.services.changes.entities_change import EntitiesChange, PreparedEdit
from confplane.services.cooperative_yielding import in_slices
from confplane.services.metrics import Sample, span
from confplane.services.ports.kafka import kraft_type_of
from confplane.services.ports.refusals import RefusedEdit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from confplane.domain.entities import Entity
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.commit import ChangeRun
    from confplane.services.changes.entities_change import Drafts, RuleFactsReader
    from confplane.services.changes.entity_drafts import AlterRules, DecideEntity, Drafter, EntityDraft
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.kafka import KraftEntityType

T = TypeVar("T")
_NONE: Final = KafkaCode.NONE.name

Entry = Mapping["ClusterFacet", "Edit | EditResult"]
"""The edits of one entity, at least one, by the facets of a cluster. An edit that could not even be formed is a failed
result."""
FacetEdit = tuple["ClusterFacet", "Edit | EditResult"]
"""One edit of an entry."""


RefreshEntities = Callable[[Sequence["Entity"], float], Awaitable[frozenset[str]]]
"""Refreshes entities from a Kafka cluster without ZooKeeper, until a deadline, so that the preconditions of a write are
compared with the configs of the cluster."""


class AlterService:
    """Runs edits. One instance serves all clusters of a process.

    Args:
        runner: Runs the changes.
        rules: By cluster and facet.
        refreshes: By cluster, the refresh of entities from its Kafka cluster before edits that depend on it.
        facts: Reads the facts of requests that rules depend on.
    """

    def __init__(
        self,
        runner: ChangeRunner,
        rules: Mapping[tuple[str, FacetName], AlterRules],
        refreshes: Mapping[str, RefreshEntities],
        facts: RuleFactsReader,
    ) -> None:
        self._runner = runner
        self._bulks = BulkRunner(runner)
        self.rules = rules
        self.refreshes = refreshes
        self._facts = facts
        self._results: Counter[tuple[str, str, str, str]] = Counter()

    def drafter(self, cluster_facet: ClusterFacet) -> Drafter:
        """Return the drafter of the edits of a cluster facet."""
        return self._rules_of(cluster_facet).drafter

    def _rules_of(self, cluster_facet: ClusterFacet) -> AlterRules:
        return self.rules[cluster_facet.store.name, cluster_facet.name]

    def policy_version(self, cluster_facet: ClusterFacet) -> str:
        """Return the version of the policies that are asked about edits of a cluster facet."""
        return self._rules_of(cluster_facet).policies.version

    async def alter(
        self,
        cluster_facet: ClusterFacet,
        edits: Sequence[Edit | EditResult],
        caller: Caller,
        *,
        validate_only: bool = False,
        atomic: bool = False,
    ) -> list[EditResult]:
        """Run edits of one facet and return one result each, in order: entries of one edit each.

        Args:
            cluster_facet: The facet of a cluster to alter.
            edits: The edits; an edit that could not even be formed stands as its failed result.
            caller: The caller.
            validate_only: As of :meth:`alter_entries`.
            atomic: As of :meth:`alter_entries`.
        """
        if validate_only:
            caller = replace(caller, validate_only=True)
        return await self._alter([(cluster_facet, edit) for edit in edits], [1] * len(edits), caller, atomic=atomic)

    async def alter_entries(
        self, entries: Sequence[Entry], caller: Caller, *, validate_only: bool = False, atomic: bool = False
    ) -> list[EntryResult]:
        """Run entries of one cluster and return one result each, in order.

        Args:
            entries: The entries.
            caller: The caller.
            validate_only: Go the same way up to the write, and return the results that the write would have.
            atomic: All in one transaction, one change, one revision; after a failure no other entry is attempted.

        Each edit has its own error, and after a failure no other edit of its entry is attempted. An edit of an entity
        that the caller may not alter fails with ForbiddenError, and an entity that several entries name fails in every
        place. Entries whose checks read each other's entity run in the order given: each is checked against the results
        of the entries before it.
        """
        if validate_only:
            caller = replace(caller, validate_only=True)
        sizes = [len(entry) for entry in entries]
        results = await self._alter([part for entry in entries for part in entry.items()], sizes, caller, atomic=atomic)
        return [EntryResult.of(some) for some in _split(results, sizes)]

    async def _alter(
        self, parts: list[FacetEdit], sizes: Sequence[int], caller: Caller, *, atomic: bool
    ) -> list[EditResult]:
        """Run the edits of entries, of which each has a number of edits; return one result for each edit, in order."""
        run = caller.run
        with span("authorize", edits=len(parts)) as current:
            if current.recorded:
                current.set(**_facts_of(parts))
            if run is not None or not caller.access.unlimited:
                parts = await in_slices(partial(_begun, caller), parts)
            parts = await self._refreshed(parts, caller)
            repeated = _repeated(some[0] for some in _split(parts, sizes)) if len(sizes) > 1 else frozenset()
            prepared = await in_slices(lambda part: self._prepare(part, repeated), parts)
        results = await self._run([prepared] if atomic else _split(prepared, sizes), caller)
        ended = list(zip(parts, results, strict=True))
        if run is not None:
            ended = [(part, result) for part, result in ended if result is not part[1]]
            run.record([result for _, result in ended])
        self._count(((part[0], result) for part, result in ended), caller)
        return results

    async def decide_entries(self, entries: Sequence[Entry], caller: Caller) -> Drafts:
        """Decide entries as one change that is not written, and return the drafts of their edits.

        Raises:
            ConfplaneError: The change would be refused.
        """
        parts = await self._refreshed([part for entry in entries for part in entry.items()], caller)
        repeated = _repeated(next(iter(entry.items())) for entry in entries)
        prepared = await in_slices(lambda part: self._prepare(part, repeated), parts)
        error = offender(each.error for each in prepared if isinstance(each, EditResult))
        if error is not None:
            raise error
        items = _runnable(prepared)
        caller = replace(caller, validate_only=True)
        [ended] = await self._run_changes([EntitiesChange(items, await self._facts.read(items, caller))], caller)
        if isinstance(ended, ConfplaneError):
            raise ended
        if ended.error is not None:
            raise ended.error
        return ended.decided

    async def _refreshed(self, parts: list[FacetEdit], caller: Caller) -> list[FacetEdit]:
        """Refresh the entities of edits from the Kafka cluster, one entity type at a time.

        These are conditional edits, and those that delete keys which only the Kafka cluster may know.

        Returns:
            The parts; such an edit is refused if its entity type can't be refreshed, or if it refuses unknown keys that
            the Kafka cluster does not have.
        """
        if not parts or (store := parts[0][0].store).target() is None:
            return parts
        dependent: dict[KraftEntityType, dict[str, Entity]] = {}
        for part in parts:
            if (edit := _dependent(part)) is not None:
                dependent.setdefault(kraft_type_of(edit.entity), {})[edit.entity.id] = edit.entity
        refused: dict[KraftEntityType, ConfplaneError] = {}
        hidden: set[str] = set()
        for entity_type, entities in dependent.items():
            try:
                hidden |= await self.refreshes[store.name](list(entities.values()), caller.deadline)
            except UnavailableError as error:
                refused[entity_type] = UnavailableError(
                    f"The conditions of this write can't be compared with the Kafka cluster now. {error.detail}",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
        return [_compared(part, refused, hidden) for part in parts] if dependent else parts

    async def rewrite(
        self,
        cluster_facet: ClusterFacet,
        edit: Edit,
        decide: DecideEntity,
        caller: Caller,
        *,
        validate_only: bool = False,
        policies: bool = True,
    ) -> tuple[EditResult, EntityDraft | None]:
        """Change one entity with a given decision.

        Args:
            cluster_facet: The facet of a cluster.
            edit: The entity; the edit's ops are ignored.
            decide: Decides each attempt.
            caller: The caller.
            validate_only: Go the same way up to the write, and return the result that the write would have.
            policies: Ask the alter policies and look for risks, as for any edit.

        Returns:
            The result, which may be an error, and the draft that was carried out.
        """
        rules = self._rules_of(cluster_facet)
        if not policies:
            rules = replace(rules, risks=None, policies=Policies())
        item = PreparedEdit(cluster_facet, edit, decide, rules)
        if validate_only:
            caller = replace(caller, validate_only=True)
        change = EntitiesChange([item], await self._facts.read([item], caller))
        [ended] = await self._run_changes([change], caller)
        [result] = change.results(ended)
        drafts: Drafts = [] if isinstance(ended, ConfplaneError) else ended.decided
        self._count([(cluster_facet, result)], caller)
        return result, drafts[0] if drafts else None

    def _count(self, results: Iterable[tuple[ClusterFacet, EditResult]], caller: Caller) -> None:
        """Count the results of edits, by Kafka's names of errors, and collect the refused ones."""
        refused = None if caller.validate_only else caller.refused
        for cluster_facet, result in results:
            if caller.bypass is not None:
                caller.bypass.record(result)
            if (error := result.error) is not None:
                if refused is not None:
                    refused.append(RefusedEdit(result.edit.entity.id, [op.key for op in result.edit.ops], error))
                ended = (error.outcome or WriteOutcome.NOT_APPLIED).value, error.code.name
            elif caller.validate_only:
                ended = "validated", _NONE
            else:
                ended = "unchanged" if result.change_id is None else "applied", _NONE
            self._results[cluster_facet.store.name, cluster_facet.name.value, *ended] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        # Without labels, because a counter that begins at 1 has no increase in Prometheus.
        unknown = (number for (_, _, outcome, _), number in self._results.items() if outcome == WriteOutcome.UNKNOWN)
        yield Sample("outcomes_unknown", sum(unknown))
        for labels, number in self._results.items():
            yield Sample("alter_results", number, labels)

    def _prepare(self, part: FacetEdit, repeated: frozenset[str]) -> PreparedEdit | EditResult:
        """Make every check that needs nothing stored."""
        cluster_facet, edit = part
        if isinstance(edit, EditResult):
            return edit
        rules = self._rules_of(cluster_facet)
        try:
            if edit.entity.id in repeated:
                raise InvalidRequestError(
                    f"{edit.entity.id} is named more than once in this request", pointer=edit.pointer
                )
            decide = rules.drafter.decide(cluster_facet, edit)
        except ConfplaneError as error:
            return EditResult(edit, error)
        return PreparedEdit(cluster_facet, edit, decide, rules)

    async def _run(self, prepared: Sequence[Sequence[PreparedEdit | EditResult]], caller: Caller) -> list[EditResult]:
        """Run changes, each of some edits; errors are in the results."""
        check = await self._facts.read([each for some in prepared for each in _runnable(some)], caller)

        def change_of(some: Sequence[PreparedEdit | EditResult]) -> EntitiesChange | None:
            items = _runnable(some)
            return EntitiesChange(items, check) if items and len(items) == len(some) else None

        changes = await in_slices(change_of, prepared)
        to_run = [change for change in changes if change is not None]
        # Each end is freed with its result, and not thousands of them at once.
        ends: deque[ChangeRun[Drafts] | ConfplaneError] = deque()
        if to_run:
            store = to_run[0].items[0].cluster_facet.store
            if caller.bypass is not None:
                caller.bypass.include(item.edit.entity.id for change in to_run for item in change.items)
                more = (entity.id for _, entity in caller.altered)
                allows = partial(caller.access.allows, store.name, Operation.ALTER_CONFIGS)
                caller.bypass.include(filter(allows, more))
            ends.extend(await self._run_changes(to_run, caller))

        def results_of(some: Sequence[PreparedEdit | EditResult], change: EntitiesChange | None) -> list[EditResult]:
            return _without_run(some) if change is None else change.results(ends.popleft())

        results = await in_slices(lambda found: results_of(*found), zip(prepared, changes, strict=True))
        return [result for some in results for result in some]

    async def _run_changes(
        self, changes: Sequence[EntitiesChange], caller: Caller
    ) -> list[ChangeRun[Drafts] | ConfplaneError]:
        """Run the changes of one request, at least one, and return the end or error of each, in order.

        One change alone shares a transaction with changes of other callers. Several are sent in loads that share
        transactions with each other (services/changes/bulk.py).

        Raises:
            Exception: A fault of a change, once all changes under way have ended.
        """
        store = changes[0].items[0].cluster_facet.store
        if len(changes) > 1:
            return await self._bulks.run(store, changes, caller)
        [change] = changes
        try:
            caller.check_in_time()
            return [await self._runner.run(store, change.job(), caller)]
        except ConfplaneError as error:
            return [error]


def _begun(caller: Caller, part: FacetEdit) -> FacetEdit:
    """Return a part, refused if the caller may not alter the entity, or with the result of an earlier run.

    A stored result of an Idempotency-Key is one more answer that needs the grant. An edit that an earlier run of the
    same request applied is not run again.
    """
    cluster_facet, edit = part
    if isinstance(edit, EditResult):
        return part
    try:
        caller.require(cluster_facet.store.name, Operation.ALTER_CONFIGS, edit.entity.id, pointer=edit.pointer)
    except ForbiddenError as error:
        return cluster_facet, EditResult(edit, error)
    found = None if caller.run is None else caller.run.result(cluster_facet, edit)
    return part if found is None else (cluster_facet, found)


def _facts_of(parts: Sequence[FacetEdit]) -> dict[str, list[str]]:
    """Return the cluster, the facets and the entity types of edits, each once."""
    edits = [edit if isinstance(edit, Edit) else edit.edit for _, edit in parts]
    return {
        "cluster": sorted({cluster_facet.store.name for cluster_facet, _ in parts}),
        "facets": sorted({cluster_facet.name.value for cluster_facet, _ in parts}),
        "entity_types": sorted({",".join(each.value for each in edit.entity.types) for edit in edits}),
    }


def _dependent(part: FacetEdit) -> Edit | None:
    """Return an edit that depends on the Kafka cluster; None for others, and for client configs, which it never has."""
    cluster_facet, edit = part
    if not isinstance(edit, Edit) or cluster_facet.name is FacetName.CLIENT_CONFIGS:
        return None
    return edit if edit.is_conditional or deleted_unknown_keys(cluster_facet, edit) else None


def _compared(part: FacetEdit, refused: Mapping[KraftEntityType, ConfplaneError], hidden: Collection[str]) -> FacetEdit:
    """Return a part after the refresh: refused if its entity type has an error, or with the keys that it deletes."""
    edit = _dependent(part)
    if edit is None:
        return part
    if (error := refused.get(kraft_type_of(edit.entity))) is not None:
        return part[0], EditResult(edit, error)
    unknown = deleted_unknown_keys(part[0], edit)
    reported = frozenset(key for key in unknown if f"{edit.entity.id} {key}" in hidden)
    if edit.refuses_unknown:
        for op in edit.ops:
            if op.key in unknown and op.key not in reported:
                return part[0], EditResult(edit, unknown_key_error(edit.entity, op.key, op.pointer))
    return part[0], replace(edit, reported=reported)


def _runnable(items: Sequence[PreparedEdit | EditResult]) -> list[PreparedEdit]:
    return [item for item in items if isinstance(item, PreparedEdit)]


def _without_run(items: Sequence[PreparedEdit | EditResult]) -> list[EditResult]:
    """Return the results of a change that is not run: an edit of it can't be, or an earlier run applied it."""
    known = [item for item in items if isinstance(item, EditResult)]
    if len(known) == len(items) and all(item.error is None for item in known):
        return known
    return [
        item if isinstance(item, EditResult) and item.error is not None else EditResult(item.edit, not_attempted())
        for item in items
    ]


def _split(items: Iterable[T], sizes: Iterable[int]) -> list[list[T]]:
    """Return the items of each entry."""
    left = iter(items)
    return [list(islice(left, size)) for size in sizes]


def _repeated(parts: Iterable[FacetEdit]) -> frozenset[str]:
    """Return the ids of the entities of more than one entry, given a part of each, also of one that was not formed."""
    entities = (edit.entity if isinstance(edit, Edit) else edit.edit.entity for _, edit in parts)
    # An edit from which no entity could be made has an entity without components.
    named = Counter(entity.id for entity in entities if entity.components)
    return frozenset(name for name, times in named.items() if times > 1)
