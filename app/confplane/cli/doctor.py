"""The work of ``confplane doctor``: the facts of an installation, and the findings that follow from them."""

from __future__ import annotations

import io
import json
import platform
import stat
import time
import zipfile
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from confplane import __version__
from confplane.audit import Database, PostgresStorePositions
from confplane.audit.checks import postgres_facts
from confplane.cli import archive_files, callers
from confplane.cli.output import is_json, print_json, print_table, say
from confplane.cli.target import open_kafka
from confplane.crypto.certificates import days_until_expiry
from confplane.domain.errors import ConfplaneError, CorruptZnodeError, UnavailableError
from confplane.kraft_wiring import max_ages_of
from confplane.services.doctor.diagnosis import diagnose, exit_code
from confplane.services.kraft import warnings
from confplane.services.ports.doctor_facts import (
    ClusterChoices,
    ClusterFacts,
    Facts,
    FileFacts,
    KafkaFacts,
    SettingsFacts,
)
from confplane.services.ports.kafka import EntityTypePermission
from confplane.services.ports.observation_report import ListedNames, parse
from confplane.services.upkeep.incarnation import lost_changes, restored
from confplane.settings import UnusableSettingsError
from confplane.wiring import build, wait_until_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confplane.connection_settings import KafkaSettings
    from confplane.services.doctor.findings import Finding
    from confplane.services.ports.incarnation import StorePositions
    from confplane.settings import Settings
    from confplane.store import ZooKeeperStore


_CLUSTER_S: Final = 20.0
_OLD_MARKER_MS: Final = 600_000


@callers.command("Not checked")
async def doctor(settings: Settings, bundle: Path | None) -> int:
    """Print the findings, write the bundle, and return the exit code."""
    facts = await _facts(settings)
    findings = diagnose(facts)
    if is_json():
        print_json({"findings": [each.as_json() for each in findings]})
    else:
        _show(findings)
    if bundle is not None:
        with archive_files.written(str(bundle), None) as file:
            file.write(_bundle(settings, facts, findings))
        say(f"{bundle}: findings, facts, settings and versions, without secrets", err=True)
    return exit_code(findings)


def _show(findings: list[Finding]) -> None:
    if not findings:
        say("No findings")
        return
    rows = [(each.severity.value, each.cluster or "", each.text, each.command) for each in findings]
    print_table(("SEVERITY", "CLUSTER", "RESULT", "REMEDY"), rows)


async def _facts(settings: Settings) -> Facts:
    given = settings_facts(settings, datetime.now(UTC))
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=2)
    try:
        postgres = await postgres_facts(database, list(settings.clusters))
    finally:
        await database.close()
    # One after another, so that memory has one copy of the configs.
    clusters = [] if given.problems else [await _cluster(settings, name) for name in settings.clusters]
    return Facts(given, postgres, clusters)


async def _cluster(settings: Settings, name: str) -> ClusterFacts:
    # Only the store is started: the other parts of a process write.
    parts = build(settings, [name])
    store = parts.stores[name]
    store.start(purges=False)
    try:
        await wait_until_loaded(store, _CLUSTER_S)
        deadline = time.monotonic() + _CLUSTER_S
        facts = await _store(store, PostgresStorePositions(parts.database), settings.clusters[name].kafka, deadline)
    except ConfplaneError as error:
        return ClusterFacts(name, fault=error.detail.rstrip("."))
    finally:
        await store.stop()
        await parts.database.close()
    if settings.clusters[name].kafka is None:
        return facts
    return replace(facts, kafka=await _kafka(settings, name))


async def _store(
    store: ZooKeeperStore, positions: StorePositions, kafka: KafkaSettings | None, deadline: float
) -> ClusterFacts:
    reason = lost = None
    with suppress(CorruptZnodeError, UnavailableError):  # Postgres is unavailable, which is a finding of its own
        reason, lost = await _restored(store, positions, deadline)
    await store.inspection.read_notifications(deadline)
    status = store.status()
    change_ids, strays = await store.markers.found(deadline)
    now_ms = time.time() * 1000
    processes = len(await store.markers.writers(deadline)) - 1
    return ClusterFacts(
        store.name,
        warnings=[str(each) for each in status.warnings],
        restored=reason,
        lost_changes=lost,
        processes=processes,
        frozen=None if status.frozen is None else str(status.frozen),
        # A change id begins with a time in milliseconds.
        old_markers=sum(now_ms - (each.int >> 80) > _OLD_MARKER_MS for each in change_ids),
        stray_markers=len(strays),
        notifications=status.notifications,
        brokers_registered=status.brokers_registered,
        missing_rights=await store.inspection.missing_rights(deadline),
        is_old=store.inspection.is_old,
        target=store.target(),
        reported=_reported(store, kafka) if processes else (),
    )


