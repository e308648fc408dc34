"""Generate ``app/confplane/kraft/wire/messages/`` from the definitions of messages inside Kafka's own jars.

The service writes requests, and reads answers and records. ``tests/kraft/messages.py`` has the other direction, for
doubles of brokers and for bytes beside those of other implementations; its table of fields is generated as well.

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
TABLE: Final = Path(__file__).with_name("messages.txt")

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
    "fetch_snapshot": {"FetchSnapshot": (0, 1)},
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
    "FeatureLevelRecord",
    "RemoveTopicRecord",
    "TopicRecord",
)
"""Records of ``__cluster_metadata``, each in version 0, in the file ``records``."""
_HIDDEN: Final = {("ConfigRecord", "Value"), ("IncrementalAlterConfigsRequest", "Value")}
"""Texts that may be passwords; bytes are hidden everywhere."""

# Of each primitive type: the annotation, the call that reads and writes, the default, the least size in bytes.
_PRIMITIVES: Final = {
    "bool": ("bool", "boolean", "False", 1),
    "int8": ("int", "int8", "0", 1),
    "int16": ("int", "int16", "0", 2),
    "uint16": ("int", "uint16", "0", 2),
    "int32": ("int", "int32", "0", 4),
    "int64": ("int", "int64", "0", 8),
    "float64": ("float", "float64", "0.0", 8),
    "uuid": ("UUID", "uuid", "ZERO_UUID", 16),
    "string": ("str", "string", '""', 1),
    "bytes": ("bytes", "binary", 'b""', 1),
    "records": ("bytes", "binary", 'b""', 1),
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
    lines: list[str] = []
    for file, wanted in files.items():
        own = _with_unique_structs([definitions[name] for name in wanted])
        messages = [_Message(definition, *wanted[definition["name"]]) for definition in own]
        modules[f"{file}.py"] = _module(messages)
        lines += [line for message in messages for line in message.structs.values()]
    with tempfile.TemporaryDirectory() as empty:
        made = {FOLDER / name: text for name, text in formatted(modules, Path(empty)).items()}
    return made | {TABLE: "\n".join(lines) + "\n"}


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


def _is_written(name: str) -> bool:
    """Return True for a message that the service writes, False for one that it reads."""
    return name.endswith("Request")


class _Message:
    """The classes of one message, in the direction that the service has, and its lines of the table."""

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
        self.structs: dict[str, str] = {}
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
        self.structs[name] = " ".join([self.name if top else f"{self.name}.{name}", *map(self._listed, fields)])

    def _emitted(self, name: str, fields: list[dict[str, Any]], *, top: bool) -> str:
        lines = ["@dataclass(frozen=True, slots=True)", f"class {name}{'(Message)' if top else ''}:"]
        if top:
            lines += [
                f'    NAME: ClassVar[str] = "{name}"',
                f"    API_KEY: ClassVar[int | None] = {self.definition.get('apiKey')}",
                f"    VERSIONS: ClassVar[range] = range({f'{self.low}, ' if self.low else ''}{self.high + 1})",
                f"    FLEXIBLE_FROM: ClassVar[int | None] = {self.flexible_from}",
                "",
            ]
        lines += [self._declared(item) for item in fields]
        if _is_written(self.name):
            lines += [
                "",
                f"    def {'_write' if top else 'write'}(self, out: Writer, version: int) -> None:",
                *_indented(self._writing(fields)),
            ]
        else:
            given = "Generator[None, None, Self]" if top else "Self"
            lines += [
                "",
                "    @classmethod",
                f"    def {'_steps' if top else 'read'}(cls, reader: Reader, version: int) -> {given}:",
                *_indented(self._reading(fields, top=top)),
            ]
        return "\n".join([*lines, ""])

    def _listed(self, item: dict[str, Any]) -> str:
        """Return a field in the form that tests/kraft/messages.py explains."""
        kind = str(item["type"])
        inner = kind.removeprefix("[]")
        text = f"{_snake(item['name'])}:{'[]' * kind.startswith('[]')}{_PRIMITIVES[inner][1] if inner in _PRIMITIVES else inner}"
        text += "?" if self._nullable(item) else ""
        text += f"@{item['versions']}" if self._conditions(item["versions"]) else ""
        return text + (f"#{item['tag']}" if self._tagged(item) else "") + ("~" if item.get("ignorable") else "")

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
        inner = kind.removeprefix("[]")
        annotation = _PRIMITIVES[inner][0] if inner in _PRIMITIVES else inner
        if kind.startswith("[]"):
            annotation = f"tuple[{annotation}, ...]"
        if self._nullable(item):
            annotation += " | None"
        default = self._default(item)
        if inner in {"bytes", "records"} or (self.name, item["name"]) in _HIDDEN:
            default = f"field(default={default}, repr=False)"
        return f"    {_snake(item['name'])}: {annotation} = {default}"

    def _default(self, item: dict[str, Any]) -> str:
        kind, given = str(item["type"]), item.get("default")
        if given is None or kind not in _PRIMITIVES:
            return "None" if given == "null" else self._default_of(kind)
        match kind, given:
            case "bool", _:
                return str(given).capitalize()
            case "string", text:
                return "None" if text == "null" else json.dumps(text)
        return str(int(str(given), 0))

    def _default_of(self, kind: str) -> str:
        """Return the value of a field whose definition names none."""
        if kind.startswith("[]"):
            return "()"
        return _PRIMITIVES[kind][2] if kind in _PRIMITIVES else f"{kind}()"

    def _conditions(self, versions: str) -> str:
        """Return the test for the versions of a field, "" where all known versions have the field."""
        first, last = _span(versions)
        low, high = self.span
        parts = ([f"version >= {first}"] if first > low else []) + ([f"version <= {last}"] if last < high else [])
        return " and ".join(parts)

    def _least(self, item: dict[str, Any]) -> int:
        """Return the least size of one element of an array, in bytes."""
        kind = str(item["type"]).removeprefix("[]")
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind][3]
        tags = self.flexible_from is not None and self.flexible_from <= self.low
        sizes = 1 if tags else 0
        for inner in item.get("fields") or self.common[kind]:
            everywhere = self._in_range(inner["versions"]) and not self._conditions(inner["versions"])
            if everywhere and not self._tagged(inner):
                struct = not str(inner["type"]).startswith("[]") and self._struct(inner) is not None
                sizes += self._least(inner) if struct else self._own_least(str(inner["type"]))
        return sizes

    def _own_least(self, kind: str) -> int:
        return 1 if kind.startswith("[]") else _PRIMITIVES[kind][3]

    # -- reading

    def _reading(self, fields: list[dict[str, Any]], *, top: bool) -> list[str]:
        body: list[str] = []
        plain = [item for item in fields if not self._tagged(item)]
        tagged = [item for item in fields if self._tagged(item)]
        pauses = False
        for item in plain:
            name, condition = _snake(item["name"]), self._conditions(item["versions"])
            reading = self._read_field(item, name, top=top)
            pauses = pauses or any("yield" in line for line in reading)
            if condition:
                body += self._absent(item, name) + [f"if {condition}:"] + ["    " + line for line in reading]
            else:
                body += reading
        if tagged:
            body += [line for item in tagged for line in self._absent(item, _snake(item["name"]))]
            body += ["for _ in range(reader.tag_count()):", "    tag, end = reader.tag()"]
            for index, item in enumerate(tagged):
                condition = self._conditions(item["versions"])
                test = f"tag == {item['tag']}" + (f" and {condition}" if condition else "")
                body.append(f"    {'el' if index else ''}if {test}:")
                body += ["        " + line for line in self._read_field(item, _snake(item["name"]), top=False)]
            body.append("    reader.leave_tag(end)")
        elif self.flexible_from is not None:
            body.append("reader.skip_tags()")
        if top and not pauses:
            body.append("yield")
        body.append(f"return cls({', '.join(_snake(item['name']) for item in fields)})")
        return body

    def _absent(self, item: dict[str, Any], name: str) -> list[str]:
        annotation = self._declared(item).partition(": ")[2].partition(" = ")[0]
        return [f"{name}: {annotation} = {self._default(item)}"]

    def _read_field(self, item: dict[str, Any], name: str, *, top: bool) -> list[str]:
        kind, nullable = str(item["type"]), self._nullable(item)
        if not kind.startswith("[]"):
            if kind not in _PRIMITIVES:
                return [f"{name} = {kind}.read(reader, version)"]
            call = _PRIMITIVES[kind][1]
            return [f"{name} = reader.{'nullable_' if nullable else ''}{call}()"]
        inner = kind.removeprefix("[]")
        one = f"reader.{_PRIMITIVES[inner][1]}()" if inner in _PRIMITIVES else f"{inner}.read(reader, version)"
        least = self._least(item)
        lines: list[str] = []
        if not nullable and not (top and inner not in _PRIMITIVES):
            return [f"{name} = tuple([{one} for _ in range(reader.count({least}))])"]
        count = "count"
        lines.append(f"{count} = reader.{'nullable_count' if nullable else 'count'}({least})")
        if top and inner not in _PRIMITIVES:
            lines.append(f"{name}_read = []")
            lines.append(f"for _ in range({count}):")
            lines += [f"    {name}_read.append({one})", "    yield"]
            value = f"tuple({name}_read)"
        else:
            value = f"tuple([{one} for _ in range({count})])"
        return [*lines, f"{name} = None if {count} < 0 else {value}" if nullable else f"{name} = {value}"]

    # -- writing

    def _writing(self, fields: list[dict[str, Any]]) -> list[str]:
        body: list[str] = []
        for item in fields:
            if not self._tagged(item):
                condition = self._conditions(item["versions"])
                writing = self._write_field(item, f"self.{_snake(item['name'])}", "out")
                if condition:
                    body += [f"if {condition}:"] + ["    " + line for line in writing] + self._refused(item)
                else:
                    body += writing
        tagged = [item for item in fields if self._tagged(item)]
        if tagged:
            body.append("tags: list[tuple[int, Writer]] = []")
            for item in tagged:
                name, condition = f"self.{_snake(item['name'])}", self._conditions(item["versions"])
                test = f"{condition} and {self._differs(item, name)}" if condition else self._differs(item, name)
                body += [f"if {test}:", "    tag = Writer()"]
                body += ["    " + line for line in self._write_field(item, name, "tag")]
                body.append(f"    tags.append(({item['tag']}, tag))")
                body += self._refused(item) if condition else []
            body.append("out.tags(*tags)")
        elif self.flexible_from is not None:
            body.append("out.tags()")
        return body

    def _differs(self, item: dict[str, Any], name: str) -> str:
        default = self._default(item)
        if default in {"None", "True", "False"}:
            return f"{name} is not {default}"
        return f"{name} != {default}"

    def _refused(self, item: dict[str, Any]) -> list[str]:
        """Return the refusal of a value that the version has no place for; Kafka calls other fields ignorable."""
        if item.get("ignorable"):
            return []
        name = f"self.{_snake(item['name'])}"
        message = f"this version has no place for {_snake(item['name'])}"
        return [f"elif {self._differs(item, name)}:", f'    raise ValueError("{message}")']

    def _write_field(self, item: dict[str, Any], name: str, out: str) -> list[str]:
        kind = str(item["type"])
        if not kind.startswith("[]"):
            if kind not in _PRIMITIVES:
                return [f"{name}.write({out}, version)"]
            return [f"{out}.{_PRIMITIVES[kind][1]}({name})"]
        inner = kind.removeprefix("[]")
        each = f"one_of_{name.removeprefix('self.')}"
        plain = inner in _PRIMITIVES
        one = f"{out}.{_PRIMITIVES[inner][1]}({each})" if plain else f"{each}.write({out}, version)"
        if self._nullable(item):
            size = f"None if {name} is None else len({name})"
            return [f"{out}.count({size})", f"for {each} in {name} or ():", f"    {one}"]
        return [f"{out}.count(len({name}))", f"for {each} in {name}:", f"    {one}"]


def _indented(lines: list[str]) -> list[str]:
    return [" " * 8 + line for line in lines]


def _module(messages: list[_Message]) -> str:
    body = _body(messages)
    reads = "Reader" in body
    runtime = [
        name for name in ("ZERO_UUID", "Writer") if name in body.replace("out: Writer", "").replace("[int, Writer]", "")
    ]
    typed = [name for name in ("Reader", "Writer") if name in body and name not in runtime]
    field = "from dataclasses import dataclass, field" if "field(" in body else "from dataclasses import dataclass"
    lines = [
        *_title(),
        field,
        f"from typing import TYPE_CHECKING, ClassVar{', Self' if reads else ''}",
        "",
        *([f"from confplane.kraft.wire.codec import {', '.join(runtime)}"] if runtime else []),
        "from confplane.kraft.wire.message import Message",
        "",
        "if TYPE_CHECKING:",
        *(["    from collections.abc import Generator"] if reads else []),
        *(["    from uuid import UUID"] if ": UUID" in body else []),
        "",
        f"    from confplane.kraft.wire.codec import {', '.join(typed)}",
        "",
        "",
        body,
    ]
    return "\n".join(lines) + "\n"


def _title() -> list[str]:
    return [
        f'"""Generated by tests/kraft/generate.py from the jars of Kafka {KAFKA_VERSION}; never edited by hand."""',
        "",
        "from __future__ import annotations",
        "",
    ]


def _body(messages: list[_Message]) -> str:
    return "\n\n".join(text for message in messages for text in message.classes.values())


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
    sys.stdout.write(f"{len(made)} files written to {FOLDER} and {TABLE}\n")


if __name__ == "__main__":
    main()
