"""Makes sequences of requests from a seed: the same ones whenever and wherever it runs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from confplane.store.znodes import encode_entity
from tests.interop.differential import vocabulary as words
from tests.interop.differential.steps import STEPS, Method, Sequence, Step, config_path, quota_path
from tests.interop.differential.stored import config_of
from tests.unit.domain.test_topics import ROWS as TOPIC_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.differential.steps import Body, Tree

Names = dict[str, str | None]

_KINDS: Final = (
    "quotas",
    "topics",
    "quotas",
    "brokers",
    "quotas",
    "planted quotas",
    "topics",
    "quotas",
    "brokers",
    "planted configs",
)
"""Subjects of the sequences, in turn. A planted one starts with content that no request of Kafka's would have written."""


def sequence(seed: int, number: int) -> Sequence:
    """Return one of a seed's sequences."""
    dice = random.Random(f"{seed}/{number}")  # noqa: S311 - reproducible, not secret
    kind = _KINDS[number % len(_KINDS)]
    planted = kind.startswith("planted")
    if kind.endswith("quotas"):
        quotas = Quotas(dice)
        return Sequence(seed, number, quotas.start(planted=planted), tuple(quotas.step() for _ in range(STEPS)))
    configs = _Configs(dice, brokers=0.2 if kind == "topics" else 0.85 if kind == "brokers" else 0.5)
    start = configs.start(planted=planted)
    if planted and number // len(_KINDS) % 2:
        # No topic can have it, so that little else of a topic is seen: not in every sequence.
        start["brokers/0"] = _encoded({"log.flush.interval.ms": "-2"})
    return Sequence(seed, number, start, tuple(configs.step() for _ in range(STEPS)))


def _encoded(config: dict[str, str]) -> bytes:
    return encode_entity(config)


