"""The chart as Helm renders it: sound objects, nothing leaks or is loosened, the service can load its settings."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from confplane.domain.facets import ClientConfigsLayout
from confplane.settings import HttpSettings, Settings
from tests.deploy import chart
from tests.support.tools import ROOT

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Render = Callable[..., dict[str, chart.Manifest]]

# Helm may have to be built first.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(2400)]

NAMES = {"minimal": "demo-confplane", "full": "kafka-control-plane", "bare": "demo-confplane"}
PASSWORD = "pass-word-of-the-owner"
OPERATORS = ("gateway.networking.k8s.io/", "monitoring.coreos.com/")
"""Groups of kinds that do not belong to a version of Kubernetes."""
MATRIX: dict[str, tuple[str, chart.Manifest]] = {
    **{name: (name, {}) for name in ("minimal", "full", "bare", "rollups")},
    "rollups in the pod": ("rollups", {"rollups": {"mode": "local", "sparkConf": None}}),
    "rollups on a cluster": ("rollups", {"rollups": {"mode": "standalone", "master": "spark://spark:7077"}}),
    "rollups of all clusters": ("rollups", {"rollups": {"clusters": [], "serviceAccountName": "spark"}}),
    "autoscaling by other metrics": ("full", {"autoscaling": {"targetCPUUtilizationPercentage": None}}),
    "trial": ("trial", {}),
    "trial with rollups": ("trial", {"rollups": {"enabled": True, "image": {"repository": "confplane-rollups"}}}),
}
"""Renderings that are checked for each version: values file and changes."""


def deployment_of(found: dict[str, chart.Manifest]) -> chart.Manifest:
    return next(manifest for manifest in found.values() if manifest["kind"] == "Deployment")


def pod_of(manifest: chart.Manifest) -> chart.Manifest:
    pod: chart.Manifest = manifest["spec"]["template"]["spec"]
    return pod


def environment_of(pod: chart.Manifest) -> dict[str, Any]:
    """Return a pod's variables: plain values, and ``(secret, key)`` for references."""
    (container,) = pod["containers"]
    found: dict[str, Any] = {}
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        found[variable["name"]] = (reference["name"], reference["key"]) if reference else variable["value"]
    assert len(found) == len(container["env"])
    return found


@pytest.mark.parametrize("values", ["minimal", "full", "bare"])
def test_lint_finds_nothing(helm: Callable[..., str], values: str) -> None:
    said = helm("lint", "--strict", str(chart.CHART), "--values", str(chart.VALUES / f"{values}.yaml"))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ("minimal", {"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service", "ServiceAccount"}),
        (
            "full",
            {
                *("ConfigMap", "Deployment", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "Job", "NetworkPolicy"),
                *("PodDisruptionBudget", "PrometheusRule", "Service", "ServiceAccount", "ServiceMonitor"),
            },
        ),
        ("bare", {"ConfigMap", "Deployment", "Service"}),
    ],
)
def test_what_is_made_and_what_it_is_called(manifests: Render, values: str, kinds: set[str]) -> None:
    found = manifests(chart.merged(values))
    assert {manifest["kind"] for manifest in found.values()} == kinds
    names = {manifest["metadata"]["name"] for manifest in found.values() if manifest["kind"] != "ServiceAccount"}
    migrations = {f"{NAMES[values]}-migrations"} if "Job" in kinds else set()
    dashboard = {f"{NAMES[values]}-dashboard"} if values == "full" else set()
    assert names == {NAMES[values]} | migrations | dashboard


@pytest.mark.parametrize("kubernetes", chart.KUBERNETES)
@pytest.mark.parametrize("name", MATRIX)
def test_every_object_is_valid_for_kubernetes(
    manifests: Render, check_manifests: Callable[..., subprocess.CompletedProcess[str]], name: str, kubernetes: str
) -> None:
    values, changes = MATRIX[name]
    found = manifests(chart.merged(values, changes), kubernetes=kubernetes)
    if kubernetes != chart.KUBERNETES[-1]:
        found = {key: each for key, each in found.items() if not each["apiVersion"].startswith(OPERATORS)}
    checked = check_manifests(yaml.safe_dump_all(found.values()), kubernetes)
    assert checked.returncode == 0, checked.stderr
    assert sorted(checked.stdout.splitlines()) == sorted(found)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{ports: [{port: 1, prot: TCP}]}", 'unknown field "spec.ports[0].prot"'),
        ("{ports: [{port: '1'}]}", "cannot unmarshal string"),
        ("{type: ClusterIP, type: ClusterIP}", 'key "type" already set'),
    ],
)
def test_the_check_of_objects_sees_faults(
    check_manifests: Callable[..., subprocess.CompletedProcess[str]], spec: str, complaint: str
) -> None:
    checked = check_manifests(f"apiVersion: v1\nkind: Service\nmetadata: {{name: x}}\nspec: {spec}\n")
    assert checked.returncode == 1
    assert complaint in checked.stderr


