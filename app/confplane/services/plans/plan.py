"""Plans of manifests.

A plan is the validation of an alter: the entities of the document become edits, which go the same way up to the write
as any other (:meth:`confplane.services.changes.alter.AlterService.alter_entries`). The id of a plan is a digest of all
that its decisions rest on, so that an apply can tell whether they still hold.

A facet that an entity of the document names has exactly the keys of the document afterwards; other facets stay.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.domain.access.operations import Operation
from confplane.domain.changes import stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    ConfplaneError,
    ForbiddenError,
    InvalidRequestError,
    StalePlanError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import FacetName
from confplane.domain.resolution import levels_of
from confplane.services.access import unrestricted
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult, Mode, json_of, offender
from confplane.services.cooperative_yielding import TimeSlice, in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.domain.manifests import ManifestScope
    from confplane.domain.ops import Op
    from confplane.services.access import Access
    from confplane.services.changes.alter import AlterService, Entry, FacetEdit
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster

Base = tuple[int, int] | None
"""The presence and the version of a znode: its czxid and version, or None without content."""
Bases = dict[tuple[FacetName, str], Base]
"""The bases of the parts of a plan, by facet and entity id."""

_PRUNED: Final = "/scope"
"""The pointer of an edit that the document does not name."""
_SHARE: Final = 5
"""One of so many entities of a scope may be deleted by default."""


def base_of(node: Node | None) -> Base:
    """Return the base of a node. A node without content counts as absent: brokers create parents of pairs as such."""
    return None if node is None or not (node.items or node.defect) else (node.czxid, node.version)


@dataclass(frozen=True, slots=True)
class ExpectedBase:
    """The base that an edit of a plan rests on; see ``ExpectedContent``."""

    base: Base

    def check(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> None:
        """Refuse a node with another base.

        Raises:
            StalePlanError: The node was written, created or deleted since the plan was made.
        """
        if base_of(node) != self.base:
            raise StalePlanError(
                f"{entity.id} was changed after the plan was made; make a new plan of {cluster_facet.name.value}",
                outcome=WriteOutcome.NOT_APPLIED,
            )


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan."""

    atomic: bool = False
    scope: ManifestScope | None = None
    """Entities of the scope that the document does not name are deleted; None: nothing is."""
    max_deletes: int | None = None
    """The greatest number of entities that are deleted; None: a fifth of the scope."""


class KeyFallback(NamedTuple):
    """The value that takes effect once a key is removed."""

    value: JsonValue
    """None: a secret, or no value."""
    source: str
    """The id of the entity that has the value, or Kafka's name of the source."""


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """The plan for one facet of one entity."""

    cluster_facet: ClusterFacet
    result: EditResult
    """The result of the validation."""
    base: Base
    pruned: bool
    """True if the document does not name the facet of the entity, which loses all of its keys."""
    may_alter: bool
    """True if the caller may carry out the edit."""
    fingerprints: Mapping[str, str | None] = field(default_factory=dict)
    """The fingerprints of the new secrets; None: not known."""
    fallbacks: Mapping[str, KeyFallback] = field(default_factory=dict)
    """By removed key."""

    @property
    def entity(self) -> Entity:
        """The entity."""
        return self.result.edit.entity

    @property
    def key(self) -> tuple[FacetName, str]:
        """The facet and the entity id, as in the bases of a plan."""
        return self.cluster_facet.name, self.entity.id

    @property
    def action(self) -> str:
        """``create``, ``update``, ``delete`` or ``none``."""
        result = self.result
        if not result.diff:
            return "none"
        if result.created:
            return "create"
        owns = self.cluster_facet.facet.owns
        return "update" if any(owns(self.entity, key) for key in result.after) else "delete"


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan."""

    id: str
    revision: int
    """The plan was decided on the state at this revision, or a later one."""
    entries: list[tuple[PlannedEdit, ...]]
    """The entities in the order of the document, then those that are deleted."""
    refusal: ConfplaneError | None
    """The reason why the plan as a whole can't be carried out; entities have reasons of their own."""

    @property
    def edits(self) -> Iterator[PlannedEdit]:
        """The edits of all entities."""
        return (each for entry in self.entries for each in entry)


