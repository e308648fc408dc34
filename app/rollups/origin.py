"""The stores that a run reads. Free of Spark, so that the wiring can make the description."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.settings import ClusterSettings

if TYPE_CHECKING:
    from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class Origin:
    """One cluster's ZooKeeper, and the Postgres that has its trail. Its representation has no secrets.

    Files of secrets are named by path, and read where they are needed, tasks on the workers included.
    """

    name: str
    """The cluster's name."""
    cluster: ClusterSettings = field(repr=False)
    dsn: SecretStr = field(repr=False)
    """The connection string of Postgres, for libpq."""

    def for_tasks(self) -> Origin:
        """Return the origin without the settings that are for the service alone, and may be secret."""
        cluster = self.cluster.model_dump(exclude={"policies", "policy_file", "server_properties"})
        return Origin(self.name, ClusterSettings.model_validate(cluster), self.dsn)
