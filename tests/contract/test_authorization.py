"""Grants over HTTP: what a caller may read and alter, and what is left out or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.rollups import ROLLUPS
from tests.support.inside import running_on
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.inside import Inside

NAMES = ("payments-a", "payments-b", "orders", "zebra")
RATE = {"quotas": {"producer_byte_rate": 1024}}


@pytest_asyncio.fixture(scope="module")
async def inside(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service with a few entities, and with a team that manages the users ``payments-*``."""
    async with running_on(zookeeper, postgres, tmp_path_factory) as running:
        for name in NAMES:
            for suffix in ("", ",client-id=x"):
                entity = f"user={name}{suffix}"
                done(await running.send("admin", "PUT", f"client-quotas/{entity}", RATE))
                done(await running.send("admin", "PUT", f"client-configs/{entity}", {"configs": {"acks": "all"}}))
        done(await running.send("admin", "PUT", "client-quotas/user", RATE))
        done(await running.send("admin", "PUT", "client-configs/user", {"configs": {"heartbeat.interval.ms": "3000"}}))
        done(await running.send("admin", "PUT", "configs/broker", {"configs": {"log.cleaner.threads": "2"}}))
        await running.give(
            "User:team",
            operation=Operation.ALTER_CONFIGS,
            resource=ResourceType.USER,
            pattern=PatternType.PREFIXED,
            name="payments-",
        )
        yield running


def done(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()


def refused(answer: httpx.Response, code: int = 31) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["kafkaErrorCode"]) == (403, code), answer.text
    return body


def entries(*entities: str) -> dict[str, Any]:
    """The body of an alter of quotas."""
    return {
        "entries": [
            {
                "entity": [{"entityType": "user", "entityName": entity}],
                "ops": [{"key": "consumer_byte_rate", "value": 2048}],
            }
            for entity in entities
        ]
    }


async def test_describes_by_a_filter_leave_hidden_entities_out(inside: Inside) -> None:
    mine = [f"user={name}{suffix}" for name in ("payments-a", "payments-b") for suffix in ("", ",client-id=x")]
    for facet in ("client-quotas", "client-configs"):
        for components, expected in (
            ([{"entityType": "client-id", "matchType": "EXACT", "match": "x"}], mine[1::2]),
            ([{"entityType": "user", "matchType": "EXACT", "match": "payments-a"}], mine[:2]),
            ([{"entityType": "user", "matchType": "EXACT", "match": "orders"}], []),
            ([{"entityType": "user", "matchType": "DEFAULT"}], []),
        ):
            answer = done(await inside.send("team", "POST", f"{facet}:describe", {"components": components}))
            found = [
                ",".join(f"{part['entityType']}={part['entityName']}" for part in entry["entity"])
                for entry in answer["entries"]
            ]
            assert found == expected, (facet, components)
        for query in ("user=orders", "user=", "client-id=x&user=zebra"):
            assert done(await inside.send("team", "GET", f"{facet}?{query}"))["items"] == []


async def test_a_forbidden_entry_fails_alone_or_refuses_an_atomic_batch(inside: Inside) -> None:
    body = entries("payments-a", "orders", "payments-b", "absent")
    for validate_only in (True, False):
        answer = await inside.send("team", "POST", "client-quotas:alter", {**body, "validateOnly": validate_only})
        assert answer.status_code == 207
        results = answer.json()["entries"]
        assert [result["errorCode"] for result in results] == [0, 31, 0, 31]
        assert results[1]["errorMessage"].replace("orders", "absent") == results[3]["errorMessage"]
        assert results[1]["outcome"] == "not_applied"
        assert results[1]["errors"] == [
            {"pointer": "/entries/1/entity", "detail": results[1]["errorMessage"]},
        ]
        assert (results[0]["changeId"] is None) is validate_only
        await _reset(inside)
        answer = await inside.send(
            "team", "POST", "client-quotas:alter", {**body, "atomic": True, "validateOnly": validate_only}
        )
        results = refused(answer)["entries"]
        assert [result["errorCode"] for result in results] == [55, 31, 55, 31]
        quotas = done(await inside.send("team", "GET", "client-quotas/user=payments-a"))["quotas"]
        assert quotas == RATE["quotas"]


