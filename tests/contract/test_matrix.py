"""The matrix of authorization: every route, every kind of caller, and entities that exist or do not.

A route without a row fails. The expected rights are functions of plain words (:data:`CALLERS`), without any ranges.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.api.app import FAMILIES
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.entities import Entity
from confplane.domain.rollups import ROLLUPS
from tests.support.inside import running_on
from tests.support.sampling import sampled
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    import httpx

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.inside import Inside

DESCRIBE: Final = Operation.DESCRIBE_CONFIGS
ALTER: Final = Operation.ALTER_CONFIGS
RESOLVE: Final = Operation.RESOLVE
REPORT: Final = Operation.REPORT


def _first(entity: Entity) -> tuple[str, str | None]:
    kind, name = entity.components[0]
    return kind.value, name


def _of_team(kind: str) -> Callable[[Operation, Entity], bool]:
    def may(_: Operation, entity: Entity) -> bool:
        first, name = _first(entity)
        return first == kind and name is not None and name.startswith("payments-")

    return may


def _own(operation: Operation, entity: Entity) -> bool:
    return operation in {RESOLVE, REPORT} and _first(entity) == ("user", "payments-own")


def _but_own(*denied: Operation) -> Callable[[Operation, Entity], bool]:
    def may(operation: Operation, entity: Entity) -> bool:
        return not (operation in denied and _first(entity)[1] == "payments-own")

    return may


@dataclass(frozen=True)
class Caller:
    """A kind of caller: its grants, and its rights in words."""

    grants: tuple[dict[str, Any], ...]
    may: Callable[[Operation, Entity], bool]
    audits: bool = False
    """True where the whole trail is shown."""
    counts: bool = False
    """True where sums of rollups are shown."""
    all_of_cluster: bool = False
    """True where the caller may alter the cluster as a whole, and freeze it."""
    reads_credentials: bool = False
    """True where all tokens, grants and webhooks are shown."""
    manages_credentials: bool = False
    """True where all tokens, grants and webhooks may be altered."""


def _deny(operation: Operation) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"permission": Permission.DENY, "operation": operation, "resource": kind, "name": "payments-own"}
        for kind in (ResourceType.USER, ResourceType.TOPIC)
    )


def _prefix(kind: ResourceType, operation: Operation = ALTER) -> tuple[dict[str, Any], ...]:
    return ({"operation": operation, "resource": kind, "pattern": PatternType.PREFIXED, "name": "payments-"},)


def _only(*operations: Operation) -> Callable[[Operation, Entity], bool]:
    return lambda operation, _: operation in operations


CALLERS: Final = {
    "viewer": Caller(({"role": Role.VIEWER},), _only(DESCRIBE, RESOLVE), counts=True),
    "operator": Caller(({"role": Role.OPERATOR},), lambda *_: True, audits=True, counts=True, all_of_cluster=True),
    "administrator": Caller(
        ({"role": Role.ADMIN},),
        lambda *_: True,
        audits=True,
        counts=True,
        all_of_cluster=True,
        reads_credentials=True,
        manages_credentials=True,
    ),
    "auditor": Caller(
        ({"role": Role.AUDITOR},), _only(DESCRIBE, RESOLVE), audits=True, counts=True, reads_credentials=True
    ),
    # A Kafka user without any grant; the role would let it resolve others.
    "payments-own": Caller((), _own),
    "resolver": Caller(
        (
            {
                "role": Role.APPLICATION,
                "resource": ResourceType.USER,
                **_prefix(ResourceType.USER)[0],
                "operation": None,
            },
        ),
        lambda operation, entity: operation in {RESOLVE, REPORT} and _of_team("user")(operation, entity),
    ),
    "none": Caller((), lambda *_: False),
    "users": Caller(_prefix(ResourceType.USER), _of_team("user")),
    "topics": Caller(_prefix(ResourceType.TOPIC), _of_team("topic")),
    "reader": Caller(
        _prefix(ResourceType.TOPIC, DESCRIBE),
        lambda operation, entity: operation is not ALTER and _of_team("topic")(operation, entity),
    ),
    "kept-from-altering": Caller(
        ({"role": Role.OPERATOR}, {"role": Role.VIEWER}, *_deny(ALTER)),
        _but_own(ALTER, REPORT),
        audits=True,
        counts=True,
        all_of_cluster=True,
    ),
    "kept-from-seeing": Caller(
        ({"role": Role.OPERATOR}, *_deny(DESCRIBE)),
        _but_own(ALTER, DESCRIBE, RESOLVE, REPORT),
        audits=True,
        counts=True,
        all_of_cluster=True,
    ),
}

NAMES: Final = ("payments-own", "payments-absent", "orders", "orders-absent")
USERS: Final = [
    *(Entity.of(user=name) for name in (*NAMES, None)),
    *(Entity.of(user=name, client_id="client-one") for name in NAMES),
]
OTHERS: Final = [
    *(Entity.of(client_id=name) for name in ("client-one", "client-two", None)),
    *(Entity.of(ip=name) for name in ("10.0.0.17", "10.0.0.18", None)),
]
RESOURCES: Final = [
    *(Entity.of(topic=name) for name in NAMES),
    *(Entity.of(broker=name) for name in ("1001", "1002", None)),
]
ABSENT: Final = ("payments-absent", "orders-absent", "client-two", "10.0.0.18", "1002")
NOW: Final = "9999-01-01T00:00:00Z"
"""A moment of the future, which means now."""
QUOTA: Final = {"user": "producer_byte_rate", "client-id": "producer_byte_rate", "ip": "connection_creation_rate"}
APPLIED: Final = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": "1"}
CONFIG: Final = {"topic": "retention.ms", "broker": "log.cleaner.threads"}


def _exists(entity: Entity) -> bool:
    return not any(name in ABSENT for _, name in entity.components)


Sent = tuple[str, str, Any]
"""Method, path below the cluster, and body."""


@dataclass(frozen=True)
class Named:
    """A request that names an entity: refused where the caller may not do this with it."""

    needs: Operation
    entities: list[Entity]
    send: Callable[[Entity], Sent]


@dataclass(frozen=True)
class Listed:
    """A request that answers with the entities that the caller may describe."""

    send: Sent
    facet: str
    ids: Callable[[Any], Iterable[str]]


@dataclass(frozen=True)
class Fixed:
    """A request whose right is that of the caller as a whole."""

    send: Sent
    allowed: Callable[[Caller], bool]


class Open:
    """A request that needs no grant."""


class Apart:
    """A request with a test of its own here."""


def _content(facet: str, entity: Entity) -> dict[str, Any]:
    kind, _ = _first(entity)
    if facet == "client-quotas":
        return {"quotas": {QUOTA[kind]: 1000}}
    return {"configs": {"acks": "all"} if facet == "client-configs" else {CONFIG[kind]: "1"}}


def _rpc(entity: Entity) -> list[dict[str, Any]]:
    return [{"entityType": kind.value, "entityName": name} for kind, name in entity.components]


def _filter(entity: Entity) -> list[dict[str, Any]]:
    return [
        {"entityType": kind.value, "matchType": "DEFAULT"}
        if name is None
        else {"entityType": kind.value, "matchType": "EXACT", "match": name}
        for kind, name in entity.components
    ]


def _altered(facet: str, entity: Entity) -> dict[str, Any]:
    [(key, value)] = next(iter(_content(facet, entity).values())).items()
    return {"entity": _rpc(entity), "ops": [{"key": key, "value": value}]}


def _declared(entity: Entity) -> dict[str, Any]:
    facet = "configs" if _first(entity)[0] in CONFIG else "client-quotas"
    return {"id": entity.id, **_content(facet, entity)}


def _resource(entity: Entity) -> dict[str, Any]:
    kind, name = _first(entity)
    return {"resourceType": kind.upper(), "resourceName": name or ""}


def _typed(entity: Entity) -> dict[str, Any]:
    kind, name = _first(entity)
    return {"entityType": kind, "entityName": name}


def _key(entity: Entity) -> str:
    kind, _ = _first(entity)
    return QUOTA.get(kind) or CONFIG[kind]


def _of_entries(answer: Any) -> list[str]:
    return [
        Entity.from_components((part["entityType"], part["entityName"]) for part in entry["entity"]).id
        for entry in answer["entries"]
    ]


def _of_items(answer: Any) -> list[str]:
    return [item["id"] for item in answer["items"]]


def _of_manifest(member: str, answer: Any) -> list[str]:
    return [entity["id"] for entity in answer["entities"] if member in entity]


def _of_changes(answer: Any) -> list[str]:
    return [entity["id"] for item in answer["items"] for entity in item["entities"]]


ENTITIES: Final = [*USERS, *OTHERS, *RESOURCES]
SINGLE: Final = [entity for entity in [*USERS, *OTHERS, *RESOURCES] if len(entity.components) == 1]
CLIENTS: Final = [entity for entity in USERS if entity.components[0][1] is not None]
FACETS: Final = {"client-quotas": [*USERS, *OTHERS], "client-configs": USERS, "configs": RESOURCES}
NOUNS: Final = {"client-quotas": "ClientQuotas", "client-configs": "ClientConfigs", "configs": "Configs"}
Case = Named | Listed | Fixed | Open | Apart


def _resources(facet: str) -> dict[str, list[Case]]:
    noun, entities = NOUNS[facet], FACETS[facet]
    return {
        f"list{noun}": [
            Listed(("GET", f"{facet}?pageSize=1000", None), facet, _of_items),
            Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}?id={entity.id}", None)),
            Listed(("GET", f"{facet}?pageSize=1000&at={NOW}", None), facet, _of_items),
            Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}?id={entity.id}&at={NOW}", None)),
        ],
        f"get{noun}": [
            Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}/{entity.id}", None)),
            Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}/{entity.id}?at={NOW}", None)),
        ],
        f"history{noun}": [Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}/{entity.id}/history", None))],
        f"diff{noun}": [
            Named(DESCRIBE, entities, lambda entity: ("GET", f"{facet}/{entity.id}/diff?from={NOW}", None))
        ],
        f"revert{noun}": [Named(ALTER, entities, lambda entity: ("POST", f"{facet}/{entity.id}:revert", {"to": NOW}))],
        f"effective{noun}": [
            Named(
                RESOLVE if facet == "client-configs" else DESCRIBE,
                entities,
                lambda entity: ("GET", f"{facet}/{entity.id}/effective", None),
            )
        ],
        f"create{noun}": [
            Named(ALTER, entities, lambda entity: ("POST", facet, {"id": entity.id, **_content(facet, entity)}))
        ],
        f"put{noun}": [Named(ALTER, entities, lambda entity: ("PUT", f"{facet}/{entity.id}", _content(facet, entity)))],
        f"delete{noun}": [Named(ALTER, entities, lambda entity: ("DELETE", f"{facet}/{entity.id}", None))],
    }


def _clients(facet: str) -> dict[str, list[Case]]:
    entities, path = FACETS[facet], f"{facet}:describe"
    return {
        f"describe{NOUNS[facet]}": [
            Listed(("POST", path, {"components": []}), facet, _of_entries),
            Named(DESCRIBE, entities, lambda entity: ("POST", path, {"components": _filter(entity), "strict": True})),
        ],
        f"alter{NOUNS[facet]}": [
            Named(ALTER, entities, lambda entity: ("POST", f"{facet}:alter", {"entries": [_altered(facet, entity)]})),
            Named(
                ALTER,
                entities,
                lambda entity: ("POST", f"{facet}:alter", {"entries": [_altered(facet, entity)], "atomic": True}),
            ),
        ],
    }


def _rollups() -> dict[str, list[Case]]:
    rows: dict[str, list[Case]] = {}
    for name, rollup in ROLLUPS.items():
        allowed = (lambda _: True) if rollup.is_per_entity else (lambda caller: caller.counts)
        rows[f"getRollup{name.capitalize()}"] = [Fixed(("GET", f"rollups/{name}", None), allowed)]
    return rows


def _credentials() -> dict[str, list[Case]]:
    """Requests about others' tokens and grants, and about ones that do not exist."""
    absent, trial = "01900000-0000-7000-8000-000000000000", "?validateOnly=true"
    grant = {"principal": "User:somebody", "role": "viewer", "cluster": "default"}
    reads: dict[str, list[str]] = {
        "listTokens": ["/v1/tokens?principal=User:somebody"],
        "getToken": [f"/v1/tokens/{absent}"],
        "listGrants": ["/v1/grants?principal=User:somebody"],
        "getGrant": [f"/v1/grants/{absent}"],
        "getAccess": [
            "access?principal=User:somebody",
            "access?resource=topic:orders&operation=ALTER_CONFIGS",
        ],
    }
    writes: dict[str, Sent] = {
        "createToken": ("POST", f"/v1/tokens{trial}", {"principal": "User:somebody"}),
        "revokeToken": ("DELETE", f"/v1/tokens/{absent}{trial}", None),
        "rotateToken": ("POST", f"/v1/tokens/{absent}:rotate{trial}", {"overlapSeconds": 60}),
        "createGrant": ("POST", f"/v1/grants{trial}", grant),
        "putGrant": ("PUT", f"/v1/grants/{absent}{trial}", grant),
        "deleteGrant": ("DELETE", f"/v1/grants/{absent}{trial}", None),
    }
    return {
        **{
            name: [Fixed(("GET", path, None), lambda caller: caller.reads_credentials) for path in paths]
            for name, paths in reads.items()
        },
        **{name: [Fixed(sent, lambda caller: caller.manages_credentials)] for name, sent in writes.items()},
        "searchAccessAudit": [Fixed(("GET", "/v1/audit", None), lambda caller: caller.audits)],
        "checkAccess": [
            Fixed(
                ("POST", "access:check", {"checks": [{"operation": "FREEZE", "resourceType": "cluster"}]}),
                lambda _: True,
            )
        ],
    }


