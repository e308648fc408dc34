"""Edits: a request's changes of one entity, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.entities import EntityType
from confplane.domain.errors import ConfplaneError, NotAttemptedError, WriteOutcome
from confplane.domain.etags import Precondition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from confplane.domain.approvals import Requirement
    from confplane.domain.changes import Difference, Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.domain.ops import Op
    from confplane.domain.ownership import OwnershipClaim
    from confplane.services.cluster_facet import ClusterFacet


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


WHOLE: Final = frozenset({Mode.REPLACE, Mode.CREATE})
"""The modes in which no key may be left that the edit does not name."""


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


def password_op(cluster_facet: ClusterFacet, edit: Edit) -> Op | None:
    """Return the first op that gives a broker a secret; None if there is none. Other entities have no secrets."""
    facet = cluster_facet.facet
    if not facet.has_secrets or edit.entity.types != (EntityType.BROKER,):
        return None
    return next((op for op in edit.ops if op.value is not None and facet.is_secret(edit.entity, op.key)), None)


def json_of(cluster_facet: ClusterFacet, entity: Entity, key: str, value: str | None) -> JsonValue:
    """Return one stored value as JSON answers it; None if it is not valid for its key and has no form in JSON."""
    if value is None:
        return None
    try:
        return cluster_facet.facet.decode(entity, key, value)
    except ValueError:
        return None
