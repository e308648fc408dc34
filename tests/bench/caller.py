"""A caller of a service, one request at a time."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.service import Service

QUOTAS = "/v1/clusters/default/client-quotas"
DESCRIBE_ONE = '{"components":[{"entityType":"user","matchType":"exact","match":"bench-{entity}"}],"strict":true}'
"""The body of a describe of one entity, for :class:`tests.bench.load.Load`."""
_IDLE_S = 2.0
"""Seconds after which a connection is not used again; the server closes it after five."""


class Caller:
    """A caller of a service on one connection, which is opened again where the service closed it meanwhile.

    Args:
        service: The service.
        headers: More headers of each request.
    """

    def __init__(self, service: Service, headers: Mapping[str, str] | None = None) -> None:
        self._port = service.port
        own = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
        self._headers = own | dict(headers or {})
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def __call__(self, method: str, path: str, body: str | None = None) -> bytes:
        if self._connection is None or time.monotonic() - self._used > _IDLE_S:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
            self._connection.connect()
        self._connection.request(method, path, body, self._headers)
        reply = self._connection.getresponse()
        answer = reply.read()
        self._used = time.monotonic()
        if reply.status != http.client.OK:
            raise AssertionError(f"{method} {path} was answered {reply.status}: {answer[:1000]!r}")
        return answer

    def describe_all(self) -> tuple[float, int]:
        """Describe all entities and read the answer's JSON; return the seconds and the number of entities."""
        begun = time.perf_counter()
        entries = orjson.loads(self("POST", f"{QUOTAS}:describe", '{"components":[]}'))["entries"]
        return time.perf_counter() - begun, len(entries)

    def alter_many(self, entities: int, value: int, first: int = 0) -> float:
        """Alter entities in one request, numbered from ``first``, and read the answer's JSON; return the seconds."""
        entries = [
            {
                "entity": [{"entityType": "user", "entityName": f"bench-{number:06d}"}],
                "ops": [{"key": "producer_byte_rate", "value": value}],
            }
            for number in range(first, first + entities)
        ]
        begun = time.perf_counter()
        answer = orjson.loads(self("POST", f"{QUOTAS}:alter", json.dumps({"entries": entries})))
        if answer["failed"] or any(entry["changeId"] is None for entry in answer["entries"]):
            raise AssertionError(f"not all of {entities} entities were altered")
        if any(entry.get("applied", {"state": "applied"})["state"] != "applied" for entry in answer["entries"]):
            raise AssertionError(f"not all of {entities} entities were applied in time")
        return time.perf_counter() - begun
