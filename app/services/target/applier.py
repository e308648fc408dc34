"""The applier: the leader's alters of a Kafka cluster's client quotas, in the mode ``adopt``.

Callers' writes name their keys in the member ``altered`` of the znode (:mod:`app.services.altered`). A round takes the
znodes whose newest revision the cluster has not taken yet, makes durable what it will send of each, sends all of them
together, and writes down the ends behind a barrier. While an end is unknown, the values are sent again: they are
absolute, so that twice is as good as once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final

from app.domain.entities import Entity
from app.domain.errors import UnavailableError
from app.domain.facets import Tree
from app.services.altered import altered
from app.services.background import Background
from app.services.metrics import Sample, of_cluster
from app.services.ports.applying import Alteration, Applied, Ending, Refused, Sending, Unknown
from app.services.ports.journal import TooOld
from app.services.target import members
from app.services.target.report import Applying, Names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from app.domain.changes import Node
    from app.services.ports.applying import End, QuotasCluster, TargetState, TargetStates, Values
    from app.services.ports.journal import Cursor
    from app.services.target.ports import ObservedStore

logger = logging.getLogger(__name__)

MOST: Final = 1_000
"""Entities in one round."""
EVERY_S: Final = 0.05
"""Seconds between two looks into the journal."""
IDLE_S: Final = 1.0
ROUND_S: Final = 60.0
_SLOWEST_S: Final = 30.0


class Applier:
    """Applies the client quotas of one cluster.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store, started before the first round.
        states: The durable states.

    Attributes:
        look: Called after a round that had nothing to send of some znode, which others wrote then: the quotas are to be
            looked at.
    """

    def __init__(self, cluster: QuotasCluster, store: ObservedStore, states: TargetStates) -> None:
        self._cluster = cluster
        self._store = store
        self._states = states
        self._background = Background(self._run, name=f"applier-{store.name}")
        self.look: Callable[[], None] = lambda: None
        self._ends = dict.fromkeys(("applied", "refused", "unknown"), 0)
        self._late = 0
        self._failures = 0
        self._begin_term()

    def _begin_term(self) -> None:
        self._cursor: Cursor | None = None
        self._pending: dict[str, float] = {}
        """Entity id -> the time from which on it waits, on the clock of ``time.monotonic()``."""
        self._again: dict[str, set[str]] = {}
        self._refused: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._problem = ""

    def start(self) -> None:
        """Start in the background."""
        self._background.start()

    async def stop(self) -> None:
        """Stop. Values that were sent and not answered are sent again by the next leader."""
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            wait = IDLE_S
            try:
                if await self.round():
                    wait = EVERY_S
                self._problem = ""
                self._failures = 0
            except UnavailableError as error:
                wait = self._trouble(error.detail)
            except Exception:
                logger.exception("Cluster %s: applying failed", self._store.name)
                wait = self._trouble("Applying failed; the leader's log has the error")
            if self._unknown:
                self._failures += 1
                wait = max(wait, self._pause())
            await asyncio.sleep(wait)

    def _trouble(self, problem: str) -> float:
        if problem != self._problem:
            logger.warning("Cluster %s: its changes wait to be applied: %s", self._store.name, problem)
        self._problem = problem
        self._failures += 1
        return self._pause()

    def _pause(self) -> float:
        longest = min(_SLOWEST_S, 2.0 ** min(self._failures, 10) / 4)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def again(self, late: Mapping[str, Collection[str]]) -> None:
        """Send the newest values of some keys again: the cluster has values that were sent earlier.

        Args:
            late: Entity id -> keys; none for an entity of which some sending has no end.
        """
        for entity_id, keys in late.items():
            self._pending.setdefault(entity_id, time.monotonic())
            if keys:
                self._again.setdefault(entity_id, set()).update(keys)
                self._late += 1

    # -- rounds

    async def round(self) -> bool:
        """Send what waits, if this process leads; return whether it applies changes now.

        Raises:
            UnavailableError: The cluster or a store is away. Values that were sent are sent again.
        """
        if not self._store.leadership.held or not self._applies:
            self._begin_term()
            return False
        self._collect()
        if not self._pending:
            return True
        deadline = time.monotonic() + ROUND_S
        # Behind all writes of ZooKeeper: a target that was paused, or a freeze, counts from its answer on.
        target = (await self._store.read_target(deadline)).target
        frozen = (await self._store.read_freeze(deadline)).freeze
        if target is None or not target.adopts or target.paused or frozen is not None:
            return False
        await self._apply(deadline)
        return True

    @property
    def _applies(self) -> bool:
        target = self._store.target()
        return target is not None and target.adopts and target.imported and not target.paused

    def _collect(self) -> None:
        """Add the entities that callers wrote since the last call; at first, and after a gap, all that may be."""
        read = self._store.journal.read(self._cursor)
        if read is None:
            return
        self._cursor, now = read.cursor, time.monotonic()
        if isinstance(read, TooOld):
            for entity_id in self._store.altered():
                self._pending.setdefault(entity_id, now)
            return
        for entry in read.entries:
            if entry.tree is Tree.CONFIG and entry.after is not None and altered(entry.after.extra):
                self._pending.setdefault(entry.entity_id, now)

    async def _apply(self, deadline: float) -> None:
        ids = list(self._pending)[:MOST]
        known = await self._states.known(self._store.name, ids)
        sendings, entities = [], {}
        for entity_id in ids:
            node, state = self._store.get(Tree.CONFIG, entity_id), known.get(entity_id)
            if state is not None and node is not None and state.sent_mzxid > node.mzxid:
                self._defer(entity_id)  # another leader has seen more; the mirror follows
                continue
            if node is None or not self._is_due(node, state):
                self._settle(entity_id, None if state is None else state.refused)
                continue
            values = _values(node, state, self._again.get(entity_id, ()))
            sendings.append(Sending(entity_id, node.mzxid, values))
            entities[entity_id] = Entity.from_id(entity_id)
        if not sendings:
            return
        allowed = await self._states.begin(self._store.name, sendings)
        sent = [each for each in sendings if each.entity_id in allowed]
        asked = [each for each in sent if each.values]
        alterations = [Alteration(entities[each.entity_id], each.values) for each in asked]
        answered = await self._cluster.alter_quotas(alterations, deadline) if asked else []
        ends: dict[str, End] = {each.entity_id: Applied() for each in sent}
        ends |= {each.entity_id: end for each, end in zip(asked, answered, strict=True)}
        offset = await self._cluster.barrier(deadline)
        await self._states.end(
            self._store.name,
            [
                Ending(each.entity_id, each.mzxid, each.values, end, offset)
                for each in sent
                if not isinstance(end := ends[each.entity_id], Unknown)
            ],
        )
        for each in sent:
            self._note(each.entity_id, ends[each.entity_id])
        if len(asked) < len(sent):
            self.look()

    def _is_due(self, node: Node, state: TargetState | None) -> bool:
        if node.defect is not None:
            return False
        if node.id in self._again or (state is not None and state.is_open):
            return True
        return bool(altered(node.extra)) and (state is None or not state.is_settled(node.mzxid))

    def _note(self, entity_id: str, end: End) -> None:
        if isinstance(end, Unknown):
            self._ends["unknown"] += 1
            self._unknown[entity_id] = end.reason
            self._defer(entity_id)
            return
        self._ends["refused" if isinstance(end, Refused) else "applied"] += 1
        self._settle(entity_id, end if isinstance(end, Refused) else None)

    def _defer(self, entity_id: str) -> None:
        """Let all others that wait go first."""
        self._pending[entity_id] = self._pending.pop(entity_id)

    def _settle(self, entity_id: str, refused: Refused | None) -> None:
        """Take note that nothing more is to be sent of an entity; its next change comes by the journal."""
        self._pending.pop(entity_id, None)
        self._again.pop(entity_id, None)
        self._unknown.pop(entity_id, None)
        self._refused.pop(entity_id, None)
        if refused is not None:
            self._refused[entity_id] = f"{refused.text} (code {refused.code})"

    # -- report and metrics

    def report(self) -> Applying:
        """Return the leader's report."""
        oldest = min(self._pending.values(), default=None)
        return Applying(
            pending=len(self._pending),
            waiting_ms=0 if oldest is None else int((time.monotonic() - oldest) * 1000),
            unknown=Names.of(self._unknown),
            refused=Names.of(self._refused),
            problem=self._problem,
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any of what waits."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        for end, count in self._ends.items():
            if count:
                yield Sample("applied_changes", count, (end,))
        yield Sample("applied_late", self._late)
        if self._store.leadership.held and self._applies:
            report = self.report()
            yield Sample("apply_pending", report.pending)
            yield Sample("apply_lag_seconds", report.waiting_ms / 1000)
            yield Sample("apply_refused", report.refused.count)


def _values(node: Node, state: TargetState | None, again: Collection[str]) -> Values:
    """Return what is to be sent of a znode: the keys that callers altered and the cluster has not taken yet.

    What the cluster took is known as long as it took the last that was sent, and nothing followed the cluster since.
    """
    taken: Values = {}
    if state is not None and state.is_applied and members.read(node.extra).until < state.applied_offset:
        taken = state.applied
    keys = {key for key in altered(node.extra) if key not in taken or taken[key] != node.config.get(key)}
    if state is not None and state.is_open and not altered(node.extra):
        # A repetition without an end, of a leader that ended: nobody knows of which keys it was.
        keys |= state.sent.keys()
    return {key: node.config.get(key) for key in sorted(keys.union(again))}
