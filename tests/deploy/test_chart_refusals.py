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
    {"autoscaling": {"replicas": 2}},
    {"ingress": {"host": "confplane.example.com"}},
    {"rollups": {"executors": {"count": 2}}},
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
    ({"settings": {"clusters": {"payments": {"server_properties": {"all": "/a"}}}}}, "server_properties"),
    ({"settings": {"log_level": "trace"}}, "/settings/log_level"),
    ({"settings": {"postgres": {"pool_size": 1}}}, "/settings/postgres/pool_size"),
    ({"podSecurityContext": {"runAsUser": 0}}, "/podSecurityContext/runAsUser"),
    ({"service": {"port": 70_000}}, "/service/port"),
    ({"secrets": {"postgres": {"name": "Not A Name"}}}, "/secrets/postgres/name"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"),
    ({"updateStrategy": {"maxSurge": "many"}}, "/updateStrategy/maxSurge"),
    ({"podAnnotations": {"example.com/sampled": True}}, "/podAnnotations/example.com~1sampled"),
    ({"tolerations": {"key": "dedicated"}}, "/tolerations"),
    ({"settings": {"webhooks": {"insecure_http": "no"}}}, "/settings/webhooks/insecure_http"),
    ({"settings": {"oidc": [{"issuer": "https://login.example.com"}]}}, "/settings/oidc/0"),
    ({"autoscaling": {"minReplicas": 0}}, "/autoscaling/minReplicas"),
    ({"ingress": {"tls": [{"secretName": "tls", "hosts": []}]}}, "/ingress/tls/0/hosts"),
    ({"httpRoute": {"parentRefs": [{"namespace": "gateways"}]}}, "/httpRoute/parentRefs/0"),
    ({"serviceMonitor": {"interval": "30"}}, "/serviceMonitor/interval"),
    ({"rollups": {"mode": "yarn"}}, "/rollups/mode"),
    ({"rollups": {"master": "yarn"}}, "/rollups/master"),
    ({"rollups": {"executors": {"memory": "2Gi"}}}, "/rollups/executors/memory"),
]

ROLLUPS = {"enabled": True, "image": {"repository": "images.example.com/confplane-rollups"}}

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
    (
        {"secrets": {"consoleKey": {"name": "console"}}, "settings": {"console_key_file": "/etc/console/key"}},
        ["secrets.consoleKey.name", "settings.console_key_file", "Unset one"],
    ),
    (
        {"secrets": {"webhooksKey": {"name": "webhooks"}}, "settings": {"webhooks": {"key_file": "/etc/webhooks/key"}}},
        ["secrets.webhooksKey.name", "settings.webhooks.key_file", "Unset one"],
    ),
    ({"secrets": {"consoleKey": {"name": "console"}}}, ["settings.http.public_url", "https://"]),
    ({"trial": {"enabled": True}}, ["trial.enabled", "secrets.adminToken.name", "Unset one"]),
    ({"autoscaling": {"enabled": True, "minReplicas": 7}}, ["autoscaling.minReplicas (7)", "maxReplicas (6)"]),
    (
        {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": None}},
        ["without a metric", "autoscaling.targetCPUUtilizationPercentage"],
    ),
    (
        {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}},
        ["resources.requests.cpu", "autoscaling.metrics"],
    ),
    ({"ingress": {"enabled": True}}, ["ingress.hosts is empty", "--set ingress.hosts="]),
    (
        {"ingress": {"enabled": True, "hosts": ["a.example"], "tls": [{"secretName": "tls", "hosts": ["b.example"]}]}},
        ["ingress.tls", "b.example"],
    ),
    ({"httpRoute": {"enabled": True}}, ["httpRoute.parentRefs is empty", "--set httpRoute.parentRefs"]),
    (
        {
            "settings": {"http": {"public_url": "https://confplane.example.com"}},
            "ingress": {"enabled": True, "hosts": ["a.example"]},
        },
        ["settings.http.public_url", "confplane.example.com", "a.example"],
    ),
    ({"rollups": {"enabled": True}}, ["rollups.image.repository", "make images"]),
    ({"rollups": {**ROLLUPS, "clusters": ["orders"]}}, ["rollups.clusters", "orders", "settings.clusters"]),
    ({"rollups": {**ROLLUPS, "mode": "standalone"}}, ["rollups.master", "spark://spark:7077"]),
    ({"rollups": {**ROLLUPS, "master": "spark://spark:7077"}}, ["rollups.mode=standalone", "which is local"]),
    ({"rollups": {**ROLLUPS, "sparkConf": {"spark.ui.port": "1"}}}, ["rollups.sparkConf", "rollups.mode"]),
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


@pytest.mark.parametrize(("changes", "words"), GUARDED, ids=[" ".join(words[:2]) for _, words in GUARDED])
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
