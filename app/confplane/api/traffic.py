"""Counts of requests and responses, by the matched route and never by the path sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from confplane.services.metrics import SECONDS, Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

UNMATCHED: Final = "unmatched"
"""The route label of requests that reached no route: unknown paths, and requests refused before routing."""
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of requests whose client closed the connection, as in nginx."""
_INTERNAL_ERROR: Final = 500
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """Counts the requests of a process.

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
