"""The parts of the chart that are off by default: routes, autoscaling, metrics, rollups, and the trial."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from confplane.cli import callers
from confplane.cli.commands import cli
from tests.deploy import chart

if TYPE_CHECKING:
    from collections.abc import Callable

    Render = Callable[..., dict[str, chart.Manifest]]

# Helm may have to be built first.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(2400)]

ROLLUPS = "demo-confplane-rollups"


def job_of(found: dict[str, chart.Manifest], cluster: str = "payments") -> tuple[chart.Manifest, chart.Manifest]:
    """Return the pod of a cluster's rollups, and its only container."""
    pod: chart.Manifest = found[f"CronJob/{ROLLUPS}-{cluster}"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def spark_of(found: dict[str, chart.Manifest]) -> dict[str, str]:
    """Return the properties that Spark reads from its file of defaults."""
    lines = found[f"ConfigMap/{ROLLUPS}-payments"]["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_all_routes_lead_to_the_service(manifests: Render) -> None:
    found = manifests(chart.merged("full"))
    service = found["Service/kafka-control-plane"]
    rules = found["Ingress/kafka-control-plane"]["spec"]["rules"]
    assert [rule["host"] for rule in rules] == ["confplane.example.com", "*.kafka.example.com"]
    for rule in rules:
        (path,) = rule["http"]["paths"]
        assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": "http"}}
    route = found["HTTPRoute/kafka-control-plane"]["spec"]
    (backend,) = route["rules"][0]["backendRefs"]
    assert backend == {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}
    assert route["parentRefs"] == [{"name": "public", "namespace": "gateways", "sectionName": "https"}]


def test_a_public_address_without_a_route_of_the_chart_is_accepted(manifests: Render) -> None:
    assert manifests(chart.merged("minimal", {"settings": {"http": {"public_url": "https://elsewhere.example.com"}}}))


def test_the_autoscaler_alone_decides_on_the_number_of_pods(manifests: Render) -> None:
    found = manifests(chart.merged("full"))
    autoscaler = found["HorizontalPodAutoscaler/kafka-control-plane"]["spec"]
    deployment = found["Deployment/kafka-control-plane"]
    target = autoscaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (deployment["kind"], deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (3, 12)
    assert [metric["type"] for metric in autoscaler["metrics"]] == ["Resource", "Pods"]


def test_the_monitor_selects_the_service_and_its_port(manifests: Render) -> None:
    found = manifests(chart.merged("full", {"rollups": {"enabled": True, "image": {"repository": "x"}}}))
    monitor = found["ServiceMonitor/kafka-control-plane"]["spec"]
    selector = monitor["selector"]["matchLabels"].items()
    services = [each for each in found.values() if each["kind"] == "Service"]
    (service,) = (each for each in services if selector <= each["metadata"]["labels"].items())
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert (endpoint["path"], endpoint["interval"], endpoint["scrapeTimeout"]) == ("/metrics", "30s", "10s")


def test_the_dashboard_arrives_as_it_is_in_the_chart(manifests: Render) -> None:
    dashboard = manifests(chart.merged("full"))["ConfigMap/kafka-control-plane-dashboard"]
    assert json.loads(dashboard["data"]["confplane.json"]) == json.loads((chart.CHART / "dashboard.json").read_text())
    assert dashboard["metadata"]["labels"]["dashboards"] == "kafka"


@pytest.mark.parametrize(
    ("changes", "master"),
    [
        ({"mode": "local", "sparkConf": None}, None),
        ({"mode": "standalone", "master": "spark://spark:7077"}, "spark://spark:7077"),
        ({"mode": "kubernetes"}, "k8s://https://kubernetes.default.svc"),
    ],
    ids=["local", "standalone", "kubernetes"],
)
def test_the_rollups_run_a_command_that_there_is(manifests: Render, changes: Any, master: str | None) -> None:
    found = manifests(chart.merged("rollups", {"rollups": changes}))
    _, container = job_of(found)
    first, *arguments = container["args"]
    assert first == "rollups"
    given = dict(each.split("=", 1) for each in arguments if "=" in each)
    assert given.get("--master") == master
    # The command is well-formed if it gets as far as the settings, which are not on this machine.
    done = CliRunner().invoke(
        cli,
        ["rollups", *arguments, "--settings-file", "/none.yaml"],
        env={"CONFPLANE_SETTINGS_FILE": None, "COLUMNS": "200"},
    )
    assert done.exit_code == callers.INVALID
    assert "/none.yaml" in done.output


def test_the_driver_of_executors_can_be_reached_and_may_start_them(manifests: Render) -> None:
    found = manifests(chart.merged("rollups"))
    pod, container = job_of(found)
    labels = found[f"CronJob/{ROLLUPS}-payments"]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    spark, service = spark_of(found), found[f"Service/{ROLLUPS}-payments"]
    assert spark["spark.driver.host"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= labels.items()
    ports = {spark["spark.driver.port"], spark["spark.driver.blockManager.port"]}
    assert {str(port["port"]) for port in service["spec"]["ports"]} == ports
    assert {str(port["containerPort"]) for port in container["ports"]} == ports
    assert pod["automountServiceAccountToken"] is True
    account = pod["serviceAccountName"]
    assert f"ServiceAccount/{account}" in found
    binding = found[f"RoleBinding/{account}"]
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    (rule,) = found[f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"]["rules"]
    assert {"create", "delete", "watch"} <= {*rule["verbs"]}


def test_the_properties_of_spark_are_those_of_the_values(manifests: Render) -> None:
    spark = spark_of(manifests(chart.merged("rollups")))
    assert spark["spark.kubernetes.container.image"] == "images.example.com/confplane-rollups:nightly"
    assert (spark["spark.executor.instances"], spark["spark.executor.cores"]) == ("4", "2")
    assert spark["spark.executor.memory"] == "3g"  # of sparkConf, which has the last word
    assert spark["spark.hadoop.fs.s3a.endpoint"] == "https://s3.example.com"


def test_executors_have_the_files_that_the_settings_name(manifests: Render) -> None:
    found = manifests(chart.merged("rollups"))
    executor = yaml.safe_load(found[f"ConfigMap/{ROLLUPS}-payments"]["data"]["executor.yaml"])["spec"]
    (container,) = executor["containers"]
    assert {"name": "encoder", "mountPath": "/etc/confplane/encoder", "readOnly": True} in container["volumeMounts"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in executor["volumes"]}
    assert executor["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_rollups_of_each_cluster_have_a_job(manifests: Render) -> None:
    found = manifests(chart.merged("rollups", {"rollups": {"clusters": [], "mode": "local", "sparkConf": None}}))
    jobs = [each for each in found.values() if each["kind"] == "CronJob"]
    assert [each["metadata"]["name"] for each in jobs] == [f"{ROLLUPS}-payments", f"{ROLLUPS}-telemetry"]
    for cluster in ("payments", "telemetry"):
        pod, container = job_of(found, cluster)
        assert f"--cluster={cluster}" in container["args"]
        assert pod["automountServiceAccountToken"] is False
    assert not [each for each in found if each.startswith(("Role", f"Service/{ROLLUPS}"))]


def test_long_names_of_clusters_give_jobs_of_their_own(manifests: Render) -> None:
    clusters = {f"{'orders-' * 8}{number}": {"zookeeper": "zk:2181"} for number in range(2)}
    found = manifests(
        chart.merged("rollups", {"settings": {"clusters": clusters}, "rollups": {"clusters": [*clusters]}})
    )
    names = [each["metadata"]["name"] for each in found.values() if each["kind"] == "CronJob"]
    assert len(set(names)) == 2
    assert all(len(name) <= 52 and re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) for name in names)


def test_the_rollups_end_at_codes_that_no_repetition_changes(manifests: Render) -> None:
    job = manifests(chart.merged("rollups"))[f"CronJob/{ROLLUPS}-payments"]["spec"]["jobTemplate"]["spec"]
    (rule,) = job["podFailurePolicy"]["rules"]
    (container,) = job["template"]["spec"]["containers"]
    assert rule["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [callers.INVALID, 4]}


@pytest.mark.parametrize("name", ["rollups", "trial"])
def test_further_workloads_are_hardened_like_the_service(manifests: Render, name: str) -> None:
    workloads = [
        each["spec"].get("jobTemplate", each)["spec"]["template"]["spec"]
        for each in manifests(chart.merged(name)).values()
        if each["kind"] in {"CronJob", "Deployment", "Job"}
    ]
    assert len(workloads) == 3
    for pod in workloads:
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_servers_of_the_trial_are_those_of_its_settings(manifests: Render) -> None:
    found = manifests(chart.merged("trial"))
    settings = yaml.safe_load(found["ConfigMap/confplane"]["data"]["settings.yaml"])
    secret = found["Secret/confplane-trial"]["stringData"]
    addresses = [each["zookeeper"] for each in settings["clusters"].values()]
    addresses += [f"{url.hostname}:{url.port or 5432}" for url in (urlsplit(secret["postgres"]),)]
    for address in addresses:
        name, port = address.split(":")
        service = found[f"Service/{name}"]["spec"]
        assert [str(each["port"]) for each in service["ports"]] == [port]
        pod = found[f"Deployment/{name}"]["spec"]["template"]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert {each["targetPort"] for each in service["ports"]} <= {each["name"] for each in container["ports"]}
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        parts = [(mount["name"], mount.get("subPath")) for mount in container["volumeMounts"]]
        assert len(set(parts)) == len(parts)


def test_the_secrets_of_the_trial_fit_together(manifests: Render) -> None:
    found = manifests(chart.merged("trial"))
    secret = found["Secret/confplane-trial"]["stringData"]
    assert urlsplit(secret["postgres"]).password in secret["roles.sql"]
    assert urlsplit(secret["postgresMigration"]).password == secret["owner"]
    assert len({secret[name] for name in ("owner", "service", "adminToken", "consoleKey", "webhooksKey")}) == 5
    pod = found["Deployment/confplane"]["spec"]["template"]["spec"]
    containers = [*pod["containers"], *pod["initContainers"]]
    named = [
        each["valueFrom"]["secretKeyRef"]
        for container in containers
        for each in container["env"]
        if "valueFrom" in each
    ]
    named += [
        {"name": volume["secret"]["secretName"], "key": item["key"]}
        for volume in pod["volumes"]
        if "secret" in volume
        for item in volume["secret"]["items"]
    ]
    assert {each["name"] for each in named} == {"confplane-trial"}
    assert {each["key"] for each in named} == {
        "postgres",
        "postgresMigration",
        "adminToken",
        "consoleKey",
        "webhooksKey",
    }


def test_the_trial_migrates_in_its_pod(manifests: Render) -> None:
    found = manifests(chart.merged("trial"))
    assert not [name for name in found if name.startswith("Job/")]
    (migrate,) = found["Deployment/confplane"]["spec"]["template"]["spec"]["initContainers"]
    assert migrate["command"] == ["confplane", "migrate"]
