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

from confplane.devstack.errors import DevStackError
from tests.faults import kinds
from tests.faults.topology import DEADLINE_MS, SESSION_TIMEOUT_MS, answer, stop_processes
from tests.support.stepping import STEPS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from confplane.devstack.process import Server
    from tests.faults.topology import Replica, Topology
    from tests.support.proxy import Proxy

LONGEST_S: Final = SESSION_TIMEOUT_MS / 1000 + 3
"""Well past a session's timeout."""
_KAZOO_S: Final = 5.0
_STRIKE_S: Final = 8.0
"""Seconds to wait until a process comes to a step."""
_SWEPT_S: Final = 80.0
"""From the begin of a run until there are markers that a leader sweeps: those of a minute ago."""
_NOTICED_S: Final = 5.0
"""A process that hears nothing for so long says that its copy is behind, for a second and more."""


class Fault(Protocol):
    """One fault."""

    kind: str
    """The name under which a report counts it."""
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
        self.kind = kinds.CONFPLANE_TERMINATED if politely else kinds.CONFPLANE_KILLED
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

    kind = kinds.CONFPLANE_PAUSED

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
        self.kind = kinds.at_step(step, pause=pause)
        self.targets, self.seconds = frozenset({_name(replica)}), seconds
        self._trap = _Trap([replica], step, pause=pause)

    async def begin(self) -> bool:
        return await self._trap.spring(_STRIKE_S)

    async def end(self) -> None:
        await self._trap.release()


class _Trap:
    """Some Confplanes, of which the first to come to a step is killed or paused."""

    def __init__(self, replicas: Sequence[Replica], step: str, *, pause: bool) -> None:
        self._replicas = replicas
        self._step = step
        self._pause = pause
        self._caught: list[Replica] = []

    async def spring(self, seconds: float) -> bool:
        """Wait until one comes; return whether one did."""
        for replica in self._replicas:
            replica.arm(self._step, signal.SIGSTOP if self._pause else signal.SIGKILL)
        deadline = time.monotonic() + seconds
        while all(replica.armed for replica in self._replicas) and time.monotonic() < deadline:  # noqa: ASYNC110 - processes of their own do it
            await asyncio.sleep(0.02)
        # Two may have come at once.
        self._caught = [replica for replica in self._replicas if not replica.disarm()]
        return bool(self._caught)

    async def release(self) -> None:
        """Let what was caught go on, or start it again."""
        for replica in self._caught:
            if self._pause:
                stop_processes(replica.service.pid, resume=True)
            else:
                await replica.kill()  # waits for what has ended already
                replica.start()


class Chain:
    """A Confplane ends, and then another is killed or paused at the step to which that leads it.

    Args:
        kind: What it is counted as.
        first: The end of the first.
        second: What waits for the other.
        others: The names of those that may be it.
        seconds: Between begin and end.
        after_s: Between the first and the second.
        within_s: How long to wait for the second.
    """

    def __init__(
        self,
        kind: str,
        first: Fault,
        second: _Trap,
        others: Iterable[str],
        seconds: float,
        *,
        after_s: float = 0.0,
        within_s: float = _STRIKE_S,
    ) -> None:
        self.kind = kind
        self.targets, self.seconds = first.targets | frozenset(others), seconds
        self._first = first
        self._second = second
        self._after_s = after_s
        self._within_s = within_s

    async def begin(self) -> bool:
        if not await self._first.begin():
            return False
        await asyncio.sleep(self._after_s)
        if not await self._second.spring(self._within_s):
            await self._first.end()
            return False
        return True

    async def end(self) -> None:
        await self._first.end()
        await self._second.release()


# ---------------------------------------------------------------- lines


class CutLine:
    """A Confplane's line to ZooKeeper or Postgres breaks, and nothing connects for a while."""

    def __init__(self, to: str, name: str, line: Sequence[Proxy], seconds: float) -> None:
        self.kind, self.targets, self.seconds = kinds.line_cut(to), frozenset({name}), seconds
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
        self.kind, self.targets, self.seconds = kinds.line_slowed(to), frozenset({name}), seconds
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
    """Loss of all bytes sent over a line in one direction, until the line breaks."""

    def __init__(self, to: str, name: str, line: Sequence[Proxy], seconds: float, *, replies: bool) -> None:
        self.kind = kinds.lost_on_line(to, replies=replies)
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

    kind = kinds.SESSION_EXPIRED

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
        """Nothing: the fault is over at once."""


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

    kind = kinds.DISK_FULL

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

    kind = kinds.CONTROLLER_MOVED

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

    kind = kinds.NOTIFICATIONS_DELETED

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
        """Nothing: the fault is over at once."""


