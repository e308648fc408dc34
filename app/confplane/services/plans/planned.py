"""Plans as values: their options, the edits of single entities, and what each of them rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.domain.entities import Entity
    from confplane.domain.errors import ConfplaneError
    from confplane.domain.facets import FacetName, JsonValue
    from confplane.domain.manifests import ManifestScope
    from confplane.services.changes.edits import EditResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.plans.bases import Basis


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan."""

    atomic: bool = False
    scope: ManifestScope | None = None
    """The entities that may be deleted; None: those of the owner, whatever their names."""
    max_deletes: int | None = None
    """The greatest number of entities that are deleted; None: a fifth of the entities that may be."""
    prune: bool = False
    """Delete what the document does not name: keys of the owner, or all keys of the scope if there is no owner."""
    merge: bool = False
    """Keep the keys of the facets of the document that it does not name."""
    owner: str | None = None
    """The owner of the keys of the document; None: owners are neither read nor changed."""
    labels: Mapping[str, str] = field(default_factory=dict)
    forced: frozenset[tuple[str, str]] = frozenset()
    """The keys that the owner takes over from another one, each with the id of its entity."""


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
    basis: Basis
    pruned: bool
    """True if the document does not name the facet of the entity, which loses all of its keys."""
    may_alter: bool
    """True if the caller may carry out the edit."""
    fingerprints: Mapping[str, str | None] = field(default_factory=dict)
    """The fingerprints of the new secrets; None: not known."""
    fallbacks: Mapping[str, KeyFallback] = field(default_factory=dict)
    """By removed key."""
    claimed: Mapping[str, str | None] = field(default_factory=dict)
    """The keys that get the owner of the document, each with the owner before; None: it had none."""

    @property
    def entity(self) -> Entity:
        """The entity."""
        return self.result.edit.entity

    @property
    def key(self) -> tuple[FacetName, str]:
        """The facet and the entity id, as in the bases of a plan."""
        return self.cluster_facet.name, self.entity.id

    @property
    def has_effect(self) -> bool:
        """True if the edit changes a key, an owner or a label."""
        return bool(self.result.diff) or self.result.edit.claims

    @property
    def action(self) -> str:
        """``create``, ``update``, ``delete``, ``claim`` or ``none``."""
        result = self.result
        if not result.diff:
            return "claim" if result.edit.claims else "none"
        if result.created:
            return "create"
        owns = self.cluster_facet.facet.owns
        return "update" if any(owns(self.entity, key) for key in result.after) else "delete"


PlannedEntry = tuple[PlannedEdit, ...]
"""The edits of one entity."""


@dataclass(frozen=True, slots=True)
class PlanReference:
    """A plan that was made earlier, and is to be applied."""

    id: str
    policies: str | None = None
    """The version of the policies that the id covers; None for the present one."""
    has_own_run: bool = False
    """True if its run has the request id of its caller: a run with another one is not continued, but replaced."""


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
    policies: str = ""
    """The version of the policies that were asked."""

    @property
    def edits(self) -> Iterator[PlannedEdit]:
        """The edits of all entities."""
        return (each for entry in self.entries for each in entry)
