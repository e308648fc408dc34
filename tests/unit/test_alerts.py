"""Each alert of the chart, evaluated as PromQL: it fires for the metrics of its fault, and not at its limit."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.alerts import ALERTS, EXPRESSIONS, firing
from tests.support.promql import ScrapeSeries

MINUTE: Final = 60.0
DAY: Final = 86_400.0

# The name of the alert; the samples without the fault; those with it. Scrapes of a process follow each other after `|`,
# a minute apart, and `;` separates samples of one scrape. CLUSTER is a label. Of 1,000 observations FAST has all below a
# second, and SLOW has a tenth between one and five seconds.
CASES: Final = """
Down                     build_info{version="1"} 1
                         other 1
ZooKeeperUnreachable     session_state{CLUSTER,state="connected"} 1; session_state{CLUSTER,state="lost"} 0
                         session_state{CLUSTER,state="connected"} 0; session_state{CLUSTER,state="lost"} 1
MirrorStale              mirror_stale_seconds{CLUSTER} 60
                         mirror_stale_seconds{CLUSTER} 61
LeaderMissing            leader{CLUSTER} 1
                         leader{CLUSTER} 0
PostgresDown             postgres_up 1
                         postgres_up 0
AccessStale              access_age_seconds 60
                         access_age_seconds 61
ChangeUnsettled          oldest_open_change_seconds{CLUSTER} 120
                         oldest_open_change_seconds{CLUSTER} 121
OutcomesDiffer           outcomes_differing_total{CLUSTER} 0
                         outcomes_differing_total{CLUSTER} 1
RecorderBehind           recorder_lag_seconds{CLUSTER} 60
                         recorder_lag_seconds{CLUSTER} 61
RecorderRefused          recorder_refused_entities{CLUSTER} 0
                         recorder_refused_entities{CLUSTER} 1
GlassBroken              security_events_total{kind="break-glass"} 1 | security_events_total{kind="break-glass"} 1
                         security_events_total{kind="break-glass"} 1 | security_events_total{kind="break-glass"} 2
GlassNotAcknowledged     change_requests_oldest_open_seconds{CLUSTER,kind="break-glass"} 14400
                         change_requests_oldest_open_seconds{CLUSTER,kind="break-glass"} 14401
ChangeRequestWaits       change_requests_oldest_open_seconds{CLUSTER,kind="change"} 172800
                         change_requests_oldest_open_seconds{CLUSTER,kind="change"} 172801
ScheduleOverdue          schedules_overdue{CLUSTER} 0
                         schedules_overdue{CLUSTER} 1
KafkaNotFollowed         observation_problem{CLUSTER} 0
                         observation_problem{CLUSTER} 1
KafkaNotLookedAt         observation_age_seconds{CLUSTER,area="a"} 30; observation_max_age_seconds{CLUSTER,area="a"} 30
                         observation_age_seconds{CLUSTER,area="a"} 31; observation_max_age_seconds{CLUSTER,area="a"} 30
KafkaConfigsNotUsed      observation_ineffective{CLUSTER,area="a"} 0
                         observation_ineffective{CLUSTER,area="a"} 1
ThrottlesLeft            reassignment_throttles_left{CLUSTER} 0
                         reassignment_throttles_left{CLUSTER} 1
KafkaApplyBehind         apply_lag_seconds{CLUSTER} 60
                         apply_lag_seconds{CLUSTER} 61
KafkaApplyUnknown        apply_unknown{CLUSTER} 0
                         apply_unknown{CLUSTER} 1
KafkaApplyRefused        apply_refused{CLUSTER} 0
                         apply_refused{CLUSTER} 1
KafkaContested           apply_contested{CLUSTER} 0
                         apply_contested{CLUSTER} 1
KafkaDrift               apply_drift{CLUSTER} 0
                         apply_drift{CLUSTER} 1
KafkaAppliedLate         applied_late_total{CLUSTER} 1 | applied_late_total{CLUSTER} 2
                         applied_late_total{CLUSTER} 1 | applied_late_total{CLUSTER} 6
WebhooksParked           webhooks{CLUSTER,state="active"} 3; webhooks{CLUSTER,state="parked"} 0
                         webhooks{CLUSTER,state="active"} 3; webhooks{CLUSTER,state="parked"} 1
