"""Problems that routes name for the specification."""

from __future__ import annotations

from typing import Any, Final

from app.api import schemas
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
