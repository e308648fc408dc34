"""The statements of an idle process: as many for several clusters as for one."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from sqlalchemy import event

from confplane import wiring
from confplane.audit import PostgresEntityStates, PostgresSchedules, PostgresWebhooks
from confplane.services.recorder.record import Recorder
from confplane.services.schedules.scheduler import Scheduler
from confplane.services.upkeep import incarnation
from confplane.services.upkeep.reconcile import Reconciler
from confplane.services.webhooks.dispatcher import WebhookDispatcher
from confplane.settings import Settings
from tests.support import servers
from tests.support.replicas import HOUR_MS, Leads, answered
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper

HEARTBEAT_S: Final = 11.0
"""More than the time after which a watermark is written again."""


class Idle:
    """The parts of a process with some empty clusters, all of which it leads, with the statements that they send."""

    def __init__(self, chroots: Sequence[str], dsn: str, directory: Path) -> None:
        settings = Settings.model_validate(
            {
                "clusters": {
                    f"cluster-{number}": {"zookeeper": chroot, "session_timeout_ms": 20_000}
                    for number, chroot in enumerate(chroots)
                },
                "postgres": {"dsn": dsn},
                "admin_token_file": directory / "token",
            }
        )
        self.now = 0.0
        self.sent: list[str] = []
        self.parts = wiring.build(settings)
        states, webhooks = PostgresEntityStates(self.parts.database), PostgresWebhooks(self.parts.database)
        schedules = PostgresSchedules(self.parts.database)
        none: Any = None  # what a cluster without webhooks does not use
        self.rounds: list[list[Callable[[], Awaitable[object]]]] = [
            [
                Recorder(
                    store,
                    states,
                    wiring.redaction(settings.clusters[name], store),
                    deadline_ms=HOUR_MS,
                    clock=lambda: self.now,
                ).round
                for name, store in self.parts.stores.items()
            ],
            [
                Reconciler(
                    store, self.parts.audit, self.parts.changes, deadline_ms=HOUR_MS, clock=lambda: self.now
                ).round
                for store in self.parts.stores.values()
            ],
            [WebhookDispatcher(cluster, webhooks, none, none, none, none).round for cluster in self.parts.clusters],
            [Scheduler(cluster, schedules, none, none).round for cluster in self.parts.clusters],
        ]

    async def start(self) -> None:
        """Start, and run rounds until every cluster is recorded completely."""
        for name, store in self.parts.stores.items():
            await store.wait_for(0, soon(60))
            await answered(self.parts.incarnation_checks[name].publish)
            cast("Any", store).leadership = Leads()
        for _ in range(4):
            await self.poll()
        event.listen(self.parts.database._engine.sync_engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        self.sent.append(statement)

    async def poll(self) -> list[str]:
        """Run a round of each kind, all clusters at once, and return the statements that were sent."""
        self.sent.clear()
        for rounds in self.rounds:
            await asyncio.gather(*(each() for each in rounds))
        return list(self.sent)


@pytest.fixture
async def idle(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Idle]]:
    """A process with one cluster, and one with three."""
    monkeypatch.setattr(incarnation, "PUBLISH_INTERVAL_S", math.inf)
    async with AsyncExitStack() as stack:
        found = []
        for count in (1, 3):
            database = stack.enter_context(contextmanager(servers.lent)(postgres, servers.make_migrated(postgres)))
            chroots = [servers.make_chroot(zookeeper.hosts) for _ in range(count)]
            process = Idle(chroots, database.service_dsn, tmp_path)
            await stack.enter_async_context(process.parts.running())
            await process.start()
            found.append(process)
        yield found


async def test_an_idle_process_sends_as_many_statements_for_several_clusters_as_for_one(idle: list[Idle]) -> None:
    one, several = idle
    polled = await one.poll()
    assert len(polled) == 5
    assert await several.poll() == polled

    for each in idle:
        each.now += HEARTBEAT_S
    beaten = await one.poll()
    assert len(beaten) == 6
    assert await several.poll() == beaten
