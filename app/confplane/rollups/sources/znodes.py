"""The Spark data source of ZooKeeper: the znodes of all entities, in parts of even size."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from confplane.crypto import ConfigFingerprinter, KafkaCipher, Keyring
from confplane.domain.broker_keys import is_password, is_sensitive
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity, EntityType
from confplane.domain.facets import Tree
from confplane.domain.redaction import facets_by_tree, redactor, storable
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.rollups.sources.arrow import map_array
from confplane.store.scan import Scanner
from confplane.store.znodes import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from confplane.domain.changes import Node
    from confplane.domain.definitions import Catalog
    from confplane.rollups.origin import Origin
    from confplane.settings import ClusterSettings
    from confplane.store.scan import EntityZnode

    Config = Mapping[str, str | None]

NAME: Final = "confplane_znodes"

ENTITIES: Final = 20_000
"""Entities of a part of a large tree, without pairs of a user and a client-id: about four seconds of reading."""
FEWEST_ENTITIES: Final = 1_000
"""The minimum number of entities of a part: fewer are not worth a separate session."""
_BATCH: Final = 10_000

_MICROSECONDS: Final = 1_000
_UNKNOWN: Final = -1


class ZnodesSource(DataSource):
    """The frame ``znodes``, or some of its columns.

    Its class has ``origin`` (rollups/source_binding.py). Options: ``floor``, a zxid that each server must have reached
    before it is read; ``parallelism``, the number of concurrent tasks; ``release``, that of the cluster's Kafka, whose
    catalog determines which values are secrets; ``fingerprinted_as``, the name of the cluster whose fingerprints can be
    compared with those of the frame.

    A task has its own ZooKeeper session, which creates nothing. Values of secrets are distinguished by fingerprints,
    made where they are read. The files for this, the encoders' secrets and ZooKeeper's credentials, must be on each
    worker under the path that the settings name; the encoders' secrets only if ``fingerprints`` are among the columns.
    """

    origin: Origin

    @classmethod
    def name(cls) -> str:
        """Return the name of the source, without bound values."""
        return NAME

    def reader(self, schema: StructType) -> _ZnodeReader:
        """Return the reader of a schema's columns."""
        options = self.options
        return _ZnodeReader(
            self.origin,
            schema,
            fingerprinted_as=options["fingerprinted_as"],
            release=options["release"],
            floor=int(options["floor"]),
            parallelism=int(options["parallelism"]),
        )


def znodes_options(floor: int, parallelism: int, release: str, fingerprinted_as: str) -> dict[str, Any]:
    """Return the options; see :class:`ZnodesSource`."""
    return {
        "floor": str(floor), "parallelism": str(parallelism), "release": release, "fingerprinted_as": fingerprinted_as
    }  # fmt: skip


@dataclass
class _ZnodePartition(InputPartition):
    paths: list[tuple[Tree, list[str]]]


