"""The findings about clusters: ZooKeeper, the trail, and the Kafka clusters without ZooKeeper."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from confplane.services.doctor.findings import error, of_readyz, warning
from confplane.services.ports.doctor_facts import OPEN_S
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confplane.services.doctor.findings import Finding
    from confplane.services.ports.doctor_facts import ClusterFacts, Facts, KafkaFacts, SettingsFacts, TrailFacts

_RECORDED_S: Final = 60.0
_PAUSED_S: Final = 86_400.0
_INTEGRITY_S: Final = 172_800.0
_NEARLY: Final = 0.8
_NAMED: Final = 5
_ACL: Final = "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal PRINCIPAL "
_DESCRIBES: Final = {
    KraftEntityType.TOPICS: "--operation Describe --operation DescribeConfigs --topic '*'",
    KraftEntityType.GROUPS: "--operation DescribeConfigs --cluster --group '*'",
    KraftEntityType.BROKERS: "--operation DescribeConfigs --cluster",
}
_ALTERS: Final = {
    KraftEntityType.TOPICS: "--operation AlterConfigs --topic '*'",
    KraftEntityType.GROUPS: "--operation AlterConfigs --group '*'",
    KraftEntityType.BROKERS: "--operation AlterConfigs --cluster",
}
"""Options of ``kafka-acls.sh``. All other types have the rights of brokers."""


def check_cluster(facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield the findings about a cluster."""
    name, choices = cluster.name, facts.settings.clusters.get(cluster.name)
    if cluster.fault is not None:
        yield error("zookeeper-unavailable", f"{cluster.fault}.", "echo srvr | nc ZOOKEEPER 2181", name)
    else:
        yield from _store(cluster, 0 if choices is None else choices.notifications_max)
    trail = facts.postgres.trails.get(name)
    if facts.postgres.fault is None and trail is not None:
        yield from _trail(name, trail, facts.settings, processes=cluster.processes)
    if cluster.target is not None and choices is not None and not choices.follows_kafka:
        yield error(
            "kafka-not-set",
            "The cluster follows a Kafka cluster, and the settings name none of its brokers.",
            f"CONFPLANE_CLUSTERS__{name.upper()}__KAFKA__BOOTSTRAP",
            name,
        )
    if cluster.target is not None and cluster.target.paused:
        yield warning(
            "kafka-paused",
            "The Kafka cluster is not followed, and nothing is applied to it: it is paused.",
            f"confplane target resume --cluster {name} --reason TEXT",
            name,
        )
    if cluster.kafka is not None:
        yield from _kafka(cluster, cluster.kafka)


def check_targets(clusters: Iterable[ClusterFacts]) -> Iterator[Finding]:
    """Yield the clusters that apply changes to the same Kafka cluster."""
    shared: defaultdict[str, list[str]] = defaultdict(list)
    for cluster in clusters:
        if cluster.target is not None and cluster.target.applies:
            shared[cluster.target.cluster_id].append(cluster.name)
    for cluster_id, names in shared.items():
        if len(names) > 1:
            yield error(
                "kafka-shared",
                f"The clusters {', '.join(names)} apply their changes to the same Kafka cluster, {cluster_id}.",
                f"confplane target observe --cluster {names[-1]} --reason TEXT",
            )


def _store(cluster: ClusterFacts, limit: int) -> Iterator[Finding]:
    name = cluster.name
    if cluster.restored is not None:
        yield error(
            "store-restored",
            f"ZooKeeper was restored, or another one answers: {cluster.restored}. Writes are refused.",
            f"confplane adopt-store --cluster {name} --reason TEXT",
            name,
        )
    if cluster.lost_changes is not None:
        yield error("postgres-restored", cluster.lost_changes, "confplane tokens confirm --reason TEXT", name)
    yield from _server(cluster)
    for text in cluster.warnings:
        yield of_readyz("zookeeper", text, name)
    if not cluster.processes:
        yield warning("no-process", "No process of the service has a session with ZooKeeper.", "confplane serve", name)
    if cluster.frozen is not None:
        yield warning(
            "frozen", f"Writes are frozen: {cluster.frozen}", f"confplane thaw --cluster {name} --reason TEXT", name
        )
    if cluster.old_markers:
        yield warning(
            "markers-old",
            f"{cluster.old_markers} markers of changes are more than ten minutes old: no process drops them, or"
            " Postgres does not know their changes.",
            "confplane serve; if they stay, delete them below /confplane/commits",
            name,
        )
    if cluster.stray_markers:
        yield warning(
            "markers-stray",
            f"{cluster.stray_markers} nodes below /confplane/commits are not markers.",
            "zkCli.sh deleteall /confplane/commits/NODE",
            name,
        )
    if limit and cluster.brokers_registered and cluster.notifications > _NEARLY * limit:
        yield warning(
            "notifications",
            f"{cluster.notifications} config changes of the last 15 minutes wait for the brokers: above {limit}"
            " writes are refused.",
            "slow down bulk writers, or raise notifications_max",
            name,
        )


