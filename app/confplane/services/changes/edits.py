"""Edits: a request's changes of one entity, their drafts and their results.

A draft is a facet's decision on one edit, given the node that was read. Each facet has its own :class:`Drafter`, the
same for the real thing, ``validateOnly``, and the next attempt after a conflict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.domain.changes import Difference, Node, difference, stored
from confplane.domain.entities import EntityType
from confplane.domain.errors import (
    AlreadyExistsError,
    ConfplaneError,
    CorruptZnodeError,
    NotAttemptedError,
    WriteOutcome,
)
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName, full_path
from confplane.domain.texts import clipped
from confplane.services.pending_keys import with_pending_keys
from confplane.services.ports.trail import IntentEntity
from confplane.services.ports.transactions import EntityWrite

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from confplane.domain.approvals import Requirement
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.domain.ops import Op
    from confplane.domain.ownership import OwnershipClaim
    from confplane.services.cluster_facet import ClusterFacet

_MOST_LISTED: Final = 20
"""Keys that a warning names."""


class Mode(StrEnum):
    """The treatment of the facet's keys that an edit does not name.

    All modes keep the keys that the Kafka cluster manages (:meth:`ClusterFacet.managed_keys`).
    """

    ALTER = "alter"
    """Keep them."""
    REPLACE = "replace"
    """Remove them: PUT, and a DELETE that names nothing."""
    CREATE = "create"
    """Refuse them: the entity must have no keys, or exactly the named ones; POST."""
    MERGE = "merge"
    """Keep them, in a document: unlike an alter, equal content loads no file again, and null keeps a secret."""

    @property
    def is_whole(self) -> bool:
        """True if no key may be left that the edit does not name."""
        return self in {Mode.REPLACE, Mode.CREATE}


class ExpectedContent(Protocol):
    """The content that an edit rests on, compared with the node as read at each attempt."""

    def check(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> None:
        """Refuse a node of other content.

        Raises:
            ConfplaneError: The edit does not fit the node.
        """


@dataclass(frozen=True, slots=True)
class Edit:
    """One entity's part of a request."""

    entity: Entity
    ops: tuple[Op, ...]
    mode: Mode = Mode.ALTER
    precondition: Precondition = field(default_factory=Precondition)
    pointer: str | None = None
    expected: ExpectedContent | None = None
    """The content that the edit rests on; None: any."""
    reverts: tuple[UUID, ...] = ()
    """The changes that the edit reverts."""
    keeps: frozenset[str] = frozenset()
    """Keys that a replacement leaves as they are although it does not name them: those of other owners."""
    reported: frozenset[str] = frozenset()
    """Keys that the edit deletes, that no catalog has, and that the Kafka cluster has although no znode does."""
    refuses_unknown: bool = False
    """True if the deletion of a key is refused that neither a catalog, nor the znode, nor the Kafka cluster has."""
    claim: OwnershipClaim | None = None
    """The keys that the edit gives to an owner."""
    claims: bool = False
    """True if the claim changes an owner or a label, and so is an effect of its own."""

    @property
    def is_conditional(self) -> bool:
        """True if the edit is carried out only on some content of the entity."""
        return self.precondition.demands or self.expected is not None


