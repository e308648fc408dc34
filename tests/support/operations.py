"""The operations of the committed specification."""

from __future__ import annotations

from typing import Any, Final

from tests.unit.client.generate import specification

SPEC: Final[dict[str, Any]] = specification()
OPERATIONS: Final[dict[str, dict[str, Any]]] = {
    operation["operationId"]: {**operation, "path": path, "method": method}
    for path, item in SPEC["paths"].items()
    for method, operation in item.items()
}
"""Each operation by its id, with its path and its method."""


def resolve(item: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference within the specification."""
    while "$ref" in item:
        kind, name = item["$ref"].removeprefix("#/components/").split("/")
        item = SPEC["components"][kind][name]
    return item