def _server(cluster: ClusterFacts) -> Iterator[Finding]:
    name = cluster.name
    for right in cluster.missing_rights:
        yield error(
            "zookeeper-rights",
            f"ZooKeeper does not permit this service to {right}: changes are refused.",
            f"zkCli.sh setAcl, or clusters.{name}.zookeeper_acl",
            name,
        )
    if cluster.is_old:
        yield warning(
            "zookeeper-old",
            "ZooKeeper is older than 3.6: it is not maintained any more, and `confplane backup` needs 3.6.",
            "upgrade the ZooKeeper servers",
            name,
        )


def _trail(name: str, trail: TrailFacts, settings: SettingsFacts, *, processes: int) -> Iterator[Finding]:
    if trail.open_changes:
        yield error(
            "changes-open",
            f"{trail.open_changes} changes have had no outcome for {OPEN_S} s.",
            "confplane serve; if processes run, /readyz of the leader has the reason",
            name,
        )
    if processes and trail.recorded_age_s is not None and trail.recorded_age_s > _RECORDED_S:
        yield error(
            "recorder-behind",
            f"External changes have not been recorded for {trail.recorded_age_s:.0f} s.",
            "the log of the leader has the reason",
            name,
        )
    if trail.overdue:
        yield warning(
            "schedules-overdue",
            f"{trail.overdue} temporary changes have not ended in time.",
            f"confplane schedules list --cluster {name}",
            name,
        )
    if trail.paused_s is not None and trail.paused_s > _PAUSED_S:
        yield warning(
            "schedules-paused",
            "The ends of temporary changes have been paused for more than a day.",
            f"confplane schedules resume --cluster {name}",
            name,
        )
    for webhook in trail.parked_webhooks[:_NAMED]:
        yield warning(
            "webhook-parked",
            f"The webhook {webhook} is parked: it delivers nothing.",
            f"confplane webhooks resume {webhook} --cluster {name}",
            name,
        )
    if trail.webhooks and not settings.webhooks_key:
        yield error(
            "webhooks-off",
            f"There are {trail.webhooks} webhooks, and webhooks.key_file is not set: they deliver nothing.",
            "CONFPLANE_WEBHOOKS__KEY_FILE",
            name,
        )
    yield from _rollups(name, trail)


def _rollups(name: str, trail: TrailFacts) -> Iterator[Finding]:
    for job in trail.failed_rollups:
        yield warning(
            "rollup-failed",
            f"The last run of the rollup {job} failed.",
            f"confplane rollups run {job} --cluster {name}",
            name,
        )
    if trail.integrity_age_s is not None and trail.integrity_age_s > _INTEGRITY_S:
        yield warning(
            "integrity-old",
            "The rollup integrity has not been complete for two days.",
            f"confplane rollups run integrity --cluster {name}",
            name,
        )
    if trail.refused:
        yield error(
            "changes-refused",
            f"The Kafka cluster refused changes of {trail.refused} entities that are committed here.",
            f"confplane drift list --cluster {name}",
            name,
        )


def _kafka(cluster: ClusterFacts, kafka: KafkaFacts) -> Iterator[Finding]:
    name, check = cluster.name, f"confplane target check --cluster {cluster.name}"
    if kafka.fault is not None:
        yield error("kafka-unavailable", f"{kafka.fault}.", check, name)
        return
    followed = None if cluster.target is None else cluster.target.cluster_id
    if followed is not None and kafka.cluster_id != followed:
        yield error(
            "kafka-other",
            f"The brokers of the settings belong to the Kafka cluster {kafka.cluster_id}, and {followed} is followed.",
            f"CONFPLANE_CLUSTERS__{name.upper()}__KAFKA__BOOTSTRAP",
            name,
        )
        return
    for text in cluster.reported:
        yield of_readyz("kafka", text, name)
    for entity_type, (permission, reason) in kafka.permissions.items():
        applies = cluster.target is not None and cluster.target.applies_to(entity_type)
        if permission is EntityTypePermission.NONE:
            text = f"Configs of {entity_type.value} can't be followed: {reason}."
        elif permission is EntityTypePermission.READ_ONLY and applies:
            text = f"Changes of {entity_type.value} can't be applied: {reason}."
        else:
            continue
        rights = _DESCRIBES if permission is EntityTypePermission.NONE else _ALTERS
        yield error("kafka-right", text, _ACL + rights.get(entity_type, rights[KraftEntityType.BROKERS]), name)
    if kafka.barrier is not None:
        yield warning(
            "kafka-barrier",
            f"Strong reads wait a second, because there is no barrier: {kafka.barrier}.",
            f"{_ACL}--operation Describe --cluster",
            name,
        )
    if kafka.metadata_log is not None:
        yield warning("kafka-log", f"The metadata log can't be followed: {kafka.metadata_log}.", check, name)
