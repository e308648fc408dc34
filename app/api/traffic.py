"""How requests are answered: counted by the route that they reached, never by the path that was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from app.services.metrics import SECONDS, Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

UNMATCHED: Final = "unmatched"
"""Stands for the route of what reached none: unknown paths, and what is refused ahead of the routes."""
HUNG_UP: Final = 499
"""Stands for the status of what nobody waited for, as some proxies have it."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """Counts the requests of a process.

    Attributes:
        in_flight: Requests that are not answered yet.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self._answered: dict[tuple[str, str, int], Histogram] = {}
        self._unauthenticated = dict.fromkeys(("missing", "invalid", "repeated"), 0)

    def count(self, method: str, route: Any, status: int, seconds: float) -> None:
        """Count one request that ended.

        Args:
            method: As it was sent.
            route: Starlette's route that it reached; None where it reached none.
            status: The status that was answered.
            seconds: From its first byte to the end of the answer.
        """
        key = (method, UNMATCHED if route is None else route.path, status)
        histogram = self._answered.get(key)
        if histogram is None:
            if method not in _METHODS:
                key = ("other", *key[1:])
            histogram = self._answered.setdefault(key, Histogram(SECONDS))
        histogram.add(seconds)

    def unauthenticated(self, reason: Literal["missing", "invalid", "repeated"]) -> None:
        """Count one request that was refused for its Authorization, and why."""
        self._unauthenticated[reason] += 1

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("http_requests_in_flight", self.in_flight)
        for reason, count in self._unauthenticated.items():
            yield Sample("authentications_failed", count, (reason,))
        routes: dict[tuple[str, str], Histogram] = {}
        for (method, path, status), histogram in self._answered.items():
            route = (method, path.replace(":path}", "}"))
            yield Sample("http_requests", histogram.count, (*route, str(status)))
            routes.setdefault(route, Histogram(SECONDS)).include(histogram)
        for route, histogram in routes.items():
            yield Sample("http_request_duration_seconds", histogram, route)
