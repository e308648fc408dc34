"""Agreement of the chart's version, README and schema with each other and with the service's own settings."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import TypeAdapter

from confplane import __version__
from confplane.settings import ClusterSettings, Settings
from tests.deploy import chart

COMPARED = ("minimum", "maximum", "minLength", "pattern", "enum")
"""The members of a schema that are compared besides the type; titles, defaults and descriptions may differ."""


def default_values() -> chart.Manifest:
    values: chart.Manifest = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    return values


def values_schema() -> chart.Manifest:
    schema: chart.Manifest = json.loads((chart.CHART / "values.schema.json").read_text())
    return schema


def test_the_charts_app_version_is_the_services() -> None:
    assert yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_the_readme_lists_every_value_with_its_default() -> None:
    documented, values = chart.readme_tables()[0], default_values()
    wrong = {path: default for path, default in documented.items() if chart.at(values, path) != default}
    assert wrong == {}
    covered = {
        path for path in chart.leaves(values) if any(path == row or path.startswith(f"{row}.") for row in documented)
    }
    assert covered == set(chart.leaves(values))


def test_the_readme_lists_every_setting_of_a_cluster_with_its_default() -> None:
    fields = {
        name: ... if field.is_required() else json.loads(TypeAdapter(Any).dump_json(field.default))
        for name, field in ClusterSettings.model_fields.items()
    }
    assert chart.readme_tables()[1] == fields


def test_every_default_value_is_in_the_schema_and_the_other_way_round() -> None:
    schema, values = values_schema(), default_values()
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, group in values.items():
        known = schema["properties"][name].get("properties")
        if known is not None and isinstance(group, dict):
            assert set(group) <= set(known), name


def _closed(schema: Any, path: str, found: dict[str, bool]) -> None:
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            _closed(item, f"{path}/{index}", found)
    elif isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            found[path] = "additionalProperties" in schema
        for key, item in schema.items():
            _closed(item, f"{path}/{key}", found)


def test_every_object_with_names_of_the_charts_own_is_closed() -> None:
    found: dict[str, bool] = {}
    _closed(values_schema(), "", found)
    assert len(found) > 20
    # Kubernetes' own objects, of which the schema says the least only.
    theirs = {"/properties/extraEnv/items", "/properties/extraVolumes/items"}
    assert {path for path, closed in found.items() if not closed} == theirs


def _constraints(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema's types and bounds, whether it says them itself, by reference or for one of several types."""
    if "$ref" in schema:
        return _constraints(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    said: dict[str, Any] = {"types": set()}
    for option in schema.get("anyOf") or schema.get("oneOf") or [schema]:
        if option is not schema:
            part = _constraints(option, definitions)
            said["types"] |= part.pop("types")
            said |= part
            continue
        types = option.get("type")
        said["types"] |= set(types) if isinstance(types, list) else {types}
        said |= {key: option[key] for key in COMPARED if key in option}
    if "enum" in said:
        said["enum"] = {value for value in said["enum"] if value is not None}
    if said.get("pattern", "").startswith("^(") and "|" in said["pattern"]:
        said["enum"] = set(said.pop("pattern").removeprefix("^(").removesuffix(")$").split("|"))
    return said


def test_the_schema_knows_the_services_settings_and_their_bounds() -> None:
    theirs = Settings.model_json_schema()
    definitions = theirs["$defs"]
    ours = values_schema()["properties"]["settings"]["properties"]
    # The chart sets these itself.
    assert set(ours) == set(theirs["properties"]) - {"admin_token_file"}
    (ours_name, ours_cluster), *none = ours["clusters"]["patternProperties"].items()
    assert not none
    (theirs_name, theirs_cluster), *none = theirs["properties"]["clusters"]["patternProperties"].items()
    assert not none
    assert ours_name == theirs_name
    groups = {
        "cluster": (ours_cluster, definitions[theirs_cluster["$ref"].rpartition("/")[2]], set()),
        "http": (ours["http"], definitions["HttpSettings"], {"port", "tls"}),
        "postgres": (ours["postgres"], definitions["PostgresSettings"], {"dsn", "migration_dsn"}),
    }
    for group, (mine, its, apart) in groups.items():
        assert set(mine["properties"]) == set(its["properties"]) - apart, group
        for name, schema in mine["properties"].items():
            expected = _constraints(its["properties"][name], definitions)
            if (group, name) == ("http", "host"):
                expected["minLength"] = 1
            assert _constraints(schema, {}) == expected, f"{group}.{name}"
    assert _constraints(ours["log_level"], {}) == _constraints(theirs["properties"]["log_level"], definitions)