async def _reset(inside: Inside) -> None:
    for name in ("payments-a", "payments-b"):
        done(await inside.send("admin", "PUT", f"client-quotas/user={name}", RATE))


async def test_entities_of_several_types_stand_each_for_itself(inside: Inside) -> None:
    named = [
        {"entityType": kind, "entityName": name}
        for kind, name in (("users", "payments-a"), ("users", "orders"), ("topics", "t"), ("brokers", None))
    ]
    answer = await inside.send("team", "POST", "entity-configs:describe", {"entities": named})
    assert [each["errorCode"] for each in answer.json()["entities"]] == [0, 31, 29, 31]
    altered = [{**each, "addedConfigs": [], "deletedConfigs": ["no.such.config"]} for each in named]
    answer = await inside.send("team", "POST", "entity-configs:alter", {"entities": altered})
    # Where the key is looked for, the answer differs: which keys are stored is hidden, too.
    assert [each["errorCode"] for each in answer.json()["entities"]] == [40, 31, 29, 31]
    resources = [
        {"resourceType": "TOPIC", "resourceName": "t"},
        {"resourceType": "BROKER", "resourceName": "1"},
        {"resourceType": "BROKER", "resourceName": ""},
    ]
    described = refused(await inside.send("team", "POST", "configs:describe", {"resources": resources}), 29)
    assert [each["errorCode"] for each in described["results"]] == [29, 31, 31]
    await inside.give("User:broker", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.BROKER, name="1")
    described = (await inside.send("broker", "POST", "configs:describe", {"resources": resources})).json()
    assert [each["errorCode"] for each in described["results"]] == [29, 0, 31]
    # The level behind is shown, though the default of all brokers is not this caller's.
    [threads] = [each for each in described["results"][1]["configs"] if each["name"] == "log.cleaner.threads"]
    assert threads["value"] == "2"


async def test_a_stored_answer_is_replayed_only_while_the_grant_is_there(inside: Inside) -> None:
    async def put(principal: str, entity: str = "user=carol") -> httpx.Response:
        return await inside.send(principal, "PUT", f"client-quotas/{entity}", RATE, Idempotency_Key="one key")

    grant = await inside.give("User:keyed", operation=Operation.ALTER_CONFIGS, resource=ResourceType.USER, name="carol")
    first = await put("keyed")
    assert "idempotency-replayed" not in first.headers
    again = await put("keyed")
    assert (done(again), again.headers["idempotency-replayed"]) == (done(first), "true")
    # Another caller's key is another key, whatever its name.
    assert "idempotency-replayed" not in (await put("admin")).headers
    await inside.take(grant)
    replayed, other = refused(await put("keyed")), refused(await put("keyed", "user=never-there"))
    assert replayed["detail"] == other["detail"].replace("never-there", "carol")
    await inside.give("User:keyed", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.USER, name="carol")
    refused(await put("keyed"))


@pytest.mark.parametrize("form", ["edits", "manifest"])
async def test_a_stored_proposal_is_replayed_only_while_its_entities_are_visible(inside: Inside, form: str) -> None:
    name = f"proposed-{form}"
    edit = {"facet": "client-quotas", "id": f"user={name}", "mode": "replace"}
    body = {
        "edits": {"edits": [{**edit, "ops": [{"op": "SET", "key": "producer_byte_rate", "value": 5}]}]},
        "manifest": {
            "manifest": {
                "apiVersion": "confplane/v1",
                "kind": "Configs",
                "entities": [{"id": f"user={name}", "quotas": {"producer_byte_rate": 5}}],
            }
        },
    }[form]

    async def propose() -> httpx.Response:
        return await inside.send("proposer", "POST", "change-requests", body, Idempotency_Key=name)

    rights = {"resource": ResourceType.USER, "name": name}
    await inside.give("User:proposer", operation=Operation.PROPOSE, **rights)
    grant = await inside.give("User:proposer", operation=Operation.DESCRIBE_CONFIGS, **rights)
    first = done(await propose())
    assert done(await propose()) == first
    await inside.take(grant)
    refused(await propose())


