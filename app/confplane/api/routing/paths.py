"""Entity ids in URLs, read from the raw path, because decoding loses the spelling of an id."""

from typing import Annotated, Any, Final

from fastapi import Depends, Path
from starlette.requests import Request
from starlette.types import Scope

from confplane.api.dependencies import EMBEDDED
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidEntityIdError

ID: Final = "{id:path}"
"""The entity id in the path of a route."""
_SEGMENTS: Final = 5
"""Parts of ``/v1/clusters/{cluster}/{facet}/`` before the id."""


def entity_in_path(pattern: str, example: str) -> Any:
    """Return the dependency of a parameter that takes the entity named by a request's path.

    Args:
        pattern: Regular expression of the ids, for the specification.
        example: An id.
    """

    def entity(
        request: Request,
        entity_id: Annotated[
            str,
            Path(
                alias="id",
                description="Entity id: `user=alice`, `user=alice,client-id=billing`, `user` (the default user); "
                "`topic=orders`, `broker=0`, `broker` (the default of all brokers). "
                "Bytes outside `A-Z a-z 0-9 . _ -` are written `~HH`, as in `user=CN~3Da~20b`.",
                json_schema_extra={"pattern": pattern},
                openapi_examples={EMBEDDED: {"value": example}},
            ),
        ],
    ) -> Entity:
        raw: bytes = request.scope.get("raw_path") or b"%"
        if entity_id and raw.isascii() and b"%" not in raw:  # nearly all paths: decoded text is raw text
            return Entity.from_id(entity_id)
        # What follows the id, such as "/effective"; after "/instances/" a name follows.
        suffix = request.scope["route"].path.partition(ID)[2].partition("{")[0]
        return entity_of(request.scope, suffix=suffix)

    return Depends(entity)


def entity_of(scope: Scope, *, suffix: str = "") -> Entity:
    """Return the entity that a request's path names.

    Args:
        scope: The ASGI scope; its raw path is read.
        suffix: The text after the id, for example ``/effective``. If it ends with a slash, a name follows.

    Raises:
        InvalidEntityIdError: The text is not an entity id, or not in its canonical spelling.
    """
    return Entity.from_id(_spelled(scope, suffix))


def _spelled(scope: Scope, suffix: str) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    root: str = scope.get("root_path", "")
    parts = path.removeprefix(root).split("/", _SEGMENTS)
    spelled = parts[_SEGMENTS] if len(parts) > _SEGMENTS else ""
    if suffix.endswith("/"):
        spelled = spelled.rpartition(suffix)[0]
    elif suffix and spelled.endswith(suffix):
        spelled = spelled[: -len(suffix)]
    if not spelled:
        raise InvalidEntityIdError("The entity id is empty")
    return spelled
