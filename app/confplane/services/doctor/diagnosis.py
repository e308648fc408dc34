"""The decision from facts to findings. Pure: each check is a condition, a sentence and a command."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from confplane.services.doctor.findings import Finding, Severity
from confplane.services.ports.kafka import EntityTypePermission

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confplane.services.doctor.facts import (
        ClusterFacts,
        Facts,
        FileFacts,
        KafkaFacts,
        PostgresFacts,
        SettingsFacts,
        TrailFacts,
    )

OPEN_S: Final = 120
"""Seconds after which a change without an outcome is a finding."""
EXPIRING_DAYS: Final = 14
_RECORDED_S: Final = 60.0
_PAUSED_S: Final = 86_400.0
_INTEGRITY_S: Final = 172_800.0
_CERTIFICATE_DAYS: Final = 30
_CLOCK_S: Final = 60.0
_OLDEST_POSTGRES: Final = 140_000
_POOL: Final = 7
_LONGEST_SESSION_MS: Final = 45_000
_BROKERS_LIST: Final = 37_000
_NEARLY: Final = 0.8
_NAMED: Final = 5
_COMMAND: Final = re.compile(r"`(confplane [^`]+)`")

REMEDIES: Final = (
    (r"synchronous_commit is", "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"),
    (r"synchronous_standby_names is empty", "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'"),
    (r"owns tables|is a superuser", "CREATE ROLE, postgres.dsn, confplane migrate"),
    (r"later version of this service", "upgrade this process to the later release"),
    (r"not notifications", "zkCli.sh delete the child below /config/changes"),
    (r"do not name a config entity", "fix the tool that writes them, and write its changes again"),
    (r"can't be read or written back", "fix the znode with the tool that wrote it"),
    (r"may not be read with this identity", "zkCli.sh setAcl, or clusters.NAME.zookeeper_acl"),
    (r"not spelled as Kafka spells them", "zkCli.sh delete the znode"),
    (r"brokers can list", "confplane compact --cluster NAME --apply"),
    (r"[Cc]lock", "set the clocks of the machines, by NTP"),
    (r"grants sessions of", "lower minSessionTimeout of the ZooKeeper servers"),
)
"""Commands for warnings of ``/readyz`` that name none, by a part of their text."""
_OF_READYZ: Final = "see the table of alerts in docs/operations.md"


def diagnose(facts: Facts) -> list[Finding]:
    """Return the findings, errors first."""
    found = list(
        chain(
            _settings(facts.settings),
            _postgres(facts.postgres),
            *(_cluster(facts, cluster) for cluster in facts.clusters),
        )
    )
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def _error(check: str, text: str, command: str, cluster: str | None = None) -> Finding:
    return Finding(check, Severity.ERROR, text, command, cluster)


def _warning(check: str, text: str, command: str, cluster: str | None = None) -> Finding:
    return Finding(check, Severity.WARNING, text, command, cluster)


def _of_readyz(check: str, text: str, cluster: str | None = None) -> Finding:
    """Return the finding of a warning that ``/readyz`` shows as well, which mostly names its command."""
    named = _COMMAND.search(text)
    known = (command for pattern, command in REMEDIES if re.search(pattern, text))
    command = named[1] if named else next(known, _OF_READYZ)
    return _warning(check, text, command if cluster is None else command.replace("NAME", cluster), cluster)


# -- settings


def _settings(settings: SettingsFacts) -> Iterator[Finding]:
    for problem in settings.problems:
        yield _error("settings-unusable", problem, "correct the setting, and start the processes again")
    if settings.pool_size < _POOL:
        yield _warning(
            "pool-small",
            f"postgres.pool_size is {settings.pool_size}: with fewer than {_POOL} connections searches delay writes.",
            f"CONFPLANE_POSTGRES__POOL_SIZE={_POOL + 1}",
        )
    if not settings.drain_ms:
        yield _warning(
            "no-drain",
            "http.drain_ms is 0: a restart refuses requests, because balancers do not learn of it in time.",
            "CONFPLANE_HTTP__DRAIN_MS=2000",
        )
    if not settings.limits_enabled:
        yield _warning(
            "no-limits",
            "limits.enabled is false: one caller can use up the service.",
            "CONFPLANE_LIMITS__ENABLED=true",
        )
    if settings.insecure_webhooks:
        yield _warning(
            "insecure-webhooks",
            "webhooks.insecure_http is true, which is for trials alone.",
            "CONFPLANE_WEBHOOKS__INSECURE_HTTP=false",
        )
    for file in settings.files:
        yield from _file(file)
    yield from _choices(settings)
    shared: defaultdict[str, list[str]] = defaultdict(list)
    for name, choices in settings.clusters.items():
        shared[choices.zookeeper].append(name)
    for connect, names in shared.items():
        if len(names) > 1:
            yield _error(
                "chroot-shared",
                f"The clusters {', '.join(names)} have the same ZooKeeper and chroot, {connect}.",
                "give each cluster the chroot of its brokers, or remove one of them from the settings",
            )


def _choices(settings: SettingsFacts) -> Iterator[Finding]:
    for name, choices in settings.clusters.items():
        if choices.session_timeout_ms > _LONGEST_SESSION_MS:
            yield _warning(
                "session-long",
                f"session_timeout_ms is {choices.session_timeout_ms}, and at most {_LONGEST_SESSION_MS} are requested.",
                f"session_timeout_ms: {_LONGEST_SESSION_MS}",
                name,
            )
        if choices.notifications_max > _BROKERS_LIST:
            yield _error(
                "notifications-limit",
                f"notifications_max is {choices.notifications_max}, and brokers list {_BROKERS_LIST} at most.",
                f"notifications_max: {_BROKERS_LIST}",
                name,
            )
        if not choices.record_external_changes:
            yield _warning(
                "not-recorded",
                "record_external_changes is false: the trail lacks the changes of other tools, and `?at=` is not"
                " available.",
                "record_external_changes: true",
                name,
            )
        if choices.group_session_ms[0] > choices.group_session_ms[1]:
            yield _error(
                "session-bounds",
                "group_min_session_timeout_ms is above group_max_session_timeout_ms: no session.timeout.ms is valid.",
                "group_min_session_timeout_ms: 6000",
                name,
            )


def _file(file: FileFacts) -> Iterator[Finding]:
    if file.problem is not None:
        yield _error(
            "file-unreadable", f"{file.setting}: {file.path} can't be read: {file.problem}", f"ls -l {file.path}"
        )
    if file.writable_by_others:
        yield _error(
            "file-writable",
            f"{file.setting}: other users of the machine can change {file.path}.",
            f"chmod go-w {file.path}",
        )
    days = file.expires_in_days
    if days is not None and days < _CERTIFICATE_DAYS:
        state = f"expires in {days:.0f} days" if days > 0 else "has expired"
        kind = _warning if days > 0 else _error
        yield kind(
            "certificate-expiring",
            f"{file.setting}: a certificate in {file.path} {state}.",
            f"replace {file.path}; processes read it again",
        )


# -- Postgres


def _postgres(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.fault is not None:
        named = _COMMAND.search(facts.fault)
        yield _error(
            "postgres-unavailable", f"{facts.fault}.", named[1] if named else 'psql "$CONFPLANE_POSTGRES__DSN"'
        )
        return
    for text in facts.warnings:
        yield _of_readyz("postgres", text)
    if facts.version < _OLDEST_POSTGRES:
        yield _warning(
            "postgres-old",
            f"Postgres {facts.version // 10_000} is not maintained any more.",
            "pg_upgrade to a later release",
        )
    yield from _durability(facts)
    for slot in facts.inactive_slots:
        yield _warning(
            "slot-inactive",
            f"Nobody reads the replication slot {slot}: Postgres keeps all WAL for it until the disk is full.",
            f"SELECT pg_drop_replication_slot('{slot}'), or start its standby",
        )
    yield from _tokens(facts)
    if abs(facts.clock_ahead_s) > _CLOCK_S:
        yield _warning(
            "clock",
            f"The clock of Postgres differs from that of this machine by {abs(facts.clock_ahead_s):.0f} s.",
            "set the clocks of the machines, by NTP",
        )


def _durability(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.standby:
        yield _error(
            "postgres-standby", "Postgres is a standby: nothing can be written.", "postgres.dsn: the primary server"
        )
    for name, is_on in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if not is_on:
            yield _error(
                "postgres-not-durable",
                f"{name} is off: a crash of the machine may destroy the trail.",
                f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()",
            )
    if facts.wal_level == "minimal":
        yield _warning(
            "wal-minimal",
            "wal_level is minimal: neither standbys nor base backups are possible.",
            "ALTER SYSTEM SET wal_level = replica, and restart Postgres",
        )


def _tokens(facts: PostgresFacts) -> Iterator[Finding]:
    for token in facts.expiring_tokens[:_NAMED]:
        yield _warning(
            "token-expiring",
            f"The token {token}, which is in use, expires within {EXPIRING_DAYS} days.",
            f"confplane tokens rotate {token}",
        )
    if len(facts.expiring_tokens) > _NAMED:
        more = len(facts.expiring_tokens) - _NAMED
        yield _warning("token-expiring", f"{more} more tokens in use expire soon.", "confplane tokens list")
    if facts.tokens_rejected:
        yield _error(
            "tokens-rejected",
            "API tokens are rejected, because Postgres was restored: tokens that were revoked since may be back.",
            "confplane tokens confirm --reason TEXT",
        )


# -- clusters


def _cluster(facts: Facts, cluster: ClusterFacts) -> Iterator[Finding]:
    name, choices = cluster.name, facts.settings.clusters.get(cluster.name)
    if cluster.fault is not None:
        yield _error("zookeeper-unavailable", f"{cluster.fault}.", "echo srvr | nc ZOOKEEPER 2181", name)
    else:
        yield from _store(cluster, 0 if choices is None else choices.notifications_max)
    trail = facts.postgres.trails.get(name)
    if facts.postgres.fault is None and trail is not None:
        yield from _trail(name, trail, facts.settings, processes=cluster.processes)
    if cluster.target is not None and choices is not None and not choices.follows_kafka:
        yield _error(
            "kafka-not-set",
            "The cluster follows a Kafka cluster, and the settings name none of its brokers.",
            f"CONFPLANE_CLUSTERS__{name.upper()}__KAFKA__BOOTSTRAP",
            name,
        )
    if cluster.target is not None and cluster.target.paused:
        yield _warning(
            "kafka-paused",
            "The Kafka cluster is not followed, and nothing is applied to it: it is paused.",
            f"confplane target resume --cluster {name} --reason TEXT",
            name,
        )
    if cluster.kafka is not None:
        yield from _kafka(cluster, cluster.kafka)


def _store(cluster: ClusterFacts, limit: int) -> Iterator[Finding]:
    name = cluster.name
    if cluster.restored is not None:
        yield _error(
            "store-restored",
            f"ZooKeeper was restored, or another one answers: {cluster.restored}. Writes are refused.",
            f"confplane adopt-store --cluster {name} --reason TEXT",
            name,
        )
    if cluster.lost_changes is not None:
        yield _error("postgres-restored", cluster.lost_changes, "confplane tokens confirm --reason TEXT", name)
    for text in cluster.warnings:
        yield _of_readyz("zookeeper", text, name)
    if not cluster.processes:
        yield _warning("no-process", "No process of the service has a session with ZooKeeper.", "confplane serve", name)
    if cluster.frozen is not None:
        yield _warning(
            "frozen", f"Writes are frozen: {cluster.frozen}", f"confplane thaw --cluster {name} --reason TEXT", name
        )
    if cluster.old_markers:
        yield _warning(
            "markers-old",
            f"{cluster.old_markers} markers of changes are more than ten minutes old: no process drops them, or"
            " Postgres does not know their changes.",
            "confplane serve; if they stay, delete them below /confplane/commits",
            name,
        )
    if cluster.stray_markers:
        yield _warning(
            "markers-stray",
            f"{cluster.stray_markers} nodes below /confplane/commits are not markers.",
            "zkCli.sh deleteall /confplane/commits/NODE",
            name,
        )
    if limit and cluster.notifications > _NEARLY * limit:
        yield _warning(
            "notifications",
            f"There are {cluster.notifications} notifications: above {limit} writes are refused.",
            "slow down bulk writers, or raise notifications_max",
            name,
        )


def _trail(name: str, trail: TrailFacts, settings: SettingsFacts, *, processes: int) -> Iterator[Finding]:
    if trail.open_changes:
        yield _error(
            "changes-open",
            f"{trail.open_changes} changes have had no outcome for {OPEN_S} s.",
            "confplane serve; if processes run, /readyz of the leader has the reason",
            name,
        )
    if processes and trail.recorded_age_s is not None and trail.recorded_age_s > _RECORDED_S:
        yield _error(
            "recorder-behind",
            f"External changes have not been recorded for {trail.recorded_age_s:.0f} s.",
            "the log of the leader has the reason",
            name,
        )
    if trail.overdue:
        yield _warning(
            "schedules-overdue",
            f"{trail.overdue} temporary changes have not ended in time.",
            f"confplane schedules list --cluster {name}",
            name,
        )
    if trail.paused_s is not None and trail.paused_s > _PAUSED_S:
        yield _warning(
            "schedules-paused",
            "The ends of temporary changes have been paused for more than a day.",
            f"confplane schedules resume --cluster {name}",
            name,
        )
    for webhook in trail.parked_webhooks[:_NAMED]:
        yield _warning(
            "webhook-parked",
            f"The webhook {webhook} is parked: it delivers nothing.",
            f"confplane webhooks resume {webhook} --cluster {name}",
            name,
        )
    if trail.webhooks and not settings.webhooks_key:
        yield _error(
            "webhooks-off",
            f"There are {trail.webhooks} webhooks, and webhooks.key_file is not set: they deliver nothing.",
            "CONFPLANE_WEBHOOKS__KEY_FILE",
            name,
        )
    yield from _rollups(name, trail)


def _rollups(name: str, trail: TrailFacts) -> Iterator[Finding]:
    for job in trail.failed_rollups:
        yield _warning(
            "rollup-failed",
            f"The last run of the rollup {job} failed.",
            f"confplane rollups run {job} --cluster {name}",
            name,
        )
    if trail.integrity_age_s is not None and trail.integrity_age_s > _INTEGRITY_S:
        yield _warning(
            "integrity-old",
            "The rollup integrity has not been complete for two days.",
            f"confplane rollups run integrity --cluster {name}",
            name,
        )
    if trail.refused:
        yield _error(
            "changes-refused",
            f"The Kafka cluster refused changes of {trail.refused} entities that are committed here.",
            f"confplane drift list --cluster {name}",
            name,
        )


def _kafka(cluster: ClusterFacts, kafka: KafkaFacts) -> Iterator[Finding]:
    name, check = cluster.name, f"confplane target check --cluster {cluster.name}"
    if kafka.fault is not None:
        yield _error("kafka-unavailable", f"{kafka.fault}.", check, name)
        return
    for entity_type, (permission, reason) in kafka.permissions.items():
        applies = cluster.target is not None and cluster.target.applies_to(entity_type)
        if permission is EntityTypePermission.NONE:
            text = f"Configs of {entity_type.value} can't be followed: {reason}."
        elif permission is EntityTypePermission.READ_ONLY and applies:
            text = f"Changes of {entity_type.value} can't be applied: {reason}."
        else:
            continue
        right = "DescribeConfigs" if permission is EntityTypePermission.NONE else "AlterConfigs"
        yield _error(
            "kafka-right",
            text,
            f"kafka-acls.sh --bootstrap-server BROKER --add --allow-principal PRINCIPAL --operation {right} --cluster",
            name,
        )
    if kafka.barrier is not None:
        yield _warning(
            "kafka-barrier",
            f"Strong reads wait a second, because there is no barrier: {kafka.barrier}.",
            "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal PRINCIPAL --operation Describe --cluster",
            name,
        )
    if kafka.metadata_log is not None:
        yield _warning("kafka-log", f"The metadata log can't be followed: {kafka.metadata_log}.", check, name)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if there is an error, 2 if there are only warnings, and otherwise 0."""
    severities = {finding.severity for finding in findings}
    return 1 if Severity.ERROR in severities else 2 if severities else 0