def _reported(store: ZooKeeperStore, kafka: KafkaSettings | None) -> list[str]:
    """Return the warnings of the leader's report. Without a process the report is old."""
    target, report = store.target(), parse(store.observation())
    if kafka is None or target is None or target.paused:
        return []
    if report is not None:
        # These are findings of their own: the log and the rights are tried, and refused changes are in Postgres.
        readable = {
            kind: each for kind, each in report.areas.items() if each.permission is not EntityTypePermission.NONE
        }
        applying = None if report.applying is None else replace(report.applying, refused=ListedNames())
        report = replace(report, log_problem="", areas=readable, applying=applying)
    return [str(each) for each in warnings.list_warnings(store.name, target, report, max_ages_of(kafka))]


async def _restored(store: ZooKeeperStore, positions: StorePositions, deadline: float) -> tuple[str | None, str | None]:
    """Return why ZooKeeper is taken for a restored one, and the warning that Postgres was restored."""
    trail = await positions.read(store.name)
    found = await store.read_position(deadline)
    reason, incarnation = restored(trail, found), found.incarnation
    if reason is not None or incarnation is None or (newest := incarnation.newest_change) is None:
        return reason, None
    if await positions.has(store.name, newest) or await positions.confirmed(newest):
        return None, None
    return None, str(lost_changes(store.name, incarnation))


async def _kafka(settings: Settings, name: str) -> KafkaFacts:
    try:
        async with open_kafka(settings, name) as found:
            deadline = time.monotonic() + _CLUSTER_S
            identity = await found.identity(deadline)
            permissions = await found.permissions(deadline, alters=True)
            barrier = await found.unproven(deadline)
            kafka = settings.clusters[name].kafka
            log = await found.unfollowed(deadline) if kafka is not None and kafka.controllers else None
    except ConfplaneError as error:
        return KafkaFacts(fault=error.detail.rstrip("."))
    granted = {kind: (each.permission, each.reason) for kind, each in permissions.items()}
    return KafkaFacts(None, identity.cluster_id, granted, barrier, log)


def _bundle(settings: Settings, facts: Facts, findings: list[Finding]) -> bytes:
    """Return a zip file. Settings have secrets as ``SecretStr``, whose JSON is masked, and otherwise name files."""
    versions = {each.metadata["Name"]: each.version for each in distributions()}
    content = {
        "findings.json": [each.as_json() for each in findings],
        "facts.json": asdict(facts),
        "settings.json": settings.model_dump(mode="json"),
        "versions.json": {
            "confplane": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": dict(sorted(versions.items())),
        },
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, value in content.items():
            bundle.writestr(name, json.dumps(value, indent=1, default=str))
    return file.getvalue()


def settings_facts(settings: Settings, now: datetime) -> SettingsFacts:
    """Return the facts about settings and the files that they name."""
    problems: list[str] = []
    for name in settings.clusters:
        try:
            build(settings, [name])
        except UnusableSettingsError as error:
            problems += error.problems
    return SettingsFacts(
        problems,
        settings.postgres.pool_size,
        settings.http.drain_ms,
        settings.limits.enabled,
        settings.webhooks.key_file is not None,
        settings.webhooks.insecure_http,
        {
            name: ClusterChoices(
                cluster.zookeeper,
                cluster.session_timeout_ms,
                cluster.notifications_max,
                cluster.record_external_changes,
                cluster.kafka is not None,
            )
            for name, cluster in settings.clusters.items()
        },
        [_file(setting, path, now) for setting, path in _files(settings)],
    )


def _files(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield each setting whose value is the path of a file, with its path."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        setting = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _files(value, f"{setting}.")
        elif isinstance(value, dict):
            for key, each in value.items():
                if isinstance(each, BaseModel):
                    yield from _files(each, f"{setting}.{key}.")
        elif name.endswith("_file") and value is not None:
            yield setting, value


def _file(setting: str, path: Path, now: datetime) -> FileFacts:
    try:
        mode = path.stat().st_mode
        days = days_until_expiry(path, now)
    except OSError as error:
        return FileFacts(setting, str(path), problem=error.strerror)
    return FileFacts(setting, str(path), None, bool(mode & (stat.S_IWGRP | stat.S_IWOTH)), days)
