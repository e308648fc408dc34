"""Outside writers: Kafka's AdminClient and ``kafka-configs.sh``, each with seeded choices, until they are stopped.

They write the same few entities, so that writes to one entity come close together. A write that the cluster refuses, or
whose answer is lost, is no matter here: the metadata log says what was written.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final, Self

from confplane.domain.entities import Entity
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of
from tests.interop.admin import Admin
from tests.kraft.outside.log import mark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from tests.kraft.outside.log import Mark

    Quota = tuple[dict[str, str | None], list[tuple[str, float | None]]]

NAMES: Final = ("alice", "bob", "CN=\u00fc,O=x", "a b/%")
CLIENTS: Final = ("app", "\u00e9/1")
IPS: Final = ("10.0.0.1", "10.0.0.2")
TOPICS: Final = ("orders", "pay.ments", "audit_1")
GROUPS: Final = ("group-1", "g\u00fc/2")
METRICS: Final = ("metrics-1", "m x")
BEYOND: Final = ("..", "2001:db8::1")
"""Names that no znode can have: of a group, and of an ip."""
UNSHOWN: Final = {"listener.name.outside.ssl.key.password": "outside-secret", "acme.x": "outside-unknown"}
"""A password and an unknown key of brokers, with values that must not be seen anywhere."""

_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_VALUES: Final[dict[str, dict[str, Sequence[str]]]] = {
    "TOPIC": {
        "retention.ms": ("60000", "0120000", "180000"),
        "cleanup.policy": ("delete", "delete , compact", "compact"),
        "min.cleanable.dirty.ratio": ("0.5", "0.50", "0.7"),
        "preallocate": ("true", "false", "TRUE"),
    },
    "BROKER": {
        "log.retention.ms": ("3600000", "7200000"),
        "message.max.bytes": ("1000000", "2000000"),
        **{key: (value,) for key, value in UNSHOWN.items()},
    },
    "DEFAULT": {"log.retention.ms": ("86400000", "90000000"), "log.cleanup.policy": ("delete", "compact,delete")},
    "GROUP": {"consumer.session.timeout.ms": ("46000", "47000"), "consumer.heartbeat.interval.ms": ("6000", "7000")},
    "CLIENT_METRICS": {"interval.ms": ("1000", "2000"), "metrics": ("a.b,c", "a.b , d"), "match": ("client_id=x",)},
}
_TOOL_TYPES: Final = {
    "user": "users", "client-id": "clients", "ip": "ips",
    "TOPIC": "topics", "BROKER": "brokers", "CLIENT_METRICS": "client-metrics",
}  # fmt: skip
"""Groups are unknown to the tool of 3.9."""
_SOURCES: Final = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG", "BROKER": "DYNAMIC_BROKER_CONFIG", "DEFAULT": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG", "CLIENT_METRICS": "DYNAMIC_CLIENT_METRICS_CONFIG",
}  # fmt: skip
_REMOVALS: Final = 0.3
_MANY: Final = 40
"""Entities of a burst, with several records each: more than are rows of their own in one fetch of the log."""


def resources(brokers: Sequence[int]) -> list[tuple[str, str]]:
    """Return the config resources that are written but for topics, which come and go; "" is the default broker."""
    named = [("BROKER", each) for each in ("", *map(str, brokers))]
    return [*named, *(("GROUP", each) for each in GROUPS), *(("CLIENT_METRICS", each) for each in METRICS)]


class Writers:
    """Both writers, each in a thread; a context manager that stops them.

    Args:
        directory: Where they log.
        class_path: Of the AdminClient.
        tools_class_path: Of the tool.
        bootstrap: The brokers.
        brokers: Their numbers.
        seed: Of their choices.
    """

    def __init__(
        self,
        directory: Path,
        *,
        class_path: str,
        tools_class_path: str,
        bootstrap: Sequence[str],
        brokers: Sequence[int],
        seed: int,
    ) -> None:
        self._brokers = brokers
        self._stopped = threading.Event()
        self._faults: list[BaseException] = []
        self.written = 0
        self._threads: list[threading.Thread] = []
        self._admins: list[Admin] = []
        for name, path, step in (("admin", class_path, self._admin_step), ("tool", tools_class_path, self._tool_step)):
            place = directory / name
            place.mkdir(parents=True)
            admin = Admin(place, class_path=path, bootstrap=",".join(bootstrap))
            dice = random.Random(f"{seed} {name}")  # noqa: S311 - a seed gives the same choices again
            self._admins.append(admin)
            self._threads.append(threading.Thread(target=self._run, args=(admin, dice, step)))

    def __enter__(self) -> Self:
        for admin in self._admins:
            admin.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for admin in self._admins:
            admin.__exit__(*exc)

    def start(self) -> None:
        """Write from now on."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, once each write under way has ended."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self._faults, self._faults

    def first(self) -> None:
        """Write something of each kind, and return once all is written."""
        admin, dice = self._admins[0], random.Random(0)  # noqa: S311 - no secret
        for name in TOPICS:
            admin.call("deleteTopics", name=name)  # another run may have left it
        outcomes = [admin.call("createTopics", names=list(TOPICS), configs={"retention.ms": "60000"})]
        outcomes += admin.alter_quotas(*(_set(entity, dice) for entity in _entities()[:10]))
        outcomes += admin.alter_quotas(({"ip": BEYOND[1]}, [("connection_creation_rate", 5.0)]))
        for kind, name in [*resources(self._brokers), ("GROUP", BEYOND[0])]:
            values = _values_of(kind, name)
            ops = [(key, "SET", dice.choice(given)) for key, given in values.items()]
            outcomes.append(admin.alter_configs(kind, name, ops))
        assert not [outcome for outcome in outcomes if outcome["code"]], outcomes

    def _run(self, admin: Admin, dice: random.Random, step: Callable[[Admin, random.Random], None]) -> None:
        try:
            while not self._stopped.is_set():
                step(admin, dice)
                self.written += 1
                # Often one right after another, sometimes seconds apart.
                self._stopped.wait(dice.choice((0.0, 0.0, 0.0, 0.05, 0.2, 0.5)))
        except BaseException as fault:  # noqa: BLE001 - it belongs to the test, not to this thread
            self._faults.append(fault)

    # -- the end

    def mark(self) -> Mark:
        """Make a last write, after all other writes."""
        return mark(self._admins[0])

    def described(self, tree: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the declared configs by entity, as the AdminClient describes them; without what no znode holds.

        Args:
            tree: Entities of which some may be of other tests, and are described as well.
        """
        asked = {entity_of(kind, name).id: (kind, name) for kind, name in resources(self._brokers)}
        asked |= {entity_of("TOPIC", name).id: ("TOPIC", name) for name in TOPICS}
        others = [Entity.from_id(each) for each in tree if each not in asked]
        return declared(self._admins[0], [*asked.values(), *(resource_of(each) for each in others if is_config(each))])

    # -- steps

    def _admin_step(self, admin: Admin, dice: random.Random) -> None:
        match dice.randrange(10):
            case 0 | 1 | 2:
                chosen = dice.sample(_entities(), dice.randint(1, 5))
                admin.alter_quotas(*(_alter(entity, dice) for entity in chosen))
            case 3:  # set, and set back at once
                entity = dice.choice(_entities())
                key = _keys_of(entity)[0]
                for value in (77.0, 1.0, 77.0, None)[: dice.randint(2, 4)]:
                    admin.alter_quotas((entity, [(key, value)]))
            case 4 if dice.random() < 0.3:
                many = [{"user": f"many-{number}", "client-id": None} for number in range(_MANY)]
                admin.alter_quotas(*(_alter(entity, dice) for entity in many))
            case 5 | 6:
                self._topic_step(admin, dice)
            case _:
                kind, name = dice.choice([*resources(self._brokers), *(("TOPIC", each) for each in TOPICS)])
                for _ in range(dice.choice((1, 1, 2))):
                    admin.alter_configs(kind, name, _ops(kind, name, dice))

    def _topic_step(self, admin: Admin, dice: random.Random) -> None:
        name = dice.choice(TOPICS)
        match dice.randrange(4):
            case 0:
                admin.call("deleteTopics", name=name)
            case 1:
                admin.call("createTopics", names=[name], configs=_some("TOPIC", name, dice))
            case 2:  # recreated under the same name at once
                admin.call("deleteTopics", name=name)
                admin.call("createTopics", names=[name], configs=_some("TOPIC", name, dice))
            case _:
                admin.alter_configs("TOPIC", name, _ops("TOPIC", name, dice))

    def _tool_step(self, admin: Admin, dice: random.Random) -> None:
        if dice.random() < 0.5:
            entity = dice.choice(_entities())
            where = [word for kind, name in entity.items() for word in _where(_TOOL_TYPES[kind], name)]
            keys = _keys_of(entity)
            values = {key: str(dice.randint(1, 5)) for key in keys}
        else:
            known = [each for each in resources(self._brokers) if each[0] in _TOOL_TYPES]
            kind, name = dice.choice([*known, *(("TOPIC", each) for each in TOPICS)])
            where = _where(_TOOL_TYPES[kind], name or None)
            values = _some(kind, name, dice)
        if dice.random() < _REMOVALS:
            action = ["--delete-config", ",".join(values)]
        else:
            # Brackets keep the commas of a list together.
            action = ["--add-config", ",".join(f"{key}=[{value}]" for key, value in values.items())]
        admin.config_command("--alter", *where, *action)


def declared(admin: Admin, asked: Sequence[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return the declared quotas of all entities, and configs of some resources, by entity: those that znodes hold."""
    found: dict[str, dict[str, str]] = {}
    for entry in admin.describe_quotas()["entries"]:
        if not set(entry["entity"].values()) & set(BEYOND):
            values = {key: str(value) for key, value in entry["quotas"].items()}
            found[Entity.from_components(entry["entity"].items()).id] = values
    for (kind, name), answer in zip(asked, admin.call("describeConfigs", resources=asked), strict=True):
        own = {
            key: value
            for key, entry in answer.get("configs", {}).items()
            for level, value, source in entry["synonyms"]
            if (level, source) == (key, _SOURCES[kind if name else "DEFAULT"]) and key not in UNSHOWN
        }
        if own:
            found[entity_of(kind, name).id] = own
    return found


def entity_of(kind: str, name: str) -> Entity:
    """Return the entity of a config resource."""
    return Entity.from_components([(kind.lower().replace("_", "-"), name or None)])


def is_config(entity: Entity) -> bool:
    """Say whether an entity is a config resource."""
    return kraft_type_of(entity) is not KraftEntityType.QUOTAS


def resource_of(entity: Entity) -> tuple[str, str]:
    """Return the config resource of an entity."""
    [(kind, name)] = entity.components
    return kind.value.upper().replace("-", "_"), name or ""


def _entities() -> list[dict[str, str | None]]:
    users: list[str | None] = [*NAMES, None]
    clients: list[str | None] = [*CLIENTS, None]
    alone: list[dict[str, str | None]] = [{"user": user} for user in users] + [{"client-id": each} for each in clients]
    pairs: list[dict[str, str | None]] = [
        {"user": user, "client-id": client} for user in (NAMES[0], None) for client in clients
    ]
    ips: list[dict[str, str | None]] = [{"ip": each} for each in (*IPS, None)]
    return alone + pairs + ips


def _keys_of(entity: dict[str, str | None]) -> Sequence[str]:
    return ("connection_creation_rate",) if "ip" in entity else _QUOTAS


def _set(entity: dict[str, str | None], dice: random.Random) -> Quota:
    return entity, [(key, float(dice.randint(1, 5))) for key in _keys_of(entity)]


def _alter(entity: dict[str, str | None], dice: random.Random) -> Quota:
    keys = _keys_of(entity)
    chosen = dice.sample(keys, dice.randint(1, len(keys)))
    return entity, [(key, None if dice.random() < _REMOVALS else float(dice.randint(1, 5))) for key in chosen]


def _values_of(kind: str, name: str | None) -> dict[str, Sequence[str]]:
    return _VALUES["DEFAULT" if kind == "BROKER" and not name else kind]


def _some(kind: str, name: str, dice: random.Random) -> dict[str, str]:
    values = _values_of(kind, name)
    return {key: dice.choice(values[key]) for key in dice.sample(sorted(values), dice.randint(1, 2))}


def _ops(kind: str, name: str, dice: random.Random) -> list[tuple[str, str, str | None]]:
    return [
        (key, "DELETE", "") if dice.random() < _REMOVALS else (key, "SET", value)
        for key, value in _some(kind, name, dice).items()
    ]


def _where(plural: str, name: str | None) -> list[str]:
    return ["--entity-type", plural, *(["--entity-default"] if name is None else ["--entity-name", name])]
