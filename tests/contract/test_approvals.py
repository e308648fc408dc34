"""Rules that ask for approvals, against every way to change configs.

The list of these ways comes from the routes: an operation without a row fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.api.app import FAMILIES
from confplane.api.routing.operations import Effect
from confplane.domain.access.operations import Role
from tests.support import servers
from tests.support.inside import running_inside
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

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
}


def test_every_operation_that_changes_configs_has_a_row() -> None:
    changing = {
        str(route.operation_id) for family in FAMILIES for route in family if route.operation.effect is Effect.CHANGE
    }
    assert changing == ROWS.keys() | EXEMPT.keys()


@pytest_asyncio.fixture(scope="module")
async def inside(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service whose rule asks everybody except the admin for an approval, with two changes of each facet."""
    directory = tmp_path_factory.mktemp("approvals")
    (directory / "policy.yaml").write_text(RULES)
    database, chroot = servers.make_migrated(postgres), servers.make_chroot(zookeeper.hosts)
    async with running_inside(chroot, database, directory, policy_file=directory / "policy.yaml") as running:

        async def past_known() -> bool:
            found = (await running.send("admin", "GET", "/v1/clusters/default")).json()
            return (found["recorded"] or {}).get("since") is not None

        await until(past_known)
        for facet, (entity, content) in FIRST.items():
            for each in (content, SECOND[facet]):
                answer = await running.send("admin", "PUT", f"{facet}/{entity}", each)
                assert answer.status_code < 300, answer.text
        await running.give("User:writer", role=Role.OPERATOR)
        yield running


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


async def newest(inside: Inside) -> Any:
    return (await inside.send("admin", "GET", "audit?pageSize=1")).json()["items"][0]


ALL: Final = [
    pytest.param(name, each, id=f"{name}-{number}") for name, some in ROWS.items() for number, each in enumerate(some)
]


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_a_write_without_approval_is_refused(inside: Inside, name: str, row: Sent) -> None:
    del name
    before = await newest(inside)
    method, path, body = await filled(inside, row)
    answer = await inside.send("writer", method, path, body)
    needs_approval(answer)
    assert await newest(inside) == before


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_a_trial_says_that_approval_is_needed(inside: Inside, name: str, row: Sent) -> None:
    method, path, body = await filled(inside, row)
    answer = await inside.send("writer", method, f"{path}?validateOnly=true&view=full", body)
    assert answer.status_code < 300, answer.text
    if name not in {"alterEntityConfigs", "changeGlobalConfig"} and answer.content:
        assert "needs approval: rule 'two-people' asks for an approval of Group:leads" in answer.text


async def test_an_end_of_a_temporary_change_needs_no_approval(inside: Inside) -> None:
    begun = await inside.send("admin", "PUT", "client-quotas/user=temporary?expiresIn=3600", THIRD["client-quotas"])
    ended = await inside.send("writer", "POST", f"schedules/{begun.headers['confplane-change-id']}:end")
    assert (ended.status_code, ended.json()["state"]) == (200, "ended"), ended.text


def needs_approval(answer: httpx.Response) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.json()["kafkaErrorCode"] == 44
    assert "rule 'two-people' asks for an approval of Group:leads" in answer.text
    assert "/v1/clusters/default/change-requests" in answer.text
