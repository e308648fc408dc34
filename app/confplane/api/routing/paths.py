"""The paths of requests: the route of each, and the entity that it names.

Thousands of applications each poll one entity every few minutes. Matching one route after the other would cost as much
as the responses themselves, so the route is found by its path before the router, with the same result. Most paths are
fixed; in paths of single entities the cluster and the id differ. All other paths, and requests that match no route, are
left to the router.

Entity ids are read from the raw path, because decoding loses the spelling of an id.
"""

from functools import lru_cache
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Path
from starlette.requests import Request
from starlette.types import Scope

from confplane.api.dependencies import EMBEDDED
from confplane.api.routing.routes import StrictRoute
from confplane.domain.entities import CACHED_LENGTH, Entity
from confplane.domain.errors import InvalidEntityIdError

ID: Final = "{id:path}"
"""The entity id in the path of a route."""
_SEGMENTS: Final = 5
"""Parts of ``/v1/clusters/{cluster}/{facet}/`` before the id."""
_CLUSTERS: Final = "/v1/clusters/"
_CLUSTER: Final = "/v1/clusters/{cluster}"
_SUFFIXES: Final = ("/effective", "/history", "/diff", "/status", ":revert")
"""The suffixes of paths after an entity id."""
_INSTANCES: Final = "/instances/"
_INSTANCE: Final = "{instanceId}"
"""The suffix of a path after an entity id that names a running client."""
_CACHE_SIZE: Final = 4_096
"""Paths whose routes are cached: applications poll the same few thousand."""


class Lookup:
    """Finds the routes of requests.

    Args:
        app: The application that has the routes.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._kept = lru_cache(maxsize=_CACHE_SIZE)(self._find)
        self._whole: dict[tuple[str, str], StrictRoute] = {}
        """Routes by method and path."""
        self._of_cluster: dict[tuple[str, str], StrictRoute] = {}
        """Routes by method and the path after the cluster."""
        self._of_entity: dict[tuple[str, str, str], StrictRoute] = {}
        """Routes by method, the part of the path before the id, and the part after it."""
        for route in app.routes:
            if isinstance(route, StrictRoute):
                self._add(route)

    def _add(self, route: StrictRoute) -> None:
        behind = route.path.removeprefix(_CLUSTER)
        for method in route.methods or ():
            if "{" not in route.path:
                self._whole[method, route.path] = route
            elif "{" not in behind:
                self._of_cluster[method, behind] = route
            elif ID in behind:
                facet, _, suffix = behind[1:].partition(ID)
                self._of_entity[method, facet, suffix] = route

    def find(self, scope: Scope) -> StrictRoute | None:
        """Return the route of a request, and set it in the scope as the router does. None if the router must decide."""
        method, path, root = scope["method"], scope["path"], scope.get("root_path", "")
        # Long paths would need too much memory.
        found = (self._kept if len(path) <= CACHED_LENGTH else self._find)(method, path, root)
        if found is None:
            return None
        route, parameters = found
        scope["app"] = self._app
        scope["route"] = route
        scope["path_params"] = parameters.copy()
        return route

    def _find(self, method: str, path: str, root: str) -> tuple[StrictRoute, dict[str, str]] | None:
        """Return the route of a path, and the path's parameters."""
        path = path.removeprefix(root)
        parameters: dict[str, str] = {}
        if path.startswith(_CLUSTERS):
            cluster, slash, behind = path[len(_CLUSTERS) :].partition("/")
            parameters["cluster"] = cluster
            found = self._of_cluster.get((method, slash + behind)) if cluster else None
            if found is None and not slash:
                name, colon, verb = cluster.rpartition(":")
                found = self._of_cluster.get((method, colon + verb)) if name else None
                if found is not None:
                    cluster = parameters["cluster"] = name
            if found is None and cluster:
                facet, end, entity_id = behind.partition("/")
                suffix = ""
                if entity_id.endswith(_SUFFIXES):
                    suffix = next(each for each in _SUFFIXES if entity_id.endswith(each))
                else:
                    named, found_it, instance = entity_id.rpartition(_INSTANCES)
                    if found_it and instance and "/" not in instance:
                        entity_id, suffix, parameters["instanceId"] = named, f"{_INSTANCES}{_INSTANCE}", instance
                parameters["id"] = entity_id.removesuffix(suffix)
                found = self._of_entity.get((method, facet + end, suffix))
        else:
            found = self._whole.get((method, path))
        return None if found is None else (found, parameters)


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
