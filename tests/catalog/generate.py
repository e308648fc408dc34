"""Generate ``app/confplane/domain/catalog/*.json`` from Kafka's own classes.

One command, from the root of the repository, with a JDK and Maven on the path::

    python -m tests.catalog.generate

Maven fetches the broker's jar and what it stands on, of each release in :data:`VERSIONS`; ``Dump.java`` prints what the
config definitions of topics, brokers, producers, consumers, groups and client metrics say, and this module writes it
sorted. A definition that is the same in several releases is one line, with the first and the last of them. Nothing of
Kafka's documentation is taken over: ``descriptions.json`` beside it is written by hand. The few defaults that a Java
runtime decides (``ssl.protocol``, the key and trust manager algorithms) are those of OpenJDK 11 and later.
"""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.catalog.kafka_jars import said

VERSIONS: Final = ("3.9.1", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")
"""The versions of Kafka, ascending, one of each release. Kafka 3.9 is the last release with ZooKeeper."""
CATALOG: Final = Path(__file__).parents[2] / "app" / "confplane" / "domain" / "catalog"
ENTITIES: Final = ("topic", "broker", "producer", "consumer", "group", "client-metrics")

_LEVELS: Final = "metadata.version"
_AT_ONCE: Final = 2
"""Releases that are dumped at a time; each takes a JVM."""
_TIMEOUT_S: Final = 600
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?"
_RANGE: Final = re.compile(rf"\[(?:({_NUMBER}),)?\.\.\.(?:,({_NUMBER}))?\](?: or ({_NUMBER}))?")
_ONE_OF: Final = re.compile(r"(\(case insensitive\) |version )?\[([^\[\]]+)\]")
_BY_DURATION: Final = "by_duration:PnDTnHnMn.nS"
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


def generate(versions: tuple[str, ...] = VERSIONS) -> dict[str, str]:
    """Return file name -> the text that the file should have.

    Raises:
        ToolError: Maven or Java is missing or fails.
        ValueError: Kafka's classes say something that the catalog has no form for.
    """
    for version in versions:
        if not _VERSION.fullmatch(version):
            raise ValueError(f"{version!r} is not a version of Kafka, such as {VERSIONS[-1]}")
    releases = {version.rpartition(".")[0]: version for version in versions}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        dumps = dict(zip(releases, pool.map(_rows, versions), strict=True))
    levels: dict[str, str] = {}
    for rows in dumps.values():
        for level, name in (row[1:] for row in rows if row[0] == _LEVELS):
            if levels.setdefault(level, name) != name:
                raise ValueError(f"The metadata version {level} is {name} and {levels[level]}")
    known = {"releases": releases, "metadataVersions": levels}
    files = {"releases.json": f"{json.dumps(known, indent=2)}\n"}
    for entity in ENTITIES:
        by_release = {
            release: {row[1]: _entry(row[1:]) for row in rows if row[0] == entity} for release, rows in dumps.items()
        }
        files[f"{entity}.json"] = _written(entity, _runs(by_release))
    return files


def _rows(version: str) -> list[list[str]]:
    """Return the lines that ``Dump.java`` prints for a version, as fields."""
    lines = said(Path(__file__).with_name("Dump.java"), "kafka_2.13", version, timeout_s=_TIMEOUT_S).splitlines()
    if lines[0] != version:
        raise ValueError(f"Kafka {lines[0]} was run instead of {version}")
    return [line.split("\t") for line in lines[1:]]


def _runs(by_release: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the definitions of all releases by name, equal ones of consecutive releases as one."""
    releases = list(by_release)
    found = []
    for name in sorted({name for entries in by_release.values() for name in entries}):
        for entry, run_of in groupby(releases, key=lambda release: by_release[release].get(name)):
            if entry is None:
                continue
            of = list(run_of)
            bounds = {"from": of[0]} if of[0] != releases[0] else {}
            bounds |= {"to": of[-1]} if of[-1] != releases[-1] else {}
            found.append(entry | bounds)
    return found


def _written(entity: str, configs: list[dict[str, Any]]) -> str:
    """Write one config a line, so that a new Kafka version reads well as a diff."""
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in configs)
    return f'{{\n  "entity": {json.dumps(entity)},\n  "configs": [\n{lines}\n  ]\n}}\n'


def _entry(fields: list[str]) -> dict[str, Any]:
    name, kind, importance, visibility, validator, has_default, default, *facts = fields
    entry: dict[str, Any] = {"name": name, "type": kind, "importance": importance}
    if has_default == "none":
        entry["required"] = True
    else:
        entry["default"] = default if has_default == "value" else None
    rule = _rule(name, validator)
    if "distinct" in facts:
        rule = (rule or {}) | {"distinct": True} | ({"nonEmpty": True} if "nonEmpty" in facts else {})
    if rule is not None:
        entry["valid"] = rule
    if visibility == "internal":
        entry["internal"] = True
    for fact in (fact for fact in facts if fact not in {"distinct", "nonEmpty"}):
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
        if values[-1] == _BY_DURATION:
            # Kafka lists them in another order from one release to the next.
            return {"offsetReset": sorted(values[:-1])}
        if match[1] == "version ":
            return {"version": values}
        # Kafka keeps these in a hash set: sorted, they do not depend on its order. They are compared in upper case.
        return {"oneOf": sorted(map(str.upper, values)), "ignoreCase": True} if match[1] else {"oneOf": values}
    raise ValueError(f"The validator of {name} is of a new form: {validator}")


def main() -> None:
    """Write the files."""
    for name, text in generate().items():
        (CATALOG / name).write_text(text)
        sys.stdout.write(f"{CATALOG / name} written\n")


if __name__ == "__main__":
    main()
