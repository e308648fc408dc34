"""What a run reads from. Free of Spark, so that the wiring can make it."""

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

    Files of secrets are named by path: whoever needs one reads it there, tasks on the workers included.
    """

    name: str
    """The cluster's."""
    cluster: ClusterSettings = field(repr=False)
    dsn: SecretStr = field(repr=False)
    """Of Postgres: a connection string for libpq."""

    def save(self, path: Path) -> None:
        """Write it to a new file that nobody else may read."""
        # What else the settings of a cluster hold is for the service, and may be secret.
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
        """Read what was saved."""
        content = json.loads(path.read_text("utf-8"))
        return cls(content["name"], ClusterSettings.model_validate(content["cluster"]), SecretStr(content["dsn"]))
