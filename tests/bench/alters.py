"""Alters, 64 at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.load import Load
from tests.bench.rounds import Figure, alternate, column
from tests.bench.transactions import entity
from tests.bench.world import loaded, probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.service import Service

_IN_FLIGHT = 64
_ENTITIES = 1024
_PUT = '{"quotas":{"consumer_byte_rate":1048576,"producer_byte_rate":{value}}}'
_PER_ROUND = 100_000_000
"""Values set aside for a round, so that no write finds its value stored already."""


def measure(world: World, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures of alters."""
    path = f"/v1/clusters/default/client-quotas/{entity(0).id.replace('000000', '{entity}')}"
    references = {mode: world.chroot() for mode in ("bridge", "threads")}
    with world.service() as service, world.service(cluster={"record_external_changes": False}) as other:

        def alter(number: int, service: Service = service, key: str | None = None) -> Sample:
            load = Load(
                service.port,
                path,
                method="PUT",
                headers={
                    "Authorization": f"Bearer {service.token}",
                    **({} if key is None else {"Idempotency-Key": key}),
                },
                body=_PUT,
                connections=_IN_FLIGHT,
                entities=_ENTITIES,
                first_value=1_000_000_000 + number * _PER_ROUND,
                warm_up_s=1.0,
                seconds=seconds,
            )
            return loaded(load, "200", service.pid)

        def alter_with_key(number: int) -> Sample:
            return alter(rounds + 1 + number, key="bench-{value}")

        def transactions(mode: str, number: int) -> Sample:
            found: list[float] = probe(
                "transactions",
                connect=references[mode],
                mode=mode,
                in_flight=_IN_FLIGHT,
                entities=_ENTITIES,
                first_value=1_000_000_000 + number * _PER_ROUND,
                seconds=seconds,
            )
            return tuple(found)

        # The first pass creates the entities; what is measured changes them.
        alter(0)
        alter(0, other)
        alter_with_key(0)
        transactions("bridge", 0)
        transactions("threads", 0)
        ours, keyed, unrecorded, bridge, threads = alternate(
            "alter over HTTP | with an Idempotency-Key | with the recorder off | its transactions through the store"
            " | from plain kazoo threads",
            rounds,
            alter,
            alter_with_key,
            lambda number: alter(number, other),
            lambda number: transactions("bridge", number),
            lambda number: transactions("threads", number),
        )
    yield from _pair("the same transactions through the store, no HTTP, no Postgres", ours, bridge, "0.50")
    yield from _pair("the same transactions from 64 plain kazoo threads", ours, threads)
    yield from _pair("the same with the recorder off", ours, unrecorded)
    yield from _pair("the same with an Idempotency-Key, as client library and CLI send them", ours, keyed)


def _pair(name: str, ours: list[Sample], reference: list[Sample], goal: str = "information") -> Iterator[Figure]:
    yield Figure("Alter (PUT), 64 at a time", "/s", column(ours), name, column(reference), goal)
    yield Figure(
        "Alter: CPU time of the process", "µs", column(ours, 1), name, column(reference, 1), less_is_better=True
    )
