"""The settings of a Kafka cluster without ZooKeeper, as the service and the chart know them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from confplane.domain.facets import ClientConfigsLayout
from confplane.settings import ClusterSettings

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "confplane"
KAFKA = {"bootstrap": ["kafka-0:9092", "[fd00::1]:9093"]}


def settings(kafka: dict[str, Any] | None, **more: Any) -> ClusterSettings:
    return ClusterSettings.model_validate({"zookeeper": "zk:2181", "kafka": kafka, **more})


def test_a_cluster_with_kafka_keeps_its_client_configs_apart() -> None:
    assert settings(KAFKA).layout is ClientConfigsLayout.SEPARATE
    assert settings(KAFKA, client_configs_layout="separate").layout is ClientConfigsLayout.SEPARATE
    assert settings(None).layout is None
    assert settings(None, client_configs_layout="shared").layout is ClientConfigsLayout.SHARED
    with pytest.raises(
        ValidationError, match=r"client_configs_layout is shared, and kafka is set: .*no client configs"
    ):
        settings(KAFKA, client_configs_layout="shared")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"bootstrap": []}, "bootstrap"),
        ({"bootstrap": ["kafka"]}, "bootstrap"),
        ({"bootstrap": ["fd00::1:9092"]}, "bootstrap"),
        ({"bootstrap": ["PLAINTEXT://kafka:9092"]}, "bootstrap"),
        ({**KAFKA, "controllers": ["kafka:0"]}, "controllers"),
        ({**KAFKA, "request_timeout_ms": 100}, "request_timeout_ms"),
        ({**KAFKA, "tls": {"key_file": "/k"}}, "certificate_file and key_file go together"),
        ({**KAFKA, "sasl": {"mechanism": "GSSAPI"}}, "mechanism"),
        ({**KAFKA, "sasl": {"mechanism": "PLAIN", "username": "a"}}, "PLAIN needs username and password_file"),
        (
            {**KAFKA, "sasl": {"mechanism": "OAUTHBEARER", "username": "a", "token_file": "/t"}},
            "OAUTHBEARER needs token_file",
        ),
        ({**KAFKA, "mode": "observe"}, "mode"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(wrong)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    "sasl",
    [
        {"mechanism": "SCRAM-SHA-256", "username": "a", "password_file": "/p"},
        {"mechanism": "PLAIN", "username": "a", "password_file": "/p"},
        {"mechanism": "OAUTHBEARER", "token_file": "/t"},
    ],
)
def test_each_login_has_its_files(sasl: dict[str, Any]) -> None:
    found = settings({**KAFKA, "sasl": sasl}).kafka
    assert found is not None
    assert found.sasl is not None
    assert found.sasl.mechanism == sasl["mechanism"]


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its texts and defaults, with its references resolved and its null as a type."""
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        first, null = schema["anyOf"]
        assert null == {"type": "null"}
        found = _plain(first, definitions)
        return {**found, "type": [found["type"], "null"]}
    kept = {key: value for key, value in schema.items() if key not in {"title", "description", "default", "format"}}
    if "properties" in kept:
        kept["properties"] = {name: _plain(each, definitions) for name, each in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _plain(kept["items"], definitions)
    return kept


def test_the_chart_s_schema_has_the_same_settings() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    (cluster,) = schema["properties"]["settings"]["properties"]["clusters"]["patternProperties"].values()
    theirs = ClusterSettings.model_json_schema()
    expected = _plain(theirs["properties"]["kafka"], theirs["$defs"])
    # Helm turns a path that is not set into a missing value, so the chart takes texts alone where that was its form.
    expected["properties"]["tls"] = _plain(cluster["properties"]["zookeeper_tls"], {})
    assert set(expected["properties"]["tls"]["properties"]) == set(theirs["$defs"]["ClientTlsSettings"]["properties"])
    assert _plain(cluster["properties"]["kafka"], {}) == expected
