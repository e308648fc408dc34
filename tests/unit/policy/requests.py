"""Policy requests in short, and a distribution with plug-ins as pip would leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.entities import Entity
from confplane.domain.policy_rules import PolicyRequest

if TYPE_CHECKING:
    from pathlib import Path


def request(
    entity: str = "topic=orders",
    *changes: str,
    principal: str = "User:ci",
    facet: str | None = None,
    before: dict[str, str | None] | None = None,
    sensitive: frozenset[str] = frozenset(),
) -> PolicyRequest:
    """Build a request of changes such as ``key=value`` and ``-key``."""
    found = Entity.from_id(entity)
    values: dict[str, str | None] = {}
    removed = set()
    for change in changes:
        key, separator, value = change.partition("=")
        if separator:
            values[key] = None if key in sensitive else value
        else:
            removed.add(key.removeprefix("-"))
    was = {key: None if key in sensitive else "1" for key in removed} | (before or {})
    return PolicyRequest(
        cluster="payments",
        principal=principal,
        facet=facet or ("configs" if found.types[0].value in {"topic", "broker"} else "client-quotas"),
        entity=found,
        set=values,
        removed=frozenset(removed),
        before=was,
        after={key: value for key, value in (was | values).items() if key not in removed},
        validate_only=False,
        pointers={key: f"/ops/{index}" for index, key in enumerate([*values, *sorted(removed)])},
    )


def install(folder: Path, module: str, source: str, entry_points: dict[str, str]) -> None:
    """Leave a module and the metadata of its distribution in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[confplane.policies]", *lines, ""]))
