"""The types of a change: the edits of a request, the draft that they become, and their results.

A change is a function from the state read to the writes. The function **decides**: it reads, and returns either a
:class:`Draft`, or :class:`NoChange` if there is nothing to write. The runner
(:mod:`confplane.services.changes.runner`) calls the function again after each conflict, so a decision keeps nothing of
an earlier attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from confplane.domain.entities import EntityType
from confplane.domain.errors import ConfplaneError, NotAttemptedError, WriteOutcome
from confplane.domain.etags import Precondition
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.services.ports.trail import CHANGE
from confplane.services.ports.transactions import Guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from confplane.domain.approvals import Requirement
    from confplane.domain.changes import Difference, Node
    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue, Tree
    from confplane.domain.ops import Op
    from confplane.domain.ownership import OwnershipClaim
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.cluster_states import LayoutCheck
    from confplane.services.ports.trail import IntentEntity, ObservedRange
    from confplane.services.ports.transactions import Write

D = TypeVar("D")

CONTENDED: Final = "Other writers kept changing the same entity until the deadline; nothing was applied, try again"


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


@fast_dataclass(frozen=True, slots=True)
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


# ---------------------------------------------------------------- drafts


@fast_dataclass(frozen=True, slots=True)
class Draft(Generic[D]):
    """A decided change, ready to be written. The caller makes its own answer from ``decided``."""

    decided: D
    writes: tuple[Write, ...]
    entities: tuple[IntentEntity, ...]
    """The rows of the trail, without secrets."""
    answers: tuple[dict[str, Any], ...] = ()
    """The answers, as plain data without secrets: an Idempotency-Key keeps them, and another
    process answers from them."""
    layout: LayoutCheck | None = None
    """The layout of a change of client configs."""
    guarded: Guarded = Guarded.CALLER
    """The states of the cluster that are checked, before the intent and within the transaction."""
    kind: str = CHANGE
    """The kind of the change in the trail."""
    observed: ObservedRange | None = None
    """The log range of the followed writes; None for a change that follows nothing."""
    reverts: tuple[UUID, ...] = ()
    """The changes that this change reverts; see :class:`~confplane.services.ports.trail.Intent`."""


@dataclass(frozen=True, slots=True)
class NoChange(Generic[D]):
    """A decision to write nothing."""

    decided: D
    error: ConfplaneError | None = None
    """The reason; the trail has it if an earlier attempt left an intent. The caller returns it."""
    seen: tuple[tuple[Tree, Entity, int | None], ...] | None = None
    """The nodes behind the decision, with the versions read (None: absent), for ZooKeeper to confirm. None if they
    were read from ZooKeeper for this very attempt."""
    layout: LayoutCheck | None = None
    """The layout that ZooKeeper has to confirm as well."""


class Decide(Protocol[D]):
    """The function of a change."""

    async def __call__(self, *, again: bool) -> Draft[D] | NoChange[D]:
        """Decide one attempt.

        Args:
            again: An earlier attempt met a conflict: the decision must read ZooKeeper, since the mirror may be behind.

        Raises:
            ConfplaneError: The change is refused, and ends with this error.
        """


class ChangeJob(NamedTuple, Generic[D]):
    """A change to run."""

    decide: Decide[D]
    """Decides each attempt."""
    paths: Sequence[str] = ()
    """Full paths of the znodes that changes of this process write in turn."""
    waits: bool = False
    """True if the first decision waits, for the answer of a Kafka cluster or for a read. Such decisions are made at
    once; each of them is a task, which costs as much as a short decision."""
    contended: str = CONTENDED
    """The error's text when conflicts last until the deadline."""


# ---------------------------------------------------------------- results


@fast_dataclass(frozen=True, slots=True)
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
