"""Rotation of the secret that brokers' passwords are encoded under, one broker at a time (KIP-226).

Each broker is a change like any other (docs/architecture.md, "One write"), so it is audited, announced, and refused
while the cluster is frozen. Values under the current secret are left as they are: a run that was cut short is finished
by the next. Alter policies are not asked, since no config gets another value.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confplane.domain.changes import stored
from confplane.domain.entities import Entity, EntityType
from confplane.domain.facets import FacetName, Tree
from confplane.services.changes.edits import Edit
from confplane.services.changes.entity_drafts import EntityDraft, check_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.domain.errors import ConfplaneError
    from confplane.services.changes.alter import AlterService
    from confplane.services.changes.callers import Caller
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.crypto import Rotation, Rotator

_PREFIX = f"{EntityType.BROKER.value}="
_OP = "REENCODE"


@dataclass(frozen=True, slots=True)
class RotatedBroker:
    """The result for one broker. Keys are sorted; there are no values."""

    broker_id: int
    reencoded: tuple[str, ...] = ()
    """Keys that this change encoded under the current secret."""
    current: tuple[str, ...] = ()
    """Keys that were under the current secret before."""
    undecodable: tuple[str, ...] = ()
    """Keys whose values no secret opens, left as they are: they must be set again."""
    old_known: bool = True
    """True if the broker has an old secret."""
    change_id: str | None = None
    """The id of the change; None if nothing was written."""
    error: ConfplaneError | None = None
    """The reason why nothing was done."""


class RotateService:
    """Rotates the brokers of one cluster.

    Args:
        alter: Runs the changes.
        configs: The cluster's facet ``configs``.
        rotator: Re-encodes values with the cluster's secrets.
    """

    def __init__(self, alter: AlterService, configs: ClusterFacet, rotator: Rotator) -> None:
        self._alter = alter
        self._configs = configs
        self._rotator = rotator

    def brokers(self) -> list[int]:
        """Return the ids of the brokers with configs of their own in ZooKeeper, sorted."""
        nodes = self._configs.store.with_keys(Tree.CONFIG, FacetName.CONFIGS.value, prefix=_PREFIX)
        return sorted(int(node.id.removeprefix(_PREFIX)) for node in nodes)

    async def rotate(self, broker_id: int, caller: Caller) -> RotatedBroker:
        """Re-encode one broker's passwords under its current secret, if they are not yet.

        Errors of a write are in the result. A lost reply is such an error: the change may be applied, and another run
        finds out.
        """

        async def decide(
            cluster_facet: ClusterFacet, node: Node | None, planned: Mapping[str, Mapping[str, str]]
        ) -> EntityDraft:
            del planned
            check_node(cluster_facet, edit, node)
            rotation = await asyncio.to_thread(self._rotator.rotate, broker_id, stored(node))
            draft = EntityDraft.of(cluster_facet, edit, node, rotation.config, [])
            ops = tuple({"key": key, "op": _OP, "value": None, "secret": True} for key in rotation.reencoded)
            return replace(draft, recorded_ops=ops, detail=rotation)

        edit = Edit(Entity.of(broker=str(broker_id)), ())
        result, draft = await self._alter.rewrite(self._configs, edit, decide, caller, policies=False)
        if result.error is not None or draft is None:
            return RotatedBroker(broker_id, error=result.error)
        rotation: Rotation = draft.detail
        return RotatedBroker(
            broker_id,
            rotation.reencoded,
            rotation.current,
            rotation.undecodable,
            rotation.old_known,
            result.change_id,
        )
