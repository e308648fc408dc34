"""One entity on its way to a Kafka cluster: which keys of its znode are to be sent, and with which values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from confplane.services.altered import altered
from confplane.services.kraft import members
from confplane.services.kraft.secrets import Secret, without
from confplane.services.ports.applying import Alteration, Held, Refused, Sending, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confplane.domain.changes import Node
    from confplane.domain.entities import Entity
    from confplane.services.ports.applying import End, TargetState


class Sent(NamedTuple):
    """One entity that is about to be sent."""

    entity: Entity
    sending: Sending
    secrets: Mapping[str, Secret]

    @property
    def alteration(self) -> Alteration:
        """The keys with their values in clear."""
        values = dict(self.sending.values)
        return Alteration(self.entity, values | {key: each.plain for key, each in self.secrets.items()})

    def without(self, keys: Collection[str]) -> Sent:
        """Return the entity without some keys."""
        values = {key: value for key, value in self.sending.values.items() if key not in keys}
        secrets = {key: each for key, each in self.secrets.items() if key in values}
        return Sent(self.entity, replace(self.sending, values=values), secrets)

    def shown(self, end: End) -> End:
        """Return the end of the sending without secrets in the cluster's words."""
        match end:
            case Refused():
                return replace(end, text=without(end.text, self.secrets.values()))
            case Unknown() | Held():
                return replace(end, reason=without(end.reason, self.secrets.values()))
        return end


class Unsent(NamedTuple):
    """An entity of which something may have to be sent."""

    node: Node
    state: TargetState | None

    @property
    def is_due(self) -> bool:
        """True where something is to be sent."""
        if self.node.defect is not None:
            return False
        if self.state is not None and self.state.is_open:
            return True
        return bool(altered(self.node.extra)) and (self.state is None or not self.state.is_settled(self.node.mzxid))

    @property
    def keys(self) -> set[str]:
        """The keys that the cluster may not have taken yet."""
        keys, state = set(altered(self.node.extra)), self.state
        if state is not None and not state.took_last and state.refused is None and not keys:
            # A repetition without an end, of a leader that ended: nobody knows of which keys it was.
            keys |= state.sent.keys()
        return keys | self._repeated

    @property
    def _repeated(self) -> frozenset[str]:
        """The keys that are sent whether or not the cluster took them before."""
        return frozenset() if self.state is None else self.state.reapply

    def sent(self, entity: Entity, keys: Collection[str], secrets: Mapping[str, Secret], topic_id: str | None) -> Sent:
        """Return what is to be sent.

        Args:
            entity: The entity.
            keys: :attr:`keys`.
            secrets: The passwords among them, opened.
            topic_id: The id of the cluster's topic; None of other entities.
        """
        config = self.node.config | {key: each.fingerprint for key, each in secrets.items()}
        values = {key: config.get(key) for key in sorted(keys)}
        return Sent(entity, Sending(self.node.id, self.node.mzxid, values, topic_id), secrets)

    def taken(self, sent: Sent) -> set[str]:
        """Return the keys whose values the cluster took before, and that nothing followed since.

        They need not be sent as long as no change names them again, whatever became of other keys since. Others' later
        values of such keys are followed, or put back, by the next look; those of contested keys stay.
        """
        state = self.state
        if state is None:
            return set()
        until, values = members.read(self.node.extra).until, sent.sending.values
        taken = {key for key, offset in state.taken_at.items() if offset > until}
        taken |= state.drift.keys() & state.applied.keys()
        return {key for key in taken & values.keys() - self._repeated if state.applied[key] == values[key]}