StrayNotifications       stray_notifications{CLUSTER} 0
                         stray_notifications{CLUSTER} 1
NamelessNotifications    nameless_notifications{CLUSTER} 0
                         nameless_notifications{CLUSTER} 1
SessionFailures          session_failures_total{CLUSTER} 1 | session_failures_total{CLUSTER} 1
                         session_failures_total{CLUSTER} 1 | session_failures_total{CLUSTER} 2
NotificationsNearLimit   notifications{CLUSTER} 9; notifications_limit{CLUSTER} 10; brokers_registered{CLUSTER} 0
                         notifications{CLUSTER} 9; notifications_limit{CLUSTER} 10; brokers_registered{CLUSTER} 1
ListNearLimit            list_bytes{CLUSTER,list="/config/users"} 70; list_bytes_limit{CLUSTER} 100
                         list_bytes{CLUSTER,list="/config/users"} 71; list_bytes_limit{CLUSTER} 100
UnreadableZnodes         unreadable_znodes{CLUSTER} 0
                         unreadable_znodes{CLUSTER} 1
StoreRestored            store_restored{CLUSTER} 0
                         store_restored{CLUSTER} 1
StrayMarkers             stray_markers{CLUSTER} 0
                         stray_markers{CLUSTER} 1
InternalErrors           internal_errors_total 1 | internal_errors_total 1
                         internal_errors_total 0 | internal_errors_total 1
InvalidCredentials       authentications_failed_total{reason="invalid"} 0 | authentications_failed_total{reason="invalid"} 100
                         authentications_failed_total{reason="invalid"} 0 | authentications_failed_total{reason="invalid"} 400
IssuerKeysStale          oidc_keys_age_seconds{issuer="a"} 1800
                         oidc_keys_age_seconds{issuer="a"} 1801
FileUnusable             files_unusable 0
                         files_unusable 1
ConnectionsNearLimit     http_connections{state="head"} 40; http_connections{state="idle"} 40; http_connections_limit 100
                         http_connections{state="head"} 40; http_connections{state="idle"} 41; http_connections_limit 100
OutcomeUnknown           outcomes_unknown_total 1 | outcomes_unknown_total 1
                         outcomes_unknown_total 0 | outcomes_unknown_total 1
ZooKeeperSlow            transaction_duration_seconds FAST
                         transaction_duration_seconds SLOW
PostgresSlow             group_commit_duration_seconds FAST
                         group_commit_duration_seconds SLOW
MirrorGaps               mirror_gaps_total{CLUSTER} 1 | mirror_gaps_total{CLUSTER} 2
                         mirror_gaps_total{CLUSTER} 1 | mirror_gaps_total{CLUSTER} 6
RegistrationsDropped     registrations_dropped_total 1 | registrations_dropped_total 1
                         registrations_dropped_total 1 | registrations_dropped_total 2
AppliedReportsDropped    applied_reports_dropped_total 1 | applied_reports_dropped_total 1
                         applied_reports_dropped_total 1 | applied_reports_dropped_total 2
RefusedAttemptsDropped   refused_attempts_dropped_total 1 | refused_attempts_dropped_total 1
                         refused_attempts_dropped_total 1 | refused_attempts_dropped_total 2
ClockAhead               clock_ahead_seconds{CLUSTER} -60
                         clock_ahead_seconds{CLUSTER} -61
RollupMissing            rollup_as_of_timestamp_seconds{CLUSTER,rollup="integrity"} -172740
                         rollup_as_of_timestamp_seconds{CLUSTER,rollup="integrity"} -172801
RollupFailed             rollup_failed{CLUSTER,rollup="quotas"} 0
                         rollup_failed{CLUSTER,rollup="quotas"} 1
RollupMismatches         rollup_mismatches{CLUSTER} 0
                         rollup_mismatches{CLUSTER} 1
FrozenForLong            frozen{CLUSTER} 0
                         frozen{CLUSTER} 1
Warnings                 warnings 0
                         warnings 1
