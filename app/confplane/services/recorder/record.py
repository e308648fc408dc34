"""The recorder: each external write (by brokers, Kafka's tools, a person) gets its row in the trail, once.

Each process has one recorder per cluster, and the leader's works. The mirror's journal names the entities that were
touched. About a second later, when the outcomes of this service's changes are written, each entity is compared with the
last state that the trail explains (services/recorder/explain.py).

When a leader begins, and when its place in the journal is too old (for example after a reload of the mirror), all
entities are compared: this finds writes made while no process ran. On first contact every entity's state is accepted
as it is.

The watermark is the revision up to which everything is explained. It is raised after the states have moved: an
unfinished round is repeated, and a state that has moved explains itself. Each round reads the watermark, and with it
the run of Postgres: after a crash, a restore or a promotion Postgres may lack rows that the previous run had. A round
writes only to the run that it read from. If the run has changed, all entities are compared, and this service's lost
changes are searched (services/recorder/recover.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.background import BackgroundTask
from confplane.services.cooperative_yielding import in_slices
from confplane.services.metrics import Sample, of_cluster
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.journal import ExpiredCursor
from confplane.services.ports.recording import Move, UnexplainedNode
from confplane.services.recorder.explain import Explainer
from confplane.services.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.redaction import Redact
    from confplane.services.ports.journal import Cursor, JournalEntry
    from confplane.services.ports.recording import EntityStates, RecordedStore, Watermark

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
UNNOTIFIED_INTERVAL_S = 600.0
"""Seconds between two reads of all znodes, for writes without a notification."""
_FIRST_SCAN_S: Final = 60.0
_PAGE: Final = 500
_HELD_BACK: Final = 20_000
"""Entities found to differ in a comparison of all, before those are explained."""
_HEARTBEAT_S: Final = 10.0
_FRESHENED: Final = 0.7
"""The part of that time after which the mirror's revision is brought to the moment, for the next heartbeat."""
_HEALTHY_S: Final = 60.0
"""Seconds after which an unwritten watermark has no recorder any more."""
GONE_S: Final = 7 * 24 * 3600.0
"""Seconds for which the state of a deleted entity is kept: much longer than any mirror can lag."""
_CALL_S: Final = 10.0
_PRUNE_INTERVAL_S: Final = 3600.0


