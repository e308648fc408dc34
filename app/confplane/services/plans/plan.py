"""Plans of manifests.

A plan is the validation of an alter: the entities of the document become edits, which go the same way up to the write
as any other (:meth:`confplane.services.changes.alter.AlterService.alter_entries`). The id of a plan is a digest of all
that its decisions rest on, so that an apply can tell whether they still hold.

A facet that an entity of the document names has exactly the keys of the document afterwards, and those of other owners;
other facets stay. If the document is merged, all other keys stay. With an owner, the keys of the document are its own
afterwards (services/plans/owners.py).
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    StalePlanError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.services.access import unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult, offender, password_op
from confplane.services.cooperative_yielding import TimeSlice, in_slices
from confplane.services.plans.bases import Bases, Basis, BegunPlan, base_of
from confplane.services.plans.details import completed
from confplane.services.plans.owners import (
    PRUNED,
    check_forced,
    claimed_keys,
    claiming,
    deletion,
    deletion_of_owner,
    owners_of,
)
from confplane.services.plans.planned import Plan, PlannedEdit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from confplane.domain.ownership import Ownership
    from confplane.services.access import Access
    from confplane.services.changes.alter import AlterService, Entry, FacetEdit
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.plans.bases import Base
    from confplane.services.plans.owners import OwnedBases, OwnershipReader
    from confplane.services.plans.planned import PlanOptions

_SHARE: Final = 5
"""One of so many entities of the owner, or of the scope, may be deleted by default."""


class PlanService:
    """Makes plans. Stores nothing. One instance serves all clusters of a process.

    Args:
        alter: Validates the edits.
        owners: Reads the owners of keys.
    """

    def __init__(self, alter: AlterService, owners: OwnershipReader) -> None:
        self._alter = alter
        self._owners = owners

    async def plan(
        self,
        cluster: Cluster,
        document: Sequence[Entry],
        options: PlanOptions,
        caller: Caller,
        *,
        begun: BegunPlan | None = None,
        policies: str | None = None,
    ) -> Plan:
        """Plan a document. The caller needs to describe each entity, and to alter none.

        Args:
            cluster: The cluster.
            document: The entities of the document, each once, with edits of the mode REPLACE, or MERGE.
            options: The options.
            caller: The caller.
            begun: The plan as it was when it was begun to be applied. Its bases name the entities that it deletes.
            policies: The version of the policies that the id of the plan covers; None for the present one. Its edits
                are decided by the present policies in any case.

        Raises:
            InvalidRequestError: The cluster has no owners, or a forced key is not in the document.
            UnavailableError: A store or the cluster is unavailable, so the plan can't be known.
        """
        revision = cluster.store.status().revision
        readable = await in_slices(partial(_readable, caller.access), document)
        owned: OwnedBases = {}
        if options.owner is not None:
            await self._owners.check(cluster, caller.deadline)
            check_forced(options, document)
            owned = await self._owners.exact(cluster, _edited(readable), caller.deadline)
            readable = await in_slices(partial(_claiming, owned, options), readable)
        pruned, total = await self._deletions(cluster, readable, options, caller, begun)
        if options.owner is not None:
            owned |= await self._owners.exact(cluster, map(_place, pruned), caller.deadline)
            pruned = await in_slices(partial(_of_owner, owned, options), pruned)
        entries = _joined(readable, pruned)
        planner = Caller(
            unrestricted(caller.access), caller.deadline, approvals=caller.approvals, break_glass=caller.break_glass
        )
        results = await self._alter.alter_entries(entries, planner, validate_only=True)
        planned: list[tuple[PlannedEdit, ...]] = []
        time_slice = TimeSlice()
        named = {_key(part) for entry in readable for part in entry.items()}
        for entry, result in zip(entries, results, strict=True):
            planned.append(
                tuple(
                    [
                        _planned(
                            part, each, owned.get(_key(part)), pruned=_key(part) not in named, access=caller.access
                        )
                        for part, each in zip(entry.items(), result.results, strict=True)
                    ]
                )
            )
            if time_slice.due:
                await time_slice.pause()
        planned = await completed(cluster, planned, caller.access)
        refusal = None
        if begun is None:
            refusal = _too_many(planned, total, options, is_empty=not document)
            if refusal is None and options.atomic:
                refusal = await self._refused_together(planned, planner)
        if begun is not None:
            policies = begun.policies
        elif policies is None:
            policies = self._alter.policy_version(cluster.facets[FacetName.CONFIGS])
        plan_id = await _digest(cluster, options, planned, policies, begun)
        return Plan(plan_id, revision, planned, refusal, policies)

    async def _deletions(
        self,
        cluster: Cluster,
        document: Sequence[Entry],
        options: PlanOptions,
        caller: Caller,
        begun: BegunPlan | None,
    ) -> tuple[list[FacetEdit], int]:
        """Return the deletions, and the number of the entities that the owner or the scope has."""
        access = caller.access
        if begun is not None:
            return _begun(cluster, document, begun.bases, access), 0
        if not options.prune:
            return [], 0
        named = {_key(part) for entry in document for part in entry.items()}
        found: list[FacetEdit] = []
        present: set[str] = set()
        async for cluster_facet, entity in self._prunable(cluster, options, caller):
            present.add(entity.id)
            if (cluster_facet.name, entity.id) not in named:
                found.append((cluster_facet, deletion(entity)))
        return found, len(present)

    async def _prunable(
        self, cluster: Cluster, options: PlanOptions, caller: Caller
    ) -> AsyncIterator[tuple[ClusterFacet, Entity]]:
        """Yield the entities that the owner or the scope has and the caller may describe, by facet."""
        scope, access = options.scope, caller.access
        if options.owner is not None:
            async for cluster_facet, entity in self._owners.of_owner(cluster, options, caller.deadline):
                if access.allows(cluster.name, Operation.DESCRIBE_CONFIGS, entity.id):
                    yield cluster_facet, entity
        elif scope is not None:
            for cluster_facet in cluster.facets.values():
                for node in await cluster_facet.visible_to(access).moment(prefix=scope.id_prefix):
                    entity = Entity.from_id(node.id)
                    if scope.has(entity):
                        yield cluster_facet, entity

    async def _refused_together(
        self, planned: Sequence[Sequence[PlannedEdit]], planner: Caller
    ) -> ConfplaneError | None:
        """Return the reason why edits that can be made one by one can't be made in one transaction."""
        if any(each.result.error is not None for entry in planned for each in entry):
            return None
        entries = [{each.cluster_facet: each.result.edit for each in entry if each.has_effect} for entry in planned]
        results = await self._alter.alter_entries(
            [entry for entry in entries if entry], planner, validate_only=True, atomic=True
        )
        return offender(result.error for result in results)


