"""The faults, each a small object with a begin and an end, and the choice among them.

A fault has targets, and while it lasts no other one begins on any of them. ``begin`` returns False where there was
nothing to strike, such as a leader while none is elected; that is no round.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from app.devstack.errors import DevStackError
from tests.faults.topology import SESSION_TIMEOUT_MS, answer, stop_processes
from tests.support.stepping import STEPS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from app.devstack.process import Server
    from tests.faults.topology import Replica, Topology
    from tests.support.proxy import Proxy

LONGEST_S: Final = SESSION_TIMEOUT_MS / 1000 + 3
"""Well past a session's timeout."""
_KAZOO_S: Final = 5.0
_STRIKE_S: Final = 8.0
"""How long to wait until a process comes to a step."""
_SWEPT_S: Final = 75.0


class Fault(Protocol):
    """One fault."""

    kind: str
    """What a report counts it as."""
    targets: frozenset[str]
    seconds: float
    """Between begin and end."""

    async def begin(self) -> bool:
        """Strike; return whether there was something to strike."""

    async def end(self) -> None:
        """Mend it, whatever else happened meanwhile."""


# ---------------------------------------------------------------- processes


class KillServer:
    """SIGKILL a ZooKeeper or Postgres (its postmaster; the rest of it ends by itself), then start it again."""

    def __init__(self, kind: str, name: str, server: Server, seconds: float, *, politely: bool = False) -> None:
        self.kind, self.targets, self.seconds = kind, frozenset({name}), seconds
        self._server = server
        self._politely = politely

    async def begin(self) -> bool:
        await asyncio.to_thread(self._server.stop if self._politely else self._server.kill)
        return True

    async def end(self) -> None:
        await asyncio.to_thread(start_again, self._server)


def start_again(server: Server, seconds: float = 180.0) -> None:
    """Start a server that was killed, again if need be: it may meet what its predecessor left behind.

    Raises:
        DevStackError: It does not start.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            server.start()
        except DevStackError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


class PauseServer:
    """SIGSTOP all processes of a server, then SIGCONT."""

    def __init__(self, kind: str, name: str, server: Server, seconds: float) -> None:
        self.kind, self.targets, self.seconds = kind, frozenset({name}), seconds
        self._server = server

    async def begin(self) -> bool:
        stop_processes(self._server.pid, resume=False)
        return True

    async def end(self) -> None:
        stop_processes(self._server.pid, resume=True)


class KillReplica:
    """SIGKILL a Confplane, or ask it to end by SIGTERM, then start it again."""

    def __init__(self, replica: Replica, seconds: float, *, politely: bool = False) -> None:
        self.kind = "confplane terminated" if politely else "confplane killed"
        self.targets, self.seconds = frozenset({_name(replica)}), seconds
        self._replica = replica
        self._politely = politely

    async def begin(self) -> bool:
        await asyncio.to_thread(self._replica.service.stop, kill=not self._politely)
        return True

    async def end(self) -> None:
        self._replica.start()


class PauseReplica:
    """SIGSTOP a Confplane, then SIGCONT."""

    kind = "confplane paused"

    def __init__(self, replica: Replica, seconds: float) -> None:
        self.targets, self.seconds = frozenset({_name(replica)}), seconds
        self._replica = replica

    async def begin(self) -> bool:
        stop_processes(self._replica.service.pid, resume=False)
        return True

    async def end(self) -> None:
        stop_processes(self._replica.service.pid, resume=True)


class AtStep:
    """A Confplane is killed or paused when it comes to a step of the protocol."""

    def __init__(self, replica: Replica, step: str, seconds: float, *, pause: bool) -> None:
        self.kind = f"confplane {'paused' if pause else 'killed'} at step {step}"
        self.targets, self.seconds = frozenset({_name(replica)}), seconds
        self._replica = replica
        self._step = step
        self._pause = pause

    async def begin(self) -> bool:
        self._replica.arm(self._step, signal.SIGSTOP if self._pause else signal.SIGKILL)
        deadline = time.monotonic() + _STRIKE_S
        while self._replica.armed and time.monotonic() < deadline:  # noqa: ASYNC110 - a process of its own does it
            await asyncio.sleep(0.02)
        return not self._replica.disarm()

    async def end(self) -> None:
        if self._pause:
            stop_processes(self._replica.service.pid, resume=True)
        else:
            await self._replica.kill()  # waits for what has ended already
            self._replica.start()


class KilledSettler:
    """A Confplane dies between intent and transaction, and the leader at the tombstone that it settles this with."""

    def __init__(self, writer: Replica, leader: Replica, seconds: float, *, pause: bool) -> None:
        self.kind = f"writer killed at step intent, then settler {'paused' if pause else 'killed'} at step tombstone"
        self.targets, self.seconds = frozenset({_name(writer), _name(leader)}), seconds
        self._first = AtStep(writer, "intent", seconds, pause=False)
        self._second = AtStep(leader, "tombstone", seconds, pause=pause)
        self._struck = False

    async def begin(self) -> bool:
        if not await self._first.begin():
            return False
        # Its session has to end before anybody settles.
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
        self._struck = await self._second.begin()
        return True

    async def end(self) -> None:
        await self._first.end()
        if self._struck:
            await self._second.end()


# ---------------------------------------------------------------- lines


class CutLine:
    """A Confplane's line to ZooKeeper or Postgres breaks, and nothing connects for a while."""

    def __init__(self, to: str, name: str, line: Sequence[Proxy], seconds: float) -> None:
        self.kind, self.targets, self.seconds = f"line to {to} cut", frozenset({name}), seconds
        self._line = line

    async def begin(self) -> bool:
        for proxy in self._line:
            proxy.accepting = False
            proxy.cut()
        return True

    async def end(self) -> None:
        for proxy in self._line:
            proxy.accepting = True


