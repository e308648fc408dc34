"""Random states of a cluster and manifests for it, and a model of what their applies leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from confplane.domain.entities import Entity, EntityType
from confplane.domain.manifests import ManifestScope
from tests.unit.domain.strategies import odd_names

OWNERS: Final = ("red", "blue/eu_1")

Place = tuple[str, str]
"""The id of an entity, and the member of the manifest that has the keys of a facet."""
Values = dict[str, Any]
Owned = dict[str, tuple[Any, "str | None"]]
"""Keys, each with its value and its owner."""

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["", " ", "null", "~", "a: b #c", "'\"\\", "two\nlines\n", "%41", "${x}", "\u2028", "\ufeff", "1e3", "é"]
)
byte_rates = st.integers(0, 2**63 - 1) | st.sampled_from([1, 2**53 + 1])
numbers = st.floats(0, 1e18) | st.sampled_from([0.0001, 50, 1e7])


SECRET: Final = "listener.name.internal.ssl.keystore.password"
"""A password of a broker."""


def one_of(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


QUOTAS: Final = {
    "producer_byte_rate": byte_rates,
    "consumer_byte_rate": byte_rates,
    "request_percentage": numbers,
    "controller_mutation_rate": numbers,
}
CLIENT_CONFIGS: Final = {
    "acks": one_of("all", "1"),
    "session.timeout.ms": one_of("10000", "20000"),
    "client.rack": texts,
}
CONFIGS: Final[dict[EntityType, dict[str, st.SearchStrategy[Any]]]] = {
    EntityType.TOPIC: {
        "retention.ms": one_of("1000", "86400000", "-1"),
        "cleanup.policy": one_of("compact", "delete", "compact,delete"),
        "leader.replication.throttled.replicas": one_of("*", "0:1", "0:1,1:2"),
    },
    EntityType.BROKER: {
        "log.retention.ms": one_of("1000", "604800000"),
        "log.cleanup.policy": one_of("compact", "delete"),
        "message.max.bytes": one_of("1000000", "2000000"),
        SECRET: texts.filter(bool),
    },
    EntityType.GROUP: {
        "consumer.session.timeout.ms": one_of("45000", "50000"),
        "consumer.heartbeat.interval.ms": one_of("5000", "6000"),
        "share.isolation.level": one_of("read_committed", "read_uncommitted"),
    },
    EntityType.CLIENT_METRICS: {
        "metrics": one_of("*", "org.apache.kafka.consumer.,x"),
        "interval.ms": one_of("1000", "300000"),
        "match": one_of("client_id=billing-.*", "client_software_name=java"),
    },
}


def number(key: str, value: Any) -> Any:
    """A DOUBLE is the number that its digits read as, however they are written."""
    return float(value) if key in {"request_percentage", "controller_mutation_rate"} else value


def keys_of(place: Place) -> dict[str, st.SearchStrategy[Any]]:
    entity = Entity.from_id(place[0])
    kind = entity.types[0]
    if place[1] == "configs":
        # The default of all brokers has no passwords.
        return {key: values for key, values in CONFIGS[kind].items() if key != SECRET or place[0] != "broker"}
    if place[1] == "clientConfigs":
        return CLIENT_CONFIGS
    return {"connection_creation_rate": st.integers(1, 2**31 - 1)} if kind is EntityType.IP else QUOTAS


def some_values(place: Place) -> st.SearchStrategy[Values]:
    keys = keys_of(place)
    found = st.fixed_dictionaries({}, optional=keys)
    if SECRET in keys:
        others = {key: values for key, values in keys.items() if key != SECRET}
        found |= st.fixed_dictionaries({SECRET: keys[SECRET]}, optional=others)
    return found


@dataclass
class Write:
    """A direct write of all keys of a place."""

    place: Place
    values: Values


@dataclass
class Apply:
    """A manifest, with the options of its plan."""

    wanted: dict[Place, Values]
    """A secret may be null, which keeps the stored one."""
    owner: str | None
    labels: dict[str, str]
    scope: str | None
    prune: bool
    merge: bool
    """Keep the keys that the document does not name."""
    atomic: bool
    max_deletes: int | None
    """The first choice."""
    forces: bool
    """False: keys of other owners are left out after the plan has refused them."""
    drift: Write | None
    """A write between the plan and the apply."""


@dataclass
class Case:
    kafka4: bool
    users: list[Entity]
    """Entities that have credentials, too."""
    steps: list[Write | Apply]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kafka4 = draw(st.booleans())
    users = draw(st.lists(odd_names, min_size=1, max_size=2, unique=True))
    clients = draw(st.lists(odd_names, min_size=1, max_size=2, unique=True))
    entities = [Entity.of(user=user) for user in (*users, None)]
    pairs = [Entity.of(user=user, client_id=client) for user in (*users, None) for client in (*clients, None)]
    entities += [*draw(st.permutations(pairs))[:3], *(Entity.of(client_id=client) for client in (*clients, None))]
    entities += [Entity.of(ip=address) for address in ("10.0.0.1", "10.0.0.10", None)]
    entities += [Entity.of(topic=name) for name in ("orders", "orders.eu", "Orders_-1")]
    entities += [Entity.of(broker=broker) for broker in ("3", "30", None)]
    if kafka4:
        entities += [Entity.of(group=name) for name in (*users, "orders")]
        entities += [Entity.of(client_metrics=name) for name in (*clients, "all")]
    places: list[Place] = []
    for entity in entities:
        kind = entity.types[0]
        members = ["configs"] if kind in CONFIGS else ["quotas"]
        places += [(entity.id, each) for each in [*members, *(["clientConfigs"] if kind is EntityType.USER else [])]]

    places += [("broker=3", "configs")] * len(places)  # one of the few with secrets

    def write() -> Write:
        place = draw(st.sampled_from(places))
        return Write(place, draw(some_values(place)))

    def document() -> dict[Place, Values]:
        chosen = draw(st.lists(st.sampled_from(places), max_size=8, unique=True))
        found = {place: draw(some_values(place)) for place in chosen}
        for values in found.values():
            if SECRET in values and draw(st.booleans()):
                values[SECRET] = None
        return found

    def scope() -> str:
        kind, name = draw(st.sampled_from(entities)).components[0]
        beginning = (name or "")[: draw(st.integers(0, 4))]
        return f"{kind}:{beginning}"

    steps: list[Write | Apply] = []
    for _ in range(draw(st.integers(1, 3))):
        steps += [write() for _ in range(draw(st.integers(0, 4)))]
        owner = draw(st.sampled_from([*OWNERS, None]))
        prune = draw(st.booleans())
        labels = {"team": draw(texts), "a/b": "é"} if owner is not None and draw(st.booleans()) else {}
        steps.append(
            Apply(
                wanted=document(),
                owner=owner,
                labels=labels,
                scope=scope() if prune and (owner is None or draw(st.booleans())) else None,
                prune=prune,
                merge=owner is None and not prune and draw(st.booleans()),
                atomic=draw(st.booleans()),
                max_deletes=draw(st.sampled_from([None, 0, 100])) if prune else None,
                forces=draw(st.booleans()),
                drift=write() if draw(st.integers(0, 3)) == 0 else None,
            )
        )
    return Case(kafka4, draw(st.lists(st.sampled_from(entities[: len(users)]), max_size=1)), steps)


@dataclass
class Expected:
    """The keys, owners and labels that are to be stored."""

    kafka4: bool
    places: dict[Place, Owned] = field(default_factory=dict)
    """Places that have keys."""
    labels: dict[Place, dict[str, dict[str, str]]] = field(default_factory=dict)
    """The labels of each owner, by znode."""

    def znode(self, place: Place) -> Place:
        """Return the place that stands for all of the same znode."""
        return place if self.kafka4 else (place[0], "")

    def keep(self, place: Place, keys: Owned) -> None:
        self.places[place] = keys
        if not keys:
            del self.places[place]
        owners = {
            owner
            for other, held in self.places.items()
            if self.znode(other) == self.znode(place)
            for _, owner in held.values()
        }
        labels = self.labels.get(self.znode(place), {})
        self.labels[self.znode(place)] = {owner: each for owner, each in labels.items() if owner in owners}

    def write(self, place: Place, values: Values) -> None:
        before = self.places.get(place, {})
        values = self.given(place, values)
        self.keep(place, {key: (value, before.get(key, (None, None))[1]) for key, value in values.items()})

    def given(self, place: Place, values: Values) -> Values:
        """Return the values of a document with the stored secret in place of null."""
        held = self.places.get(place, {})
        return {key: held[key][0] if value is None else value for key, value in values.items()}

    def without_absent_secrets(self, step: Apply) -> dict[Place, Values]:
        """Return a document without null for secrets that are not stored, which a plan refuses."""
        return {
            place: {
                key: value for key, value in values.items() if value is not None or key in self.places.get(place, {})
            }
            for place, values in step.wanted.items()
        }

    def foreign(self, step: Apply) -> set[tuple[str, str]]:
        """Return the keys of the document that another owner has."""
        return {
            (place[0], key)
            for place, values in step.wanted.items()
            for key in values
            if step.owner is not None and self.places.get(place, {}).get(key, (None, None))[1] not in {None, step.owner}
        }

    def pruned(self, step: Apply) -> dict[Place, set[str]]:
        """Return the keys that are deleted because the document does not name their places."""
        scope = None if step.scope is None else ManifestScope.parse(step.scope)
        return {
            place: gone
            for place, held in self.places.items()
            if step.prune and place not in step.wanted and (scope is None or scope.has(Entity.from_id(place[0])))
            if (gone := {key for key, (_, owner) in held.items() if step.owner is None or owner == step.owner})
        }

    def in_scope(self, step: Apply) -> int:
        """Return the number of entities in the scope, or of the owner."""
        whole = Apply(**{**vars(step), "wanted": {}})
        return len({entity_id for entity_id, _ in self.pruned(whole)})

    def apply(self, step: Apply) -> None:
        """Change it as an apply does."""
        for place, gone in self.pruned(step).items():
            self.keep(place, {key: held for key, held in self.places[place].items() if key not in gone})
        for place, values in step.wanted.items():
            if step.owner is None:
                kept = self.places.get(place, {}) if step.merge else {}
                self.write(place, {key: value for key, (value, _) in kept.items()} | values)
                continue
            before = self.places.get(place, {})
            kept = {key: held for key, held in before.items() if held[1] not in {None, step.owner}}
            given = self.given(place, values)
            self.keep(place, kept | {key: (value, step.owner) for key, value in given.items()})
            if values:
                self.labels[self.znode(place)][step.owner] = step.labels

    def all_labels(self) -> dict[Place, dict[str, dict[str, str]]]:
        """Return the labels by place."""
        found = {}
        for place, held in self.places.items():
            named = {owner for _, owner in held.values()}
            labels = self.labels.get(self.znode(place), {})
            found[place] = {owner: each for owner, each in labels.items() if each and owner in named}
        return found
