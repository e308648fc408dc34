"""Entities of a made-up cluster: users, their client-ids, topics, brokers, ips, defaults, and odd names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

QUOTAS: Final = FacetName.CLIENT_QUOTAS.value
CLIENT_CONFIGS: Final = FacetName.CLIENT_CONFIGS.value
CONFIGS: Final = FacetName.CONFIGS.value

ODD_NAMES: Final = (
    "CN=a b,OU=Zoë,O=Acme",
    "x.client-id",
    "~7E%",
    "100% 🐘",
    "a+b",
    "<default>",
    "<script>alert(1)</script>",
    "'; DROP TABLE intents; --",
    'say "hi" & go',
    "tab\tand\nline",
    "user=alice,client-id=x",
    "-",
)
"""Names of users and client-ids that are legal, and that careless code trips over."""

_TEAMS: Final = ("payments", "search", "orders", "fraud", "billing", "shipping", "ads", "catalog", "identity", "ml")
_ROLES: Final = ("api", "worker", "etl", "stream", "gateway", "loader", "audit", "sync", "report", "mirror")
_SUBJECTS: Final = ("events", "commands", "clicks", "invoices", "stock", "logins", "prices", "dlq", "changelog", "raw")


@dataclass(frozen=True, slots=True)
class Key:
    """A config key that is changed now and then, and what it is set to."""

    name: str
    facet: str
    values: tuple[str | None, ...]
    """None: a value that nobody is told."""


def _keys(facet: str, **values: tuple[str | None, ...]) -> tuple[Key, ...]:
    return tuple(
        Key(name.replace("_", ".") if facet != QUOTAS else name, facet, found) for name, found in values.items()
    )


_RATES: Final = tuple(str(1024 * step) for step in (64, 128, 256, 512, 1024, 2048, 5000, 10_240, 40_960))
_QUOTAS: Final = _keys(
    QUOTAS,
    producer_byte_rate=_RATES,
    consumer_byte_rate=(*_RATES, "1048576.0"),
    request_percentage=("12.5", "25", "50.0", "100", "200", "2e2", "0.25"),
    controller_mutation_rate=("0.5", "1", "5", "10.0"),
)
_CLIENT_CONFIGS: Final = _keys(
    CLIENT_CONFIGS,
    acks=("all", "-1", "1", "0"),
    session_timeout_ms=("10000", "30000", "45000", "60000"),
    heartbeat_interval_ms=("1000", "3000", "5000"),
)
_IPS: Final = _keys(QUOTAS, connection_creation_rate=("5", "10", "100", "1000"))
_TOPICS: Final = _keys(
    CONFIGS,
    retention_ms=("3600000", "86400000", "604800000", "2592000000", "-1", " 86400000"),
    cleanup_policy=("delete", "compact", "compact,delete", "compact, delete"),
    min_insync_replicas=("1", "2", "3"),
    max_message_bytes=("1048588", "2097152", "10485760"),
    retention_bytes=("-1", "1073741824", "107374182400"),
    segment_bytes=("104857600", "1073741824"),
    compression_type=("producer", "zstd", "lz4"),
)
_BROKERS: Final = _keys(
    CONFIGS,
    log_cleaner_threads=("1", "2", "4"),
    num_io_threads=("8", "16", "32"),
    background_threads=("10", "20"),
    log_retention_ms=("604800000", "259200000"),
    message_max_bytes=("1048588", "2097152", "02097152"),
    max_connections=("10000", "20000"),
)
_SECRETS: Final = (Key("listener.name.internal.ssl.keystore.password", CONFIGS, (None,)),)

KEYS: Final = {
    "user": (*_QUOTAS, *_CLIENT_CONFIGS),
    "user,client-id": (*_QUOTAS, *_CLIENT_CONFIGS),
    "client-id": _QUOTAS,
    "ip": _IPS,
    "topic": _TOPICS,
    "broker": _BROKERS,
    "broker=": (*_BROKERS, *_SECRETS),
}
"""By types of the components; ``broker=`` is one broker. What else lies in their znodes belongs to no facet."""

_BY_FACET: Final = {
    kind: {facet: tuple(key for key in keys if key.facet == facet) for facet in sorted({key.facet for key in keys})}
    for kind, keys in KEYS.items()
}

FOREIGN: Final = {"user": "SCRAM-SHA-256", "topic": "confplane.unknown", "broker=": "custom.plugin.secret"}
"""By the same, a key of no facet that others set; its value is not told."""


class Member:
    """An entity, and its znode as it stands."""

    __slots__ = (
        "config", "czxid", "entity_id", "facets", "fingerprints", "foreign", "keys", "keys_of", "live", "mtime",
        "mzxid", "parent", "path", "undo", "version",
    )  # fmt: skip

    def __init__(self, entity: Entity, parent: Member | None = None) -> None:
        self.entity_id = entity.id
        self.path = f"{Tree.CONFIG.value}/{entity.path}"
        kind = ",".join(entity.types)
        if kind == "broker" and entity.components[0][1] is not None:
            kind = "broker="
        self.keys = KEYS[kind]
        self.foreign = FOREIGN.get(kind)
        self.keys_of = _BY_FACET[kind]
        self.facets = tuple(self.keys_of)
        self.parent = parent
        self.live = 0
        """Znodes below this one."""
        self.config: dict[str, str | None] | None = None
        """None: there is no znode. Of its values None are those that are not told."""
        self.fingerprints: dict[str, str] = {}
        self.undo: tuple[Key, str | None, bool] | None = None
        """A key, its value before the last change of it, and whether it was there."""
        self.version = -1
        self.czxid = self.mzxid = self.mtime = 0


def members(count: int, chosen: random.Random) -> list[Member]:
    """Return so many entities, no two the same; the user of a pair is one of them too, and comes before it."""
    made: dict[str, Member] = {}
    for entity in _entities(chosen):
        if len(made) >= count:
            break
        parent = None
        if len(entity.components) > 1:
            parent = made.get(Entity(entity.components[:1]).id)
            if parent is None:
                continue
        if entity.id not in made:
            made[entity.id] = Member(entity, parent)
    return list(made.values())


def client_entities(found: list[Member], chosen: random.Random) -> list[str]:
    """Return the ids under which clients register: the named users and pairs, and client-ids that have no entry."""
    named = [each.entity_id for each in found if _registers(each.entity_id)]
    users = [each for each in named if "," not in each]
    others = [f"{chosen.choice(users)},client-id=app-{number}" for number in range(len(named) // 3)]
    both = sorted({*named, *others})
    chosen.shuffle(both)
    return both


def _registers(entity_id: str) -> bool:
    return entity_id.startswith("user=") and (",client-id" not in entity_id or ",client-id=" in entity_id)


def _entities(chosen: random.Random) -> Iterator[Entity]:
    """Yield entities without end, some of them more than once: first what is odd, then what there is most of."""
    yield from (Entity.of(broker=None), Entity.of(broker="0"), Entity.of(user=None), Entity.of(client_id=None))
    yield from (Entity.of(user=None, client_id=None), Entity.of(ip=None), Entity.of(topic="orders"))
    for number, name in enumerate(ODD_NAMES):
        yield Entity.of(user=name)
        yield Entity.of(user=name, client_id=ODD_NAMES[number - 1])
        yield Entity.of(user=name, client_id=None)
        yield Entity.of(client_id=name)
        yield Entity.of(user=None, client_id=name)
    users: list[str] = [*ODD_NAMES]
    number = 0
    while True:
        number += 1
        draw = chosen.random()
        if draw < 0.22:
            users.append(_user(number, chosen))
            yield Entity.of(user=users[-1])
        elif draw < 0.62:
            # Some users have thousands of client-ids, most a few.
            user = users[int(len(users) * chosen.random() ** 3)]
            yield Entity.of(user=user, client_id=f"{chosen.choice(_TEAMS)}-{chosen.choice(_ROLES)}-{number}")
        elif draw < 0.64:
            yield Entity.of(user=users[int(len(users) * chosen.random())], client_id=None)
        elif draw < 0.66:
            yield Entity.of(user=None, client_id=f"{chosen.choice(_ROLES)}-{number}")
        elif draw < 0.70:
            yield Entity.of(client_id=f"{chosen.choice(_ROLES)}-{number}")
        elif draw < 0.73:
            yield Entity.of(ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
        elif draw < 0.732:
            yield Entity.of(broker=str(number % 2000))
        else:
            yield Entity.of(topic=f"{chosen.choice(_TEAMS)}.{chosen.choice(_SUBJECTS)}.{number}")


def _user(number: int, chosen: random.Random) -> str:
    team, role = chosen.choice(_TEAMS), chosen.choice(_ROLES)
    if chosen.random() < 0.1:
        return f"CN={role}-{number},OU={team},O=Acme"
    return f"{team}.{role}-{number}"