@pytest.mark.parametrize("values", ["minimal", "full", "bare"])
def test_no_value_loosens_the_hardening(manifests: Render, values: str) -> None:
    workloads = [
        manifest for manifest in manifests(chart.merged(values)).values() if "template" in manifest.get("spec", {})
    ]
    assert len(workloads) == (1 if values == "bare" else 2)
    for workload in workloads:
        pod = pod_of(workload)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_rule_has_all_alerts(manifests: Render) -> None:
    enabled = {"enabled": True, "labels": {"release": "prometheus"}, "alertLabels": {"severity": "page"}}
    rule = manifests(chart.merged("minimal", {"prometheusRule": enabled}))["PrometheusRule/demo-confplane"]
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    alerts = yaml.safe_load((ROOT / "deploy" / "helm" / "confplane" / "alerts.yaml").read_text())
    found = [
        {key: value for key, value in each.items() if key not in {"labels", "annotations"}}
        | {"meaning": each["annotations"]["summary"], "remedy": each["annotations"]["description"]}
        for each in group["rules"]
    ]
    assert found == alerts
    assert {frozenset(each) - {"for"} for each in group["rules"]} == {
        frozenset({"alert", "expr", "labels", "annotations"})
    }
    assert all(each["labels"] == {"severity": "page"} for each in group["rules"])
    names = [each["alert"] for each in group["rules"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("Confplane[A-Za-z]+", name) for name in names)


def test_ids_are_values(manifests: Render) -> None:
    def ids(values: str) -> chart.Manifest:
        context: chart.Manifest = pod_of(deployment_of(manifests(chart.merged(values))))["securityContext"]
        return {key: value for key, value in context.items() if key not in {"runAsNonRoot", "seccompProfile"}}

    assert ids("minimal") == {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    assert ids("full") == {"runAsUser": 2000, "runAsGroup": 2001, "fsGroup": 2002, "supplementalGroups": [2003]}
    assert ids("bare") == {}


@pytest.mark.parametrize("values", ["minimal", "full"])
def test_selectors_find_the_serving_pods_and_never_the_job(manifests: Render, values: str) -> None:
    found = manifests(chart.merged(values))
    by_kind = {manifest["kind"]: manifest for manifest in found.values()}
    selectors = [by_kind["Service"]["spec"]["selector"]]
    selectors += [by_kind[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
    if "NetworkPolicy" in by_kind:
        selectors.append(by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    serving = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    migrating = by_kind["Job"]["spec"]["template"]["metadata"]["labels"].items()
    for selector in selectors:
        assert selector.items() <= serving
        assert not selector.items() <= migrating


@pytest.mark.parametrize("values", ["minimal", "full", "bare"])
def test_names_within_a_pod_resolve(manifests: Render, values: str) -> None:
    found = manifests(chart.merged(values))
    maps = {manifest["metadata"]["name"] for manifest in found.values() if manifest["kind"] == "ConfigMap"}
    for workload in (manifest for manifest in found.values() if "template" in manifest.get("spec", {})):
        pod = pod_of(workload)
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert len({mount["mountPath"] for mount in container["volumeMounts"]}) == len(container["volumeMounts"])
        assert volumes["settings"]["configMap"]["name"] in maps
    (service,) = (manifest for manifest in found.values() if manifest["kind"] == "Service")
    (container,) = pod_of(deployment_of(found))["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports)
    paths = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {probe: get["path"] for probe, get in paths.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {get["port"] for get in paths.values()} <= set(ports)


def test_the_owners_dsn_reaches_the_job_and_nothing_else(manifests: Render) -> None:
    found = manifests(chart.merged("full"))
    job = found["Job/kafka-control-plane-migrations"]
    service = ("trail-service", "service.dsn")
    assert environment_of(pod_of(job)) == {
        "CONFPLANE_SETTINGS_FILE": "/etc/confplane/settings.yaml",
        "CONFPLANE_POSTGRES__DSN": service,
        "CONFPLANE_POSTGRES__MIGRATION_DSN": ("trail-owner", "owner.dsn"),
        "TZ": "UTC",
    }
    deployment = deployment_of(found)
    assert environment_of(pod_of(deployment)) == {
        "CONFPLANE_SETTINGS_FILE": "/etc/confplane/settings.yaml",
        "CONFPLANE_POSTGRES__DSN": service,
        "TZ": "UTC",
    }
    assert "trail-owner" not in str(deployment)
    assert "trail-admin" not in str(job)


def test_the_job_migrates_before_the_rest_and_leans_on_nothing_that_is_not_there_yet(manifests: Render) -> None:
    found = manifests(chart.merged("minimal"))
    hooks = {
        name: manifest["metadata"]["annotations"]
        for name, manifest in found.items()
        if "helm.sh/hook" in manifest["metadata"].get("annotations", {})
    }
    assert set(hooks) == {"ConfigMap/demo-confplane-migrations", "Job/demo-confplane-migrations"}
    for hook in hooks.values():
        assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"
        # A Job cannot be changed, so the last one has to go before the next upgrade.
        assert "before-hook-creation" in hook["helm.sh/hook-delete-policy"].split(",")
    weights = [int(hooks[f"{kind}/demo-confplane-migrations"]["helm.sh/hook-weight"]) for kind in ("ConfigMap", "Job")]
    assert weights[0] < weights[1]
    pod = pod_of(found["Job/demo-confplane-migrations"])
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["command"] == ["confplane", "migrate"]
    assert f"ServiceAccount/{pod['serviceAccountName']}" not in found
    assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} == {
        "demo-confplane-migrations"
    }


@pytest.mark.parametrize("values", ["minimal", "full", "bare"])
def test_the_service_loads_its_settings_as_in_the_pod(
    manifests: Render, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = chart.merged(values)
    found = manifests(given)
    for manifest in found.values():
        if "template" not in manifest.get("spec", {}):
            continue
        pod = pod_of(manifest)
        (name,) = (volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "settings")
        path = tmp_path / "settings.yaml"
        path.write_text(found[f"ConfigMap/{name}"]["data"]["settings.yaml"])
        for variable, value in environment_of(pod).items():
            monkeypatch.setenv(
                variable, value if isinstance(value, str) else f"postgresql://role:{PASSWORD}@{value[0]}/db"
            )
        monkeypatch.setenv("CONFPLANE_SETTINGS_FILE", str(path))
        settings = Settings()

        for cluster, expected in given["settings"]["clusters"].items():
            loaded = settings.clusters[cluster].model_dump(mode="json", exclude_unset=True)
            assert {key: sorted(item) if isinstance(item, list) else item for key, item in loaded.items()} == expected
        assert set(settings.clusters) == set(given["settings"]["clusters"])
        # Beside the host, which a pod must listen on, the chart's defaults are the service's own.
        assert settings.http == HttpSettings.model_validate(
            {"host": "0.0.0.0"} | given["settings"].get("http", {})  # noqa: S104 - all addresses of the pod
        )
        secret = given["secrets"]["postgres"]["name"]
        assert settings.postgres.dsn.get_secret_value() == f"postgresql://role:{PASSWORD}@{secret}/db"
        assert settings.postgres.pool_size == given["settings"].get("postgres", {}).get("pool_size", 8)
        assert (settings.postgres.migration_dsn is not None) == (manifest["kind"] == "Job")
        monkeypatch.delenv("CONFPLANE_POSTGRES__MIGRATION_DSN", raising=False)

    if values == "full":
        assert settings.clusters["payments"].client_configs_layout is ClientConfigsLayout.SEPARATE
        assert (settings.log_level, settings.log_format, settings.tracing) == ("debug", "json", True)


def test_the_keys_are_where_the_settings_say(manifests: Render) -> None:
    found = manifests(chart.merged("full"))
    (container,) = pod_of(deployment_of(found))["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    settings = yaml.safe_load(found["ConfigMap/kafka-control-plane"]["data"]["settings.yaml"])
    expected = {
        "admin-key": ("trail-admin", "admin-token", settings["admin_token_file"]),
        "console-key": ("console", "session-key", settings["console_key_file"]),
        "webhooks-key": ("webhooks", "seal", settings["webhooks"]["key_file"]),
    }
    volumes = {item["name"]: item["secret"] for item in pod_of(deployment_of(found))["volumes"] if "secret" in item}
    assert set(volumes) == set(expected)
    for name, volume in volumes.items():
        (item,) = volume["items"]
        assert (volume["secretName"], item["key"], f"{mounts[name]}/{item['path']}") == expected[name]
        # Not for everyone, and readable through the group of the volume.
        assert volume["defaultMode"] == 0o440


def test_large_numbers_stay_whole(template: Callable[..., str]) -> None:
    rendered = template(
        chart.merged("minimal"), "--set", "settings.clusters.payments.group_max_session_timeout_ms=180000000"
    )
    assert "group_max_session_timeout_ms: 180000000\n" in rendered
    assert not re.search(r"\de\+\d", rendered)


def test_pods_are_recreated_when_the_settings_change_and_only_then(manifests: Render) -> None:
    def checksum(changes: chart.Manifest) -> str:
        template: chart.Manifest = deployment_of(manifests(chart.merged("full", changes)))["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/settings"]
        assert template["metadata"]["annotations"]["example.com/owner"] == "platform"
        return found

    first = checksum({})
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert checksum({"replicaCount": 7, "service": {"port": 81}}) == first
    assert checksum({"settings": {"log_level": "info"}}) != first


def test_replicas_are_left_out_for_an_autoscaler(manifests: Render) -> None:
    assert deployment_of(manifests(chart.merged("minimal")))["spec"]["replicas"] == 2
    assert deployment_of(manifests(chart.merged("minimal", {"replicaCount": 0})))["spec"]["replicas"] == 0
    assert "replicas" not in deployment_of(manifests(chart.merged("bare")))["spec"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "images.example.com/confplane:{version}"),
        ({"tag": "nightly"}, "images.example.com/confplane:nightly"),
        ({"tag": "nightly", "digest": f"sha256:{'a' * 64}"}, f"images.example.com/confplane@sha256:{'a' * 64}"),
    ],
)
def test_the_image(manifests: Render, image: dict[str, str], expected: str) -> None:
    found = manifests(chart.merged("minimal", {"image": image}))
    version = deployment_of(found)["metadata"]["labels"]["app.kubernetes.io/version"]
    images = {pod_of(item)["containers"][0]["image"] for item in found.values() if "template" in item.get("spec", {})}
    assert images == {expected.format(version=version)}


def test_pods_are_spread_among_their_own_kind(manifests: Render) -> None:
    (constraint,) = pod_of(deployment_of(manifests(chart.merged("minimal"))))["topologySpreadConstraints"]
    selector = deployment_of(manifests(chart.merged("minimal")))["spec"]["selector"]["matchLabels"]
    assert constraint["labelSelector"] == {"matchLabels": selector}
    zones, hosts = pod_of(deployment_of(manifests(chart.merged("full"))))["topologySpreadConstraints"]
    assert zones["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "control-plane"
    assert hosts["labelSelector"] == {"matchLabels": {"team": "platform"}}


@pytest.mark.parametrize("release", ["confplane", "a" * 53, "my-confplane-2"])
def test_names_fit_into_63_characters(helm: Callable[..., str], release: str) -> None:
    rendered = helm(
        "template",
        release,
        str(chart.CHART),
        "--values",
        str(chart.VALUES / "minimal.yaml"),
        "--kube-version",
        chart.KUBERNETES[0],
    )
    names = re.findall(r"^  name: (\S+)$", rendered, re.MULTILINE)
    assert len(names) == 7
    assert max(map(len, names)) <= 63
    assert not [name for name in names if name.endswith("-")]


@pytest.mark.parametrize("values", ["full", "bare"])
def test_the_notes_say_what_to_do_next(helm: Callable[..., str], tmp_path: Path, values: str) -> None:
    # `helm template` leaves the notes out and the other commands want a cluster, so a copy renders them as an object.
    copy = tmp_path / "confplane"
    shutil.copytree(chart.CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes.txt")
    (copy / "templates" / "notes.yaml").write_text(
        'kind: Notes\ntext: |\n  {{- tpl (.Files.Get "notes.txt") . | nindent 2 }}\n'
    )
    notes = helm(
        *(
            "template",
            chart.RELEASE,
            str(copy),
            "--values",
            str(chart.VALUES / f"{values}.yaml"),
            "--namespace",
            "kafka",
        ),
        *("--kube-version", chart.KUBERNETES[0], "--show-only", "templates/notes.yaml"),
    )
    name, port = NAMES[values], 80 if values == "full" else 8080
    assert f"http://{name}.kafka:{port}\n" in notes
    assert f"kubectl -n kafka rollout status deployment/{name}\n" in notes
    assert f"kubectl -n kafka port-forward service/{name} 8080:{port}\n" in notes
    assert ("`confplane migrate`" in notes) == (values == "bare")
    (token,) = re.findall(r"TOKEN=\$\((.*)\)", notes)
    secret, key = ("trail-admin", "admin-token") if values == "full" else ("confplane-admin", "token")
    jsonpath = f'go-template={{{{index .data "{key}" | base64decode}}}}'
    assert shlex.split(token) == ["kubectl", "-n", "kafka", "get", "secret", secret, "-o", jsonpath]
