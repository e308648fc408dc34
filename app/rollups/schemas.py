"""The frames that the jobs read: the rows and the Spark schema of each.

Names are the trail's own (app/audit/tables.py). Times are UTC, and so is the session's time zone. A run is of one
cluster, so no frame names it.

The frames of Postgres are read at one moment, in one snapshot that all tasks share: they agree with each other, and a
task that runs twice reads the same. The znodes are read before that moment. A task that is run again, on another worker
say, may see a znode later than that moment: its ``mzxid`` is then above the option ``horizon``.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXTS: Final = ArrayType(StringType(), containsNull=False)
CONFIG: Final = MapType(StringType(), StringType(), valueContainsNull=True)
"""Config key -> stored string; null is a value that exists and is hidden."""


def _required(name: str, kind: object) -> StructField:
    return StructField(name, kind, nullable=False)  # type: ignore[arg-type]  # one of the types above


def _optional(name: str, kind: object) -> StructField:
    return StructField(name, kind, nullable=True)  # type: ignore[arg-type]  # one of the types above


COMMITTED: Final = "committed"
REJECTED: Final = "rejected"
OPEN: Final = "open"
"""The outcome of a change without one as of the run: applied, or not, or yet to be."""

CHANGES: Final = StructType(
    [
        _required("change_id", StringType()),
        _required("attempt", IntegerType()),
        _required("position", IntegerType()),
        _required("kind", StringType()),
        _required("created_at", TimestampType()),
        _required("recorded_at", TimestampType()),
        _required("principal", StringType()),
        _required("source", StringType()),
        _required("request_id", StringType()),
        _optional("reason", StringType()),
        _optional("ticket", StringType()),
        _optional("writes", IntegerType()),
        _required("entity_id", StringType()),
        _required("facet", StringType()),
        _required("path", StringType()),
        _optional("version_read", IntegerType()),
        _optional("czxid_read", LongType()),
        _required("keys", TEXTS),
        _required("ops", StringType()),
        _required("before", CONFIG),
        _required("after", CONFIG),
        _required("outcome", StringType()),
        _optional("revision", LongType()),
        _optional("time", TimestampType()),
        _optional("version", IntegerType()),
        _optional("error_code", IntegerType()),
        _optional("error", StringType()),
        _optional("concluded_at", TimestampType()),
    ]
)
"""One row per change and entity: of the attempt that the outcome names, or of the last one where there is no outcome.

====================== ================================================================================================
``change_id``          UUIDv7 as text; the order of the texts is that of time
``attempt, position``  the number of the attempt; the entity's place in an atomic batch, from 0
``kind``               ``change``; ``import`` and ``observed``: followed from a Kafka cluster; ``external``: made past
                       this service, and found by the recorder
``created_at``         the time in the change id (the process's clock; of an external change ZooKeeper's), milliseconds
``recorded_at``        the time of the intent's write by Postgres's clock; of an external change maybe much later
``writes``             of an external change, the least number of its writes
``entity_id``          ``user=alice,client-id=billing``; see app/rollups/columns.py for its parts
``facet``              ``client-quotas``, ``client-configs``, ``configs``; ``clients``: quotas and client configs of one
                       znode; ``node`` of external changes: all of it; or ``cluster`` of freezes and layouts, whose
                       entity id is no entity
``path``               the znode, below the chroot; ``/confplane/client-configs/...`` is the separate tree
``version_read``       its version before the change, null where it was absent; ``czxid_read`` the znode's czxid
``keys``               the keys whose values differ
``ops``                the ops asked for, JSON as in the trail
``before, after``      the znode's whole map. Null values: secrets and keys of no facet
``outcome``            ``committed``, ``rejected`` or ``open``
``revision, time``     zxid and ZooKeeper's time of a committed change
``version``            the znode's version that the change gave it; null where it was deleted
``concluded_at``       the time of the outcome's write
====================== ================================================================================================
"""

REGISTRATION_EVENTS: Final = StructType(
    [
        _required("id", LongType()),
        _required("event", StringType()),
        _optional("entity_id", StringType()),
        _optional("software_name", StringType()),
        _optional("software_version", StringType()),
        _optional("supported_configs", TEXTS),
        _optional("seen_at", TimestampType()),
        _required("recorded_at", TimestampType()),
    ]
)
"""One row per event, in the order of ``id``: ``seen`` (at most one a day and registration), or ``cleared``, which hides
all ``seen`` with lower ids of that entity, or of the whole cluster where ``entity_id`` is null."""

REGISTRATIONS: Final = StructType(
    [
        _required("entity_id", StringType()),
        _required("software_name", StringType()),
        _required("software_version", StringType()),
        _required("supported_configs", TEXTS),
        _required("first_seen", TimestampType()),
        _required("last_seen", TimestampType()),
    ]
)
"""One row per entity, software, version and set of supported configs (sorted) that is not cleared: the result of
:func:`app.rollups.registered.current` for the events. Entities are ``user=`` or ``user=,client-id=``."""

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
runs with, and the keys that it refuses. Clients say so of themselves. Reports are forgotten, so of an earlier moment,
and in a lake, there are none."""

ZNODES: Final = StructType(
    [
        _required("tree", StringType()),
        _required("path", StringType()),
        _optional("entity_id", StringType()),
        _required("config", CONFIG),
        _required("fingerprints", CONFIG),
        _required("version", IntegerType()),
        _required("czxid", LongType()),
        _required("mzxid", LongType()),
        _required("mtime", TimestampType()),
        _optional("defect", StringType()),
        _required("undecodable", BooleanType()),
        _required("forbidden", BooleanType()),
    ]
)
"""One row per znode of an entity, of both trees.

================ ======================================================================================================
``tree``         ``/config`` or ``/confplane/client-configs``
``path``         of the znode, below the chroot, tree included
``entity_id``    null where the path is none that Kafka would spell so; no request reaches such a node
``config``       the stored map; null values: secrets, and keys that belong to no facet (SCRAM credentials among them)
``fingerprints`` sensitive key -> keyed fingerprint (16 hex digits), null where no secret of the encoder is known
``version``      and ``czxid``, ``mzxid``, ``mtime``: the Stat
``defect``       the reason why the content can't be read or written back, as the rest of "The znode <path> ..."
``undecodable``  true where the content can't be read at all, and ``config`` is empty
``forbidden``    true where this service may not read the node; all except the path is unknown (empty, -1, or the epoch)
================ ======================================================================================================
"""

OTHER_ZNODES: Final = StructType(
    [ZNODES[name] for name in ("tree", "entity_id", "config", "fingerprints", "undecodable", "forbidden")]
)
"""Znodes of another cluster as they are, or of the same cluster at an earlier time, by the trail
(app/rollups/past.py). Fingerprints are made under the name of the run's cluster. Of an earlier time an entity whose
content is not known is ``undecodable``."""

STATES: Final = StructType(
    [
        _required("tree", StringType()),
        _required("entity_id", StringType()),
        _required("present", BooleanType()),
        _required("czxid", LongType()),
        _required("version", IntegerType()),
        _required("mzxid", LongType()),
        _required("content", CONFIG),
    ]
)
"""One row per entity that the recorder has a state of (``entity_states``): the last state that the trail explains.
Empty where the recorder never ran. Columns as of ``entity_states``; of an absent entity ``mzxid`` is a revision at
which it was absent. Null values of ``content``: secrets, and keys of no facet."""

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
