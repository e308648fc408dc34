"""Another run of Postgres answers, which has an intent and lacks the outcome that the run before it confirmed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import pytest_asyncio

from app.devstack.postgres import OWNER, SERVICE
from app.domain.errors import UnavailableError
from app.services.upkeep.dropping import Dropper
from tests.audit.rows import fetch, run
from tests.support import servers
from tests.support.recording import Replica
from tests.support.stores import ALICE, soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from app.devstack.postgres import Postgres
    from app.services.ports.trail import AuditRecord

COMMITS = "/confplane/commits"


class Stage:
    """Replicas on one chroot, and a Postgres that loses what it confirmed."""

    def __init__(self, chroot: str, postgres: Postgres, directory: Path) -> None:
        self._chroot = chroot
        self._postgres = postgres
        self._directory = directory
        self._replicas: list[Replica] = []
        self.owner_dsn = postgres.dsn(OWNER, "trail")
        self.database = servers.Database("trail", self.owner_dsn, postgres.dsn(SERVICE, "trail"))

    async def replica(self, *, leads: bool = False) -> Replica:
        self._replicas.append(await Replica(self._chroot, self.database, self._directory).start(leads=leads))
        return self._replicas[-1]

    async def close(self) -> None:
        while self._replicas:
            await self._replicas.pop().stop()

    def past_the_trigger(self, table: str, sql: str) -> None:
        run(
            self.owner_dsn,
            f"ALTER TABLE {table} DISABLE TRIGGER append_only; {sql};"
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only",
        )

    def age(self, table: str) -> None:
        """Make what was recorded two minutes older."""
        self.past_the_trigger(table, f"UPDATE {table} SET recorded_at = recorded_at - interval '120 s'")  # noqa: S608

    async def fail_over(self) -> None:
        """Have another run of Postgres answer, without the outcomes."""
        self.past_the_trigger("outcomes", "DELETE FROM outcomes")
        await asyncio.to_thread(self._postgres.stop)
        await asyncio.to_thread(self._postgres.start)


@pytest_asyncio.fixture
async def stage(chroot: str, own_postgres: Postgres, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(chroot, own_postgres, tmp_path)
    yield stage
    await stage.close()


async def answered(call: Callable[[], Awaitable[object]]) -> object:
    """Call until the stores answer."""
    deadline = soon(60)
    while True:
        try:
            return await call()
        except UnavailableError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def settled(leader: Replica, change_id: str) -> AuditRecord:
    """The change, after some of the leader's rounds."""
    for _ in range(3):
        await answered(leader.reconciler.round)
    record = await leader.audit.get("default", UUID(change_id))
    assert record is not None
    return record


@pytest.mark.parametrize("by", ["the leader", "the next leader"])
@pytest.mark.parametrize("dropped", [False, True], ids=["", "markers dropped meanwhile"])
async def test_an_applied_change_whose_outcome_was_lost_ends_as_committed(
    stage: Stage, raw_zk: KazooClient, by: str, *, dropped: bool
) -> None:
    leader, writer = await stage.replica(leads=True), await stage.replica()
    result = await writer.alter(ALICE, producer_byte_rate=1)
    assert result.change_id is not None
    await leader.reconciler.round()
    # So old that it is none of the new changes that each round asks for.
    stage.age("intents")
    stage.age("outcomes")
    await stage.fail_over()
    dropper = Dropper(writer.store, writer.parts.changes)
    if dropped:
        await answered(lambda: dropper.drop(soon(70)))
    record = await settled(leader if by == "the leader" else await stage.replica(leads=True), result.change_id)
    stat = raw_zk.exists("/config/users/alice")
    assert record.outcome is not None
    assert (record.outcome.committed, record.outcome.revision) == (True, result.revision)
    assert record.outcome.versions == {"/config/users/alice": stat.version}
    assert record.outcome.time_ms == stat.mtime
    # The marker stays until the new outcome is a minute old too.
    await dropper.drop(soon(200))
    assert raw_zk.get_children(COMMITS) == [result.change_id]
    stage.age("outcomes")
    assert await dropper.drop(soon(400)) == 1
    assert raw_zk.get_children(COMMITS) == []


async def test_the_recorder_waits_for_what_is_settled_again(stage: Stage) -> None:
    leader, writer = await stage.replica(leads=True), await stage.replica()
    await leader.record()
    await leader.reconciler.round()
    await writer.alter(ALICE, producer_byte_rate=1)
    await stage.fail_over()
    await leader.round()
    await leader.round()
    assert await answered(leader.external) == []
    await settled(leader, str(fetch(stage.owner_dsn, "SELECT change_id FROM intents")[0][0]))
    await leader.record()
    [record] = await leader.trail()
    assert (record.kind, record.outcome is not None and record.outcome.committed) == ("change", True)


async def test_a_change_that_its_writer_is_about_to_conclude_is_left_to_it_for_a_round(stage: Stage) -> None:
    """The markers of changes under way have no outcome yet either."""
    leader, writer = await stage.replica(leads=True), await stage.replica()
    await leader.reconciler.round()
    result = await writer.alter(ALICE, producer_byte_rate=1)
    await stage.fail_over()
    await answered(leader.reconciler.round)
    assert fetch(stage.owner_dsn, "SELECT FROM outcomes") == []
    record = await settled(leader, str(result.change_id))
    assert record.outcome is not None
    assert record.outcome.revision == result.revision
