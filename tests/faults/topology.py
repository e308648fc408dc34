"""The cluster of a fault run: three ZooKeeper servers, one Postgres, some replicas of Confplane, and proxies between them.

All of it runs on 127.0.0.1. Each connection goes through a proxy in this process, which can be cut, slowed and made to
lose what is sent: those of ZooKeeper's servers to each other, of replicas to ZooKeeper and Postgres, and of clients to
replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import psutil
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from confplane.audit.migrate import upgrade
from confplane.devstack.postgres import OWNER, SERVICE, Postgres
from tests.faults.ensemble import Ensemble, stable_ports
from tests.support.proxy import Proxy, proxy
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_FILE_VARIABLE, reached_steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REPLICAS: Final = 3
SESSION_TIMEOUT_MS: Final = 6_000
DEADLINE_MS: Final = 5_000
"""The deadline of a request, in milliseconds."""
CLUSTER: Final = "default"
DATABASE: Final = "confplane"
TOPICS: Final = ("t0", "t1", "t2", "t3", "t4", "t5", "odd.name_with-all.3")
"""The topics that the cluster's metadata have."""
EXTRA_CLIENT_CONFIGS: Final = ("batch.size", "linger.ms")

_DISK_BYTES: Final = 4 * 1024**3

CONSTANTS: Final[dict[str, float]] = {
    # Shorter waits, so that more happens within a round. None of them is one that safety rests on.
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.5,
    "confplane.services.recorder.record.INTERVAL_S": 0.5,
    "confplane.services.recorder.record.UNNOTIFIED_INTERVAL_S": 4.0,
    "confplane.store.write.unnotified.UNNOTIFIED_AGE_S": 4.0,
    # Notifications are purged while replicas are stopped, which then find a gap.
    "confplane.store.write.purge.EXPIRATION_MS": 20_000,
    "confplane.store.write.purge.PERIOD_SECONDS": 5.0,
}


class Replica:
    """One Confplane process, its connections, and how to stop it at a step."""

    def __init__(
        self, number: int, service: Service, zookeeper: Sequence[Proxy], postgres: Proxy, http: Proxy, step: Path
    ) -> None:
        self.number = number
        self.service = service
        self.zookeeper = zookeeper
        """By the server that each leads to."""
        self.postgres = postgres
        self.http = http
        self._step = step

    @property
    def url(self) -> str:
        """The address for clients whose connections a fault may concern."""
        return f"http://127.0.0.1:{self.http.port}"

    def start(self) -> None:
        """Start it; it need not be able to serve yet."""
        self.disarm()
        self.service.start(wait_ready=False)

    async def kill(self) -> None:
        """SIGKILL, also where it is paused."""
        await asyncio.to_thread(self.service.stop, kill=True)

    def arm(self, step: str, number: signal.Signals) -> None:
        """Have it send itself a signal at a step (tests/support/stepping.py)."""
        partial = self._step.with_suffix(".partial")
        partial.write_text(f"{step}:{number.name}")
        partial.replace(self._step)

    def disarm(self) -> bool:
        """Take that back; return whether it had not happened."""
        try:
            self._step.unlink()
        except FileNotFoundError:
            return False
        return True

    def steps(self) -> set[str]:
        """Return the steps that its processes have reached."""
        return reached_steps(self._step)

    @property
    def armed(self) -> bool:
        """True until it happens."""
        return self._step.exists()


