"""The stores that a run reads. Free of Spark, so that the wiring can make the description."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import SecretStr

from app.settings import ClusterSettings

if TYPE_CHECKING:
    from pathlib import Path


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

    def save(self, path: Path) -> None:
        """Write the origin to a new file that nobody else may read."""
        # The other settings of a cluster are for the service, and may be secret.
        cluster = self.cluster.model_dump(mode="json", exclude={"policies", "policy_file", "server_properties"})
        content = {
            "name": self.name,
            "cluster": cluster,
            "dsn": self.dsn.get_secret_value(),
        }
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file)

    @classmethod
    def load(cls, path: Path) -> Origin:
        """Read a saved origin."""
        content = json.loads(path.read_text("utf-8"))
        return cls(content["name"], ClusterSettings.model_validate(content["cluster"]), SecretStr(content["dsn"]))
