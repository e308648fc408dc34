"""Backups while clients and Kafka's tools write, and restores of them: elsewhere, over later states, and interrupted."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import psycopg
import pytest

from confplane.audit.backup_tables import KEPT
from confplane.client import RestoredStoreError
from confplane.services.backup.archive import read_archive
from confplane.services.backup.lines import znode_of
from tests.audit.rows import fetch, past_the_trigger
from tests.features.test_manifest_owners import apply, document, status, topic
from tests.features.test_manifest_runs import connected
from tests.support.commands import Commands, Said, run, run_here
from tests.support.feeding import page
from tests.support.servers import lent, make_chroot, make_migrated, raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_FILE_VARIABLE
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

RATE: Final = "producer_byte_rate"
USERS: Final = 200
SOON: Final = {
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
}
AT_ONCE: Final = {"confplane.services.backup.restore.ENDING_S": 0.0}


class Installation:
    """A chroot and a database, the service on them, and commands on all clusters of its settings."""

    def __init__(self, directory: Path, connect: str, database: Database) -> None:
        self.connect = connect
        self.database = database
        self.service = Service(
            directory / "service",
            connect=connect,
            dsn=database.service_dsn,
            settings={CONSTANTS_VARIABLE: json.dumps(SOON)},
            module="tests.support.stepping",
        )
        self.step_file = directory / "step"
        self.environment: dict[str, str] = {
            **Commands(directory, connect=connect, dsn=database.service_dsn).environment,
            "CONFPLANE_POSTGRES__MIGRATION_DSN": database.owner_dsn,
            CONSTANTS_VARIABLE: json.dumps({"confplane.services.backup.restore.ENDING_S": 30.0}),
            STEP_FILE_VARIABLE: str(self.step_file),
        }

    async def run(self, *arguments: str) -> Said:
        return await asyncio.to_thread(run_here, *arguments, environment=self.environment)

    async def restore(self, file: Path, *options: str, **more: str) -> Said:
        """Restore an archive by a process that may be killed, with more variables of its environment."""
        arguments = ["restore", str(file), "--reason", "INC-7", *options]
        return await asyncio.to_thread(run, arguments, self.environment | more, module="tests.support.stepping")

    async def agrees(self, file: Path, *, unnotified: str = "") -> dict[str, Any]:
        """Back up, and check that both stores agree; return what the check reports.

        Args:
            file: The archive.
            unnotified: The prefix of paths that a tool is writing, whose last writes may have no notification yet.
        """
        said = await self.run("backup", str(file))
        assert said.code == 0, said
        said = await self.run("verify", str(file), "--json")
        found: dict[str, Any] = json.loads(said.out)
        warnings = [text for text in found["warnings"] if not unnotified or f"last writes of {unnotified}" not in text]
        assert (said.code, found["problems"], warnings) == (0, [], []), said
        return found


@pytest.fixture
def first(tmp_path: Path, chroot: str, migrated: Database) -> Installation:
    return Installation(tmp_path / "first", chroot, migrated)


@pytest.fixture
def second(tmp_path: Path, zookeeper: ZooKeeper, postgres: Postgres) -> Iterator[Installation]:
    for database in lent(postgres, make_migrated(postgres)):
        yield Installation(tmp_path / "second", make_chroot(zookeeper.hosts), database)


def znodes(file: Path) -> dict[str, bytes | None]:
    """Return the data of all znodes of an archive."""
    found: dict[str, bytes | None] = {}

    def take(series: str, lines: list[bytes]) -> None:
        if series.startswith("clusters/"):
            for copy in (znode_of(json.loads(line)) for line in lines):
                found.pop(copy.path, None)
                if copy.present:
                    found[copy.path] = copy.data

    with file.open("rb") as archive:
        read_archive(archive, take)
    return found


class Load:
    """Writes by several clients and by an external tool, until the block ends."""

    def __init__(self, client: ConfplaneClient, raw: KazooClient) -> None:
        self._client = client
        self._raw = raw
        self.writes = 0
        self._ending = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(4)]
        self._tasks.append(asyncio.create_task(asyncio.to_thread(self._write_externally)))
        await until(lambda: self.writes > 100)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _write(self, number: int) -> None:
        for value in itertools.count(1):
            if self._ending:
                return
            user = f"user=load-{number}-{value % USERS}"
            if value % 7:
                await self._client.put("client-quotas", user, {RATE: value})
            else:
                await self._client.delete("client-quotas", user)
            self.writes += 1

    def _write_externally(self) -> None:
        for value in itertools.count(1):
            if self._ending:
                return
            kafka_writes(self._raw, f"users/external-{value % USERS}", rate(value))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, module_chroot: str, module_database: Database) -> Path:
    """An archive that was made under load."""
    directory = tmp_path_factory.mktemp("loaded")
    loaded = Installation(directory / "loaded", module_chroot, module_database)
    with loaded.service as service:
        service.wait_recorded()
        found = asyncio.run(backed_up(loaded, directory / "backup.tar"))
    assert found["clusters"]["default"]["trailComplete"] is True
    assert found["tables"]["outcomes"] == found["tables"]["intents"] > 100
    return directory / "backup.tar"


async def backed_up(loaded: Installation, file: Path) -> dict[str, Any]:
    """Back up under load, and return what the check reports."""
    async with loaded.service.client() as client:
        # The first client config also fills a znode that each connection creates empty.
        await client.put("client-configs", "user=load-0-0", {"acks": "all"})
        for raw in raw_client(loaded.connect):
            async with Load(client, raw):
                return await loaded.agrees(file, unnotified="/config/users/external-")
    raise AssertionError


def test_a_backup_under_load_is_of_one_revision_in_both_stores(archive: Path) -> None:
    assert archive.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in archive.parent.glob("backup.tar*")] == ["backup.tar"]


async def test_a_restore_elsewhere_has_both_stores_as_of_the_backup(
    archive: Path, second: Installation, tmp_path: Path
) -> None:
    said = await second.restore(archive)
    assert said.code == 0, said
    await until(lambda: analyzed(second.database) >= KEPT.keys())
    with second.service as service:
        async with service.client() as client:
            await asyncio.to_thread(service.wait_recorded)
            found = await second.agrees(tmp_path / "again.tar")
            assert znodes(tmp_path / "again.tar") == znodes(archive)
            # The adoption is the only change since, with the external writes whose rows end after the backup.
            with archive.open("rb") as file:
                before = read_archive(file, lambda _series, _lines: None)
            assert found["tables"]["outcomes"] == before.tables["outcomes"] + 1 + differing(said)
            written = fetch(
                second.database.owner_dsn,
                "SELECT DISTINCT split_part(entity_id, '-', 1) FROM intent_entities JOIN outcomes USING (change_id)"
                " WHERE incarnation = 2 AND facet <> 'cluster'",
            )
            assert written in ([], [("user=external",)])
            assert (await client.put("client-quotas", "user=new", {RATE: 1})).status == 200


def analyzed(database: Database) -> set[str]:
    """Return the tables whose statistics are of their rows, by a command."""
    return {
        row[0] for row in fetch(database.owner_dsn, "SELECT relname FROM pg_stat_user_tables WHERE analyze_count > 0")
    }


def differing(said: Said) -> int:
    """Return the number of entities of which a restore recorded an external change."""
    [found] = re.findall(r"(\d+) entit(?:y differs|ies differ)", said.out)
    return int(found)


async def test_changes_that_ended_after_the_last_round_of_the_recorder_are_not_recorded_again(
    first: Installation, second: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    with first.service as service:
        async with service.client() as client:
            for user in ("changed", "deleted", "unsettled"):
                await client.put("client-quotas", f"user={user}", {RATE: 1})
            await asyncio.to_thread(service.wait_recorded)
    never = {CONSTANTS_VARIABLE: json.dumps({"confplane.services.recorder.record.INTERVAL_S": 3600.0})}
    with Service(
        tmp_path / "later",
        connect=first.connect,
        dsn=first.database.service_dsn,
        settings=never,
        module="tests.support.stepping",
    ) as service:
        async with service.client() as client:
            await client.put("client-quotas", "user=changed", {RATE: 2})
            await client.put("client-quotas", "user=created", {RATE: 2})
            await client.delete("client-quotas", "user=deleted")
            await client.put("client-quotas", "user=unsettled", {RATE: 2})
    # As if the process had been killed before it recorded the outcome of its last change.
    past_the_trigger(
        first.database.owner_dsn,
        "outcomes",
        "DELETE FROM outcomes WHERE revision = (SELECT max(revision) FROM outcomes)",
    )
    assert (await first.run("backup", str(file))).code == 0
    said = await second.restore(file)
    assert (said.code, differing(said)) == (0, 0), said
    with second.service as service:
        async with service.client() as client:
            await asyncio.to_thread(service.wait_recorded)
            await second.agrees(tmp_path / "again.tar")
            for user in ("changed", "created", "deleted", "unsettled"):
                history = [item["kind"] async for item in client.history("client-quotas", f"user={user}")]
                assert history == ["change"] * (1 if user == "created" else 2), user


async def test_tokens_are_rejected_after_a_restore_unless_they_are_confirmed(
    first: Installation, second: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"

    async def status(service: Service) -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": f"Bearer {token}"}
            return (await client.get(f"{service.url}/v1/clusters", headers=headers)).status_code

    with first.service:
        token = (await first.run("tokens", "create", "--principal", "User:app")).out.strip()
        assert (await first.run("backup", str(file))).code == 0
    said = await second.restore(file)
    assert "confplane tokens confirm" in said.out
    with second.service as service:
        assert await status(service) == 401
        assert (await second.run("tokens", "confirm", "--reason", "checked")).code == 0
        await until(lambda: accepts(status, service))
    said = await second.restore(file, "--yes", "--confirm-tokens", "--json")
    assert said.code == 0, said
    _, adopted, result = (json.loads(line) for line in said.out.splitlines())
    [[change]] = fetch(second.database.owner_dsn, "SELECT change_id FROM intent_entities WHERE facet = 'cluster'")
    assert (adopted["incarnation"], adopted["changeId"]) == (2, str(change))
    assert result == {"restored": str(file), "tokensConfirmed": True}
    with second.service as service:
        assert await status(service) == 200


async def accepts(status: Callable[[Service], Awaitable[int]], service: Service) -> bool:
    return await status(service) == 200


async def test_a_restore_over_a_later_state_shows_its_plan_first_and_consumers_list_again(
    first: Installation, tmp_path: Path
) -> None:
    file, other = tmp_path / "backup.tar", tmp_path / "other.tar"
    with first.service as service:
        async with service.client() as client:
            await client.put("client-quotas", "user=changed", {RATE: 1})
            await client.put("client-quotas", "user=deleted", {RATE: 1})
            await asyncio.to_thread(service.wait_recorded)
            await first.agrees(file)
            running = await first.restore(file, **{CONSTANTS_VARIABLE: json.dumps(AT_ONCE)})
            assert (running.code, "Stop all of them first" in running.err) == (2, True), running
            await client.put("client-quotas", "user=changed", {RATE: 2})
            await client.delete("client-quotas", "user=deleted")
            await client.put("client-quotas", "user=created", {RATE: 1})
            position = (await page(service)).json()["position"]
    for raw in raw_client(first.connect):
        raw.delete("/config/users/deleted")
        raw.ensure_path("/brokers/ids/1")
        notifications = len(raw.get_children("/config/changes"))

    said = await first.restore(file)
    assert (said.code, "Nothing was written" in said.err) == (1, True), said
    assert "Znodes of default: 1 created, 1 changed, 1 deleted" in said.out
    said = await first.restore(file, "--yes")
    assert said.code == 0, said
    for raw in raw_client(first.connect):
        # Brokers that run learn of the three changes.
        assert len(raw.get_children("/config/changes")) == notifications + 3
        raw.delete("/brokers/ids/1")
    with first.service as service:
        async with service.client() as client:
            assert (await client.get("client-quotas", "user=changed")).body["quotas"] == {RATE: 1}
            listed = [item["id"] async for item in client.items("client-quotas")]
            assert listed == ["user=changed", "user=deleted"]
            history = [item["changeId"] async for item in client.history("client-quotas", "user=changed")]
            assert len(history) == 1
            answer = await page(service, after=position)
            assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (410, "store-replaced")
            assert (await client.put("client-quotas", "user=changed", {RATE: 3})).status == 200
            await asyncio.to_thread(service.wait_recorded)
            await first.agrees(other)


async def test_owners_of_entities_that_were_written_during_the_backup_are_restored(
    first: Installation, second: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    body = document("payments", topic("written", retention_ms="1"), topic("other", retention_ms="1"))
    with first.service as service:
        with connected(service) as http:
            await asyncio.to_thread(apply, http, body)
            await asyncio.to_thread(service.wait_recorded)
            await until(lambda: status(http, "topic=written")[0] == {"retention.ms": "payments"})
        # The state of a later write, which the backup leaves out.
        with psycopg.connect(first.database.owner_dsn) as connection:
            later = "UPDATE entity_states SET mzxid = mzxid + 1000000000000 WHERE entity_id = 'topic=written'"
            assert connection.execute(later).rowcount == 1
        assert (await first.run("backup", str(file))).code == 0
    assert (await second.restore(file)).code == 0
    with second.service as service, connected(service) as http:
        for name in ("topic=written", "topic=other"):
            assert status(http, name) == ({"retention.ms": "payments"}, {"payments": {}}), name


@pytest.mark.parametrize("step", ["znodes", "rows", "restored", "recorded", "transaction"])
async def test_a_restore_that_is_killed_can_be_run_again(
    archive: Path, second: Installation, tmp_path: Path, step: str
) -> None:
    second.step_file.write_text(f"{step}:SIGKILL")
    assert (await second.restore(archive)).code == -signal.SIGKILL
    assert not second.step_file.exists()
    if step != "transaction":
        # No process writes to half of a state.
        with second.service as service:
            async with service.client() as client:
                with pytest.raises(RestoredStoreError):
                    await client.put("client-quotas", "user=new", {RATE: 1})
    said = await second.restore(archive, "--yes")
    assert said.code == 0, said
    with second.service as service:
        async with service.client() as client:
            assert (await client.put("client-quotas", "user=new", {RATE: 1})).status == 200
            await client.delete("client-quotas", "user=new")
            await asyncio.to_thread(service.wait_recorded)
            await second.agrees(tmp_path / "again.tar")
            assert znodes(tmp_path / "again.tar").items() >= znodes(archive).items()


async def test_brokers_learn_of_the_changes_of_a_restore_that_was_interrupted(
    archive: Path, second: Installation
) -> None:
    for raw in raw_client(second.connect):
        raw.ensure_path("/brokers/ids/1")
    second.step_file.write_text("rows:SIGKILL")
    none = {CONSTANTS_VARIABLE: json.dumps({"confplane.services.backup.restore.ANNOUNCED": 0.0})}
    assert (await second.restore(archive, **none)).code == -signal.SIGKILL
    said = await second.restore(archive, "--yes")
    assert (said.code, "restart its brokers (1)" in said.out + said.err) == (0, True), said
    said = await second.restore(archive, "--yes")
    assert (said.code, "brokers" in said.out + said.err) == (0, False), said


async def test_an_archive_of_another_schema_is_refused(
    first: Installation, second: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    assert (await first.run("backup", str(file))).code == 0
    with psycopg.connect(second.database.owner_dsn) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    said = await second.restore(file)
    assert (said.code, "the database 0001" in said.err) == (2, True), said
