"""The work of ``confplane target``: the target of a cluster, its status, imports and checks."""

from __future__ import annotations

import json
import time
from collections import ChainMap
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confplane.audit import Database, PostgresObservedTopics
from confplane.cli import callers
from confplane.cli.callers import counted
from confplane.cli.output import bars, emit, is_json, say
from confplane.domain.errors import ConfplaneError, InvalidRequestError, UnavailableError
from confplane.domain.releases import newest
from confplane.gc_tuning import tune_gc_for_batch
from confplane.kraft.cluster import KraftCluster
from confplane.kraft_wiring import max_ages_of, rules_of
from confplane.services.kraft import warnings
from confplane.services.kraft.target_service import TargetService
from confplane.services.ports.cluster_states import Target, TargetMode
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType
from confplane.services.ports.observation_report import parse
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from confplane.kraft_wiring import KraftWiring
    from confplane.services.changes.callers import Caller
    from confplane.services.kraft.importer import EntityTypeSurvey, ImportSurvey
    from confplane.services.ports.kafka import GrantedPermission
    from confplane.services.ports.observation_report import (
        ApplyReport,
        EntityTypeReport,
        ListedNames,
        ObservationReport,
    )
    from confplane.services.ports.observed_topics import TopicPoll
    from confplane.settings import Settings
    from confplane.store import ZooKeeperStore


@asynccontextmanager
async def open_kraft_wiring(settings: Settings, cluster: str) -> AsyncIterator[tuple[KraftWiring, ZooKeeperStore]]:
    """Open a cluster and everything that observes its Kafka cluster.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        ConfplaneError: As :func:`confplane.wiring.open_cluster`.
    """
    async with open_cluster(settings, cluster) as parts:
        found = parts.kraft_wirings.get(cluster)
        if found is None:
            raise _no_brokers(cluster)
        yield found, parts.stores[cluster]


@asynccontextmanager
async def open_kafka(settings: Settings, cluster: str) -> AsyncIterator[KraftCluster]:
    """Open only the Kafka cluster of the settings, without ZooKeeper, Postgres or a target.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        NotFoundError: The settings have no such cluster.
        UnusableSettingsError: A file of the settings can't be used.
    """
    of_cluster = settings.cluster(cluster)
    if of_cluster.kafka is None:
        raise _no_brokers(cluster)
    catalog = of_cluster.catalogs().of(newest())
    found = KraftCluster(f"clusters.{cluster}.kafka", of_cluster.kafka, rules_of(lambda: catalog), lambda: None)
    try:
        yield found
    finally:
        await found.close()


def _no_brokers(cluster: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The settings name no brokers of a Kafka cluster: set clusters.{cluster}.kafka.bootstrap (docs/kafka4.md)"
    )


_CHANGED: Final = {
    "adopt": "Cluster {name} accepts changes of {what} and applies them to the Kafka cluster {id}. `confplane target"
    " observe` ends this",
    "enforce": "Cluster {name} accepts changes of {what}, applies them to the Kafka cluster {id}, and reverts external"
    " changes. `confplane target adopt` or `observe` ends this",
    "observe": "Cluster {name} accepts no changes of {what}: it follows the Kafka cluster {id}",
    "pause": "Cluster {name} no longer follows the Kafka cluster {id}: its copy is not updated. `confplane target"
    " resume` ends this",
    "resume": "Cluster {name} follows the Kafka cluster {id}",
}
"""The result of each command that changes the target, in words."""


@callers.command("Not done")
async def change(
    settings: Settings, cluster: str, reason: str, action: str, types: Sequence[KraftEntityType] = ()
) -> int:
    """Change the target of a cluster, print the result, and return the exit code.

    Args:
        settings: The settings of the service.
        cluster: The cluster's name.
        reason: The reason, for the trail.
        action: The name of the command.
        types: The entity types of a change of the mode; empty for all.
    """
    async with open_cluster(settings, cluster) as parts:
        service = TargetService(parts.runner, parts.stores[cluster], parts.target_states)
        changes: dict[str, Callable[[Caller], Awaitable[Target]]] = {
            **{each.value: partial(service.set_mode, each, entity_types=types) for each in TargetMode},
            "pause": service.pause,
            "resume": service.resume,
        }
        target = await changes[action](callers.caller(reason))
    emit(cluster=cluster, target=_target_view(target))
    say(_CHANGED[action].format(name=cluster, id=target.cluster_id, what=", ".join(types) or "quotas and configs"))
    return callers.DONE


