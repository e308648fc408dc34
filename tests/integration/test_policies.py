"""The cluster's policy is asked on every way to write, also under validateOnly, and a refusal leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from tests.support.service import Service

BASE = "/v1/clusters/default"
RULES = """\
rules:
  - name: no-huge-quota
    match: {facets: [client-quotas]}
    ranges: {producer_byte_rate: {max: 1048576}}
  - name: topics-keep-a-day
    match: {facets: [configs], types: [topic]}
    ranges: {retention.ms: {min: 86400000}}
  - name: acks-stay
    match: {facets: [client-configs]}
    deny_removal: [acks]
  - name: admin-is-protected
    match: {names: {user: admin}}
    protected: true
"""


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rules = tmp_path_factory.mktemp("policies") / "rules.yaml"
    rules.write_text(RULES)
    return {"cluster": {"policy_file": str(rules)}}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=f"{service.url}{BASE}", headers=headers, trust_env=False, timeout=60) as client:
        yield client


def alter(facet: str, op: dict[str, Any], **more: Any) -> tuple[str, str, dict[str, Any]]:
    entry = {"entity": [{"entityType": "user", "entityName": "policed"}], "ops": [op]}
    return "POST", f"/{facet}:alter", {"entries": [entry], **more}


HUGE = {"key": "producer_byte_rate", "value": 1048577}


def alter_both(name: str, quota: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    entity = [{"entityType": "user", "entityName": name}]
    entry = {"entity": entity, "quotas": [quota], "configs": [{"key": "acks", "value": "1"}]}
    return "POST", "/clients:alter", {"entries": [entry]}


@pytest.mark.parametrize(
    ("request_", "rule", "pointer"),
    [
        (alter("client-quotas", HUGE), "no-huge-quota", "/entries/0/ops/0"),
        (alter("client-quotas", HUGE, validateOnly=True), "no-huge-quota", "/entries/0/ops/0"),
        (alter("client-quotas", HUGE, atomic=True), "no-huge-quota", "/entries/0/ops/0"),
        (alter_both("policed", HUGE), "no-huge-quota", "/entries/0/quotas/0"),
        (alter_both("admin", {**HUGE, "value": 1}), "admin-is-protected", None),
        (
            ("PUT", "/client-quotas/user=policed", {"quotas": {"producer_byte_rate": 2e6}}),
            "no-huge-quota",
            "/quotas/producer_byte_rate",
        ),
        (
            ("POST", "/client-quotas", {"id": "user=policed", "quotas": {"producer_byte_rate": 2e6}}),
            "no-huge-quota",
            "/quotas/producer_byte_rate",
        ),
        (
            ("PUT", "/client-quotas/user=admin,client-id=x", {"quotas": {"producer_byte_rate": 1}}),
            "admin-is-protected",
            None,
        ),
    ],
)
def test_a_refusal(
    http: httpx.Client,
    zk: KazooClient,
    request_: tuple[str, str, dict[str, Any]],
    rule: str,
    pointer: str | None,
) -> None:
    method, path, body = request_
    answer = http.request(method, path, json=body)
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert problem["kafkaErrorCode"] == 44
    assert problem["kafkaErrorName"] == "POLICY_VIOLATION"
    assert problem["outcome"] == "not_applied"
    assert rule in problem["detail"]
    assert [item["pointer"] for item in problem.get("errors", [])] == ([] if pointer is None else [pointer])
    assert not zk.exists("/config/users/policed")
    assert not zk.exists("/config/users/admin")
    assert http.get("/audit").json()["items"] == []


def test_what_the_policy_allows(http: httpx.Client) -> None:
    kept = {"configs": {"acks": "all", "session.timeout.ms": "20000"}}
    assert http.put("/client-configs/user=allowed", json=kept).status_code == 200
    assert http.put("/client-configs/user=allowed", json={"configs": {"acks": "1"}}).status_code == 200
    refused = http.delete("/client-configs/user=allowed")
    assert refused.status_code == 422, "the removal of acks is denied"
    assert http.get("/client-configs/user=allowed").json()["configs"] == {"acks": "1"}
    assert http.put("/client-quotas/user=allowed", json={"quotas": {"producer_byte_rate": 1048576}}).status_code == 200
