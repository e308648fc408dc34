"""The rollups and their columns, for the jobs, the API and the commands; independent of Spark.

The jobs (rollups/jobs) compute the rows, and define the exact meaning of each column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import EntityType
from confplane.domain.enums import StrEnum
from confplane.domain.quotas import QUOTA_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping


class ColumnType(StrEnum):
    """The type of a column; names are Spark's."""

    STRING = "string"
    INT = "int"
    LONG = "bigint"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TEXTS = "array<string>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    """The name in the job, in snake_case."""
    type: ColumnType
    description: str
    nullable: bool = False
    former: str = ""
    """The name until the version before, which JSON and filters still have; empty if it is the same."""

    @property
    def member(self) -> str:
        """The name in JSON, in camelCase."""
        first, *rest = self.name.split("_")
        return first + "".join(part.capitalize() for part in rest)

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which a reader may call it."""
        return (self.name, self.member, *([self.former] if self.former else []))

    @property
    def is_revision(self) -> bool:
        """True if the column contains zxids: 64 bits, which JSON readers may not support."""
        return self.type is ColumnType.LONG and self.name.endswith("revision")

    @property
    def is_number(self) -> bool:
        """True if the column holds numbers."""
        return self.type in {ColumnType.INT, ColumnType.LONG, ColumnType.DOUBLE}


@dataclass(frozen=True, slots=True)
class Rollup:
    """One job."""

    name: str
    question: str
    """The question that the rollup answers."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Columns that identify a row, in the order of the rows."""
    entity: str | None = None
    """The column by which the rows of an entity are found directly."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Value of the rollup's column ``kind`` -> the mismatch, and its remedy."""
    version: int = 1
    """The version of the columns, incremented by each release that alters them. Readers of files identify the format by
    it."""
    is_per_entity: bool = False
    """True if each row is about a single entity, named in its column ``entity``: the rollup has no sums over entities,
    no examples, and no data of another cluster. A row without an entity is about all entities."""
    scope: str = ""
    """The entities that count, in a clause, if that is less than a reader may expect."""
    needs: str = ""
    """The option that the rollup requires, as spelled on the command line; empty if it requires none."""

    @property
    def command(self) -> str:
        """The command that runs the rollup, without its cluster."""
        return f"confplane rollups run {self.name}{' ' * bool(self.needs)}{self.needs}"


def _text(name: str, description: str, *, nullable: bool = False) -> Column:
    return Column(name, ColumnType.STRING, description, nullable)


def _count(name: str, description: str, *, former: str = "") -> Column:
    return Column(name, ColumnType.LONG, description, former=former)


