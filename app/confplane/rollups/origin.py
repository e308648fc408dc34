"""The stores that a run reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confplane.settings import ClusterSettings

if TYPE_CHECKING:
    from pydantic import SecretStr

    from confplane.settings import Settings


@dataclass(frozen=True, slots=True)
class Origin:
    """One cluster's ZooKeeper, and the Postgres that has its trail. Its representation has no secrets.

    Files of secrets are named by path, and read where they are needed, including tasks on the workers.
    """

    name: str
    """The cluster's name."""
    cluster: ClusterSettings = field(repr=False)
    dsn: SecretStr = field(repr=False)
    """The connection string of Postgres, for libpq; of a standby if there is a ``primary``."""
    primary: SecretStr | None = field(default=None, repr=False)
    """The connection string of the primary, if a standby is read instead."""

    @classmethod
    def of(cls, settings: Settings, name: str, *, read: SecretStr | None = None) -> Origin:
        """Return the stores of a cluster of the settings.

        Args:
            settings: The service's.
            name: The cluster.
            read: The connection string of a standby that is read instead of the settings' Postgres.

        Raises:
            NotFoundError: The settings have no such cluster.
        """
        primary = settings.postgres.dsn
        return cls(name, settings.cluster(name), read or primary, None if read is None else primary)

    def for_tasks(self) -> Origin:
        """Return the origin without the settings that are for the service alone, and may be secret."""
        cluster = self.cluster.model_dump(exclude={"policies", "policy_file", "server_properties"})
        return Origin(self.name, ClusterSettings.model_validate(cluster), self.dsn)
