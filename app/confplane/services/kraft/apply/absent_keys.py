"""Absent keys: removed keys that the Kafka cluster never had, as far as the trail shows.

Another tool may have set them since, so their removal is sent like any other. It counts as applied also if the cluster
refuses it, or if the broker is not registered. The trail has the value before the first change that the cluster has not
taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confplane.services.ports.applying import TargetState, TargetStates


async def find_absent_keys(
    states: TargetStates, cluster: str, removed: Mapping[str, tuple[TargetState | None, Collection[str]]]
) -> dict[str, set[str]]:
    """Return the absent keys among removed ones, by entity id.

    Args:
        states: The durable states.
        cluster: The cluster.
        removed: Entity id -> its state, and pending keys that are removed.

    Raises:
        UnavailableError: Postgres is unavailable.
    """
    found: dict[str, set[str]] = {}
    unknown: dict[str, set[str]] = {}
    for entity_id, (state, keys) in removed.items():
        for key in keys:
            if state is not None and _may_be_there(state, key):
                continue
            refused = None if state is None else state.refused_keys.get(key)
            if refused is None:
                unknown.setdefault(entity_id, set()).add(key)
            elif refused.absent:
                found.setdefault(entity_id, set()).add(key)
    befores = await states.values_before(cluster, unknown) if unknown else {}
    for (entity_id, key), before in befores.items():
        if before is None:
            found.setdefault(entity_id, set()).add(key)
    return found


def _may_be_there(state: TargetState, key: str) -> bool:
    """Return True if the cluster took a value of a key, may still take one, or was seen with one.

    An earlier delivery of the removal without a known outcome can't have set the key.
    """
    base = state.base.get(key)
    seen = base is not None and base.value is not None
    uncertain = any(value is not None for value in state.uncertain.get(key, ()))
    return seen or state.applied.get(key) is not None or uncertain or key in state.reapply