def _webhooks() -> dict[str, list[Case]]:
    """Requests about a webhook that does not exist. A service without a key file refuses writes after the grants."""
    reads = {"getWebhook": "webhooks/absent", "listWebhookDeliveries": "webhooks/absent/deliveries"}
    writes: dict[str, Sent] = {
        "putWebhook": ("PUT", "webhooks/absent?validateOnly=true", {"url": "https://hooks.example.com/"}),
        "deleteWebhook": ("DELETE", "webhooks/absent", None),
    }
    return {
        "listWebhooks": [Open()],
        # Each event is judged by its entities: tests/integration/test_feed.py.
        "followChanges": [Open()],
        **{name: [Fixed(("GET", path, None), lambda caller: caller.reads_credentials)] for name, path in reads.items()},
        **{name: [Fixed(sent, lambda caller: caller.manages_credentials)] for name, sent in writes.items()},
        # Webhooks are off here: tests/integration/test_webhooks.py.
        **{name: [Apart()] for name in ("assignWebhook", "resumeWebhook", "rotateWebhookSecret", "testWebhook")},
    }


def _schedules() -> dict[str, list[Case]]:
    """Requests about temporary changes; those of hidden entities: tests/features/test_temporary_changes.py."""
    pauses: dict[str, Sent] = {
        "pauseSchedules": ("POST", "schedules:pause?validateOnly=true", {"reason": "a test"}),
        "resumeSchedules": ("POST", "schedules:resume?validateOnly=true", None),
    }
    return {
        "listSchedules": [Open()],
        "endSchedule": [Apart()],
        **{name: [Fixed(sent, lambda caller: caller.all_of_cluster)] for name, sent in pauses.items()},
    }