def _key(part: FacetEdit) -> tuple[FacetName, str]:
    cluster_facet, edit = part
    return cluster_facet.name, (edit if isinstance(edit, Edit) else edit.edit).entity.id


def _readable(access: Access, entry: Entry) -> Entry:
    """Return an entity of the document, refused if the caller may not describe it.

    A password of a broker needs the right to alter the broker. A plan that compared it with the stored one, or showed
    its fingerprint, would allow readers to guess stored passwords.
    """
    made: dict[ClusterFacet, Edit | EditResult] = dict(entry)
    for cluster_facet, edit in entry.items():
        if isinstance(edit, Edit):
            name, entity_id = cluster_facet.store.name, edit.entity.id
            try:
                access.require(name, Operation.DESCRIBE_CONFIGS, entity_id, pointer=edit.pointer)
                if (secret := password_op(cluster_facet, edit)) is not None:
                    access.require(name, Operation.ALTER_CONFIGS, entity_id, pointer=secret.pointer)
            except ForbiddenError as error:
                made[cluster_facet] = EditResult(edit, error)
    return made


def _edited(document: Sequence[Entry]) -> list[tuple[ClusterFacet, str]]:
    return [(each, edit.entity.id) for entry in document for each, edit in entry.items() if isinstance(edit, Edit)]


def _claiming(owned: OwnedBases, options: PlanOptions, entry: Entry) -> Entry:
    """Return an entity of the document that claims its keys."""
    return {
        cluster_facet: claiming(cluster_facet, edit, owned[cluster_facet.name, edit.entity.id][1], options)
        if isinstance(edit, Edit)
        else edit
        for cluster_facet, edit in entry.items()
    }


def _of_owner(owned: OwnedBases, options: PlanOptions, part: FacetEdit) -> FacetEdit:
    """Return the deletion of the keys of the owner."""
    cluster_facet, entity_id = _place(part)
    return cluster_facet, deletion_of_owner(cluster_facet, entity_id, owned[_key(part)][1], options)


def _place(part: FacetEdit) -> tuple[ClusterFacet, str]:
    return part[0], _key(part)[1]


def _begun(cluster: Cluster, document: Sequence[Entry], bases: Bases, access: Access) -> list[FacetEdit]:
    """Return the deletions of a plan that was begun to be applied, without entities that the caller may not describe.

    The bases are those of another caller, perhaps. A plan that lacks some of them has another id.
    """
    named = {_key(part) for entry in document for part in entry.items()}
    return [
        (cluster.facets[name], deletion(Entity.from_id(entity_id)))
        for name, entity_id in bases
        if (name, entity_id) not in named and access.allows(cluster.name, Operation.DESCRIBE_CONFIGS, entity_id)
    ]


def _joined(document: Sequence[Entry], pruned: Sequence[FacetEdit]) -> list[Entry]:
    """Return all entries of a plan: a deletion in another facet of an entity of the document is part of its entry."""
    found: dict[str, dict[ClusterFacet, Edit | EditResult]] = {}
    apart: list[Entry] = []
    for entry in document:
        entity_id = _key(next(iter(entry.items())))[1]
        if entity_id and entity_id not in found:
            found[entity_id] = dict(entry)
        else:
            apart.append(entry)
    for part in pruned:
        found.setdefault(_key(part)[1], {}).update([part])
    return [*found.values(), *apart]