class Quotas:
    """Describes and alters of client quotas, all about the same few names."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._users: list[str | None] = [None, *dice.sample(words.NAMES, 2)]
        self._clients: list[str | None] = [None, *dice.sample(words.NAMES, 2)]
        self._ips: list[str | None] = [None, *dice.sample(words.IPS, 2)]
        self._planted: list[tuple[Names, tuple[str, ...]]] = []
        """Entities with planted data, and the keys in it."""

    def start(self, *, planted: bool) -> Tree:
        tree: Tree = {}
        for _ in range(self._dice.randint(0, 6)):
            names = self._sound()
            keys = (words.IP_KEY,) if "ip" in names else words.QUOTA_KEYS
            config = {key: str(self._dice.choice((1, 50, 1024, 1048576))) for key in keys if self._dice.random() < 0.5}
            if set(names) == {"user"} and names["user"] is not None and self._dice.random() < 0.5:
                config[words.SCRAM] = words.CREDENTIAL
            path = quota_path(names)
            assert path is not None
            tree[path] = _encoded(config)
        if planted:
            for _ in range(3):
                names = self._sound()
                path = quota_path(names)
                assert path is not None
                data = self._dice.choice(_PLANTED_IP if "ip" in names else _PLANTED)
                tree[path] = data
                self._planted.append((names, tuple(config_of(data) or ())))
        return tree

    def step(self) -> Step:
        if self._dice.random() < 0.4:
            return Step(Method.DESCRIBE_QUOTAS, self._filter())
        entries = [self.entry() for _ in range(self._dice.choice((1, 1, 1, 1, 2, 3, 0)))]
        if any(alone(entry) for entry in entries):
            entries = [next(entry for entry in entries if alone(entry))]
        elif entries and self._dice.random() < 0.04:
            entries.append({**self.entry(), "entity": entries[0]["entity"]})
        return Step(Method.ALTER_QUOTAS, {"entries": entries, "validateOnly": self._dice.random() < 0.2})

    def _sound(self) -> Names:
        """Return an entity that can have quotas."""
        chance = self._dice.random()
        if chance < 0.2:
            return {"ip": self._dice.choice(self._ips)}
        names: Names = {}
        if chance < 0.75:
            names["user"] = self._dice.choice(self._users)
        if chance > 0.5:
            names["client-id"] = self._dice.choice(self._clients)
        return names

    def _entity(self) -> list[dict[str, str | None]]:
        names = self._sound()
        listed = _listed(names)
        chance = self._dice.random()
        if chance < 0.8:
            return self._dice.sample(listed, len(listed))
        if chance < 0.9:
            kind = self._dice.choice([*names, *names, "ip"])
            bad = words.BAD_IPS if kind == "ip" else words.BAD_NAMES
            return [{"entityType": item, "entityName": name} for item, name in names.items() if item != kind] + [
                {"entityType": kind, "entityName": self._dice.choice(bad)}
            ]
        if chance < 0.93:
            return [*listed, {"entityType": self._dice.choice(("user", "client-id", "ip")), "entityName": "alice"}]
        if chance < 0.98:
            kind = self._dice.choice(("", "User", "group", "topic", "broker", "users"))
            return [*listed, {"entityType": kind, "entityName": self._dice.choice(("alice", None, ""))}]
        return []

    def entry(self) -> dict[str, Any]:
        """Return an entry of an alter."""
        keys: tuple[str, ...] = ()
        if self._planted and self._dice.random() < 0.4:
            # Left to chance, hardly any request would touch what is planted, and fewer still its keys.
            names, keys = self._dice.choice(self._planted)
            entity = _listed(names)
        else:
            entity = self._entity()
        if not keys:
            keys = (words.IP_KEY,) if any(item["entityType"] == "ip" for item in entity) else words.QUOTA_KEYS
        return {"entity": entity, "ops": [self._op(keys) for _ in range(self._dice.choice((1, 1, 2, 3, 4, 0)))]}

    def _op(self, keys: tuple[str, ...]) -> dict[str, Any]:
        key = self._dice.choice(keys)
        chance = self._dice.random()
        if chance < 0.06:
            key = self._dice.choice((*words.UNKNOWN_KEYS, *words.QUOTA_KEYS, words.IP_KEY))
        elif chance < 0.08:
            key = words.SCRAM
        if self._dice.random() < 0.35:
            # Kafka's wire has a value beside every removal, which says nothing.
            return {"key": key, "value": self._dice.choice((0.0, 5.0)), "remove": True}
        return {"key": key, "value": words.quota_value(self._dice, key), "remove": False}

    def _filter(self) -> Body:
        chance = self._dice.random()
        names = self._sound()
        if chance < 0.2:
            names.pop(next(iter(names)))
        components = [self._component(kind, name) for kind, name in names.items()]
        if chance > 0.85:
            kind = self._dice.choice(("user", "client-id", "ip", "", "topic", "User"))
            components.append(self._component(kind, "alice"))
        self._dice.shuffle(components)
        return {"components": components, "strict": self._dice.random() < 0.5}

    def _component(self, kind: str, name: str | None) -> dict[str, Any]:
        chance = self._dice.random()
        if chance < 0.03:
            return {"entityType": kind, "matchType": self._dice.choice((3, -1, 127)), "match": None}
        if chance < 0.05:
            bad: tuple[str | None, ...] = (*words.BAD_NAMES, None)
            return {"entityType": kind, "matchType": 0, "match": self._dice.choice(bad)}
        if chance < 0.3:
            return {"entityType": kind, "matchType": 2, "match": self._dice.choice((None, None, "x"))}
        if name is None:
            return {"entityType": kind, "matchType": 1, "match": self._dice.choice((None, None, "x"))}
        return {"entityType": kind, "matchType": 0, "match": name}


def _listed(names: Names) -> list[dict[str, str | None]]:
    return [{"entityType": kind, "entityName": name} for kind, name in names.items()]


def alone(entry: dict[str, Any]) -> bool:
    """Say whether a JSON body can't carry this, so that the whole request is refused."""
    names = [item["entityName"] or "" for item in entry["entity"]]
    return any("\ud800" <= letter <= "\udfff" or letter == "\0" for name in names for letter in name) or any(
        op["value"] != op["value"] or abs(op["value"]) == float("inf") for op in entry["ops"]
    )


