"""Generate ``app/domain/catalog/*.json`` from Kafka's own classes.

One command, from the root of the repository, with a JDK and Maven on the path::

    python -m tests.catalog.generate [--kafka-version 3.9.1]

Maven fetches the broker's jar and what it stands on, ``Dump.java`` prints what the config definitions of topics, brokers,
producers and consumers say, and this module writes it sorted. Nothing of Kafka's documentation is taken over:
``descriptions.json`` beside it is written by hand. The few defaults that a Java runtime decides (``ssl.protocol``, the
key and trust manager algorithms) are those of OpenJDK 11 and later.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from tests.catalog.kafka_jars import class_path, run

KAFKA_VERSION: Final = "3.9.1"
CATALOG: Final = Path(__file__).parents[2] / "app" / "domain" / "catalog"
ENTITIES: Final = ("topic", "broker", "producer", "consumer")

_TIMEOUT_S: Final = 600
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?"
_RANGE: Final = re.compile(rf"\[(?:({_NUMBER}),)?\.\.\.(?:,({_NUMBER}))?\](?: or ({_NUMBER}))?")
_ONE_OF: Final = re.compile(r"(\(case insensitive\) |version )?\[([^\[\]]+)\]")
_NOT_PREFIXABLE: Final = frozenset(
    {"advertised.listeners", "listeners", "listener.security.protocol.map", "sasl.mechanism.inter.broker.protocol"}
)
"""Reconfigured with listeners, but about all of them at once: no listener looks for a form of its own."""


_NAMED_RULES: Final[dict[str, dict[str, Any] | None]] = {
    "": None,
    "non-null string": None,  # a string is never null, so this says nothing here
    "non-empty string": {"nonEmpty": True},
    "non-empty list": None,  # the quorum's addresses: they call themselves so, and accept their default, an empty one
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...": {"throttledReplicas": True},
}


def file_of(entity: str, version: str = KAFKA_VERSION) -> Path:
    """Return where the definitions for an entity are kept."""
    return CATALOG / f"{entity}-{version.rpartition('.')[0]}.json"


def generate(version: str = KAFKA_VERSION) -> dict[str, str]:
    """Return entity -> the JSON text that its file should have.

    Raises:
        ToolError: Maven or Java is missing or fails.
        ValueError: Kafka's classes say something that the catalog has no form for.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version of Kafka, such as {KAFKA_VERSION}")
    source = Path(__file__).with_name("Dump.java")
    jars = class_path("kafka_2.13", version, timeout_s=_TIMEOUT_S)
    lines = run("java", "-cp", jars, str(source), timeout_s=_TIMEOUT_S).splitlines()
    if lines[0] != version:
        raise ValueError(f"Kafka {lines[0]} was run instead of {version}")
    rows = [line.split("\t") for line in lines[1:]]
    return {
        entity: _dump(version, entity, [_entry(row[1:]) for row in rows if row[0] == entity]) for entity in ENTITIES
    }


def _dump(version: str, entity: str, configs: list[dict[str, Any]]) -> str:
    """Write one config a line, so that a new Kafka version reads well as a diff."""
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in configs)
    return (
        f'{{\n  "kafka": {json.dumps(version)},\n  "entity": {json.dumps(entity)},\n  "configs": [\n{lines}\n  ]\n}}\n'
    )


def _entry(fields: list[str]) -> dict[str, Any]:
    name, kind, importance, visibility, validator, has_default, default, *facts = fields
    entry: dict[str, Any] = {"name": name, "type": kind, "importance": importance}
    if has_default == "none":
        entry["required"] = True
    else:
        entry["default"] = default if has_default == "value" else None
    if (rule := _rule(name, validator)) is not None:
        entry["valid"] = rule
    if visibility == "internal":
        entry["internal"] = True
    for fact in facts:
        entry |= _fact(name, *fact.split("=", 1))
    return entry


def _fact(name: str, fact: str, value: str = "") -> dict[str, Any]:
    match fact:
        case "scope":
            return {} if value == "read-only" else {"scope": value}
        case "prefix":
            return {} if name in _NOT_PREFIXABLE else {"prefix": value}
        case "synonyms":
            pairs = [pair.split(":") for pair in value.split(",")]
            return {"synonyms": [[synonym, int(factor)] for synonym, factor in pairs]}
        case "group":
            return {"group": value.split(",")}
        case "dynamicOnly" | "prefixOnly" | "clusterLevel":
            return {fact: True}
    raise ValueError(f"A fact about {name} is of a new form: {fact}")


def _rule(name: str, validator: str) -> dict[str, Any] | None:
    if validator in _NAMED_RULES:
        return _NAMED_RULES[validator]
    if validator.startswith("The default value of -1 means"):
        # A function's own description: it accepts -1, and pools of at least one thread.
        return {"range": [1, None], "also": [-1]}
    if match := _RANGE.fullmatch(validator):
        minimum, maximum, also = (json.loads(bound) if bound else None for bound in match.groups())
        return {"range": [minimum, maximum]} | ({"also": [also]} if also is not None else {})
    if match := _ONE_OF.fullmatch(validator):
        values = match[2].split(", ")
        if match[1] == "version ":
            return {"version": values}
        # Kafka keeps these in a hash set: sorted, they do not depend on its order. They are compared in upper case.
        return {"oneOf": sorted(map(str.upper, values)), "ignoreCase": True} if match[1] else {"oneOf": values}
    raise ValueError(f"The validator of {name} is of a new form: {validator}")


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the catalog of one version of Kafka.")
    parser.add_argument("--kafka-version", default=KAFKA_VERSION, help=f"a release, {KAFKA_VERSION} by default")
    version = parser.parse_args().kafka_version
    for entity, text in generate(version).items():
        path = file_of(entity, version)
        path.write_text(text)
        sys.stdout.write(f"{path} written\n")


if __name__ == "__main__":
    main()