@dataclass
class _ZnodeReader(DataSourceReader):
    origin: Origin
    schema: StructType
    fingerprinted_as: str
    release: str
    floor: int
    parallelism: int

    def partitions(self) -> list[InputPartition]:
        """Return the entities, in ranges of their names."""
        names = Scanner.of(self.origin.name, self.origin.cluster).names(self.floor)
        return [_ZnodePartition(paths) for paths in split_paths(names, self.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range on a worker."""
        assert isinstance(partition, _ZnodePartition)  # noqa: S101 - for the type checker
        scanner = Scanner.of(self.origin.name, self.origin.cluster)
        rows = ZnodeRows(self.fingerprinted_as, self.origin.cluster, self.release, self.schema)
        for tree, paths in partition.paths:
            found = scanner.read(tree, paths, self.floor)
            for start in range(0, len(found), _BATCH):
                yield rows.batch(found[start : start + _BATCH])


def split_paths(
    names: Mapping[tuple[Tree, str], Sequence[str]], parallelism: int
) -> list[list[tuple[Tree, list[str]]]]:
    """Divide the children of several nodes into runs of even size. Each run has paths by tree."""
    paths = [(tree, f"{kind}/{name}") for (tree, kind), below in names.items() for name in below]
    count = len(paths)
    parts = int(max(1, count / ENTITIES, min(parallelism, count / FEWEST_ENTITIES)))
    edges = [count * part // parts for part in range(parts + 1)]
    return [
        [
            (tree, [path for _, path in run])
            for tree, run in itertools.groupby(paths[low:high], key=lambda place: place[0])
        ]
        for low, high in itertools.pairwise(edges)
    ]


class ZnodeRows:
    """Znodes as rows of the requested columns."""

    def __init__(self, name: str, cluster: ClusterSettings, release: str, schema: StructType) -> None:
        client_configs = ClientConfigsFacet(
            catalog_of(ON_ZOOKEEPER),
            extra_keys=cluster.dynamic_client_configs,
            min_session_timeout_ms=cluster.group_min_session_timeout_ms,
            max_session_timeout_ms=cluster.group_max_session_timeout_ms,
        )
        catalog = cluster.catalogs().of(release)
        self._redact = redactor(facets_by_tree(client_configs, ConfigsFacet(lambda: catalog)), lambda: catalog)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._secrets = SecretFingerprints(name, cluster, catalog) if "fingerprints" in self._schema.names else None

    def batch(self, found: Sequence[EntityZnode]) -> pa.RecordBatch:
        """Return one batch."""
        return pa.RecordBatch.from_arrays([self._column(field, found) for field in self._schema], schema=self._schema)

    def _column(self, field: pa.Field, found: Sequence[EntityZnode]) -> pa.Array:
        match field.name:
            case "tree":
                values: Iterable[Any] = (each.tree.value for each in found)
            case "path":
                values = (f"{each.tree.value}/{each.path}" for each in found)
            case "entity_id":
                values = (each.entity_id for each in found)
            case "config":
                return map_array((self._config(each) for each in found), field.type)
            case "fingerprints":
                return map_array((self._fingerprints(each) for each in found), field.type)
            case "version" | "czxid" | "mzxid":
                values = (_UNKNOWN if each.node is None else getattr(each.node, field.name) for each in found)
            case "mtime":
                values = (0 if each.node is None else each.node.mtime_ms * _MICROSECONDS for each in found)
            case "defect":
                values = (None if each.node is None else each.node.defect for each in found)
            case "undecodable":
                values = (each.node is not None and not readable(each.node) for each in found)
            case _:
                values = (each.node is None for each in found)
        return pa.array(list(values), field.type)

    def _config(self, found: EntityZnode) -> Config:
        node = found.node
        if node is None:
            return {}
        if found.entity_id is None:
            # The facet of its keys is unknown.
            return dict.fromkeys(map(storable, node.items[::2]))
        return self._redact(found.tree, node.id, node.config)

    def _fingerprints(self, found: EntityZnode) -> Config:
        if self._secrets is None or found.node is None or found.entity_id is None or found.tree is not Tree.CONFIG:
            return {}
        return self._secrets.fingerprints(found.entity_id, found.node)


class SecretFingerprints:
    """The fingerprints of brokers' secrets."""

    def __init__(self, name: str, cluster: ClusterSettings, catalog: Catalog) -> None:
        keyring = Keyring.from_settings(name, cluster.password_encoder)
        self._fingerprinter = ConfigFingerprinter(
            KafkaCipher(keyring), sensitive=lambda key: is_sensitive(catalog, key), encoded=is_password
        )
        self._configs = ConfigsFacet(lambda: catalog)

    def fingerprints(self, entity_id: str, node: Node) -> Config:
        """Return the fingerprint of each secret of a node."""
        if not entity_id.startswith(EntityType.BROKER):
            return {}
        broker = Entity.from_id(entity_id)
        secrets = {key: value for key, value in node.config.items() if self._configs.is_secret(broker, key)}
        number = broker.get(EntityType.BROKER)
        found = self._fingerprinter.fingerprints(None if number is None else int(number), secrets)
        return {storable(key): fingerprint for key, fingerprint in found.items()}
