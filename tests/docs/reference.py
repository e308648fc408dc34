"""The reference pages of the documentation site, generated from the code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import typer
import yaml

from confplane.api.problems import TABLE
from confplane.cli.commands import cli
from confplane.telemetry import METRICS, PREFIX
from tests.deploy import generate
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VARIABLE: Final = "CONFPLANE_"


SOURCES: Final = {
    "api.md": "openapi/openapi.yaml",
    "commands.md": "app/confplane/cli/commands.py",
    "errors.md": "app/confplane/api/problems.py",
    "metrics.md": "app/confplane/telemetry.py",
    "settings.md": "app/confplane/settings.py",
}
"""Page -> the file that it is generated from. Documents link to the file, pages of the site to the page."""

_SETTINGS: Final = """\
# Settings

`confplane serve` and all commands on the stores read a YAML file, which `CONFPLANE_SETTINGS_FILE` or `--settings-file`
names, and variables of the environment, which take precedence. Groups are joined by two underscores in the name of a
variable. The variable of a list or an object has JSON.

[Run it in production](production.md) has an example. A setting without a default is required.

## The service

"""
_CLUSTERS: Final = """
## Each cluster

Below `clusters.NAME`, for example `clusters.payments.zookeeper`. A name has lower-case letters, digits and hyphens.

"""
_ISSUERS: Final = """
## Each issuer

Of the list `oidc` ([authentication](authentication.md)).

"""
_METRICS: Final = """\
# Metrics

