"""Entity ids in URLs, read from the raw path: a decoded path has lost what tells one spelling from another."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from app.domain.entities import Entity
from app.domain.errors import InvalidEntityIdError

if TYPE_CHECKING:
    from starlette.types import Scope

_SEGMENTS = 5
"""``/v1/clusters/{cluster}/{facet}/`` before the id."""


def entity_of(scope: Scope, *, suffix: str = "") -> Entity:
    """Return the entity that a request's path names; arguments and errors as :func:`id_of`."""
    return Entity.from_id(_spelled(scope, suffix))


def id_of(scope: Scope, *, suffix: str = "") -> str:
    """Return the canonical id of the entity that a request's path names.

    Args:
        scope: The ASGI scope; its raw path is read.
        suffix: What follows the id, e.g. ``/effective``.

    Raises:
        InvalidEntityIdError: Not an entity id, or not its one spelling.
    """
    return _canonical(_spelled(scope, suffix))


@lru_cache(maxsize=16_384)
def _canonical(spelled: str) -> str:
    return Entity.from_id(spelled).id


def _spelled(scope: Scope, suffix: str) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    root: str = scope.get("root_path", "")
    parts = path.removeprefix(root).split("/", _SEGMENTS)
    spelled = parts[_SEGMENTS] if len(parts) > _SEGMENTS else ""
    if suffix and spelled.endswith(suffix):
        spelled = spelled[: -len(suffix)]
    if not spelled:
        raise InvalidEntityIdError("The entity id is empty")
    return spelled
