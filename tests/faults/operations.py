"""Random requests of clients, each with its meaning, and the reading of their answers."""

from __future__ import annotations

import itertools
import json
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from confplane.domain.entities import Entity
from tests.faults.history import Kind, Mode, Part, PartResult
from tests.faults.topology import TOPICS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.faults.history import Call

BASE: Final = "/v1/clusters/default"
_MEMBERS: Final = {"client-quotas": "quotas", "client-configs": "configs", "configs": "configs"}
_LISTS: Final = {
    "client-quotas:alter": "entries",
    "client-configs:alter": "entries",
    "configs:incrementalAlter": "responses",
}

_USERS: Final = ("u0", "u1", "u2", "u3", "u4", "CN=a b,O=Zoë/ü", "<default>", "50%+~", None)
_CLIENT_IDS: Final = ("c0", "c1", "a/b c", None)
_USER_ENTITIES: Final = tuple(
    [Entity.of(user=user) for user in _USERS]
    + [Entity.of(user=user, client_id=client) for user in _USERS[::2] for client in _CLIENT_IDS]
)
_ENTITIES: Final[dict[str, tuple[Entity, ...]]] = {
    "client-quotas": (
        *_USER_ENTITIES,
        *(Entity.of(client_id=client) for client in _CLIENT_IDS),
        *(Entity.of(ip=ip) for ip in ("10.0.0.1", "10.0.0.2", None)),
    ),
    "client-configs": _USER_ENTITIES,
    "configs": (
        *(Entity.of(topic=topic) for topic in TOPICS),
        *(Entity.of(broker=broker) for broker in ("0", "1", None)),
    ),
}
_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "user": _QUOTAS,
    "client-id": _QUOTAS,
    "ip": ("connection_creation_rate",),
    "topic": ("retention.ms", "max.message.bytes", "segment.ms"),
    "broker": ("log.retention.ms", "message.max.bytes", "log.flush.interval.ms"),
}
_CLIENT_CONFIGS: Final = ("linger.ms", "batch.size", "acks")
_ACKS: Final = ("all", "-1", "0", "1")
_FIRST_VALUE: Final = 1_000_000
_SHORTEST_S: Final = 60
"""The shortest time of a temporary change."""
_REMEMBERED: Final = 10
"""The number of changes that clients remember, to revert one or to end it early."""
EXTERNAL_ENTITIES: Final = (
    *(("client-quotas", Entity.of(user=user)) for user in ("u0", "u1", "external")),
    ("client-quotas", Entity.of(user="u0", client_id="c0")),
    ("client-quotas", Entity.of(client_id="c0")),
    ("client-quotas", Entity.of(ip="10.0.0.1")),
    *(("configs", Entity.of(topic=topic)) for topic in TOPICS[:2]),
    ("configs", Entity.of(broker="0")),
)
"""Entities that external writers also write."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and what it means."""

    method: str
    path: str
    parts: tuple[Part, ...]
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    atomic: bool = False
    reason: str | None = None
    ticket: str | None = None
    validate_only: bool = False
    temporary: bool = False
    ends: str | None = None
    reverts: str | None = None


