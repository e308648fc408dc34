"""The choice among the faults: at random, and with those that every run must have."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.faults import faults, kinds
from tests.faults.topology import DEADLINE_MS, SESSION_TIMEOUT_MS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.faults.faults import Fault
    from tests.faults.topology import Replica, Topology
    from tests.support.proxy import Proxy

LONGEST_S: Final = SESSION_TIMEOUT_MS / 1000 + 3
"""Well past a session's timeout."""
LONG_ROUNDS: Final = 50
"""A run of so many rounds is long."""
_SHORTEST_ROUNDS: Final = 10
"""A run of fewer rounds has no required faults."""
_TRIES: Final = 8
_NOTICED_S: Final = 5.0
"""A process that receives nothing for so long reports for a second and more that its copy is stale."""
_BOTH: Final = (False, True)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A fault that can be chosen; ``make`` returns None if it can't begin at the moment."""

    kind: str
    weight: float
    make: Callable[[], Fault | None]


@dataclass(slots=True)
class _Required:
    """A fault that a run must have, whichever its seed chooses: one of some choices."""

    name: str
    choices: Sequence[_Choice]
    tries: int = 0


class Schedule:
    """Chooses faults at random, and includes those that every run must have.

    Args:
        topology: The topology that the faults are injected into.
        chooser: The source of all choices.
        rounds: The rounds of the run. From ten on, Postgres is killed and a connection to ZooKeeper cut for long enough
            to be noticed; from :data:`LONG_ROUNDS` on, an Idempotency-Key is also taken over and markers are swept, and
            the process that does so is stopped.
        longest_s: The longest duration of a fault.
        only: Parts of the names of the kinds to choose from; empty for all.

    Attributes:
        unmet: The required faults that could not be injected, however often they were tried.
        missed: By kind, the faults that found nothing to be injected into.
    """

    def __init__(
        self,
        topology: Topology,
        chooser: random.Random,
        *,
        rounds: int,
        longest_s: float = LONGEST_S,
        only: Sequence[str] = (),
    ) -> None:
        self.unmet: list[str] = []
        self.missed: Counter[str] = Counter()
        self._topology = topology
        self._random = chooser
        self._longest_s = longest_s
        self._ensemble_leader: int | None = None
        self._leader: int | None = None
        self._began = time.monotonic()
        self._injected: set[str] = set()
        self._tried: dict[int, _Required] = {}
        choices = [*self._servers(), *self._connections(), *self._data(), *self._steps(), *self._chains()]
        self._choices = [each for each in choices if not only or any(text in each.kind for text in only)]
        self._required: list[_Required] = []
        if rounds >= _SHORTEST_ROUNDS:
            self._require("Postgres killed", lambda kind: kind == kinds.POSTGRES_KILLED)
            if cuts := self._chosen(lambda kind: kind == kinds.connection_cut("ZooKeeper")):
                long = [_Choice(each.kind, 1, self._long_cut) for each in cuts]
                self._required.append(_Required("a connection cut", long))
        if rounds >= LONG_ROUNDS:
            taken_over = {kinds.successor(pause=pause) for pause in _BOTH}
            swept = {kinds.next_leader("sweep", pause=pause) for pause in _BOTH}
            self._require("an Idempotency-Key taken over", taken_over.__contains__)
            self._require("markers swept", swept.__contains__)

    def _chosen(self, wanted: Callable[[str], bool]) -> list[_Choice]:
        return [each for each in self._choices if wanted(each.kind)]

    def _require(self, name: str, wanted: Callable[[str], bool]) -> None:
        if choices := self._chosen(wanted):
            self._required.append(_Required(name, choices))

    def possible(self) -> list[str]:
        """Return the kinds that the run could have had by now, given its topology and the chosen kinds."""
        return [each.kind for each in self._choices if kinds.earliest_s(each.kind) <= self._elapsed_s]

    @property
    def exhausted(self) -> bool:
        """True if no kind of fault remains to be tried."""
        return not self._remaining()

    def _remaining(self) -> list[_Choice]:
        """Return the choices without those that found nothing so often that they will not."""
        return [each for each in self._choices if each.kind in self._injected or self.missed[each.kind] < _TRIES]

    async def choose(self, busy: frozenset[str], left: int) -> Fault | None:
        """Return the next fault, none of whose targets is busy; None if none can begin now.

        Args:
            busy: The targets of the current faults.
            left: The number of faults that are still to be chosen.
        """
        # Queried in a thread: a paused server does not answer.
        self._ensemble_leader = await asyncio.to_thread(self._topology.ensemble.leader)
        self._leader = await self._topology.leader()
        scarce = left <= len(self._required)
        if scarce or self._random.random() < 0.3:
            for required in self._required:
                if fault := self._make(required.choices, busy):
                    self._required.remove(required)
                    self._tried[id(fault)] = required
                    return fault
        return None if scarce else self._make(self._remaining(), busy)

    def _make(self, choices: Sequence[_Choice], busy: frozenset[str]) -> Fault | None:
        left = [each for each in choices if kinds.earliest_s(each.kind) <= self._elapsed_s]
        while left:
            [choice] = self._random.choices(left, [each.weight for each in left])
            fault = choice.make()
            if fault is not None and not fault.targets & busy:
                return fault
            left.remove(choice)
        return None

    def record(self, fault: Fault, *, injected: bool) -> None:
        """Record whether a chosen fault was injected; a required one that was not is tried again."""
        required = self._tried.pop(id(fault), None)
        if injected:
            self._injected.add(fault.kind)
            return
        self.missed[fault.kind] += 1
        if required is None:
            return
        required.tries += 1
        if required.tries < _TRIES:
            self._required.append(required)
        else:
            self.unmet.append(required.name)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began

    # -- durations

    def _down(self) -> float:
        return self._random.uniform(0, 3)

    def _span(self) -> float:
        """Return a duration, which exceeds a session's timeout now and then."""
        return (
            self._random.uniform(0.2, 2.5) if self._random.random() < 0.65 else self._random.uniform(3, self._longest_s)
        )

    # -- the choices

    def _servers(self) -> list[_Choice]:
        server, span = self._topology.postgres, self._random.uniform
        stop = partial(faults.stop_server, name="postgres", server=server)
        choices = [
            _Choice(kinds.POSTGRES_KILLED, 2.4, lambda: stop(kinds.POSTGRES_KILLED, seconds=span(0, 2))),
            _Choice(
                kinds.POSTGRES_RESTARTED,
                1.8,
                lambda: stop(kinds.POSTGRES_RESTARTED, seconds=span(0, 2), gracefully=True),
            ),
            _Choice(
                kinds.POSTGRES_PAUSED,
                1.8,
                lambda: faults.pause(kinds.POSTGRES_PAUSED, "postgres", lambda: server.pid, span(0.2, 5)),
            ),
            _Choice(kinds.CONFPLANE_KILLED, 3.5, lambda: faults.stop_replica(self._any(), self._down())),
            _Choice(
                kinds.CONFPLANE_TERMINATED, 1.5, lambda: faults.stop_replica(self._any(), self._down(), gracefully=True)
            ),
            _Choice(kinds.CONFPLANE_PAUSED, 7, self._pause_replica),
        ]
        if self._topology.disk_full:
            choices.append(_Choice(kinds.DISK_FULL, 1.2, lambda: faults.fill_disk(self._topology, span(0.5, 4))))
        return choices + [
            _Choice(kinds.zookeeper(role, fault), 2, partial(self._zookeeper, role, fault))
            for role in kinds.ZOOKEEPER_ROLES
            for fault in kinds.ZOOKEEPER_FAULTS
        ]

    def _connections(self) -> list[_Choice]:
        choices = []
        for to, weight in zip(kinds.SERVERS, (12, 12, 8), strict=True):
            choices.append(_Choice(kinds.connection_cut(to), 0.3 * weight, partial(self._cut, to)))
            choices.append(_Choice(kinds.connection_slowed(to), 0.2 * weight, partial(self._slow, to)))
            choices += [
                _Choice(kinds.lost(part, to), 0.25 * weight, partial(self._lose, part, to)) for part in kinds.PARTS
            ]
        return choices

    def _data(self) -> list[_Choice]:
        topology, chance = self._topology, self._random
        return [
            _Choice(kinds.SESSION_EXPIRED, 6, lambda: faults.expire_session(topology, chance)),
            _Choice(kinds.CONTROLLER_MOVED, 3, lambda: faults.move_controller(topology, chance.uniform(0, 1))),
            _Choice(kinds.NOTIFICATIONS_DELETED, 2, lambda: faults.delete_notifications(topology)),
            _Choice(kinds.UNREAD_NOTIFICATIONS_DELETED, 3, self._delete_unread),
        ]

    def _steps(self) -> list[_Choice]:
        weight = 9 / len(kinds.REPLICA_STEPS)
        return [
            _Choice(kinds.at_step(step, pause=pause), weight, partial(self._step, step, pause=pause))
            for step in kinds.REPLICA_STEPS
            for pause in _BOTH
        ]

    def _chains(self) -> list[_Choice]:
        if len(self._topology.replicas) < 2:
            return []
        choices = []
        for pause in _BOTH:
            choices.append(_Choice(kinds.settler(pause=pause), 2, partial(self._settler, pause=pause)))
            choices.append(_Choice(kinds.successor(pause=pause), 1, partial(self._successor, pause=pause)))
            choices += [
                _Choice(kinds.next_leader(step, pause=pause), 1, partial(self._next_leader, step, pause=pause))
                for step in kinds.SUCCESSOR_STEPS
            ]
        return choices

    # -- one fault

    def _any(self) -> Replica:
        return self._random.choice(self._topology.replicas)

    def _others(self, replica: Replica) -> list[Replica]:
        return [each for each in self._topology.replicas if each is not replica]

    def _pause_replica(self) -> Fault:
        replica = self._any()
        name = faults.name_of(replica)
        return faults.pause(kinds.CONFPLANE_PAUSED, name, lambda: replica.service.pid, self._span())

    def _zookeeper(self, role: str, fault: str) -> Fault | None:
        ensemble, leader = self._topology.ensemble, self._ensemble_leader
        if leader is None:
            return None
        candidates = [leader]
        if role != "leader":
            candidates = [index for index in range(len(ensemble.members)) if index != leader]
        if role == "follower of a replica":
            candidates = [index for index in candidates if self._topology.connected(index)]
        if not candidates:
            return None
        index = self._random.choice(candidates)
        kind, name, member = kinds.zookeeper(role, fault), f"zookeeper {index}", ensemble.members[index]
        if fault == "paused":
            return faults.pause(kind, name, lambda: member.pid, self._span())
        if fault == "partitioned":
            return faults.partition(kind, name, ensemble, index, self._span())
        return faults.stop_server(kind, name, member, self._down())

    def _connection(self, to: str) -> tuple[str, Sequence[Proxy]]:
        """Return one replica's connections to a server, or its clients' to it, as a target."""
        replica = self._any()
        connections = {"ZooKeeper": replica.zookeeper, "Postgres": [replica.postgres], "HTTP": [replica.http]}
        return f"connection {replica.number} {to}", connections[to]

    def _loss(self, to: str) -> float:
        # Responses that clients never receive show little: these losses are short.
        return self._random.uniform(0.1, 1.5) if to == "HTTP" else self._span()

    def _cut(self, to: str) -> Fault:
        return faults.cut(to, *self._connection(to), self._loss(to))

    def _long_cut(self) -> Fault:
        return faults.cut(
            "ZooKeeper", *self._connection("ZooKeeper"), self._random.uniform(_NOTICED_S, self._longest_s)
        )

    def _slow(self, to: str) -> Fault:
        seconds, delay_s = self._random.uniform(0.5, 4), self._random.uniform(0.02, 0.6)
        return faults.slow(to, *self._connection(to), seconds, delay_s)

    def _lose(self, part: str, to: str) -> Fault:
        return faults.lose(part, to, *self._connection(to), self._loss(to))

    def _delete_unread(self) -> Fault:
        replica = self._any()
        name, seconds = f"connection {replica.number} ZooKeeper", self._random.uniform(0.1, 1.5)
        return faults.delete_unread_notifications(self._topology, replica, name, seconds)

    def _step(self, step: str, *, pause: bool) -> Fault | None:
        replica = self._any()
        if step in kinds.LEADER_STEPS:
            if self._leader is None:
                return None
            replica = self._topology.replicas[self._leader]
        return faults.at_step(kinds.at_step(step, pause=pause), [replica], step, self._span(), pause=pause)

    def _settler(self, *, pause: bool) -> Fault | None:
        """A replica dies between intent and transaction, and the leader is stopped as it settles that change."""
        if self._leader is None:
            return None
        leader = self._topology.replicas[self._leader]
        kind, writer = kinds.settler(pause=pause), self._random.choice(self._others(leader))
        return faults.chain(
            kind,
            faults.at_step(kind, [writer], "intent", 0.0, pause=False),
            faults.at_step(kind, [leader], kinds.ABORT_MARKER, self._span(), pause=pause),
            after_s=SESSION_TIMEOUT_MS / 1000 - 1,  # its session has to end before its change is settled
        )

    def _successor(self, *, pause: bool) -> Fault:
        """A replica dies during a request with an Idempotency-Key; the one that takes over the key is stopped."""
        holder = self._any()
        kind, within_s = kinds.successor(pause=pause), 2 * DEADLINE_MS / 1000  # the holder's until its deadline
        return faults.chain(
            kind,
            faults.at_step(kind, [holder], "claim", 0.0, pause=False),
            faults.at_step(kind, self._others(holder), "take-over", self._span(), pause=pause, within_s=within_s),
        )

    def _next_leader(self, step: str, *, pause: bool) -> Fault | None:
        """The leader dies, and the next one is stopped as it begins."""
        if self._leader is None:
            return None
        leader = self._topology.replicas[self._leader]
        kind, within_s = kinds.next_leader(step, pause=pause), 3 * SESSION_TIMEOUT_MS / 1000  # its session has to end
        return faults.chain(
            kind,
            faults.stop_replica(leader, 0.0),
            faults.at_step(kind, self._others(leader), step, self._span(), pause=pause, within_s=within_s),
        )
