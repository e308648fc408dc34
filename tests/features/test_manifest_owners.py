"""Owners of keys: claimed by applies, kept by other writes, given up with the key; on real stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.features.test_manifest_runs import HEAD, connected
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx
    from kazoo.client import KazooClient

    from tests.support.servers import Database


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with connected(service) as client:
        yield client


def planned(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post("/manifests:plan", json=body)
    assert answer.status_code in {200, 207, 409}, answer.text
    found: dict[str, Any] = answer.json()
    return found


def apply(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    plan = planned(http, body)
    answer = http.post("/manifests:apply", json={**body, "planId": plan["planId"]})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["next"] is None
    return found


def document(owner: str, *entities: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**HEAD, "owner": owner, "entities": list(entities), **members}


def topic(name: str, **values: str) -> dict[str, Any]:
    return {"id": f"topic={name}", "configs": {key.replace("_", "."): value for key, value in values.items()}}


def status(http: httpx.Client, entity_id: str, facet: str = "configs") -> tuple[dict[str, str], dict[str, Any]]:
    """Return the owners and the labels of an entity."""
    found = http.get(f"/{facet}/{entity_id}", params={"view": "full", "absent": "empty"}).json()["status"]
    return found.get("owners", {}), found.get("labels", {})


def changes(plan: dict[str, Any]) -> dict[str, tuple[str, dict[str, str | None]]]:
    """Return the actions and the claimed keys of a plan, by entity."""
    return {
        each["id"]: (each["action"], {key["key"]: key["owner"] for key in each.get("claimed", [])})
        for each in plan["changes"]
    }


def test_an_apply_claims_the_keys_of_its_document(http: httpx.Client) -> None:
    http.put("/configs/topic=claim-b", json={"configs": {"retention.ms": "1", "flush.ms": "2"}})
    body = document(
        "payments",
        topic("claim-a", retention_ms="1"),
        topic("claim-b", retention_ms="1", flush_ms="2"),
        labels={"stage": "test"},
    )
    plan = planned(http, body)
    assert changes(plan) == {
        "topic=claim-a": ("create", {"retention.ms": None}),
        "topic=claim-b": ("claim", {"retention.ms": None, "flush.ms": None}),
    }
    assert (plan["summary"]["create"], plan["summary"]["claim"]) == (1, 1)
    apply(http, body)
    assert planned(http, body)["changes"] == []
    owners = {"retention.ms": "payments", "flush.ms": "payments"}
    assert status(http, "topic=claim-b") == (owners, {"payments": {"stage": "test"}})
    # Other labels are a change of their own.
    body["labels"] = {"stage": "production"}
    assert changes(planned(http, body)) == {"topic=claim-a": ("claim", {}), "topic=claim-b": ("claim", {})}
    apply(http, body)
    wait_for(lambda: status(http, "topic=claim-a")[1] == {"payments": {"stage": "production"}})


def test_lists_have_filters_by_owner_and_label(http: httpx.Client) -> None:
    apply(http, document("list-red", topic("list-a", retention_ms="1"), labels={"team": "x=y"}))
    apply(http, document("list-blue", topic("list-b", retention_ms="1"), labels={"team": "z"}))
    http.put("/configs/topic=list-c", json={"configs": {"retention.ms": "1"}})

    def listed(**params: str) -> list[str]:
        items = http.get("/configs", params={"kind": "topic", "prefix": "list-", **params}).json()["items"]
        return [each["id"] for each in items]

    wait_for(lambda: listed(owner="list-blue") == ["topic=list-b"])
    assert listed(owner="list-red") == listed(label="team=x=y") == ["topic=list-a"]
    assert listed(owner="list-red", label="team=z") == listed(owner="nobody") == []
    assert listed() == ["topic=list-a", "topic=list-b", "topic=list-c"]
    refused = http.get("/configs", params={"label": "team"})
    assert refused.status_code == 400
    assert "is not a label" in refused.json()["detail"]


def test_an_export_of_an_owner_is_a_manifest_of_its_keys(http: httpx.Client) -> None:
    user = {"id": "user=export", "quotas": {"producer_byte_rate": 1}}
    red = document("export-red", topic("export-a", retention_ms="1"), user, labels={"team": "true\u2028"})
    apply(http, red)
    apply(http, document("export-blue", topic("export-a", flush_ms="2"), topic("export-b", flush_ms="2")))
    http.put("/configs/topic=export-c", json={"configs": {"retention.ms": "1"}})

    def export(**params: str) -> Any:
        return http.get("/manifests:export", params=params).raise_for_status().json()

    wait_for(lambda: export(owner="export-red") == red)
    assert planned(http, red)["changes"] == []
    assert export(owner="export-red", kind="topic") == {**red, "entities": red["entities"][:1]}
    assert export(owner="export-none") == document("export-none")
    text = http.get("/manifests:export", params={"owner": "export-red"}, headers={"Accept": "application/yaml"}).text
    assert yaml.safe_load(text) == red
    found = export(owner="export-blue")
    assert [list(each["configs"]) for each in found["entities"]] == [["flush.ms"], ["flush.ms"]]
    apply(http, document("export-blue", topic("export-b", flush_ms="2"), labels={"team": "x"}))
    wait_for(lambda: len(http.get("/configs", params={"owner": "export-blue", "label": "team=x"}).json()["items"]) == 1)
    assert export(owner="export-blue") == found, "the entities have different labels"
    assert http.get("/manifests:export", params={"owner": "a b"}).status_code == 400


def test_a_key_of_another_owner_is_a_conflict_unless_it_is_forced(http: httpx.Client) -> None:
    apply(http, document("first", topic("shared", retention_ms="1", flush_ms="1")))
    body = document("second", topic("shared", retention_ms="2", segment_ms="5"))
    plan = planned(http, body)
    assert plan["type"] == "/problems/owner-conflict"
    assert "the owner first" in plan["detail"]
    assert [each["pointer"] for each in plan["errors"]] == ["/entities/0/configs/retention.ms"]
    refused = http.post("/manifests:apply", json={**body, "planId": plan["planId"]})
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/owner-conflict")
    body["force"] = [{"id": "topic=shared", "key": "retention.ms"}]
    assert changes(planned(http, body)) == {"topic=shared": ("update", {"retention.ms": "first", "segment.ms": None})}
    apply(http, body)
    assert planned(http, body)["changes"] == []
    # The key that the second owner does not name is left to the first one.
    assert http.get("/configs/topic=shared").json()["configs"] == {
        "retention.ms": "2",
        "flush.ms": "1",
        "segment.ms": "5",
    }
    assert status(http, "topic=shared")[0] == {"retention.ms": "second", "flush.ms": "first", "segment.ms": "second"}


def test_other_writes_keep_the_owner_and_a_removed_key_has_none(http: httpx.Client, zk: KazooClient) -> None:
    body = document("drift", topic("drift", retention_ms="1", flush_ms="1", segment_ms="1"))
    apply(http, body)
    http.put("/configs/topic=drift", json={"configs": {"retention.ms": "7", "flush.ms": "1"}})
    zk.set("/config/topics/drift", b'{"version":1,"config":{"retention.ms":"8","max.message.bytes":"3"}}')
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/drift"}', sequence=True)
    wait_for(lambda: status(http, "topic=drift")[0] == {"retention.ms": "drift"})
    plan = planned(http, body)
    assert changes(plan) == {"topic=drift": ("update", {"flush.ms": None, "segment.ms": None})}
    assert {each["key"]: each["after"] for each in plan["changes"][0]["diff"]} == {
        "retention.ms": "1",
        "flush.ms": "1",
        "segment.ms": "1",
        "max.message.bytes": None,
    }
    http.delete("/configs/topic=drift")
    http.put("/configs/topic=drift", json={"configs": {"retention.ms": "1"}})
    wait_for(lambda: status(http, "topic=drift") == ({}, {}))


def test_prune_deletes_what_the_owner_has_and_the_document_does_not_name(http: httpx.Client) -> None:
    apply(http, document("prune", *(topic(f"prune-{each}", retention_ms="1") for each in "abcd")))
    apply(http, document("stays", topic("prune-b", flush_ms="1"), topic("prune-z", flush_ms="1")))
    body = document("prune", topic("prune-a", retention_ms="1"), prune=True)
    plan = planned(http, body)
    assert plan["refusal"]["pointer"] == "/maxDeletes"
    assert "3 of the 4 entities of prune" in plan["refusal"]["detail"]
    body["maxDeletes"] = 3
    assert {each: action for each, (action, _) in changes(planned(http, body)).items()} == {
        "topic=prune-b": "update",
        "topic=prune-c": "delete",
        "topic=prune-d": "delete",
    }
    scoped = {**body, "scope": "topic:prune-c"}
    assert changes(planned(http, scoped)) == {"topic=prune-c": ("delete", {})}
    apply(http, body)
    items = http.get("/configs", params={"kind": "topic", "prefix": "prune-"}).json()["items"]
    assert {each["id"]: each["configs"] for each in items} == {
        "topic=prune-a": {"retention.ms": "1"},
        "topic=prune-b": {"flush.ms": "1"},
        "topic=prune-z": {"flush.ms": "1"},
    }
    assert planned(http, body)["changes"] == []


def test_a_plan_is_stale_once_an_entity_of_its_owner_was_written(http: httpx.Client) -> None:
    apply(http, document("stale", topic("stale-a", retention_ms="1"), topic("stale-b", retention_ms="1")))
    body = document("stale", topic("stale-a", retention_ms="1"), prune=True, maxDeletes=1)
    plan = planned(http, body)
    apply(http, document("other", topic("stale-b", flush_ms="1")))
    refused = http.post("/manifests:apply", json={**body, "planId": plan["planId"]})
    assert refused.json()["type"] == "/problems/stale-plan"


def test_a_temporary_apply_claims_nothing(http: httpx.Client) -> None:
    body = document("short", topic("short", retention_ms="1"))
    plan = planned(http, body)
    answer = http.post("/manifests:apply", json={**body, "planId": plan["planId"]}, params={"expiresIn": 3600})
    assert answer.status_code == 200, answer.text
    assert changes(planned(http, body)) == {"topic=short": ("claim", {"retention.ms": None})}


def test_a_run_with_claims_is_reverted_and_leaves_nothing_behind(http: httpx.Client) -> None:
    http.put("/configs/topic=undo-b", json={"configs": {"retention.ms": "1"}})
    run = apply(http, document("undo", topic("undo-a", retention_ms="1"), topic("undo-b", retention_ms="1")))
    answer = http.post("/audit:revert", json={"requestId": run["runId"]})
    assert answer.status_code == 200, answer.text
    assert http.get("/configs/topic=undo-a").status_code == 404
    assert http.get("/configs/topic=undo-b").json()["configs"] == {"retention.ms": "1"}


def test_keys_are_claimed_right_after_the_first_start(tmp_path: Path, chroot: str, migrated: Database) -> None:
    """The recorder takes what it finds at its first contact as it is, and no claim may come before that."""
    body = document("early", *(topic(f"early-{number}", retention_ms="1") for number in range(50)))
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as early, connected(early) as http:
        apply(http, body)
        assert planned(http, body)["changes"] == []
