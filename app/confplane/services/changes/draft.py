"""Drafts: a change's writes, its rows in the trail, and its answers.

A change is a function from the state read to the writes. The function **decides**: it reads, and returns either a
:class:`Draft`, or :class:`NoChange` if there is nothing to write. The runner
(:mod:`confplane.services.changes.runner`) calls the function again after each conflict, so a decision keeps nothing of
an earlier attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from confplane.services.ports.trail import CHANGE
from confplane.services.ports.transactions import Guarded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.domain.entities import Entity
    from confplane.domain.errors import ConfplaneError
    from confplane.domain.facets import Tree
    from confplane.services.ports.cluster_states import LayoutCheck
    from confplane.services.ports.trail import IntentEntity, ObservedRange
    from confplane.services.ports.transactions import Write

D = TypeVar("D")

CONTENDED: Final = "Other writers kept changing the same entity until the deadline; nothing was applied, try again"


@dataclass(frozen=True, slots=True)
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
