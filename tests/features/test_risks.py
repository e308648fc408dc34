"""Risks on every way to write: warnings by default, refusals once the policy file says so, without a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.service import Service

WARNING_ONLY: Final = 'risks: {internal_principals: "User:kafka", quota_factor: 2}\n'
REFUSING: Final = (
    WARNING_ONLY
    + """\
rules:
  - name: careful
    match: {except_principals: "User:nobody"}
    deny_risks: [smaller-retention, min-insync-replicas, default-quota, user-prefix, lower-quota]
"""
)
QUOTA: Final = [{"entityType": "user", "entityName": "risky"}]
TOPIC: Final = {"resourceType": "TOPIC", "resourceName": "risky"}


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(WARNING_ONLY)
    return path


@pytest.fixture(scope="module")
def service_options(policy_file: Path) -> dict[str, Any]:
    return {"cluster": {"policy_file": str(policy_file)}}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def risky(http: httpx.Client, zk: KazooClient, policy_file: Path) -> httpx.Client:
    """Return a client of a cluster with a topic of two replicas, and a quota; the policy only warns."""
    replace(http, policy_file, WARNING_ONLY)
    zk.ensure_path("/brokers/topics/risky")
    zk.set("/brokers/topics/risky", json.dumps({"version": 3, "partitions": {"0": [1, 2], "1": [2, 3]}}).encode())
    for path, body in (
        ("configs/topic=risky", {"configs": {"retention.ms": "86400000"}}),
        ("client-quotas/user=risky", {"quotas": {"producer_byte_rate": 1000}}),
    ):
        assert send(http, "PUT", path, body).status_code == 200
    return http


def send(http: httpx.Client, method: str, path: str, body: Any = None, **query: str) -> httpx.Response:
    return http.request(method, f"/v1/clusters/default/{path}", json=body, params=query)


def replace(http: httpx.Client, path: Path, text: str) -> None:
    """Replace the policy file, and wait until the rules are in force."""
    path.write_text(text)
    probe = {"quotas": {"producer_byte_rate": 1}}
    where = "client-quotas/user=User~3Aprobe"
    wait_for(lambda: (send(http, "PUT", where, probe, validateOnly="true").status_code == 422) is (text == REFUSING))


WAYS: Final[dict[str, tuple[str, str, dict[str, Any], str]]] = {
    # name -> method, path, body, the risky key
    "PUT of a quota": ("PUT", "client-quotas/user=risky", {"quotas": {"producer_byte_rate": 1}}, "producer_byte_rate"),
    "alter": (
        "POST",
        "client-quotas:alter",
        {"entries": [{"entity": QUOTA, "ops": [{"key": "producer_byte_rate", "value": 1}]}]},
        "producer_byte_rate",
    ),
    "alter of both facets": (
        "POST",
        "clients:alter",
        {"entries": [{"entity": QUOTA, "quotas": [{"key": "producer_byte_rate", "value": 1}]}]},
        "producer_byte_rate",
    ),
    "default quota": ("PUT", "client-quotas/user", {"quotas": {"request_percentage": 1}}, "request_percentage"),
    "spelling": ("PUT", "client-quotas/user=User~3Ar", {"quotas": {"request_percentage": 1}}, "request_percentage"),
    "PUT of configs": ("PUT", "configs/topic=risky", {"configs": {"retention.ms": "1"}}, "retention.ms"),
    "PUT without the key": (
        "PUT",
        "configs/topic=risky",
        {"configs": {"retention.ms": "86400000", "min.insync.replicas": "2"}},
        "min.insync.replicas",
    ),
    "incremental alter": (
        "POST",
        "configs:incrementalAlter",
        {"resources": [{**TOPIC, "configs": [{"name": "retention.ms", "configOperation": "SET", "value": "1"}]}]},
        "retention.ms",
    ),
    "manifest": (
        "POST",
        "manifests:plan",
        {
            "apiVersion": "confplane/v1",
            "kind": "Configs",
            "entities": [{"id": "topic=risky", "configs": {"retention.ms": "1"}}],
        },
        "retention.ms",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_write_warns_and_is_refused_if_the_policy_says_so(
    risky: httpx.Client, policy_file: Path, way: str
) -> None:
    method, path, body, key = WAYS[way]
    dry = {"view": "full", "validateOnly": "true"} if method == "PUT" else {}
    flag = {} if method == "PUT" or path.endswith(":plan") else {"validateOnly": True}
    answer = send(risky, method, path, {**body, **flag}, **dry)
    assert answer.status_code == 200, answer.text
    assert any(key in warning for warning in warnings_of(answer.json())), answer.text
    replace(risky, policy_file, REFUSING)
    refused = send(risky, method, path, body)
    assert refused.status_code == 422, refused.text
    assert "careful" in refused.text
    replace(risky, policy_file, WARNING_ONLY)
    done = send(risky, method, path, body, **({"view": "full"} if method == "PUT" else {}))
    assert done.status_code in {200, 201}, done.text
    assert warnings_of(done.json()) == warnings_of(answer.json())


def warnings_of(body: Any) -> list[str]:
    """Return all warnings of an answer, wherever they are."""
    if isinstance(body, dict):
        own = body.get("warnings", [])
        return [*own, *(text for value in body.values() for text in warnings_of(value))]
    return [text for value in body for text in warnings_of(value)] if isinstance(body, list) else []


def test_the_removal_and_the_revert_of_a_key_have_the_risk_of_what_takes_its_place(risky: httpx.Client) -> None:
    kept = {"configs": {"retention.ms": "-1"}}
    change = send(risky, "PUT", "configs/topic=risky", kept).headers["Confplane-Change-Id"]
    [text] = warnings_of(send(risky, "DELETE", "configs/topic=risky", validateOnly="true").json())
    assert "from unlimited to 604800000, if the brokers' own files leave Kafka's defaults." in text
    preview = send(risky, "POST", "audit:revert", {"changeId": change, "validateOnly": True})
    assert preview.status_code == 200, preview.text
    [text] = warnings_of(preview.json())
    assert "from unlimited to 86400000." in text


def test_a_plan_is_stale_once_the_policy_file_has_another_content(risky: httpx.Client, policy_file: Path) -> None:
    entity = {"id": "user=steady", "quotas": {"producer_byte_rate": 5}}
    document = {"apiVersion": "confplane/v1", "kind": "Configs", "entities": [entity]}

    def planned() -> str:
        plan_id: str = send(risky, "POST", "manifests:plan", document).json()["planId"]
        return plan_id

    before = planned()
    replace(risky, policy_file, REFUSING)
    stale = send(risky, "POST", "manifests:apply", {**document, "planId": before})
    assert (stale.status_code, stale.json()["type"]) == (409, "/problems/stale-plan"), stale.text
    replace(risky, policy_file, WARNING_ONLY)
    assert planned() == before
    assert send(risky, "POST", "manifests:apply", {**document, "planId": before}).status_code == 200


def test_a_broken_policy_file_leaves_the_last_good_one_in_force(risky: httpx.Client, policy_file: Path) -> None:
    def unusable() -> str:
        metrics = risky.get("/metrics").text
        return next(line for line in metrics.splitlines() if line.startswith("confplane_files_unusable"))

    replace(risky, policy_file, REFUSING)
    policy_file.write_text("rules:\n  - name: careful\n    deny_risk: all\n")
    wait_for(lambda: unusable().endswith(" 1.0"), why=unusable)
    assert send(risky, "PUT", "configs/topic=risky", {"configs": {"retention.ms": "1"}}).status_code == 422
    state = risky.get("/readyz")
    assert state.status_code == 200
    [text] = [text for text in state.json()["warnings"] if "policy file of cluster default" in text]
    assert f"{policy_file}:3: rules[0].deny_risk: there is no such field" in text
    [text] = [
        text for text in httpx.get(f"{risky.base_url}/readyz", trust_env=False).json()["warnings"] if "policy" in text
    ]
    assert str(policy_file) not in text
    replace(risky, policy_file, WARNING_ONLY)
    wait_for(lambda: unusable().endswith(" 0.0"), why=unusable)
