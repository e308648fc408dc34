"""Alter: edits of entities, each in a change of its own, or all in one change (``atomic``).

The caller's grants are asked first: an edit of an entity that the caller may not alter fails before anything is looked
up. Any other edit is encoded once, and decided by its facet's drafter against each node that is read; the runner does
the rest (:mod:`app.services.changes.runner`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from app.domain.access.operations import Operation
from app.domain.changes import Node
from app.domain.entities import Entity, EntityType
from app.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    KafkaCode,
    NotAttemptedError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from app.domain.facets import full_path
from app.services.changes.bulk import Bulk, Planned, Rooms
from app.services.changes.draft import Draft, Unchanged
from app.services.changes.edits import Edit, EditResult, EntityDraft
from app.services.changes.order import chains
from app.services.changes.runner import Job
from app.services.collections import Collection
from app.services.metrics import Sample
from app.services.pace import Pace, in_slices
from app.services.policies import Policies, PolicyRequest
from app.services.reads.config_levels import NOTHING_PLANNED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from app.domain.facets import FacetName, Tree
    from app.services.changes.bulk import Waiting
    from app.services.changes.callers import Caller
    from app.services.changes.change import Ended
    from app.services.changes.edits import Drafter
    from app.services.changes.runner import ChangeRunner

DecideEntity = Callable[[Collection, Node | None, Planned], Awaitable[EntityDraft]]
"""Decides one entity's draft from its collection, the node as read, and the maps planned before it."""

_Prepared = tuple[Edit, DecideEntity]

