"""Metrics for Prometheus: the counts of all parts (services/metrics.py), each with one name and one explanation.

The table below is complete; docs/operations.md lists the metrics to watch. Labels are the names of clusters, routes,
facets, issuers, states, results and errors. They are few, known to the service, and never chosen by a client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.registry import Collector

import confplane
from confplane.services.metrics import Histogram, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from confplane.services.metrics import MetricsSource

PREFIX: Final = "confplane_"
CACHE_S: Final = 1.0
"""Seconds for which a rendering is reused: any client may fetch the page, and rendering takes milliseconds."""
_Kind = type[CounterMetricFamily] | type[GaugeMetricFamily] | type[HistogramMetricFamily]


class Metric(NamedTuple):
    """The kind, explanation and labels of one name."""

    kind: _Kind
    text: str
    labels: tuple[str, ...] = ()


_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_CLUSTER: Final = ("cluster",)
_ROLLUP: Final = ("cluster", "rollup")

METRICS: Final[dict[str, Metric]] = {
    # the process
    "build_info": Metric(_G, "1, with the running version", ("version",)),
    "ready": Metric(_G, "1 if the last response of /readyz was 200"),
    "stopping": Metric(_G, "1 once the process is stopping"),
    "warnings": Metric(_G, "Number of warnings in the last response of /readyz, which has their texts"),
    # requests
    "response_bytes_in_flight": Metric(_G, "Bytes of large responses that clients have not received yet"),
    "responses_refused": Metric(
        _C, "Large responses refused: for their size, the share of their principal, or the total", ("reason",)
    ),
    "http_requests": Metric(
        _C,
        "Requests that ended, by route; 499 if the client had disconnected",
        ("method", "route", "status"),
    ),
    "internal_errors": Metric(_C, "Requests that were answered 500. It is a defect and should stay 0"),
    "http_request_duration_seconds": Metric(_H, "Time from request to response", ("method", "route")),
    "http_requests_in_flight": Metric(_G, "Requests without a response yet"),
    "authentications_failed": Metric(
        _C, "Requests refused for their Authorization: missing, invalid or repeated", ("reason",)
    ),
    "security_events": Metric(_C, "Security events: denied, unauthenticated, admin-token-used, break-glass", ("kind",)),
    "requests_limited": Metric(
        _C, "Requests refused because their caller's limit was used up: read, bulk, write, admin, waiting", ("class",)
    ),
    "limited_principals": Metric(_G, "Callers whose use of limits is in memory"),
    "http_connections": Metric(_G, "Open connections, by what they wait for", ("state",)),
    "http_connections_limit": Metric(_G, "Maximum number of connections"),
    "http_connections_closed": Metric(_C, "Connections that the listener closed, by reason", ("reason",)),
    # changes
    "alter_results": Metric(
        _C,
        "Entities of requests that write: applied, unchanged, validated, not_applied or unknown, and Kafka's error",
        ("cluster", "facet", "outcome", "error"),
    ),
    "outcomes_unknown": Metric(_C, "Entities of requests whose outcome was unknown when the client was answered"),
    "changes_in_flight": Metric(_G, "Changes in progress"),
    "changes_waiting": Metric(_G, "Single changes with an intent that wait for the next shared transaction"),
    "idempotent_requests": Metric(
        _C, "Requests with an Idempotency-Key: first, replayed, or taken_over from one that did not end", ("how",)
    ),
    "transaction_duration_seconds": Metric(
        _H,
        "Time of ZooKeeper transactions: committed, conflict, session_ended, refused; unknown if no reply came",
        ("cluster", "result"),
    ),
    "transactions_in_flight": Metric(_G, "ZooKeeper transactions without a reply yet", _CLUSTER),
    # the session and the mirror
    "session_state": Metric(_G, "1 for the current state of the ZooKeeper session", ("cluster", "state")),
    "session_state_seconds": Metric(_G, "Time since the ZooKeeper session entered its state", _CLUSTER),
    "session_failures": Metric(
        _C, "How often an error of the service ended the ZooKeeper session. It is a defect and should stay 0", _CLUSTER
    ),
    "session_transitions": Metric(_C, "How often the ZooKeeper session entered a state", ("cluster", "state")),
    "clock_ahead_seconds": Metric(
        _G, "Time by which this process's clock is ahead of ZooKeeper's; negative if it is behind", _CLUSTER
    ),
    "mirror_state": Metric(_G, "1 for the current state of the copy of the configs", ("cluster", "state")),
    "mirror_revision": Metric(_G, "The revision of the copy", _CLUSTER),
    "mirror_stale_seconds": Metric(_G, "Time since the copy was last known to be current; 0 while it is", _CLUSTER),
    "mirror_loads": Metric(_C, "How often the copy was loaded", _CLUSTER),
    "mirror_load_seconds": Metric(_G, "Time of the last load of the copy", _CLUSTER),
    "mirror_gaps": Metric(_C, "How often the copy was loaded again because notifications were missed", _CLUSTER),
    "feed_consumers": Metric(_G, "Open streams of changes"),
    "feed_unknown_events": Metric(
        _C, "Events of change requests that this process left out of the feed: a newer release wrote them", _CLUSTER
    ),
    "entities": Metric(_G, "Entities in the copy, by tree", ("cluster", "tree")),
    "list_bytes": Metric(
        _G,
        "Bytes of the list of a parent's children as a broker reads it; for users/*/clients, of the longest list",
        ("cluster", "tree", "parent"),
    ),
    "list_bytes_limit": Metric(_G, "Bytes that each list stays below while brokers are registered", _CLUSTER),
    "unreadable_znodes": Metric(_G, "Znodes that can't be read, decoded or addressed; /readyz names some", _CLUSTER),
    # the cluster
    "brokers_registered": Metric(_G, "1 while brokers are registered in ZooKeeper", _CLUSTER),
    "frozen": Metric(_G, "1 while the cluster is frozen", _CLUSTER),
    "store_restored": Metric(_G, "1 while a restored ZooKeeper is not adopted yet", _CLUSTER),
    "notifications": Metric(_G, "Change notifications in ZooKeeper, as of the last read", _CLUSTER),
    "notifications_limit": Metric(_G, "Maximum number of notifications while brokers are registered", _CLUSTER),
    "notifications_purged": Metric(_C, "Old notifications that this process deleted", _CLUSTER),
    "stray_notifications": Metric(
        _G,
        "Children of /config/changes that are not notifications; they prevent brokers from reading changes",
        _CLUSTER,
    ),
    "nameless_notifications": Metric(_G, "Notifications without the name of a config entity, as far as read", _CLUSTER),
    # settling
    "leader": Metric(_G, "1 on the process that leads: it settles, sweeps and records", _CLUSTER),
    "settlements": Metric(
        _C, "Changes that this process settled by their markers: committed or aborted", ("cluster", "outcome")
    ),
    "open_changes": Metric(_G, "Changes without an outcome, as of the leader's last check", _CLUSTER),
    "oldest_open_change_seconds": Metric(
        _G, "Age of the oldest change without an outcome; 0 if there is none", _CLUSTER
    ),
    "markers_released": Metric(_G, "Markers that this process has still to drop", _CLUSTER),
    "markers_dropped": Metric(_C, "Markers that this process has dropped", _CLUSTER),
    "stray_markers": Metric(_G, "Markers whose change is not in the trail, as of the leader's last check", _CLUSTER),
    # the recorder
    "external_changes": Metric(_C, "External changes that this process recorded", _CLUSTER),
    "recorder_watermark": Metric(_G, "The revision up to which the trail is complete, on the leader", _CLUSTER),
    "recorder_lag_seconds": Metric(_G, "Time since the trail last explained everything in the leader's copy", _CLUSTER),
    "recorder_pending_entities": Metric(_G, "Entities with writes that the trail does not explain yet", _CLUSTER),
    "recorder_refused_entities": Metric(
        _G, "Entities whose states Postgres can't store; they are not recorded", _CLUSTER
    ),
    # temporary changes
    "schedules_active": Metric(_G, "Temporary changes that have not ended, as of the leader's last round", _CLUSTER),
    "schedules_overdue": Metric(_G, "Those whose end has been due for more than a minute", _CLUSTER),
    "schedules_paused": Metric(_G, "1 while the ends of temporary changes are paused", _CLUSTER),
    "schedules_ended": Metric(_C, "Temporary changes that this process ended at their times", _CLUSTER),
    # change requests
    "change_requests": Metric(
        _G, "Change requests that have not ended, as of the leader's last round", ("cluster", "state")
    ),
    "change_requests_oldest_open_seconds": Metric(
        _G, "Age of the oldest open change request, or 0, as of the leader's last round", ("cluster", "kind")
    ),
    "change_requests_applied": Metric(_C, "Change requests that this process applied at their times", _CLUSTER),
    "change_requests_unknown": Metric(
        _C, "How often this process left out a change request of a list: a newer release wrote it", _CLUSTER
    ),
    # rollups
    "rollup_as_of_timestamp_seconds": Metric(_G, "The time that a rollup's current rows describe", _ROLLUP),
    "rollup_finished_timestamp_seconds": Metric(_G, "The end of the run that made a rollup's current rows", _ROLLUP),
    "rollup_duration_seconds": Metric(_G, "Time that the run of a rollup's current rows took", _ROLLUP),
    "rollup_rows": Metric(_G, "The number of a rollup's current rows", _ROLLUP),
    "rollup_failed": Metric(_G, "1 if the last run of a rollup failed, or its process ended", _ROLLUP),
    "rollup_mismatches": Metric(
        _G, "Mismatches in the current rows of integrity, without those that may resolve by themselves", _CLUSTER
    ),
    "rollup_mismatches_pending": Metric(
        _G, "Mismatches in the current rows of integrity that may resolve by themselves", _CLUSTER
    ),
    # throttles of reassignments
    "reassignment_throttles_left": Metric(
        _G, "Throttles of reassignments that are set although no reassignment is in progress", _CLUSTER
    ),
    "reassignment_throttles_unknown": Metric(
        _G, "Throttles of reassignments that are set, if the right to read reassignments is missing", _CLUSTER
    ),
    # the observation of a Kafka cluster
    "observed_changes": Metric(_C, "Changes that this process wrote to follow a Kafka cluster", _CLUSTER),
    "observation_looks": Metric(
        _C,
        "Polls of a Kafka cluster, by result; those with the results behind, refused and failed are not used",
        (*_CLUSTER, "area", "result"),
    ),
    "observation_age_seconds": Metric(
        _G,
        "Time since the last complete poll of an area, on the leader; since its term began if the first polls fail",
        (*_CLUSTER, "area"),
    ),
    "observation_max_age_seconds": Metric(
        _G, "The setting kafka.max_age_s: the greatest age of the last complete poll of an area", (*_CLUSTER, "area")
    ),
    "observation_unmanaged": Metric(
        _G, "Entities of a Kafka cluster that ZooKeeper can't hold, and keys without a definition", (*_CLUSTER, "area")
    ),
    "observation_ineffective": Metric(
        _G, "Keys that are set for the brokers of a Kafka cluster, and that they do not use", (*_CLUSTER, "area")
    ),
    "observation_problem": Metric(_G, "1 while the leader can't observe the Kafka cluster", _CLUSTER),
    "target_requests": Metric(
        _C,
        "Requests to a Kafka cluster, by Kafka's names of the API and of the response's error code, which may be"
        " NONE; timeout, disconnected or malformed if there was no valid response",
        (*_CLUSTER, "api", "code"),
    ),
    # clients' changes of a Kafka cluster
    "put_back_changes": Metric(_C, "External changes in a Kafka cluster that were reverted", _CLUSTER),
    "overwritten_changes": Metric(
        _C, "External changes in a Kafka cluster that were replaced by changes of the same keys here", _CLUSTER
    ),
    "applied_changes": Metric(
        _C,
        "Entities that were sent to a Kafka cluster, by outcome: applied, partly-refused, refused or unknown",
        (*_CLUSTER, "end"),
    ),
    "applied_refusals": Metric(
        _C, "Entities whose changes a Kafka cluster refused, by Kafka's number of the error", (*_CLUSTER, "code")
    ),
    "applied_late": Metric(
        _C, "Entities whose earlier values reached a Kafka cluster late, and were replaced", _CLUSTER
    ),
    "apply_pending": Metric(_G, "Entities with changes that the Kafka cluster has not applied yet", _CLUSTER),
    "apply_lag_seconds": Metric(_G, "Time that the oldest of these changes has waited, on the leader", _CLUSTER),
    "apply_unknown": Metric(
        _G, "Entities whose changes were sent to the Kafka cluster without a response; they are sent again", _CLUSTER
    ),
    "apply_refused": Metric(_G, "Entities whose changes the Kafka cluster refused", _CLUSTER),
    "apply_contested": Metric(
        _G,
        "Keys that are changed externally in the Kafka cluster again and again, and are no longer reverted",
        _CLUSTER,
    ),
    "apply_extra": Metric(_G, "Keys that were only set in the Kafka cluster, never here", _CLUSTER),
    "apply_drift": Metric(
        _G,
        "Entities that differ in the Kafka cluster: changes wait or were refused, or extra keys are left alone",
        _CLUSTER,
    ),
    # tokens and grants
    "access_age_seconds": Metric(_G, "Time since tokens and grants were last compared with Postgres"),
    "access_tokens": Metric(_G, "API tokens in memory"),
    "access_grants": Metric(_G, "Grants in memory"),
    # webhooks
    "webhooks": Metric(_G, "Webhooks, on the leader: active, failing or parked", (*_CLUSTER, "state")),
    "webhook_deliveries": Metric(_C, "Requests of webhooks by this process: delivered or failed", ("result",)),
    "webhook_deliveries_in_progress": Metric(_G, "Requests of webhooks without a response yet"),
    # Postgres
    "postgres_up": Metric(_G, "1 while Postgres answers; it is checked at least every few seconds"),
    "postgres_faults": Metric(_C, "How often Postgres did not answer"),
    "postgres_connections_in_use": Metric(
        _G, "Connections of the pool that are in use or held by a writer of the trail"
    ),
    "postgres_connections_limit": Metric(_G, "The size of the pool"),
    "group_commit_rows": Metric(_H, "Rows that shared a statement and a commit", ("kind",)),
    "group_commit_duration_seconds": Metric(_H, "Time of a statement and commit that rows shared", ("kind",)),
    "group_commit_waiting": Metric(_G, "Callers whose rows wait for the next shared commit", ("kind",)),
    "outcomes_kept": Metric(_G, "Outcomes in memory that are not in Postgres yet"),
    "outcomes_differing": Metric(
        _C, "Outcomes that differed from the one in the trail: config and trail may disagree. It should stay 0"
    ),
    # identities
    "files_unusable": Metric(
        _G, "Groups of files (TLS, admin token) that have changed and can't be used; the earlier files stay in use"
    ),
    "oidc_keys": Metric(_G, "Usable public keys of an issuer of access tokens", ("issuer",)),
    "oidc_keys_age_seconds": Metric(
        _G, "Time since the keys of an issuer were last fetched; absent before the first fetch", ("issuer",)
    ),
    "oidc_fetch_failures": Metric(_C, "Failed fetches of an issuer's keys", ("issuer",)),
    # registrations
    "registrations_held": Metric(_G, "Registrations of client software in memory"),
    "registrations_pending": Metric(_G, "Registrations that wait to be written"),
    "registrations_dropped": Metric(
        _C, "Registrations dropped for lack of space, or above their user's budget; clients send them again"
    ),
    "registrations_bytes": Metric(_G, "Bytes of the registrations in memory, and of their software"),
    "registration_keys_dropped": Metric(_C, "Supported configs left out of registrations, because no catalog has them"),
    # refused attempts
    "refused_attempts_held": Metric(_G, "Sums of the refused attempts of this minute"),
    "refused_attempts_pending": Metric(_G, "Refused attempts, and sums of them, that wait to be written"),
    "refused_attempts_dropped": Metric(_C, "Refused attempts that were not recorded for lack of space"),
    # applied status
    "applied_reports_held": Metric(_G, "Running clients whose report is in memory"),
    "applied_reports_pending": Metric(_G, "Reports on applied configs that wait to be written"),
    "applied_reports_dropped": Metric(_C, "Reports on applied configs that were dropped for lack of space"),
}
"""Metrics by name without the prefix, in the order of rendering."""


class Telemetry:
    """Renders the metrics of a process.

    Args:
        parts: All parts with metrics.
    """

    def __init__(self, parts: Iterable[MetricsSource]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Metrics([_BuildInfo(), *parts]))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._cache: dict[bool, tuple[float, bytes]] = {}

    def render(self, *, openmetrics: bool) -> tuple[bytes, str]:
        """Return all metrics, at most a second old, and their content type: OpenMetrics or Prometheus' text format."""
        until, body = self._cache.get(openmetrics, (0.0, b""))
        if time.monotonic() >= until:
            body = self._rendered(openmetrics=openmetrics)
            self._cache[openmetrics] = time.monotonic() + CACHE_S, body
        kind = openmetrics_exposition.CONTENT_TYPE_LATEST if openmetrics else exposition.CONTENT_TYPE_PLAIN_0_0_4
        return body, kind

    def _rendered(self, *, openmetrics: bool) -> bytes:
        if openmetrics:
            body: bytes = openmetrics_exposition.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return body
        return exposition.generate_latest(self._registry)


class _BuildInfo:
    """The version that runs."""

    def metrics(self) -> Iterator[Sample]:
        yield Sample("build_info", 1, (confplane.__version__,))


class _Metrics(Collector):
    """Collects metrics as families, one for each name."""

    def __init__(self, parts: Sequence[MetricsSource]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Family]:
        found: dict[str, list[tuple[tuple[str, ...], float | Histogram]]] = {name: [] for name in METRICS}
        for part in self._parts:
            for name, value, labels in part.metrics():
                found[name].append((labels, value))
        for name, samples in found.items():
            yield _family(name, samples)


def _family(name: str, samples: Iterable[tuple[tuple[str, ...], float | Histogram]]) -> Family:
    kind, text, labels = METRICS[name]
    family = kind(PREFIX + name, text, labels=labels)
    for values, value in samples:
        if isinstance(family, HistogramMetricFamily):
            assert isinstance(value, Histogram)  # noqa: S101 - for the type checker; the table ensures it
            family.add_metric(values, _buckets(value), value.total)
        else:
            assert not isinstance(value, Histogram)  # noqa: S101 - as above
            family.add_metric(values, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return cumulative counts, as the formats require: for each bound, the number of values not above it."""
    found: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        below += count
        found.append((str(bound), below))
    return found
