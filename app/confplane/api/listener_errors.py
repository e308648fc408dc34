"""Responses to bytes that never became a request: not HTTP, heads too large, clients too slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from uuid_utils import uuid7

from confplane.api.problems import MEDIA_TYPE, problem
from confplane.api.responses import NOSNIFF

if TYPE_CHECKING:
    from confplane.api.cors import Cors
    from confplane.api.traffic import Traffic
    from confplane.domain.errors import ConfplaneError

_METHOD: Final = "other"


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
        self._traffic.count(_METHOD, None, status, 0.0)
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
