"""Side by side with a Kafka broker: its Admin API, by its own AdminClient, on the same ZooKeeper.

Each side has a chroot of its own, so that neither has to follow the other's changes. Confplane's alters include the
trail in Postgres, which Kafka has not.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tests.bench.broker import JUTE_MAXBUFFER, BenchBroker, Peer
from tests.bench.caller import DESCRIBE_ONE, QUOTAS, Caller
from tests.bench.latency import POLL_S, delays
from tests.bench.load import Load
from tests.bench.rounds import Figure, alternate, column, percentiles, progress
from tests.bench.world import loaded
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World

_USER = '{"entityType":"user","entityName":"bench-{entity}"}'
_ALTER = '{"entries":[{"entity":[' + _USER + '],"ops":[{"key":"producer_byte_rate","value":{value}}]}]}'
_ENTITIES = 1024
_PER_ROUND = 100_000_000
_FIRST = 1_000_000_000
_WARM_UP = 5
"""Large alters before they are measured: by then the broker's JVM has compiled what they run."""
REFERENCE = f"Kafka {tools.KAFKA_VERSION}"
"""The name of the reference in the table."""


# ---------------------------------------------------------------- one entity, and many in one request


def one(world: World, class_path: str, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of describes and alters of one entity."""
    connect = world.chroot()
    directory = world.directory / "kafka-one"
    with (
        world.service() as service,
        Peer(directory, class_path=class_path, connect=connect) as peer,
    ):
        headers = {"Authorization": f"Bearer {service.token}"}
        bodies = {"describe": DESCRIBE_ONE, "alter": _ALTER}

        def ours(what: str, connections: int, number: int, length: float = seconds) -> Sample:
            load = Load(
                service.port,
                f"{QUOTAS}:{what}",
                method="POST",
                headers=headers,
                body=bodies[what],
                connections=connections,
                entities=_ENTITIES,
                first_value=_FIRST + number * _PER_ROUND,
                warm_up_s=min(1.0, length),
                seconds=length,
            )
            return loaded(load, "200", service.pid)

        def theirs(what: str, connections: int, number: int, length: float = seconds) -> Sample:
            try:
                return peer.rate(
                    what,
                    connections=connections,
                    entities=_ENTITIES,
                    first_value=_FIRST + number * _PER_ROUND,
                    warm_up_s=min(1.0, length),
                    seconds=length,
                )
            finally:
                if what == "alter":
                    peer.forget_changes()

        caller = Caller(service)
        with progress.status("  creating entities, warming up"):
            # The entities are created; then the JVM compiles what it will run.
            caller.alter_many(_ENTITIES, _FIRST)
            peer.alter_many(_ENTITIES, _FIRST)
            for what in ("describe", "alter"):
                for connections in (1, 64):
                    ours(what, connections, 1)
                    theirs(what, connections, 1, length=max(seconds, 5.0))
            peer.forget_changes()
        number = 2
        for what, goals in (("describe", {1: "2.00", 64: "1.50"}), ("alter", {1: "0.90", 64: "1.00"})):
            for connections, goal in goals.items():
                kept = number
                confplane, kafka = alternate(
                    f"{what} of one entity, {connections} at a time, a second: Confplane | Kafka",
                    rounds,
                    lambda each: ours(what, connections, kept + each),  # noqa: B023 - called in this round
                    lambda each: theirs(what, connections, kept + each),  # noqa: B023
                )
                number += rounds
                yield from _rates(what, connections, confplane, kafka, goal)


def many(world: World, class_path: str, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figure of an alter of many entities in one request."""
    directory = world.directory / "kafka-many"
    with (
        world.service() as service,
        Peer(directory, class_path=class_path, connect=world.chroot()) as peer,
    ):
        caller = Caller(service)

        def ours(number: int) -> Sample:
            return (caller.alter_many(entities, _FIRST + number),)

        def theirs(number: int) -> Sample:
            seconds = peer.alter_many(entities, _FIRST + number)
            peer.forget_changes()
            return (seconds,)

        with progress.status("  creating entities, warming up"):
            for number in range(-_WARM_UP, 0):
                ours(number)
                theirs(number)
        confplane, kafka = alternate(
            f"alter of {entities:,} entities in one request, s: Confplane | Kafka", rounds, ours, theirs, decimals=2
        )
    yield Figure(
        f"Alter of {entities:,} entities in one request",
        "s", column(confplane), REFERENCE, column(kafka), "10.00", decimals=2, less_is_better=True,
    )  # fmt: skip


def _rates(what: str, connections: int, confplane: list[Sample], kafka: list[Sample], goal: str) -> Iterator[Figure]:
    name = f"{what.capitalize()} of one entity"
    if connections == 1:
        yield Figure(
            f"{name}, alone: median",
            "ms", column(confplane, 2), REFERENCE, column(kafka, 2), goal, decimals=2, less_is_better=True,
        )  # fmt: skip
    else:
        yield Figure(f"{name}, {connections} at a time", "/s", column(confplane), REFERENCE, column(kafka), goal)
        yield Figure(
            f"{name}, {connections} at a time: CPU time of the server",
            "µs", column(confplane, 1), REFERENCE, column(kafka, 1), less_is_better=True,
        )  # fmt: skip


# ---------------------------------------------------------------- seen by the other readers


def visibility(world: World, class_path: str, *, rounds: int, changes: int) -> Iterator[Figure]:
    """Yield how soon a change is seen by another service, and by the brokers, which say so in their logs."""
    connect, dsn = world.chroot(), world.database()
    with (
        world.service(connect, dsn) as first,
        world.service(connect, dsn) as second,
        Peer(world.directory / "kafka-seen", class_path=class_path, connect=world.chroot(), brokers=2) as peer,
    ):
        writer, reader = Caller(first), Caller(second)
        body = '{"quotas":{"producer_byte_rate":%d}}'
        path = f"{QUOTAS}/user=bench-000000"

        def ours(number: int) -> Sample:
            def see(value: int) -> float:
                wanted = f":{value}}}".encode()
                while wanted not in reader("GET", path):
                    time.sleep(POLL_S)
                return time.perf_counter()

            def write(value: int) -> None:
                writer("PUT", path, body % value)

            # By the reader, which then has the entity at once.
            reader("PUT", path, body % (number * changes))
            return delays(write, see, range(number * changes + 1, (number + 1) * changes))

        def theirs(number: int) -> Sample:
            def see(value: int) -> float:
                said = rb"entityPath: users/bench-000000 with config: \w+\(producer_byte_rate -> %d\)" % value
                return max(broker.wait_until_it_says(re.compile(said)) for broker in peer.brokers)

            def write(value: int) -> None:
                peer.alter_many(1, value)

            found = delays(write, see, range(number * changes + 1, (number + 1) * changes))
            peer.forget_changes()
            return found

        for side in (ours, theirs):
            side(0)
        confplane, kafka = alternate(
            "a change seen by all other readers, median ms: Confplane | Kafka", rounds, ours, theirs, decimals=2
        )
    yield from percentiles("Change seen by the other readers", confplane, REFERENCE, kafka, decimals=2)


# ---------------------------------------------------------------- all entities


def everything(world: World, class_path: str, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figure of a describe of all entities."""
    with (
        world.service(world.filled(entities)) as service,
        Peer(
            world.directory / f"kafka-{entities}", class_path=class_path, connect=world.filled(entities, "Kafka's")
        ) as peer,
    ):
        caller = Caller(service)

        def sides(side: Caller | Peer) -> Sample:
            seconds, found = side.describe_all()
            if found != entities:
                raise AssertionError(f"{found} entities were described, not {entities}")
            return (seconds,)

        first = sides(caller), sides(peer)
        confplane, kafka = alternate(
            f"describe of {entities:,} entities, s: Confplane | Kafka",
            rounds,
            lambda _: sides(caller),
            lambda _: sides(peer),
            decimals=2,
        )
    yield Figure(
        f"Describe of all {entities:,} entities, the first since the start",
        "s", first[0], REFERENCE, first[1], decimals=2, less_is_better=True,
    )  # fmt: skip
    yield Figure(
        f"Describe of all {entities:,} entities",
        "s", column(confplane), REFERENCE, column(kafka), "20.00" if entities >= 100_000 else "information",
        decimals=2, less_is_better=True,
    )  # fmt: skip


def start(world: World, class_path: str, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figure of a start."""
    dsn = world.database()

    def ours(_: int) -> Sample:
        begun = time.perf_counter()
        with world.service(world.filled(entities), dsn):
            return (time.perf_counter() - begun,)

    def theirs(number: int) -> Sample:
        directory = world.directory / f"kafka-start-{number}"
        broker = BenchBroker(directory, class_path=class_path, connect=world.filled(entities, "Kafka's"))
        begun = time.perf_counter()
        with broker:
            return (time.perf_counter() - begun,)

    confplane, kafka = alternate(
        f"start with {entities:,} entities, s: Confplane | Kafka", rounds, ours, theirs, decimals=2
    )
    yield Figure(
        f"Start with {entities:,} entities until ready (Kafka's jute.maxbuffer {JUTE_MAXBUFFER // 2**20} MiB)",
        "s", column(confplane), REFERENCE, column(kafka), "10.00" if entities >= 100_000 else "information",
        decimals=2, less_is_better=True,
    )  # fmt: skip
