"""Reports of clients on the client configs that they have applied. Implemented by ``confplane.audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_S: Final = 900
"""Seconds from a report until it is forgotten: three polls at the default ``metadata.max.age.ms``, five minutes."""


class Refusal(NamedTuple):
    """A dynamic config that a client did not apply."""

    key: str
    reason: str


class AppliedReport(NamedTuple):
    """Report of one running client on the configs that it has applied."""

    software_name: str
    software_version: str
    applied_revision: int
    """The revision of the answer with whose configs the client runs."""
    refused: tuple[Refusal, ...]


class AppliedReports(Protocol):
    """Reports by cluster, entity and instance: answered from memory, shared through Postgres, forgotten in time."""

    def report(self, cluster: str, entity_id: str, instance_id: str, report: AppliedReport) -> bool:
        """Take a report, in place of the instance's last one; never waits. Postgres has it about a second later.

        Return False if it repeats the last one, which costs no row.

        Raises:
            LimitExceededError: The user has no room for a further instance.
            UnavailableError: There is no room for a further instance.
        """

    def reported(self, cluster: str, entity_id: str) -> Sequence[str]:
        """Return the ids with reports: that of an entity and, if it is a user, those of the user's client-ids."""

    def of_entity(self, cluster: str, entity_id: str) -> Sequence[AppliedReport]:
        """Return the reports on one entity, of the instances that are not forgotten."""
