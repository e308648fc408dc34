"""Manifests: the time of plans and applies, and its growth; the memory of an apply and of an export; many files.

The processor time of the service depends less on what else the machine does than the time that passes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil

from tests.bench.commands import used_by
from tests.bench.mirror import peak
from tests.bench.rounds import Figure, alternate, column, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World
    from tests.support.service import Service

_SMALL = 10_000
_FILES = 2_000
_HEAD = {"apiVersion": "confplane/v1", "kind": "Configs", "owner": "bench", "labels": {"stage": "bench"}}
_STEPS = ("plan of creates", "apply", "plan of no changes", "plan of no changes, without an owner")
_ATTEMPTS = 5


def measure(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figures of manifests."""
    sizes = {"large": entities, "small": min(_SMALL, entities)}

    def sent(size: str) -> Sample:
        with world.service() as service:
            return _sent(service, sizes[size])

    large, small = alternate(
        f"seconds of a plan of {sizes['large']:,} | {sizes['small']:,} entities",
        rounds,
        lambda _: sent("large"),
        lambda _: sent("small"),
        decimals=1,
    )
    for index, step in enumerate(_STEPS):
        for offset, what in enumerate(("time", "CPU time of the service")):
            per_entity = [
                [seconds / sizes[size] * 1e6 for seconds in column(samples, 2 * index + offset)]
                for size, samples in (("large", large), ("small", small))
            ]
            yield Figure(
                f"Manifest of {entities:,} entities: {step}, {what} for each entity",
                "µs",
                per_entity[0],
                f"with {sizes['small']:,}",
                per_entity[1],
                less_is_better=True,
            )
    yield Figure(
        f"Manifest of {entities:,} entities: requests of the apply",
        "",
        column(large, 2 * len(_STEPS) + 2),
        f"with {sizes['small']:,}",
        column(small, 2 * len(_STEPS) + 2),
        less_is_better=True,
    )
    for index, what in enumerate(("plans and the apply", "an export"), 2 * len(_STEPS)):
        yield Figure(
            f"Manifest of {entities:,} entities: growth of the service's memory by {what}",
            "MB",
            column(large, index),
            f"with {sizes['small']:,}",
            column(small, index),
            decimals=1,
            less_is_better=True,
        )
    yield from _files(world, rounds, entities)


def _sent(service: Service, entities: int) -> Sample:
    """Plan, apply and export a manifest.

    Returns the seconds and the seconds of processor time of each step, the growth of memory in megabytes by the steps
    and by the export, and the number of requests of the apply.
    """
    body = {**_HEAD, "entities": list(_entities(entities))}
    headers = {"Authorization": f"Bearer {service.token}"}
    base = f"{service.url}/v1/clusters/default/manifests"
    process = psutil.Process(service.pid)

    def clock() -> Callable[[], tuple[float, float]]:
        """Return a function that returns the seconds, and those of processor time of the service, since this call."""
        begun, spent = time.monotonic(), sum(process.cpu_times()[:2])
        return lambda: (time.monotonic() - begun, sum(process.cpu_times()[:2]) - spent)

    with httpx.Client(headers=headers, trust_env=False, timeout=120) as http:

        def planned(document: dict[str, Any]) -> tuple[tuple[float, float], dict[str, Any]]:
            since = clock()
            for _ in range(_ATTEMPTS):  # the recorder may be behind
                answer = http.post(f"{base}:plan", json=document)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    break
            if answer.status_code != httpx.codes.OK:
                raise AssertionError(f"The plan was answered with {answer.status_code}: {answer.text[:500]}")
            found: dict[str, Any] = answer.json()
            return since(), found

        rest = _reset_peak(service.pid)
        creates, plan = planned(body)
        since, requests = clock(), 0
        while True:
            requests += 1
            answer = http.post(f"{base}:apply", json={**body, "planId": plan["planId"]}).raise_for_status().json()
            if answer["next"] is None:
                break
        applied = since()
        owned, again = planned(body)
        if again["changes"]:
            raise AssertionError(
                f"{len(again['changes'])} changes are left, the first: {again['changes'][0]}; {again['summary']}; {answer.keys()} {answer['failed']}"
            )
        plain = planned({name: value for name, value in body.items() if name not in {"owner", "labels"}})[0]
        grown = peak(service.pid) - rest
        rest = _reset_peak(service.pid)
        with http.stream("GET", f"{base}:export") as stream:
            size = sum(map(len, stream.iter_raw()))
        progress.print(f"  export of {entities:,} entities: {size / 1e6:,.1f} MB as sent")
        exported = peak(service.pid) - rest
        return *creates, *applied, *owned, *plain, grown / 1e6, exported / 1e6, requests


def _files(world: World, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the time and the memory of the command with one file, and with a directory of many."""
    one, many, few = (world.directory / name for name in ("one", "many", "few"))
    made, small = list(_entities(entities)), min(_SMALL, entities)
    _write(one, made, 1)
    _write(many, made, _FILES)
    _write(few, made[:small], 1)
    with world.service() as service:
        environment = os.environ | {"CONFPLANE_URL": service.url, "CONFPLANE_TOKEN": service.token}
        ours, reference, fewer = alternate(
            f"seconds of `confplane plan` with {_FILES:,} files | with one | of {small:,} entities",
            rounds,
            lambda _: _command(many, environment),
            lambda _: _command(one, environment),
            lambda _: _command(few, environment),
            decimals=1,
        )
    for index, (what, unit) in enumerate((("time", "s"), ("CPU time of the command", "s"), ("memory", "MB"))):
        for name, samples in (("in one file", reference), (f"{small:,} in one file", fewer)):
            yield Figure(
                f"`confplane plan` of {entities:,} entities in {_FILES:,} files: {what}",
                unit,
                column(ours, index),
                name,
                column(samples, index),
                decimals=1,
                less_is_better=True,
            )


def _command(path: Path, environment: dict[str, str]) -> Sample:
    return used_by("plan", str(path), "--json", environment=environment, status=2)


def _write(directory: Path, entities: list[dict[str, Any]], files: int) -> None:
    directory.mkdir()
    for number in range(files):
        document = {**_HEAD, "entities": entities[number::files]}
        (directory / f"{number:04}.json").write_text(json.dumps(document))


def _entities(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        quotas = {"producer_byte_rate": 1_048_576 + number, "consumer_byte_rate": 2_097_152}
        yield {"id": f"user=manifest-{number:06}", "quotas": quotas}


def _reset_peak(pid: int) -> int:
    """Forget the greatest memory of a process, and return its present memory in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)
