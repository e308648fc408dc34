"""Generate ``app/confplane/kraft/wire/messages/`` from the definitions of messages inside Kafka's own jars.

One command, from the root of the repository, with Maven on the path::

    python -m tests.kraft.generate

Names, types, versions, tags and defaults are taken over, and no sentence of Kafka's. The table :data:`FILES` says which
messages are in which file, and which versions are known: those of brokers from 3.9 in KRaft mode to
:data:`KAFKA_VERSION`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.catalog.kafka_jars import class_path
from tests.support.formatting import formatted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KAFKA_VERSION: Final = "4.4.0"
FOLDER: Final = Path(__file__).parents[2] / "app" / "confplane" / "kraft" / "wire" / "messages"

_TIMEOUT_S: Final = 600
_ANY: Final = 32767

FILES: Final = {
    "cluster": {
        "DescribeCluster": (1, 2),
        "ListPartitionReassignments": (0, 0),
        "Metadata": (11, 13),
    },
    "configs": {
        "DescribeConfigs": (4, 4),
        "IncrementalAlterConfigs": (1, 1),
        "ListConfigResources": (0, 1),  # version 0 was named ListClientMetricsResources
    },
    "connection": {
        "ApiVersions": (0, 4),  # version 0 is what a broker that is older than a request answers with
        "SaslAuthenticate": (1, 2),
        "SaslHandshake": (1, 1),
    },
    "fetch": {"Fetch": (15, 18)},
    "quorum": {"DescribeQuorum": (1, 2)},
    "quotas": {
        "AlterClientQuotas": (0, 1),
        "DescribeClientQuotas": (0, 1),
    },
}
"""File -> API -> first and last version of the request and its answer."""
VERSIONS: Final = {api: span for apis in FILES.values() for api, span in apis.items()}
RECORDS: Final = (
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "EndTransactionRecord",
    "RemoveTopicRecord",
    "TopicRecord",
)
"""Records of ``__cluster_metadata``, each in version 0, in the file ``records``."""
_HIDDEN: Final = {("ConfigRecord", "Value"), ("IncrementalAlterConfigsRequest", "Value")}
"""Texts that may be passwords; bytes are hidden everywhere."""

# Of each primitive type: the annotation, and the method that reads and writes.
_PRIMITIVES: Final = {
    "bool": ("bool", "boolean"),
    **dict.fromkeys(("bytes", "records"), ("bytes", "binary")),
    **{kind: ("int", kind) for kind in ("int8", "int16", "uint16", "int32", "int64")},
    "float64": ("float", "float64"),
    "uuid": ("UUID", "uuid"),
    "string": ("str", "string"),
}


def generate() -> dict[Path, str]:
    """Return file -> text of each generated file.

    Raises:
        ToolError: Maven is missing or fails.
        ValueError: A definition has a form that this module does not know.
    """
    definitions = read_definitions(class_path("kafka-metadata", KAFKA_VERSION, timeout_s=_TIMEOUT_S))
    files = {
        file: {f"{api}{kind}": span for api, span in apis.items() for kind in ("Request", "Response")}
        for file, apis in FILES.items()
    }
    files["records"] = dict.fromkeys(RECORDS, (0, 0))
    modules = {"__init__.py": _package(files)}
    for file, wanted in files.items():
        own = _with_unique_structs([definitions[name] for name in wanted])
        modules[f"{file}.py"] = _module([_Message(definition, *wanted[definition["name"]]) for definition in own])
    with tempfile.TemporaryDirectory() as empty:
        return {FOLDER / name: text for name, text in formatted(modules, Path(empty)).items()}


def _with_unique_structs(definitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the name of the message in front of its own structs whose name occurs in another of the messages."""
    structs = {definition["name"]: _structs(definition) for definition in definitions}
    count = Counter(struct for names in structs.values() for struct in names)
    renamed = []
    for definition in definitions:
        text = json.dumps(definition)
        for struct in structs[definition["name"]]:
            if count[struct] > 1:
                text = re.sub(rf'("type": "(?:\[\])?){struct}"', rf'\g<1>{definition["name"]}{struct}"', text)
        renamed.append(json.loads(text))
    return renamed


def _structs(definition: dict[str, Any]) -> set[str]:
    types = {kind.removeprefix("[]") for kind in re.findall(r'"type": "([^"]+)"', json.dumps(definition))}
    common = {struct["name"] for struct in definition.get("commonStructs", [])}
    return types - common - {*_PRIMITIVES, definition["type"]}


def read_definitions(jars: str) -> dict[str, dict[str, Any]]:
    """Return name -> definition of each message in the jars of a class path."""
    found: dict[str, dict[str, Any]] = {}
    for jar in jars.split(":"):
        if re.search(r"/kafka-(clients|metadata)-\d", jar):
            with zipfile.ZipFile(jar) as opened:
                for name in opened.namelist():
                    if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                        text = re.sub(r"(?m)^\s*//.*$", "", opened.read(name).decode())
                        definition = json.loads(text)
                        found[definition["name"]] = definition
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _span(text: str) -> tuple[int, int]:
    """Return the first and last version of ``3``, ``3+`` or ``3-5``; ``none`` is an empty span."""
    if text == "none":
        return 1, 0
    low, dash, high = text.rstrip("+").partition("-")
    return int(low), int(high) if dash else _ANY if text.endswith("+") else int(low)


