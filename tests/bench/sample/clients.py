"""Clients that register and report: each has a software whose version moves on, and is seen once a day when it is up."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tests.bench.sample.population import client_entities
from tests.bench.sample.trail import DAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.sample.population import Member
    from tests.bench.sample.trail import Plan, Row

_SOFTWARE: Final = (
    ("apache-kafka-java", ("3.5.1", "3.6.2", "3.7.1", "3.8.0", "3.9.1")),
    ("librdkafka", ("2.3.0", "2.4.0", "2.6.1")),
    ("confplane-python", ("0.1.0", "0.2.0")),
    ("kafka-go", ("v0.4.47",)),
    ("<b>odd</b>, Zoë", ("1 & 2", "")),
)
_PRODUCER: Final = ["acks"]
_CONSUMER: Final = ["heartbeat.interval.ms", "session.timeout.ms"]
_SETS: Final[tuple[list[str], ...]] = (
    _PRODUCER,
    _CONSUMER,
    ["acks", "heartbeat.interval.ms", "session.timeout.ms"],
    [],
)
_US_OF_DAY: Final = 86_400_000_000


def reports(plan: Plan, members: list[Member]) -> Iterator[Row]:
    """Yield the rows of ``REPORTS``: of half of all clients, each with up to three instances."""
    chosen = random.Random(f"reports {plan.seed}")  # noqa: S311 - made-up data
    for entity in client_entities(members, chosen):
        name, versions = chosen.choice(_SOFTWARE)
        version = chosen.choice(versions)
        for number in range(max(0, chosen.randrange(-3, 4))):
            refused = chosen.choice(([], [], ["acks"], _CONSUMER))
            yield entity, f"i{number}", name, version, chosen.randrange(1, plan.events + 2), refused


def refused_attempts(plan: Plan, members: list[Member]) -> Iterator[Row]:
    """Yield the rows of ``REFUSED_ATTEMPTS``, by time: a tenth as many as changes, and a sum now and then."""
    chosen = random.Random(f"refused {plan.seed}")  # noqa: S311 - made-up data
    entities = [*client_entities(members, chosen), "topic=absent", None]
    begin, count = int(plan.begin.timestamp()) * 1_000_000, plan.events // 10 if members else 0
    for number in range(count):
        at = begin + number * DAYS * _US_OF_DAY // count
        change_id = str(UUID(int=at // 1_000 << 80 | 0x7 << 76 | 0x2 << 62 | number))
        principal, code = chosen.choice(("User:admin", "User:bob", "User:x")), chosen.choice((31, 42, 44, -1))
        if chosen.random() < 0.05:
            yield change_id, at // 1_000 * 1_000, principal, None, [], code, chosen.randrange(1, 1_000)
        else:
            keys = chosen.choice(([], ["acks"], ["acks", "producer_byte_rate"]))
            yield change_id, at // 1_000 * 1_000, principal, chosen.choice(entities), keys, code, 1


def events(plan: Plan, members: list[Member]) -> Iterator[Row]:
    """Yield the rows of ``REGISTRATION_EVENTS``, by id."""
    chosen = random.Random(f"clients {plan.seed}")  # noqa: S311 - made-up data
    clients = client_entities(members, chosen)
    count = plan.events // 2 if clients else 0
    begin = int(plan.begin.timestamp()) * 1_000_000
    day, today = 0, set[tuple[str, int, int]]()
    for number in range(1, count + 1):
        passed = number / count
        at = begin + int(passed * DAYS * _US_OF_DAY)
        if at // _US_OF_DAY != day:
            day, today = at // _US_OF_DAY, set()
        if chosen.random() < 0.0005:
            # All are cleared in the first days only, so that at any size most of the rows stand.
            of_all = chosen.random() < (0.04 if passed < 0.1 else 0)
            entity = None if of_all else clients[int(len(clients) * chosen.random())]
            yield number, "cleared", entity, None, None, None, None, at
            today = set()
            continue
        while True:
            index = int(len(clients) * chosen.random() ** 2)
            draw = index * 2_654_435_761 % 2**32 / 2**32
            name, versions = _SOFTWARE[int(len(_SOFTWARE) * draw**2)]
            # Each upgrades when it does; some that are late run two versions at a time.
            newest = passed * 1.6 - draw * 0.6 + (0.2 if chosen.random() < 0.1 else 0)
            version = versions[max(0, min(len(versions) - 1, int(newest * len(versions))))]
            role = int(draw * 997) % 3 if chosen.random() < 0.9 else int(4 * chosen.random())
            seen = (name + version, index, role)
            if seen not in today:
                break
            # Everybody was here today: tell of the next day's first.
            if len(today) >= len(clients):
                today = set()
        today.add(seen)
        # A batch may wait for a while before it is written.
        waited = int(chosen.random() * (3_600_000_000 if chosen.random() < 0.01 else 1_000_000))
        yield number, "seen", clients[index], name, version, _SETS[role], at - waited, at