class PlanService:
    """Makes plans. Stores nothing. One instance serves all clusters of a process.

    Args:
        alter: Validates the edits.
    """

    def __init__(self, alter: AlterService) -> None:
        self._alter = alter

    async def plan(
        self,
        cluster: Cluster,
        document: Sequence[Entry],
        options: PlanOptions,
        caller: Caller,
        *,
        bases: Bases | None = None,
    ) -> Plan:
        """Plan a document. The caller needs to describe each entity, and to alter none.

        Args:
            cluster: The cluster.
            document: The entities of the document, each once, with edits of the mode REPLACE.
            options: The options.
            caller: The caller.
            bases: The bases of a plan that was begun to be applied, which name the entities that it deletes.

        Raises:
            UnavailableError: A store or the cluster is unavailable, so the plan can't be known.
        """
        revision = cluster.store.status().revision
        readable = await in_slices(partial(_readable, caller.access), document)
        pruned, total = [], 0
        if bases is not None:
            pruned = _begun(cluster, readable, bases, caller.access)
        elif options.scope is not None:
            pruned, total = await self._pruned(cluster, readable, options.scope, caller.access)
        entries = _joined(readable, pruned)
        planner = Caller(unrestricted(caller.access), caller.deadline, approvals=caller.approvals)
        results = await self._alter.alter_entries(entries, planner, validate_only=True)
        planned: list[tuple[PlannedEdit, ...]] = []
        time_slice = TimeSlice()
        named = {_key(part) for entry in readable for part in entry.items()}
        for entry, result in zip(entries, results, strict=True):
            planned.append(
                tuple(
                    [
                        _planned(part, each, pruned=_key(part) not in named, access=caller.access)
                        for part, each in zip(entry.items(), result.results, strict=True)
                    ]
                )
            )
            if time_slice.due:
                await time_slice.pause()
        planned = await self._completed(cluster, planned, caller.access)
        refusal = None
        if bases is None:
            refusal = _too_many(planned, total, options, is_empty=not document)
            if refusal is None and options.atomic:
                refusal = await self._refused_together(planned, planner)
        plan_id = await _digest(cluster, options, planned, bases)
        return Plan(plan_id, revision, planned, refusal)

    async def _pruned(
        self, cluster: Cluster, document: Sequence[Entry], scope: ManifestScope, access: Access
    ) -> tuple[list[FacetEdit], int]:
        """Return the deletions in a scope, and the number of entities that the scope has."""
        named = {_key(part) for entry in document for part in entry.items()}
        found: list[FacetEdit] = []
        present: set[str] = set()
        for cluster_facet in cluster.facets.values():
            for node in await cluster_facet.visible_to(access).moment(prefix=scope.id_prefix):
                entity = Entity.from_id(node.id)
                if scope.has(entity):
                    present.add(node.id)
                    if (cluster_facet.name, node.id) not in named:
                        found.append(_deletion(cluster_facet, entity))
        return found, len(present)

    async def _refused_together(
        self, planned: Sequence[Sequence[PlannedEdit]], planner: Caller
    ) -> ConfplaneError | None:
        """Return the reason why edits that can be made one by one can't be made in one transaction."""
        if any(each.result.error is not None for entry in planned for each in entry):
            return None
        entries = [{each.cluster_facet: each.result.edit for each in entry if each.result.diff} for entry in planned]
        results = await self._alter.alter_entries(
            [entry for entry in entries if entry], planner, validate_only=True, atomic=True
        )
        return offender(result.error for result in results)

    async def _completed(
        self, cluster: Cluster, planned: list[tuple[PlannedEdit, ...]], access: Access
    ) -> list[tuple[PlannedEdit, ...]]:
        """Add the fingerprints of new secrets, and what takes effect in place of removed keys."""
        after = {each.key: each.result.after for entry in planned for each in entry if each.result.diff}
        configs = {entity_id: values for (name, entity_id), values in after.items() if name is FacetName.CONFIGS}
        time_slice = TimeSlice()
        for number, entry in enumerate(planned):
            made = []
            for each in entry:
                fingerprints = await _fingerprints(each)
                fallbacks = _fallbacks(cluster, each, after, configs, access) if each.result.diff else {}
                if fingerprints or fallbacks:
                    rest = (each.cluster_facet, each.result, each.base, each.pruned, each.may_alter)
                    made.append(PlannedEdit(*rest, fingerprints, fallbacks))
                else:
                    made.append(each)
            planned[number] = tuple(made)
            if time_slice.due:
                await time_slice.pause()
        return planned


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
                if (secret := _password(cluster_facet, edit)) is not None:
                    access.require(name, Operation.ALTER_CONFIGS, entity_id, pointer=secret.pointer)
            except ForbiddenError as error:
                made[cluster_facet] = EditResult(edit, error)
    return made


def _password(cluster_facet: ClusterFacet, edit: Edit) -> Op | None:
    """Return the first op that gives a broker a secret; None if there is none. Other entities have no secrets."""
    facet = cluster_facet.facet
    if not facet.has_secrets or edit.entity.types != (EntityType.BROKER,):
        return None
    return next((op for op in edit.ops if op.value is not None and facet.is_secret(edit.entity, op.key)), None)


def _deletion(cluster_facet: ClusterFacet, entity: Entity) -> FacetEdit:
    return (cluster_facet, Edit(entity, (), Mode.REPLACE, pointer=_PRUNED))