class Topology:
    """Starts and ends it all. Use as an async context manager.

    Args:
        directory: Everything of it is below, logs too.
        constants: What is set otherwise in those processes, ``module.NAME`` -> value.
        replicas: The number of replicas.
        disk_full: Postgres has a file system of its own, in memory, that can be filled. Needs root's right to mount.
    """

    def __init__(
        self,
        directory: Path,
        *,
        constants: dict[str, float] | None = None,
        replicas: int = REPLICAS,
        disk_full: bool = False,
    ) -> None:
        self.directory = directory
        self._size = replicas
        self.disk_full = disk_full
        self.ensemble = Ensemble(directory)
        self.postgres = Postgres(directory / "postgres", port=stable_ports(1)[0], durable=False)
        self.replicas: list[Replica] = []
        self.token = ""
        self._constants = CONSTANTS if constants is None else constants
        self._stack = AsyncExitStack()
        self._zk: KazooClient | None = None

    # -- life

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        if self.disk_full:
            await asyncio.to_thread(self._mount)
            self._stack.push_async_callback(asyncio.to_thread, self._unmount)
        await self.ensemble.add_proxies(self._stack)
        self._stack.push_async_callback(asyncio.to_thread, self.ensemble.stop)
        self._stack.push_async_callback(asyncio.to_thread, self.postgres.kill)
        await asyncio.gather(asyncio.to_thread(self.ensemble.start), asyncio.to_thread(self.postgres.start))
        await asyncio.to_thread(upgrade, self.owner_dsn, SERVICE)
        self._zk = KazooClient(self.ensemble.hosts, timeout=10.0)
        await asyncio.to_thread(self._zk.start)
        self._stack.push_async_callback(asyncio.to_thread, self._close)
        await asyncio.to_thread(self._seed)
        ports = stable_ports(self._size)
        for number in range(self._size):
            self.replicas.append(await self._replica(number, ports[number]))
        for replica in self.replicas:
            self._stack.push_async_callback(self._end, replica)
            replica.start()
        await asyncio.gather(*(asyncio.to_thread(replica.service.wait_ready) for replica in self.replicas))

    async def _replica(self, number: int, port: int) -> Replica:
        to_zookeeper = [await self._stack.enter_async_context(proxy(member.hosts)) for member in self.ensemble.members]
        to_postgres = await self._stack.enter_async_context(proxy(f"127.0.0.1:{self.postgres.port}"))
        http = await self._stack.enter_async_context(proxy(f"127.0.0.1:{port}"))
        step = self.directory / f"step-{number}"
        service = Service(
            self.directory / f"confplane-{number}",
            connect=",".join(f"127.0.0.1:{each.port}" for each in to_zookeeper),
            dsn=self.service_dsn.replace(f":{self.postgres.port}/", f":{to_postgres.port}/"),
            cluster={
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "record_external_changes": True,
                "client_configs_layout": "shared",
                "dynamic_client_configs": list(EXTRA_CLIENT_CONFIGS),
                "notifications_max": 30_000,
            },
            settings={
                CONSTANTS_VARIABLE: json.dumps(self._constants),
                STEP_FILE_VARIABLE: str(step),
                "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": str(DEADLINE_MS),
            },
            module="tests.support.stepping",  # has the seams by which it can be stopped at a step
            port=port,
        )
        return Replica(number, service, to_zookeeper, to_postgres, http, step)

    async def _end(self, replica: Replica) -> None:
        # Killed, not stopped: it may be paused.
        with contextlib.suppress(AssertionError, ProcessLookupError):
            await replica.kill()

    def _close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def _seed(self) -> None:
        """Make what a cluster with brokers has: the guard and the check of topics are in every transaction then."""
        for path, data in {
            "/config/changes": b"",
            "/brokers/ids/0": b'{"version":5}',
            "/controller": b'{"version":1,"brokerid":0,"timestamp":"1"}',
            "/controller_epoch": b"1",
            **{f"/brokers/topics/{topic}": b"{}" for topic in TOPICS},
        }.items():
            self.zk.create(path, data, makepath=True)

    # -- Postgres's disk

    @property
    def _disk(self) -> Path:
        return self.postgres.data_dir

    def _mount(self) -> None:
        self._disk.mkdir(parents=True)
        options = f"size={_DISK_BYTES},mode=711"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "confplane-faults", self._disk], check=True)

    def _unmount(self) -> None:
        subprocess.run(["umount", "-l", self._disk], check=True)

    def resize_disk(self, *, full: bool) -> None:
        """Take away all room that Postgres's data do not fill yet, or give it back."""
        usage = shutil.disk_usage(self._disk)
        # A file system can't be made smaller than what is on it, and that grows all the while.
        for spare in (0, 1, 4, 16) if full else (0,):
            size = usage.used + spare * 1_048_576 if full else _DISK_BYTES
            done = subprocess.run(["mount", "-o", f"remount,size={size}", self._disk], check=False)
            if done.returncode == 0:
                return
        raise RuntimeError(f"{self._disk} could not be resized")

    # -- parts

    @property
    def zk(self) -> KazooClient:
        """A client of the whole ensemble, past all proxies."""
        assert self._zk is not None
        return self._zk

    @property
    def owner_dsn(self) -> str:
        """Postgres, past all proxies, as the role that owns the tables."""
        return self.postgres.dsn(OWNER, DATABASE)

    @property
    def service_dsn(self) -> str:
        """Postgres, past all proxies, as the service."""
        return self.postgres.dsn(SERVICE, DATABASE)

    def connected(self, server: int) -> bool:
        """Return True if a replica is connected to one of the ZooKeeper servers."""
        return any(replica.zookeeper[server].connected for replica in self.replicas)

    async def leader(self) -> int | None:
        """Return the number of the replica that leads, None if none does or ZooKeeper does not answer."""
        try:
            data, _ = await answer(self.zk.get_async("/confplane/leader"), 2)
        except (KazooException, TimeoutError):
            return None
        pid = int(json.loads(data)["process"].rpartition(":")[2])
        return next((replica.number for replica in self.replicas if replica.service.pid == pid), None)


async def answer(result: Any, seconds: float) -> Any:
    """Wait for what one of kazoo's asynchronous calls gives.

    Raises:
        TimeoutError: It did not come in time; the request may be done nevertheless.
        KazooException: As the call.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def take() -> None:
        if future.done():
            return
        if result.exception is None:
            future.set_result(result.value)
        else:
            future.set_exception(result.exception)

    result.rawlink(lambda _: loop.call_soon_threadsafe(take))
    async with asyncio.timeout(seconds):
        return await future


def stop_processes(pid: int, *, resume: bool) -> None:
    """SIGSTOP or SIGCONT a process and all that it started; the first stops before those that it might start."""
    with contextlib.suppress(psutil.NoSuchProcess):
        whole = psutil.Process(pid)
        os.kill(pid, signal.SIGCONT if resume else signal.SIGSTOP)
        for child in whole.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                (child.resume if resume else child.suspend)()
