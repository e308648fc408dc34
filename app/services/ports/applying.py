"""Alters of a Kafka cluster's client quotas, and the durable states of what was sent.

The cluster is implemented by ``app.kraft``, the states by ``app.audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.domain.entities import Entity

Values = dict[str, str | None]
"""Keys with their values as stored; None is a removal."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """The keys to set and to remove of one entity."""

    entity: Entity
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Applied:
    """The cluster has the values."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The cluster refused the entity's values, for certain, and would do so again."""

    code: int
    """Kafka's number of the error."""
    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The cluster may have the values, may get them later, or never: no answer came, or one that leaves it open."""

    reason: str


End = Applied | Refused | Unknown


class QuotasCluster(Protocol):
    """A Kafka cluster whose client quotas are altered."""

    async def alter_quotas(self, alterations: Sequence[Alteration], deadline: float) -> list[End]:
        """Alter client quotas, in requests of a good size, one at a time; return the ends in the same order.

        Args:
            alterations: The alterations, each of another entity.
            deadline: On ``time.monotonic()``'s clock.

        Raises:
            UnavailableError: No broker answers, and nothing was sent.
            NotPermittedError: The cluster refuses the login, or the right to alter; nothing was altered.
            OtherClusterError: A broker belongs to another cluster; nothing was sent to it.
        """

    async def barrier(self, deadline: float) -> int:
        """Return a metadata offset behind all acknowledged changes: see ``app.services.ports.kafka.KafkaCluster``."""


@dataclass(frozen=True, slots=True)
class Sending:
    """The values of an entity that are about to be sent."""

    entity_id: str
    mzxid: int
    """The revision of the znode that they were read from."""
    values: Values


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a sending."""

    entity_id: str
    mzxid: int
    values: Values
    end: Applied | Refused
    offset: int
    """A metadata offset behind the end."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of one entity in a Kafka cluster, as far as this service changed it."""

    entity_id: str
    sent_mzxid: int
    """The revision of the znode whose values were sent last."""
    applied_mzxid: int | None
    """The newest revision of the znode that the cluster has taken in whole; None: none yet."""
    applied_offset: int
    """A metadata offset at which the cluster had it; -1: none yet."""
    applied: Values
    """The keys and values that the cluster has taken from this service."""
    sent: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """Of each key the different values that were sent within a day, in order."""
    refused: Refused | None = None
    """The refusal of the values of ``sent_mzxid``; None where they were not refused."""

    @property
    def is_applied(self) -> bool:
        """True where the cluster has the values of the last sending: an earlier one can only be late then."""
        return self.applied_mzxid == self.sent_mzxid

    @property
    def is_open(self) -> bool:
        """True where the end of the last sending is not known."""
        return not self.is_applied and self.refused is None

    def is_settled(self, mzxid: int) -> bool:
        """Say whether nothing is to be sent of a znode's revision: the cluster has it, or refuses it."""
        return self.applied_mzxid == mzxid or (self.refused is not None and self.sent_mzxid == mzxid)


class TargetStates(Protocol):
    """The states in Postgres. Every call raises ``UnavailableError`` while it is away."""

    async def known(self, cluster: str, entity_ids: Sequence[str]) -> dict[str, TargetState]:
        """Return the states of some entities, by id; entities without a state are left out."""

    async def begin(self, cluster: str, sendings: Sequence[Sending]) -> set[str]:
        """Make durable what is about to be sent; return the ids of the entities that may be sent.

        An entity of which a newer revision was sent is left out: another leader knows more.
        """

    async def end(self, cluster: str, endings: Sequence[Ending]) -> None:
        """Write the ends of sendings, except those of entities of which a newer revision was sent meanwhile."""

    async def forget(self, cluster: str) -> None:
        """Drop the states of a cluster."""