def _begun(cluster: Cluster, document: Sequence[Entry], bases: Bases, access: Access) -> list[FacetEdit]:
    """Return the deletions of a plan that was begun to be applied, without entities that the caller may not describe.

    The bases are those of another caller, perhaps. A plan that lacks some of them has another id.
    """
    named = {_key(part) for entry in document for part in entry.items()}
    return [
        _deletion(cluster.facets[name], Entity.from_id(entity_id))
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


def _planned(part: FacetEdit, result: EditResult, *, pruned: bool, access: Access) -> PlannedEdit:
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
        if error.pointer is not None and not error.pointer.startswith(("/entities/", _PRUNED)):
            error.pointer = edit.pointer
        node = (
            None
            if isinstance(error, ForbiddenError) or not edit.entity.components
            else cluster_facet.get(edit.entity.id)
        )
    may_alter = not edit.entity.components or access.allows(
        cluster_facet.store.name, Operation.ALTER_CONFIGS, edit.entity.id
    )
    return PlannedEdit(cluster_facet, result, base_of(node), pruned, may_alter)


async def _fingerprints(planned: PlannedEdit) -> Mapping[str, str | None]:
    """Return the fingerprints of the secrets that the document sets."""
    cluster_facet, result = planned.cluster_facet, planned.result
    if not cluster_facet.facet.has_secrets or result.error is not None:
        return {}
    given = {op.key for op in result.edit.ops if op.value is not None}
    secrets = {
        key: result.after[key]
        for key in given & result.after.keys()
        if cluster_facet.facet.is_secret(planned.entity, key)
    }
    if not secrets:
        return {}
    known = await cluster_facet.fingerprints(planned.entity, secrets) or {}
    return {key: known.get(key) for key in sorted(secrets)}


def _fallbacks(
    cluster: Cluster,
    planned: PlannedEdit,
    after: Mapping[tuple[FacetName, str], Mapping[str, str]],
    configs: Mapping[str, Mapping[str, str]],
    access: Access,
) -> dict[str, KeyFallback]:
    """Return what takes effect in place of the keys that an edit removes, once the whole plan is applied."""
    entity, name = planned.entity, planned.cluster_facet.name
    removed = [item.key for item in planned.result.diff if item.key not in planned.result.after]
    if not removed:
        return {}
    if name is FacetName.CONFIGS:
        found = cluster.configs.effective_of(entity, removed, configs)
        return {each.name: KeyFallback(None if each.sensitive else each.value, str(each.source)) for each in found}
    if name is FacetName.CLIENT_CONFIGS and not access.allows(cluster.name, Operation.RESOLVE, entity.id):
        return {}
    whole = planned.cluster_facet.whole
    levels = [level.entity_id for level in levels_of(name, entity)]
    if entity.id not in levels:
        return {}
    fallbacks: dict[str, KeyFallback] = {}
    for entity_id in levels[levels.index(entity.id) + 1 :]:
        lower = Entity.from_id(entity_id)
        values = after.get((name, entity_id))
        if values is None:
            values = stored(whole.get(entity_id))
        for key in removed:
            if key in values and key not in fallbacks:
                fallbacks[key] = KeyFallback(json_of(whole, lower, key, values[key]), entity_id)
    return fallbacks


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
        f"The plan deletes configs of {deleted} of the {total} entities in the scope, and maxDeletes is {most}"
        + (", as for any document without entities" if options.max_deletes is None and is_empty else "")
        + ". Check the document and the scope, then set maxDeletes if this is intended",
        pointer="/maxDeletes",
        outcome=WriteOutcome.NOT_APPLIED,
    )


async def _digest(
    cluster: Cluster, options: PlanOptions, planned: Sequence[Sequence[PlannedEdit]], bases: Bases | None
) -> str:
    """Return the id of a plan. The values of secrets are represented by their keyed fingerprints."""
    digest = hashlib.sha256()

    def add(content: Any) -> None:
        digest.update(json.dumps(content).encode() + b"\n")

    release = cluster.facets[FacetName.CONFIGS].catalog.release
    scope = None if options.scope is None else str(options.scope)
    add([1, cluster.name, str(release), options.atomic, scope, options.max_deletes])

    def add_edit(each: PlannedEdit) -> None:
        edit, facet = each.result.edit, each.cluster_facet.facet
        place = (facet.name, each.entity.id)
        base = each.base if bases is None else bases.get(place)
        # The values of refused edits do not matter: their plan can't be applied. But a plan that was begun continues
        # with an edit that is refused by now.
        decided = each.result.error is None or (bases is not None and place in bases)
        values: dict[str, Any] = {}
        for op in edit.ops:
            shown = decided and not facet.is_secret(edit.entity, op.key)
            values[op.key] = op.value if shown else [each.fingerprints.get(op.key), op.value is None]
        add([edit.entity.id, facet.name.value, each.pruned, base, sorted(values.items())])

    by_place = sorted(
        (each for entry in planned for each in entry), key=lambda each: (each.entity.id, each.cluster_facet.name.value)
    )
    await in_slices(add_edit, by_place)
    return digest.hexdigest()[:40]
