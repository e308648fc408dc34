"""The schema of manifests that is published for editors."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import jsonschema_rs
import pytest

from confplane.domain.manifests import API_VERSION, KIND
from tests.unit.client.generate import MANIFEST, manifest_schema

GOOD: Final[dict[str, Any]] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "cluster": "payments",
    "entities": [
        {"id": "topic=orders", "configs": {"retention.ms": "1", "unknown": "x"}},
        {"id": "broker=1", "configs": {"ssl.key.password": {"fromFile": "a"}, "ssl.keystore.password": None}},
        {"id": "user=alice,client-id=x", "quotas": {"producer_byte_rate": 1.5}, "clientConfigs": {"acks": "all"}},
    ],
}


def test_the_committed_schema_is_what_the_code_says() -> None:
    assert MANIFEST.read_text("utf-8") == manifest_schema(), "run `make openapi` and look at what changed"


def test_it_names_the_keys_that_an_editor_completes() -> None:
    members = json.loads(manifest_schema())["$defs"]["ManifestEntity"]["properties"]
    assert {"retention.ms", "log.retention.ms"} <= members["configs"]["properties"].keys()
    assert {"acks", "session.timeout.ms"} <= members["clientConfigs"]["properties"].keys()
    assert "request_percentage" in members["quotas"]["properties"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("apiVersion",), "v1"),
        (("kind",), "Topics"),
        (("owner",), "team a"),
        (("labels",), {"a": 1}),
        (("cluster",), 7),
        (("entities",), {}),
        (("entities", 0), {"id": "topic=a"}),
        (("entities", 0, "id"), "acl=a"),
        (("entities", 0, "settings"), {}),
        (("entities", 0, "configs", "retention.ms"), 1),
        (("entities", 1, "configs", "ssl.key.password"), {"fromVault": "a"}),
        (("entities", 1, "configs", "ssl.key.password"), {"fromFile": "a", "fromEnv": "b"}),
        (("entities", 2, "quotas", "producer_byte_rate"), "1"),
        (("entities", 2, "quotas", "producer_byte_rate"), -1),
        (("entities", 2, "clientConfigs", "acks"), None),
    ],
)
def test_it_checks_a_manifest(place: tuple[str | int, ...], value: object) -> None:
    validator = jsonschema_rs.validator_for(json.loads(manifest_schema()))
    assert validator.is_valid(GOOD)
    bad = copy.deepcopy(GOOD)
    inner: Any = bad
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    assert not validator.is_valid(bad)
