"""Values that the chart refuses, and whether what it says then helps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.deploy import chart

if TYPE_CHECKING:
    from collections.abc import Callable

# Helm may have to be built first.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(2400)]

UNKNOWN = [
    {"replicas": 3},
    {"image": {"name": "x"}},
    {"settings": {"admin_token_file": "/tmp/token"}},  # noqa: S108 - a path that is refused
    {"settings": {"http": {"port": 80}}},
    {"settings": {"postgres": {"dsn": "postgresql://confplane:secret@db/confplane"}}},
    {"settings": {"clusters": {"payments": {"zookeper": "zk:2181"}}}},
    {"settings": {"clusters": {"Payments": {"zookeeper": "zk:2181"}}}},
    {"secrets": {"adminToken": {"value": "secret"}}},
    {"podSecurityContext": {"runAsNonRoot": False}},
    {"migrations": {"enable": False}},
    {"autoscaling": {"enabled": True}},
]

WRONG = [
    ({"replicaCount": "2"}, "/replicaCount"),
    ({"replicaCount": -1}, "/replicaCount"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"image": {"digest": "latest"}}, "/image/digest"),
    ({"settings": {"clusters": {"payments": {"zookeeper": ""}}}}, "/settings/clusters/payments/zookeeper"),
    ({"settings": {"clusters": {"payments": {"max_packet": 2_000_000}}}}, "/settings/clusters/payments/max_packet"),
    (
        {"settings": {"clusters": {"payments": {"client_configs_layout": "both"}}}},
        "/settings/clusters/payments/client_configs_layout",
    ),
    (
        {"settings": {"clusters": {"payments": {"kafka": {"bootstrap": ["kafka"]}}}}},
        "/settings/clusters/payments/kafka/bootstrap/0",
    ),
    ({"settings": {"log_level": "trace"}}, "/settings/log_level"),
    ({"settings": {"postgres": {"pool_size": 1}}}, "/settings/postgres/pool_size"),
    ({"podSecurityContext": {"runAsUser": 0}}, "/podSecurityContext/runAsUser"),
    ({"service": {"port": 70_000}}, "/service/port"),
    ({"secrets": {"postgres": {"name": "Not A Name"}}}, "/secrets/postgres/name"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"),
    ({"updateStrategy": {"maxSurge": "many"}}, "/updateStrategy/maxSurge"),
    ({"podAnnotations": {"example.com/sampled": True}}, "/podAnnotations/example.com~1sampled"),
    ({"tolerations": {"key": "dedicated"}}, "/tolerations"),
]

GUARDED = [
    ({"image": {"repository": ""}}, ["image.repository", "--set image.repository="]),
    ({"settings": {"clusters": None}}, ["settings.clusters", "--set settings.clusters."]),
    ({"secrets": {"postgres": {"name": ""}}}, ["secrets.postgres.name", "service role"]),
    ({"secrets": {"postgresMigration": {"name": ""}}}, ["secrets.postgresMigration.name", "migrations.enabled=false"]),
    ({"secrets": {"adminToken": {"name": ""}}}, ["secrets.adminToken.name", "bearer token"]),
    (
        {"settings": {"clusters": {"payments": {"group_min_session_timeout_ms": 2_000_000}}}},
        ["settings.clusters.payments", "group_min_session_timeout_ms (2000000)", "(1800000)"],
    ),
    (
        {"extraEnv": [{"name": "CONFPLANE_POSTGRES__DSN", "value": "postgresql://confplane:secret@db/confplane"}]},
        ["extraEnv", "CONFPLANE_POSTGRES__DSN", "secrets"],
    ),
    ({"terminationGracePeriodSeconds": 16}, ["terminationGracePeriodSeconds (16)", "here 17"]),
    ({"updateStrategy": {"maxUnavailable": 0, "maxSurge": "0%"}}, ["updateStrategy.maxSurge", "at least 1"]),
]


def refusal(template: Callable[..., str], changes: chart.Manifest, *arguments: str) -> str:
    with pytest.raises(chart.HelmError) as refused:
        template(chart.merged("minimal", changes), *arguments)
    return str(refused.value)


@pytest.mark.parametrize("changes", UNKNOWN, ids=lambda changes: next(iter(chart.leaves(changes))))
def test_unknown_values_are_refused_by_name(template: Callable[..., str], changes: chart.Manifest) -> None:
    said = refusal(template, changes)
    path = next(iter(chart.leaves(changes))).split(".")
    assert "schema" in said
    assert "dditional propert" in said
    assert [name for name in path if re.search(rf"\b{name}'? (is )?not allowed", said)], said
    assert "secret@" not in said


@pytest.mark.parametrize(("changes", "pointer"), WRONG, ids=[pointer for _, pointer in WRONG])
def test_wrong_values_are_refused_with_their_place(
    template: Callable[..., str], changes: chart.Manifest, pointer: str
) -> None:
    said = refusal(template, changes)
    assert "schema" in said
    # Helm before 3.18 wrote a.b for /a/b.
    assert pointer in said or pointer[1:].replace("~1", "/").replace("/", ".") in said.replace("/", "."), said


@pytest.mark.parametrize(("changes", "words"), GUARDED, ids=[words[0] for _, words in GUARDED])
def test_what_is_missing_is_named_with_what_to_set(
    template: Callable[..., str], changes: chart.Manifest, words: list[str]
) -> None:
    said = refusal(template, changes)
    assert [word for word in words if word not in said] == [], said
    assert "secret@" not in said


@pytest.mark.parametrize("group", ["image", "settings", "secrets", "migrations", "updateStrategy", "service"])
def test_a_group_cannot_be_taken_away(template: Callable[..., str], group: str) -> None:
    said = refusal(template, {group: None})
    assert group in said
    assert "nil pointer" not in said


def test_older_kubernetes_is_refused(template: Callable[..., str]) -> None:
    said = refusal(template, {}, "--kube-version", "1.29.9")
    assert "requires kubeVersion: >=1.30.0-0" in said


def test_the_chart_may_be_a_dependency(template: Callable[..., str]) -> None:
    assert template(chart.merged("minimal", {"global": {"imageRegistry": "images.example.com"}}))