async def test_the_trail_shows_visible_entities_alone(inside: Inside) -> None:
    body = entries("payments-t", "orders-t")
    answer = await inside.send("admin", "POST", "client-quotas:alter", {**body, "atomic": True})
    both, mine = done(answer)["entries"][0]["changeId"], "user=payments-t"
    change = done(await inside.send("team", "GET", f"audit/{both}"))
    assert ([each["id"] for each in change["entities"]], change["partial"]) == ([mine], True)
    assert "orders-t" not in str(change)
    whole = done(await inside.send("admin", "GET", f"audit/{both}"))
    assert ([each["id"] for each in whole["entities"]], whole["partial"]) == ([mine, "user=orders-t"], False)
    await inside.give("User:auditor", role=Role.AUDITOR)
    assert done(await inside.send("auditor", "GET", f"audit/{both}")) == whole


async def test_a_change_with_hidden_entities_is_not_reverted_in_part(inside: Inside) -> None:
    body = entries("payments-v", "orders-v")
    answer = await inside.send("admin", "POST", "client-quotas:alter", {**body, "atomic": True})
    both = done(answer)["entries"][0]["changeId"]
    for more in ({}, {"force": True}, {"validateOnly": True}):
        problem = refused(await inside.send("team", "POST", "audit:revert", {"changeId": both, **more}))
        assert "may not describe" in problem["detail"]
        assert "orders-v" not in str(problem)


async def test_a_viewer_previews_no_revert_of_changes_that_it_may_not_alter(inside: Inside) -> None:
    ids = {"user=payments-p", "user=orders-p"}
    for entity in sorted(ids):
        done(await inside.send("admin", "PUT", f"client-quotas/{entity}", RATE, X_Request_Id="preview-1"))
    await inside.give("User:onlooker", role=Role.VIEWER)
    preview = {"requestId": "preview-1", "validateOnly": True}
    problem = refused(await inside.send("onlooker", "POST", "audit:revert", preview))
    assert "may alter none of the entities" in problem["detail"]
    assert problem["outcome"] == "not_applied"
    since = {"principal": "User:admin", "since": "2020-01-01T00:00:00Z", "validateOnly": True}
    refused(await inside.send("onlooker", "POST", "audit:revert", since))
    assert (await inside.send("onlooker", "POST", "audit:revert", {"requestId": "none-such"})).status_code == 404
    # One that may alter some of them gets a result for each.
    await inside.give("User:onlooker", operation=Operation.ALTER_CONFIGS, resource=ResourceType.USER, name="orders-p")
    answer = await inside.send("onlooker", "POST", "audit:revert", preview)
    assert answer.status_code == 207
    assert {each["id"]: each["errorCode"] for each in answer.json()["results"]} == dict.fromkeys(ids, 31) | {
        "user=orders-p": 0
    }


async def test_registrations_are_listed_and_cleared_by_grants(inside: Inside) -> None:
    def registering(user: str) -> dict[str, Any]:
        return {
            "components": [{"entityType": "user", "matchType": "EXACT", "match": user}],
            "clientInformation": {"softwareName": "s", "softwareVersion": "1"},
            "supportedConfigs": ["acks"],
        }

    for user in ("payments-r", "reports-r"):
        done(await inside.send("admin", "POST", "client-configs:describe", registering(user)))

    async def listed(principal: str) -> list[str]:
        found = done(await inside.send(principal, "GET", "registrations"))["items"]
        return [item["id"] for item in found if item["id"].endswith("-r")]

    async def all_listed() -> bool:
        return len(await listed("admin")) == 2

    await until(all_listed)
    assert await listed("team") == ["user=payments-r"]
    assert await listed("nobody") == []
    assert done(await inside.send("team", "DELETE", "registrations?id=user=payments-r"))["cleared"] == 1
    assert await listed("admin") == ["user=reports-r"]