class _Configs:
    """Describes and alters of topics and brokers."""

    def __init__(self, dice: random.Random, *, brokers: float) -> None:
        self._dice = dice
        self._brokers = brokers
        # Few keys, so that what one step sets another removes.
        self._topic_keys = [*dice.sample(words.TOPIC_KEYS, 8), "cleanup.policy"]
        self._applied_keys = [*dice.sample(words.APPLIED_KEYS, 8), "log.cleanup.policy"]
        self._topics = dice.sample(words.TOPICS, 2)

    def start(self, *, planted: bool) -> Tree:
        tree: Tree = {}
        for topic in words.TOPICS:
            config = {
                key: good for key, good, *_ in TOPIC_ROWS if key in self._topic_keys and self._dice.random() < 0.15
            }
            if planted and self._dice.random() < 0.5:
                config[self._dice.choice(self._topic_keys)] = "planted"
                config["foreign.config"] = "of somebody"
            tree[f"topics/{topic}"] = _encoded(config)
        if planted:
            tree["brokers/<default>"] = _encoded({"log.retention.ms": "planted", "acme.plain": "x", "broker.id": "7"})
            tree["brokers/0"] = _encoded({"log.cleaner.min.cleanable.ratio": "2", "compression.type": "lz4"})
        return tree

    def step(self) -> Step:
        if self._dice.random() < 0.4:
            return Step(Method.DESCRIBE_CONFIGS, self._describe())
        brokers = self._dice.random() < self._brokers
        make: Callable[[], dict[str, Any]] = self._of_broker if brokers else self._of_topic
        validate_only = self._dice.random() < 0.2
        if brokers and self._dice.random() < 0.35:
            make, validate_only = self._validated, True
        resources = [make() for _ in range(self._dice.choice((1, 1, 1, 1, 2, 3, 0)))]
        if resources and self._dice.random() < 0.03:
            resources.append(dict(resources[0]))
        return Step(Method.ALTER_CONFIGS, {"resources": resources, "validateOnly": validate_only})

    def _topic(self) -> str:
        if self._dice.random() < 0.9:
            return self._dice.choice(self._topics)
        return self._dice.choice(("nowhere", "", ".", "..", "a b", "\u00fc", "x" * 250, "__consumer_offsets"))

    def _broker(self) -> str:
        chance = self._dice.random()
        if chance < 0.93:
            return self._dice.choice(("0", ""))
        return self._dice.choice(("1", "00", "+0", "-1", "x", "2147483648", " 0", "<default>"))

    def _describe(self) -> Body:
        resources = []
        for _ in range(self._dice.choice((1, 1, 1, 2, 3, 0))):
            chance = self._dice.random()
            if chance < 0.05:
                resource: dict[str, Any] = {
                    "resourceType": self._dice.choice((0, 1, 3, 8, 16, 32)),
                    "resourceName": self._dice.choice(("0", "", "orders")),
                }
            elif chance < 0.05 + 0.95 * self._brokers:
                resource = {"resourceType": 4, "resourceName": self._broker()}
            else:
                resource = {"resourceType": 2, "resourceName": self._topic()}
            keys = None
            if self._dice.random() < 0.4:
                known = (*self._topic_keys, *self._applied_keys, "no.such", "log.retention.hours", "foreign.config")
                keys = [self._dice.choice(known) for _ in range(self._dice.randint(0, 5))]
            resources.append({**resource, "configurationKeys": keys})
        return {
            "resources": resources,
            "includeSynonyms": self._dice.random() < 0.8,
            "includeDocumentation": False,
        }

    def _of_topic(self) -> dict[str, Any]:
        resource = {"resourceType": 2, "resourceName": self._topic()}
        if self._dice.random() < 0.02:
            resource["resourceType"] = self._dice.choice((0, 1, 3, 8, 16, 32))
        return {**resource, "configs": self._ops(self._topic_keys, words.TOPIC_LISTS)}

    def _of_broker(self) -> dict[str, Any]:
        keys = self._applied_keys
        return {"resourceType": 4, "resourceName": self._broker(), "configs": self._ops(keys, ("log.cleanup.policy",))}

    def _validated(self) -> dict[str, Any]:
        resource = {"resourceType": 4, "resourceName": self._broker()}
        return {**resource, "configs": self._ops(words.VALIDATED_KEYS, ("log.cleanup.policy", "ssl.cipher.suites"))}

    def _ops(self, keys: Any, lists: tuple[str, ...]) -> list[dict[str, Any]]:
        return config_ops(self._dice, keys, lists, words.config_value)