class SlowLine:
    """All that goes over a line takes longer."""

    def __init__(self, to: str, name: str, line: Sequence[Proxy], seconds: float, delay_s: float) -> None:
        self.kind, self.targets, self.seconds = f"line to {to} slowed", frozenset({name}), seconds
        self._line = line
        self._delay_s = delay_s

    async def begin(self) -> bool:
        for proxy in self._line:
            proxy.delay_s = self._delay_s
        return True

    async def end(self) -> None:
        for proxy in self._line:
            proxy.delay_s = 0.0


class LostOnLine:
    """What is sent over a line in one direction is lost, and then the line breaks."""

    def __init__(self, to: str, name: str, line: Sequence[Proxy], seconds: float, *, replies: bool) -> None:
        self.kind = f"{'replies' if replies else 'requests'} on the line to {to} lost"
        self.targets, self.seconds = frozenset({name}), seconds
        self._line = line
        self._replies = replies

    async def begin(self) -> bool:
        for proxy in self._line:
            if self._replies:
                proxy.replies.clear()
            else:
                proxy.swallowing = True
        return True

    async def end(self) -> None:
        for proxy in self._line:
            proxy.cut()
            proxy.replies.set()
            proxy.swallowing = False
            proxy.swallowed = b""


# ---------------------------------------------------------------- ZooKeeper's own


class ExpireSession:
    """A Confplane's ZooKeeper session is ended by somebody else who has its id and password."""

    kind = "session expired"

    def __init__(self, topology: Topology, chooser: random.Random) -> None:
        self.targets, self.seconds = frozenset[str](), 0.0
        self._topology = topology
        self._chooser = chooser

    async def begin(self) -> bool:
        zk = self._topology.zk
        try:
            writers = await answer(zk.get_children_async("/confplane/writers"), _KAZOO_S)
            if not writers:
                return False
            path = f"/confplane/writers/{self._chooser.choice(sorted(writers))}"
            stat = await answer(zk.exists_async(path), _KAZOO_S)
        except (KazooException, TimeoutError):
            return False
        return stat is not None and await asyncio.to_thread(self._close, stat.ephemeralOwner)

    def _close(self, session: int) -> bool:
        client = KazooClient(
            self._topology.ensemble.hosts, client_id=(session, session_password(session)), timeout=10.0
        )
        try:
            client.start(timeout=_KAZOO_S)
            return bool(client.client_id[0] == session)
        except Exception:  # noqa: BLE001 - kazoo's own kind of timeout depends on its handler
            return False
        finally:
            client.stop()
            client.close()

    async def end(self) -> None:
        """It is over at once."""


