"""Makes valid and invalid alters of a Kafka 4 cluster from a seed, and the configs that they meet."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.interop.differential import vocabulary as words
from tests.interop.differential.generator import Quotas, alone, config_ops
from tests.interop.differential.steps import Method, Step
from tests.support.catalogs import NEWEST
from tests.unit.domain.test_topics import ROWS as TOPIC_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.domain.definitions import ConfigDef

ROUND: Final = 100
"""Cases that meet the same configs."""
TOPICS: Final = ("verdicts-a", "verdicts-b", "verdicts-c")
GROUPS: Final = ("verdicts", "\u00fc/g", "a b")
METRICS: Final = ("verdicts", "m x")
_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
_GOOD_NAMES: Final = {_TOPIC: TOPICS[0], _BROKER: "1", _METRICS: METRICS[0], _GROUP: GROUPS[0]}
_TYPES: Final = (_TOPIC, _GROUP, _METRICS, _BROKER)
_GOOD_OF_GROUPS: Final = {
    "consumer.session.timeout.ms": "50000",
    "consumer.heartbeat.interval.ms": "7000",
    "share.session.timeout.ms": "55000",
    "share.record.lock.duration.ms": "20000",
    "share.delivery.count.limit": "6",
    "share.auto.offset.reset": "earliest",
    "streams.num.standby.replicas": "1",
    "streams.rack.aware.assignment.tags": "zone,rack",
    "errors.deadletterqueue.topic.name": "verdicts-a",
}
_GOOD_OF_METRICS: Final = {"interval.ms": "5000", "metrics": "a.b,c", "match": "client_id=x.*"}
_GOOD_OF_TOPICS: Final = {
    **{row[0]: row[1] for row in TOPIC_ROWS if row[0] in NEWEST.topic and "remote" not in row[0]},
    # Kafka 4 takes no smaller ones.
    "segment.bytes": "1048576",
}
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "share.auto.offset.reset": ("earliest", "latest", "LATEST", "by_duration:PT1H", "by_duration:-PT1H", "by_duration:"),
    "share.isolation.level": ("read_committed", "READ_COMMITTED", " read_uncommitted", "none"),
    "streams.assignor.name": ("sticky", "highly_available", "none", ""),
    "errors.deadletterqueue.topic.name": ("dlq", "__dlq", "a b", "", " ", ".", "x" * 250),
    "match": (
        "client_id=x", "client_id=[", "x=1", "client_id", "client_id=a=b", "client_software_name=.*, client_id=b",
        "client_source_port=1", "=x", "client_id=", " client_id = a ",
    ),
    "metrics": ("*", "a.b", "a,,b", "", ",", "a,a", " a , b "),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One part of an alter, to be decided by itself."""

    method: Method
    part: dict[str, Any]

    @property
    def quotas(self) -> bool:
        """True for client quotas."""
        return self.method is Method.ALTER_QUOTAS

    @property
    def kind(self) -> int:
        """The type of the resource; 0 for client quotas."""
        return 0 if self.quotas else int(self.part["resourceType"])

    @property
    def name(self) -> str:
        """A name of the entity that is another for each other entity."""
        if self.quotas:
            return repr(sorted((item["entityType"], item["entityName"] or "") for item in self.part["entity"]))
        return f"{self.part['resourceType']} {self.part['resourceName']}"

    @property
    def given(self) -> list[tuple[str, Any]]:
        """All keys with the values that are set on them, or appended or subtracted."""
        if self.quotas:
            return [(op["key"], op["value"]) for op in self.part["ops"] if not op["remove"]]
        return [(op["name"], op["value"]) for op in self.part["configs"] if op["configOperation"] != 1]

    @property
    def operations(self) -> set[tuple[str, int]]:
        """The keys of a resource with their operations."""
        return set() if self.quotas else {(op["name"], op["configOperation"]) for op in self.part["configs"]}

    @property
    def shares(self) -> bool:
        """True if the case may share a request with other cases: it can't have the whole request refused."""
        if self.quotas:
            return not alone(self.part) and len({op["key"] for op in self.part["ops"]}) == len(self.part["ops"])
        ops = self.part["configs"]
        return (
            self.kind in {_TOPIC, _GROUP, _METRICS}
            and len({op["name"] for op in ops}) == len(ops)
            and all(op["configOperation"] in {0, 1, 2, 3} for op in ops)
        )

    @property
    def parts(self) -> list[Case]:
        """The operations one by one, each on the entity as named, and on one with a good name."""
        ops, name = ("ops", "entity") if self.quotas else ("configs", "resourceName")
        good: Any = _GOOD_NAMES.get(self.kind)
        if self.quotas:
            of_ip = any(item["entityType"] == "ip" for item in self.part["entity"])
            good = [
                {"entityType": "ip", "entityName": "10.1.2.3"} if of_ip else {"entityType": "user", "entityName": "x"}
            ]
        return [
            Case(self.method, {**self.part, name: each, ops: [op]})
            for each in (self.part[name], good)
            for op in self.part[ops]
        ]

    @property
    def repeats(self) -> bool:
        """True where a key is named twice, which is a fault of the whole."""
        keys = [op["key"] for op in self.part["ops"]] if self.quotas else [op["name"] for op in self.part["configs"]]
        return len(set(keys)) < len(keys)

    def step(self) -> Step:
        """Return the request with this case alone."""
        return step_of([self])


