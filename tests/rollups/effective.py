"""Configs of brokers and topics by the domain's own rules: the input of the references of ``drift`` and ``impact``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, effective_broker, read_level
from confplane.domain.topics import effective_topic
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from confplane.domain.broker_levels import EffectiveConfigEntry

Config = dict[str, str | None]
HIDDEN = "what nobody is told"


def fill(database: duckdb.DuckDBPyConnection) -> None:
    """Make the table ``effective`` out of ``znodes`` and ``topics``, one row per entity and key that is set anywhere."""
    nodes: dict[str, tuple[Config, Config]] = {
        entity_id: (config, fingerprints)
        for entity_id, config, fingerprints in database.execute(
            "SELECT entity_id, config, fingerprints FROM znodes WHERE tree = '/config' AND NOT undecodable"
            " AND NOT forbidden AND (entity_id = 'broker' OR entity_id LIKE 'broker=%' OR entity_id LIKE 'topic=%')"
        ).fetchall()
    }
    without_znode = "SELECT entity_id FROM topics WHERE entity_id NOT IN (SELECT entity_id FROM znodes"
    without_znode += " WHERE tree = '/config' AND entity_id IS NOT NULL)"
    nodes |= {entity_id: ({}, {}) for (entity_id,) in database.execute(without_znode).fetchall()}
    names = ("entity_type", "entity_id", "config_key", "state", "value", "fingerprint", "own")
    rows = list(_rows(nodes))
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    kinds = [pa.string()] * (len(names) - 1) + [pa.bool_()]
    found = pa.table({name: pa.array(columns[name], kind) for name, kind in zip(names, kinds, strict=True)})
    database.register("found_effective", found)
    database.execute("CREATE TABLE effective AS FROM found_effective")


def fill_broker_entries(database: duckdb.DuckDBPyConnection) -> None:
    """Make the table ``broker_entries`` out of ``znodes``: the entries that brokers do not ignore."""
    nodes = database.execute(
        "SELECT entity_id, config FROM znodes WHERE tree = '/config' AND NOT undecodable AND NOT forbidden"
        " AND (entity_id = 'broker' OR entity_id LIKE 'broker=%')"
    ).fetchall()
    database.execute("CREATE TABLE broker_entries (entity_id VARCHAR, config_key VARCHAR, value VARCHAR)")
    for entity_id, config in nodes:
        level = DynamicLevel.DEFAULT if entity_id == "broker" else DynamicLevel.BROKER
        for key in _counted(config, level):
            database.execute("INSERT INTO broker_entries VALUES (?, ?, ?)", (entity_id, key, config[key]))


def _rows(nodes: dict[str, tuple[Config, Config]]) -> Iterator[tuple[object, ...]]:
    default, default_prints = nodes.get("broker", ({}, {}))
    of_all = _counted(default, DynamicLevel.DEFAULT)
    brokers = {
        entity_id: (_counted(config, DynamicLevel.BROKER), prints)
        for entity_id, (config, prints) in nodes.items()
        if entity_id.startswith("broker=")
    }
    topics = {
        entity_id: (dict(_texts(config)), prints)
        for entity_id, (config, prints) in nodes.items()
        if entity_id.startswith("topic=")
    }
    keys = sorted({*of_all, *(key for config, _ in brokers.values() for key in config)})
    for entity_id, (config, prints) in brokers.items():
        for key in keys:
            found = effective_broker(key, ConfigLevels(ZOOKEEPER, default=of_all, broker=config))
            fingerprint = prints.get(key) if key in config else default_prints.get(key) if key in of_all else None
            yield _row("broker", entity_id, found, key in config, key in config or key in of_all, fingerprint)
    keys = sorted({key for config, _ in topics.values() for key in config})
    for entity_id, (config, prints) in topics.items():
        for key in keys:
            found = effective_topic(key, config, ConfigLevels(ZOOKEEPER, default=of_all))
            yield _row("topic", entity_id, found, key in config, key in config, prints.get(key))


def _row(
    kind: str,
    entity_id: str,
    found: EffectiveConfigEntry,
    own: bool,  # noqa: FBT001
    is_set: bool,  # noqa: FBT001
    fingerprint: str | None,
) -> tuple[object, ...]:
    if found.sensitive:
        return kind, entity_id, found.name, "secret" if is_set else "none", None, fingerprint if is_set else None, own
    return kind, entity_id, found.name, "none" if found.value is None else "value", found.value, fingerprint, own


def _counted(config: Config, level: DynamicLevel) -> dict[str, str]:
    return read_level(ZOOKEEPER, dict(_texts(config)), level)[0]


def _texts(config: Config) -> Iterator[tuple[str, str]]:
    return ((key, HIDDEN if value is None else value) for key, value in config.items())