def session_password(session: int) -> bytes:
    """Return a session's password, which ZooKeeper derives from its id (SessionTrackerImpl, ZooKeeperServer)."""
    mask, found = (1 << 48) - 1, b""
    state = ((session ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    while len(found) < 16:
        # java.util.Random.nextBytes: the four bytes of each nextInt, the lowest first.
        state = (state * 0x5DEECE66D + 0xB) & mask
        found += struct.pack("<I", state >> 16)
    return found


class DiskFull:
    """The file system of Postgres's data has no room left, for a while."""

    kind = "Postgres's disk full"

    def __init__(self, topology: Topology, seconds: float) -> None:
        self.targets, self.seconds = frozenset({"postgres"}), seconds
        self._topology = topology

    async def begin(self) -> bool:
        await asyncio.to_thread(self._topology.resize_disk, full=True)
        return True

    async def end(self) -> None:
        await asyncio.to_thread(self._topology.resize_disk, full=False)
        if not self._topology.postgres.running():
            # It may give up where it can't write its log.
            await asyncio.to_thread(self._topology.postgres.kill)
        await asyncio.to_thread(start_again, self._topology.postgres)


class MoveController:
    """The brokers elect another controller: /controller goes and comes, and its epoch is raised."""

    kind = "controller moved"

    def __init__(self, topology: Topology, seconds: float) -> None:
        self.targets, self.seconds = frozenset({"controller"}), seconds
        self._topology = topology

    async def begin(self) -> bool:
        try:
            await answer(self._topology.zk.delete_async("/controller"), _KAZOO_S)
        except (KazooException, TimeoutError):
            return False
        return True

    async def end(self) -> None:
        zk = self._topology.zk
        controller = b'{"version":1,"brokerid":0,"timestamp":"1"}'
        deadline = time.monotonic() + 120
        while True:
            try:
                await answer(zk.set_async("/controller_epoch", b"2"), _KAZOO_S)
                if await answer(zk.exists_async("/controller"), _KAZOO_S) is None:
                    await answer(zk.create_async("/controller", controller), _KAZOO_S)
            except (KazooException, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


class DeleteMirrorGap:
    """Somebody deletes the newest notifications before all have read them: a gap for whoever is behind."""

    kind = "notifications deleted"

    def __init__(self, topology: Topology) -> None:
        self.targets, self.seconds = frozenset[str](), 0.0
        self._topology = topology

    async def begin(self) -> bool:
        zk = self._topology.zk
        try:
            names = sorted(await answer(zk.get_children_async("/config/changes"), _KAZOO_S))
            for name in names[-3:]:
                with contextlib.suppress(NoNodeError):
                    await answer(zk.delete_async(f"/config/changes/{name}"), _KAZOO_S)
        except (KazooException, TimeoutError):
            return False
        return bool(names)

    async def end(self) -> None:
        """It is over at once."""


# ---------------------------------------------------------------- the choice


@dataclass(frozen=True, slots=True)
class _Choice:
    weight: int
    make: Callable[[], Fault | None]


def _name(replica: Replica) -> str:
    return f"confplane {replica.number}"


class Chooser:
    """Chooses faults at random.

    Args:
        topology: What is struck.
        random: The source of all choices.
        longest_s: Of a fault.
    """

    def __init__(self, topology: Topology, random: random.Random, *, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._topology = topology
        self._random = random
        self._ensemble_leader: int | None = None
        self._leader: int | None = None
        self._began = time.monotonic()

    async def choose(self, busy: frozenset[str]) -> Fault:
        """Return the next fault, none of whose targets is busy."""
        # Asked in a thread: a paused server answers nobody.
        self._ensemble_leader = await asyncio.to_thread(self._topology.ensemble.leader)
        self._leader = await self._topology.leader()
        while True:
            choices = self._choices()
            [choice] = self._random.choices(choices, [each.weight for each in choices])
            fault = choice.make()
            if fault is not None and not fault.targets & busy:
                return fault

    def _choices(self) -> list[_Choice]:
        topology, chance = self._topology, self._random
        replicas = topology.replicas
        return [
            _Choice(6, lambda: self._zookeeper(leader=True)),
            _Choice(6, lambda: self._zookeeper(leader=False)),
            _Choice(5, lambda: KillReplica(chance.choice(replicas), self._down(), politely=chance.random() < 0.3)),
            _Choice(7, lambda: PauseReplica(chance.choice(replicas), self._span())),
            _Choice(6, self._postgres),
            _Choice(12, lambda: self._line("ZooKeeper")),
            _Choice(12, lambda: self._line("Postgres")),
            _Choice(6, lambda: ExpireSession(topology, chance)),
            _Choice(3, lambda: MoveController(topology, chance.uniform(0, 1))),
            _Choice(2, lambda: DeleteMirrorGap(topology)),
            _Choice(18, self._step),
            _Choice(4, self._settler),
        ]

    def _down(self) -> float:
        return self._random.uniform(0, 3)

    def _span(self) -> float:
        """Return a time that is past a session's timeout now and then."""
        return (
            self._random.uniform(0.2, 2.5) if self._random.random() < 0.65 else self._random.uniform(3, self._longest_s)
        )

    def _zookeeper(self, *, leader: bool) -> Fault | None:
        if self._ensemble_leader is None:
            return None
        members = self._topology.ensemble.members
        others = [index for index in range(len(members)) if index != self._ensemble_leader]
        index = self._ensemble_leader if leader else self._random.choice(others)
        what = f"ZooKeeper {'leader' if leader else 'follower'}"
        if self._random.random() < 0.5:
            return KillServer(f"{what} killed", f"zookeeper {index}", members[index], self._down())
        return PauseServer(f"{what} paused", f"zookeeper {index}", members[index], self._span())

    def _postgres(self) -> Fault:
        server, drawn = self._topology.postgres, self._random.random()
        if self._topology.disk_full and drawn > 0.8:
            return DiskFull(self._topology, self._random.uniform(0.5, 4))
        if drawn < 0.4:
            return KillServer("Postgres killed", "postgres", server, self._random.uniform(0, 2))
        if drawn < 0.7:
            return KillServer("Postgres restarted", "postgres", server, self._random.uniform(0, 2), politely=True)
        return PauseServer("Postgres paused", "postgres", server, self._random.uniform(0.2, 5))

    def _line(self, to: str) -> Fault:
        replica, drawn = self._random.choice(self._topology.replicas), self._random.random()
        line = replica.zookeeper if to == "ZooKeeper" else [replica.postgres]
        name = f"line {replica.number} {to}"
        if drawn < 0.3:
            return CutLine(to, name, line, self._span())
        if drawn < 0.5:
            return SlowLine(to, name, line, self._random.uniform(0.5, 4), self._random.uniform(0.02, 0.6))
        return LostOnLine(to, name, line, self._span(), replies=drawn < 0.8)

    def _step(self) -> Fault | None:
        # Markers are swept once they are a minute old; the tombstone has a fault of its own.
        early = {"tombstone"} if time.monotonic() - self._began > _SWEPT_S else {"tombstone", "sweep"}
        step = self._random.choice([step for step in STEPS if step not in early])
        replica = self._random.choice(self._topology.replicas)
        if step in {"record", "recorded"}:
            if self._leader is None:
                return None
            replica = self._topology.replicas[self._leader]
        return AtStep(replica, step, self._span(), pause=self._random.random() < 0.5)

    def _settler(self) -> Fault | None:
        if self._leader is None:
            return None
        replicas = self._topology.replicas
        writer = self._random.choice([each for each in replicas if each.number != self._leader])
        return KilledSettler(writer, replicas[self._leader], self._span(), pause=self._random.random() < 0.5)
