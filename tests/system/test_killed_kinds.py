"""Every kind of change, its process killed at each step: it ends as it was applied or not, and is simply made again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.services.changes.callers import Caller
from tests.audit.rows import fetch
from tests.support import kinds, stepping
from tests.support.kinds import KINDS, Made
from tests.support.processes import start
from tests.support.sampling import sampled
from tests.support.stores import soon
from tests.support.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.replicas import Replica
    from tests.support.servers import Database

APPLIED: Final = {"intent": False, "transaction": True, "outcome": True}
"""By step, whether a change whose process dies right after it is applied."""


@pytest.mark.parametrize(("name", "step"), sampled(KINDS, APPLIED, one_in=len(APPLIED)))
async def test_a_change_killed_at_a_step_ends_as_applied_and_can_be_repeated(
    name: str, step: str, tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database
) -> None:
    kind, encoder = KINDS[name], kinds.secrets_of(tmp_path)
    kinds.store_before(kind, raw_zk)
    cluster: dict[str, Any] = {"client_configs_layout": "shared", "password_encoder": encoder.model_dump(mode="json")}
    environment = {
        **os.environ,
        "CONFPLANE_CLUSTERS": json.dumps({"default": {"zookeeper": chroot, "session_timeout_ms": 4000, **cluster}}),
        "CONFPLANE_POSTGRES__DSN": migrated.service_dsn,
        "CONFPLANE_ADMIN_TOKEN_FILE": str(tmp_path / "token"),
        stepping.STEP_FILE_VARIABLE: str(tmp_path / "step"),
        kinds.ARM_VARIABLE: f"{step}:SIGKILL",
    }
    said = tmp_path / "said"
    with said.open("wb") as output:
        arguments = ["-m", "tests.support.kinds", name]
        command = start(arguments, environment=environment, stdout=output, stderr=output)
        assert await asyncio.to_thread(command.wait, 120) == -signal.SIGKILL, said.read_text()
    assert kind.applied(raw_zk) is APPLIED[step]

    async with World(tmp_path, chroot, migrated, raw_zk) as world:
        replica = await world.replica(**cluster)
        await _until_settled(replica, migrated)
        assert _last_outcomes(migrated, kind.changes) == kind.changes * [(APPLIED[step], 1)]
        if APPLIED[step]:
            assert len(_revisions(migrated, kind.changes)) == 1
        assert kind.applied(raw_zk) is APPLIED[step]
        # By whoever runs it again, it is done once.
        caller = Caller.operator("User:olga", "127.0.0.1", "again", soon(60))
        [before] = fetch(migrated.owner_dsn, "SELECT count(*) FROM intents")
        await kind.make(Made(replica.parts, caller, encoder))
        assert kind.applied(raw_zk)
        [after] = fetch(migrated.owner_dsn, "SELECT count(*) FROM intents")
        assert after[0] - before[0] == (0 if APPLIED[step] else kind.changes)
        await _until_settled(replica, migrated)


async def _until_settled(replica: Replica, database: Database) -> None:
    """Let the reconciler work until each change has an outcome."""
    deadline = soon(90)
    while fetch(
        database.owner_dsn, "SELECT 1 FROM intents WHERE change_id NOT IN (SELECT change_id FROM outcomes) LIMIT 1"
    ):
        assert soon(0) < deadline
        await asyncio.sleep(0.1)  # the session of the killed may have seconds left
        await replica.reconciler.round()


_LAST: Final = "SELECT change_id FROM intents GROUP BY change_id ORDER BY change_id DESC LIMIT %s"


def _last_outcomes(database: Database, count: int) -> list[tuple[bool, int]]:
    """Of each of the last changes, whether it was committed, and how many outcomes it has."""
    query = f"SELECT bool_and(committed), count(*) FROM outcomes WHERE change_id IN ({_LAST}) GROUP BY change_id"  # noqa: S608 - a constant
    return fetch(database.owner_dsn, query, count)


def _revisions(database: Database, count: int) -> list[tuple[int]]:
    """The revisions of the last changes."""
    query = f"SELECT DISTINCT revision FROM outcomes WHERE change_id IN ({_LAST})"  # noqa: S608 - a constant
    return fetch(database.owner_dsn, query, count)
