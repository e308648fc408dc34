"""A ZooKeeper that is put back to a copy of its files under running services: noticed, read, and adopted."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.client import ClientError, GoneError, RestoredStoreError, RevertConflictError
from confplane.devstack.zookeeper import ZooKeeper
from tests.audit.rows import fetch, past_the_trigger
from tests.faults.ensemble import Ensemble
from tests.support.commands import Commands, run_here
from tests.support.metrics import scrape
from tests.support.servers import raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

KEPT, LOST, EXTERNAL, NEW = ("user=kept", "user=lost", "user=external", "user=new")
RATE: Final = "producer_byte_rate"
SOON: Final = {
    "confplane.services.upkeep.incarnation.INTERVAL_S": 0.2,
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.2,
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
}
PUBLISHED: Final = {"confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2}


class Standalone:
    """One server, with a copy of its files."""

    def __init__(self, directory: Path) -> None:
        self.server = ZooKeeper(directory / "zookeeper", durable=False)
        self._data = [self.server.data_dir / "data"]

    @property
    def hosts(self) -> str:
        return self.server.hosts

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def copy(self) -> None:
        for data in self._data:
            shutil.copytree(data, Path(f"{data}.copy"))

    def restore(self) -> None:
        """Stop, put the files back, and start."""
        self.stop()
        for data in self._data:
            shutil.rmtree(data)
            shutil.copytree(f"{data}.copy", data)
        self.start()


class Three(Standalone):
    """An ensemble. Its next leader begins another epoch, so that a restored one has a higher zxid than any before."""

    def __init__(self, directory: Path) -> None:
        self.ensemble = Ensemble(directory)
        self._data = [member.data_dir / "data" for member in self.ensemble.members]

    @property
    def hosts(self) -> str:
        return self.ensemble.hosts

    def start(self) -> None:
        self.ensemble.start()

    def stop(self) -> None:
        self.ensemble.stop()


@contextmanager
def running(store: Standalone) -> Iterator[Standalone]:
    try:
        store.start()
        yield store
    finally:
        store.stop()


def service(directory: Path, store: Standalone, database: Database, constants: dict[str, float]) -> Service:
    return Service(
        directory,
        connect=store.hosts,
        dsn=database.service_dsn,
        # The sessions outlast the restore, so that restored servers with a higher zxid may resume them.
        cluster={"session_timeout_ms": 30_000} if isinstance(store, Three) else None,
        settings={CONSTANTS_VARIABLE: json.dumps(SOON | constants)},
        module="tests.support.stepping",
    )


async def rejected(client: ConfplaneClient) -> RestoredStoreError | None:
    """The refusal of a write by a service that has noticed the restore."""
    try:
        await client.put("client-quotas", NEW, {RATE: 1})
    except RestoredStoreError as error:
        return error
    except ClientError as error:  # while the store starts
        assert getattr(error, "status", 503) in {503, 504}, error
    return None


async def accepted(client: ConfplaneClient) -> Any:
    """The answer to a write once the restored store is adopted."""
    try:
        return await client.put("client-quotas", NEW, {RATE: 1})
    except ClientError as error:  # until it is
        assert getattr(error, "status", 503) in {409, 503}, error
    return None


def values(history: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    return [(item["kind"], item["changes"][0]["before"], item["changes"][0]["after"]) for item in history]


# A position that was stored before the loss shows it, and without one the last commit in the trail.
@pytest.mark.parametrize(("kind", "constants"), [(Standalone, PUBLISHED), (Three, {}), (Three, PUBLISHED)])
async def test_a_restored_store_is_read_only_until_it_is_adopted(
    migrated: Database, tmp_path: Path, kind: type[Standalone], constants: dict[str, float]
) -> None:
    with (
        running(kind(tmp_path)) as store,
        service(tmp_path / "one", store, migrated, constants) as one,
        service(tmp_path / "two", store, migrated, constants) as two,
    ):
        async with one.client() as client, two.client() as other:
            await client.put("client-quotas", KEPT, {RATE: 1})
            await asyncio.to_thread(one.wait_recorded)
            await asyncio.to_thread(store.copy)
            before = await client.put("client-quotas", KEPT, {RATE: 2})
            await client.put("client-quotas", LOST, {RATE: 1})
            for raw in raw_client(store.hosts):
                kafka_writes(raw, "users/external", rate(3))
            await until(lambda: recorded(migrated, EXTERNAL))
            if constants:
                await until(lambda: position(migrated) >= (before.revision or 0))
            changes = len(fetch(migrated.owner_dsn, "SELECT 1 FROM outcomes"))
            await asyncio.to_thread(store.restore)

            for each in (client, other):
                error = await until(partial(rejected, each))
                assert (error.status, error.outcome) == (409, "not_applied")
                assert "confplane adopt-store --cluster default" in str(error)
                with pytest.raises(RestoredStoreError):  # without an effect
                    await each.put("client-quotas", KEPT, {RATE: 1})
            await until(partial(shown, two, KEPT, 1))
            answer = await got(two, f"/v1/clusters/default/client-quotas/{LOST}")
            assert (answer.status_code, answer.headers["Confplane-Store-Restored"]) == (404, "true")
            ready = await got(one, "/readyz")
            assert ready.status_code == 200
            assert "adopt-store" in ready.text
            assert (await asyncio.to_thread(scrape, one))("store_restored", cluster="default") == 1
            # Nothing is settled or recorded from the restored state.
            assert len(fetch(migrated.owner_dsn, "SELECT 1 FROM outcomes")) == changes

            commands = Commands(tmp_path, connect=store.hosts, dsn=migrated.service_dsn)
            said = await asyncio.to_thread(commands.run_here, "adopt-store", "--reason", "restored from Monday")
            assert said.code == 0, said
            assert "3 entities differ" in said.out
            for each in (client, other):
                await until(partial(accepted, each))
            assert (
                "Confplane-Store-Restored" not in (await got(two, f"/v1/clusters/default/client-quotas/{NEW}")).headers
            )
            new = await client.put("client-quotas", KEPT, {RATE: 4})

            history = [item async for item in client.history("client-quotas", KEPT)]
            assert values(history) == [("change", 1, 4), ("external", 2, 1), ("change", 1, 2), ("change", None, 1)]
            lost = [item async for item in client.history("client-quotas", LOST)]
            assert values(lost) == [("external", 1, None), ("change", None, 1)]
            gone = [item async for item in client.history("client-quotas", EXTERNAL)]
            assert values(gone) == [("external", 3, None), ("external", None, 3)]
            [adoption] = [item async for item in client.items("audit", entity="cluster")]
            assert (adoption["reason"], adoption["outcome"]) == ("restored from Monday", "committed")
            # The past of the lost time is no past of this store.
            with pytest.raises(GoneError):
                await client.get("client-quotas", KEPT, at=str(before.revision))
            found = await client.get("client-quotas", KEPT, at=str((new.revision or 0) - 1))
            assert found.body["quotas"] == {RATE: 1}
            # A revert of a lost change finds what came after it, whatever the revisions.
            with pytest.raises(RevertConflictError) as conflict:
                await client.revert_changes({"changeId": history[2]["changeId"]}, validate_only=True)
            assert [each["changeId"] for each in conflict.value.body["laterChanges"]] == [
                item["changeId"] for item in history[:2]
            ]

            again = await asyncio.to_thread(commands.run_here, "adopt-store", "--reason", "again")
            assert (again.code, "nothing to do" in again.out) == (0, True)


async def got(one: Service, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"{one.url}{path}", headers={"Authorization": f"Bearer {one.token}"})


async def shown(one: Service, entity_id: str, value: int) -> bool:
    answer = await got(one, f"/v1/clusters/default/client-quotas/{entity_id}")
    return answer.status_code == 200 and answer.json()["quotas"] == {RATE: value}


def recorded(database: Database, entity_id: str) -> bool:
    return bool(fetch(database.owner_dsn, "SELECT 1 FROM entity_states WHERE entity_id = %s", entity_id))


def position(database: Database) -> int:
    found = fetch(database.owner_dsn, "SELECT pzxid FROM store_positions WHERE cluster = 'default'")
    return int(found[0][0]) if found else 0


async def test_a_restored_store_stays_rejected_although_it_passes_the_last_known_position(
    migrated: Database, tmp_path: Path
) -> None:
    with running(Standalone(tmp_path)) as store:
        one = service(tmp_path / "one", store, migrated, PUBLISHED)
        with one:
            async with one.client() as client:
                await client.put("client-quotas", KEPT, {RATE: 1})
                await asyncio.to_thread(store.copy)
                before = await client.put("client-quotas", KEPT, {RATE: 2})
                await until(lambda: position(migrated) >= (before.revision or 0))
                await asyncio.to_thread(store.restore)
                await until(lambda: rejected(client))
                await asyncio.to_thread(one.stop)
                for raw in raw_client(store.hosts):
                    for number in range(500):
                        raw.create(f"/confplane/commits/{number}")
                        raw.delete(f"/confplane/commits/{number}")
                await asyncio.to_thread(one.start)
                assert await until(lambda: rejected(client))


async def test_an_empty_store_under_the_name_of_another_is_rejected_and_can_be_adopted(
    migrated: Database, tmp_path: Path
) -> None:
    with running(Standalone(tmp_path / "first")) as first, service(tmp_path, first, migrated, PUBLISHED) as one:
        async with one.client() as client:
            await client.put("client-quotas", KEPT, {RATE: 1})
            await asyncio.to_thread(one.wait_recorded)
            await until(lambda: position(migrated) > 0)
    with running(Standalone(tmp_path / "second")) as second, service(tmp_path, second, migrated, {}) as one:
        async with one.client() as client:
            error = await until(lambda: rejected(client))
            assert "/confplane/incarnation is missing" in str(error)
            commands = Commands(tmp_path, connect=second.hosts, dsn=migrated.service_dsn)
            said = await asyncio.to_thread(commands.run_here, "adopt-store", "--reason", "moved")
            assert (said.code, "1 entity differs" in said.out) == (0, True), said
            assert (await until(lambda: accepted(client))).status == 200


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "x" * 1001])
def test_a_reason_that_the_trail_can_not_keep_adopts_nothing(migrated: Database, tmp_path: Path, reason: str) -> None:
    with running(Standalone(tmp_path)) as store:
        commands = Commands(tmp_path, connect=store.hosts, dsn=migrated.service_dsn)
        said = commands.run_here("adopt-store", "--reason", reason)
        assert said.code == 2, said
        assert fetch(migrated.owner_dsn, "SELECT 1 FROM intents") == []


async def test_a_restored_postgres_rejects_the_tokens_that_it_had(
    migrated: Database, tmp_path: Path, chroot: str
) -> None:
    one = Service(
        tmp_path / "one",
        connect=chroot,
        dsn=migrated.service_dsn,
        settings={CONSTANTS_VARIABLE: json.dumps(SOON | PUBLISHED)},
        module="tests.support.stepping",
    )
    environment = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn).environment

    async def command(*arguments: str) -> str:
        said = await asyncio.to_thread(run_here, *arguments, environment=environment)
        assert said.code == 0, said
        return said.out

    async def status_with(text: str) -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": f"Bearer {text.strip()}"}
            return (await client.get(f"{one.url}/v1/clusters", headers=headers)).status_code

    async def warned() -> bool:
        return "confplane tokens confirm" in (await got(one, "/readyz")).text

    with one:
        async with one.client() as client:
            old = await command("tokens", "create", "--principal", "User:old")
            await until(partial(status_is, status_with, old, 200))
            lost = (await client.put("client-quotas", KEPT, {RATE: 1})).change_id
            for raw in raw_client(chroot):
                await until(partial(names, raw, str(lost)))
            await asyncio.to_thread(one.stop)
            for table in ("intents", "intent_entities", "outcomes", "change_keys"):
                past_the_trigger(migrated.owner_dsn, table, f"DELETE FROM {table} WHERE change_id = '{lost}'")  # noqa: S608 - a test's own id
            await asyncio.to_thread(one.start)

            await until(lambda: status_is(status_with, old, 401))
            await until(warned)
            new = await command("tokens", "create", "--principal", "User:new")
            await until(lambda: status_is(status_with, new, 200))
            assert (await client.put("client-quotas", KEPT, {RATE: 2})).status == 200
            assert "confirmed" in await command("tokens", "confirm", "--reason", "checked")
            await until(lambda: status_is(status_with, old, 200))
            await until(lambda: negated(warned))
            assert "nothing to do" in await command("tokens", "confirm", "--reason", "again")

            await command("tokens", "invalidate", "--issued-before", datetime.now(UTC).isoformat(), "--reason", "all")
            for text in (old, new):
                await until(partial(status_is, status_with, text, 401))


def names(raw: KazooClient, change_id: str) -> bool:
    """Return True once the node has the newest change of Postgres."""
    return change_id in raw.get("/confplane/incarnation")[0].decode()


async def status_is(status_with: Callable[[str], Awaitable[int]], text: str, expected: int) -> bool:
    return await status_with(text) == expected


async def negated(condition: Callable[[], Awaitable[bool]]) -> bool:
    return not await condition()
