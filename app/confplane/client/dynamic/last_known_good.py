"""The last known good values in a file, for a start while the service is unavailable."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LastKnownGoodFile:
    """A file with the values of one client. Another client, cluster or service does not read them.

    Args:
        path: The file; its directory exists.
        bound_to: URL, cluster, and entity id.
    """

    path: Path
    bound_to: tuple[str, str, str]

    def load(self) -> dict[str, str] | None:
        """Return the values, or None if the file does not exist or belongs to another client."""
        try:
            content = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        match content:
            case {"boundTo": list(bound_to), "configs": dict(configs)} if tuple(bound_to) == self.bound_to:
                texts = {key: value for key, value in configs.items() if isinstance(value, str)}
                return texts if len(texts) == len(configs) else None
            case _:
                return None

    def save(self, configs: Mapping[str, str]) -> None:
        """Replace the file in one step, readable by its owner alone.

        Raises:
            OSError: The file can't be written. The previous file is unchanged.
        """
        with atomic_write(self.path, mode=0o600) as file:
            json.dump({"boundTo": self.bound_to, "configs": dict(configs)}, file, indent=2)