def _change_requests() -> dict[str, list[Case]]:
    """Requests about change requests; their other rights: tests/integration/test_change_requests.py."""
    writes = ("create", "revise", "approve", "reject", "cancel", "comment", "apply", "revert")
    return {
        "listChangeRequests": [Open()],
        "getChangeRequest": [Apart()],
        **{f"{name}ChangeRequest": [Apart()] for name in writes},
    }


ROWS: Final[dict[str, list[Case]]] = {
    **_change_requests(),
    **_schedules(),
    **_credentials(),
    **_webhooks(),
    **{name: cases for facet in FACETS for name, cases in _resources(facet).items()},
    **_clients("client-quotas"),
    **_clients("client-configs"),
    "alterClients": [
        Named(
            ALTER,
            USERS,
            lambda entity: (
                "POST",
                "clients:alter",
                {
                    "entries": [
                        {
                            "entity": _altered("client-quotas", entity)["entity"],
                            "quotas": _altered("client-quotas", entity)["ops"],
                            "configs": _altered("client-configs", entity)["ops"],
                        }
                    ]
                },
            ),
        )
    ],
    **_rollups(),
    "describeConfigs": [
        Named(DESCRIBE, RESOURCES, lambda entity: ("POST", "configs:describe", {"resources": [_resource(entity)]}))
    ],
    "incrementalAlterConfigs": [
        Named(
            ALTER,
            RESOURCES,
            lambda entity: (
                "POST",
                "configs:incrementalAlter",
                {
                    "resources": [
                        {
                            **_resource(entity),
                            "configs": [{"name": _key(entity), "configOperation": "SET", "value": "1"}],
                        }
                    ]
                },
            ),
        )
    ],
    "applyManifest": [Apart()],  # test_an_apply_needs_the_right_to_alter_each_changed_entity
    "exportManifest": [
        Listed(("GET", "manifests:export", None), facet, partial(_of_manifest, member))
        for facet, member in (("client-quotas", "quotas"), ("client-configs", "clientConfigs"), ("configs", "configs"))
    ],
    "planManifest": [
        Named(
            DESCRIBE,
            ENTITIES,
            lambda entity: (
                "POST",
                "manifests:plan",
                {"apiVersion": "confplane/v1", "kind": "Configs", "entities": [_declared(entity)]},
            ),
        )
    ],
    "describeEntityConfigs": [
        Named(DESCRIBE, SINGLE, lambda entity: ("POST", "entity-configs:describe", {"entities": [_typed(entity)]}))
    ],
    "alterEntityConfigs": [
        Named(
            ALTER,
            SINGLE,
            lambda entity: (
                "POST",
                "entity-configs:alter",
                {"entities": [{**_typed(entity), "addedConfigs": [], "deletedConfigs": [_key(entity)]}]},
            ),
        )
    ],
    "getGlobalConfig": [
        Fixed(("GET", "global-config", None), lambda caller: caller.may(DESCRIBE, Entity.of(broker=None)))
    ],
    "changeGlobalConfig": [
        Fixed(
            (
                "POST",
                "global-config:change",
                {"configData": [{"configKey": "log.cleaner.threads", "configValue": "1"}], "validateOnly": True},
            ),
            lambda caller: caller.may(ALTER, Entity.of(broker=None)),
        )
    ],
    "searchAudit": [Listed(("GET", "audit?pageSize=1000", None), "audit", _of_changes)],
    "getAuditedChange": [Apart()],  # test_a_change_is_found_by_who_may_describe_its_entity
    "revertChanges": [Apart()],  # test_a_change_is_reverted_by_who_may_alter_its_entity
    "reportClientConfigs": [
        Named(REPORT, CLIENTS, lambda entity: ("PUT", f"client-configs/{entity.id}/instances/i", APPLIED))
    ],
    "statusClientConfigs": [
        Named(DESCRIBE, CLIENTS, lambda entity: ("GET", f"client-configs/{entity.id}/status", None))
    ],
    # Of a cluster without a target nothing differs; test_drift.py has another.
    "listDrift": [Open()],
    "adoptDrift": [Open()],
    "reapplyDrift": [Open()],
    "listRegistrations": [
        Named(DESCRIBE, CLIENTS, lambda entity: ("GET", f"registrations?id={entity.id}", None)),
    ],
    "clearRegistrations": [
        Named(ALTER, CLIENTS, lambda entity: ("DELETE", f"registrations?id={entity.id}", None)),
        Fixed(("DELETE", "registrations?all=true&validateOnly=true", None), lambda caller: caller.all_of_cluster),
    ],
    **{
        f"{verb}Cluster": [
            Fixed(
                ("POST", f"/v1/clusters/default:{verb}?validateOnly=true", {"reason": "a trial"}),
                lambda caller: caller.all_of_cluster,
            )
        ]
        for verb in ("freeze", "thaw")
    },
    "listRollups": [Open()],
    "unknown": [Open()],
    "listConfigDefinitions": [Open()],
    "getCluster": [Open()],
    "listClusters": [Open()],
    "whoami": [Open()],
    "protectedResource": [Open()],
    "livez": [Open()],
    "readyz": [Open()],
    "metrics": [Open()],
    "openapi": [Open()],
    "page": [Open()],
    "script": [Open()],
    "style": [Open()],
}
ROWS["describeClientConfigs"] += [
    Named(
        RESOLVE,
        CLIENTS,
        lambda entity: (
            "POST",
            "client-configs:describe",
            {"components": _filter(entity), "resolveEntity": True},
        ),
    ),
    # Of these alone: whatever was registered appears in the lists above.
    Named(
        RESOLVE,
        [*filter(_exists, CLIENTS)],
        lambda entity: (
            "POST",
            "client-configs:describe",
            {
                "components": _filter(entity),
                "resolveEntity": True,
                "supportedConfigs": ["acks"],
                "clientInformation": {"softwareName": "s", "softwareVersion": "1"},
            },
        ),
    ),
]


