"""Converts httpx responses and failures to the answers and errors of this library."""

from __future__ import annotations

import ssl
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from confplane.client.core.calls import Answer
from confplane.client.errors import ClientError, ConnectionFailedError, problem_of

if TYPE_CHECKING:
    from confplane.client.core.calls import ApiCall

T = TypeVar("T")
V = TypeVar("V")

_ABSENT = object()
_NO_STREAM = httpx.ByteStream(b"")
_UNSENDABLE = (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError)
"""Exceptions of httpx for a URL or a header that no request can have."""
FAILURES = (httpx.RequestError, ssl.SSLError, *_UNSENDABLE)
"""Exceptions of httpx for a request without a whole answer; with asyncio, httpx does not wrap TLS errors."""


def answer_of(call: ApiCall[T], response: httpx.Response) -> Answer[T]:
    """Read an answer.

    Raises:
        ProblemError: The service answered with an error, or a proxy answered with anything but a success.
        ClientError: The answer was not formed by the service.
    """
    # It was read in full. httpx's stream refers to its response: removing the stream avoids a cycle that keeps the body
    # in memory.
    response.stream = _NO_STREAM
    headers = response.headers
    unchanged = response.status_code == HTTPStatus.NOT_MODIFIED and call.conditional
    if not response.is_success and not unchanged:
        raise _problem(call, response)
    return Answer(
        status=response.status_code,
        body=None if unchanged else _text(response) if call.text else _json(call, response),  # type: ignore[arg-type]  # the call says which
        revision=_number(call, headers, "Confplane-Revision"),
        change_id=headers.get("Confplane-Change-Id"),
        etag=headers.get("ETag"),
        stale_ms=_number(call, headers, "Confplane-Stale-Ms"),
        replayed="Idempotency-Replayed" in headers,
        applied_revision=_number(call, headers, "Confplane-Applied-Revision"),
        request_id=headers.get("X-Request-Id"),
    )


def no_answer_error(call: ApiCall[Any], error: Exception) -> ClientError:
    """Return the error for a request without a whole answer: one of :data:`FAILURES`."""
    if isinstance(error, httpx.DecodingError):
        return unreadable_answer_error(call, str(error))
    if isinstance(error, _UNSENDABLE):
        return ClientError(f"{call.method} {call.path}: this can't be sent: {error}")
    unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    try:
        url = str(error.request.url.copy_with(query=None)) if isinstance(error, httpx.RequestError) else call.path
    except RuntimeError:  # the error was raised before a request was made
        url = call.path
    return ConnectionFailedError(
        f"{call.method} {url}: {type(error).__name__}: {error}",
        may_be_applied=not call.reads and not unsent,
    )


def member(call: ApiCall[Any], answer: Answer[Any], name: str, kind: type[V] | tuple[type[V], ...]) -> V:
    """Return a member of a body.

    Raises:
        ClientError: The body has no such member of this type, so the service did not form it.
    """
    value = answer.body.get(name, _ABSENT)
    if not isinstance(value, kind):
        raise unreadable_answer_error(call, f"the answer lacks {name}")
    return value


def unreadable_answer_error(call: ApiCall[Any], reason: str) -> ClientError:
    """Return the error for a success that the service did not form."""
    error = ClientError(f"{call.method} {call.path}: {reason}; is this the URL of a Confplane?")
    error.may_be_applied = not call.reads
    return error


def _json(call: ApiCall[T], response: httpx.Response) -> dict[str, Any]:
    body = _parsed(response)
    if not isinstance(body, dict):
        raise unreadable_answer_error(call, "the answer is not a JSON object")
    return body


def _parsed(response: httpx.Response) -> Any:
    """Return a body's JSON, or None if it is not JSON."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _text(response: httpx.Response) -> str:
    """Return a body's text. httpx would decode it with any codec that the answer names."""
    return response.content.decode(errors="replace")


def _problem(call: ApiCall[Any], response: httpx.Response) -> ClientError:
    """Read an error. An answer that is not a problem comes from a proxy between the client and the service."""
    body = _parsed(response)
    if not isinstance(body, dict):
        title = response.reason_phrase
        if response.has_redirect_location:
            title = f"{title}, to {response.headers['Location']}".lstrip(", ")
        body = {"title": title, "detail": _text(response)[:200]}
    retry_after_s = _retry_after_s(response.headers.get("Retry-After", ""))
    error = problem_of(response.status_code, body, retry_after_s=retry_after_s)
    error.may_be_applied = error.may_be_applied and not call.reads
    return error


def _retry_after_s(text: str) -> float | None:
    """Read ``Retry-After``: seconds, or a date if it comes from a proxy (RFC 9110, section 10.2.3)."""
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(call: ApiCall[Any], headers: httpx.Headers, name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise unreadable_answer_error(call, f"the header {name} is not a number") from None
