"""Every error as ``application/problem+json`` (RFC 9457), by one table.

The domain knows nothing of HTTP. The table below maps each error to its status and problem type. A subclass that is not
in the table has the problem type of its parent.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uuid_utils import uuid7

from confplane.api.cors import Cors
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext, Traffic
from confplane.api.responses import CHALLENGE, NOSNIFF, Headers, json_response, timestamp
from confplane.domain import errors
from confplane.domain.errors import ConfplaneError, KafkaCode
from confplane.domain.texts import step

logger = logging.getLogger(__name__)

SHOWN: Final = 50
"""The greatest number of pydantic's findings in a problem."""
MEDIA_TYPE: Final = "application/problem+json"


class FindingsError(errors.InvalidRequestError):
    """Parameters or a body that pydantic refused.

    Args:
        found: The findings; the first part of a place is its kind, such as ``body`` or ``query``.
        sent: The parsed body.

    Attributes:
        parts: The findings in a problem's form: each with a JSON pointer into the body, or a parameter's name.
        validate_only: The body asks for a validation only.
    """

    def __init__(self, found: Sequence[Any], sent: Any = None) -> None:
        rules: dict[str, list[str]] = {}
        for item in found[:SHOWN]:
            # A value that may have one of several types has a finding for each type.
            rules.setdefault(_pointer(item["loc"], sent, missing=item["type"] == "missing"), []).append(_rule(item))
        self.parts = [
            {"pointer": pointer, "detail": "; or: ".join(dict.fromkeys(texts))} for pointer, texts in rules.items()
        ]
        self.validate_only = isinstance(sent, dict) and sent.get("validateOnly") is True
        first = self.parts[0]
        super().__init__(f"{first['pointer'] or 'the body'}: {first['detail']}")


@dataclass(frozen=True, slots=True)
class ProblemType:
    """The problem type of an error: its status, slug and title."""

    status: int
    slug: str
    title: str


TABLE: Final[dict[type[ConfplaneError], ProblemType]] = {
    ConfplaneError: ProblemType(500, "internal", "Internal error"),
    errors.InvalidRequestError: ProblemType(400, "invalid-request", "Invalid request"),
    errors.InvalidEntityIdError: ProblemType(400, "invalid-entity-id", "Not the spelling of an entity id"),
    errors.BodyTooLargeError: ProblemType(413, "too-large", "Too large"),
    errors.HeadTooLargeError: ProblemType(431, "head-too-large", "The request's head is too large"),
    errors.TargetTooLongError: ProblemType(414, "target-too-long", "The URL is too long"),
    errors.MediaTypeError: ProblemType(415, "media-type", "Not JSON"),
    errors.LayoutUndecidedError: ProblemType(409, "layout-undecided", "The layout of client configs is not chosen"),
    errors.IdempotencyUnsupportedError: ProblemType(400, "idempotency-unsupported", "Idempotency-Key is not supported"),
    errors.IdempotencyKeyReusedError: ProblemType(
        422, "idempotency-key-reused", "The Idempotency-Key is of another request"
    ),
    errors.IdempotencyKeyBusyError: ProblemType(409, "idempotency-key-busy", "The first request is still under way"),
    errors.EncoderSecretMissingError: ProblemType(
        422, "encoder-secret-missing", "The broker's encoder secret is not set"
    ),
    errors.InvalidConfigError: ProblemType(422, "invalid-config", "Invalid config"),
    errors.PolicyViolationError: ProblemType(422, "policy-violation", "Refused by policy"),
    errors.UnknownTopicError: ProblemType(404, "unknown-topic", "No such topic"),
    errors.InvalidTopicError: ProblemType(400, "invalid-topic", "Not a topic's name"),
    errors.UnsupportedVersionError: ProblemType(400, "unsupported-version", "Unsupported"),
    errors.UnauthenticatedError: ProblemType(401, "unauthenticated", "Authentication needed"),
    errors.ForbiddenError: ProblemType(403, "forbidden", "Not allowed"),
    errors.TopicForbiddenError: ProblemType(403, "topic-forbidden", "Not allowed on this topic"),
    errors.GroupForbiddenError: ProblemType(403, "group-forbidden", "Not allowed on this group"),
    errors.NotFoundError: ProblemType(404, "not-found", "Not found"),
    errors.UnknownRouteError: ProblemType(404, "unknown-route", "No such URL"),
    errors.UnknownClusterError: ProblemType(404, "unknown-cluster", "No such cluster"),
    errors.NothingSetError: ProblemType(404, "nothing-set", "Nothing is set on the entity"),
    errors.ResultGoneError: ProblemType(410, "result-gone", "Not kept any more"),
    errors.BeforeHistoryError: ProblemType(410, "before-history", "Before the history begins"),
    errors.StoreReplacedError: ProblemType(410, "store-replaced", "Of a store that was replaced"),
    errors.StaleControllerError: ProblemType(409, "stale-controller", "No controller accepts config writes"),
    errors.FrozenError: ProblemType(409, "frozen", "The cluster is frozen"),
    errors.RestoredStoreError: ProblemType(409, "store-restored", "ZooKeeper was restored"),
    errors.ObservedError: ProblemType(409, "observed", "The cluster is observed only"),
    errors.LayoutMovingError: ProblemType(409, "layout-moving", "Client configs are being moved"),
    errors.CorruptZnodeError: ProblemType(409, "corrupt-znode", "Stored data can't be read"),
    errors.UndecodablePasswordError: ProblemType(409, "undecodable-password", "A stored password can't be decoded"),
    errors.AlreadyExistsError: ProblemType(409, "already-exists", "Already exists"),
    errors.OwnerConflictError: ProblemType(409, "owner-conflict", "A key has another owner"),
    errors.StalePlanError: ProblemType(409, "stale-plan", "The plan is out of date"),
    errors.RequestStateError: ProblemType(409, "request-state", "The state of the request does not allow it"),
    errors.WebhookConflictError: ProblemType(409, "webhook-conflict", "The state of the webhooks does not allow it"),
    errors.RevertConflictError: ProblemType(409, "revert-conflict", "Later changes touched the same keys"),
    errors.NotRevertibleError: ProblemType(409, "not-revertible", "Can't be reverted"),
    errors.ConcurrentChangeError: ProblemType(409, "concurrent-change", "Changed concurrently"),
    errors.PreconditionFailedError: ProblemType(412, "precondition-failed", "Precondition failed"),
    errors.ListFullError: ProblemType(422, "list-full", "Brokers could not list more names"),
    errors.ThrottledError: ProblemType(429, "throttled", "Too many changes"),
    errors.LimitExceededError: ProblemType(429, "limit-exceeded", "Too many requests"),
    errors.NotAttemptedError: ProblemType(409, "not-attempted", "Not attempted"),
    errors.UnavailableError: ProblemType(503, "unavailable", "A store is not available"),
    errors.TooManyConnectionsError: ProblemType(503, "too-many-connections", "Too many connections"),
    errors.RequestTimeoutError: ProblemType(408, "request-timeout", "The request did not arrive in time"),
    errors.OutcomeUnknownError: ProblemType(504, "outcome-unknown", "The outcome is unknown"),
}