def _target_view(target: Target) -> dict[str, Any]:
    return {
        "clusterId": target.cluster_id,
        "imported": target.imported,
        "paused": target.paused,
        "applies": target.applies,
        "text": str(target),
    }


@callers.command("Not shown")
async def status(settings: Settings, cluster: str) -> int:
    """Print the target and the leader's report, and return the exit code."""
    async with open_cluster(settings, cluster) as parts:
        store = parts.stores[cluster]
        target = (await store.read_state(Target, callers.caller(None).deadline)).value
        observation = store.observation()
        report = parse(observation)
    kafka = settings.clusters[cluster].kafka
    max_ages = {} if kafka is None else max_ages_of(kafka)
    found = [str(each) for each in warnings.list_warnings(cluster, target, report, max_ages)]
    if is_json():
        stored = None if target is None else _target_view(target)
        seen = None if report is None or observation is None else json.loads(observation)
        emit(cluster=cluster, target=stored, report=seen, warnings=found)
        return callers.DONE
    if target is None:
        say(f"Cluster {cluster} has no target: its brokers read ZooKeeper")
        return callers.DONE
    say(f"Cluster {cluster}: {target}")
    if report is not None:
        _show_report(report)
    for warning in found:
        say(warning, err=True)
    return callers.DONE


def _show_report(report: ObservationReport) -> None:
    brokers = ", ".join(map(str, report.brokers)) or "none"
    say(
        f"Release {report.release or 'unknown'} (metadata.version {report.metadata_version or 'unknown'}), brokers"
        f" {brokers}; reported {_ago(report.at)}"
    )
    if report.followed_offset is not None:
        read = "" if report.log_at is None else f", read {_ago(report.log_at)}"
        say(f"The metadata log is followed up to offset {report.followed_offset}{read}")
    for entity_type, each in report.areas.items():
        say(_status_line(entity_type, each))
    if report.applying is not None:
        _show_applying(report.applying)
    for what, lists in (
        ("not storable in ZooKeeper", {entity_type: each.unmanaged for entity_type, each in report.areas.items()}),
        ("not followed", {entity_type: each.hidden for entity_type, each in report.areas.items()}),
        ("not permitted", {entity_type: each.denied for entity_type, each in report.areas.items()}),
        ("set and not used", {entity_type: each.ineffective for entity_type, each in report.areas.items()}),
    ):
        for entity_type, names in lists.items():
            _show_names(entity_type, what, names)


def _status_line(entity_type: KraftEntityType, report: EntityTypeReport) -> str:
    if report.permission is EntityTypePermission.NONE:
        return f"  {entity_type:<16}not permitted: {report.reason}"
    if report.observed_at is None:
        return f"  {entity_type:<16}not read yet"
    entities = counted(report.entities)
    line = f"  {entity_type:<16}read {_ago(report.observed_at)}, {entities}"
    return f"{line}; {report.problem}" if report.problem else line


def _show_applying(applying: ApplyReport) -> None:
    if not applying.pending:
        say("Changes: none are waiting to be applied")
    else:
        waits = counted(applying.pending)
        say(f"Changes: {waits} waiting to be applied, for {applying.waiting_ms / 1000:.1f} s")
    if applying.problem:
        say(f"Not applied now: {applying.problem}")
    _show_names("changes", "refused by the Kafka cluster", applying.refused)
    _show_names("changes", "sent without a response, and sent again", applying.unknown)
    _show_names("changes", "waiting alone", applying.held)
    _show_names("keys", "contested: they are changed externally again and again", applying.contested)
    _show_names("keys", "extra: they were only set outside Confplane", applying.extra)


def _show_names(entity_type: str, what: str, names: ListedNames) -> None:
    if not names.count:
        return
    say(f"{entity_type}, {what}: {names.count}")
    for name, reason in names.first:
        say(f"  {name}: {reason}")
    if names.count > len(names.first):
        say(f"  and {names.count - len(names.first)} more")


def _ago(at_ms: int) -> str:
    return f"{max(0.0, time.time() - at_ms / 1000):.0f} s ago"


_SURVEY_S: Final = 600.0
_SHOWN: Final = 20
"""Maximum number of names of each kind that are printed."""