def config_ops(
    dice: random.Random, keys: Any, lists: tuple[str, ...], value_of: Callable[[random.Random, str], str]
) -> list[dict[str, Any]]:
    """Return the ops on one resource.

    Args:
        dice: The seed's.
        keys: The keys to choose from.
        lists: Those of them that lists can be appended to.
        value_of: Makes a value for a key.
    """
    ops = [_config_op(dice, keys, lists, value_of) for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 0)))]
    # The same key twice is refused on both sides before all else: seldom, or nothing else would be seen.
    if dice.random() < 0.95:
        ops = list({op["name"]: op for op in ops}.values())
    return ops


def _config_op(
    dice: random.Random, keys: Any, lists: tuple[str, ...], value_of: Callable[[random.Random, str], str]
) -> dict[str, Any]:
    key = dice.choice(keys)
    operation = dice.choice((0, 0, 0, 0, 1, 1, 2, 3))
    chance = dice.random()
    if operation in {2, 3} and chance < 0.75:
        key = dice.choice(lists)
    elif chance > 0.97:
        key = dice.choice(words.OTHER_KEYS)
    elif chance > 0.96:
        operation = dice.choice((4, -1, 127))
    value: str | None = value_of(dice, key)
    if (operation == 1 and dice.random() < 0.8) or dice.random() < 0.02:
        value = None
    return {"name": key, "configOperation": operation, "value": value}


def paths_of(step: Step) -> list[str | None]:
    """Return where each part of an alter writes, None where it can't."""
    if step.method is Method.ALTER_QUOTAS:
        return [
            quota_path({item["entityType"]: item["entityName"] for item in entry["entity"]})
            for entry in step.body["entries"]
        ]
    return [config_path(item["resourceType"], item["resourceName"]) for item in step.body["resources"]]


_PLANTED: Final = (
    b"no json",
    b"[]",
    b'{"version":1}',
    b'{"version":1,"config":{"producer_byte_rate":5}}',
    b'{"version":1,"config":{"producer_byte_rate":"abc"}}',
    b'{"version":1,"config":{"producer_byte_rate":"50000.0"}}',
    b'{"version":1,"config":{"request_percentage":"NaN"}}',
    b'{"version":1,"config":{"acks":"-1"}}',
    b'{"version":1,"config":{"acks":"-1","producer_byte_rate":"7"}}',
    b'{"version":"1","config":{"consumer_byte_rate":"8"},"owner":"somebody"}',
    b'{"version":1,"config":{"consumer_byte_rate":"8"}} and more',
    b'{"version":1,"config":{"consumer_byte_rate":"1","consumer_byte_rate":"2"}}',
    b'{ "config" : { "request_percentage" : "1e2" } }',
)
_PLANTED_IP: Final = (
    b"no json",
    b'{"version":1,"config":{"connection_creation_rate":"abc"}}',
    b'{"version":1,"config":{"connection_creation_rate":"-5"}}',
    b'{"version":1,"config":{"connection_creation_rate":"5.0","producer_byte_rate":"1"}}',
    b'{"version":1,"config":{"connection_creation_rate":"5","producer_byte_rate":"1"}}',
)
