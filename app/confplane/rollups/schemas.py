"""The frames that the jobs read: the rows and the Spark schema of each.

Fields of the frames that are exported have a comment, in Spark's own metadata: it describes the column to readers of
the files too. Names are the trail's own (audit/tables.py). Times are UTC, and so is the session's time zone. A run
is of one cluster, so no frame names it.

The frames of Postgres are read at one moment, in one snapshot that all tasks share: they agree with each other, and a
task that runs twice reads the same. The znodes are read before that moment. A task that is run again, for example on
another worker, may see a znode later than that moment: in that case its ``mzxid`` is above the option ``horizon``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from confplane.domain.rollups import ColumnType

if TYPE_CHECKING:
    from confplane.domain.rollups import Rollup

TEXTS: Final = ArrayType(StringType(), containsNull=False)
CONFIG: Final = MapType(StringType(), StringType(), valueContainsNull=True)
"""Config key -> stored string; null means that a value exists and is hidden."""
_TYPES: Final = {
    ColumnType.STRING: StringType(),
    ColumnType.INT: IntegerType(),
    ColumnType.LONG: LongType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.DATE: DateType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.TEXTS: TEXTS,
}


def row_type(rollup: Rollup) -> StructType:
    """Return the schema of a rollup's rows."""
    return StructType([StructField(each.name, _TYPES[each.type], each.nullable) for each in rollup.columns])


def _required(name: str, kind: object, comment: str = "") -> StructField:
    return _field(name, kind, comment, nullable=False)


def _optional(name: str, kind: object, comment: str = "") -> StructField:
    return _field(name, kind, comment, nullable=True)


def _field(name: str, kind: object, comment: str, *, nullable: bool) -> StructField:
    metadata = {"comment": comment} if comment else None
    return StructField(name, kind, nullable, metadata)  # type: ignore[arg-type]  # one of the types above


COMMITTED: Final = "committed"
REJECTED: Final = "rejected"
OPEN: Final = "open"
"""The outcome of a change without one at the time of the run: it may be applied, not applied, or still to be
applied."""

CHANGES: Final = StructType(
    [
        _required("change_id", StringType(), "UUIDv7; the order of the texts is that of time"),
        _required("attempt", IntegerType(), "The number of the attempt, from 1"),
        _required("position", IntegerType(), "The entity's place in an atomic batch, from 0"),
        _required(
            "kind",
            StringType(),
            "change; import and observed: followed from a Kafka cluster; external: made past the service, and found by"
            " the recorder; recovered: lost by the trail, and found again",
        ),
        _required(
            "created_at",
            TimestampType(),
            "The time in the change id, in milliseconds: by the process's clock, of an external change by ZooKeeper's",
        ),
        _required(
            "recorded_at",
            TimestampType(),
            "The time of the intent's write by Postgres's clock; of an external change maybe much later",
        ),
        _required("principal", StringType(), "The caller"),
        _required("source", StringType(), "The address of the caller"),
        _required("request_id", StringType(), "The id of the request; may be empty"),
        _optional("reason", StringType(), "The caller's reason"),
        _optional("ticket", StringType(), "The caller's ticket"),
        _optional("writes", IntegerType(), "Of an external change, the least number of its writes"),
        _required("entity_id", StringType(), "The entity, as in user=alice,client-id=billing"),
        _required(
            "facet",
            StringType(),
            "client-quotas, client-configs or configs; clients: quotas and client configs of one znode; node, of"
            " external changes: all of it; cluster, of freezes and layouts, whose entity id is not an entity",
        ),
        _required("path", StringType(), "The znode, below the chroot"),
        _optional("version_read", IntegerType(), "The znode's version before the change; null where it was absent"),
        _optional("czxid_read", LongType(), "The znode's czxid before the change; null where it was absent"),
        _required("keys", TEXTS, "The config keys whose values differ"),
        _required("ops", StringType(), "The ops that were requested, JSON"),
        _required("before", CONFIG, "The znode's whole map before; null values: secrets, and keys of no facet"),
        _required("after", CONFIG, "The znode's whole map after; null values: secrets, and keys of no facet"),
        _required("outcome", StringType(), "committed, rejected or open"),
        _optional("revision", LongType(), "The zxid of a committed change"),
        _optional("time", TimestampType(), "ZooKeeper's time of a committed change"),
        _optional(
            "version", IntegerType(), "The version that the change gave the znode; null where the znode was deleted"
        ),
        _optional("error_code", IntegerType(), "Kafka's error code of a rejected change"),
        _optional("error", StringType(), "The reason of a rejection"),
        _optional("concluded_at", TimestampType(), "The time of the outcome's write by Postgres's clock"),
    ]
)
"""One row per change and entity: of the attempt that the outcome names, or of the last one if there is none."""