def import_(settings: Settings, cluster: str, *, apply: bool) -> int:
    """Show the work of an import, import if ``apply``, and return the exit code."""
    tune_gc_for_batch()
    return callers.run(_import(settings, cluster, apply=apply), "Not imported", resumable=apply)


async def _import(settings: Settings, cluster: str, *, apply: bool) -> int:
    async with open_kraft_wiring(settings, cluster) as (found, _):
        survey = await found.importer.survey(time.monotonic() + _SURVEY_S)
        _show_survey(cluster, survey)
        counts = {
            kind.value: {"entities": each.totals.entities, "differing": each.differing, "reason": each.reason}
            for kind, each in survey.entity_types.items()
        }
        emit(clusterId=survey.identity.cluster_id, entityTypes=counts, blockers=[str(b) for b in survey.blockers])
        if survey.blockers:
            for blocker in survey.blockers:
                say(f"Not imported: {blocker}", err=True)
            return callers.FAILED
        if survey.target is not None and survey.target.imported and not _differing(survey):
            say("Nothing to do: everything was imported, and the leader follows the cluster")
            return callers.DONE
        if not apply:
            say(
                f"{counted(_differing(survey))} would be written to ZooKeeper. Nothing was written; --apply"
                " writes. Nothing is ever written to the Kafka cluster"
            )
            return callers.DONE
        return await _apply(cluster, found, survey)


async def _apply(cluster: str, parts: KraftWiring, survey: ImportSurvey) -> int:
    reason, importer = "confplane target import", parts.importer
    await parts.target.begin(survey.identity.cluster_id, callers.caller(reason))
    written = 0
    with bars() as bar:
        tasks = {entity_type: bar.add_task(entity_type, total=None, visible=False) for entity_type in KraftEntityType}
        async for progress in importer.run():
            bar.update(tasks[progress.entity_type], completed=progress.done, total=progress.total, visible=True)
            written = progress.written
    await importer.end(survey.identity, callers.caller(reason))
    emit(written=written, refused=dict(importer.refused))
    _show_reasons("ZooKeeper can't hold", importer.refused)
    say(
        f"{counted(written)} written. Cluster {cluster} follows the Kafka cluster {survey.identity.cluster_id} from"
        " now on, in the service. Nothing was written to the Kafka cluster"
    )
    return callers.DONE


def _show_survey(cluster: str, survey: ImportSurvey) -> None:
    identity = survey.identity
    say(
        f"Kafka cluster {identity.cluster_id}, release {identity.release}, brokers"
        f" {', '.join(map(str, identity.brokers))}"
    )
    if survey.target is not None:
        say(f"Target of {cluster}: {survey.target}")
    for entity_type, each in survey.entity_types.items():
        say(_survey_line(entity_type, each))
    totals = [each.totals for each in survey.entity_types.values()]
    for what, names in (
        ("not storable in ZooKeeper", [each.unmanaged for each in totals]),
        ("not followed", [each.hidden for each in totals]),
        ("not permitted", [each.denied for each in totals]),
    ):
        _show_reasons(what, dict(ChainMap(*names)))


def _survey_line(entity_type: KraftEntityType, survey: EntityTypeSurvey) -> str:
    if survey.permission is EntityTypePermission.NONE:
        return f"  {entity_type:<16}not permitted, left out: {survey.reason}"
    return f"  {entity_type:<16}{counted(survey.totals.entities)} with configs, {survey.differing} to be written"


def _show_reasons(what: str, names: Mapping[str, str]) -> None:
    if names:
        say(f"{len(names)} {what}:")
        for name, reason in sorted(names.items())[:_SHOWN]:
            say(f"  {name}: {reason}")
        if len(names) > _SHOWN:
            say(f"  and {len(names) - _SHOWN} more")


def _differing(survey: ImportSurvey) -> int:
    return sum(each.differing for each in survey.entity_types.values())


_DEADLINE_S: Final = 120.0
_TARGET_S: Final = 10.0
"""Seconds to read the target from ZooKeeper."""


