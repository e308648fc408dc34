"""Excessive requests at full speed: the memory that a process takes for them, and an honest poll beside them.

Each kind is sent by a principal of its own over several connections. It may read the cluster; limits are the default
ones.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

import httpx
import psutil

from tests.bench.caller import QUOTAS
from tests.bench.load import Load
from tests.bench.reads import DESCRIBE
from tests.bench.rounds import Figure, progress
from tests.bench.world import sent
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.world import World
    from tests.support.service import Service

_CONNECTIONS: Final = 16
_READERS: Final = 4
_MOST_BYTES: Final = 150.0
"""The goal of the growth, in MB."""
_MOST_SLOWER: Final = "3.00"
_POLL_REST_S: Final = 0.01
_SAMPLE_S: Final = 0.05
_RETURN_S: Final = 60.0
"""Seconds after which the memory is back."""
_BROKERS: Final = 1_000
_KEYS: Final = 498
_NUMBERS: Final = count()
_USER: Final = "user-000000"
_HOSTILE: Final = "{user}"
"""Stands for the user of the hostile principal in a path and a body."""
_REPORT: Final = f"/v1/clusters/default/client-configs/user={_HOSTILE},client-id=c{{entity}}/instances/{{entity}}"


@dataclass(slots=True)
class _Memory:
    """The resident memory of a process while something runs, in MB."""

    before: float
    most: float
    after: float


def measure(world: World, *, rounds: int, seconds: float, entities: int) -> Iterator[Figure]:
    """Yield the growth of a process with so many entities, and the p99 of an honest poll, for each kind of request."""
    connect = world.filled(entities)
    with world.service(connect) as service:
        poll = Load(
            service.port,
            DESCRIBE,
            method="POST",
            headers={"Authorization": f"Bearer {service.token}"},
            body=_exact(_USER, resolveEntity=True),
            connections=1,
            rest_s=_POLL_REST_S,
            seconds=seconds,
        )
        for name, send in _kinds(service, seconds):
            growth, late, idle = [], [], []
            for _ in range(rounds):
                idle.append(sent(poll).p99_ms)
                with ThreadPoolExecutor(1) as pool, _watched(service.pid) as memory:
                    sending = pool.submit(send)
                    late.append(sent(poll).p99_ms)
                    answers = sending.result()
                growth.append(memory.most - memory.before)
                progress.print(
                    f"  {name}: {memory.before:,.0f} MB, at most {memory.most:,.0f} MB, then {memory.after:,.0f} MB;"
                    f" poll {idle[-1]:.1f} ms, {late[-1]:.1f} ms beside; answers: {answers}"
                )
            yield Figure(
                f"{name}: growth", "MB", growth, "the bound", [_MOST_BYTES] * rounds, "1.00", less_is_better=True
            )
            yield Figure(
                f"{name}: p99 of an honest poll beside",
                "ms",
                late,
                f"three times the same poll alone ({_MOST_SLOWER})",
                [3 * each for each in idle],
                "1.00",
                decimals=1,
                less_is_better=True,
            )


def _kinds(service: Service, seconds: float) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each kind of excessive request with the function that sends it for a while."""
    base = Load(
        service.port,
        DESCRIBE,
        method="POST",
        connections=_CONNECTIONS,
        entities=_CONNECTIONS * 10_000,
        seconds=seconds + 1,
        reconnects=True,
    )
    keys = [f"{number:03d}{'x' * 237}" for number in range(_KEYS)]
    software = {"softwareName": "hostile", "softwareVersion": "{value}"}
    yield (
        "Registrations of new software with unknown keys",
        lambda: _statuses(
            service,
            replace(base, body=_exact(_HOSTILE, resolveEntity=True, supportedConfigs=keys, clientInformation=software)),
        ),
    )
    report = json.dumps({"softwareName": "h", "softwareVersion": "1", "appliedRevision": "{value}"})
    yield (
        "Applied reports of new instances",
        lambda: _statuses(service, replace(base, path=_REPORT, method="PUT", body=report)),
    )
    named = [{"resourceType": "BROKER", "resourceName": "0"}] * _BROKERS
    yield (
        "Describes that name a broker a thousand times",
        lambda: _statuses(
            service, replace(base, path="/v1/clusters/default/configs:describe", body=json.dumps({"resources": named}))
        ),
    )
    yield (
        "Lists by a key that nobody sets",
        lambda: _statuses(service, replace(base, path=f"{QUOTAS}?key=request_percentage&pageSize=1000", method="GET")),
    )
    yield "Describes of everything", lambda: _describe_everything(service, seconds + 1)
    yield "Bodies in chunks of a byte, without a token", lambda: _chunks(service.port, seconds + 1)