REGISTRATION_EVENTS: Final = StructType(
    [
        _required("id", LongType(), "The number of the event, in the order of commits"),
        _required("event", StringType(), "seen; or cleared, which hides all seen with lower ids"),
        _optional("entity_id", StringType(), "The client; null of a cleared event of the whole cluster"),
        _optional("software_name", StringType(), "The name of the client's software"),
        _optional("software_version", StringType(), "The version of the client's software"),
        _optional("supported_configs", TEXTS, "The configs that the client supports"),
        _optional("seen_at", TimestampType(), "The time at which the client registered"),
        _required("recorded_at", TimestampType(), "The time of the write by Postgres's clock"),
    ]
)
"""One row per event, in the order of ``id``: ``seen`` (at most one a day and registration), or ``cleared``, which hides
all ``seen`` with lower ids of that entity, or of the whole cluster if ``entity_id`` is null."""

REFUSED_ATTEMPTS: Final = StructType(
    [
        _required("id", StringType()),
        _required("created_at", TimestampType()),
        _required("principal", StringType()),
        _optional("entity_id", StringType()),
        _required("keys", TEXTS),
        _required("error_code", IntegerType()),
        _required("count", IntegerType()),
    ]
)
"""One row per write that was refused before it was begun, or per sum of further ones of a minute. ``created_at`` is the
time in the ``id``. Rows expire after 90 days, and there are none in a lake."""

REPORTS: Final = StructType(
    [
        _required("entity_id", StringType()),
        _required("instance_id", StringType()),
        _required("software_name", StringType()),
        _required("software_version", StringType()),
        _required("applied_revision", LongType()),
        _required("refused_configs", TEXTS),
    ]
)
"""One row per running client that reported in the quarter of an hour before the moment: the revision whose configs it
uses, and the keys that it refuses. The reports are not verified. Reports expire, so there are none for an earlier
moment and in a lake."""

ZNODES: Final = StructType(
    [
        _required("tree", StringType(), "/config or /confplane/client-configs"),
        _required("path", StringType(), "The path, below the chroot, tree included"),
        _optional(
            "entity_id",
            StringType(),
            "The entity; null if Kafka would spell the path in another way, so that no request reaches the node",
        ),
        _required(
            "config",
            CONFIG,
            "The stored map; null values: secrets, and keys that belong to no facet (SCRAM credentials among them)",
        ),
        _required(
            "fingerprints",
            CONFIG,
            "Sensitive key to keyed fingerprint (16 hex digits); null where no secret of the encoder is known",
        ),
        _required("version", IntegerType(), "Version of the Stat"),
        _required("czxid", LongType(), "The zxid of the creation"),
        _required("mzxid", LongType(), "The zxid of the last write"),
        _required("mtime", TimestampType(), "ZooKeeper's time of the last write"),
        _optional(
            "defect",
            StringType(),
            "The reason why the content can't be read or written back, as the rest of: The znode PATH ...",
        ),
        _required("undecodable", BooleanType(), "True where the content can't be read at all, and config is empty"),
        _required(
            "forbidden",
            BooleanType(),
            "True where the service may not read the node; all except the path is unknown (empty, -1, or 1970)",
        ),
    ]
)
"""One row per znode of an entity, of both trees."""

OTHER_ZNODES: Final = StructType(
    [ZNODES[name] for name in ("tree", "entity_id", "config", "fingerprints", "undecodable", "forbidden")]
)
"""Current znodes of another cluster, or znodes of the same cluster at an earlier time, by the trail
(rollups/history.py). Fingerprints are made under the name of the run's cluster. At an earlier time, an entity whose
content is not known is ``undecodable``."""

STATES: Final = StructType(
    [
        _required("tree", StringType(), "/config or /confplane/client-configs"),
        _required("entity_id", StringType(), "The entity"),
        _required("present", BooleanType(), "True where the znode is there"),
        _required("czxid", LongType(), "The zxid of the creation"),
        _required("version", IntegerType(), "Version of the Stat"),
        _required("mzxid", LongType(), "The zxid of the last write; of an absent entity a revision of its absence"),
        _required("content", CONFIG, "The stored map; null values: secrets, and keys of no facet"),
    ]
)
"""One row per entity that the recorder has a state of (``entity_states``): the last state that the trail explains.
Empty if the recorder never ran."""

TOPICS: Final = StructType([_required("entity_id", StringType()), _required("polled_at", TimestampType())])
"""One row per topic of a Kafka cluster without ZooKeeper, with or without configs, as the leader listed them at
``polled_at``, the same in all rows (``observed_topics``). Empty for other clusters, and in a lake. As ``other_topics``
the topics of another cluster; empty for an earlier time."""

USAGE: Final = StructType(
    [
        _required("time", TimestampType()),
        _optional("user", StringType()),
        _optional("client_id", StringType()),
        _required("metric", StringType()),
        _required("value", DoubleType()),
    ]
)
"""One row per measurement of one client on one broker.

================ ======================================================================================================
``time``         the time of the measurement; clients are added up where it is the same
``user``         the plain name of the principal, and ``client_id`` the plain client-id. One of them may be null or
                 empty, where it is not part of the measurement
``metric``       a quota key; rows of other metrics are left out
``value``        in the quota's unit, 0 or more
================ ======================================================================================================
"""
