"""Metrics become families that Prometheus reads: all of them named and explained, counted up as they should be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from confplane.api.request_context import CLIENT_CLOSED_REQUEST, Traffic
from confplane.services.metrics import Histogram, Sample, of_cluster
from confplane.telemetry import METRICS, PREFIX, Telemetry
from tests.support.alerts import PartAlerts
from tests.support.metrics import Scraped

if TYPE_CHECKING:
    from collections.abc import Iterable


PAGE: Final = (Path(__file__).parents[2] / "docs/operations.md").read_text()
NAMED: Final = sorted(set(re.findall(r"confplane_([a-z_]+)(\{[^}]*\})?", PAGE)))


class Part:
    """Something with metrics."""

    def __init__(self, *metrics: Sample) -> None:
        self._metrics = metrics

    def metrics(self) -> Iterable[Sample]:
        return self._metrics


class Route:
    """The attributes of Starlette's routes that telemetry reads."""

    def __init__(self, path: str) -> None:
        self.path = path


def rendered(*parts: Part | Traffic) -> Scraped:
    telemetry = Telemetry(parts)
    body, media_type = telemetry.render(openmetrics=False)
    assert media_type.startswith("text/plain")
    other, media_type = telemetry.render(openmetrics=True)
    assert media_type.startswith("application/openmetrics-text")
    assert other.endswith(b"# EOF\n")
    families = {family.name: family for family in openmetrics_families(other.decode())}  # type: ignore[no-untyped-call]
    assert {PREFIX + name for name in METRICS} <= families.keys()
    return Scraped(body.decode())


def test_every_metric_is_explained_once_and_in_a_sentence() -> None:
    found = rendered().families
    for name, metric in METRICS.items():
        assert found[PREFIX + name].documentation == metric.text
        assert found[PREFIX + name].type == metric.kind("x", "x").type
        assert metric.text[0].isupper() or metric.text[0] == "1"
        assert not metric.text.endswith(".")
        assert not name.endswith("_total")
    assert len({metric.text for metric in METRICS.values()}) == len(METRICS)


@pytest.mark.parametrize(("name", "labels"), NAMED, ids=[name for name, _ in NAMED])
def test_what_the_operators_page_watches_is_there(name: str, labels: str) -> None:
    """Each metric as a query has to name it, by labels that it has."""
    suffixes = {CounterMetricFamily: ("_total",), HistogramMetricFamily: ("_bucket", "_count", "_sum")}
    found = {known + end: metric for known, metric in METRICS.items() for end in suffixes.get(metric.kind, ("",))}
    # A histogram may stand for all of its samples.
    found |= {known: metric for known, metric in METRICS.items() if metric.kind is HistogramMetricFamily}
    assert set(re.findall(r"(\w+)=", labels)) <= set(found[name].labels)


def test_the_operators_page_watches_most_of_it() -> None:
    assert len(NAMED) >= 25


def test_what_is_in_no_table_is_a_fault() -> None:
    with pytest.raises(KeyError):
        rendered(Part(Sample("unheard_of", 1)))


def test_figures_of_several_parts_and_clusters_stand_in_one_family() -> None:
    one = Part(*of_cluster("a", [Sample("leader", True), Sample("session_transitions", 3, ("lost",))]))  # noqa: FBT003
    two = Part(*of_cluster("b", [Sample("leader", False), Sample("session_transitions", 4, ("lost",))]))  # noqa: FBT003
    found = rendered(one, two)
    assert (found("leader", cluster="a"), found("leader", cluster="b")) == (1, 0)
    assert found("session_transitions_total", cluster="b", state="lost") == 4
    assert found.text.count("# TYPE confplane_leader gauge") == 1


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.add(value)
    found = rendered(Part(Sample("group_commit_duration_seconds", histogram, ("intents",))))
    name = "group_commit_duration_seconds"
    below = {bound: found(f"{name}_bucket", kind="intents", le=bound) for bound in ("0.1", "1.0", "+Inf")}
    assert below == {"0.1": 2, "1.0": 4, "+Inf": 5}
    assert found(f"{name}_count", kind="intents") == histogram.count == 5
    assert found(f"{name}_sum", kind="intents") == pytest.approx(8.65)


def test_requests_are_counted_by_route_and_status_alone() -> None:
    traffic = Traffic()
    one = Route("/v1/clusters/{cluster}/client-quotas/{id:path}")
    traffic.count("GET", one, 200, 0.0001)
    traffic.count("GET", one, 200, 0.3)
    traffic.count("GET", one, CLIENT_CLOSED_REQUEST, 20.0)
    traffic.count("GET", None, 404, 0.1)
    for number in range(50):
        traffic.count(f"BREW{number}", None, 405, 0.1)
    found = rendered(traffic)
    route = "/v1/clusters/{cluster}/client-quotas/{id}"
    assert found("http_requests_total", method="GET", route=route, status="200") == 2
    assert found("http_requests_total", method="GET", route=route, status="499") == 1
    assert found("http_requests_total", method="GET", route="unmatched", status="404") == 1
    assert found("http_requests_total", method="other", route="unmatched", status="405") == 50
    assert found("http_request_duration_seconds_count", method="GET", route=route) == 3
    assert found("http_request_duration_seconds_bucket", method="GET", route=route, le="10.0") == 2
    assert "BREW" not in found.text


def test_the_first_internal_error_of_a_process_raises_the_alert() -> None:
    traffic = Traffic()
    alerts = PartAlerts(traffic)
    traffic.count("GET", None, 404, 0.1)
    assert alerts.scrape() == set()
    traffic.count("GET", Route("/v1/clusters"), 500, 0.1)
    assert alerts.scrape() == {"InternalErrors"}
