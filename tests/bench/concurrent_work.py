"""One alter at a time, concurrently with other work of the service."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from tests.audit.rows import fetch
from tests.bench.caller import QUOTAS, Caller
from tests.bench.load import Load
from tests.bench.rounds import alternate, percentiles, summary
from tests.bench.world import sent
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.rounds import Figure, Sample
    from tests.bench.world import World
    from tests.support.service import Service

_PATH = f"{QUOTAS}/user=alone"
_CALLERS = 32
_PER_ROUND = 1_000_000
_PAUSE_S = 0.5
_FIRST_CONTACT_S = 1800.0


def measure(world: World, *, rounds: int, seconds: float, entities: int, bulk: int) -> Iterator[Figure]:
    """Yield the latencies during requests with ``bulk`` alters each, beside contention, and during loads of entities.

    The contention is about one entity, which callers of two services alter without a pause. The reference is the same
    load on two entities. A load is of ``entities`` entities.
    """
    with world.service() as service:
        caller, values = Caller(service), iter(range(1, 1_000_000))

        def alter_many() -> None:
            caller.alter_many(bulk, next(values))

        alter_many()
        yield from _alone_and_during(f"requests of {bulk:,} alters", service, alter_many, rounds, seconds)

    yield from _beside_contention(world, rounds, seconds)

    connect = world.filled(entities)
    client = KazooClient(connect)
    client.start()
    client.ensure_path("/config/changes")

    def load() -> None:
        # A number of a notification that cannot be read: everything is loaded again.
        client.create("/config/changes/used-up")
        client.delete("/config/changes/used-up")
        time.sleep(_PAUSE_S)

    dsn = world.database()
    with world.service(connect, dsn) as service:
        # The recorder's first contact with all entities is no part of either side.
        wait_for(lambda: fetch(dsn, "SELECT 1 FROM watermarks WHERE complete"), _FIRST_CONTACT_S, pause_s=1)
        yield from _alone_and_during(f"loads of {entities:,} entities", service, load, rounds, seconds)
    client.stop()
    client.close()


def _beside_contention(world: World, rounds: int, seconds: float) -> Iterator[Figure]:
    connect, dsn = world.chroot(), world.database()
    with world.service(connect, dsn) as service, world.service(connect, dsn) as other:

        def beside(number: int, *, contended: bool) -> Sample:
            first = 2 * number + contended
            load = Load(
                service.port,
                f"{QUOTAS}/user=bench-{{entity}}",
                method="PUT",
                headers={"Authorization": f"Bearer {service.token}"},
                body='{"quotas":{"producer_byte_rate":{value}}}',
                connections=_CALLERS,
                entities=_CALLERS,
                first_value=1_000_000_000 + first * _PER_ROUND,
                warm_up_s=1.0,
                seconds=seconds,
            )
            values = iter(range(first * _PER_ROUND, (first + 1) * _PER_ROUND))
            name = "contended" if contended else "apart"
            with (
                _repeated(_writer(service, f"{QUOTAS}/user={name}", values)),
                _repeated(_writer(other, f"{QUOTAS}/user={name}{'' if contended else '-other'}", values)),
            ):
                sent_now = sent(load)
            if set(sent_now.statuses) != {"200"}:
                raise AssertionError(f"The alters beside contention were answered {sent_now.statuses}")
            return sent_now.p50_ms, sent_now.p99_ms

        what = f"Alter of {_CALLERS} callers beside an entity that two services alter without a pause"
        ours, reference = alternate(
            f"{what} | two entities, median ms",
            rounds,
            partial(beside, contended=True),
            partial(beside, contended=False),
            decimals=1,
        )
        yield from percentiles(what, ours, "beside two entities", reference, ("information", "0.50"))


def _writer(service: Service, path: str, values: Iterator[int]) -> Callable[[], None]:
    caller = Caller(service)

    def write() -> None:
        caller("PUT", path, f'{{"quotas":{{"producer_byte_rate":{next(values)}}}}}')

    return write


def _alone_and_during(
    what: str, service: Service, work: Callable[[], None], rounds: int, seconds: float
) -> Iterator[Figure]:
    caller = Caller(service)

    def alone(number: int) -> Sample:
        took: list[float] = []
        end = time.monotonic() + seconds
        while (begun := time.monotonic()) < end:
            caller("PUT", _PATH, f'{{"quotas":{{"producer_byte_rate":{number * _PER_ROUND + len(took)}}}}}')
            took.append(time.monotonic() - begun)
        return summary(took)

    def beside(number: int) -> Sample:
        with _repeated(work):
            return alone(rounds + number)

    alone(0)
    ours, reference = alternate(
        f"one alter at a time beside {what} | alone, median ms", rounds, beside, alone, decimals=1
    )
    yield from percentiles(f"Alter of one entity beside {what}", ours, "alone", reference, ("information", "0.50"))


@contextmanager
def _repeated(work: Callable[[], None]) -> Iterator[None]:
    enough = threading.Event()

    def repeat() -> None:
        while not enough.is_set():
            work()

    worker = threading.Thread(target=repeat)
    worker.start()
    try:
        yield
    finally:
        enough.set()
        worker.join()