# ---------------------------------------------------------------- the choice


LONG_ROUNDS: Final = 50
"""From so many rounds on a run is long."""
_SHORTEST_ROUNDS: Final = 10
"""Of fewer nothing is demanded."""
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class _Choice:
    weight: int
    make: Callable[[], Fault | None]


@dataclass(slots=True)
class _Owed:
    """A fault that a run must have, whatever its seed chooses."""

    what: str
    make: Callable[[], Fault | None]
    after_s: float = 0.0
    """Seconds from the begin of the run before which it can't strike."""
    tries: int = 0


def _name(replica: Replica) -> str:
    return f"confplane {replica.number}"


class Chooser:
    """Chooses faults at random, and sees to it that what every run must have is among them.

    Args:
        topology: What is struck.
        random: The source of all choices.
        rounds: Of the run. From ten on it has Postgres killed and a line to ZooKeeper cut for long enough to be
            noticed; from :data:`LONG_ROUNDS` on also an Idempotency-Key taken over and markers swept, with whoever does
            so struck as it does.
        longest_s: Of a fault.

    Attributes:
        unmet: What the run must have and could not be made to strike, however often it was tried.
    """

    def __init__(self, topology: Topology, random: random.Random, *, rounds: int, longest_s: float = LONGEST_S) -> None:
        self.unmet: list[str] = []
        self._longest_s = longest_s
        self._topology = topology
        self._random = random
        self._ensemble_leader: int | None = None
        self._leader: int | None = None
        self._began = time.monotonic()
        self._owed: list[_Owed] = []
        self._tried: dict[int, _Owed] = {}
        if rounds >= _SHORTEST_ROUNDS:
            self._owed += [_Owed("Postgres killed", self._postgres_killed), _Owed("a line cut", self._long_cut)]
        if rounds >= LONG_ROUNDS:
            self._owed += [
                _Owed("an Idempotency-Key taken over", self._successor),
                _Owed("markers swept", self._sweeper, after_s=_SWEPT_S),
            ]

    async def choose(self, busy: frozenset[str], left: int) -> Fault | None:
        """Return the next fault, none of whose targets is busy; None: none can strike now.

        Args:
            busy: The targets of those that are under way.
            left: How many are still to be chosen.
        """
        # Asked in a thread: a paused server answers nobody.
        self._ensemble_leader = await asyncio.to_thread(self._topology.ensemble.leader)
        self._leader = await self._topology.leader()
        scarce = left <= len(self._owed)
        if scarce or self._random.random() < 0.3:
            owed = next((each for each in self._owed if self._elapsed_s >= each.after_s), None)
            fault = None if owed is None else owed.make()
            if owed is not None and fault is not None and not fault.targets & busy:
                self._owed.remove(owed)
                self._tried[id(fault)] = owed
                return fault
        while not scarce:
            choices = self._choices()
            [choice] = self._random.choices(choices, [each.weight for each in choices])
            fault = choice.make()
            if fault is not None and not fault.targets & busy:
                return fault
        return None

    def struck(self, fault: Fault, *, hit: bool) -> None:
        """Take note of whether a fault that was chosen met anything; what a run must have is tried again."""
        owed = self._tried.pop(id(fault), None)
        if owed is None or hit:
            return
        owed.tries += 1
        if owed.tries < _TRIES:
            self._owed.append(owed)
        else:
            self.unmet.append(owed.what)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

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
            _Choice(2, self._successor),
            _Choice(2, self._sweeper),
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
        pause = self._random.random() < 0.5
        kind, name = kinds.zookeeper(leader=leader, pause=pause), f"zookeeper {index}"
        if pause:
            return PauseServer(kind, name, members[index], self._span())
        return KillServer(kind, name, members[index], self._down())

    def _postgres(self) -> Fault:
        server, drawn = self._topology.postgres, self._random.random()
        if self._topology.disk_full and drawn > 0.8:
            return DiskFull(self._topology, self._random.uniform(0.5, 4))
        if drawn < 0.4:
            return self._postgres_killed()
        if drawn < 0.7:
            down = self._random.uniform(0, 2)
            return KillServer(kinds.POSTGRES_RESTARTED, "postgres", server, down, politely=True)
        return PauseServer(kinds.POSTGRES_PAUSED, "postgres", server, self._random.uniform(0.2, 5))

    def _postgres_killed(self) -> Fault:
        return KillServer(kinds.POSTGRES_KILLED, "postgres", self._topology.postgres, self._random.uniform(0, 2))

    def _line(self, to: str) -> Fault:
        replica, drawn = self._random.choice(self._topology.replicas), self._random.random()
        line = replica.zookeeper if to == "ZooKeeper" else [replica.postgres]
        name = f"line {replica.number} {to}"
        if drawn < 0.3:
            return CutLine(to, name, line, self._span())
        if drawn < 0.5:
            return SlowLine(to, name, line, self._random.uniform(0.5, 4), self._random.uniform(0.02, 0.6))
        return LostOnLine(to, name, line, self._span(), replies=drawn < 0.8)

    def _long_cut(self) -> Fault:
        replica = self._random.choice(self._topology.replicas)
        seconds = self._random.uniform(_NOTICED_S, self._longest_s)
        return CutLine("ZooKeeper", f"line {replica.number} ZooKeeper", replica.zookeeper, seconds)

    def _step(self) -> Fault | None:
        # Markers are swept once they are a minute old.
        early = {kinds.ABORT_MARKER} if self._elapsed_s > _SWEPT_S else {kinds.ABORT_MARKER, "sweep"}
        step = self._random.choice([step for step in STEPS if step not in early])
        replica = self._random.choice(self._topology.replicas)
        if step in {"record", "recorded"}:
            if self._leader is None:
                return None
            replica = self._topology.replicas[self._leader]
        return AtStep(replica, step, self._span(), pause=self._random.random() < 0.5)

    def _settler(self) -> Fault | None:
        """A Confplane dies between intent and transaction, and the leader is struck as it settles what that leaves."""
        if self._leader is None:
            return None
        leader = self._topology.replicas[self._leader]
        writer, pause = self._random.choice(self._others(leader)), self._random.random() < 0.5
        return Chain(
            kinds.settler(pause=pause),
            AtStep(writer, "intent", 0.0, pause=False),
            _Trap([leader], kinds.ABORT_MARKER, pause=pause),
            [_name(leader)],
            self._span(),
            after_s=SESSION_TIMEOUT_MS / 1000 - 1,  # its session has to end before anybody settles
        )

    def _successor(self) -> Fault | None:
        """A Confplane dies amid a request with an Idempotency-Key, and who takes the key over is struck as it does."""
        holder, pause = self._random.choice(self._topology.replicas), self._random.random() < 0.5
        others = self._others(holder)
        return Chain(
            kinds.successor(pause=pause),
            AtStep(holder, "claim", 0.0, pause=False),
            _Trap(others, "take-over", pause=pause),
            map(_name, others),
            self._span(),
            within_s=2 * DEADLINE_MS / 1000,  # the key is the holder's until its request's deadline
        )

    def _sweeper(self) -> Fault | None:
        """The leader dies, and the next is struck as it sweeps the markers, with which it begins."""
        if self._leader is None or self._elapsed_s < _SWEPT_S:
            return None
        leader, pause = self._topology.replicas[self._leader], self._random.random() < 0.5
        others = self._others(leader)
        return Chain(
            kinds.sweeper(pause=pause),
            KillReplica(leader, 0.0),
            _Trap(others, "sweep", pause=pause),
            map(_name, others),
            self._span(),
            within_s=3 * SESSION_TIMEOUT_MS / 1000,  # nobody leads before its session has ended
        )

    def _others(self, replica: Replica) -> list[Replica]:
        return [each for each in self._topology.replicas if each is not replica]
