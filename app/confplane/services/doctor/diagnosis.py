"""The decision from facts to findings. Pure: each check is a condition, a sentence and a command."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from confplane.services.doctor.clusters import check_cluster, check_targets
from confplane.services.doctor.findings import COMMAND, Finding, Severity, error, of_readyz, warning
from confplane.services.ports.doctor_facts import EXPIRING_DAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confplane.services.ports.doctor_facts import Facts, FileFacts, PostgresFacts, SettingsFacts

_CERTIFICATE_DAYS: Final = 30
_CLOCK_S: Final = 60.0
_OLDEST_POSTGRES: Final = 140_000
_POOL: Final = 7
_LONGEST_SESSION_MS: Final = 45_000
_NAMED: Final = 5


def diagnose(facts: Facts) -> list[Finding]:
    """Return the findings, errors first."""
    found = list(
        chain(
            _settings(facts.settings),
            _postgres(facts.postgres),
            *(check_cluster(facts, cluster) for cluster in facts.clusters),
            check_targets(facts.clusters),
        )
    )
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


# -- settings


def _settings(settings: SettingsFacts) -> Iterator[Finding]:
    for problem in settings.problems:
        yield error("settings-unusable", problem, "correct the setting, and start the processes again")
    if settings.pool_size < _POOL:
        yield warning(
            "pool-small",
            f"postgres.pool_size is {settings.pool_size}: with fewer than {_POOL} connections searches delay writes.",
            f"CONFPLANE_POSTGRES__POOL_SIZE={_POOL + 1}",
        )
    if not settings.drain_ms:
        yield warning(
            "no-drain",
            "http.drain_ms is 0: a restart refuses requests, because balancers do not learn of it in time.",
            "CONFPLANE_HTTP__DRAIN_MS=2000",
        )
    if not settings.limits_enabled:
        yield warning(
            "no-limits",
            "limits.enabled is false: one caller can use up the service.",
            "CONFPLANE_LIMITS__ENABLED=true",
        )
    if settings.insecure_webhooks:
        yield warning(
            "insecure-webhooks",
            "webhooks.insecure_http is true, which is for trials alone.",
            "CONFPLANE_WEBHOOKS__INSECURE_HTTP=false",
        )
    for file in settings.files:
        yield from _file(file)
    yield from _choices(settings)
    shared: defaultdict[str, list[str]] = defaultdict(list)
    for name, choices in settings.clusters.items():
        servers, slash, chroot = choices.zookeeper.partition("/")
        shared[",".join(sorted(servers.split(","))) + slash + chroot].append(name)
    for connect, names in shared.items():
        if len(names) > 1:
            yield error(
                "chroot-shared",
                f"The clusters {', '.join(names)} have the same ZooKeeper and chroot, {connect}.",
                "give each cluster the chroot of its brokers, or remove one of them from the settings",
            )


def _choices(settings: SettingsFacts) -> Iterator[Finding]:
    for name, choices in settings.clusters.items():
        if choices.session_timeout_ms > _LONGEST_SESSION_MS:
            yield warning(
                "session-long",
                f"session_timeout_ms is {choices.session_timeout_ms}, and at most {_LONGEST_SESSION_MS} are requested.",
                f"session_timeout_ms: {_LONGEST_SESSION_MS}",
                name,
            )
        if not choices.record_external_changes:
            yield warning(
                "not-recorded",
                "record_external_changes is false: the trail lacks the changes of other tools, and `?at=` is not"
                " available.",
                "record_external_changes: true",
                name,
            )


def _file(file: FileFacts) -> Iterator[Finding]:
    if file.problem is not None:
        yield error(
            "file-unreadable", f"{file.setting}: {file.path} can't be read: {file.problem}", f"ls -l {file.path}"
        )
    if file.writable_by_others:
        yield error(
            "file-writable",
            f"{file.setting}: other users of the machine can change {file.path}.",
            f"chmod go-w {file.path}",
        )
    days = file.expires_in_days
    if days is not None and days < _CERTIFICATE_DAYS:
        state = f"expires in {days:.0f} days" if days > 0 else "has expired"
        kind = warning if days > 0 else error
        yield kind(
            "certificate-expiring",
            f"{file.setting}: a certificate in {file.path} {state}.",
            f"replace {file.path}; processes read it again",
        )


# -- Postgres


def _postgres(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.fault is not None:
        named = COMMAND.search(facts.fault)
        yield error("postgres-unavailable", f"{facts.fault}.", named[1] if named else 'psql "$CONFPLANE_POSTGRES__DSN"')
        return
    for text in facts.warnings:
        yield of_readyz("postgres", text)
    if facts.version < _OLDEST_POSTGRES:
        yield warning(
            "postgres-old",
            f"Postgres {facts.version // 10_000} is not maintained any more.",
            "pg_upgrade to a later release",
        )
    yield from _durability(facts)
    for slot in facts.inactive_slots:
        yield warning(
            "slot-inactive",
            f"Nobody reads the replication slot {slot}: Postgres keeps all WAL for it until the disk is full.",
            f"SELECT pg_drop_replication_slot('{slot}'), or start its standby",
        )
    yield from _tokens(facts)
    if abs(facts.clock_ahead_s) > _CLOCK_S:
        yield warning(
            "clock",
            f"The clock of Postgres differs from that of this machine by {abs(facts.clock_ahead_s):.0f} s.",
            "set the clocks of the machines, by NTP",
        )


def _durability(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.standby:
        yield error(
            "postgres-standby", "Postgres is a standby: nothing can be written.", "postgres.dsn: the primary server"
        )
    for name, is_on in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if not is_on:
            yield error(
                "postgres-not-durable",
                f"{name} is off: a crash of the machine may destroy the trail.",
                f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()",
            )
    if facts.wal_level == "minimal":
        yield warning(
            "wal-minimal",
            "wal_level is minimal: neither standbys nor base backups are possible.",
            "ALTER SYSTEM SET wal_level = replica, and restart Postgres",
        )


def _tokens(facts: PostgresFacts) -> Iterator[Finding]:
    for token in facts.expiring_tokens[:_NAMED]:
        yield warning(
            "token-expiring",
            f"The token {token}, which is in use, expires within {EXPIRING_DAYS} days.",
            f"confplane tokens rotate {token}",
        )
    if len(facts.expiring_tokens) > _NAMED:
        more = len(facts.expiring_tokens) - _NAMED
        yield warning("token-expiring", f"{more} more tokens in use expire soon.", "confplane tokens list")
    if facts.tokens_rejected:
        yield error(
            "tokens-rejected",
            "API tokens are rejected, because Postgres was restored: tokens that were revoked since may be back.",
            "confplane tokens confirm --reason TEXT",
        )


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if there is an error, 2 if there are only warnings, and otherwise 0."""
    severities = {finding.severity for finding in findings}
    return 1 if Severity.ERROR in severities else 2 if severities else 0
