"""The keys of an entity that wait to be delivered, or that the Kafka cluster refused: by its znode and its state.

A refused key is a pending key whose value the cluster refused while it accepted others. It is left alone until a client
changes or reapplies it, or the cluster shows the value. All other keys of the entity are delivered and followed as
usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.changes import stored
from confplane.services.ports.applying import FINGERPRINT
from confplane.services.znode_metadata import ZnodeMetadata, read_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.services.ports.applying import AlterRefused, RefusedValue, TargetState, Values


class PendingEntity(NamedTuple):
    """An entity that may have values to deliver."""

    node: Node | None
    state: TargetState

    @property
    def pending_keys(self) -> tuple[str, ...]:
        """The keys that clients changed since the znode last followed the cluster."""
        return self.znode_metadata.pending_keys

    @property
    def is_due(self) -> bool:
        """True if there are values to send."""
        return self.node is not None and self.node.defect is None and (self.state.is_open or self._is_waiting)

    @property
    def differs(self) -> bool:
        """True if a key is queued, was refused, or is left alone."""
        return bool(self.state.is_open or self.state.drift or self.refusal or self._is_waiting)

    @property
    def _is_waiting(self) -> bool:
        return self.node is not None and bool(self.pending_keys) and not self.state.is_settled(self.node.mzxid)

    @property
    def keys(self) -> set[str]:
        """The keys that the cluster may not have taken yet."""
        # A previous leader sent keys without an outcome, and the znode no longer lists them.
        sent = frozenset() if self.node is None else self.state.sent
        return {*(self.pending_keys or sent), *self.state.reapply}

    @property
    def unsettled_keys(self) -> set[str]:
        """The keys that differ from what the cluster has taken, as far as known without the trail."""
        config, taken = stored(self.node), self.state.applied
        settled = {key for key in taken if taken[key] == config.get(key)} - self.state.reapply
        return self.keys - settled

    def settled_keys(self, values: Values) -> set[str]:
        """Return the keys whose values the cluster already took, with no followed change since, or refused.

        They need no further delivery until a change names them again, regardless of other keys. The next poll follows
        or puts back later external values of these keys; those of contested keys stay.
        """
        state, until = self.state, self.znode_metadata.until
        taken = {key for key, offset in state.taken_at.items() if offset > until}
        taken |= state.drift.keys() & state.applied.keys()
        settled = {key for key in taken & values.keys() if state.applied[key] == values[key]}
        settled |= {key for key, each in state.refused_keys.items() if key in values and each.value == values[key]}
        return settled - state.reapply

    # -- refusals

    @property
    def refusal(self) -> AlterRefused | None:
        """The cluster's refusal of the current values as a whole."""
        return None if self.node is None else self.state.refusal_of(self.node.mzxid)

    @property
    def refused_keys(self) -> dict[str, RefusedValue]:
        """The refused keys. A changed secret counts as refused until it is sent."""
        found = self.state.refused_keys
        if not found or self.node is None or self.node.defect is not None:
            return {}
        config = self.node.config
        return {
            key: found[key]
            for key in self.pending_keys
            if key in found
            and ((value := found[key].value) == config.get(key) or (value or "").startswith(FINGERPRINT))
        }

    @property
    def all_refused_keys(self) -> dict[str, AlterRefused | RefusedValue]:
        """The refused keys, also those of an entity whose values the cluster refused as a whole."""
        refusal = self.refusal
        keys = set() if refusal is None else self.unsettled_keys.intersection(self.pending_keys)
        return {**{key: refusal for key in keys if refusal is not None}, **self.refused_keys}

    # -- topics by their ids: a recreated topic never gets changes of the earlier topic

    @property
    def znode_metadata(self) -> ZnodeMetadata:
        """The metadata of the znode as it is stored."""
        return read_metadata(None if self.node is None else self.node.extra)

    @property
    def metadata(self) -> ZnodeMetadata:
        """The metadata of the znode.

        The first configs of a topic are written without its id if the cluster could not be asked. They belong to the
        topic that they were delivered to.
        """
        metadata = self.znode_metadata
        return metadata._replace(topic_id=metadata.topic_id or (self.state.topic_id if self.pending_keys else None))

    def outlived(self, topic_id: str | None) -> str | None:
        """Return the id of the topic whose state it is, if neither the znode nor the cluster has that topic any more.

        Args:
            topic_id: The topic's present id in the cluster; None if the cluster does not show the topic.
        """
        return None if self.state.topic_id in {topic_id, self.metadata.topic_id} else self.state.topic_id


def describe_refusals(refused: Mapping[str, AlterRefused | RefusedValue]) -> str:
    """Return refused keys with Kafka's messages as text."""
    return "; ".join(f"{key}: {each.text} (code {each.code})" for key, each in sorted(refused.items()))
