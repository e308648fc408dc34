"""Describes by a service that observes a Kafka 4, beside Kafka's AdminClient on the cluster itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.caller import DESCRIBE_ONE, QUOTAS, Caller
from tests.bench.kraft_describes import DEADLINE_S, ENTITIES, REFERENCE
from tests.bench.load import Load
from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.world import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.interop.admin import JavaCalls
    from tests.support.service import Service


def served(service: Service, java: JavaCalls, *, rounds: int, seconds: float, entities: int) -> Iterator[Figure]:
    """Yield the figures of describes of one entity, and of all."""
    yield from _one(service, java, rounds, seconds)
    yield from _all(service, java, rounds, entities)


def _one(service: Service, java: JavaCalls, rounds: int, seconds: float) -> Iterator[Figure]:
    def ours(connections: int, length: float) -> Sample:
        load = Load(
            service.port,
            f"{QUOTAS}:describe",
            method="POST",
            headers={"Authorization": f"Bearer {service.token}"},
            body=DESCRIBE_ONE,
            connections=connections,
            entities=ENTITIES,
            warm_up_s=min(1.0, length),
            seconds=length,
        )
        rate, _, median_ms = loaded(load, "200", service.pid)
        return rate, median_ms

    def theirs(connections: int, length: float) -> Sample:
        result = java.call(
            "describe",
            answer_s=DEADLINE_S,
            connections=connections,
            entities=ENTITIES,
            first_value=1,
            warm_up_s=min(1.0, length),
            seconds=length,
        )
        return float(result["rate"]), float(result["p50_ms"])

    with progress.status("  warming up"):
        for connections in (1, 64):
            ours(connections, 1.0)
            theirs(connections, max(seconds, 5.0))
    for connections, goal in ((1, "2.00"), (64, "information")):
        confplane, kafka = alternate(
            f"describe of one entity of an observed cluster, {connections} at a time, a second: Confplane | AdminClient",
            rounds,
            lambda _: ours(connections, seconds),  # noqa: B023 - called in this round
            lambda _: theirs(connections, seconds),  # noqa: B023 - as above
        )
        name = "Kafka 4: describe of one entity by the service"
        if connections == 1:
            yield Figure(
                f"{name}, alone: median",
                "ms", column(confplane, 1), REFERENCE, column(kafka, 1), goal, decimals=3, less_is_better=True,
            )  # fmt: skip
        else:
            yield Figure(f"{name}, {connections} at a time", "/s", column(confplane), REFERENCE, column(kafka), goal)


def _all(service: Service, java: JavaCalls, rounds: int, entities: int) -> Iterator[Figure]:
    caller = Caller(service)

    def ours(_: int) -> Sample:
        seconds, found = caller.describe_all()
        if found < entities:
            raise AssertionError(f"{found} entities were described, not {entities}")
        return (seconds,)

    def theirs(_: int) -> Sample:
        return (float(java.call("describeAll", answer_s=DEADLINE_S)["seconds"]),)

    ours(0)
    theirs(0)
    confplane, kafka = alternate(
        f"describe of {entities:,} entities of an observed cluster, s: Confplane | AdminClient",
        rounds,
        ours,
        theirs,
        decimals=2,
    )
    yield Figure(
        f"Kafka 4: describe of all {entities:,} entities by the service",
        "s", column(confplane), REFERENCE, column(kafka), "10.00", decimals=2, less_is_better=True,
    )  # fmt: skip