def step_of(cases: Iterable[Case]) -> Step:
    """Return the request with cases of one method, which changes nothing."""
    listed = list(cases)
    method = listed[0].method
    return Step(method, {method.parts: [each.part for each in listed], "validateOnly": True})


RARE: Final = (
    Case(
        Method.ALTER_CONFIGS,
        {
            "resourceType": _BROKER,
            "resourceName": "1",
            "configs": [{"name": "leader.replication.throttled.rate", "value": " 1000 ", "configOperation": 0}],
        },
    ),
)
"""Cases of differences that hardly a seed has; each run has these too."""


class Cases:
    """The cases of one seed.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._quotas = Quotas(self._dice)

    def present(self) -> dict[tuple[int, str], dict[str, str]]:
        """Return configs of the resources that the next cases meet, by type and name of the resource."""
        some = self._some
        return {
            **{(_TOPIC, name): some(_GOOD_OF_TOPICS, 0.15) for name in TOPICS},
            **{(_GROUP, name): some(_GOOD_OF_GROUPS, 0.3) for name in GROUPS},
            **{(_METRICS, name): some(_GOOD_OF_METRICS, 0.5) for name in METRICS},
        }

    def _some(self, good: Mapping[str, str], chance: float) -> dict[str, str]:
        return {key: value for key, value in good.items() if self._dice.random() < chance}

    def next(self) -> Case:
        """Return the next case."""
        if self._dice.random() < 0.4:
            return Case(Method.ALTER_QUOTAS, self._quotas.entry())
        kind = self._dice.choices(_TYPES, (4, 4, 2, 3))[0]
        chance = self._dice.random()
        if kind == _TOPIC:
            name = self._dice.choice(TOPICS if chance < 0.93 else ("nowhere", "", ".", "..", "a b", "x" * 250))
            ops = config_ops(self._dice, tuple(NEWEST.topic), words.TOPIC_LISTS, _topic_value)
        elif kind == _GROUP:
            name = self._dice.choice((*GROUPS, *words.NAMES) if chance < 0.95 else words.BAD_NAMES[:3])
            lists = ("streams.rack.aware.assignment.tags",)
            ops = config_ops(self._dice, tuple(NEWEST.group), lists, _group_value)
        elif kind == _METRICS:
            name = self._dice.choice((*METRICS, *words.NAMES) if chance < 0.95 else words.BAD_NAMES[:3])
            ops = config_ops(self._dice, tuple(NEWEST.client_metrics), ("metrics", "match"), _metrics_value)
        else:
            name = self._dice.choice(("1", "") if chance < 0.95 else ("01", "x", "-1"))
            keys = tuple(key for key in words.VALIDATED_KEYS if key in NEWEST.broker or key.startswith("listener."))
            ops = config_ops(self._dice, keys, ("log.cleanup.policy", "ssl.cipher.suites"), _broker_value)
        return Case(Method.ALTER_CONFIGS, {"resourceType": kind, "resourceName": name, "configs": ops})


def _topic_value(dice: random.Random, key: str) -> str:
    if key in _GOOD_OF_TOPICS:
        return words.config_value(dice, key)
    return _value(dice, key, NEWEST.topic.get(key))


def _broker_value(dice: random.Random, key: str) -> str:
    return words.config_value(dice, key)


def _group_value(dice: random.Random, key: str) -> str:
    return _value(dice, key, NEWEST.group.get(key))


def _metrics_value(dice: random.Random, key: str) -> str:
    return _value(dice, key, NEWEST.client_metrics.get(key))


def _value(dice: random.Random, key: str, definition: ConfigDef | None) -> str:
    """Return a value by a key's type, or one near its default, where bounds are."""
    if key in _TEXTS and dice.random() < 0.7:
        return dice.choice(_TEXTS[key])
    default = "" if definition is None else definition.default or ""
    if default.isdigit() and dice.random() < 0.6:
        number = int(default)
        return str(dice.choice((number, number + 1, number - 1, number * 2, number // 2, number * 100, 0, 1, 60_000)))
    return words.typed_value(dice, key, definition)
