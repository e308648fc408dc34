"""Bases: the presence, the versions and the owners that the edits of a plan rest on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confplane.domain.errors import StalePlanError, WriteOutcome
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.cluster_facet import ClusterFacet

Base = tuple[int, int] | None
"""The presence and the version of a znode: its czxid and version, or None without content."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The state that one edit of a plan rests on."""

    base: Base
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owners of the keys of the facet; none in a plan without an owner."""


Bases = dict[tuple[FacetName, str], Basis]
"""The bases of the edits of a plan, by facet and entity id."""


@dataclass(frozen=True, slots=True)
class BegunPlan:
    """A plan as it was when it was begun to be applied."""

    bases: Bases
    policies: str
    """The version of the policies of the plan. A run continues under those of its continuation."""


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
