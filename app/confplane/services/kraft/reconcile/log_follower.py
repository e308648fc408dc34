"""Follows the metadata log of an observed cluster record by record, if the settings name controllers.

A znode says which record was written last (services/znode_metadata.py), so a page that is applied twice leaves no
second row.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.domain.observed import Observation
from confplane.services.background import BackgroundTask, backoff_s
from confplane.services.kraft.decisions import EntityObservation
from confplane.services.ports.trail import ObservedRange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.domain.entities import Entity
    from confplane.services.kraft.reconcile.follow_writer import FollowWriter
    from confplane.services.ports.kafka import KafkaCluster, LogChange, LogPage

logger = logging.getLogger(__name__)

EACH: Final = 100
"""Records in a page that become a change each. Of more, the records of one entity become one change."""
_REACHED_S: Final = 5.0
_ALIVE_S: Final = 10.0


class LogFollower:
    """Follows one cluster's log.

    Attributes:
        offset: The offset up to which everything was followed; None: not known.
        at_ms: The time at which the log was read last; None: not yet.
        problem: The reason why the log is not followed now; empty if it is followed, as far as known.
    """

    def __init__(self, cluster: KafkaCluster, name: str, writer: FollowWriter) -> None:
        self._cluster = cluster
        self._name = name
        self._writer = writer
        self._background: BackgroundTask | None = None
        self._moved = asyncio.Condition()
        self.offset: int | None = None
        self.at_ms: int | None = None
        self.problem = ""
        self._read_at = float("-inf")

    @property
    def following(self) -> bool:
        """True while the log is read from a known offset, as far as known. Polls wait for it then."""
        return self.offset is not None and self._background is not None and time.monotonic() - self._read_at < _ALIVE_S

    def start(self, reconcile_up_to: Callable[[int], Awaitable[None]]) -> None:
        """Start in the background, unless started.

        Args:
            reconcile_up_to: Reconciles everything, as of an offset or later, where records are not enough.
        """
        if self._background is None:
            self._read_at = time.monotonic()
            self._background = BackgroundTask(partial(self._run, reconcile_up_to), name=f"observer-log-{self._name}")
            self._background.start()

    async def stop(self) -> None:
        """Stop; the next start continues after :attr:`offset`."""
        if self._background is not None:
            background, self._background = self._background, None
            await background.stop()
            self.problem = ""

    async def reached(self, offset: int) -> None:
        """Wait until the log was followed up to an offset; for a few seconds at most."""
        try:
            async with asyncio.timeout(_REACHED_S), self._moved:
                await self._moved.wait_for(lambda: (self.offset or -1) >= offset)
        except TimeoutError:
            return

    async def _run(self, reconcile_up_to: Callable[[int], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                async for page in self._cluster.follow(self.offset):
                    await self._apply_page(page, reconcile_up_to)
                    failures = 0
            except UnavailableError as error:
                logger.warning("Cluster %s: its metadata log has to wait: %s", self._name, error.detail)
                self.problem = error.detail
            except Exception:
                logger.exception("Cluster %s: following its metadata log failed", self._name)
                self.problem = "Following it failed; the leader's log has the error"
            self._read_at = float("-inf")
            failures += 1
            await asyncio.sleep(backoff_s(failures))

    async def _apply_page(self, page: LogPage, reconcile_up_to: Callable[[int], Awaitable[None]]) -> None:
        if page.reset:
            self._read_at = float("-inf")
            await reconcile_up_to(page.until)
        else:
            outcome = await self._writer.follow(observations_of(page.changes), in_order=True)
            if outcome.stale or page.incomplete:
                # A poll came first and may include some of the records; or a topic is gone.
                await reconcile_up_to(page.until)
        async with self._moved:
            self.offset, self.at_ms, self._read_at = page.until, int(time.time() * 1000), time.monotonic()
            if not page.reset:
                # A reset page stands for a log that was not read.
                self.problem = ""
            self._moved.notify_all()


def observations_of(changes: Sequence[LogChange]) -> list[EntityObservation]:
    """Return the observations of a page's records: one each, or runs of one entity if there are many."""
    managed = [(change.entity, change) for change in changes if change.entity is not None]
    runs: list[tuple[Entity, list[LogChange]]] = []
    open_runs: dict[Entity, list[LogChange]] = {}
    for entity, change in managed:
        # A topic that was made or removed is a change by itself.
        run = None if change.key is None else open_runs.get(entity)
        if run is not None:
            run.append(change)
            continue
        runs.append((entity, [change]))
        if change.key is None:
            open_runs.pop(entity, None)
        elif len(managed) > EACH:
            open_runs[entity] = runs[-1][1]
    return [_observation(entity, run) for entity, run in runs]


def _observation(entity: Entity, run: Sequence[LogChange]) -> EntityObservation:
    first, last = run[0], run[-1]
    created = Observation({}, frozenset()) if first.key is None and first.value is not None else None
    return EntityObservation(
        entity,
        ObservedRange(first.offset - 1, last.offset, last.at_ms, exact=True, writes=len(run)),
        last.offset,
        created,
        records=tuple((each.key, each.value) for each in run if each.key is not None),
        topic_id=first.topic_id,
    )