def _planned(
    part: FacetEdit, result: EditResult, owned: tuple[Base, Ownership] | None, *, pruned: bool, access: Access
) -> PlannedEdit:
    """Return the plan of one edit.

    Raises:
        UnavailableError: The edit could not be decided.
    """
    cluster_facet, edit = part[0], result.edit
    error = result.error
    if isinstance(error, UnavailableError):
        raise error
    node = result.node
    if error is not None:
        # The pointer of a key that the document does not have leads to the entity.
        if error.pointer is not None and not error.pointer.startswith(("/entities/", PRUNED)):
            error.pointer = edit.pointer
        node = (
            None
            if isinstance(error, ForbiddenError) or not edit.entity.components
            else cluster_facet.get(edit.entity.id)
        )
    elif owned is not None and base_of(node) != owned[0]:
        error = StalePlanError(
            f"{edit.entity.id} was changed while the plan was made; make it again", outcome=WriteOutcome.NOT_APPLIED
        )
        result = EditResult(edit, error)
    name = cluster_facet.store.name
    may_alter = not edit.entity.components or access.allows(name, Operation.ALTER_CONFIGS, edit.entity.id)
    owners = {} if owned is None else owners_of(cluster_facet, edit.entity, owned[1])
    claimed = claimed_keys(edit, owners)
    taken = {owner for owner in claimed.values() if owner is not None}
    may_alter = may_alter and all(
        access.allows(name, Operation.TAKE_OVER, spell(ResourceType.MANIFESTS, owner)) for owner in taken
    )
    basis = Basis(base_of(node), owners)
    return PlannedEdit(cluster_facet, result, basis, pruned, may_alter, claimed=claimed)


def _too_many(
    planned: Sequence[Sequence[PlannedEdit]], total: int, options: PlanOptions, *, is_empty: bool
) -> ConfplaneError | None:
    """Return the refusal of a plan that deletes too many entities."""
    deleted = sum(any(each.pruned and each.result.diff for each in entry) for entry in planned)
    most = options.max_deletes
    if most is None:
        most = 0 if is_empty else max(1, total // _SHARE)
    if deleted <= most:
        return None
    return InvalidRequestError(
        f"The plan deletes configs of {deleted} of the {total} entities {_space(options)}, and maxDeletes is {most}"
        + (", as for any document without entities" if options.max_deletes is None and is_empty else "")
        + ". Check the document and the scope, then set maxDeletes if this is intended",
        pointer="/maxDeletes",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _space(options: PlanOptions) -> str:
    """Return the entities that a plan may delete, as part of a sentence."""
    if options.owner is None:
        return "in the scope"
    return f"of {options.owner}" if options.scope is None else f"of {options.owner} in the scope"


async def _digest(
    cluster: Cluster,
    options: PlanOptions,
    planned: Sequence[Sequence[PlannedEdit]],
    policies: str,
    begun: BegunPlan | None,
) -> str:
    """Return the id of a plan. The values of secrets are represented by their keyed fingerprints."""
    digest = hashlib.sha256()
    bases = None if begun is None else begun.bases

    def add(content: Any) -> None:
        digest.update(json.dumps(content).encode() + b"\n")

    release = cluster.facets[FacetName.CONFIGS].catalog.release
    scope = None if options.scope is None else str(options.scope)
    add([1, cluster.name, str(release), options.atomic, scope, options.max_deletes])
    if policies:
        add([policies])
    if options.merge:
        add(["merge"])
    if options.owner is not None:
        add([options.owner, sorted(options.labels.items()), sorted(options.forced), options.prune])

    def add_edit(each: PlannedEdit) -> None:
        edit, facet = each.result.edit, each.cluster_facet.facet
        place = (facet.name, each.entity.id)
        basis = each.basis if bases is None else bases.get(place, Basis(None))
        # The values of refused edits do not matter: their plan can't be applied. But a plan that was begun continues
        # with an edit that is refused by now.
        decided = each.result.error is None or (bases is not None and place in bases)
        values: dict[str, Any] = {}
        for op in edit.ops:
            shown = decided and not facet.is_secret(edit.entity, op.key)
            values[op.key] = op.value if shown else [each.fingerprints.get(op.key), op.value is None]
        # A deletion has the keys that are left; the owners tell which keys it had in the beginning.
        given = [] if each.pruned else sorted(values.items())
        owners = [] if options.owner is None else [sorted(basis.owners.items())]
        add([edit.entity.id, facet.name.value, each.pruned, basis.base, given, *owners])

    by_place = sorted(
        (each for entry in planned for each in entry), key=lambda each: (each.entity.id, each.cluster_facet.name.value)
    )
    await in_slices(add_edit, by_place)
    return digest.hexdigest()[:40]
