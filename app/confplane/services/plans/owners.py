"""The owners of keys in plans: read together with the versions of the znodes, and compared with the document.

The trail explains which owner a key has at a version of its znode. The recorder is a second or two behind, so a plan
waits until the trail explains the versions that the mirror has. The transaction of an edit checks the version of its
znode, so the owners that a plan read are still those of the keys when its edits are written.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, OwnerConflictError, UnavailableError, WriteOutcome
from confplane.domain.ops import Op, OpType
from confplane.domain.ownership import NO_OWNERS, Ownership, OwnershipClaim
from confplane.domain.texts import clipped
from confplane.services.changes.edits import Edit, EditResult, Mode
from confplane.services.plans.bases import Base, base_of
from confplane.services.ports.history import Znode
from confplane.services.reads.point_in_time import unrecorded, unrecorded_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

    from confplane.domain.facets import FacetName
    from confplane.services.changes.alter import Entry
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.plans.planned import PlanOptions
    from confplane.services.ports.history import TrailHistory
    from confplane.services.ports.ownerships import OwnedState, Ownerships

_PATIENCE_S: Final = 10.0
"""Seconds to wait for the recorder."""
_PAUSE_S: Final = 0.1
_PAGE: Final = 2_000

PRUNED: Final = "/scope"
"""The pointer of an edit that the document does not name."""

OwnedBases = dict[tuple["FacetName", str], tuple[Base, Ownership]]
"""The bases of znodes with the owners of all of their keys, by facet and entity id."""


class OwnershipReader:
    """Reads owners. One instance serves all clusters of a process.

    Args:
        ownerships: The owners as the trail explains them.
        trail: The trail.
        recorded: The clusters whose external changes are recorded.
    """

    def __init__(self, ownerships: Ownerships, trail: TrailHistory, recorded: Collection[str]) -> None:
        self._ownerships = ownerships
        self._trail = trail
        self._recorded = recorded

    async def check(self, cluster: Cluster, deadline: float) -> None:
        """Refuse an owner in a cluster whose owners can't be known.

        Before its first contact is complete, the recorder takes states as they are, without the claims that led to
        them.

        Raises:
            InvalidRequestError: The external changes of the cluster are not recorded.
            UnavailableError: Postgres is unavailable, or the first contact is not complete.
        """
        if cluster.name not in self._recorded:
            raise InvalidRequestError(
                f"Owners in cluster {cluster.name} are not known, because the setting record_external_changes is off."
                " Leave the owner out",
                pointer="/owner",
            )
        patience = min(deadline, time.monotonic() + _PATIENCE_S)
        while await self._trail.coverage(cluster.name) is None:
            if time.monotonic() >= patience:
                raise UnavailableError(
                    f"The configs of cluster {cluster.name} were not recorded completely yet, so their owners are not"
                    " known. Send the request again",
                    outcome=WriteOutcome.NOT_APPLIED,
                    retry_after_s=2,
                )
            await asyncio.sleep(_PAUSE_S)

    async def exact(self, cluster: Cluster, parts: Iterable[tuple[ClusterFacet, str]], deadline: float) -> OwnedBases:
        """Return the bases of the nodes of the mirror, and the owners of their keys at these versions.

        Raises:
            UnavailableError: A store is unavailable, or the recorder is behind.
        """
        patience = min(deadline, time.monotonic() + _PATIENCE_S)
        found: OwnedBases = {}
        left = list(parts)
        while left:
            states = await self._ownerships.known(
                cluster.name, [Znode(cluster_facet.tree, entity_id) for cluster_facet, entity_id in left]
            )
            behind = []
            for cluster_facet, entity_id in left:
                base = base_of(cluster_facet.whole.get(entity_id))
                state = states.get(Znode(cluster_facet.tree, entity_id))
                if base is None:
                    found[cluster_facet.name, entity_id] = None, NO_OWNERS
                elif state is not None and _base_of(state) == base:
                    found[cluster_facet.name, entity_id] = base, state.ownership
                else:
                    behind.append((cluster_facet, entity_id))
            left = behind
            if left:
                if time.monotonic() >= patience:
                    raise UnavailableError(
                        f"The last writes to {len(left)} entities are not recorded yet, so the owners of their keys"
                        f" are not known. The first is {clipped(left[0][1])}. Send the request again",
                        outcome=WriteOutcome.NOT_APPLIED,
                        retry_after_s=2,
                    )
                await asyncio.sleep(_PAUSE_S)
        return found

    async def of_owner(
        self, cluster: Cluster, options: PlanOptions, deadline: float
    ) -> AsyncIterator[tuple[ClusterFacet, Entity]]:
        """Yield the entities in the scope of which the owner has keys, by facet.

        Raises:
            UnavailableError: A store is unavailable, or the recorder is behind.
        """
        await self._recorded_now(cluster, deadline)
        for tree in dict.fromkeys(cluster_facet.tree for cluster_facet in cluster.facets.values()):
            facets = [each for each in cluster.facets.values() if each.tree is tree]
            first = ""
            while page := await self._ownerships.owned(cluster.name, tree.value, first, _PAGE):
                first = f"{page[-1][0]}\x01"  # the first id after the last one
                for entity_id, ownership in page:
                    entity = Entity.from_id(entity_id)
                    if options.scope is None or options.scope.has(entity):
                        for each in facets:
                            if _keys_of(each, entity, ownership, options.owner):
                                yield each, entity

    async def _recorded_now(self, cluster: Cluster, deadline: float) -> None:
        """Wait until all that the mirror has is recorded."""
        store = cluster.store
        patience = min(deadline, time.monotonic() + _PATIENCE_S)
        revision = store.status().revision
        while True:
            coverage = await self._trail.coverage(cluster.name)
            recorded = 0 if coverage is None else coverage.recorded
            if recorded >= revision or (coverage is not None and unrecorded(store, recorded, revision) == set()):
                return
            if time.monotonic() >= patience:
                raise unrecorded_error(store, recorded)
            await asyncio.sleep(_PAUSE_S)


def _base_of(state: OwnedState) -> Base:
    return (state.czxid, state.version) if state.present else None


def _keys_of(cluster_facet: ClusterFacet, entity: Entity, ownership: Ownership, owner: str | None) -> list[str]:
    """Return the keys of a facet that an owner has."""
    owns = cluster_facet.facet.owns
    return [key for key, each in ownership.owners.items() if each == owner and owns(entity, key)]


def owners_of(cluster_facet: ClusterFacet, entity: Entity, ownership: Ownership) -> dict[str, str]:
    """Return the owners of the keys of a facet."""
    owns = cluster_facet.facet.owns
    return {key: owner for key, owner in sorted(ownership.owners.items()) if owns(entity, key)}


def claiming(cluster_facet: ClusterFacet, edit: Edit, ownership: Ownership, options: PlanOptions) -> Edit | EditResult:
    """Return an edit of the document that claims its keys for the owner, and leaves keys of other owners.

    The result is a refusal if the document has a key of another owner without force.
    """
    assert options.owner is not None  # noqa: S101 - the caller checked it
    entity, keys = edit.entity, {op.key for op in edit.ops}
    foreign = {
        key: owner for key, owner in owners_of(cluster_facet, entity, ownership).items() if owner != options.owner
    }
    conflicts = [op for op in edit.ops if op.key in foreign and (entity.id, op.key) not in options.forced]
    if conflicts:
        errors = [_conflict(entity, op, foreign[op.key]) for op in conflicts]
        errors[0].further = tuple(errors[1:])
        return EditResult(edit, errors[0])
    claim = OwnershipClaim(options.owner, tuple(sorted(keys)), options.labels)
    return replace(edit, keeps=frozenset(foreign) - keys, claim=claim, claims=not ownership.has(claim))


def claimed_keys(edit: Edit, owners: Mapping[str, str]) -> dict[str, str | None]:
    """Return the keys that change their owner, each with the owner before."""
    claim = edit.claim
    if claim is None:
        return {}
    return {key: owners.get(key) for key in claim.keys if owners.get(key) != claim.owner}


def deletion(entity: Entity) -> Edit:
    """Return the edit of an entity whose facet the document does not name: all of its keys are deleted."""
    return Edit(entity, (), Mode.REPLACE, pointer=PRUNED)


def deletion_of_owner(cluster_facet: ClusterFacet, entity_id: str, owned: Ownership, options: PlanOptions) -> Edit:
    """Return the edit of an entity whose facet the document does not name: the keys of its owner are deleted."""
    entity = Entity.from_id(entity_id)
    keys = sorted(_keys_of(cluster_facet, entity, owned, options.owner))
    return Edit(entity, tuple(Op(key, OpType.DELETE, pointer=PRUNED) for key in keys), Mode.ALTER, pointer=PRUNED)


def check_forced(options: PlanOptions, document: Sequence[Entry]) -> None:
    """Refuse forced keys that the document does not have.

    Raises:
        InvalidRequestError: There is one.
    """
    if not options.forced:
        return
    edits = (each if isinstance(each, Edit) else each.edit for entry in document for each in entry.values())
    named = {(edit.entity.id, op.key) for edit in edits for op in edit.ops}
    unknown = sorted(options.forced - named)
    if unknown:
        entity_id, key = unknown[0]
        raise InvalidRequestError(
            f"{clipped(key)} of {clipped(entity_id)} is forced, and the document does not have it", pointer="/force"
        )


def _conflict(entity: Entity, op: Op, owner: str) -> OwnerConflictError:
    return OwnerConflictError(
        f"{clipped(op.key)} of {entity.id} is a key of the owner {owner}. Leave it out, or force it to take it over",
        pointer=op.pointer,
        outcome=WriteOutcome.NOT_APPLIED,
    )
