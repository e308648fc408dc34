"""Applied reports: polls of many clients that register, with a report for every fifteen and without any.

Clients that poll every twenty seconds report every five minutes. Each report says something new, as the first one after
two minutes does too: it is written to Postgres.

Two loads: an open one of the polls that so many clients send, of which those answered in time count, and a closed one of as
many polls as the service answers, in which a report takes the place of a poll.
"""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import psutil
import psycopg

from tests.bench.load import Load
from tests.bench.reads import DESCRIBE
from tests.bench.rounds import Figure, alternate, column, progress, rates
from tests.bench.world import loaded, sent
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import LiteralString

    from tests.bench.load import Loaded
    from tests.bench.rounds import Sample
    from tests.bench.world import World

_POLLING: Final = 30
_REPORTING: Final = 2
"""Connections, each of which has one request under way: the service answers them in turn."""
_OFFERED: Final = 5_000
"""Polls a second of the open load: those of 100,000 clients every twenty seconds."""
_OPEN: Final = 90
"""Its connections."""
_POLLS_PER_REPORT: Final = 15
_PER_ROUND: Final = 2_000_000_000
"""More than the values of a round, and more than the first of a fill: no report repeats one of an earlier round."""
_USER: Final = "client-{entity}"
_REPORT: Final = f"/v1/clusters/default/client-configs/user={_USER}/instances/one"
_SOFTWARE: Final = {"softwareName": "kafka-python", "softwareVersion": "2.2.15"}
_ALONE: Final = "the same polls alone"
_MARGIN: Final = 1.5
"""A fill lasts this much longer than its rate says, so that each client has its turn."""
_ENOUGH: Final = 1.2
"""Replies of a fill for each client, at least: connections are not equally fast."""


def measure(world: World, *, rounds: int, seconds: float, entities: int) -> Iterator[Figure]:
    """Yield the figures of so many clients."""
    entities -= entities % math.lcm(_POLLING, _REPORTING, _OPEN)
    dsn = world.database()
    with world.service(dsn=dsn) as service, psycopg.connect(dsn, autocommit=True) as postgres:
        process = psutil.Process(service.pid)
        components = [{"entityType": "user", "matchType": "exact", "match": _USER}]
        supported = {"supportedConfigs": ["acks"], "clientInformation": _SOFTWARE}
        poll = Load(
            service.port,
            DESCRIBE,
            method="POST",
            headers={"Authorization": f"Bearer {service.token}"},
            body=json.dumps({"components": components, "resolveEntity": True, **supported}),
            connections=_POLLING,
            entities=entities,
            seconds=seconds,
        )
        report = replace(poll, path=_REPORT, method="PUT", body=json.dumps({**_SOFTWARE, "appliedRevision": "{value}"}))
        polls = _filled(poll, entities)
        before = process.memory_info().rss
        _filled(report, entities)
        grown = (process.memory_info().rss - before) / entities
        for table in ("registrations", "applied_reports"):
            wait_for(lambda table=table: _rows(postgres, table) == entities, why=f"a row of {table} for each client")  # type: ignore[misc]  # the type of a default
        paced = replace(report, connections=_REPORTING, rest_s=_REPORTING * _POLLS_PER_REPORT / polls)
        reached = _version(postgres)
        began = time.monotonic()

        def beside(number: int) -> Sample:
            with ThreadPoolExecutor(1) as pool:
                # Begins before the polls are counted, and ends after them.
                reports = pool.submit(_send, replace(paced, first_value=number * _PER_ROUND, seconds=seconds + 2.0))
                sample = loaded(poll, "200", service.pid)
                return *sample, reports.result().rate

        ours, reference = alternate(
            f"polls of {entities:,} clients with reports | without",
            rounds,
            beside,
            lambda _: loaded(poll, "200", service.pid),
        )
        offered = replace(poll, rate=_OFFERED, connections=_OPEN)
        openly = replace(report, rate=_OFFERED / _POLLS_PER_REPORT, connections=_OPEN)

        def in_time(_: int) -> Sample:
            found = _send(offered)
            return found.in_time / found.seconds, found.p99_ms

        def in_time_beside(number: int) -> Sample:
            with ThreadPoolExecutor(1) as pool:
                first = (rounds + number) * _PER_ROUND
                reports = pool.submit(_send, replace(openly, first_value=first, seconds=seconds + 2.0))
                return *in_time(number), reports.result().rate

        openly_ours, openly_reference = alternate(
            f"{_OFFERED:,} polls a second of {entities:,} clients, in time, with reports | without",
            rounds,
            in_time_beside,
            in_time,
        )
        written = (_version(postgres) - reached) / (time.monotonic() - began)
    yield from rates(f"Polls of {entities:,} clients that register, with reports beside", ours, _ALONE, reference)
    yield Figure("Reports meanwhile", "/s", column(ours, 3))
    name = f"Polls in time of {_OFFERED:,} a second, with reports beside"
    yield Figure(name, "/s", column(openly_ours), _ALONE, column(openly_reference), "0.95")
    p99_ms = column(openly_ours, 1), _ALONE, column(openly_reference, 1)
    yield Figure(f"{name}: 99th percentile of the time to an answer", "ms", *p99_ms, decimals=1, less_is_better=True)
    yield Figure("Reports beside them", "/s", column(openly_ours, 2))
    yield Figure("Rows of reports written meanwhile", "/s", [written], goal="one a report at most")
    yield Figure("Memory for each client that reports", "bytes", [grown])


def _filled(load: Load, entities: int) -> float:
    """Send a load until each client had its turn, and return its rate."""
    with progress.status(f"  {load.method} of {entities:,} clients"):
        found = _send(load)
        while found.all_replies < _ENOUGH * entities:
            found = _send(replace(load, seconds=_MARGIN * entities / found.rate))
        return found.rate


def _send(load: Load) -> Loaded:
    found = sent(load)
    if set(found.statuses) != {"200"}:
        raise AssertionError(f"{load.method} {load.path} was answered {found.statuses}")
    return found


def _rows(postgres: psycopg.Connection, table: LiteralString) -> int:
    """Return the number of rows of a table, each of a client of its own."""
    [(count,)] = postgres.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - a name above
    return int(count)


def _version(postgres: psycopg.Connection) -> int:
    """Return the number of rows of reports that were ever written."""
    [(version,)] = postgres.execute("SELECT coalesce(max(version), 0) FROM applied_reports").fetchall()
    return int(version)