def _exact(user: str, **members: object) -> str:
    return json.dumps({"components": [{"entityType": "user", "matchType": "exact", "match": user}], **members})


def _statuses(service: Service, load: Load) -> dict[str, int]:
    user, headers = _hostile(service)
    body = (load.body or "").replace(_HOSTILE, user) or None
    return sent(replace(load, path=load.path.replace(_HOSTILE, user), body=body, headers=headers)).statuses


def _hostile(service: Service) -> tuple[str, dict[str, str]]:
    """Return a new user that may read the cluster, and the header of its token."""
    user = f"hostile-{next(_NUMBERS)}"
    principal = f"User:{user}"
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}) as client:
        made = client.post("/v1/tokens", json={"principal": principal}).raise_for_status().json()
        grant = {"principal": principal, "role": "viewer", "cluster": "default"}
        client.post("/v1/grants", json=grant).raise_for_status()
        headers = {"Authorization": f"Bearer {made['token']}"}
        wait_for(lambda: client.get(QUOTAS, headers=headers).status_code == httpx.codes.OK, why="a token that counts")
    return user, headers


def _describe_everything(service: Service, seconds: float) -> Counter[str]:
    """Read describes of everything one after another, on some connections; return the number of answers by status."""
    statuses: Counter[str] = Counter()
    _, headers = _hostile(service)
    ended = threading.Event()

    def read() -> None:
        with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
            while not ended.is_set():
                with client.stream("POST", f"{QUOTAS}:describe", json={"components": []}) as answer:
                    statuses[str(answer.status_code)] += 1
                    for _ in answer.iter_raw():
                        if ended.is_set():
                            return

    _for_a_while(read, _READERS, seconds, ended)
    return statuses


def _for_a_while(work: Callable[[], None], threads: int, seconds: float, ended: threading.Event) -> None:
    """Run work in some threads until they have ended after an event, which is set after a while."""
    timer = threading.Timer(seconds, ended.set)
    timer.start()
    with ThreadPoolExecutor(threads) as pool:
        for running in [pool.submit(work) for _ in range(threads)]:
            running.result()
    timer.join()


def _chunks(port: int, seconds: float) -> None:
    """Send bodies of small chunks as fast as the server reads them, on new connections where it closes them."""
    ended = threading.Event()
    head = (
        f"POST {DESCRIBE} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    )

    def flood() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(head.encode())
                while not ended.is_set():
                    connection.sendall(b"1\r\n \r\n" * 10_000)

    _for_a_while(flood, _CONNECTIONS, seconds, ended)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[_Memory]:
    """Watch the memory of a process within the context, and until it is back or a minute has passed."""
    process, ended = psutil.Process(pid), threading.Event()

    def resident() -> float:
        return float(process.memory_info().rss) / 1e6

    memory = _Memory(resident(), 0.0, 0.0)

    def watch() -> None:
        while not ended.wait(_SAMPLE_S):
            memory.most = max(memory.most, resident())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(watch)
        try:
            yield memory
        finally:
            ended.set()
    with contextlib.suppress(AssertionError):
        wait_for(lambda: resident() <= memory.before * 1.05, _RETURN_S)
    memory.after = resident()
