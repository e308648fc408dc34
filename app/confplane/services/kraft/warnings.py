"""Warnings for operators about the observation of a cluster, from the leader's report: the same in every process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.kafka import EntityTypePermission
from confplane.services.ports.observation_report import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.services.ports.observation_report import (
        ApplyReport,
        EntityTypeReport,
        ListedNames,
        ObservationReport,
    )
    from confplane.services.ports.store import ClusterStore

_FEW: Final = 3
SILENT_S: Final = 60.0
"""Seconds after which a report that is not replaced has no leader any more."""


def list_warnings(
    cluster: str,
    target: Target | None,
    report: ObservationReport | None,
    max_ages: Mapping[KraftEntityType, float],
) -> list[OperatorWarning]:
    """Return the warnings."""
    if target is None:
        return []
    if not target.imported:
        return [
            OperatorWarning(f"{cluster}: its import is not complete; `confplane target import --apply` completes it")
        ]
    if target.paused:
        return [
            OperatorWarning(
                f"{cluster}: the observation of its Kafka cluster is paused; `confplane target resume` ends this"
            )
        ]
    if report is None or report.at / 1000 < time.time() - SILENT_S:
        return [OperatorWarning(f"{cluster}: no process observes its Kafka cluster: configs may be out of date")]
    found = []
    if report.problem:
        text = f"{cluster}: its Kafka cluster is not observed now, and configs may be out of date"
        found.append(_warning(text, report.problem))
    if report.log_problem:
        text = f"{cluster}: the metadata log of its Kafka cluster is not followed, and polls continue without it"
        found.append(_warning(text, report.log_problem))
    if report.applying is not None:
        found += _apply_warnings(cluster, report.applying)
    return found + _entity_type_warnings(cluster, report, max_ages)


def _entity_type_warnings(
    cluster: str, report: ObservationReport, max_ages: Mapping[KraftEntityType, float]
) -> list[OperatorWarning]:
    found = []
    for entity_type, each in report.areas.items():
        if each.permission is EntityTypePermission.NONE:
            text = f"{cluster}: the Kafka cluster does not permit reads of its {entity_type}"
            found.append(_warning(text, each.reason))
            continue
        if each.denied.count:
            text = f"{cluster}: the Kafka cluster does not permit reads of some of its {entity_type}"
            found.append(_listed(text, each.denied))
        if each.ineffective.count:
            text = f"{cluster}: brokers do not use some of their dynamic configs"
            found.append(_listed(text, each.ineffective, "keys"))
        if not report.problem and entity_type in max_ages:
            found += _age_warnings(cluster, entity_type, each, max_ages[entity_type])
    return found


def _age_warnings(
    cluster: str, entity_type: KraftEntityType, report: EntityTypeReport, max_age_s: float
) -> list[OperatorWarning]:
    age_s = None if report.observed_at is None else time.time() - report.observed_at / 1000
    if (age_s is None and not report.problem) or (age_s is not None and age_s <= max_age_s):
        return []
    text = f"{cluster}: the {entity_type} of its Kafka cluster are not polled in time, and may be out of date"
    age = "no poll was complete yet" if age_s is None else f"the last complete poll began {age_s:.0f} s ago"
    problem = f"; {report.problem}" if report.problem else ""
    return [_warning(text, f"{age}, and {max_age_s:.0f} s are allowed (`kafka.max_age_s`){problem}")]


def _apply_warnings(cluster: str, applying: ApplyReport) -> list[OperatorWarning]:
    found = []
    if applying.problem:
        found.append(_warning(f"{cluster}: changes wait to be applied to its Kafka cluster", applying.problem))
    if applying.held.count:
        found.append(_listed(f"{cluster}: some changes are blocked and will be retried one at a time", applying.held))
    if applying.refused.count:
        found.append(
            _listed(f"{cluster}: its Kafka cluster refused changes that were committed here", applying.refused)
        )
    if applying.contested.count:
        text = f"{cluster}: keys of its Kafka cluster are changed externally again and again, so they are not reverted"
        found.append(_listed(text, applying.contested))
    return found


def _listed(text: str, names: ListedNames, what: str = "entities") -> OperatorWarning:
    first = "; ".join(f"{name}: {reason}" for name, reason in names.first[:_FEW])
    return OperatorWarning(text, f"{text} ({names.count} {what}): {first}")


def _warning(text: str, reason: str) -> OperatorWarning:
    return OperatorWarning(text, f"{text}: {reason}")


class KraftWarnings:
    """The warnings about a cluster in a process.

    Args:
        store: The cluster.
        max_ages: The greatest ages of polls; empty in a process whose settings name no Kafka brokers of the cluster.
    """

    def __init__(self, store: ClusterStore, max_ages: Mapping[KraftEntityType, float]) -> None:
        self._store = store
        self._max_ages = max_ages

    def warnings(self) -> list[OperatorWarning]:
        """Return the warnings, the same in every process that observes the cluster."""
        report = parse(self._store.observation())
        return list_warnings(self._store.name, self._store.target(), report, self._max_ages)