async def test_who_may_not_report_is_polled_all_the_same_and_registers_nothing(inside: Inside) -> None:
    body: dict[str, Any] = {
        "components": [{"entityType": "user", "matchType": "EXACT", "match": "payments-p"}],
        "clientInformation": {"softwareName": "s", "softwareVersion": "1"},
        "supportedConfigs": ["acks"],
    }
    report = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": "1"}
    await inside.give("User:onlooker", role=Role.VIEWER)
    await inside.give(
        "User:payments-p",
        operation=Operation.REPORT,
        resource=ResourceType.USER,
        name="payments-p",
        permission=Permission.DENY,
    )
    for caller, resolve in (("onlooker", True), ("onlooker", False), ("payments-p", True)):
        polled = await inside.send(caller, "POST", "client-configs:describe", {**body, "resolveEntity": resolve})
        assert (polled.status_code, polled.headers.get("confplane-registration")) == (200, "ignored"), polled.text
        refused(await inside.send(caller, "PUT", "client-configs/user=payments-p/instances/i", report))
    described = done(await inside.send("admin", "POST", "client-configs:describe", {"components": body["components"]}))
    assert described["entries"] == []
    polled = await inside.send("team", "POST", "client-configs:describe", body)
    assert (polled.status_code, polled.headers.get("confplane-registration")) == (200, None)
    described = done(await inside.send("admin", "POST", "client-configs:describe", {"components": body["components"]}))
    assert len(described["entries"]) == 1


async def test_a_cluster_is_a_name_to_who_may_describe_nothing_in_it(inside: Inside) -> None:
    await inside.give("User:poller", role=Role.APPLICATION)
    await inside.give("User:elsewhere", role=Role.VIEWER, cluster="other")
    await inside.give("User:one-topic", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.TOPIC, name="t")
    for caller in ("nobody", "poller", "elsewhere"):
        assert done(await inside.send(caller, "GET", "/v1/clusters"))["items"] == [{"name": "default"}], caller
        assert done(await inside.send(caller, "GET", "/v1/clusters/default")) == {"name": "default"}, caller
    for caller in ("team", "one-topic", "admin"):
        [listed] = done(await inside.send(caller, "GET", "/v1/clusters"))["items"]
        shown = done(await inside.send(caller, "GET", "/v1/clusters/default"))
        assert {"name", "mirror", "warnings", "frozen"} <= {*listed}, caller
        assert {*listed, "recorded", "target"} == {*shown}, caller


async def test_the_list_of_what_is_not_applied_has_visible_entities_alone(inside: Inside) -> None:
    await inside.give("User:viewer", operation=Operation.DESCRIBE_CONFIGS, resource=ResourceType.USER, name="late-a")
    body = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": "1"}
    for user in ("late-a", "late-b"):
        done(await inside.send("admin", "PUT", f"client-configs/user={user}", {"configs": {"acks": "1"}}))
        done(await inside.send("admin", "PUT", f"client-configs/user={user}/instances/i", body))
    for caller, seen in (("viewer", ["user=late-a"]), ("admin", ["user=late-a", "user=late-b"])):
        page = done(await inside.send(caller, "GET", "client-configs?applied=false"))
        assert [item["id"] for item in page["items"] if "late-" in item["id"]] == seen


async def test_rows_of_rollups_about_a_hidden_entity_are_refused(inside: Inside) -> None:
    for name, rollup in ROLLUPS.items():
        if rollup.is_per_entity:
            # It never ran, which is said to who may see the rows.
            assert (await inside.send("team", "GET", f"rollups/{name}")).status_code == 404
            [entity] = [column.member for column in rollup.columns if column.name == rollup.entity]
            refused(await inside.send("team", "GET", f"rollups/{name}?{entity}=user=orders"))
            refused(await inside.send("team", "GET", f"rollups/{name}?{entity}="))
