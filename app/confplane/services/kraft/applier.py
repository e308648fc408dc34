"""The applier: the leader's alters of a Kafka cluster's quotas and configs, in the modes ``adopt`` and ``enforce``.

Callers' writes name their keys in the member ``altered`` of the znode (:mod:`confplane.services.altered`). The applier
finds the znodes whose newest revision the cluster has not taken yet, and puts each into its line
(:mod:`confplane.services.kraft.line`). A line makes durable what it will send, sends everything together, and writes
down the ends behind a barrier. While an end is unknown, the values are sent again: they are absolute, so that twice is
as good as once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.altered import altered
from confplane.services.background import Background
from confplane.services.kraft.frontier import Frontier
from confplane.services.kraft.line import Counts, Line, Parts, line_of
from confplane.services.kraft.report import Applying, Names
from confplane.services.metrics import Sample, of_cluster
from confplane.services.ports.cluster_states import Freeze
from confplane.services.ports.journal import TooOld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from confplane.services.kraft.ports import ObservedStore
    from confplane.services.kraft.secrets import Secrets
    from confplane.services.ports.applying import AlteredCluster, TargetStates
    from confplane.services.ports.journal import Cursor

logger = logging.getLogger(__name__)

EVERY_S: Final = 0.05
"""Seconds between two looks into the journal."""
IDLE_S: Final = 1.0
ASKED_S: Final = 2.0
"""Seconds between two questions for what other processes want to be sent."""
ROUND_S: Final = 60.0


async def _nothing() -> None:
    """Tell nobody."""


class Applier:
    """Applies the quotas and configs of one cluster.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store, started before the first round.
        states: The durable states.
        secrets: Opens passwords.

    Attributes:
        look: Called with entities that are to be looked at: configs that were applied, and znodes that others wrote.
        tell: Called where the report is to be seen at once: nothing is sent for a freeze, or something may be again.
    """

    def __init__(self, cluster: AlteredCluster, store: ObservedStore, states: TargetStates, secrets: Secrets) -> None:
        self._store = store
        self._states = states
        self._background = Background(self._run, name=f"applier-{store.name}")
        self.look: Callable[[Collection[Entity]], None] = lambda _: None
        self.tell: Callable[[], Awaitable[None]] = _nothing
        self._counts = Counts()
        self._frontier = Frontier(store)
        self._parts = Parts(cluster, store, states, secrets, self._counts, self._look, self._frontier.ended)
        self._sendings: set[asyncio.Task[None]] = set()
        self._begin_term()

    def _begin_term(self) -> None:
        self._frontier.begin_term()
        self._cursor: Cursor | None = None
        self._lines: defaultdict[str, Line] = defaultdict(lambda: Line(self._parts))
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._problem = ""
        self._asked_at = float("-inf")
        self._rested: int | None = None
        self._told: int | None = None

    def _look(self, entities: Collection[Entity]) -> None:
        self.look(entities)

    def start(self) -> None:
        """Start in the background."""
        self._background.start()

    async def stop(self) -> None:
        """Stop. Values that were sent and not answered are sent again by the next leader."""
        await self._background.stop()
        for each in self._sendings:
            each.cancel()
        await asyncio.gather(*self._sendings, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self._begin():
                    wait = EVERY_S
                self._problem = ""
            except UnavailableError as error:
                self._trouble(error.detail)
            except Exception:
                logger.exception("Cluster %s: applying failed", self._store.name)
                self._trouble("Applying failed; the leader's log has the error")
            await asyncio.sleep(wait)

    def _trouble(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Cluster %s: its changes wait to be applied: %s", self._store.name, problem)
        self._problem = problem

    def again(self, late: Mapping[str, Collection[str]]) -> None:
        """Send the values of some entities again, as their states say.

        Args:
            late: Entity id -> keys with late values that are put back; none for an entity of which some sending has no
                end.
        """
        for entity_id, keys in late.items():
            self._add(entity_id)
            self._counts.late += bool(keys)

    def _add(self, entity_id: str) -> None:
        self._lines[line_of(Entity.from_id(entity_id))].add(entity_id)

    # -- rounds

    async def round(self) -> bool:
        """Try everything that waits, if this process leads, and wait for the ends; return whether it applies changes.

        Raises:
            UnavailableError: The cluster or a store is away. Values that were sent are sent again.
        """
        for line in self._lines.values():
            line.hurry()
        applies = await self._begin()
        await asyncio.gather(*self._under_way.values())
        if applies:
            await self._frontier.publish(self._waiting, time.monotonic() + ROUND_S)
        return applies

    async def _begin(self) -> bool:
        """Begin the sendings that are due, if this process leads; return whether it applies changes now.

        Raises:
            UnavailableError: ZooKeeper is away.
        """
        if not self._store.leadership.held or not self._applies:
            self._begin_term()
            return False
        await self._collect()
        if self._store.status().frozen is not None or self._told is not None:
            await self._rest(time.monotonic() + ROUND_S)
        due = {name: line for name, line in self._lines.items() if name not in self._under_way and line.waits}
        deadline = time.monotonic() + ROUND_S
        if not due:
            await self._frontier.publish(self._waiting, deadline)
            return True
        if self._store.status().frozen is not None:
            return False
        await self._frontier.publish(self._waiting, deadline)
        for name, line in due.items():
            sending = asyncio.create_task(line.send(deadline), name=f"applier-{self._store.name}-{name}")
            self._under_way[name] = sending
            self._sendings.add(sending)
            sending.add_done_callback(partial(self._ended, self._under_way, name))
        return True

    async def _rest(self, deadline: float) -> None:
        """Say that nothing is sent during a freeze, once no request is under way; or that the cluster is thawed.

        Raises:
            UnavailableError: ZooKeeper or Postgres is away.
        """
        state = await self._store.read_state(Freeze, deadline)
        rested = None if state.value is None or self._sendings else state.version
        if rested == self._told:
            return
        # With all that was committed before the freeze.
        await self._store.catch_up(deadline)
        await self._collect()
        if rested is not None:
            # An entity that was added amid its last sending waits although nothing of it is left to be sent.
            for line in self._lines.values():
                await line.settle()
        self._rested = rested
        await self.tell()
        self._told = rested

    def _ended(self, under_way: dict[str, asyncio.Task[None]], name: str, sending: asyncio.Task[None]) -> None:
        """Take note that a sending has ended; the line has the reason where it failed."""
        del under_way[name]
        self._sendings.discard(sending)
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, UnavailableError):
            logger.warning("Cluster %s: %s wait to be applied: %s", self._store.name, name, error.detail)
        elif error is not None:
            logger.error("Cluster %s: applying of %s failed", self._store.name, name, exc_info=error)

    @property
    def _applies(self) -> bool:
        target = self._store.target()
        return target is not None and target.applies and target.imported and not target.paused

    async def _collect(self) -> None:
        """Add the entities that callers wrote since the last call; at first, and after a gap, all that may be.

        Every few seconds those are added, too, of which any process wants something sent: a reapply, or a change by
        others that is to be put back.
        """
        if time.monotonic() - self._asked_at >= ASKED_S:
            for entity_id in await self._states.open(self._store.name):
                self._add(entity_id)
            self._asked_at = time.monotonic()
        read = self._store.journal.read(self._cursor)
        if read is None:
            return
        self._cursor = read.cursor
        found: dict[str, int | None] = {}
        if isinstance(read, TooOld):
            found = dict.fromkeys(self._store.altered())
        else:
            for entry in read.entries:
                if entry.tree is Tree.CONFIG and entry.after is not None and altered(entry.after.extra):
                    found.setdefault(entry.entity_id, entry.revision)
        for entity_id in found:
            self._add(entity_id)
        self._frontier.collected(found, read.cursor.revision)

    @property
    def _waiting(self) -> set[str]:
        """The ids of the entities that hold the frontier back: what waits alone does not, and is listed instead."""
        return {each for line in self._lines.values() for each in line.pending if each not in line.held}

    @property
    def differing(self) -> set[str]:
        """The ids of the entities with changes that wait, or that the cluster refused."""
        return {each for line in self._lines.values() for each in (*line.pending, *line.refused)}

    # -- report and metrics

    def report(self) -> Applying:
        """Return the leader's report."""
        lines = self._lines.values()
        oldest = min((since for line in lines for since in line.pending.values()), default=None)
        return Applying(
            pending=sum(len(line.pending) for line in lines),
            waiting_ms=0 if oldest is None else int((time.monotonic() - oldest) * 1000),
            unknown=_names(line.unknown for line in lines),
            refused=_names(line.refused for line in lines),
            held=_names(line.held for line in lines),
            problem=next(filter(None, (self._problem, *(line.problem for line in lines))), ""),
            rested=self._rested,
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any of what waits."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        for end, count in self._counts.ends.items():
            yield Sample("applied_changes", count, (end,))
        for code, count in self._counts.refusals.items():
            yield Sample("applied_refusals", count, (str(code),))
        yield Sample("applied_late", self._counts.late)
        if self._store.leadership.held and self._applies:
            report = self.report()
            yield Sample("apply_pending", report.pending)
            yield Sample("apply_lag_seconds", report.waiting_ms / 1000)
            yield Sample("apply_unknown", report.unknown.count)
            yield Sample("apply_refused", report.refused.count)


def _names(some: Iterable[Mapping[str, str]]) -> Names:
    return Names.of({name: reason for each in some for name, reason in each.items()})
