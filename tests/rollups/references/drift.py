"""The effective values of brokers and topics of a made-up cluster, for the reference of ``drift``.

Of Kafka it knows what its documentation says of the configs that made-up clusters have, and it shares nothing with the
service: each config's type, its own default, and the broker config behind that of a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb

    Config = dict[str, str | None]


def _list(text: str) -> str:
    return ",".join(part.strip() for part in text.split(","))


def _number(text: str) -> str:
    return str(int(text))


def _as_it_is(text: str) -> str:
    return text.strip()


_BROKERS: Final[dict[str, tuple[Callable[[str], str], str | None]]] = {
    "log.cleaner.threads": (_number, "1"),
    "num.io.threads": (_number, "8"),
    "background.threads": (_number, "10"),
    "log.retention.ms": (_number, None),
    "message.max.bytes": (_number, "1048588"),
    "max.connections": (_number, "2147483647"),
}
"""Config -> the form of its values, and Kafka's default. All others are secrets."""
_TOPICS: Final[dict[str, tuple[Callable[[str], str], str, str | None]]] = {
    "retention.ms": (_number, "604800000", "log.retention.ms"),
    "cleanup.policy": (_list, "delete", None),
    "min.insync.replicas": (_number, "1", None),
    "max.message.bytes": (_number, "1048588", "message.max.bytes"),
    "retention.bytes": (_number, "-1", None),
    "segment.bytes": (_number, "1073741824", None),
    "compression.type": (_as_it_is, "producer", None),
}
"""Config -> the form of its values, Kafka's default, and the config of brokers that a made-up cluster may set instead.
All others are secrets."""


def fill(database: duckdb.DuckDBPyConnection) -> None:
    """Make the table ``effective`` out of ``znodes``, one row per entity and key that is set anywhere."""
    nodes = database.execute(
        "SELECT entity_id, config, fingerprints FROM znodes WHERE tree = '/config' AND NOT undecodable"
        " AND NOT forbidden AND (entity_id = 'broker' OR entity_id LIKE 'broker=%' OR entity_id LIKE 'topic=%')"
    ).fetchall()
    rows = list(_rows({entity_id: (dict(config), dict(prints)) for entity_id, config, prints in nodes}))
    names = ("entity_type", "entity_id", "config_key", "state", "value", "fingerprint", "own")
    columns = zip(*rows, strict=True)
    kinds = [pa.string()] * (len(names) - 1) + [pa.bool_()]
    found = {name: pa.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}
    database.register("found_effective", pa.table(found))
    database.execute("CREATE TABLE effective AS FROM found_effective")


def _rows(nodes: dict[str, tuple[Config, Config]]) -> Iterator[tuple[object, ...]]:
    default, _ = nodes.pop("broker", ({}, {}))
    for kind, defaults in (("broker", default), ("topic", {})):
        of_kind = {entity_id: found for entity_id, found in nodes.items() if entity_id.startswith(f"{kind}=")}
        keys = sorted({*defaults, *(key for config, _ in of_kind.values() for key in config)})
        for entity_id, (config, prints) in of_kind.items():
            for key in keys:
                is_own = key in config
                known = key in (_BROKERS if kind == "broker" else _TOPICS)
                if known:
                    value = _on_broker(key, config, default) if kind == "broker" else _on_topic(key, config, default)
                    state, fingerprint = "none" if value is None else "value", None
                else:
                    value, state = None, "secret" if is_own else "none"
                    fingerprint = prints.get(key) if is_own else None
                yield kind, entity_id, key, state, value, fingerprint, is_own


def _on_broker(key: str, config: Config, default: Config) -> str | None:
    form, of_kafka = _BROKERS[key]
    text = config.get(key, default.get(key, of_kafka))
    return None if text is None else form(text)


def _on_topic(key: str, config: Config, default: Config) -> str:
    form, of_kafka, behind = _TOPICS[key]
    return form(config.get(key) or default.get(behind or "") or of_kafka)