class _Message:
    """The classes of one message."""

    def __init__(self, definition: dict[str, Any], low: int, high: int) -> None:
        first, last = _span(definition["validVersions"])
        if not first <= low <= high <= last:
            raise ValueError(f"{definition['name']} has no versions {low} to {high}, but {first} to {last}")
        self.definition = definition
        self.name: str = definition["name"]
        self.low, self.high = low, high
        flexible = _span(definition["flexibleVersions"])
        self.flexible_from = flexible[0] if flexible[1] >= flexible[0] else None
        self.common: dict[str, list[dict[str, Any]]] = {
            item["name"]: item["fields"] for item in definition.get("commonStructs", [])
        }
        self.classes: dict[str, str] = {}
        self.span = low, high  # of the class that is being written
        self._class(self.name, definition["fields"], self.span, top=True)

    # -- classes

    def _class(self, name: str, fields: list[dict[str, Any]], span: tuple[int, int], *, top: bool = False) -> None:
        """Write the class of a struct that is there in a span of versions, behind the classes of its fields."""
        self.span = span
        fields = [item for item in fields if self._in_range(item["versions"])]
        for item in fields:
            struct = self._struct(item)
            if struct is not None and struct not in self.classes:
                first, last = _span(item["versions"])
                inner = max(first, span[0]), min(last, span[1])
                self._class(struct, item.get("fields") or self.common[struct], inner)
                self.span = span
        self.classes[name] = self._emitted(name, fields, top=top)

    def _emitted(self, name: str, fields: list[dict[str, Any]], *, top: bool) -> str:
        base = "Struct"
        if top:
            known = f"range({f'{self.low}, ' if self.low else ''}{self.high + 1})"
            base = f"Message, api_key={self.definition.get('apiKey')}, versions={known}, flexible_from={self.flexible_from}"
        lines = ["@dataclass(frozen=True, slots=True)", f"class {name}({base}):"]
        return "\n".join([*lines, *(map(self._declared, fields) if fields else ["    pass"]), ""])

    def _in_range(self, versions: str) -> bool:
        first, last = _span(versions)
        return max(first, self.span[0]) <= min(last, self.span[1])

    def _struct(self, item: dict[str, Any]) -> str | None:
        kind = str(item["type"]).removeprefix("[]")
        return None if kind in _PRIMITIVES else kind

    def _tagged(self, item: dict[str, Any]) -> bool:
        if "tag" not in item:
            return False
        if _span(item["taggedVersions"]) != _span(item["versions"]):
            raise ValueError(f"{item['name']} of {self.name} is tagged in some versions only")
        return True

    def _nullable(self, item: dict[str, Any]) -> bool:
        return self._in_range(item.get("nullableVersions", "none"))

    def _declared(self, item: dict[str, Any]) -> str:
        kind = str(item["type"])
        array, inner = kind.startswith("[]"), kind.removeprefix("[]")
        annotation, wire = _PRIMITIVES.get(inner, (inner, inner))
        if array:
            annotation = f"tuple[{annotation}, ...]"
        if nullable := self._nullable(item):
            annotation += " | None"
        first, last = _span(item["versions"])
        low, high = self.span
        if last < high:
            raise ValueError(f"{item['name']} of {self.name} is missing in later versions")
        default = self._default(item)
        arguments = [
            f'"{wire}"' if inner in _PRIMITIVES else wire,
            *([] if default is None else [f"default={default}"]),
            *(["array=True"] if array else []),
            *(["nullable=True"] if nullable else []),
            *([f"since={first}"] if first > low else []),
            *([f"tag={item['tag']}"] if self._tagged(item) else []),
            *(["ignorable=True"] if item.get("ignorable") and first > low else []),
            *(["hidden=True"] if inner in {"bytes", "records"} or (self.name, item["name"]) in _HIDDEN else []),
        ]
        return f"    {_snake(item['name'])}: {annotation} = wire({', '.join(arguments)})"

    def _default(self, item: dict[str, Any]) -> str | None:
        """Return the default of a field, or None if it is the usual one of its type."""
        kind, given = str(item["type"]), item.get("default")
        if given == "null":
            return "None"
        if given is None or kind not in _PRIMITIVES:
            return None
        match kind:
            case "bool":
                text, usual = str(given).capitalize(), "False"
            case "string":
                text, usual = json.dumps(given), '""'
            case _:
                text, usual = str(int(str(given), 0)), "0"
        return None if text == usual else text


def _module(messages: list[_Message]) -> str:
    body = "\n\n".join(text for message in messages for text in message.classes.values())
    lines = [
        f'"""Generated by tests/kraft/generate.py from the jars of Kafka {KAFKA_VERSION}; never edited by hand."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        *(["from typing import TYPE_CHECKING"] if ": UUID" in body else []),
        "",
        "from confplane.kraft.wire.message import Message",
        f"from confplane.kraft.wire.structs import {'Struct, ' if '(Struct)' in body else ''}wire",
        "",
        *(["if TYPE_CHECKING:", "    from uuid import UUID", ""] if ": UUID" in body else []),
        "",
        body,
    ]
    return "\n".join(lines) + "\n"


def _package(files: Mapping[str, Collection[str]]) -> str:
    imports = "\n".join(
        f"from confplane.kraft.wire.messages.{file} import {', '.join(f'{name} as {name}' for name in names)}"
        for file, names in files.items()
    )
    return (
        '"""Requests, answers and metadata records, generated by tests/kraft/generate.py; never edited by hand."""\n\n'
        f"{imports}\n"
    )


def main() -> None:
    """Write the files."""
    made = generate()
    for path in FOLDER.glob("*.py"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_text(text)
    sys.stdout.write(f"{len(made)} files written to {FOLDER}\n")


if __name__ == "__main__":
    main()
