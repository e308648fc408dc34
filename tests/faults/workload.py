"""A hundred clients and some writers past Confplane, each of which writes down what it does and sees."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import httpx
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError

from tests.faults.history import UNNOTIFIED, Call, Kind, Mode, Part
from tests.faults.operations import EXTERNAL_ENTITIES, Operation, Operations
from tests.faults.topology import answer

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.faults.history import Recorder
    from tests.faults.topology import Topology

CLIENTS: Final = 100
EXTERNAL_WRITERS: Final = 3
PRINCIPALS: Final = 7
"""As whom the clients come."""
_PATIENCE_S: Final = 20.0
"""After which a client takes a request for lost."""
_SENDS: Final = 5
"""The greatest number of times that a request with a key is sent."""
_KAZOO_S: Final = 15.0
_RETRIABLE: Final = {11, 95}
"""Kafka's codes of a 409 that a client sends again: no controller at the moment, changed externally."""


class Workload:
    """Runs the clients until they are stopped.

    Args:
        topology: What they talk to.
        recorder: Takes the history.
        seed: Of what they ask for.
        pause_s: Between two requests of a client, on average.
        clients: How many.
    """

    def __init__(
        self, topology: Topology, recorder: Recorder, *, seed: int, pause_s: float = 1.0, clients: int = CLIENTS
    ) -> None:
        self.failures: list[BaseException] = []
        self._topology = topology
        self._recorder = recorder
        self._seed = seed
        self._pause_s = pause_s
        self._clients = clients
        self._operations = Operations()
        self._ids = itertools.count(1)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._http: list[httpx.AsyncClient] = []

    def start(self) -> None:
        """Begin."""
        limits = httpx.Limits(max_connections=2 * self._clients)
        for replica in self._topology.replicas:
            self._http.append(
                httpx.AsyncClient(base_url=replica.url, timeout=_PATIENCE_S, limits=limits, trust_env=False)
            )
        runs = [self._client(number) for number in range(self._clients)]
        runs += [self._external_writer(self._clients + number) for number in range(EXTERNAL_WRITERS)]
        for run in runs:
            task = asyncio.create_task(run)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def stop(self) -> None:
        """Have each client finish its request, and wait for that.

        Raises:
            BaseException: A client failed by a mistake of its own.
        """
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for http in self._http:
            await http.aclose()
        if self.failures:
            raise self.failures[0]

    async def _pause(self, chooser: random.Random) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), chooser.expovariate(1 / self._pause_s))

    # -- clients

    async def _client(self, number: int) -> None:
        chooser = random.Random(f"{self._seed} client {number}")  # noqa: S311 - a seed gives the same run again
        seen = 0
        await self._pause(chooser)
        while not self._stop.is_set():
            process = chooser.randrange(len(self._http))
            if chooser.random() < 0.3:
                seen = max(seen, await self._read(number, process, chooser, seen))
            else:
                seen = max(seen, await self._write(number, process, chooser))
            await self._pause(chooser)

    async def _read(self, number: int, process: int, chooser: random.Random, seen: int) -> int:
        drawn = chooser.random()
        operation = self._operations.read(chooser, strong=drawn < 0.25)
        call = self._call(number, process, Kind.READ, operation)
        call.strong = drawn < 0.25
        call.min_revision = seen if seen and 0.25 <= drawn < 0.6 else None
        await self._send(call, operation, None)
        return call.revision or 0

    async def _write(self, number: int, process: int, chooser: random.Random) -> int:
        operation = self._operations.write(chooser)
        keyed = chooser.random() < 0.6 and operation.ends is None
        key = str(uuid.UUID(int=chooser.getrandbits(128))) if keyed else None
        # Some clients hang up on a request that is under way, and send it again where that is safe.
        impatient = chooser.random() < 0.03
        first = self._call(number, process, Kind.WRITE, operation)
        first.key = key
        await self._send(first, operation, chooser.uniform(0, 0.1) if impatient else None)
        call, sends = first, 1
        while key is not None and sends < _SENDS and _invites(call):
            await asyncio.sleep(chooser.uniform(0.05, 0.4) * 2**sends)
            process = (process + chooser.randint(1, max(1, len(self._http) - 1))) % len(self._http)
            call = self._call(number, process, Kind.WRITE, operation)
            call.key, call.resend_of = key, first.id
            await self._send(call, operation, None)
            sends += 1
        if key is not None and call.acknowledged and chooser.random() < 0.1:
            # Sent once more though it was answered, as a client does whose own disk lost the answer.
            again = self._call(number, chooser.randrange(len(self._http)), Kind.WRITE, operation)
            again.key, again.resend_of = key, first.id
            await self._send(again, operation, None)
        return call.revision or 0 if call.acknowledged else 0

    def _call(self, client: int, process: int | None, kind: Kind, operation: Operation) -> Call:
        return Call(
            id=next(self._ids),
            client=client,
            process=process,
            kind=kind,
            method=operation.method,
            path=operation.path,
            start=0.0,
            parts=operation.parts,
            atomic=operation.atomic,
            principal=None if process is None else f"User:p{client % PRINCIPALS}",
            reason=operation.reason,
            ticket=operation.ticket,
            validate_only=operation.validate_only,
            temporary=operation.temporary,
            ends=operation.ends,
            reverts=operation.reverts,
        )

    async def _send(self, call: Call, operation: Operation, patience_s: float | None) -> None:
        assert call.process is not None
        token = self._topology.replicas[call.process].service.token
        name = (call.principal or "").removeprefix("User:")
        headers = {
            **operation.headers,
            "Authorization": f"Bearer {token}/{name}",
            "X-Request-Id": call.request_id,
        }
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        if call.min_revision is not None:
            headers["Confplane-Min-Revision"] = str(call.min_revision)
        call.start = time.monotonic()
        self._recorder.invoke(call)
        try:
            async with asyncio.timeout(patience_s or 2 * _PATIENCE_S):
                response = await self._http[call.process].request(
                    operation.method, operation.path, json=operation.body, headers=headers
                )
        except (httpx.HTTPError, TimeoutError) as error:
            call.failure = type(error).__name__
            if isinstance(error, httpx.ConnectError):
                call.outcome = "not_applied"  # nothing was sent
        else:
            named = {name.lower(): value for name, value in response.headers.items()}
            self._operations.answered(call, response.status_code, named, response.content)
        call.end = time.monotonic()
        self._recorder.complete(call)

    # -- writers past Confplane

    async def _external_writer(self, number: int) -> None:
        """Write as Kafka's tools do: read the node, write it whatever its version, then its notification."""
        chooser = random.Random(f"{self._seed} external writer {number}")  # noqa: S311 - a seed gives the same run again
        zk = self._topology.zk
        while not self._stop.is_set():
            await self._pause(chooser)
            await self._write_externally(zk, number, chooser)
            await self._pause(chooser)

    async def _write_externally(self, zk: KazooClient, number: int, chooser: random.Random) -> None:
        facet, entity = chooser.choice(EXTERNAL_ENTITIES)
        path = f"/config/{entity.path}"
        try:
            known = await answer(zk.get_async(path), _KAZOO_S)
        except NoNodeError:
            known = None
        except (KazooException, TimeoutError):
            return
        delete = known is not None and chooser.random() < 0.1
        config: dict[str, Any] = {} if known is None else json.loads(known[0] or b'{"config":{}}')["config"]
        values = self._operations.values(facet, entity, chooser)
        config |= {key: str(value) for key, value in values.items()}
        part = Part("node", entity.id, path, Mode.DELETE if delete else Mode.NODE, {} if delete else config)
        operation = Operation("DELETE" if delete else "SET", path, (part,))
        call = self._call(number, None, Kind.EXTERNAL, operation)
        call.start = time.monotonic()
        self._recorder.invoke(call)
        notified = chooser.random() > 0.05
        try:
            if delete:
                await answer(zk.delete_async(path), _KAZOO_S)
            else:
                data = json.dumps({"version": 1, "config": config}, separators=(",", ":")).encode()
                call.revision = await self._set(zk, path, data, exists=known is not None)
            if notified:
                data = json.dumps({"version": 2, "entity_path": entity.path}, separators=(",", ":")).encode()
                await answer(zk.create_async("/config/changes/config_change_", data, sequence=True), _KAZOO_S)
                call.status = 200
            else:
                call.failure = UNNOTIFIED
        except (NoNodeError, NodeExistsError, NotEmptyError) as error:
            call.status, call.outcome, call.failure = 409, "not_applied", type(error).__name__
        except (KazooException, TimeoutError) as error:
            call.failure = type(error).__name__
        call.end = time.monotonic()
        self._recorder.complete(call)

    async def _set(self, zk: KazooClient, path: str, data: bytes, *, exists: bool) -> int:
        if exists:
            stat = await answer(zk.set_async(path, data), _KAZOO_S)
            return int(stat.mzxid)
        parents = path.split("/")
        for depth in range(3, len(parents)):
            with contextlib.suppress(NodeExistsError):
                await answer(zk.create_async("/".join(parents[:depth]), b""), _KAZOO_S)
        _, stat = await answer(zk.create_async(path, data, include_data=True), _KAZOO_S)
        return int(stat.czxid)


def _invites(call: Call) -> bool:
    """Say whether a client sends a request again: it was not answered, or in a way that invites to."""
    if call.status is None or call.status in {408, 429, 503, 504}:
        return True
    if call.status == 409:
        return call.error_code in _RETRIABLE
    return call.status == 207 and any(result.outcome is not None for result in call.results)
