"""The table of faults that ``confplane doctor`` finds, each with the severity and the command that fixes it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.services.doctor.diagnosis import diagnose, exit_code
from confplane.services.ports.cluster_states import Target, TargetMode
from confplane.services.ports.doctor_facts import (
    ClusterChoices,
    ClusterFacts,
    Facts,
    FileFacts,
    KafkaFacts,
    PostgresFacts,
    SettingsFacts,
    TrailFacts,
)
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT: Final = Path(__file__).parents[3] / "docs/doctor.md"
FULL: Final = dict.fromkeys(KraftEntityType, (EntityTypePermission.FULL, ""))
TRAIL: Final = TrailFacts(recorded_age_s=5.0, webhooks=1, integrity_age_s=80_000.0, paused_s=60.0)
CLUSTER: Final = ClusterFacts(
    "payments",
    notifications=900,
    target=Target("abc", TargetMode.ADOPT, imported=True),
    kafka=KafkaFacts(cluster_id="abc", permissions=FULL),
)
HEALTHY: Final = Facts(
    SettingsFacts(
        webhooks_key=True,
        clusters={"payments": ClusterChoices("zk:2181/a", follows_kafka=True), "other": ClusterChoices("zk:2181/b")},
        files=[FileFacts("http.tls.certificate_file", "/tls.crt", expires_in_days=80.0)],
    ),
    PostgresFacts(trails={"payments": TRAIL}),
    [CLUSTER, ClusterFacts("other")],
)


def settings(**given: Any) -> Facts:
    return replace(HEALTHY, settings=replace(HEALTHY.settings, **given))


def choices(**given: Any) -> Facts:
    clusters = HEALTHY.settings.clusters
    return settings(clusters={**clusters, "payments": replace(clusters["payments"], **given)})


def file(**given: Any) -> Facts:
    return settings(files=[replace(HEALTHY.settings.files[0], **given)])


def postgres(**given: Any) -> Facts:
    return replace(HEALTHY, postgres=replace(HEALTHY.postgres, **given))


def trail(**given: Any) -> Facts:
    return postgres(trails={"payments": replace(TRAIL, **given)})


def cluster(**given: Any) -> Facts:
    return replace(HEALTHY, clusters=[replace(CLUSTER, **given), HEALTHY.clusters[1]])


def kafka(**given: Any) -> Facts:
    return cluster(kafka=replace(KafkaFacts(cluster_id="abc", permissions=FULL), **given))


def right(permission: EntityTypePermission) -> Facts:
    return kafka(permissions={**FULL, next(iter(KraftEntityType)): (permission, "refused")})


def two_appliers() -> Facts:
    other = replace(HEALTHY.clusters[1], target=CLUSTER.target, kafka=CLUSTER.kafka)
    return replace(HEALTHY, clusters=[CLUSTER, other], settings=following(HEALTHY.settings))


def same_chroot() -> Facts:
    given = {
        name: replace(each, zookeeper=text)
        for (name, each), text in zip(
            HEALTHY.settings.clusters.items(), ["zk1:2181,zk2:2181/a", "zk2:2181,zk1:2181/a"], strict=True
        )
    }
    return settings(clusters=given)


def following(given: SettingsFacts) -> SettingsFacts:
    """Return settings in which both clusters have brokers."""
    return replace(given, clusters={name: replace(each, follows_kafka=True) for name, each in given.clusters.items()})


def readyz(text: str) -> Facts:
    return cluster(warnings=[text])


FAULTS: Final[list[tuple[Callable[[], Facts], str, str, str]]] = [
    (lambda: settings(problems=["policy_file: missing"]), "settings-unusable", "error", "correct the setting"),
    (lambda: settings(pool_size=6), "pool-small", "warning", "CONFPLANE_POSTGRES__POOL_SIZE=8"),
    (lambda: settings(drain_ms=0), "no-drain", "warning", "CONFPLANE_HTTP__DRAIN_MS=2000"),
    (lambda: settings(limits_enabled=False), "no-limits", "warning", "CONFPLANE_LIMITS__ENABLED=true"),
    (lambda: settings(insecure_webhooks=True), "insecure-webhooks", "warning", "CONFPLANE_WEBHOOKS__INSECURE_HTTP"),
    (lambda: choices(session_timeout_ms=45_001), "session-long", "warning", "session_timeout_ms: 45000"),
    (lambda: choices(record_external_changes=False), "not-recorded", "warning", "record_external_changes: true"),
    (lambda: choices(zookeeper="zk:2181/b"), "chroot-shared", "error", "give each cluster the chroot"),
    (same_chroot, "chroot-shared", "error", "give each cluster the chroot"),
    (lambda: file(problem="No such file"), "file-unreadable", "error", "ls -l /tls.crt"),
    (lambda: file(writable_by_others=True), "file-writable", "error", "chmod go-w /tls.crt"),
    (lambda: file(expires_in_days=29.0), "certificate-expiring", "warning", "replace /tls.crt"),
    (lambda: file(expires_in_days=-1.0), "certificate-expiring", "error", "replace /tls.crt"),
    (lambda: postgres(fault="Postgres can't be reached"), "postgres-unavailable", "error", "psql"),
    (lambda: postgres(fault="At 0031; run `confplane migrate`"), "postgres-unavailable", "error", "confplane migrate"),
    (lambda: postgres(warnings=["synchronous_commit is off: ..."]), "postgres", "warning", "synchronous_commit = on"),
    (lambda: postgres(warnings=["x: run `confplane migrate`."]), "postgres", "warning", "confplane migrate"),
    (lambda: postgres(version=130_012), "postgres-old", "warning", "pg_upgrade"),
    (lambda: postgres(standby=True), "postgres-standby", "error", "postgres.dsn: the primary"),
    (lambda: postgres(fsync=False), "postgres-not-durable", "error", "SET fsync = on"),
    (lambda: postgres(full_page_writes=False), "postgres-not-durable", "error", "SET full_page_writes = on"),
    (lambda: postgres(wal_level="minimal"), "wal-minimal", "warning", "wal_level = replica"),
    (lambda: postgres(inactive_slots=["old"]), "slot-inactive", "warning", "pg_drop_replication_slot('old')"),
    (lambda: postgres(clock_ahead_s=-61.0), "clock", "warning", "NTP"),
    (lambda: postgres(expiring_tokens=["1-2"]), "token-expiring", "warning", "confplane tokens rotate 1-2"),
    (lambda: postgres(tokens_rejected=True), "tokens-rejected", "error", "confplane tokens confirm"),
    (lambda: trail(open_changes=1), "changes-open", "error", "confplane serve"),
    (lambda: trail(recorded_age_s=61.0), "recorder-behind", "error", "the log of the leader"),
    (lambda: trail(overdue=1), "schedules-overdue", "warning", "confplane schedules list --cluster payments"),
    (lambda: trail(paused_s=86_401.0), "schedules-paused", "warning", "confplane schedules resume --cluster payments"),
    (
        lambda: trail(parked_webhooks=["w"]),
        "webhook-parked",
        "warning",
        "confplane webhooks resume w --cluster payments",
    ),
    (lambda: settings(webhooks_key=False), "webhooks-off", "error", "CONFPLANE_WEBHOOKS__KEY_FILE"),
    (lambda: trail(failed_rollups=["usage"]), "rollup-failed", "warning", "confplane rollups run usage"),
    (lambda: trail(integrity_age_s=172_801.0), "integrity-old", "warning", "confplane rollups run integrity"),
    (lambda: trail(refused=1), "changes-refused", "error", "confplane drift list --cluster payments"),
    (lambda: cluster(fault="ZooKeeper did not answer"), "zookeeper-unavailable", "error", "nc ZOOKEEPER"),
    (lambda: cluster(restored="fewer commits"), "store-restored", "error", "confplane adopt-store --cluster payments"),
    (lambda: cluster(lost_changes="Postgres lacks x"), "postgres-restored", "error", "confplane tokens confirm"),
    (lambda: cluster(processes=0), "no-process", "warning", "confplane serve"),
    (lambda: cluster(frozen="INC-7"), "frozen", "warning", "confplane thaw --cluster payments"),
    (lambda: cluster(old_markers=1), "markers-old", "warning", "confplane serve; if they stay"),
    (lambda: cluster(stray_markers=1), "markers-stray", "warning", "zkCli.sh deleteall /confplane/commits"),
    (lambda: cluster(notifications=16_001, brokers_registered=True), "notifications", "warning", "slow down"),
    (
        lambda: readyz("the names take 9 bytes that brokers can list"),
        "zookeeper",
        "warning",
        "confplane compact --cluster payments",
    ),
    (
        lambda: readyz("/config/changes has children that are not notifications"),
        "zookeeper",
        "warning",
        "zkCli.sh delete",
    ),
    (
        lambda: readyz("A znode below /config, of user=a, is not JSON"),
        "zookeeper",
        "warning",
        "fix the znode with the tool that wrote it",
    ),
    (lambda: readyz("A problem of a later release"), "zookeeper", "warning", "docs/operations.md"),
    (lambda: cluster(missing_rights=["write /config/topics/a"]), "zookeeper-rights", "error", "zkCli.sh setAcl"),
    (lambda: cluster(is_old=True), "zookeeper-old", "warning", "upgrade the ZooKeeper servers"),
    (
        lambda: postgres(warnings=["The service's role lacks rights on grants: run `confplane migrate`."]),
        "postgres",
        "warning",
        "confplane migrate",
    ),
    (
        lambda: postgres(warnings=["... names standbys and none is connected: no commit ends until one is."]),
        "postgres",
        "warning",
        "start a standby",
    ),
    (lambda: kafka(cluster_id="other"), "kafka-other", "error", "CONFPLANE_CLUSTERS__PAYMENTS__KAFKA__BOOTSTRAP"),
    (
        lambda: cluster(reported=["payments: brokers do not use some of their dynamic configs (1 keys): x"]),
        "kafka",
        "warning",
        "confplane target status --cluster payments",
    ),
    (two_appliers, "kafka-shared", "error", "confplane target observe --cluster other"),
    (lambda: choices(follows_kafka=False), "kafka-not-set", "error", "CONFPLANE_CLUSTERS__PAYMENTS__KAFKA"),
    (lambda: cluster(target=Target("abc", paused=True)), "kafka-paused", "warning", "confplane target resume"),
    (
        lambda: kafka(fault="no broker answers"),
        "kafka-unavailable",
        "error",
        "confplane target check --cluster payments",
    ),
    (lambda: right(EntityTypePermission.NONE), "kafka-right", "error", "--operation DescribeConfigs"),
    (lambda: right(EntityTypePermission.READ_ONLY), "kafka-right", "error", "--operation AlterConfigs"),
    (lambda: kafka(barrier="no right"), "kafka-barrier", "warning", "--operation Describe "),
    (lambda: kafka(metadata_log="no right"), "kafka-log", "warning", "confplane target check"),
]


def test_a_healthy_installation_has_no_findings() -> None:
    assert diagnose(HEALTHY) == []
    assert exit_code([]) == 0


@pytest.mark.parametrize(
    ("fault", "check", "severity", "command"), FAULTS, ids=[f"{row[1]}-{row[3]}" for row in FAULTS]
)
def test_each_fault_is_found_with_its_command(
    fault: Callable[[], Facts], check: str, severity: str, command: str
) -> None:
    [finding] = diagnose(fault())
    assert (finding.check, finding.severity.value) == (check, severity)
    assert command in finding.command
    assert finding.text
    assert exit_code([finding]) == {"error": 1, "warning": 2}[severity]


def test_rights_to_alter_are_not_missed_if_nothing_is_altered() -> None:
    facts = right(EntityTypePermission.READ_ONLY)
    observed = replace(facts.clusters[0], target=Target("abc", TargetMode.OBSERVE))
    assert diagnose(replace(facts, clusters=[observed])) == []


def test_notifications_without_brokers_do_not_refuse_writes() -> None:
    assert diagnose(cluster(notifications=20_001)) == []


def test_a_recorder_without_a_process_is_one_finding() -> None:
    facts = replace(trail(recorded_age_s=900.0), clusters=[replace(CLUSTER, processes=0)])
    assert [finding.check for finding in diagnose(facts)] == ["no-process"]


def test_errors_come_first_and_decide_the_exit_code() -> None:
    findings = diagnose(replace(settings(drain_ms=0), clusters=[replace(CLUSTER, restored="x", frozen="y")]))
    assert [finding.severity.value for finding in findings] == ["error", "warning", "warning"]
    assert exit_code(findings) == 1


def test_the_document_names_each_check() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    assert named == {row[1] for row in FAULTS}