def _operations() -> list[Any]:
    return [route for family in FAMILIES for route in family]


def test_every_route_has_a_row() -> None:
    unnamed = {str(route.operation_id): route.path for route in _operations() if route.operation_id not in ROWS}
    assert unnamed == {}, "say here which right these need"
    assert ROWS.keys() <= {route.operation_id for route in _operations()}


@pytest_asyncio.fixture(scope="module")
async def inside(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service with all entities that exist, and with all callers."""
    async with running_on(zookeeper, postgres, tmp_path_factory) as running:
        for facet, entities in FACETS.items():
            for entity in filter(_exists, entities):
                answer = await running.send("admin", "PUT", f"{facet}/{entity.id}", _content(facet, entity))
                assert answer.status_code < 300, answer.text
        for name, caller in CALLERS.items():
            for grant in caller.grants:
                await running.give(f"User:{name}", **grant)

        async def past_known() -> bool:
            found = (await running.send("admin", "GET", "/v1/clusters/default")).json()
            return (found["recorded"] or {}).get("since") is not None

        await until(past_known)
        yield running


@pytest.mark.parametrize(
    ("operation", "name"),
    sampled((name for name, cases in ROWS.items() if not isinstance(cases[0], (Open, Apart))), CALLERS, one_in=4),
)
async def test_a_caller_may_do_what_its_grants_say_and_nothing_else(inside: Inside, operation: str, name: str) -> None:
    caller = CALLERS[name]
    for case in ROWS[operation]:
        match case:
            case Named():
                await _check_named(inside, name, caller, case)
            case Listed():
                await _check_listed(inside, name, caller, case)
            case Fixed():
                answer = await inside.send(name, *case.send)
                _check(answer, allowed=case.allowed(caller))


async def _check_named(inside: Inside, name: str, caller: Caller, case: Named) -> None:
    answers = defaultdict(set)
    for entity in case.entities:
        method, path, body = case.send(entity)
        allowed = caller.may(case.needs, entity)
        if allowed and case.needs is ALTER:  # what exists stays so for the other callers
            path += ("&" if "?" in path else "?") + "validateOnly=true"
        answer = await inside.send(name, method, path, body)
        _check(answer, allowed=allowed, topic=_first(entity)[0] == "topic")
        if allowed and isinstance(body, dict) and "supportedConfigs" in body:
            ignored = answer.headers.get("confplane-registration") == "ignored"
            assert ignored is not caller.may(REPORT, entity), entity
        if not allowed:
            named = all(each is not None for _, each in entity.components)
            answers[entity.types, named].add(_anonymous(answer, name, entity))
    # What exists and what does not are refused alike.
    assert all(len(alike) == 1 for alike in answers.values()), answers


async def _check_listed(inside: Inside, name: str, caller: Caller, case: Listed) -> None:
    answer = await inside.send(name, *case.send)
    assert answer.status_code == 200, answer.text
    of_facets = FACETS if case.facet == "audit" else {case.facet: FACETS[case.facet]}
    everything = case.facet == "audit" and caller.audits
    expected = [
        entity.id
        for entities in of_facets.values()
        for entity in filter(_exists, entities)
        if everything or caller.may(DESCRIBE, entity)
    ]
    assert sorted(case.ids(answer.json())) == sorted(expected)


def _check(answer: httpx.Response, *, allowed: bool, topic: bool = False) -> None:
    assert answer.status_code < 500, answer.text
    if allowed:
        assert answer.status_code not in {401, 403, 429}, answer.text
        return
    assert answer.status_code == 403, answer.text
    code = 29 if topic else 31
    assert answer.json()["kafkaErrorCode"] == code, answer.text


def _anonymous(answer: httpx.Response, caller: str, entity: Entity) -> str:
    """Return the body of an answer without the names in it, and without the request's own id and path.

    A plan also has its own id, and the revision of the cluster, which grows between two requests.
    """
    body = answer.json()
    own = {"requestId", "instance"} | ({"planId", "revision"} if "planId" in body else set())
    text = json.dumps({key: value for key, value in body.items() if key not in own})
    text = text.replace(f"User:{caller}", "CALLER").replace(entity.id, "ID")
    for _, part in entity.components:
        text = text if part is None else text.replace(part, "NAME")
    return text


@pytest.mark.parametrize("name", CALLERS)
async def test_a_change_is_found_by_who_may_describe_its_entity(inside: Inside, name: str) -> None:
    changes = (await inside.send("admin", "GET", "audit?pageSize=1000")).json()["items"]
    assert changes
    caller = CALLERS[name]
    for change in changes:
        [shown] = change["entities"]
        answer = await inside.send(name, "GET", f"audit/{change['changeId']}")
        allowed = caller.audits or caller.may(DESCRIBE, Entity.from_id(shown["id"]))
        assert answer.status_code == (200 if allowed else 404), answer.text


@pytest.mark.parametrize("name", CALLERS)
async def test_a_change_is_reverted_by_who_may_alter_its_entity(inside: Inside, name: str) -> None:
    changes = (await inside.send("admin", "GET", "audit?pageSize=1000")).json()["items"]
    caller = CALLERS[name]
    for change in changes:
        [shown] = change["entities"]
        entity = Entity.from_id(shown["id"])
        body = {"changeId": change["changeId"], "validateOnly": True}
        answer = await inside.send(name, "POST", "audit:revert", body)
        if caller.may(ALTER, entity):
            assert answer.status_code in {200, 409, 422}, answer.text
        elif caller.audits or caller.may(DESCRIBE, entity):
            _check(answer, allowed=False, topic=_first(entity)[0] == "topic")
        else:
            assert answer.status_code == 404, answer.text
            assert shown["id"] not in answer.text


async def test_the_trail_of_an_entity_is_refused_alike(inside: Inside) -> None:
    for name, caller in CALLERS.items():
        if not caller.audits:
            case = Named(DESCRIBE, [*USERS, *RESOURCES], lambda entity: ("GET", f"audit?entity={entity.id}", None))
            await _check_named(inside, name, caller, case)
