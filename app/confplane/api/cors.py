"""Browsers (CORS): pages of the origins that the settings name may send requests and read answers; no cookies are used.

Source: the Fetch standard, sections "HTTP extensions" and "CORS protocol and HTTP caches".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METHODS: Final = ("GET", "POST", "PUT", "DELETE")
REQUEST_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "If-Match",
    "If-None-Match",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Request-Id",
    "Confplane-Min-Revision",
    "Confplane-On-Behalf-Of",
    "Confplane-Break-Glass",
    "Confplane-Reason",
    "Confplane-Wait-Applied",
)
"""The headers that pages may send. Each is named, because browsers do not apply ``*`` to Authorization."""
ANSWER_HEADERS: Final = (
    "ETag",
    "Location",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Idempotency-Replayed",
    "WWW-Authenticate",
    "X-Request-Id",
    "Confplane-Applied-Revision",
    "Confplane-Change-Id",
    "Confplane-Next-Page-Token",
    "Confplane-Registration",
    "Confplane-Revision",
    "Confplane-Stale-Ms",
    "Confplane-Store-Restored",
    "Confplane-Token-Expires",
)
"""The headers that pages may read, in addition to those that browsers always allow."""
_MAX_AGE_S: Final = 600
"""Seconds for which a browser may cache a preflight: ten minutes, so that removing an origin takes effect soon."""
_VARY: Final = (b"vary", b"Origin")
Headers = list[tuple[bytes, bytes]]


class Cors:
    """The origins whose pages are served.

    Args:
        origins: Exact origins, such as ``https://portal.example.com``.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        exposed = ", ".join(ANSWER_HEADERS).encode()
        self._answers: dict[bytes, Headers] = {
            origin.encode(): [
                _VARY,
                (b"access-control-allow-origin", origin.encode()),
                (b"access-control-expose-headers", exposed),
            ]
            for origin in origins
        }
        self._other_origins: Headers = [_VARY]

    def headers(self, origin: bytes | None) -> Headers:
        """Return the headers of a response to a page of an origin. None if the request has no Origin header."""
        return self._other_origins if origin is None else self._answers.get(origin, self._other_origins)

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> tuple[int, Headers] | None:
        """Return the answer to a preflight, without :meth:`headers`; None for any other request.

        A preflight is answered before authentication, because browsers send no credentials with it. The response is the
        same for every path and method, so it reveals nothing about either.
        """
        if method != "OPTIONS" or b"origin" not in headers or b"access-control-request-method" not in headers:
            return None
        if headers[b"origin"] not in self._answers:
            return 403, []
        return 204, [
            (b"access-control-allow-methods", ", ".join(METHODS).encode()),
            (b"access-control-allow-headers", ", ".join(REQUEST_HEADERS).encode()),
            (b"access-control-max-age", str(_MAX_AGE_S).encode()),
        ]
