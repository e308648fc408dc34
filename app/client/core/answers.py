"""Answers of httpx, and their absence, in the terms of this library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from app.client.core.calls import Answer
from app.client.errors import ClientError, ConnectionFailedError, problem_of

if TYPE_CHECKING:
    from app.client.core.calls import Call

T = TypeVar("T")


def answer_of(call: Call[T], response: httpx.Response) -> Answer[T]:
    """Read an answer.

    Raises:
        ProblemError: The service answered with an error.
        ClientError: The answer is no JSON.
    """
    if response.is_error:
        raise _problem(response)
    headers = response.headers
    return Answer(
        status=response.status_code,
        body=response.text if call.text else _json(call, response),  # type: ignore[arg-type]  # the call says which
        revision=_number(headers.get("Confplane-Revision")),
        change_id=headers.get("Confplane-Change-Id"),
        etag=headers.get("ETag"),
        stale_ms=_number(headers.get("Confplane-Stale-Ms")),
        replayed="Idempotency-Replayed" in headers,
        applied_revision=_number(headers.get("Confplane-Applied-Revision")),
    )


def unanswered(call: Call[Any], error: httpx.TransportError) -> ConnectionFailedError:
    """Return the error for a request without an answer."""
    unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return ConnectionFailedError(
        f"{call.method} {call.path}: {type(error).__name__}: {error}",
        may_be_applied=call.method != "GET" and not unsent,
    )


def _json(call: Call[T], response: httpx.Response) -> T | None:
    try:
        return response.json() if response.content else None
    except ValueError as error:
        raise ClientError(
            f"{call.method} {call.path}: the answer is no JSON; is this the URL of a Confplane?"
        ) from error


def _problem(response: httpx.Response) -> ClientError:
    """Read an error; an answer that is no problem is from a server between us and the service."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"title": response.reason_phrase, "detail": response.text[:200]}
    retry_after = response.headers.get("Retry-After", "")
    return problem_of(
        response.status_code,
        body,
        # RFC 9110 also allows a date here, which the service never sends.
        retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
