"""Pieces of the specification that routes name: their problems, and parameters that FastAPI does not see."""

from __future__ import annotations

from typing import Any, Final

from app.api import patterns, schemas
from app.api.problems import MEDIA_TYPE

REASONS: Final = {
    400: "The request breaks a rule; `errors` names the place",
    401: "No valid bearer token",
    404: "No such cluster, entity or change",
    409: "The stored state does not allow it",
    410: "The result that `pageToken` names is not kept any more; begin again without it",
    412: "A precondition failed; `etag` is the current one",
    413: "The body, or the transaction that it would make, is too large",
    415: "The body is not declared to be JSON",
    422: "A config is refused by its definition, by what is set beside it, or by the cluster's policy; or the "
    "Idempotency-Key is of another request",
    429: "Too many changes are waiting for the brokers; see Retry-After",
    503: "ZooKeeper or Postgres is away, or not caught up; see Retry-After",
    504: "The write was sent and its reply was lost; its outcome is unknown",
}


def problems_of(*statuses: int, model: type[schemas.Problem] = schemas.Problem) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route for the problems that it may answer; 401 is always one of them.

    Args:
        statuses: What the route's own work may end in.
        model: The form of those problems; 401 has the plain one.
    """
    forms: dict[int | str, type[schemas.Problem]] = {401: schemas.Problem, **dict.fromkeys(statuses, model)}
    return {
        status: {
            "description": REASONS[int(status)],
            "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}},
        }
        for status, form in forms.items()
    }


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _header(name: str, pattern: str, description: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}


def id_parameter(pattern: str, example: str) -> dict[str, Any]:
    """Return the path parameter ``id`` of a facet's resources."""
    return {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": pattern},
        "description": "Entity id: `user=alice`, `user=alice,client-id=billing`, `user` (the default user); "
        "`topic=orders`, `broker=0`, `broker` (the default of all brokers). "
        "Bytes outside `A-Z a-z 0-9 . _ -` are written `~HH`, as in `user=CN~3Da~20b`.",
        "example": example,
    }


CLUSTER: Final[dict[str, Any]] = {
    "name": "cluster",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": patterns.CLUSTER},
    "description": "As /v1/clusters lists it",
    "example": "default",
}
PRECONDITIONS: Final = [
    _header("If-Match", patterns.ETAGS, "Only if the entity's current ETag is one of these; `*`: if anything is set"),
    _header("If-None-Match", patterns.ETAGS, "Only if the current ETag is none of these; `*`: if nothing is set"),
]
IDEMPOTENCY_KEY: Final = _header(
    "Idempotency-Key",
    patterns.IDEMPOTENCY_KEY,
    "Has this request done once, however often it is sent within 24 hours: sent again with the same body it is "
    "answered as the first time. A new key for every request, a random UUID for example. Without effect under "
    "`validateOnly`",
)
IF_NONE_MATCH_READ: Final = _header("If-None-Match", patterns.ETAGS, "Answer 304 when the ETag is one of these")
MIN_REVISION: Final = _header(
    "Confplane-Min-Revision", patterns.REVISION, "Wait until the answer is at least at this revision"
)
VIEW: Final = _query(
    "view",
    {"type": "string", "enum": ["default", "full"], "default": "default"},
    "full adds entity and status to a resource",
)
CONSISTENCY: Final = _query(
    "consistency",
    {"type": "string", "enum": ["mirror", "strong"], "default": "mirror"},
    "strong: behind every write committed before the request, for one round trip to ZooKeeper",
)
VALIDATE_ONLY: Final = _query(
    "validateOnly",
    {"type": "boolean", "default": False},
    "Go the whole way up to the write, and write nothing. Taken on every verb, without effect on reads",
)
REASON: Final = _query(
    "reason",
    {"type": "string", "maxLength": 1024},
    "Why; kept in the audit trail. Taken on every verb, without effect on reads",
)
TICKET: Final = _query(
    "ticket",
    {"type": "string", "maxLength": 1024},
    "A ticket's id; kept in the audit trail. Taken on every verb, without effect on reads",
)
POLLED_PARAMETERS: Final = [
    CLUSTER,
    VIEW,
    CONSISTENCY,
    VALIDATE_ONLY,
    REASON,
    TICKET,
    MIN_REVISION,
    IF_NONE_MATCH_READ,
]
"""Parameters of the reads that are answered ahead of FastAPI's dependencies, besides the id."""
SHARED: Final[dict[str, dict[str, Any]]] = {
    "cluster": CLUSTER,
    "view": VIEW,
    "consistency": CONSISTENCY,
    "validateOnly": VALIDATE_ONLY,
    "reason": REASON,
    "ticket": TICKET,
    "pageSize": _query(
        "pageSize",
        {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
        "Most items in one page; nextPageToken leads to the next",
    ),
    "minRevision": MIN_REVISION,
    "ifMatch": PRECONDITIONS[0],
    "ifNoneMatchWrite": PRECONDITIONS[1],
    "idempotencyKey": IDEMPOTENCY_KEY,
    "ifNoneMatchRead": IF_NONE_MATCH_READ,
    "reasonHeader": {
        "name": "Confplane-Reason",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "maxLength": 1024},
        "description": "As the query parameter reason, which goes before it",
    },
}
"""Parameters that many operations have in common, under their names in the specification's components."""
