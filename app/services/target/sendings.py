"""One entity on its way to a Kafka cluster: which keys of its znode are to be sent, and with which values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from app.services.altered import altered
from app.services.ports.applying import Alteration, Held, Refused, Sending, Unknown
from app.services.target import members
from app.services.target.secrets import Secret, without

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from app.domain.changes import Node
    from app.domain.entities import Entity
    from app.services.ports.applying import End, TargetState, Values


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
        """The keys that the cluster may not have taken yet, without those that are contested."""
        keys, config, state = set(altered(self.node.extra)), self.node.config, self.state
        if state is not None:
            if not state.took_last and state.refused is None and not keys:
                # A repetition without an end, of a leader that ended: nobody knows of which keys it was.
                keys |= state.sent.keys()
            keys -= {key for key in state.drift if key in state.applied and state.applied[key] == config.get(key)}
        return keys | self._repeated

    @property
    def _repeated(self) -> frozenset[str]:
        """The keys that are sent whether or not the cluster took them before."""
        return frozenset() if self.state is None else self.state.reapply

    @property
    def _taken(self) -> Values:
        """The keys and values that the cluster took before, fingerprints in the place of secrets.

        A key counts for as long as nothing followed the cluster since it was taken, whatever became of sendings of
        other keys. Others' later values of the key are followed, or put back, by the next look.
        """
        state = self.state
        if state is None:
            return {}
        until = members.read(self.node.extra).until
        return {
            key: state.applied[key]
            for key, offset in state.taken_at.items()
            if offset > until and (state.took_last or key not in state.uncertain)
        }

    def sent(self, entity: Entity, keys: Collection[str], secrets: Mapping[str, Secret], topic_id: str | None) -> Sent:
        """Return what is to be sent.

        Args:
            entity: The entity.
            keys: :attr:`keys`.
            secrets: The passwords among them, opened.
            topic_id: The id of the cluster's topic; None of other entities.
        """
        config = self.node.config | {key: each.fingerprint for key, each in secrets.items()}
        taken, repeated = self._taken, self._repeated
        values = {
            key: config.get(key)
            for key in sorted(keys)
            if key in repeated or key not in taken or taken[key] != config.get(key)
        }
        own = {key: each for key, each in secrets.items() if key in values}
        return Sent(entity, Sending(self.node.id, self.node.mzxid, values, topic_id), own)