`GET /metrics` of each process. [Operations](operations.md#metrics) has the metrics to watch and the alerts. Metrics of
the leader's work are exported by the leader alone.

"""
_ERRORS: Final = """\
# Errors

Each error is `application/problem+json` (RFC 9457). `type` ends with the name below, `detail` is a sentence for a
person, and `errors` has the parts of the request that are meant. `kafkaErrorName` and `kafkaErrorCode` are Kafka's. If
`retriable` is true, the same request may succeed later, after `Retry-After` if the response has it.

"""
_COMMANDS: Final = """\
# Commands

[The command line](cli.md) shows how to use them. `confplane COMMAND --help` prints the same texts.

"""
_API: Final = """\
# HTTP API

Every operation with its parameters. A service shows the same with all schemas, to try out, at `/docs`. [Names in
URLs](names.md) explains `{id}`, and [errors](errors.md) lists the errors.

"""


def pages() -> dict[str, str]:
    """Return file name -> Markdown of each page."""
    return dict(zip(SOURCES, (api(), commands(), errors(), metrics(), settings()), strict=True))


def _cell(text: str) -> str:
    linked = re.sub(r"\(docs/([a-z0-9-]+)\.md\)", r"([\1](\1.md))", " ".join(text.split()))
    return linked.replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def settings() -> str:
    """Return the page of the service's settings."""
    properties = generate.service_settings()["properties"]
    cluster = properties.pop("clusters")
    parts = [_SETTINGS, _table(("setting", "variable", "default", "meaning"), [*_settings(properties)]), _CLUSTERS]
    ((_, members),) = cluster["patternProperties"].items()
    parts.append(
        _table(("setting", "default", "meaning"), [(a, c, d) for a, _, c, d in _settings(members["properties"])])
    )
    parts.append(_ISSUERS)
    issuer = properties["oidc"]["items"]["properties"]
    parts.append(_table(("setting", "default", "meaning"), [(a, c, d) for a, _, c, d in _settings(issuer)]))
    return "".join(parts)


def _settings(properties: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    for name, schema in properties.items():
        path = f"{prefix}{name}"
        if generate.is_group(schema):
            yield from _settings(schema["properties"], f"{path}.")
            continue
        variable = _VARIABLE + path.replace(".", "__").upper()
        default = f"`{generate.as_json(schema['default'])}`" if "default" in schema else ""
        yield f"`{path}`", f"`{variable}`", default, generate.sentence(schema)
        if schema.get("default", ...) is None and "properties" in schema:
            yield from _settings(schema["properties"], f"{path}.")


def metrics() -> str:
    """Return the page of all metrics."""
    rows = []
    for name, metric in METRICS.items():
        kind = metric.kind(name, metric.text).type
        suffix = "_total" if kind == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append((f"`{PREFIX}{name}{suffix}`", kind, labels, f"{metric.text}."))
    return _METRICS + _table(("metric", "kind", "labels", "meaning"), rows)


def errors() -> str:
    """Return the page of all errors."""
    rows = [
        (
            f"`{problem.slug}`",
            str(problem.status),
            problem.title,
            f"`{error.code.name}`",
            "yes" if error.retriable else "",
        )
        for error, problem in sorted(TABLE.items(), key=lambda each: (each[1].status, each[1].slug))
    ]
    return _ERRORS + _table(("type", "status", "title", "kafkaErrorName", "retriable"), rows)


def commands() -> str:
    """Return the page of all commands."""
    root: Any = typer.main.get_command(cli)
    context = root.make_context("confplane", [], resilient_parsing=True)
    found = [*_commands(root, context)]
    index = [(f"[`{path}`](#{path.replace(' ', '-')})", _first_sentence(command.help)) for path, command, _ in found]
    sections = [_command(path, command, own) for path, command, own in found]
    return _COMMANDS + _table(("command", "purpose"), index) + "".join(sections)


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in group.list_commands(context):
        command = group.resolve_command(context, [name])[1]
        if command.hidden:
            continue
        own = type(context)(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from _commands(command, own)
        else:
            yield own.command_path, command, own


def _first_sentence(text: str | None) -> str:
    return re.split(r"(?<=\.)\s", (text or "").strip(), maxsplit=1)[0]


def _command(path: str, command: Any, context: Any) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [row for parameter in command.get_params(context) if (row := _parameter(parameter, context))]
    epilog = command.epilog or ""
    examples = "\n".join(re.findall(r"^ {4}(.+)$", epilog, re.MULTILINE))
    rest = [
        each
        for each in re.split(r"\n\n", epilog)
        if each.strip() and not each.startswith("    ") and each.strip() != "Examples:"
    ]
    parts = [f"\n## {path}\n\n```text\n{path} {usage}\n```\n\n{(command.help or '').strip()}\n"]
    if rows:
        parts.append("\n" + _table(("parameter", "meaning"), rows))
    if examples:
        parts.append(f"\n```text\n{examples}\n```\n")
    parts += [f"\n{each.strip()}\n" for each in rest]
    return "".join(parts)


def _parameter(parameter: Any, context: Any) -> tuple[str, str] | None:
    record = None if parameter.name == "help" else parameter.get_help_record(context)
    return None if record is None else (f"`{re.sub(r' <[a-z]+>$', '', record[0].strip())}`", record[1])


def api() -> str:
    """Return the page of all operations."""
    specification = yaml.load((ROOT / "openapi" / "openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)
    tagged: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag["name"]: [] for tag in specification["tags"]}
    for path, methods in specification["paths"].items():
        for method, operation in methods.items():
            if method in {"get", "put", "post", "patch", "delete"}:
                tagged[operation["tags"][0]].append((method.upper(), path, operation))
    parts = [
        _API,
        _table(
            ("tag", "operations about"),
            [(f"[{tag['name']}](#{tag['name']})", f"{tag['description']}.") for tag in specification["tags"]],
        ),
    ]
    for tag, operations in tagged.items():
        parts.append(f"\n## {tag}\n")
        parts += [_operation(specification, *each) for each in operations]
    return "".join(parts)


def _operation(specification: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"\n### {operation['operationId']}\n\n```text\n{method} {path}\n```\n\n{operation.get('summary', '').rstrip('.')}.\n"
    ]
    parameters = [_resolved(specification, each) for each in operation.get("parameters", ())]
    if parameters:
        rows = [
            (
                f"`{each['name']}`",
                each["in"],
                f"{each.get('description', '').rstrip('.')}."
                + (" Required." if each.get("required") and each["in"] != "path" else ""),
            )
            for each in parameters
        ]
        parts.append("\n" + _table(("parameter", "in", "meaning"), rows))
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if reference := content.get("schema", {}).get("$ref"):
            parts.append(f"\nThe body is a `{reference.rpartition('/')[2]}`.\n")
            break
    statuses = ", ".join(f"`{status}`" for status in operation["responses"])
    parts.append(f"\nStatus: {statuses}.\n")
    return "".join(parts)


def _resolved(specification: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    found: Any = specification
    for step in node["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return dict(found)
