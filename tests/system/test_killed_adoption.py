"""``confplane adopt-store`` killed at each of its steps, or cut off from ZooKeeper: each difference has one row."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from typing import IO, TYPE_CHECKING, Final

import psutil
import pytest

from tests.support.commands import SECONDS, Commands, run
from tests.support.processes import start
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_FILE_VARIABLE
from tests.support.waiting import until
from tests.system.test_adopted_store import KEPT, LOST, NEW, RATE, Standalone, accepted, running, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

MOVES: Final = 4
"""The statements of the adoption: each of two entities is moved to its last known state, and to the restored one."""
# As long as a busy machine may take to restart a server.
SLOW_STEPS: Final = {
    "confplane.services.recorder.adoption._PAGE": 1,
    "confplane.services.recorder.adoption._PATIENCE_S": 600.0,
}
ADOPT: Final = ("adopt-store", "--cluster", "default", "--reason", "restored")


@pytest.mark.parametrize(
    ("step", "kills"),
    [("recorded", MOVES), *((step, 1) for step in ("accounted", "adopted", "intent", "transaction", "outcome"))],
)
async def test_a_killed_adoption_is_completed_by_the_next_one(
    migrated: Database, tmp_path: Path, step: str, kills: int
) -> None:
    with running(Standalone(tmp_path)) as store:
        one = partial(Service, tmp_path / "one", connect=store.hosts, dsn=migrated.service_dsn)
        await lose_changes(store, one)
        file = tmp_path / "step"
        command = partial(run, ADOPT, environment(tmp_path, store, migrated, file), module="tests.support.stepping")
        for _ in range(kills):
            file.write_text(f"{step}:SIGKILL")
            said = await asyncio.to_thread(command)
            assert said.code == -signal.SIGKILL, said
        said = await asyncio.to_thread(command)
        assert said.code == 0, said

        with one() as adopted:
            async with adopted.client() as client:
                await check_recorded_once(adopted, client)
                assert await history(client, NEW) == [("change", None, 1)]
                # The outcome of a change whose process was killed is recovered some time after the start.
                assert await until(lambda: adoptions(client)) == ["restored"]


async def test_an_adoption_continues_after_a_restart_of_zookeeper(migrated: Database, tmp_path: Path) -> None:
    with running(Standalone(tmp_path)) as store, (tmp_path / "out").open("w+b") as out:
        one = partial(Service, tmp_path / "one", connect=store.hosts, dsn=migrated.service_dsn)
        await lose_changes(store, one)
        file = tmp_path / "step"
        file.write_text("recorded:SIGSTOP")
        command = ["-m", "tests.support.stepping", *ADOPT]
        process = start(command, environment=environment(tmp_path, store, migrated, file), stdout=out, stderr=out)
        try:
            await until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
            await asyncio.to_thread(store.stop)
            process.send_signal(signal.SIGCONT)
            await until(lambda: "disconnected from ZooKeeper" in log(out))
            await asyncio.to_thread(store.start)
            code = await asyncio.to_thread(process.wait, SECONDS)
        finally:
            process.kill()
        assert (code, "2 entities differ" in log(out)) == (0, True), log(out)
        with one() as adopted:
            async with adopted.client() as client:
                await check_recorded_once(adopted, client)


async def check_recorded_once(adopted: Service, client: ConfplaneClient) -> None:
    """Check that the differences of the restored store are recorded, each once."""
    await until(lambda: accepted(client))
    await asyncio.to_thread(adopted.wait_recorded)
    assert await history(client, KEPT) == [("external", 2, 1), ("change", 1, 2), ("change", None, 1)]
    assert await history(client, LOST) == [("external", 1, None), ("change", None, 1)]


def log(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 1 << 20, 0).decode()


def environment(directory: Path, store: Standalone, database: Database, file: Path) -> dict[str, str]:
    return {
        **Commands(directory, connect=store.hosts, dsn=database.service_dsn).environment,
        CONSTANTS_VARIABLE: json.dumps(SLOW_STEPS),
        STEP_FILE_VARIABLE: str(file),
    }


async def lose_changes(store: Standalone, one: Callable[..., Service]) -> None:
    """Put the store back to before two changes, which the states in the trail do not include."""
    with one() as recorded:
        async with recorded.client() as client:
            await client.put("client-quotas", KEPT, {RATE: 1})
            await asyncio.to_thread(recorded.wait_recorded)
    await asyncio.to_thread(store.copy)
    with one(cluster={"record_external_changes": False}) as unrecorded:
        async with unrecorded.client() as client:
            await client.put("client-quotas", KEPT, {RATE: 2})
            await client.put("client-quotas", LOST, {RATE: 1})
    await asyncio.to_thread(store.restore)


async def adoptions(client: ConfplaneClient) -> list[str]:
    return [item["reason"] async for item in client.items("audit", entity="cluster", outcome="committed")]


async def history(client: ConfplaneClient, entity_id: str) -> list[tuple[str, object, object]]:
    return values([item async for item in client.history("client-quotas", entity_id)])
