"""Topics of a Kafka cluster by their ids: a recreated topic never gets changes of the earlier topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.entities import EntityType
from confplane.services.kraft import znode_metadata
from confplane.services.pending_keys import pending_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.ports.applying import TargetState, WritableKafkaCluster


async def ids_of(cluster: WritableKafkaCluster, entities: Iterable[Entity], deadline: float) -> dict[str, str | None]:
    """Return the present ids of the topics among entities, by entity id; None: the cluster does not show the topic."""
    names = {each.id: name for each in entities if (name := each.get(EntityType.TOPIC)) is not None}
    ids = await cluster.topic_ids(list(names.values()), deadline) if names else {}
    return {entity_id: ids.get(name) for entity_id, name in names.items()}


def outlived_topics(
    topic_ids: Mapping[str, str | None], nodes: Mapping[str, Node], states: Mapping[str, TargetState]
) -> dict[str, str]:
    """Return the topics whose states belong to earlier topics, with the earlier ids. All maps are by entity id."""
    return {
        entity_id: state.topic_id
        for entity_id, now in topic_ids.items()
        if (state := states.get(entity_id)) is not None
        and state.topic_id is not None
        and _is_outlived(state, nodes.get(entity_id), now)
    }


def _is_outlived(state: TargetState, node: Node | None, topic_id: str | None) -> bool:
    """Return whether a state is of a topic that neither the cluster nor the znode has any more.

    The pending keys of a znode without a topic id belong to the state's topic.
    """
    metadata = znode_metadata.NONE if node is None else znode_metadata.read(node.extra)
    if state.topic_id in {None, topic_id, metadata.topic_id}:
        return False
    return metadata.topic_id is not None or node is None or not pending_keys(node.extra)


def refusal(topic_ids: Mapping[str, str | None], node: Node, state: TargetState | None) -> str | None:
    """Return the reason why nothing is sent to a topic: it is gone, or was recreated. None otherwise."""
    if node.id not in topic_ids:
        return None
    now = topic_ids[node.id]
    if now is None:
        return "The cluster shows no such topic"
    metadata = znode_metadata.read(node.extra).topic_id or (None if state is None else state.topic_id)
    return None if metadata in {None, now} else "The topic was created again; its new configs are followed"
