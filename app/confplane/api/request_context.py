"""The context of a request: facts that the middleware determined, for all later layers; and the counts of requests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from confplane.domain.errors import LimitExceededError
from confplane.services.metrics import SECONDS, Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.domain.errors import ConfplaneError
    from confplane.services.access import Access
    from confplane.services.limits import Allowance
    from confplane.services.ports.refusals import RefusedEdit
    from confplane.services.response_budget import ResponseLease

REQUEST_CONTEXT: Final = "confplane.request_context"
"""Key of the scope with the :class:`RequestContext`."""
UNMATCHED: Final = "unmatched"
"""The route label of requests that reached no route: unknown paths, and requests refused before routing."""
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of requests whose client closed the connection, as in nginx."""
_INTERNAL_ERROR: Final = 500
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(eq=False, slots=True)
class RequestContext:
    """Facts that the middleware determined about a request.

    They are stored under one key of the scope. The scope is a dict close to the size at which it is resized, so one key
    per field would make every request pay for a resize.
    """

    headers: Mapping[bytes, bytes]
    """Headers by name, with the last value of a repeated one. Starlette would search the whole list."""
    request_id: str
    deadline: float
    """Deadline of the response, by ``time.monotonic()``."""
    access: Access | None = None
    """The access of the caller. None if the request needs no access."""
    allowance: Allowance | None = None
    """The limits of the caller. None if there are no limits."""
    lease: ResponseLease | None = None
    """The bytes that the response holds until it was sent. None for small responses."""
    refused: list[RefusedEdit] | None = None
    """The edits of the request that ended with an error. None if they are not recorded."""
    error: ConfplaneError | None = None
    """The error that the response renders. None if it is a success, or a success in part."""
    status: int = CLIENT_CLOSED_REQUEST
    """The status of the response, once it is sent."""

    def extend(self, seconds: float | None) -> None:
        """Move the deadline to so many seconds from now, if that is later; None leaves it."""
        if seconds is not None:
            self.deadline = max(self.deadline, time.monotonic() + seconds)

    async def hold(self, error: ConfplaneError) -> None:
        """Hold the response to an error back if the caller is above a limit and does not wait as it was told."""
        if self.allowance is not None and isinstance(error, LimitExceededError):
            await self.allowance.hold()


class Traffic:
    """Counts the requests of a process, by the matched route and never by the path sent.

    Attributes:
        in_flight: Requests in progress.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self._answered: dict[tuple[str, str, int], Histogram] = {}
        self._unauthenticated = dict.fromkeys(("missing", "invalid", "repeated"), 0)

    def count(self, method: str, route: Any, status: int, seconds: float) -> None:
        """Count one finished request.

        Args:
            method: The method as sent.
            route: Starlette's route of the request. None if it reached no route.
            status: The status of the response.
            seconds: Seconds from the first byte of the request to the end of the response.
        """
        key = (method, UNMATCHED if route is None else route.path, status)
        histogram = self._answered.get(key)
        if histogram is None:
            if method not in _METHODS:
                key = ("other", *key[1:])
            histogram = self._answered.setdefault(key, Histogram(SECONDS))
        histogram.add(seconds)

    def unauthenticated(self, reason: Literal["missing", "invalid", "repeated"]) -> None:
        """Count one request refused for its Authorization, by the reason."""
        self._unauthenticated[reason] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("http_requests_in_flight", self.in_flight)
        for reason, count in self._unauthenticated.items():
            yield Sample("authentications_failed", count, (reason,))
        routes: dict[tuple[str, str], Histogram] = {}
        # Without labels, because a counter that begins at 1 has no increase in Prometheus.
        errors = (histogram.count for (_, _, status), histogram in self._answered.items() if status == _INTERNAL_ERROR)
        yield Sample("internal_errors", sum(errors))
        for (method, path, status), histogram in self._answered.items():
            route = (method, path.replace(":path}", "}"))
            yield Sample("http_requests", histogram.count, (*route, str(status)))
            routes.setdefault(route, Histogram(SECONDS)).include(histogram)
        for route, histogram in routes.items():
            yield Sample("http_request_duration_seconds", histogram, route)
