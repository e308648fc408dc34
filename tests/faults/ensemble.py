"""Three ZooKeeper servers that elect a leader, each of which can be killed, paused and started again."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confplane.devstack import zookeeper
from confplane.devstack.errors import DevStackError
from confplane.devstack.process import port_is_free
from tests.support.proxy import proxy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from tests.support.proxy import Proxy

SIZE = 3
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def stable_ports(count: int) -> list[int]:
    """Return free ports outside the range that the system assigns.

    A server that is killed and started again finds its port free: no outgoing connection can have taken it.
    """
    lowest = 32_768
    with contextlib.suppress(OSError, ValueError):
        lowest = int(_EPHEMERAL_PORTS.read_text().split()[0])
    found: list[int] = []
    # No seed: runs at the same time must not ask for the same ones.
    chooser = random.SystemRandom()
    while len(found) < count:
        port = chooser.randrange(max(10_000, lowest - 16_000), lowest)
        if port not in found and port_is_free(port):
            found.append(port)
    return found


class LoggedZooKeeper(zookeeper.ZooKeeper):
    """A server whose transaction logs are read after a run."""

    @property
    def log_dirs(self) -> list[Path]:
        """The directory of its transaction logs."""
        return [self.data_dir / "data" / "version-2"]


class Member(LoggedZooKeeper):
    """One server of the ensemble. Once started its process runs; it serves once the ensemble has a quorum."""

    stop_seconds = 20.0

    def __init__(self, data_dir: Path, number: int, ports: Sequence[tuple[int, int, int]], sync_limit: int) -> None:
        super().__init__(data_dir, port=ports[number - 1][0], max_heap="160m", durable=False)
        self.peer_ports = [peer for _, peer, _ in ports]
        """The ports at which it finds each server as a leader, which proxies may have."""
        self._number = number
        self._ports = ports
        self._sync_limit = sync_limit

    def _prepare(self) -> None:
        super()._prepare()
        data = self.data_dir / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        peers = "".join(
            f"server.{number}=127.0.0.1:{peer}:{election}\n"
            for number, (peer, (_, _, election)) in enumerate(zip(self.peer_ports, self._ports, strict=True), start=1)
        )
        with self._config.open("a", encoding="utf-8") as file:
            # A run reads the transaction logs afterwards, so that none of them may be purged: the last value counts.
            limits = f"initLimit=40\nsyncLimit={self._sync_limit}\n"
            file.write(f"{limits}autopurge.purgeInterval=0\nsnapCount=2000000\n{peers}")

    def _command(self) -> list[str]:
        # The heap of a young JVM is small enough for three of them; the rest is as in the dev stack.
        command = [_MAIN if part == zookeeper._MAIN else part for part in super()._command()]
        return [command[0], "-XX:TieredStopAtLevel=1", "-Dzookeeper.snapCount=2000000", *command[1:]]

    def _answers(self) -> bool:
        return True

    @property
    def mode(self) -> str | None:
        """``leader`` or ``follower`` while it serves, else None."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(1)
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return None
        found = [line for line in answer.decode(errors="replace").splitlines() if line.startswith("Mode: ")]
        return found[0].removeprefix("Mode: ") if found else None


class Ensemble:
    """Three servers on 127.0.0.1, of which any two serve.

    Args:
        directory: Where they keep their data.
        sync_limit: The ticks of half a second after which a leader drops a silent follower.
    """

    def __init__(self, directory: Path, *, sync_limit: int = 8) -> None:
        ports = stable_ports(3 * SIZE)
        triples = [(ports[3 * index], ports[3 * index + 1], ports[3 * index + 2]) for index in range(SIZE)]
        self.members = [
            Member(directory / f"zookeeper-{number}", number, triples, sync_limit) for number in range(1, SIZE + 1)
        ]
        self._connections: dict[tuple[int, int], Proxy] = {}
        self._partitioned: set[int] = set()

    @property
    def hosts(self) -> str:
        """``host:port`` of each, with commas."""
        return ",".join(member.hosts for member in self.members)

    def leader(self) -> int | None:
        """Return the index of the server that leads, None if none does or it does not answer."""
        return next((index for index, member in enumerate(self.members) if member.mode == "leader"), None)

    async def add_proxies(self, stack: AsyncExitStack) -> None:
        """Let each server follow the others through proxies, so that it can be partitioned. Call it before the start.

        Elections do not go through them: a partitioned server takes part in one, but can't follow who wins it.
        """
        for number, member in enumerate(self.members):
            for other in range(SIZE):
                if other != number:
                    connection = await stack.enter_async_context(proxy(f"127.0.0.1:{member.peer_ports[other]}"))
                    self._connections[number, other] = connection
                    member.peer_ports[other] = connection.port

    def partition(self, index: int) -> None:
        """Lose everything between one server and the others, until :meth:`heal`."""
        self._partitioned.add(index)
        for ends, connection in self._connections.items():
            if index in ends:
                connection.lose(requests=True, replies=True)

    def heal(self, index: int) -> None:
        """End the partition of one server."""
        self._partitioned.discard(index)
        for ends, connection in self._connections.items():
            if index in ends and not self._partitioned.intersection(ends):
                connection.restore()

    @property
    def log_dirs(self) -> list[Path]:
        """The directories of the servers' transaction logs."""
        return [path for member in self.members for path in member.log_dirs]

    def start(self, seconds: float = 120.0) -> None:
        """Start those that do not run and wait until all serve.

        Raises:
            DevStackError: They don't in time.
        """
        for member in self.members:
            member.start()
        deadline = time.monotonic() + seconds
        while not all(member.mode for member in self.members):
            for member in self.members:
                member.check()
            if time.monotonic() > deadline:
                raise DevStackError(f"the ZooKeeper ensemble did not form within {seconds:g} s")
            time.sleep(0.1)

    def stop(self) -> None:
        """End all."""
        with contextlib.ExitStack() as rest:
            for member in self.members:
                rest.callback(member.kill)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
