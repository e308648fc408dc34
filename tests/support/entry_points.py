"""Every way to change configs over the API, and a service whose rules ask for approvals."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.access.operations import Role
from tests.support import servers
from tests.support.inside import running_inside
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.inside import Inside

RULES: Final = """\
rules:
  - name: two-people
    match: {except_principals: "User:admin"}
    approvals: {count: 1, from: "Group:leads"}
  - name: never
    match: {types: ip}
    protected: true
"""
EXEMPT: Final = {
    "freezeCluster": "changes no config",
    "thawCluster": "changes no config",
    "endSchedule": "gives keys their earlier values again",
}
FIRST: Final = {
    "client-quotas": ("user=alice", {"quotas": {"producer_byte_rate": 1000}}),
    "client-configs": ("user=alice", {"configs": {"acks": "all"}}),
    "configs": ("broker=1", {"configs": {"log.cleaner.threads": "1"}}),
}
SECOND: Final[dict[str, dict[str, Any]]] = {
    "client-quotas": {"quotas": {"producer_byte_rate": 2000}},
    "client-configs": {"configs": {"acks": "1"}},
    "configs": {"configs": {"log.cleaner.threads": "2"}},
}
THIRD: Final[dict[str, dict[str, Any]]] = {
    "client-quotas": {"quotas": {"producer_byte_rate": 3000}},
    "client-configs": {"configs": {"acks": "0"}},
    "configs": {"configs": {"log.cleaner.threads": "3"}},
}
NEW: Final = {"client-quotas": "user=new", "client-configs": "user=new", "configs": "broker=7"}
NOUNS: Final = {"client-quotas": "ClientQuotas", "client-configs": "ClientConfigs", "configs": "Configs"}
ALICE: Final = [{"entityType": "user", "entityName": "alice"}]
RATE: Final = {"key": "producer_byte_rate", "value": 3000}
ACKS: Final = {"key": "acks", "value": "0"}
MANIFEST: Final[dict[str, Any]] = {
    "apiVersion": "confplane/v1",
    "kind": "Configs",
    "entities": [{"id": "user=alice", "quotas": {"producer_byte_rate": 3000}}],
}
Sent = tuple[str, str, Any]
REVISION: Final = "{revision of facet}"
CHANGE: Final = "{change id}"
PLAN: Final = "{plan id}"

ROWS: Final[dict[str, list[Sent]]] = {
    **{f"create{NOUNS[facet]}": [("POST", facet, {"id": NEW[facet], **THIRD[facet]})] for facet in FIRST},
    **{f"put{NOUNS[facet]}": [("PUT", f"{facet}/{FIRST[facet][0]}", THIRD[facet])] for facet in FIRST},
    **{f"delete{NOUNS[facet]}": [("DELETE", f"{facet}/{FIRST[facet][0]}", None)] for facet in FIRST},
    **{f"revert{NOUNS[facet]}": [("POST", f"{facet}/{FIRST[facet][0]}:revert", {"to": REVISION})] for facet in FIRST},
    "alterClientQuotas": [
        ("POST", "client-quotas:alter", {"entries": [{"entity": ALICE, "ops": [RATE]}]}),
        ("POST", "client-quotas:alter", {"entries": [{"entity": ALICE, "ops": [RATE]}], "atomic": True}),
    ],
    "alterClientConfigs": [("POST", "client-configs:alter", {"entries": [{"entity": ALICE, "ops": [ACKS]}]})],
    "alterClients": [
        ("POST", "clients:alter", {"entries": [{"entity": ALICE, "quotas": [RATE], "configs": []}]}),
        ("POST", "clients:alter", {"entries": [{"entity": ALICE, "quotas": [], "configs": [ACKS]}]}),
    ],
    "incrementalAlterConfigs": [
        (
            "POST",
            "configs:incrementalAlter",
            {
                "resources": [
                    {
                        "resourceType": "BROKER",
                        "resourceName": "1",
                        "configs": [{"name": "log.cleaner.threads", "configOperation": "SET", "value": "3"}],
                    }
                ]
            },
        )
    ],
    "alterEntityConfigs": [
        (
            "POST",
            "entity-configs:alter",
            {
                "entities": [
                    {
                        "entityType": "users",
                        "entityName": "alice",
                        "addedConfigs": [{"configKey": "producer_byte_rate", "configValue": "3000"}],
                        "deletedConfigs": ["acks"],
                    }
                ]
            },
        )
    ],
    "changeGlobalConfig": [
        ("POST", "global-config:change", {"configData": [{"configKey": "log.cleaner.threads", "configValue": "3"}]})
    ],
    "revertChanges": [("POST", "audit:revert", {"changeId": CHANGE})],
    "applyManifest": [
        ("POST", "manifests:apply", {**MANIFEST, "planId": PLAN}),
        ("POST", "manifests:apply", {**MANIFEST, "planId": PLAN, "atomic": True}),
    ],
    "adoptDrift": [],  # of a Kafka 4 cluster: tests/integration/test_drift.py
    "applyChangeRequest": [],  # with approvals: tests/integration/test_change_requests.py
}

ALL: Final = [
    pytest.param(name, each, id=f"{name}-{number}") for name, some in ROWS.items() for number, each in enumerate(some)
]
"""The rows, one by one."""


@asynccontextmanager
async def ruled(
    zookeeper: ZooKeeper, postgres: Postgres, factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Inside, servers.Database]]:
    """Run a service whose rule asks everybody except the admin for an approval, with two changes of each facet.

    ``User:writer`` may alter everything.
    """
    directory = factory.mktemp("ruled")
    (directory / "policy.yaml").write_text(RULES)
    database, chroot = servers.make_migrated(postgres), servers.make_chroot(zookeeper.hosts)
    async with running_inside(chroot, database, directory, policy_file=directory / "policy.yaml") as running:

        async def past_known() -> bool:
            found = (await running.send("admin", "GET", "/v1/clusters/default")).json()
            return (found["recorded"] or {}).get("since") is not None

        await until(past_known)
        await reset(running)
        await running.give("User:writer", role=Role.OPERATOR)
        yield running, database


async def reset(inside: Inside) -> None:
    """Let each entity of the rows have its second content, and a history."""
    for facet, (entity, content) in FIRST.items():
        for each in (content, SECOND[facet]):
            answer = await inside.send("admin", "PUT", f"{facet}/{entity}", each)
            assert answer.status_code < 300, answer.text
        await inside.send("admin", "DELETE", f"{facet}/{NEW[facet]}")
    await inside.send("admin", "DELETE", "configs/broker")


async def filled(inside: Inside, sent: Sent) -> Sent:
    """Fill in the ids of earlier changes."""
    method, path, body = sent
    if body == {"to": REVISION}:
        facet, entity = path.removesuffix(":revert").split("/")
        items = (await inside.send("admin", "GET", f"{facet}/{entity}/history")).json()["items"]
        body = {"to": items[1]["revision"]}
    elif body == {"changeId": CHANGE}:
        items = (await inside.send("admin", "GET", "client-quotas/user=alice/history")).json()["items"]
        body = {"changeId": items[0]["changeId"]}
    elif path == "manifests:apply":
        asked = {name: member for name, member in body.items() if name != "planId"}
        plan = await inside.send("writer", "POST", "manifests:plan", asked)
        assert "needs approval" in plan.text
        body = {**body, "planId": plan.json()["planId"]}
    return method, path, body