@callers.command("Not checked")
async def check(settings: Settings, cluster: str) -> int:
    """Try each describe and each alter, print the results, and return the exit code."""
    async with open_kafka(settings, cluster) as found:
        deadline = time.monotonic() + _DEADLINE_S
        identity = await found.identity(deadline)
        permissions = await found.permissions(deadline, alters=True)
        unproven = await found.unproven(deadline)
        kafka_settings = settings.clusters[cluster].kafka
        logged = kafka_settings is not None and bool(kafka_settings.controllers)
        unfollowed = await found.unfollowed(deadline) if logged else None
    topics, unknown = await _observed_topics(settings, cluster)
    target, target_line = await _stored_target(settings, cluster)
    other = target is not None and target.cluster_id != identity.cluster_id
    now = datetime.now(UTC)
    emit(
        clusterId=identity.cluster_id,
        release=str(identity.release),
        brokers=list(identity.brokers),
        permissions={
            kind.value: {
                "permission": each.permission.value,
                "reason": each.reason,
                "described": each.described,
                "listed": each.listed,
            }
            for kind, each in permissions.items()
        },
        barrier=unproven is None,
        metadataLog=logged and unfollowed is None,
        topics=None if topics is None else topics.as_json(now),
        target=None if target is None else target.cluster_id,
    )
    brokers = ", ".join(map(str, identity.brokers))
    say(
        f"Kafka cluster {identity.cluster_id}, release {identity.release} (metadata.version"
        f" {identity.metadata_version}), brokers {brokers}"
    )
    for entity_type, each in permissions.items():
        say(_permission_line(entity_type, each))
    if unproven is None:
        say("  barrier         yes: a read with consistency=strong includes every acknowledged change")
    else:
        say(
            f"  barrier         no: {unproven}; needed: DESCRIBE on CLUSTER. Without it a strong read waits a second,"
            " until the broker has heard of changes twice"
        )
    if logged:
        say(
            "  metadata log    "
            + ("yes: every write is in the trail" if unfollowed is None else f"no: {unfollowed}. Polls work without it")
        )
    say(f"  target          {target_line}")
    say(f"  topic table     {unknown if topics is None else _topics_line(topics, now)}")
    unaltered = [
        entity_type for entity_type, each in permissions.items() if each.permission is not EntityTypePermission.FULL
    ]
    if unaltered:
        say(f"In the modes adopt and enforce, changes would wait: {', '.join(unaltered)}")
    missing = [
        entity_type.value
        if each.permission is EntityTypePermission.NONE
        else f"{each.listed - each.described} of {each.listed} {entity_type}"
        for entity_type, each in permissions.items()
        if each.permission is EntityTypePermission.NONE or each.described < each.listed
    ]
    if target is not None and other:
        say(
            f"The brokers in `clusters.{cluster}.kafka` belong to the cluster {identity.cluster_id}, and"
            f" {target.cluster_id} is followed. Nothing is followed from these brokers. Nothing was written",
            err=True,
        )
        return callers.FAILED
    if not missing:
        say("Everything can be followed. Nothing was written")
        return callers.DONE
    say(f"Can't be followed: {', '.join(missing)}. Everything else can. Nothing was written", err=True)
    return callers.FAILED


def _permission_line(entity_type: KraftEntityType, granted: GrantedPermission) -> str:
    line = f"  {entity_type:<16}{granted.permission.value.replace('-', ' ')}"
    if granted.listed:
        line += f", {granted.described} of {granted.listed} described"
    return f"{line}: {granted.reason}" if granted.reason else line


async def _stored_target(settings: Settings, cluster: str) -> tuple[Target | None, str]:
    """Return the target, and a line about it; None if there is none, or ZooKeeper is unavailable."""
    try:
        async with open_cluster(settings, cluster, timeout_s=_TARGET_S) as parts:
            target = (await parts.stores[cluster].read_state(Target, callers.caller(None).deadline)).value
    except ConfplaneError as error:
        return None, f"not known: {error.detail}"
    return target, "none yet: `confplane target import --apply` stores it" if target is None else str(target)


async def _observed_topics(settings: Settings, cluster: str) -> tuple[TopicPoll | None, str]:
    """Return the poll of the table of topics; without one, None and the reason."""
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=1)
    try:
        poll = await PostgresObservedTopics(database).poll(cluster)
    except UnavailableError as error:
        return None, f"not known: {error.detail}"
    finally:
        await database.close()
    return poll, "none yet: the service writes it once it follows the cluster"


def _topics_line(poll: TopicPoll, now: datetime) -> str:
    line = f"{poll.topics} topics, listed {_ago(round(poll.polled_at.timestamp() * 1000))}"
    return f"{line}: outdated, it is more than an hour old" if poll.is_outdated(now) else line
