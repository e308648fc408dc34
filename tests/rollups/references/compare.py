"""The reference of ``compare``: plain Python over the znodes of both sides, and over the rows of the trail."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, effective_broker, read_level
from confplane.domain.topics import effective_topic
from tests.rollups.references.integrity import tree_of
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Row = dict[str, Any]
HIDDEN = "what nobody is told"


def compare(here: Iterable[Row], there: Iterable[Row], other: str) -> set[tuple[Any, ...]]:
    """The rows of the job, in the order of its columns."""
    sides = [_entities(here), _entities(there)]
    rows: set[tuple[Any, ...]] = set()
    for entity_id in sorted(sides[0].keys() | sides[1].keys()):
        found = [side.get(entity_id, ({}, {}, True)) for side in sides]
        if not all(readable for _, _, readable in found):
            rows.add((entity_id, "", "unknown", None, None, None, None, None, other))
            continue
        if entity_id.startswith("topic=") and (entity_id in sides[0]) != (entity_id in sides[1]):
            kind = "only_here" if entity_id in sides[0] else "only_there"
            rows.add((entity_id, "", kind, None, None, None, None, None, other))
        configs = [config for config, _, _ in found]
        for key in sorted(configs[0].keys() | configs[1].keys()):
            difference = _kind(key, found)
            if difference:
                values = [part.get(key) for config, prints, _ in found for part in (config, prints)]
                same = _same(entity_id, key, configs, [side.get("broker", ({}, {}, True)) for side in sides])
                rows.add((entity_id, key, difference, *values, same, other))
    return rows


def znodes_at(changes: Iterable[Row], znodes: Iterable[Row], at: Any) -> Iterator[Row]:
    """Yield the znodes of a time; the changes of one path follow each other, in any order."""
    now = {(row["tree"], row["entity_id"]): row for row in znodes if row["entity_id"] is not None}
    committed = (
        row
        for row in changes
        if row["outcome"] == "committed" and row["entity_id"] != "freeze" and row["path"] != "/confplane/freeze"
    )
    for place, found in itertools.groupby(committed, key=lambda row: (tree_of(row["path"]), row["entity_id"])):
        current = now.pop(place, {"config": {}, "fingerprints": {}})
        history = sorted(found, key=lambda row: row["revision"])
        before, after = ([row for row in history if (row["time"] > at) is is_after] for is_after in (False, True))
        last = (
            (before[-1]["version"], before[-1]["after"]) if before else (after[0]["version_read"], after[0]["before"])
        )
        if last[0] is None:
            continue
        altered = {key for row in after for key in row["keys"]}
        prints = {
            key: None if key in altered else current["fingerprints"][key]
            for key, value in last[1].items()
            if value is None and (key in altered or key in current["fingerprints"])
        }
        is_defective = bool(before) and before[-1]["kind"] == "external" and before[-1]["reason"] is not None
        flags = {"undecodable": is_defective and not last[1], "forbidden": False}
        yield {"tree": place[0], "entity_id": place[1], "config": last[1], "fingerprints": prints, **flags}
    for current in now.values():
        yield {**current, "undecodable": current["undecodable"] or current["mtime"] > at}


def _entities(rows: Iterable[Row]) -> dict[str, tuple[dict[str, Any], dict[str, Any], bool]]:
    found: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {}
    for row in sorted(rows, key=lambda row: str(row["tree"])):  # /config is first
        if row["entity_id"] is not None:
            config, prints, readable = found.get(row["entity_id"], ({}, {}, True))
            readable = readable and not row["undecodable"] and not row["forbidden"]
            prints = {key: value for key, value in prints.items() if key not in row["config"]}
            found[row["entity_id"]] = ({**config, **row["config"]}, {**prints, **row["fingerprints"]}, readable)
    return found


def _kind(key: str, found: list[tuple[dict[str, Any], dict[str, Any], bool]]) -> str | None:
    (here, prints, _), (there, other_prints, _) = found
    if key not in there:
        return "only_here"
    if key not in here:
        return "only_there"
    if here[key] is not None or there[key] is not None:
        return None if here[key] == there[key] else "differs"
    if key not in prints and key not in other_prints:
        return None
    return None if prints.get(key) is not None and prints.get(key) == other_prints.get(key) else "secret"


def _same(entity_id: str, key: str, configs: Sequence[Mapping[str, Any]], defaults: Sequence[Any]) -> bool | None:
    kind = entity_id.partition("=")[0]
    if kind not in {"broker", "topic"}:
        return None
    told = []
    for config, (default, _, _) in zip(configs, defaults, strict=True):
        of_all = read_level(ZOOKEEPER, _texts({} if entity_id == "broker" else default), DynamicLevel.DEFAULT)[0]
        if key in config and config[key] is None:
            return None
        own = {key: config[key]} if key in config else {}
        if kind == "broker":
            found = effective_broker(key, ConfigLevels(ZOOKEEPER, default=of_all, broker=own))
            is_set = key in own or key in of_all
        else:
            found = effective_topic(key, own, ConfigLevels(ZOOKEEPER, default=of_all))
            is_set = key in own
        if found.sensitive and is_set:
            return None
        told.append(None if found.sensitive else found.value)
    return bool(told[0] == told[1])


def _texts(config: Mapping[str, str | None]) -> dict[str, str]:
    return {key: HIDDEN if value is None else value for key, value in config.items()}