class Recorder:
    """Records one cluster.

    Args:
        store: The cluster, started.
        states: The trail.
        redact: The redaction of znodes for the trail.
        deadline_ms: The deadline of a request, in milliseconds.
        clock: A monotonic clock.
        ticks: The times of the rounds, which the recorders of a process share.

    Attributes:
        server: The run of Postgres that the last round read; all is compared after another one.
    """

    def __init__(
        self,
        store: RecordedStore,
        states: EntityStates,
        redact: Redact,
        *,
        deadline_ms: int,
        clock: Callable[[], float] = time.monotonic,
        ticks: Ticks | None = None,
    ) -> None:
        self.clock = clock
        self._ticks = ticks or Ticks()
        self._store = store
        self._states = states
        self._explainer = Explainer(store, states, redact, margin_s=2 * deadline_ms / 1000 + 120)
        self._background = BackgroundTask(self._run, name=f"recorder-{store.name}")
        self._scan = BackgroundTask(self._scan_forever, name=f"recorder-look-{store.name}")
        self._troubled_since: float | None = None
        self._leading = False
        self._watermark: Watermark | None = None
        self._nobody_since: float | None = None
        self._pruned_at = self.clock()
        self._begin_term()

    @property
    def watermark(self) -> Watermark | None:
        """The watermark as this process saw it last; some ten seconds old at most."""
        return self._watermark

    def _begin_term(self) -> None:
        self.server = ""
        self._written_at = float("-inf")
        self._anew = False
        self._cursor: Cursor | None = None
        self._target = self._newest = 0
        self._target_at = self._level_at = self.clock()
        self._explainer.pending.clear()
        self._explainer.refused.clear()

    def start(self) -> None:
        """Start in the background."""
        self._background.start()
        self._scan.start()

    async def stop(self) -> None:
        """Stop. Another process records the rest, or this one after its next start."""
        await self._scan.stop()
        await self._background.stop()
        self._step_down()

    def warnings(self) -> list[OperatorWarning]:
        """Return warnings for operators; only the leader has any."""
        name, found = self._store.name, []
        if self._troubled_since is not None and self.clock() - self._troubled_since > _HEALTHY_S:
            found.append(
                OperatorWarning(
                    f"for {self.clock() - self._troubled_since:.0f} s external changes could not be recorded;"
                    " they will be recorded later"
                ).about(name)
            )
        if self._explainer.refused:
            refused = (
                f"Postgres refuses the states of {len(self._explainer.refused)} entities, so external changes"
                " of them are not recorded"
            )
            found.append(OperatorWarning(refused, f"{refused}: {min(self._explainer.refused)[1][:200]}").about(name))
        if self._nobody_since is not None and self.clock() - self._nobody_since > _HEALTHY_S:
            found.append(
                OperatorWarning(
                    "another process leads, and does not record external changes: its setting"
                    " record_external_changes is off, or it is in trouble. It will be recorded once it leads that does"
                ).about(name)
            )
        return found

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; only the leader has any of the pending work."""
        return of_cluster(self._store.name, self._metrics())

    def _metrics(self) -> Iterator[Sample]:
        yield Sample("external_changes", self._explainer.recorded)
        if self._leading:
            yield Sample("recorder_lag_seconds", self.clock() - self._level_at)
            yield Sample("recorder_pending_entities", len(self._explainer.pending))
            yield Sample("recorder_refused_entities", len(self._explainer.refused))
            if self._watermark is not None:
                yield Sample("recorder_watermark", self._watermark.revision)

    async def _run(self) -> None:
        while True:
            await self._ticks.wait(INTERVAL_S)
            try:
                await self.round()
            except UnavailableError as error:
                if self._troubled_since is None:
                    logger.warning("Cluster %s: recording has to wait: %s", self._store.name, error.detail)
                    self._troubled_since = self.clock()
            except Exception:
                logger.exception("Cluster %s: recording failed", self._store.name)
                self._troubled_since = self._troubled_since or self.clock()
            else:
                self._troubled_since = None

    async def round(self) -> bool:
        """Explain the entities touched before the last round, if this process leads; return whether it does.

        Raises:
            UnavailableError: A store is unavailable. Unexplained entities are tried again.
        """
        if not self._store.leadership.held:
            self._step_down()
            await self._stand_by()
            return False
        if not self._leading:
            self._begin_term()
            self._leading = True
            self._nobody_since = None
        try:
            await self._work()
        finally:
            # Also while Postgres is unavailable: the journal keeps entries for a while only, and pending nodes stay.
            await self._take()
        return True

    def _step_down(self) -> None:
        self._leading = False

    async def _stand_by(self) -> None:
        """Keep this process's purge at or before the watermark of the recorder."""
        if self.clock() - self._written_at < _HEARTBEAT_S:
            return
        watermark = self._watermark = await self._states.watermark(self._store.name)
        now = self._written_at = self.clock()
        if watermark is None or watermark.age_s > _HEALTHY_S:
            self._nobody_since = self._nobody_since or now
            self._store.recording.keep_notifications(None, _HEALTHY_S)
        else:
            self._nobody_since = None
            self._store.recording.keep_notifications(watermark.revision, _HEALTHY_S)

    async def _work(self) -> None:
        watermark = self._watermark = await self._known()
        if watermark is None:
            return
        if watermark.server != self.server:
            # The comparison finds the writes that this run lost, and the markers their authors.
            self._explainer.lost.suspect()
            self._anew = self._anew or bool(self.server)
            self.server = watermark.server
        if self._anew:
            await self._compare_all(watermark)
            # Entities that came or went during the comparison may be in neither of its lists. The new target is no
            # lower than its revision, nor than that of any state taken as it was.
            if not await self._take() or self._anew:
                return
        # The entities touched by the round before this one: the outcomes of our own changes are written by now.
        if await self._explainer.explain(watermark) and self._target and await self._advance(self._target, watermark):
            self._level_at = self._target_at
            self._explainer.lost.all_explained()
            await self._freshen()
        await self._prune()

    async def _freshen(self) -> None:
        """Bring the mirror's revision to this moment before a heartbeat, so that the next round raises the watermark.

        A consumer of the feed may need everything up to a revision at which nothing was written. While the watermark
        rises by itself, this writes nothing.
        """
        if self.clock() - self._written_at > _FRESHENED * _HEARTBEAT_S:
            with contextlib.suppress(UnavailableError):
                await self._store.catch_up(time.monotonic() + _CALL_S)

    async def _take(self) -> bool:
        """Take note of all entities touched up to a revision, the new target; return True with a loaded mirror."""
        read = self._store.journal.read(self._cursor)
        if read is None:
            return False
        self._cursor = read.cursor
        if isinstance(read, ExpiredCursor):
            self._anew = True
        else:
            # All nodes of one moment. After a long round there are tens of thousands of entries.
            nodes = [self._store.get(entry.tree, entry.entity_id) for entry in read.entries]
            add = partial(self._touched, read.cursor.revision)
            await in_slices(add, zip(read.entries, nodes, strict=True))
        self._target, self._target_at = read.cursor.revision, self.clock()
        return True

    def _touched(self, revision: int, touched: tuple[JournalEntry, Node | None]) -> None:
        entry, node = touched
        self._explainer.add((entry.tree.value, entry.entity_id), UnexplainedNode(node, revision, entry.before))

    async def _prune(self) -> None:
        """Forget entities that have been gone for long. Their contents are in the trail."""
        if self.clock() - self._pruned_at >= _PRUNE_INTERVAL_S:
            while await self._states.prune(self._store.name, GONE_S):
                self._explainer.check_leading()
            self._pruned_at = self.clock()

    async def _known(self) -> Watermark | None:
        name = self._store.name
        watermark = await self._states.watermark(name)
        freshness = self._store.freshness()
        if watermark is None and freshness is not None:
            watermark = await self._states.advance(name, freshness[0], complete=False, server=None)
            logger.info("Cluster %s: first contact: its configs are taken as they are", name)
        return watermark

    async def _advance(self, revision: int, known: Watermark) -> bool:
        """Raise the watermark, if need be; return True if Postgres is still the run that this round read from."""
        now, complete = self.clock(), not self._anew
        if revision > known.revision or known.complete < complete or now - self._written_at > _HEARTBEAT_S:
            raised = await self._states.advance(self._store.name, revision, complete=complete, server=known.server)
            if raised is None:
                return False
            self._watermark, self._written_at = raised, now
            self._store.recording.keep_notifications(raised.revision, _HEALTHY_S)
        return True

    # -- all entities

    async def _compare_all(self, watermark: Watermark) -> None:
        """Find the entities that differ from their states, and on first contact take those without a state."""
        store, explainer = self._store.recording, self._explainer
        freshness = self._store.freshness()
        if freshness is None:
            return
        revision, taken, began = freshness[0], 0, self.clock()
        for tree in store.trees:
            after = ""
            while nodes := store.nodes(tree, after, _PAGE):
                after = nodes[-1].id
                taken += await self._compare_nodes(tree, nodes, revision, watermark)
            after = ""
            while ids := await self._states.present(self._store.name, tree.value, after, _PAGE):
                after = ids[-1]
                gone = [entity_id for entity_id in ids if self._store.get(tree, entity_id) is None]
                # Before they are recorded: without a notification nothing else would tell the other mirrors.
                await store.notify_deletions(tree, list(map(Entity.from_id, gone)), lambda: self._store.leadership.held)
                for entity_id in gone:
                    explainer.add((tree.value, entity_id), UnexplainedNode(None, revision))
                await self._work_off(watermark)
        # An entity that came and went since the watermark is in neither list; our own changes name those that we wrote.
        for key in await explainer.ours(watermark.revision, lambda key: self._store.get(Tree(key[0]), key[1]) is None):
            explainer.add(key, UnexplainedNode(None, revision))
        if self._newest > revision:
            await self._store.wait_for(self._newest, time.monotonic() + _CALL_S)
        self._anew = False
        if taken:
            logger.info(
                "Cluster %s: the states of %d entities were taken as they are, in %.1f s",
                *(self._store.name, taken, self.clock() - began),
            )

    async def _compare_nodes(self, tree: Tree, nodes: Sequence[Node], revision: int, watermark: Watermark) -> int:
        """Compare some nodes; return the number taken as they are."""
        explainer = self._explainer
        known = await self._states.known(self._store.name, [(tree.value, node.id) for node in nodes], whole=False)
        baselines = []
        for node in nodes:
            key = (tree.value, node.id)
            state, seen = known.get(key), UnexplainedNode(node, revision)
            if state is None and not watermark.complete and node.czxid <= watermark.revision:
                baselines.append(Move(key, None, explainer.point(tree, node)))
            elif state is None or not state.same(seen.shape):
                # A node from before the load may be pending. Writes between that node and the load have no entry in the
                # journal, so the loaded node has to replace the earlier one.
                explainer.add(key, seen)
        if baselines:
            explainer.check_leading()
            await explainer.move(baselines, watermark.server)
            self._newest = max(self._newest, *(each.after.mzxid for each in baselines))
        await self._work_off(watermark)
        return len(baselines)

    async def _work_off(self, watermark: Watermark) -> None:
        if len(self._explainer.pending) > _HELD_BACK:
            await self._explainer.explain(watermark)

    # -- writes without a notification

    async def _scan_forever(self) -> None:
        wait = min(_FIRST_SCAN_S, UNNOTIFIED_INTERVAL_S)
        while True:
            await asyncio.sleep(wait * random.uniform(0.9, 1.1))  # noqa: S311 - no secret
            wait = UNNOTIFIED_INTERVAL_S
            if not self._store.leadership.held:
                continue
            try:
                written = await self._store.recording.notify_unnotified(lambda: self._store.leadership.held)
            except UnavailableError as error:
                logger.info("Cluster %s: the look at all znodes was interrupted: %s", self._store.name, error.detail)
            except Exception:
                logger.exception("Cluster %s: the look at all znodes failed", self._store.name)
            else:
                if written:
                    logger.warning(
                        "Cluster %s: %d znodes were written without a notification; it is written now",
                        *(self._store.name, written),
                    )
