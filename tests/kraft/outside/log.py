"""The metadata log of a test's cluster for the check of the trail, read by Kafka's own classes from the files of a node."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.devstack.java import find_java
from confplane.domain.entities import Entity
from tests.kraft.outside.trail_check import Happening, Kind
from tests.support.java import java_environment, quick_java
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tests.interop.admin import Admin
    from tests.support.kraft import KraftCluster, KraftNode

_SOURCE: Final = Path(__file__).with_name("Records.java")
_TYPES: Final = {2: "topic", 4: "broker", 16: "client-metrics", 32: "group"}
"""Numbers of config resources (``ConfigResource.Type``)."""
_READ_S: Final = 300
_MARK: Final = "the last write"
_MARK_KEY: Final = "producer_byte_rate"
_MARKED_S: Final = 120.0


def records(class_path: str, nodes: Sequence[KraftNode]) -> list[list[dict[str, Any]]]:
    """Return the records about configs and topics that each node has on its disk; the last ones may be uncommitted."""
    files = [str(file) for node in nodes for file in sorted(node.metadata_log().glob("*.log"))]
    options = [*quick_java(), "-Dstdout.encoding=UTF-8"]
    done = subprocess.run(
        [str(find_java()), *options, "-cp", class_path, str(_SOURCE), *files],
        capture_output=True, check=False, timeout=_READ_S, env={**java_environment(), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    found: dict[Path, list[dict[str, Any]]] = {node.metadata_log(): [] for node in nodes}
    for line in map(json.loads, done.stdout.decode().splitlines()):
        if "file" in line:
            of_node = found[Path(line["file"]).parent]
        else:
            of_node.append(line)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Mark:
    """The last write of a test, which comes after all other writes."""

    entity: str
    key: str
    value: str


def mark(admin: Admin) -> Mark:
    """Make a last write, with a value that was never there."""
    value = float(time.time_ns() // 1000)
    end = time.monotonic() + _MARKED_S
    while (outcome := admin.alter_quotas(({"user": _MARK}, [(_MARK_KEY, value)]))[0])["code"]:
        # After a failover the cluster may refuse for a moment.
        assert time.monotonic() < end, outcome
        time.sleep(0.2)
    return Mark(Entity.of(user=_MARK).id, _MARK_KEY, str(value))


def log_up_to(
    last: Mark,
    cluster: KraftCluster,
    class_path: str,
    *,
    begun: Mark | None = None,
    beyond: Collection[str] = (),
    unshown: Collection[str] = (),
) -> list[Happening]:
    """Return what happened up to a mark, after another one if given, on which all nodes have to agree.

    ``beyond`` and ``unshown`` are those of :func:`happenings`.
    """

    def marked() -> list[list[Happening]] | None:
        logs = []
        for each in records(class_path, cluster.nodes):
            found = happenings(each, beyond=beyond, unshown=unshown)
            logs.append(found[0 if begun is None else _position_after(found, begun) : _position_after(found, last)])
        return logs if all(logs) else None

    logs: list[list[Happening]] = wait_for(marked, why="a node does not have the last write")
    assert all(each == logs[0] for each in logs)
    return logs[0]


def offset_of(found: Iterable[Happening], made: Mark) -> int:
    """Return the offset of a mark."""
    return next(each.offset for each in found if (each.entity, each.key, each.value) == _written(made))


def _position_after(found: Sequence[Happening], made: Mark) -> int:
    """Return the position after a mark; 0 if it is not there yet."""
    return next((at for at, each in enumerate(found, 1) if (each.entity, each.key, each.value) == _written(made)), 0)


def _written(made: Mark) -> tuple[str, str, str]:
    return made.entity, made.key, made.value


def happenings(
    found: Iterable[dict[str, Any]], *, beyond: Collection[str], unshown: Collection[str]
) -> list[Happening]:
    """Return what happened to the entities that znodes can hold.

    Args:
        found: The records.
        beyond: Names that no znode can have.
        unshown: Keys of secrets, and keys that no catalog has.
    """
    made: list[Happening] = []
    topics: dict[str, str] = {}
    for each in found:
        match each["kind"]:
            case "TopicRecord":
                topics[each["id"]] = each["name"]
                names: list[tuple[str, str | None]] = [("topic", each["name"])]
                kind = Kind.MADE
            case "RemoveTopicRecord":
                names, kind = [("topic", topics.pop(each["id"]))], Kind.GONE
            case "ConfigRecord":
                names = [(_TYPES[each["type"]], each["name"] or None)]
                kind = Kind.REMOVED if each["value"] is None else Kind.SET
            case "ClientQuotaRecord":
                names = [(entity_type, name) for entity_type, name in each["entity"]]
                kind = Kind.REMOVED if each["removed"] else Kind.SET
            case _:
                continue
        if any(name in beyond for _, name in names):
            continue
        key, value = each.get("key", ""), each.get("value")
        entity = Entity.from_components(names).id
        shown = key not in unshown
        made.append(
            Happening(each["offset"], each["at"], entity, kind, key, "" if value is None else str(value), shown)
        )
    return made