"""


def cases() -> dict[str, list[str]]:
    """Return the samples without and with the fault by alert."""
    found: dict[str, list[str]] = {}
    for line in CASES.strip().splitlines():
        name, _, samples = line.partition(" ")
        if name:
            found[name] = []
        found[next(reversed(found))].append(samples.strip())
    return found


def scraped(samples: str) -> ScrapeSeries:
    """Return the series of a case."""
    name, _, kind = samples.partition(" ")
    if kind in {"FAST", "SLOW"}:
        total, fast = 1000, 1000 if kind == "FAST" else 900
        label = 'cluster="a",kind="b"'
        samples = " | ".join(
            f'{name}_bucket{{{label},le="1"}} {at * fast}; {name}_bucket{{{label},le="5"}} {at * total};'
            f'{name}_bucket{{{label},le="+Inf"}} {at * total}'
            for at in (0, 1)
        )
    series = ScrapeSeries()
    for number, scrape in enumerate(samples.replace("CLUSTER", 'cluster="a"').split("|")):
        lines = "".join(f"confplane_{each.strip()}\n" for each in scrape.split(";"))
        series.add(lines, number * MINUTE)
    return series


def test_each_alert_has_a_case() -> None:
    assert [f"Confplane{name}" for name in cases()] == [each["alert"] for each in ALERTS]


@pytest.mark.parametrize("alert", ALERTS, ids=[each["alert"] for each in ALERTS])
def test_an_alert_fires_for_its_fault_alone(alert: dict[str, Any]) -> None:
    without, fault = cases()[alert["alert"].removeprefix("Confplane")]
    assert not scraped(without).query(alert["expr"])
    assert scraped(fault).query(alert["expr"])


def test_an_alert_fires_if_no_process_is_scraped() -> None:
    assert firing(ScrapeSeries()) == {"Down"}


def test_an_installation_without_a_process_is_reported_while_another_one_runs() -> None:
    series, names = ScrapeSeries(), ("one", "two")
    for name in names:
        series.add(f'confplane_build_info{{job="{name}",version="1"}} 1\n', 0, name)
    assert firing(series) == set()
    series.add('confplane_build_info{job="two",version="2"} 1\n', 10 * MINUTE, "two")
    assert [dict(labels) for labels in series.query(EXPRESSIONS["Down"])] == [{"job": "one"}]
    series.add("confplane_other 1\n", 20 * MINUTE)
    assert [dict(labels)["job"] for labels in series.query(EXPRESSIONS["Down"])] == ["one", "two"]
    series.add("confplane_other 1\n", 2 * DAY)
    assert dict(series.query(EXPRESSIONS["Down"])) == {frozenset(): 1}


def test_installations_with_a_cluster_of_the_same_name_have_alerts_of_their_own() -> None:
    series = ScrapeSeries()
    for name, connected in (("one", 1), ("two", 0)):
        labels = f'job="{name}",cluster="default"'
        series.add(
            f'confplane_build_info{{job="{name}"}} 1\n'
            f"confplane_leader{{{labels}}} 1\n"
            f'confplane_postgres_up{{job="{name}"}} {connected}\n'
            f'confplane_session_state{{{labels},state="connected"}} {connected}\n',
            0,
            name,
        )
    assert firing(series) == {"ZooKeeperUnreachable", "PostgresDown"}
    for name in ("ZooKeeperUnreachable", "PostgresDown"):
        assert [dict(labels)["job"] for labels in series.query(EXPRESSIONS[name])] == ["two"]


def test_increases_are_extrapolated_and_counters_may_begin_again() -> None:
    series = ScrapeSeries()
    for at, value in ((0, 10), (60, 20), (120, 2), (180, 12)):
        series.add(f'confplane_x_total{{a="b"}} {value}\n', at)
    # 10, then 2 after a new start, then 10, in 180 s of which the range has 5 minutes: half a pause before the first.
    labels = frozenset({("a", "b"), ("instance", "one")})
    assert dict(series.query("increase(confplane_x_total[5m])")) == {labels: pytest.approx(22 * 210 / 180)}
    assert dict(series.query("rate(confplane_x_total[5m])")) == {labels: pytest.approx(22 * 210 / 180 / 300)}


def test_elements_of_other_processes_do_not_match() -> None:
    series = ScrapeSeries()
    series.add("confplane_a 5\nconfplane_b 4\n", 0, "one").add("confplane_a 3\nconfplane_b 4\n", 0, "two")
    found = series.query("confplane_a > confplane_b")
    assert [dict(labels)["instance"] for labels in found] == ["one"]
    assert list(series.query("max(confplane_a) == 5").values()) == [5]
    assert list(series.query("sum by (job) (confplane_a) != 1").values()) == [8]