@dataclass(frozen=True, slots=True)
class EntityDraft:
    """The decision on one edit, given the node that was read."""

    cluster_facet: ClusterFacet
    """The cluster facet as it was placed for the attempt."""
    path: str
    """The full path of the znode."""
    edit: Edit
    node: Node | None
    after: dict[str, str] = field(repr=False)
    diff: tuple[Difference, ...]
    """The changed keys without the values of secrets, and the keys whose files are loaded again."""
    warnings: tuple[str, ...]
    created: bool
    recorded_ops: tuple[dict[str, Any], ...] | None = None
    """The ops for the trail, without secrets, if they differ from the edit's own."""
    detail: Any = None
    """Further results of the decision, for the caller of ``AlterService.rewrite``."""
    topic_id: str | None = None
    """The id of the topic in a Kafka cluster without ZooKeeper that was asked about the draft; None: not known."""
    requirements: tuple[Requirement, ...] = ()
    """The approvals that rules ask for, whether they were given or not."""

    @classmethod
    def of(
        cls,
        cluster_facet: ClusterFacet,
        edit: Edit,
        node: Node | None,
        after: dict[str, str],
        warnings: list[str],
        *,
        reloaded: Iterable[str] = (),
    ) -> EntityDraft:
        """Build the draft that changes a node's map to ``after``; the files of ``reloaded`` keys are loaded again."""
        entity, before = edit.entity, stored(node)
        diff = difference(before, after)
        diff += [Difference(key, before[key], after[key]) for key in sorted(reloaded)]
        diff += [Difference(key, None, None, secret=True) for key in sorted(edit.reported - before.keys())]
        if cluster_facet.facet.has_secrets:
            is_secret = cluster_facet.facet.is_secret
            diff = [
                replace(item, before=None, after=None, secret=True) if is_secret(entity, item.key) else item
                for item in diff
            ]
        owns = cluster_facet.facet.owns
        removed = [key for key in before if key not in after]
        if removed and edit.mode is Mode.REPLACE and edit.ops and not edit.is_conditional:
            warnings = [*warnings, _removal(removed)]
        managed = cluster_facet.managed_keys(entity)
        created = any(owns(entity, key) for key in after.keys() - managed) and not any(
            owns(entity, key) for key in before.keys() - managed
        )
        path = full_path(cluster_facet.tree, entity)
        return cls(cluster_facet, path, edit, node, after, tuple(diff), tuple(warnings), created)

    @property
    def has_effect(self) -> bool:
        """True if the draft is to be written: it changes a key, or the owner of one."""
        return bool(self.diff) or self.edit.claims

    @property
    def expected(self) -> int | None:
        """The version that was read; None for an absent node."""
        return None if self.node is None else self.node.version

    def write(self) -> EntityWrite:
        """Return the config node to write."""
        cluster_facet = self.cluster_facet
        extra = None if self.node is None else self.node.extra
        czxid = None if self.node is None else self.node.czxid
        applied = cluster_facet.name is not FacetName.CLIENT_CONFIGS and cluster_facet.store.target() is not None
        if applied:
            extra = with_pending_keys(extra, (item.key for item in self.diff), self.topic_id)
        tree, entity = cluster_facet.tree, self.edit.entity
        return EntityWrite(self.path, tree, entity, self.expected, self.after, extra, czxid, applied)

    def intent(self) -> IntentEntity:
        """Return the row of the trail, without secrets."""
        cluster_facet, entity = self.cluster_facet, self.edit.entity
        return IntentEntity(
            entity_id=entity.id,
            facet=cluster_facet.name.value,
            path=self.path,
            version_read=self.expected,
            czxid_read=None if self.node is None else self.node.czxid,
            keys=tuple(item.key for item in self.diff),
            ops=_recorded_ops(cluster_facet, self.edit) if self.recorded_ops is None else self.recorded_ops,
            before=cluster_facet.redact(cluster_facet.tree, entity.id, stored(self.node)),
            after=cluster_facet.redact(cluster_facet.tree, entity.id, self.after),
            claim=None if self.edit.claim is None else self.edit.claim.as_json(),
        )

    def answer(self) -> dict[str, Any]:
        """Return the edit's answer as plain data without secrets."""
        cluster_facet = self.cluster_facet
        return {
            "facet": cluster_facet.name.value,
            "entity": self.edit.entity.id,
            "changed": self.has_effect,
            "created": self.created,
            "warnings": self.warnings,
            "diff": self.diff,
            "after": cluster_facet.redact(cluster_facet.tree, self.edit.entity.id, self.after),
            "czxid": None if self.node is None else self.node.czxid,
            "revision": None if self.node is None else self.node.mzxid,
        }


Planned = Mapping[str, Mapping[str, str]]
"""Entity id -> resulting map, of the entities that the same request changes before."""
DecideEntity = Callable[["ClusterFacet", Node | None, Planned], Awaitable[EntityDraft]]
"""Drafts an edit of a node. Waits for nothing but worker threads.

Its arguments are the facet as placed for the attempt, the entity's node as read (None: absent), and the resulting maps
of the edits before this one in the request, by entity id; at least of the entities that its check reads. It raises

- CorruptZnodeError: the node can't be read, can't be written back without loss, or would keep a broken value;
- PreconditionFailedError: the precondition does not hold;
- AlreadyExistsError: a create met other content;
- any ConfplaneError: the resulting map is not valid.
"""


class Drafter(Protocol):
    """A facet's way from edits to drafts."""

    def decide(self, cluster_facet: ClusterFacet, edit: Edit) -> DecideEntity:
        """Check the entity and the values of an edit, and return the decision of its attempts.

        Raises:
            ConfplaneError: The edit is refused; the error has a JSON pointer.
        """


def password_op(cluster_facet: ClusterFacet, edit: Edit) -> Op | None:
    """Return the first op that gives a broker a secret; None if there is none. Other entities have no secrets."""
    facet = cluster_facet.facet
    if not facet.has_secrets or edit.entity.types != (EntityType.BROKER,):
        return None
    return next((op for op in edit.ops if op.value is not None and facet.is_secret(edit.entity, op.key)), None)


