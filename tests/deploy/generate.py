"""Generate the chart's values, their schema and their tables from ``deploy/helm/values.schema.yaml``.

One command, from the root of the repository; ``make chart`` runs it::

    python -m tests.deploy.generate
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any, Final

import yaml

from confplane.settings import Settings

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "deploy" / "helm" / "values.schema.yaml"
CHART: Final = ROOT / "deploy" / "helm" / "confplane"

Schema = dict[str, Any]

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_HEAD: Final = "# The chart's values with their defaults. Generated from ../values.schema.yaml by `make chart`.\n"
_GLOBAL: Final = {"type": "object", "description": "Set by Helm if this chart is a dependency of another; not used."}
_WIDTH: Final = 120


def generate() -> dict[Path, str]:
    """Return path -> text of each generated file."""
    properties = _properties()
    readme = CHART / "README.md"
    schema = {
        "$schema": _DRAFT,
        "title": "Values of the chart confplane",
        **_strict({"properties": properties}),
        "required": [name for name, each in properties.items() if "required" in each],
    }
    schema["properties"] = {"global": _GLOBAL, **schema["properties"]}
    return {
        CHART / "values.yaml": _HEAD + "".join(_values(properties)),
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
        readme: _with_tables(readme.read_text("utf-8"), properties),
    }


def _properties() -> dict[str, Schema]:
    """Return the schemas of all values, with their defaults and descriptions."""
    source = yaml.safe_load(SOURCE.read_text("utf-8"))
    properties: dict[str, Schema] = _resolved(source["properties"], source["definitions"])
    properties["settings"] = _laid_over(service_settings(), properties["settings"])
    return properties


def _resolved(schema: Any, definitions: dict[str, Schema]) -> Any:
    if isinstance(schema, list):
        return [_resolved(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: _resolved(each, definitions) for key, each in schema.items() if key not in {"$ref", "default"}}
    if "default" in schema:
        own["default"] = schema["default"]
    return _laid_over(_resolved(definitions[schema["$ref"]], definitions), own) if "$ref" in schema else own


def _laid_over(base: Schema, changes: Schema) -> Schema:
    """Return a schema with changes: objects are merged, null removes, and everything else is replaced."""
    merged = dict(base)
    for key, change in changes.items():
        if change is None and key != "default":
            merged.pop(key, None)
        elif isinstance(change, dict) and key != "default":
            merged[key] = _laid_over(merged.get(key, {}), change)
        else:
            merged[key] = change
    return merged


def service_settings() -> Schema:
    """Return the schema of the service's settings without references."""
    schema = Settings.model_json_schema()
    return _laid_over(_inlined(schema, schema["$defs"]), {"$defs": None, "required": None, "description": None})


def _inlined(schema: Any, definitions: dict[str, Schema]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        definition = definitions[reference.rpartition("/")[2]]
        # The default of a group is that of its members, unless these have none.
        own = {
            key: each
            for key, each in schema.items()
            if key != "$ref" and (key != "default" or "required" in definition)
        }
        return _inlined({**definition, **own}, definitions)
    if (options := schema.get("anyOf")) and options[-1] == {"type": "null"} and len(options) == 2:
        own = {key: each for key, each in schema.items() if key != "anyOf"}
        option = {**_inlined(options[0], definitions), **_inlined(own, definitions)}
        option["type"] = [option["type"], "null"]
        return option | ({"enum": [*option["enum"], None]} if "enum" in option else {})
    # A title of a schema is a text; a setting of that name would be a schema.
    dropped = {key for key in ("title", "format", "writeOnly") if not isinstance(schema.get(key), dict)}
    return {
        key: each if key in {"default", "enum"} else _inlined(each, definitions)
        for key, each in schema.items()
        if key not in dropped
    }


def is_group(schema: Schema) -> bool:
    """Return True for a group of values, which has no default of its own."""
    return "properties" in schema and "default" not in schema


def _strict(schema: Schema) -> Schema:
    """Return a schema without defaults, whose groups are closed."""
    closed = {"type": "object", "additionalProperties": False} if is_group(schema) and "type" not in schema else {}
    result = closed | {key: each for key, each in schema.items() if key != "default"}
    if "properties" in schema:
        result["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = _strict(schema[key])
    if "patternProperties" in schema:
        result["patternProperties"] = {name: _strict(each) for name, each in schema["patternProperties"].items()}
    return result


def _values(properties: dict[str, Schema], indent: str = "") -> list[str]:
    lines: list[str] = []
    for name, schema in properties.items():
        if not indent:
            lines.append("\n")
        if is_group(schema):
            lines += [f"{indent}{name}:\n", *_values(schema["properties"], f"{indent}  ")]
            continue
        comment = textwrap.wrap(sentence(schema), _WIDTH - 2 - len(indent))
        lines += [f"{indent}# {line}\n" for line in comment]
        value = yaml.safe_dump({name: schema["default"]}, sort_keys=False, width=_WIDTH)
        lines.append(textwrap.indent(value, indent))
    return lines


def _rows(properties: dict[str, Schema], prefix: str = "") -> list[str]:
    rows: list[str] = []
    for name, schema in properties.items():
        if is_group(schema):
            rows += _rows(schema["properties"], f"{prefix}{name}.")
        else:
            default = f" `{as_json(schema['default'])}`" if "default" in schema else ""
            meaning = sentence(schema).replace("|", "\\|")
            rows.append(f"| `{prefix}{name}` |{default} | {meaning} |")
    return rows


def as_json(value: Any) -> str:
    """Return a default as the tables show it."""
    return json.dumps(value)


def sentence(schema: Schema) -> str:
    """Return the description of a value."""
    description: str = schema["description"]
    return description if description.endswith(".") else f"{description}."


def _cluster_rows(properties: dict[str, Schema]) -> list[str]:
    (cluster,) = properties["settings"]["properties"]["clusters"]["patternProperties"].values()
    rows = _rows({name: {"default": ..., **each} for name, each in cluster["properties"].items() if "default" in each})
    required = {
        name: {**each, "properties": None} for name, each in cluster["properties"].items() if "default" not in each
    }
    return [f"| `{name}` | | {sentence(each)} Required. |" for name, each in required.items()] + rows


def _with_tables(text: str, properties: dict[str, Schema]) -> str:
    for name, rows in {"values": _rows(properties), "clusters": _cluster_rows(properties)}.items():
        head = f"| {'value' if name == 'values' else 'setting'} | default | meaning |\n|---|---|---|\n"
        before, marked, rest = text.partition(f"<!-- {name}: generated -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"README.md has no place for the table of {name}")
        text = "".join([before, marked, head, *(f"{row}\n" for row in rows), end, after])
    return text


def main() -> None:
    """Write all files."""
    for path, text in generate().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