def problem_type_of(error: ConfplaneError) -> ProblemType:
    """Return the problem type of the nearest class of an error in the table."""
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    raise AssertionError(f"{type(error).__name__} is not a ConfplaneError")


def parts(error: ConfplaneError) -> list[dict[str, str]]:
    """Return the places of an error and of its further errors, each once."""
    found = (error, *error.further)
    places = dict.fromkeys((each.pointer, each.detail) for each in found if each.pointer is not None)
    return [{"pointer": pointer, "detail": detail} for pointer, detail in places]


def problem(error: ConfplaneError, *, request_id: str | None, instance: str | None = None) -> dict[str, Any]:
    """Return the body of a problem."""
    row = problem_type_of(error)
    body: dict[str, Any] = {
        "type": f"/problems/{row.slug}",
        "title": row.title,
        "status": row.status,
        "detail": error.detail,
        "instance": instance,
        "kafkaErrorCode": int(error.code),
        "kafkaErrorName": error.code.name,
        "retriable": error.retriable,
        "requestId": request_id,
        "errors": parts(error),
    }
    if error.outcome is not None:
        body["outcome"] = error.outcome.value
    match error:
        case FindingsError(parts=found):
            body["errors"] = found
        case errors.InvalidEntityIdError(canonical_id=canonical_id):
            body["canonicalId"] = canonical_id
        case errors.PreconditionFailedError(etag=etag):
            body["etag"] = etag
        case errors.BeforeHistoryError(since=since, since_time=since_time, oldest=oldest):
            body["since"] = None if since is None else str(since)
            body["sinceTime"] = since_time
            body["oldest"] = oldest
        case errors.CorruptZnodeError(path=path):
            body["path"] = path
        case errors.RevertConflictError(later=later):
            body["laterChanges"] = [later_change(each) for each in later]
        case errors.OutcomeUnknownError(change_id=change_id):
            body["changeId"] = change_id
        case errors.LimitExceededError(throttle_ms=throttle_ms):
            body["throttleTimeMs"] = throttle_ms
        case _:
            pass
    return body