def check_node(cluster_facet: ClusterFacet, edit: Edit, node: Node | None) -> None:
    """Refuse a node that can't be changed, or that does not meet the edit's precondition.

    Raises:
        CorruptZnodeError: The node can't be read, or can't be written back without loss.
        PreconditionFailedError: The precondition does not hold.
        ConfplaneError: The node has another content than the edit rests on.
    """
    if node is not None and node.defect is not None:
        path = full_path(cluster_facet.tree, edit.entity)
        raise CorruptZnodeError(path, node.defect, pointer=edit.pointer, outcome=WriteOutcome.NOT_APPLIED)
    if edit.precondition.demands:
        edit.precondition.check(_etag(cluster_facet, edit.entity, node))
    if edit.expected is not None:
        edit.expected.check(cluster_facet, edit.entity, node)


def _removal(keys: list[str]) -> str:
    """Return the warning about keys that a replacement removes although its client may not have read them."""
    more = len(keys) - _MOST_LISTED
    listed = f"{', '.join(map(clipped, keys[:_MOST_LISTED]))}{f' and {more} more' if more > 0 else ''}"
    return f"Removed, because the request does not name them: {listed}. If-Match protects keys added in the meantime"


def already_exists(cluster_facet: ClusterFacet, entity: Entity) -> AlreadyExistsError:
    """Return the error of a create that met other content."""
    return AlreadyExistsError(
        f"{entity.id} already has {cluster_facet.name} of other content; use PUT to replace them",
        outcome=WriteOutcome.NOT_APPLIED,
    )


def _etag(cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> str | None:
    try:
        return cluster_facet.tagged(entity, stored(node), node)[1]
    except ValueError:
        # Content that can't be shown has no ETag that anybody could hold; an unconditional write may still mend it.
        return '"undecodable"'


def _recorded_ops(cluster_facet: ClusterFacet, edit: Edit) -> tuple[dict[str, Any], ...]:
    if not edit.ops and edit.mode.is_whole:
        return ({"removeAll": True},)
    if not cluster_facet.facet.has_secrets:
        return tuple(op.as_json() for op in edit.ops)
    return tuple(
        {**op.as_json(), "value": None, "secret": True}
        if cluster_facet.facet.is_secret(edit.entity, op.key)
        else op.as_json()
        for op in edit.ops
    )


# ---------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class EditResult:
    """The result of one edit. ``error`` is None on success."""

    edit: Edit
    error: ConfplaneError | None = None
    change_id: str | None = None
    revision: int | None = None
    diff: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    node: Node | None = None
    """The node after the edit; None if there is none."""
    created: bool = False
    """True if the facet had no key before the edit and has some after it."""
    after: dict[str, str] = field(default_factory=dict, repr=False)
    """The whole map as stored, or as it would be under ``validateOnly``."""
    requirements: tuple[Requirement, ...] = ()
    """The approvals that rules ask for, whether they were given or not."""


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The results of the edits of one entity, one for each facet that its entry alters."""

    results: tuple[EditResult, ...]

    @classmethod
    def of(cls, results: Iterable[EditResult]) -> EntryResult:
        """Join the results of edits. The error of the first edit that failed gets those of the others as further."""
        joined = cls(tuple(results))
        first = joined.error
        for result in joined.results:
            error = result.error
            if first is None or error is None or error is first or isinstance(error, NotAttemptedError):
                continue
            first.further += (error, *error.further)
        return joined

    @property
    def error(self) -> ConfplaneError | None:
        """The error of the edit that failed; None on success."""
        return offender(result.error for result in self.results)

    @property
    def change_id(self) -> str | None:
        """The id of the change; None if nothing was written."""
        return next((result.change_id for result in self.results if result.change_id is not None), None)

    @property
    def revision(self) -> int | None:
        """The revision of the last change of any of the facets; None if nothing was to be written."""
        return max((result.revision for result in self.results if result.revision is not None), default=None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all facets, each once."""
        return tuple(dict.fromkeys(warning for result in self.results for warning in result.warnings))


def not_attempted() -> NotAttemptedError:
    """Return the error of an edit whose change another edit made fail."""
    return NotAttemptedError(
        "Another entry of this atomic batch failed; nothing was applied", outcome=WriteOutcome.NOT_APPLIED
    )


def offender(errors: Iterable[ConfplaneError | None]) -> ConfplaneError | None:
    """Return the first error, but none that merely follows from another; None if there is no error."""
    found = [error for error in errors if error is not None]
    return next((error for error in found if not isinstance(error, NotAttemptedError)), found[0] if found else None)


def json_of(cluster_facet: ClusterFacet, entity: Entity, key: str, value: str | None) -> JsonValue:
    """Return one stored value as JSON answers it; None if it is not valid for its key and has no form in JSON."""
    if value is None:
        return None
    try:
        return cluster_facet.facet.decode(entity, key, value)
    except ValueError:
        return None