class Operations:
    """Makes up requests; one for all clients, so that no value is sent twice."""

    def __init__(self) -> None:
        self._values: Iterator[int] = itertools.count(_FIRST_VALUE)
        self.etags: dict[tuple[str, str], str] = {}
        """The last ETag of a response, by facet and entity id."""
        self._done: deque[str] = deque(maxlen=_REMEMBERED)
        """The ids of the last changes that were answered."""
        self._temporary: deque[str] = deque(maxlen=_REMEMBERED)
        """The ids of the last temporary ones that were answered."""

    def write(self, chooser: random.Random) -> Operation:
        """Return a request that means to change something."""
        if self._temporary and chooser.random() < 0.04:
            change_id = chooser.choice(self._temporary)
            return Operation("POST", f"{BASE}/schedules/{change_id}:end", (), ends=change_id)
        if self._done and chooser.random() < 0.08:
            change_id = chooser.choice(self._done)
            return Operation("POST", f"{BASE}/audit:revert", (), {"changeId": change_id}, reverts=change_id)
        kinds: list[tuple[int, Callable[[random.Random], Operation]]] = [
            (30, self._put),
            (8, self._delete),
            (6, self._post),
            (24, self._alter),
            (8, self._bulk),
            (14, self._alter_configs),
        ]
        [make] = chooser.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
        return self._asked(make(chooser), chooser)

    def _asked(self, operation: Operation, chooser: random.Random) -> Operation:
        """Return a request as it is sent: mostly plain, as users send theirs, sometimes with a reason or other options.

        Plain ones take the shortest path through the service (app/confplane/api/routing/paths.py).
        """
        drawn, number = chooser.random(), next(self._values)
        reason, ticket = f"for {number}", f"T-{number}"
        if drawn < 0.10:
            query = urlencode({"reason": reason, "ticket": ticket})
            return replace(operation, path=f"{operation.path}?{query}", reason=reason, ticket=ticket)
        if drawn < 0.15:
            return replace(operation, headers=operation.headers | {"Confplane-Reason": reason}, reason=reason)
        alters = operation.body is not None and ":" in operation.path.rpartition("/")[2]
        if drawn < 0.22 and operation.method != "DELETE" and not alters:
            return replace(operation, path=f"{operation.path}?view=full")
        if drawn < 0.20 and alters:
            body = (operation.body or {}) | {"validateOnly": True}
            return replace(operation, body=body, validate_only=True)
        if drawn < 0.30:
            return replace(operation, path=f"{operation.path}?expiresIn={_SHORTEST_S}", temporary=True)
        return operation

    def _entity(self, chooser: random.Random) -> tuple[str, Entity]:
        facet = chooser.choices(("client-quotas", "client-configs", "configs"), (5, 3, 3))[0]
        return facet, chooser.choice(_ENTITIES[facet])

    def _value(self, facet: str, key: str, chooser: random.Random) -> str | float:
        if key == "acks":
            return chooser.choice(_ACKS)
        value = next(self._values)
        return value if facet == "client-quotas" else str(value)

    def values(self, facet: str, entity: Entity, chooser: random.Random) -> dict[str, str | float]:
        """Return values to be set, at least one of them unlike any other of the run."""
        keys = _CLIENT_CONFIGS if facet == "client-configs" else _KEYS[entity.types[-1].value]
        picked = {keys[0], *chooser.sample(keys, chooser.randint(1, len(keys)))}
        return {key: self._value(facet, key, chooser) for key in keys if key in picked}

    def _condition(self, facet: str, entity: Entity, chooser: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the headers of a condition, and the fields of its part."""
        drawn = chooser.random()
        known = self.etags.get((facet, entity.id))
        if drawn < 0.25 and known is not None:
            return {"If-Match": known}, {"if_match": known}
        if drawn < 0.30:
            return {"If-Match": "*"}, {"if_match": "*"}
        if drawn < 0.35:
            return {"If-None-Match": "*"}, {"if_none_match": True}
        return {}, {}

    def _put(self, chooser: random.Random) -> Operation:
        facet, entity = self._entity(chooser)
        values = self.values(facet, entity, chooser)
        headers, condition = self._condition(facet, entity, chooser)
        part = Part(facet, entity.id, f"/config/{entity.path}", Mode.REPLACE, values, **condition)
        path = f"{BASE}/{facet}/{entity.id}"
        return Operation("PUT", path, (part,), {_MEMBERS[facet]: values}, headers)

    def _delete(self, chooser: random.Random) -> Operation:
        facet, entity = self._entity(chooser)
        headers, condition = self._condition(facet, entity, chooser)
        part = Part(facet, entity.id, f"/config/{entity.path}", Mode.DELETE, **condition)
        return Operation("DELETE", f"{BASE}/{facet}/{entity.id}", (part,), None, headers)

    def _post(self, chooser: random.Random) -> Operation:
        facet, entity = self._entity(chooser)
        values = self.values(facet, entity, chooser)
        part = Part(facet, entity.id, f"/config/{entity.path}", Mode.CREATE, values)
        body = {"id": entity.id, _MEMBERS[facet]: values}
        return Operation("POST", f"{BASE}/{facet}", (part,), body)

    def _altered(self, facet: str, entity: Entity, chooser: random.Random) -> Part:
        values = self.values(facet, entity, chooser)
        keys = _CLIENT_CONFIGS if facet == "client-configs" else _KEYS[entity.types[-1].value]
        remove = tuple(key for key in keys if key not in values and chooser.random() < 0.5)
        return Part(facet, entity.id, f"/config/{entity.path}", Mode.ALTER, values, remove)

    def _alter(self, chooser: random.Random) -> Operation:
        facet = chooser.choice(("client-quotas", "client-configs"))
        entities = chooser.sample(_ENTITIES[facet], chooser.choice((1, 1, 2, 3, 5)))
        atomic = len(entities) > 1 and chooser.random() < 0.6
        return self._altered_all(facet, entities, chooser, atomic=atomic)

    def _bulk(self, chooser: random.Random) -> Operation:
        """Most of the entities that there are in one request, each as a change of its own."""
        facet = chooser.choice(("client-quotas", "client-configs"))
        entities = chooser.sample(_ENTITIES[facet], chooser.randint(len(_ENTITIES[facet]) // 2, len(_ENTITIES[facet])))
        return self._altered_all(facet, entities, chooser, atomic=False)

    def _altered_all(
        self, facet: str, entities: Sequence[Entity], chooser: random.Random, *, atomic: bool
    ) -> Operation:
        parts = tuple(self._altered(facet, entity, chooser) for entity in entities)
        entries = [
            {
                "entity": [{"entityType": kind.value, "entityName": name} for kind, name in entity.components],
                "ops": [
                    *({"key": key, "value": value} for key, value in part.set.items()),
                    *({"key": key, "remove": True} for key in part.remove),
                ],
            }
            for entity, part in zip(entities, parts, strict=True)
        ]
        body = {"entries": entries, "atomic": atomic}
        return Operation("POST", f"{BASE}/{facet}:alter", parts, body, atomic=atomic)

    def _alter_configs(self, chooser: random.Random) -> Operation:
        entities = chooser.sample(_ENTITIES["configs"], chooser.choice((1, 1, 2, 3)))
        parts = tuple(self._altered("configs", entity, chooser) for entity in entities)
        atomic = len(parts) > 1 and chooser.random() < 0.5
        resources = [
            {
                "resourceType": entity.types[0].value.upper(),
                "resourceName": entity.components[0][1] or "",
                "configs": [
                    *({"name": key, "configOperation": "SET", "value": value} for key, value in part.set.items()),
                    *({"name": key, "configOperation": "DELETE"} for key in part.remove),
                ],
            }
            for entity, part in zip(entities, parts, strict=True)
        ]
        return Operation(
            "POST", f"{BASE}/configs:incrementalAlter", parts, {"resources": resources, "atomic": atomic}, atomic=atomic
        )

    def read(self, chooser: random.Random, *, strong: bool) -> Operation:
        """Return a GET; its part only names what is read."""
        facet, entity = self._entity(chooser)
        query = [*(["consistency=strong"] if strong else []), *(["view=full"] if chooser.random() < 0.3 else [])]
        part = Part(facet, entity.id, f"/config/{entity.path}", Mode.ALTER)
        path = f"{BASE}/{facet}/{entity.id}" + ("?" + "&".join(query) if query else "")
        return Operation("GET", path, (part,))

    # -- answers

    def answered(self, call: Call, status: int, headers: dict[str, str], body: bytes) -> None:
        """Fill a call from its response; header names are in lower case."""
        call.status = status
        call.change_id = headers.get("confplane-change-id")
        call.revision = _number(headers.get("confplane-revision"))
        call.stale_ms = _number(headers.get("confplane-stale-ms"))
        call.replayed = headers.get("idempotency-replayed") == "true"
        call.etag = headers.get("etag")
        members: dict[str, Any] = json.loads(body) if body else {}
        name = call.path.partition("?")[0].rpartition("/")[2]
        if name in _LISTS and _LISTS[name] in members:
            call.results = tuple(_result(item) for item in members[_LISTS[name]])
        if status >= 300:
            call.error_code = members.get("kafkaErrorCode")
            call.outcome = members.get("outcome")
            call.failure = members.get("detail", "")[:300]
            call.change_id = call.change_id or members.get("changeId")
            if call.method == "GET" and status == 404:
                call.content = {}
            return
        if call.kind is Kind.WRITE:
            done = [result.change_id for result in call.results if not result.error_code] or [call.change_id]
            self._done += (made := {change_id for change_id in done if change_id is not None})
            self._temporary += made if call.temporary else ()
        if name in _LISTS or not call.parts:
            return
        [part] = call.parts
        if call.method == "DELETE":
            call.results = (PartResult(change_id=call.change_id),)
            return
        call.content = members[_MEMBERS[part.facet]]
        if "status" in members:
            call.etag = call.etag or members["status"]["etag"]
            change = None if call.method == "GET" else call.change_id
            call.results = (PartResult(change_id=change, revision=_number(members["status"]["revision"])),)
        if call.etag is not None:
            self.etags[part.facet, part.entity] = call.etag


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _result(item: dict[str, Any]) -> PartResult:
    return PartResult(
        error_code=item["errorCode"],
        error_name=item["errorName"],
        change_id=item["changeId"],
        revision=_number(item["revision"]),
        outcome=item.get("outcome"),
        changed=bool(item["diff"]) if "diff" in item else None,
    )
