"""Requests to both sides in Kafka's own JSON rendering, in sequences that begin from a known state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import quote

Body = dict[str, Any]
Tree = dict[str, bytes | None]
"""The data of entity znodes by their paths below ``/config``."""

STEPS: Final = 25
"""In each sequence."""
TYPES: Final = ("users", "clients", "ips", "topics", "brokers")
"""The children of ``/config`` that hold entities."""
DEFAULT_NODE: Final = "<default>"
_PLURALS: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
RESOURCES: Final = {2: "topics", 4: "brokers"}
"""The number of a resource's type to where its configs are."""


class Method(Enum):
    """A method of both sides: Kafka's API, our path, and the member that a request's parts are in."""

    DESCRIBE_QUOTAS = ("DESCRIBE_CLIENT_QUOTAS", "client-quotas:describe", "components")
    ALTER_QUOTAS = ("ALTER_CLIENT_QUOTAS", "client-quotas:alter", "entries")
    DESCRIBE_CONFIGS = ("DESCRIBE_CONFIGS", "configs:describe", "resources")
    ALTER_CONFIGS = ("INCREMENTAL_ALTER_CONFIGS", "configs:incrementalAlter", "resources")

    def __init__(self, api: str, path: str, parts: str) -> None:
        self.api = api
        self.path = path
        self.parts = parts

    @property
    def alters(self) -> bool:
        """True for a request that may change something."""
        return self in {Method.ALTER_QUOTAS, Method.ALTER_CONFIGS}


@dataclass(frozen=True, slots=True)
class Step:
    """One request."""

    method: Method
    body: Body


@dataclass(frozen=True, slots=True)
class Sequence:
    """Requests that see what those before them did."""

    seed: int
    number: int
    start: Tree
    """All entities that there are at its beginning, but for those that every sequence has."""
    steps: tuple[Step, ...]


def names_of(entity: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return type to name of an entity in a request or a response; of a repeated type the last, as in Kafka."""
    return {item["entityType"]: item["entityName"] for item in entity}


def quota_path(names: dict[str, str | None]) -> str | None:
    """Return where an entity's quotas are, or None where no such entity can be."""
    kinds = set(names)
    if kinds not in ({"user"}, {"client-id"}, {"user", "client-id"}, {"ip"}):
        return None
    elements = []
    for kind in ("user", "client-id", "ip"):
        if kind in names:
            element = _element(names[kind])
            if element is None:
                return None
            elements += [_PLURALS[kind], element]
    return "/".join(elements)


def config_path(resource_type: int, name: str) -> str | None:
    """Return where a topic's or broker's configs are, or None where no such resource can be."""
    if resource_type not in RESOURCES or "/" in name or name in {".", ".."} or "\0" in name:
        return None
    if RESOURCES[resource_type] == "brokers":
        # Kafka reads the name as a number and writes that.
        number = re.fullmatch("[+-]?[0-9]{1,10}", name)
        return f"brokers/{int(name) if number else name or DEFAULT_NODE}"
    return f"topics/{name}" if name and name.isascii() else None


def _element(name: str | None) -> str | None:
    if name is None:
        return DEFAULT_NODE
    if name in {"", ".", ".."}:
        return None
    # Java writes a lone surrogate as a question mark.
    return quote(name, safe="", errors="replace").replace("~", "%7E")