_NONE: Final = KafkaCode.NONE.name
_REMADE: Final = (
    "Others deleted the znode and made it again during this change; what they wrote into it was overwritten"
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The drafter and the policies of one collection."""

    drafter: Drafter[Any]
    policies: Policies = field(default_factory=Policies)


class AlterService:
    """Runs edits. One instance serves all clusters of a process.

    Args:
        runner: Runs the changes.
        rules: By cluster and facet.
    """

    def __init__(self, runner: ChangeRunner, rules: Mapping[tuple[str, FacetName], Rules]) -> None:
        self._runner = runner
        self._rules = rules
        self._rooms = Rooms()
        self._results: Counter[tuple[str, str, str, str]] = Counter()

    def drafter(self, collection: Collection) -> Drafter[Any]:
        """Return the drafter of a collection's edits."""
        return self._rules[collection.store.name, collection.name].drafter

    async def alter(
        self,
        collection: Collection,
        edits: Sequence[Edit | EditResult],
        caller: Caller,
        *,
        validate_only: bool = False,
        atomic: bool = False,
    ) -> list[EditResult]:
        """Run edits and return one result each, in order.

        Args:
            collection: The facet of a cluster to alter.
            edits: The edits; an edit that could not even be formed stands as its failed result.
            caller: The caller.
            validate_only: Go the same way up to the write, and return the results that the write would have.
            atomic: All in one transaction, one change, one revision; after a failure no other edit is attempted.

        Each result has its own error. An edit of an entity that the caller may not alter fails with ForbiddenError, and
        an entity named twice fails in every place. Edits whose checks read each other's entity run in the order given:
        each is checked against the results of the edits before it.
        """
        # Ahead of all else: a stored result of an Idempotency-Key is one more answer that needs the grant.
        if caller.run is not None or not caller.access.unlimited:
            edits = await in_slices(partial(_permitted, collection, caller), edits)
        run = caller.run
        if run is None:
            results = await self._alter(collection, edits, caller, validate_only=validate_only, atomic=atomic)
            self._count(collection, results, validate_only=validate_only)
            return results
        # Edits that an earlier run of the same request applied are not run again.
        given = [edit if isinstance(edit, EditResult) else run.result(collection, edit) or edit for edit in edits]
        if atomic and all(isinstance(edit, EditResult) and edit.error is None for edit in given):
            return [edit for edit in given if isinstance(edit, EditResult)]
        results = await self._alter(collection, given, caller, validate_only=validate_only, atomic=atomic)
        done = [result for result, edit in zip(results, given, strict=True) if result is not edit]
        run.note(done)
        self._count(collection, done, validate_only=validate_only)
        return results

    async def rewrite(
        self,
        collection: Collection,
        edit: Edit,
        decide: DecideEntity,
        caller: Caller,
        *,
        validate_only: bool = False,
        policies: bool = True,
    ) -> tuple[EditResult, EntityDraft | None]:
        """Change one entity with a given decision.

        Args:
            collection: The facet of a cluster.
            edit: The entity; the edit's ops are ignored.
            decide: Decides each attempt.
            caller: The caller.
            validate_only: Go the same way up to the write, and return the result that the write would have.
            policies: Ask the alter policies, as for any edit.

        Returns:
            The result, which may be an error, and the draft that was carried out.
        """
        asked = self._rules[collection.store.name, collection.name].policies if policies else Policies()
        [result], drafts = await self._change(collection, [(edit, decide)], caller, asked, validate_only=validate_only)
        self._count(collection, [result], validate_only=validate_only)
        return result, drafts[0] if drafts else None

    def _count(self, collection: Collection, results: Sequence[EditResult], *, validate_only: bool) -> None:
        """Count the results of edits, by Kafka's names of errors."""
        cluster, facet = collection.store.name, collection.name.value
        for result in results:
            if (error := result.error) is not None:
                ended = (error.outcome or WriteOutcome.NOT_APPLIED).value, error.code.name
            elif validate_only:
                ended = "validated", _NONE
            else:
                ended = "unchanged" if result.change_id is None else "applied", _NONE
            self._results[cluster, facet, *ended] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        for labels, number in self._results.items():
            yield Sample("alter_results", number, labels)

    async def _alter(
        self,
        collection: Collection,
        edits: Sequence[Edit | EditResult],
        caller: Caller,
        *,
        validate_only: bool,
        atomic: bool,
    ) -> list[EditResult]:
        rules = self._rules[collection.store.name, collection.name]
        repeated = _repeated(edits) if len(edits) > 1 else frozenset()
        prepared = await in_slices(lambda edit: _prepare(collection, rules.drafter, edit, repeated), edits)

        items = [item for item in prepared if not isinstance(item, EditResult)]
        if atomic and len(items) < len(prepared):
            return [_refused_with(item) for item in prepared]
        if atomic or len(prepared) == len(items) == 1:
            results, _ = await self._change(collection, items, caller, rules.policies, validate_only=validate_only)
            return results
        return await self._one_by_one(collection, prepared, caller, rules.policies, validate_only=validate_only)

    async def _change(
        self,
        collection: Collection,
        items: Sequence[_Prepared],
        caller: Caller,
        policies: Policies,
        *,
        validate_only: bool,
    ) -> tuple[list[EditResult], list[EntityDraft]]:
        """Run one change of one entity or several; errors are in the results."""
        if not items:
            return [], []
        edits = [edit for edit, _ in items]
        try:
            caller.check_in_time()
            change = _EntitiesChange(collection.placed(), items, caller, policies, validate_only=validate_only)
            ended = await self._runner.run(
                collection.store, change.decide, caller, paths=change.paths, validate_only=validate_only
            )
        except ConfplaneError as error:
            return _failed(error, edits), []
        return _results(ended, edits), ended.decided.drafts

    async def _one_by_one(
        self,
        collection: Collection,
        prepared: Sequence[_Prepared | EditResult],
        caller: Caller,
        policies: Policies,
        *,
        validate_only: bool,
    ) -> list[EditResult]:
        """Run each edit in a change of its own; errors are in the results."""
        results = {position: item for position, item in enumerate(prepared) if isinstance(item, EditResult)}
        to_run = {position: item for position, item in enumerate(prepared) if not isinstance(item, EditResult)}

        async def send(load: Sequence[Waiting]) -> None:
            def told(number: int, ended: Ended[_Decided] | Exception) -> None:
                position = load[number].position
                edit, _ = to_run[position]
                if isinstance(ended, Exception) and not isinstance(ended, ConfplaneError):
                    bulk.failed(ended)
                    return
                [result] = _failed(ended, [edit]) if isinstance(ended, Exception) else _results(ended, [edit])
                results[position] = result
                bulk.ended(position, (edit.entity.id, result.after) if result.error is None else None)

            try:
                async with self._rooms.room(collection.store.name, len(load), caller.deadline):
                    caller.check_in_time()
                    placed = collection.placed()
                    changes = (
                        _EntitiesChange(placed, [to_run[at]], caller, policies, planned, validate_only=validate_only)
                        for at, planned in load
                    )
                    jobs = [Job(change.decide, change.paths) for change in changes]
                    await self._runner.run_together(collection.store, jobs, caller, told, validate_only=validate_only)
            except ConfplaneError as error:
                for number in range(len(load)):
                    told(number, error)

        of_entities = ((position, edit.entity) for position, (edit, _) in to_run.items())
        bulk = Bulk(chains(collection.facet, of_entities))
        await bulk.run(send)
        return [results[position] for position in range(len(prepared))]


@dataclass(frozen=True, slots=True)
class _Decided:
    """The drafts of the entries, up to the first that failed."""

    tree: Tree
    drafts: list[EntityDraft]


class _EntitiesChange:
    """One change of entities; decided at each attempt."""

    def __init__(
        self,
        collection: Collection,
        items: Sequence[_Prepared],
        caller: Caller,
        policies: Policies,
        planned: Planned = NOTHING_PLANNED,
        *,
        validate_only: bool,
    ) -> None:
        self._collection = collection
        self._items = items
        self._caller = caller
        self._policies = policies
        self._planned = planned
        self._validate_only = validate_only
        self.paths = [full_path(collection.tree, edit.entity) for edit, _ in items]

    async def decide(self, *, again: bool) -> Draft[_Decided] | Unchanged[_Decided]:
        """Decide one attempt; see :data:`~app.services.changes.draft.Decide`."""
        collection, nodes = await self._read(again=again)
        drafts: list[EntityDraft] = []
        planned = dict(self._planned)
        pace = Pace()
        for (edit, decide), node in zip(self._items, nodes, strict=True):
            if pace.due:
                await pace.rest()
            try:
                if isinstance(node, UnavailableError):
                    raise node
                draft = await decide(collection, node, planned)
                if draft.diff and node is None:
                    _check_new(collection, edit)
                if draft.diff and self._policies:
                    self._check_policies(collection, draft)
            except ConfplaneError as error:
                return self._unchanged(collection, drafts, nodes[: len(drafts) + 1], error)
            planned[edit.entity.id] = draft.after
            drafts.append(draft)
        changed = [draft for draft in drafts if draft.diff]
        if not changed:
            return self._unchanged(collection, drafts, nodes, None)
        return Draft(
            _Decided(collection.tree, drafts),
            writes=tuple(draft.write(collection) for draft in changed),
            entities=tuple(draft.intent(collection) for draft in changed),
            answers=() if self._caller.run is None else tuple(draft.answer(collection) for draft in drafts),
            layout=collection.layout,
        )

    async def _read(self, *, again: bool) -> tuple[Collection, Sequence[Node | UnavailableError | None]]:
        if not again:
            return self._collection, [self._collection.get(edit.entity.id) for edit, _ in self._items]
        # Client configs may have moved to the other tree.
        collection = self._collection.placed()
        entities = [edit.entity for edit, _ in self._items]
        return collection, await collection.store.read_many(collection.tree, entities, self._caller.deadline)

    def _unchanged(
        self,
        collection: Collection,
        drafts: list[EntityDraft],
        nodes: Sequence[Node | UnavailableError | None],
        error: ConfplaneError | None,
    ) -> Unchanged[_Decided]:
        seen = tuple(
            (collection.tree, edit.entity, None if node is None else node.version)
            for (edit, _), node in zip(self._items, nodes, strict=False)
            if not isinstance(node, UnavailableError)
        )
        return Unchanged(_Decided(collection.tree, drafts), error, seen, collection.layout)

    def _check_policies(self, collection: Collection, draft: EntityDraft) -> None:
        entity, after = draft.edit.entity, draft.after
        before = {} if draft.node is None else draft.node.config
        redact, tree = collection.redact, collection.tree
        shown = redact(tree, entity.id, after)
        changed = {difference.key for difference in draft.diff}
        owns = collection.facet.owns
        self._policies.check(
            PolicyRequest(
                cluster=collection.store.name,
                principal=self._caller.principal,
                facet=collection.name.value,
                entity=entity,
                set={key: shown[key] for key in changed & after.keys()},
                removed=frozenset(changed - after.keys()),
                before={key: value for key, value in redact(tree, entity.id, before).items() if owns(entity, key)},
                after={key: value for key, value in shown.items() if owns(entity, key)},
                validate_only=self._validate_only,
                pointers={op.key: op.pointer for op in draft.edit.ops if op.pointer is not None},
                behalf_of=self._caller.behalf_of,
            )
        )


def _permitted(collection: Collection, caller: Caller, edit: Edit | EditResult) -> Edit | EditResult:
    """Return an edit, or its refusal where the caller may not alter its entity."""
    if isinstance(edit, Edit):
        try:
            caller.require(collection.store.name, Operation.ALTER_CONFIGS, edit.entity.id, pointer=edit.pointer)
        except ForbiddenError as error:
            return EditResult(edit, error)
    return edit


def _prepare(
    collection: Collection, drafter: Drafter[Any], edit: Edit | EditResult, repeated: frozenset[str]
) -> _Prepared | EditResult:
    """Make every check that needs nothing stored."""
    if isinstance(edit, EditResult):
        return edit
    try:
        if edit.entity.id in repeated:
            raise InvalidRequestError(f"{edit.entity.id} is named more than once in this request", pointer=edit.pointer)
        collection.placed()
        return edit, partial(_draft, drafter, edit, drafter.encode(collection, edit))
    except ConfplaneError as error:
        return EditResult(edit, error)


async def _draft(
    drafter: Drafter[Any],
    edit: Edit,
    encoded: Any,
    collection: Collection,
    node: Node | None,
    planned: Planned,
) -> EntityDraft:
    return await drafter.draft(collection, edit, encoded, node, planned=planned)


def _check_new(collection: Collection, edit: Edit) -> None:
    """Refuse names that are too long for new znodes: the entity's, and its user's where that is absent too."""
    entity = edit.entity
    user = Entity(entity.components[:1])
    known = len(entity.components) > 1 and collection.store.get(collection.tree, user.id) is not None
    (Entity(entity.components[1:]) if known else entity).check_new(pointer=edit.pointer)


def _results(ended: Ended[_Decided], edits: Sequence[Edit]) -> list[EditResult]:
    tree, drafts = ended.decided.tree, ended.decided.drafts
    if ended.error is not None:
        return [
            EditResult(edit, ended.error if index == len(drafts) else _not_attempted())
            for index, edit in enumerate(edits)
        ]
    committed = ended.committed
    if committed is None:
        return [_result(draft, draft.node, ended.revision) for draft in drafts]
    nodes = iter(committed.nodes)
    results = []
    for draft in drafts:
        if not draft.diff:
            results.append(_result(draft, draft.node, committed.revision))
            continue
        remade = bool(committed.remade) and full_path(tree, draft.edit.entity) in committed.remade
        results.append(_result(draft, next(nodes), committed.revision, ended.change_id, remade=remade))
    return results


def _result(
    draft: EntityDraft, node: Node | None, revision: int | None, change_id: UUID | None = None, *, remade: bool = False
) -> EditResult:
    """Return the result of an edit; ``revision`` is None where the edit was only validated."""
    return EditResult(
        draft.edit,
        change_id=None if change_id is None else str(change_id),
        revision=revision if revision is None or node is None else node.mzxid,
        diff=draft.diff,
        warnings=(*draft.warnings, _REMADE) if remade else draft.warnings,
        node=node,
        created=draft.created,
        after=draft.after,
    )


def _refused_with(item: _Prepared | EditResult) -> EditResult:
    """Return the result of an entry in an atomic batch with another entry that could not even be formed."""
    if isinstance(item, EditResult):
        return item if item.error is not None else EditResult(item.edit, _not_attempted())
    return EditResult(item[0], _not_attempted())


def _failed(error: ConfplaneError, edits: Sequence[Edit]) -> list[EditResult]:
    """Return the results of the edits of a change that ended with an error."""
    if isinstance(error, UnknownTopicError):
        return [EditResult(edit, _of_topic(error, edit)) for edit in edits]
    return [EditResult(edit, error) for edit in edits]


def _of_topic(error: UnknownTopicError, edit: Edit) -> ConfplaneError:
    """Return the error of one edit for an absent topic: its own, or that of another edit in its batch."""
    if edit.entity.get(EntityType.TOPIC) not in error.topics:
        return _not_attempted()
    return UnknownTopicError(error.detail, topics=error.topics, pointer=edit.pointer, outcome=error.outcome)


def _not_attempted() -> NotAttemptedError:
    return NotAttemptedError(
        "Another entry of this atomic batch failed; nothing was applied", outcome=WriteOutcome.NOT_APPLIED
    )


def _repeated(edits: Sequence[Edit | EditResult]) -> frozenset[str]:
    """Return the ids of the entities that are named more than once, also by edits that could not be formed."""
    entities = [edit.entity if isinstance(edit, Edit) else edit.edit.entity for edit in edits]
    # An edit from which no entity could be made has an entity without components.
    named = Counter(entity.id for entity in entities if entity.components)
    return frozenset(name for name, times in named.items() if times > 1)