_COMPATIBILITY: Final = Rollup(
    "compatibility",
    "Which configs does the software of each client support, when was it seen, and which configs do its clients run"
    " with?",
    (
        _text(
            "entity_id", "The registered client: `user=alice,client-id=billing`, or `user=alice` without a client-id"
        ),
        _text("software_name", "As the client gave it"),
        _text("software_version", "As the client gave it"),
        Column("supported_configs", ColumnType.TEXTS, "Configs that at least one of its clients supports, sorted"),
        Column("common_configs", ColumnType.TEXTS, "Configs that all of its clients support, sorted"),
        Column("first_seen", ColumnType.TIMESTAMP, "UTC"),
        Column("last_seen", ColumnType.TIMESTAMP, "UTC, at a day's resolution"),
        _count("instances", "Number of its running clients that report; clients say so of themselves"),
        Column(
            "applied_revision",
            ColumnType.LONG,
            "The earliest revision whose configs a client reports; null if no client reports",
            nullable=True,
        ),
        Column("refused_configs", ColumnType.TEXTS, "Configs that at least one of them refuses, sorted"),
    ),
    key=("entity_id", "software_name", "software_version"),
    entity="entity_id",
    version=2,
    is_per_entity=True,
)
_DRIFT: Final = Rollup(
    "drift",
    "Which values of a config are effective on brokers and topics, and which of them deviate from the majority?",
    (
        _text("entity_type", "`broker` or `topic`"),
        _text("config_key", "The config"),
        Column("rank", ColumnType.INT, "1 for the value of most; all other values deviate"),
        _text("state", "`value`, `secret`, or `none` if there is no value"),
        _text("value", "In the form of its type; null unless `state` is `value`", nullable=True),
        _text("fingerprint", "Of a secret, keyed", nullable=True),
        _count("entities", "Number of brokers or topics with this effective value"),
        _count("own", "Number of these that set it themselves"),
        _count("total", "Number of all brokers or topics"),
        Column("examples", ColumnType.TEXTS, "Ids of some that deviate"),
        Column(
            "topics_as_of",
            ColumnType.TIMESTAMP,
            "Of topics of a Kafka 4 cluster: the time of the list of all topics if it was more than an hour old;"
            " otherwise null",
            nullable=True,
        ),
    ),
    key=("entity_type", "config_key", "rank"),
    version=2,
)
_IMPACT: Final = Rollup(
    "impact",
    "If a default were changed: which entities would get another value, and which have an entry of their own?",
    (
        _text("facet", "`client-quotas`, `client-configs` or `configs`"),
        _text("default_id", "The default: `user`, `client-id`, `user,client-id`, `user=alice,client-id`, `broker`..."),
        _text("config_key", "The config or quota"),
        _text("value", "The value that is set there now; null if there is no value, and for a secret", nullable=True),
        _count("affected", "Registered clients, or brokers, that would see another value"),
        _count("overridden", "Those that would not, because an entry of higher precedence sets the key"),
        _count("unsupported", "Of the affected, those that have registered no support for the key"),
        Column("examples", ColumnType.TEXTS, "Ids of some of the affected"),
    ),
    key=("facet", "default_id", "config_key"),
    entity="default_id",
    scope="Only clients that are registered (KIP-649), and brokers with an entry of their own, count",
)
_QUOTAS: Final = Rollup(
    "quotas",
    "Which quotas does each registered client have, and what is their sum?",
    (
        _text("config_key", "The quota; byte rates are bytes per second, `request_percentage` percent of one thread"),
        _text("entity_id", "The client; empty in the row of the whole cluster"),
        Column(
            "value",
            ColumnType.DOUBLE,
            "Null where it is unlimited; of the cluster the sum of all budgets",
            nullable=True,
        ),
        Column("level", ColumnType.INT, "The level of the quota's entry, 1 to 8 as KIP-55 counts them", nullable=True),
        _text("source", "The id of the quota's entry", nullable=True),
        _text("budget", "The id of the clients that share the quota", nullable=True),
        _count("clients", "Number of clients: 1, or all"),
        _count("unlimited", "Number of clients without a quota"),
        _count("unreadable", "Number of clients whose stored quota is not a number"),
        _count("budgets", "Number of quotas in the sum"),
        Column("capacity", ColumnType.DOUBLE, "Capacity of one broker, as given to the run", nullable=True),
        Column("share", ColumnType.DOUBLE, "value / capacity; above 1 the quotas exceed the capacity", nullable=True),
    ),
    key=("config_key", "entity_id"),
    entity="entity_id",
    is_per_entity=True,
    scope="Only clients that are registered (KIP-649) count, not every client with a configured quota",
)
_ACTIVITY: Final = Rollup(
    "activity",
    "Who changes which keys, and how often are the changes refused or reverted?",
    (
        Column("day", ColumnType.DATE, "The UTC date on which the changes began"),
        _text("principal", "The principal of the changes; `External:unknown` for writes past this service"),
        _text("kind", "`change`, or `external`"),
        _text("entity_type", "`user`, `user,client-id`, `client-id`, `ip`, `topic`, `broker`; `cluster` of freezes"),
        _text(
            "config_key",
            "The config or quota; empty for changes without a changed value, and for attempts without keys",
        ),
        Column(
            "error_code",
            ColumnType.INT,
            "Kafka's error code of the refusal; -1 if the trail does not have it. 0 for changes that were not refused"
            " or changed nothing",
        ),
        _text("team", "The team of the principal, by the file of the run; null in a run without one", nullable=True),
        _count(
            "committed_keys",
            "Keys that were changed. Each key of each entity counts: an atomic batch of ten entities with two keys each"
            " has twenty",
            former="committed",
        ),
        _count(
            "rejected_keys",
            "Keys whose change was refused, before or after the change began. A refused attempt without keys counts"
            " as one",
            former="rejected",
        ),
        _count("open_keys", "Keys whose change has no outcome yet", former="open"),
        _count(
            "reverted_keys",
            "Of the committed keys, those set back to their value of at most a week before",
            former="reverts",
        ),
    ),
    key=("day", "principal", "kind", "entity_type", "config_key", "error_code"),
    version=3,
)
_MISMATCHES: Final = {
    "rewound": "The trail has a revision that ZooKeeper has not reached: ZooKeeper was restored from an older state, or"
    " another ensemble took its place. Accept its state with `confplane adopt-store`, unless that was done"
    " (docs/backup.md). It is reported until the revisions have passed those of the trail",
    "content": "A key has another value in ZooKeeper than by the trail, or only one of the two has the key. If it"
    " stays, compare the entity's trail with the znode, and PUT the right value",
    "altered": "A change found another value than the change before it left, at the same version of the znode: one of"
    " the two rows of the trail was altered. Compare both with a backup of Postgres, and find out who may write to it",
    "no_trail": "The trail does not have the znode. It was written externally just now, or while external"
    " changes were not"
    " recorded (record_external_changes), or the trail lost rows. If it stays, look for a restore of Postgres",
    "no_znode": "The znode of the trail is gone. It was deleted externally while external changes were not recorded"
    " (record_external_changes), or the trail lost rows. PUT its configs again where they are missed",
    "version": "The content is right, and the znode was written more or less often than by the trail, or made again."
    " Nothing has to be done for the configs",
    "gap": "A change found a state that no earlier change left: a row of the trail is missing, or there were external"
    " writes while they were not recorded. The change has the state that it found",
    "state": "The recorder holds a state that no row of the trail explains: the row is lost. Look for a restore of"
    " Postgres, and for rows that somebody removed",
}
_INTEGRITY: Final = Rollup(
    "integrity",
    "Do the changes in the trail add up to the configs in ZooKeeper? One row per mismatch.",
    (
        _text("tree", "`/config` or `/confplane/client-configs`"),
        _text("entity_id", "The entity of the znode"),
        _text("kind", ". ".join(f"`{kind}`: {text}" for kind, text in _MISMATCHES.items())),
        _text("config_key", "The key of `content` and `altered`; empty otherwise"),
        Column("trail_revision", ColumnType.LONG, "The revision of the last change that counts; 0 if there is none"),
        _text("change_id", "The id of that change", nullable=True),
        _text(
            "expected",
            "The value of `content` by the trail; of `altered`, the value that the change before left",
            nullable=True,
        ),
        _text(
            "found", "The value of `content` in ZooKeeper; of `altered`, the value that the change found", nullable=True
        ),
        Column("trail_version", ColumnType.INT, "The znode's version by the trail", nullable=True),
        Column("version", ColumnType.INT, "The znode's version as it is", nullable=True),
        Column("znode_revision", ColumnType.LONG, "The znode's mzxid", nullable=True),
        Column("pending", ColumnType.BOOLEAN, "True where the mismatch may go away by itself"),
    ),
    key=("tree", "entity_id", "kind", "config_key", "trail_revision"),
    entity="entity_id",
    is_per_entity=True,
    kinds=_MISMATCHES,
)

