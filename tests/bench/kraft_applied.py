"""Callers' changes applied to a Kafka 4 cluster: grouped beside Kafka's AdminClient, their lag, and the commit's latency."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final

import httpx

from tests.bench.broker import LOAD, SHIPPED
from tests.bench.caller import QUOTAS, Caller
from tests.bench.kraft import observing, run_target
from tests.bench.kraft_describes import REFERENCE
from tests.bench.rounds import Figure, alternate, column, percentiles, progress, summary
from tests.interop.admin import JavaCalls
from tests.support.kraft import kraft_cluster
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.service import Service

_GROUP: Final = 1_000
_RATES: Final = (20, 200, 1_000)
"""Changes a second."""
_REQUESTS: Final = 50
"""Requests a second, at most: each has as many changes as the rate asks for."""
_COMMITS: Final = 200
"""Changes a second beside a cluster without a target."""
_WAIT_MS: Final = 60_000
_PATIENT: Final = {"CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "120000"}
"""Settings of the services: a busy machine may need long for a thousand changes."""
_WAITING: Final = {"Confplane-Wait-Applied": str(_WAIT_MS)}
_PER_ROUND: Final = 100_000
"""Values set aside for a measurement, so that no change finds its value stored already."""
_LEAST_S: Final = 10.0
_SETTLE_S: Final = 60.0


def measure(world: World, class_path: str, *, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the figures, on a node with the options that Kafka ships."""
    properties = {"metadata.max.idle.interval.ms": "500", "num.network.threads": "3", "num.io.threads": "8"}
    with kraft_cluster(world.directory / "kraft-applied", class_path, properties=properties, java=SHIPPED) as kraft:
        (node,) = kraft.nodes
        log, options = world.directory / "load-applied.log", ["-Xmx1G", "-XX:+UseSerialGC"]
        with (
            JavaCalls(LOAD, log, class_path=class_path, bootstrap=node.bootstrap, options=options) as java,
            observing(world, node, _PATIENT) as (service, connect, dsn),
            world.service(settings=_PATIENT) as plain,
        ):
            run_target(world, node, connect, dsn, "adopt", "--reason", "a bench")
            wait_for(lambda: _applies(service), _SETTLE_S, why="the service does not apply changes")
            yield from _grouped(service, java, rounds, seconds)
            yield from _lags(service, rounds, seconds)
            yield from _commits(service, plain, rounds, seconds)


def _applies(service: Service) -> bool:
    return bool(json.loads(Caller(service)("GET", "/v1/clusters/default"))["target"]["mode"] == "adopt")


def _grouped(service: Service, java: JavaCalls, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the rate of changes in one request, applied, beside single alters of the AdminClient."""
    caller = Caller(service, _WAITING)
    # Until a busy machine has answered some of them.
    single = {"connections": 1, "entities": 1_024, "warm_up_s": 1.0, "seconds": max(seconds, _LEAST_S)}

    def theirs(number: int) -> Sample:
        found = java.call("alter", first_value=1 + number * _PER_ROUND, **single)
        return float(found["rate"]), float(found["p50_ms"])

    caller.alter_many(_GROUP, 1)
    java.call("alterMany", entities=1, value=1)
    ours, reference = alternate(
        f"changes a second, applied: {_GROUP:,} in a request | single alters by the AdminClient",
        rounds,
        lambda number: (_GROUP / caller.alter_many(_GROUP, 1 + number),),
        theirs,
        decimals=1,
    )
    yield Figure(
        f"Kafka 4: {_GROUP:,} quotas altered by one request, until applied",
        "/s", column(ours), f"{REFERENCE}, one alter after another", column(reference), "20", decimals=1,
    )  # fmt: skip
    yield Figure(f"One alter by {REFERENCE}, median", "ms", column(reference, 1), decimals=1)


def _lags(service: Service, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the time from a request to its changes in the cluster, at some rates."""
    for rate in _RATES:

        def sample(number: int, rate: int = rate) -> Sample:
            return asyncio.run(_at_a_rate(service, rate, seconds, number, _WAITING))

        (samples,) = alternate(
            f"lag to applied at {rate:,} changes a second, ms at the median",
            rounds,
            sample,
            decimals=1,
        )
        yield from percentiles(f"Kafka 4: {rate:,} changes a second, from the request until applied", samples)


def _commits(service: Service, plain: Service, rounds: int, seconds: float) -> Iterator[Figure]:
    """Yield the time from a request to its answer, which does not wait, beside a cluster without a target."""
    ours, reference = alternate(
        f"commit at {_COMMITS} changes a second, ms at the median: applied behind it | without a target",
        rounds,
        lambda number: asyncio.run(_at_a_rate(service, _COMMITS, seconds, rounds + number, {})),
        lambda number: asyncio.run(_at_a_rate(plain, _COMMITS, seconds, rounds + number, {})),
        decimals=1,
    )
    name = f"Kafka 4: commit of a change, {_COMMITS} a second"
    yield from percentiles(name, ours, "a cluster without a target", reference, ("1.00", "1.00"))


async def _at_a_rate(service: Service, rate: int, seconds: float, number: int, headers: dict[str, str]) -> Sample:
    """Send changes at a rate, whatever their answers do; return the times of the answers."""
    requests = min(rate, _REQUESTS)
    changes, value = rate // requests, 1 + number * _PER_ROUND
    spent: list[float] = []
    own = {"Authorization": f"Bearer {service.token}", **headers}
    async with httpx.AsyncClient(base_url=service.url, headers=own, timeout=120, trust_env=False) as client:

        async def send(at: int) -> None:
            # A user has its next change two seconds later.
            users = range(at % (2 * requests) * changes, at % (2 * requests) * changes + changes)
            entries = [
                {
                    "entity": [{"entityType": "user", "entityName": f"rate-{rate}-{user:06d}"}],
                    "ops": [{"key": "producer_byte_rate", "value": value + at}],
                }
                for user in users
            ]
            begun = time.perf_counter()
            answer = (await client.post(f"{QUOTAS}:alter", json={"entries": entries})).raise_for_status().json()
            spent.append(time.perf_counter() - begun)
            if answer["failed"] or (headers and not all(_is_applied(each) for each in answer["entries"])):
                raise AssertionError(f"a change was not applied in time: {answer}")

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for at in range(int(seconds * requests)):
                await asyncio.sleep(max(0.0, begun + at / requests - time.perf_counter()))
                tasks.create_task(send(at))
    if time.perf_counter() - begun > 2 * seconds:
        progress.print(f"  {rate:,} changes a second are more than this machine can send")
    return summary(spent)


def _is_applied(entry: dict[str, dict[str, str]]) -> bool:
    return entry["applied"]["state"] == "applied"
