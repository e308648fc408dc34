"""Agreement of the chart's files with each other, with their source and with the service."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from confplane import __version__
from confplane.settings import Settings
from confplane.telemetry import METRICS, PREFIX
from tests.deploy import chart, generate
from tests.support.processes import ROOT

SCHEMA: dict[str, Any] = json.loads((chart.CHART / "values.schema.json").read_text())
CHART_SETS = {"admin_token_file", "http.port", "http.tls", "postgres.dsn", "postgres.migration_dsn"}
"""The settings that are not values."""
DIAGNOSTIC = {
    "http_connections_closed_total",
    "limited_principals",
    "overwritten_changes_total",
    "put_back_changes_total",
    "refused_attempts_pending",
    "response_bytes_in_flight",
    "responses_refused_total",
    "rollup_duration_seconds",
    "rollup_finished_timestamp_seconds",
    "rollup_mismatches_pending",
    "rollup_rows",
    "settlements_total",
    "transaction_duration_seconds_count",
}
"""Metrics that help to find a cause, and have neither a panel nor an alert."""


def test_the_charts_app_version_is_the_services() -> None:
    assert yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"] == __version__


@pytest.mark.parametrize(("path", "text"), generate.generate().items(), ids=lambda each: getattr(each, "name", ""))
def test_the_generated_files_are_current(path: Any, text: str) -> None:
    assert path.read_text("utf-8") == text, "run `make chart`"


def _nulls(schema: Any, path: str = "") -> list[str]:
    if isinstance(schema, dict):
        return [found for key, each in schema.items() for found in _nulls(each, f"{path}/{key}")]
    if isinstance(schema, list) and not path.endswith("/enum"):
        return [found for number, each in enumerate(schema) for found in _nulls(each, f"{path}/{number}")]
    return [path] if schema is None else []


def test_the_schema_has_no_member_without_a_value() -> None:
    """A comma in a text of the source that is not in quotes begins another member, which is null."""
    assert _nulls(SCHEMA) == []
    assert _nulls({"a": [{"b": None}], "enum": [None]}) == ["/a/0/b"]


def _closed(schema: Any, path: str, found: dict[str, bool]) -> None:
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            _closed(item, f"{path}/{index}", found)
    elif isinstance(schema, dict):
        if "properties" in schema and "object" in schema.get("type", ()):
            found[path] = "additionalProperties" in schema
        for key, item in schema.items():
            _closed(item, f"{path}/{key}", found)


def test_every_object_with_names_of_the_charts_own_is_closed() -> None:
    found: dict[str, bool] = {}
    _closed(SCHEMA, "", found)
    assert len(found) > 30
    # Kubernetes' own objects, of which the schema says the least only.
    theirs = {f"/properties/{each}/items" for each in ("extraEnv", "extraVolumes")}
    theirs.add("/properties/httpRoute/properties/parentRefs/items")
    assert {path for path, closed in found.items() if not closed} == theirs


def test_the_settings_that_are_not_values_are_those_that_the_chart_sets() -> None:
    values = set(chart.leaves(SCHEMA["properties"]["settings"]["properties"]))
    missing = {
        name if group is None else f"{name}.{group}"
        for name, field in Settings.model_fields.items()
        for group in (*getattr(field.annotation, "model_fields", ()), None)
        if not any(path.startswith(f"{name}." if group is None else f"{name}.properties.{group}.") for path in values)
    }
    assert missing == CHART_SETS


def exported() -> set[str]:
    """Return the names of all samples of the service's own metrics."""
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    kinds = {name: metric.kind(name, metric.text).type for name, metric in METRICS.items()}
    return {f"{PREFIX}{name}{suffix}" for name, kind in kinds.items() for suffix in suffixes[kind]}


def test_each_metric_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads((chart.CHART / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(expressions) >= 20
    named = {name for each in expressions for name in re.findall(r"\bconfplane_[a-z_]+", each)}
    assert named - exported() == set()
    queried = dashboard["templating"]["list"]
    assert {name for each in queried for name in re.findall(r"\bconfplane_[a-z_]+", json.dumps(each))} <= exported()


def test_each_metric_of_the_operations_guide_is_on_the_dashboard_or_in_an_alert_or_diagnostic() -> None:
    def named(text: str) -> set[str]:
        names = re.findall(r"\bconfplane_[a-z_]*[a-z]", text)
        return {name if name in exported() else f"{name}_bucket" for name in names}

    guide = (ROOT / "docs/operations.md").read_text()
    dashboard, alerts = ((chart.CHART / name).read_text() for name in ("dashboard.json", "alerts.yaml"))
    chosen = 'namespace=~\\"$namespace\\", job=~\\"$job\\"'
    assert f'ALERTS{{{chosen}, alertname=~\\"Confplane.+\\"' in dashboard
    shown = named(dashboard) | named(alerts)
    assert named(guide) & exported() - shown == {f"confplane_{name}" for name in DIAGNOSTIC}


def test_each_label_of_the_dashboard_is_one_of_its_metric() -> None:
    dashboard = json.loads((chart.CHART / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    theirs = {"pod", "le", "job", "namespace", "alertname", "alertstate"}
    for expression in expressions:
        names = re.findall(r"\bconfplane_([a-z_]+)", expression)
        labels = {
            label
            for name in names
            for each in (name, re.sub("_(total|bucket|sum|count)$", "", name))
            if each in METRICS
            for label in METRICS[each].labels
        }
        used = set(re.findall(r"(\w+)=~?\"", expression))
        used |= {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r", ?", group)}
        assert used <= labels | theirs, expression


def test_each_series_of_the_dashboard_is_of_the_chosen_installation() -> None:
    """Installations may have clusters of the same name; without the operator a series may have no namespace."""
    dashboard = json.loads((chart.CHART / "dashboard.json").read_text())
    chosen = 'namespace=~"$namespace", job=~"$job"'
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            series = re.findall(r"\b(?:confplane_\w+|ALERTS)\b(.{0,40})", target["expr"])
            assert series
            assert all(each.startswith(f"{{{chosen}") for each in series), target["expr"]
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job", "cluster"]
    assert not any(variables[name].get("multi") or variables[name].get("includeAll") for name in ("namespace", "job"))


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((chart.CHART / "dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