_COMPARE: Final = Rollup(
    "compare",
    "What differs from another cluster, or from the same cluster at an earlier time, key by key?",
    (
        _text("entity_id", "The entity"),
        _text("config_key", "The key; empty for a topic of one side only, and for `unknown`"),
        _text(
            "kind",
            "`only_here`, `only_there`, `differs`; `secret`: both have a secret, whose fingerprints differ or are not"
            " known; `unknown`: the entity can't be read on one side",
        ),
        _text("value", "The stored string of this side; null if there is none, and for a secret", nullable=True),
        _text("fingerprint", "Of a secret of this side, keyed", nullable=True),
        _text("other_value", "The stored string of the other side", nullable=True),
        _text("other_fingerprint", "Of a secret of the other side, keyed", nullable=True),
        Column(
            "same_effective",
            ColumnType.BOOLEAN,
            "Of brokers and topics: true where the effective values are the same, since a default gives what the other"
            " side sets",
            nullable=True,
        ),
        _text("other", "The other side: the name of a cluster, or a time"),
    ),
    key=("entity_id", "config_key"),
    entity="entity_id",
    needs="--with CLUSTER|TIME",
)

_USAGE: Final = Rollup(
    "usage",
    "Which clients are throttled by their quotas, which stay far below them, and which quotas exceed the capacity?",
    (
        _text("config_key", "The quota; units as in `quotas`"),
        _text("budget", "The id of the clients that share the quota; empty in the row of all"),
        _text(
            "state",
            "`throttled`, `within`, `distant` (never above half of the quota), `unlimited`, `unreadable`, `total`",
        ),
        Column(
            "quota", ColumnType.DOUBLE, "Null if there is none; the sum in the row of the whole cluster", nullable=True
        ),
        Column("level", ColumnType.INT, "The level of the quota's entry, 1 to 8 as KIP-55 counts them", nullable=True),
        _text("source", "The id of the quota's entry", nullable=True),
        _count("clients", "Number of clients measured"),
        _count("samples", "Number of times at which any of them was measured"),
        Column("mean", ColumnType.DOUBLE, "The use of all clients together, on average over these times"),
        Column("p95", ColumnType.DOUBLE, "The use that 95 percent of the times do not exceed"),
        Column("peak", ColumnType.DOUBLE, "The largest use"),
        Column("throttled_share", ColumnType.DOUBLE, "Part of the times at or near the quota, or above", nullable=True),
        Column("capacity", ColumnType.DOUBLE, "Capacity of one broker, as given to the run", nullable=True),
        Column("share", ColumnType.DOUBLE, "quota / capacity; above 1 more is promised than there is", nullable=True),
        Column("proposed", ColumnType.DOUBLE, "A quota to consider; null where nothing is proposed", nullable=True),
        _text(
            "proposal",
            "The body of a POST to `client-quotas:alter` that sets it for this budget alone, as JSON",
            nullable=True,
        ),
        _text(
            "default_proposal",
            "Where a default throttles the budget: the body that raises the default, `source`, instead, and with it the"
            " quota of all clients that it applies to",
            nullable=True,
        ),
    ),
    key=("config_key", "budget"),
    version=2,
    entity="budget",
    is_per_entity=True,
    needs="--usage FILE",
)

ROLLUPS: Final = {
    each.name: each for each in (_COMPATIBILITY, _DRIFT, _IMPACT, _QUOTAS, _ACTIVITY, _INTEGRITY, _COMPARE, _USAGE)
}
"""The rollups by name, in the order in which they are run and listed."""

_OF_CLIENTS: Final = [name for name, key in QUOTA_KEYS.items() if (EntityType.USER,) in key.kinds]


def capacity(given: object) -> dict[str, float]:
    """Read the capacity of one broker, by quota key and in the quota's unit.

    Raises:
        ValueError: The value is not a map of quota keys to numbers above zero.
    """
    if not isinstance(given, dict):
        form = "this must be a map of quota keys to numbers, such as producer_byte_rate: 125000000"
        raise ValueError(form)  # noqa: TRY004 - it is a person's input
    found: dict[str, float] = {}
    for key, value in given.items():
        if key not in _OF_CLIENTS:
            raise ValueError(f"{key!r} is not a quota of clients. Available: {', '.join(_OF_CLIENTS)}")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value < float("inf"):
            raise ValueError(f"{key}: {value!r} is not a number above zero")
        found[key] = float(value)
    return found