def later_change(change: errors.ConflictingChange) -> dict[str, Any]:
    """Return a later change that blocks a revert."""
    return {
        "changeId": None if change.change_id is None else str(change.change_id),
        "kind": change.kind,
        "principal": change.principal,
        "revision": None if change.revision is None else str(change.revision),
        "time": None if change.time_ms is None else timestamp(change.time_ms),
        "keys": list(change.keys),
    }


def respond(
    request: Request,
    error: ConfplaneError,
    *,
    written_at: int | None = None,
    consistency: Headers | None = None,
    **members: Any,
) -> Response:
    """Render an error as the response to a request; ``members`` are added to its body.

    ``written_at`` is the revision of a response with several errors, otherwise that of the error. ``consistency`` is as
    of :func:`~confplane.api.responses.json_response`.
    """
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    if context.refused is not None:
        context.error = error
    request_id = context.request_id
    # The path as sent: a decoded path may not be a valid URI reference.
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    body = problem(error, request_id=request_id, instance=raw.decode("latin-1")) | members
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, errors.UnauthenticatedError):
        headers["WWW-Authenticate"] = request.scope.get(CHALLENGE, 'Bearer realm="confplane"')
    if isinstance(error, errors.OutcomeUnknownError):
        headers["Confplane-Change-Id"] = error.change_id
    return json_response(
        request,
        body,
        status=body["status"],
        headers=headers,
        media_type=MEDIA_TYPE,
        revision=error.revision if written_at is None else written_at,
        consistency=consistency,
    )


class _HttpError(ConfplaneError):
    """An error of the HTTP layer itself."""

    code = KafkaCode.INVALID_REQUEST


def install(app: FastAPI) -> None:
    """Make an application answer with problems if no route matches, for unknown paths and unsupported methods."""

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
        if error.status_code == 404:  # noqa: PLR2004 - HTTP
            return respond(
                request,
                errors.UnknownRouteError(
                    f"There is no operation at {request.scope['path'][:200]!a}; /openapi.json lists all"
                ),
            )
        title = detail = str(error.detail)
        headers = dict(error.headers or {})
        if error.status_code == 405:  # noqa: PLR2004 - HTTP
            # Starlette names the methods of the first route with this path alone.
            headers["Allow"] = ", ".join(sorted(_methods(app, request)))
            detail = f"This path takes {headers['Allow']} and no other method"
        response = respond(request, _HttpError(detail), status=error.status_code, title=title, type="/problems/http")
        response.headers.update(headers)
        return response

    app.add_exception_handler(HTTPException, http)


def _methods(app: FastAPI, request: Request) -> set[str]:
    """Return the methods that a request's path supports."""
    return {
        method
        for route in app.routes
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"])
        for method in route.methods or ()
    }


def internal(request: Request, error: Exception) -> Response:
    """Render a bug: the log has all details, the response only the request id by which they can be found."""
    logger.error("unhandled error for request %s", request.scope[REQUEST_CONTEXT].request_id, exc_info=error)
    return respond(request, ConfplaneError("An error on our side; its log line carries this request id"))


class ListenerErrorRenderer:
    """Renders errors of the listener as problems, each with its own request id, and counts them.

    Args:
        traffic: Counts the errors as requests that reached no route.
        cors: The origins whose pages may read the responses. None if there are no such origins.
    """

    def __init__(self, traffic: Traffic, cors: Cors | None = None) -> None:
        self._traffic = traffic
        self._cors = cors

    def __call__(self, error: ConfplaneError, origin: bytes | None) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, headers and body. ``origin`` is the Origin header of the request, if it was read."""
        request_id = str(uuid7())
        found = problem(error, request_id=request_id)
        status: int = found["status"]
        self._traffic.count("other", None, status, 0.0)
        body = orjson.dumps(found)
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
            NOSNIFF,
        ]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after_s))
        if self._cors is not None:
            headers += self._cors.headers(origin)
        return status, headers, body


def _pointer(loc: Sequence[str | int], sent: Any, *, missing: bool) -> str:
    head, *rest = loc or ("body",)
    if head != "body":
        return "/".join(str(part) for part in rest)
    pointer, place = "", sent
    for part in rest:
        try:
            place = place[part]
        except (LookupError, TypeError):
            # An absent member, or the name of a possible type instead of a place.
            return pointer + step(part) if missing else pointer
        pointer += step(part)
    return pointer


_RULES: Final = {
    "dict_type": "this must be a JSON object",
    "extra_forbidden": "this member is not known here",
    "list_type": "this must be a JSON array",
    "missing": "this member is required",
    "model_attributes_type": "this must be a JSON object",
    "model_type": "this must be a JSON object",
}


def _rule(item: Any) -> str:
    if item["type"] == "literal_error":
        known = item["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"this must be one of {known}"
    text = _RULES.get(item["type"], item["msg"])
    return str(text)[:300]
