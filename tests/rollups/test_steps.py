"""Runs that continue come to the rows of runs from the beginning, on real stores that live through all kinds of things.

Late rows, deletes, layout moves, and stores that are restored: ZooKeeper to its files, Postgres to a copy of an earlier
time.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError
from pydantic import SecretStr

from confplane.devstack.zookeeper import ZooKeeper
from confplane.rollups import reading as readings
from confplane.rollups import stores
from confplane.rollups.jobs import activity, compatibility, integrity
from confplane.rollups.origin import Origin
from confplane.rollups.runner import RunOptions, runner
from confplane.settings import ClusterSettings
from tests.audit.rows import change_id, committed, entity, fetch, intent, rejected
from tests.audit.rows import run as execute
from tests.rollups.published import returned
from tests.rollups.trail import write
from tests.support.commands import Commands
from tests.support.stores import content
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from confplane.devstack.postgres import Postgres
    from confplane.rollups.job import Job
    from confplane.rollups.reading import Reading
    from confplane.rollups.runner import FinishedRun
    from tests.support import servers

JOBS: Final = (activity.JOB, compatibility.JOB, integrity.JOB)
CLUSTER: Final = "default"
DAY_MS: Final = 86_400_000
TREES: Final = {"/config": "producer_byte_rate", "/confplane/client-configs": "acks"}
NAMES: Final = [f"u{number}" for number in range(12)]


class World:
    """The stores, and the writers of both."""

    def __init__(self, server: ZooKeeper, postgres: Postgres, database: servers.Database, commands: Commands) -> None:
        self._server = server
        self._postgres = postgres
        self._database = database
        self._commands = commands
        self._chosen = random.Random(12)  # noqa: S311 - the same each time
        self._number = 0
        self._layout = "shared"
        self._late: list[tuple[list[Any], list[Any]]] = []
        self._open: list[Any] = []
        self._backups = 0
        self.zk = self._connected()

    def _connected(self) -> KazooClient:
        client = KazooClient(hosts=self._server.hosts, timeout=30.0)
        client.start(PATIENCE_S)
        return client

    @property
    def hosts(self) -> str:
        return self._server.hosts

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    # -- what happens all the time

    def live(self) -> None:
        """Let a few things happen."""
        for _ in range(self._chosen.randrange(4, 9)):
            self._chosen.choice(
                (self._alter, self._alter, self._alter, self._delete, self._by_hand, self._begin, self._conclude)
            )()
        self._register()
        if self._chosen.random() < 0.5:
            self._record()
        for rows in self._late if self._chosen.random() < 0.5 else ():
            write(self._database.service_dsn, *rows)
            self._late.remove(rows)
            break

    def _place(self) -> tuple[str, str]:
        """A tree and a user. Client configs are in the tree of the layout."""
        tree = self._chosen.choice([*TREES]) if self._layout == "separate" else "/config"
        return tree, self._chosen.choice(NAMES)

    def _alter(self) -> None:
        tree, name = self._place()
        key = "acks" if tree == "/config" and self._layout == "shared" and self._number % 3 == 0 else TREES[tree]
        path = f"{tree}/users/{name}"
        found = self.zk.exists(path)
        before: dict[str, str] = {} if found is None else self._config(path)
        value = self._chosen.choice(["all", "1", "0"]) if key == "acks" else str(self._chosen.randrange(1, 4))
        after = {**before, key: value}
        if found is None:
            _, stat = self.zk.create(path, content(**after), makepath=True, include_data=True)
        else:
            stat = self.zk.set(path, content(**after))
        self._told(name, path, found, before, after, stat.mzxid, stat.version)

    def _delete(self) -> None:
        tree, name = self._place()
        path = f"{tree}/users/{name}"
        found = self.zk.exists(path)
        if found is not None:
            before = self._config(path)
            self.zk.delete(path)
            revision = self.zk.create("/after", b"", include_data=True)[1].czxid - 1
            self.zk.delete("/after")
            self._told(name, path, found, before, {}, revision, None)

    def _by_hand(self) -> None:
        """A write that nobody records."""
        tree, name = self._place()
        with suppress(NotEmptyError):
            if self.zk.exists(f"{tree}/users/{name}"):
                self.zk.set(f"{tree}/users/{name}", content(**{TREES[tree]: "1"}))

    def _told(
        self, name: str, path: str, found: Any, before: Any, after: Any, revision: int, version: int | None
    ) -> None:
        """Write the rows of a change, of any of ten days; now, later or never."""
        each = entity(
            f"user={name}", *{key for key in {*before, *after} if before.get(key) != after.get(key)} or ("acks",),
            path=path, before=before, after=after,
            version_read=found and found.version, czxid_read=found and found.czxid,
        )  # fmt: skip
        made = self._new(each)
        versions = {} if version is None else {path: version}
        rows = ([made], [committed(made, revision=revision, versions=versions, time_ms=int(time.time() * 1000))])
        draw = self._chosen.random()
        if draw < 0.1:
            return
        if draw < 0.3:
            self._late.append(rows)
        else:
            write(self._database.service_dsn, *rows)

    def _new(self, *entities: Any) -> Any:
        self._number += 1
        at = int(time.time() * 1000) - self._chosen.randrange(10) * DAY_MS
        principal = self._chosen.choice(["User:a", "User:b"])
        return intent(change_id(at, self._number), *entities, cluster=CLUSTER, principal=principal)

    def _begin(self) -> None:
        self._open.append(self._new(entity("user=u1", path="/config/users/u1")))
        write(self._database.service_dsn, [self._open[-1]])

    def _conclude(self) -> None:
        if self._open:
            write(self._database.service_dsn, [], [rejected(self._open.pop(0))])

    def _register(self) -> None:
        values = ", ".join(
            f"('seen', '{CLUSTER}', 'user={self._chosen.choice(NAMES)}', 'lib', '{self._chosen.randrange(3)}',"
            f" ARRAY['k{self._chosen.randrange(4)}'], now(), current_date - {self._chosen.randrange(5)}, NULL, NULL)"
            for _ in range(3)
        )
        if self._chosen.random() < 0.2:
            values += f", ('cleared', '{CLUSTER}', 'user=u1', NULL, NULL, NULL, NULL, NULL, 'p', 'r')"
        execute(
            self._database.service_dsn,
            "INSERT INTO registrations (event, cluster, entity_id, software_name, software_version,"  # noqa: S608 - of a test
            f" supported_configs, seen_at, seen_on, principal, request_id) VALUES {values}",
        )

    def _record(self) -> None:
        """The recorder takes some znodes as they are."""
        rows = []
        for tree in TREES:
            names = self.zk.get_children(f"{tree}/users") if self.zk.exists(f"{tree}/users") else []
            for name in names:
                stat = self.zk.exists(f"{tree}/users/{name}")
                if stat is not None and self._chosen.random() < 0.5:
                    config = json.dumps(self._config(f"{tree}/users/{name}"))
                    rows.append((CLUSTER, tree, f"user={name}", True, stat.czxid, stat.version, stat.mzxid, config))
        with psycopg.connect(self._database.owner_dsn) as connection:
            connection.execute("DELETE FROM entity_states")
            connection.cursor().executemany(
                "INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                rows,
            )
            connection.execute(
                "INSERT INTO watermarks (cluster, revision, complete, since, since_at) VALUES (%s, %s, true, 0, now())"
                " ON CONFLICT (cluster) DO UPDATE SET revision = excluded.revision",
                [CLUSTER, self.zk.last_zxid],
            )

    def _config(self, path: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.zk.get(path)[0])["config"]
        return found

    # -- what happens seldom

    def move_layout(self) -> None:
        """Move the client configs to the other tree, by the command."""
        to = {"shared": "separate", "separate": "shared"}[self._layout]
        done = self._commands.run("layout", "move", "--to", to, "--apply")
        assert done.code == 0, done
        self._layout = to

    def back_up(self) -> None:
        """Keep both stores as they are."""
        kept = self._server.data_dir.with_name("kept")
        shutil.rmtree(kept, ignore_errors=True)
        # The log has what was answered; the server writes meanwhile what nobody asks for.
        shutil.copytree(self._server.data_dir / "data", kept)
        self._kept_layout = self._layout
        self._backups += 1
        self._postgres.create_database(self._backup, template=self._database.name)

    @property
    def _backup(self) -> str:
        return f"backup_{self._database.name.removeprefix('test_')}_{self._backups}"

    def restore_zookeeper(self) -> None:
        """Put the files of the last backup back."""
        self.close()
        self._server.stop()
        shutil.rmtree(self._server.data_dir / "data")
        shutil.copytree(self._server.data_dir.with_name("kept"), self._server.data_dir / "data")
        self._server.start()
        self.zk = self._connected()
        self._layout = self._kept_layout

    def pass_all_revisions(self) -> None:
        """Let ZooKeeper get beyond the revisions of before its restore: of one zxid there are not two changes."""
        [(highest,)] = fetch(self._database.owner_dsn, "SELECT coalesce(max(revision), 0) FROM outcomes")
        while self.zk.create("/next", b"", include_data=True)[1].czxid <= highest:
            self.zk.delete("/next")
        self.zk.delete("/next")

    def restore_postgres(self) -> None:
        """Put the last copy of the database in the place of the database."""
        self._postgres.query(f"DROP DATABASE {self._database.name} WITH (FORCE)")
        self._postgres.create_database(self._database.name, template=self._backup)


@pytest.fixture
def world(postgres: Postgres, migrated: servers.Database, tmp_path: Path) -> Any:
    with ZooKeeper(tmp_path / "zookeeper", durable=False) as server:
        commands = Commands(tmp_path, connect=server.hosts, dsn=migrated.service_dsn)
        found = World(server, postgres, migrated, commands)
        yield found
        found.close()


SELDOM: Final = ("back_up", "move_layout", "restore_zookeeper", "restore_postgres")
FIRST: Final = (("back_up",), ("move_layout", "restore_postgres"), ("restore_zookeeper",))
"""The events of the first steps; those of later steps are chosen at random."""


@pytest.mark.usefixtures("few_rows")
@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize(
    ("steps", "jobs"), [pytest.param(3, JOBS[-1:], id="3 steps"), pytest.param(50, JOBS, id="50 steps")]
)
def test_runs_that_continue_come_to_the_rows_of_runs_from_the_beginning(
    spark: SparkSession,
    world: World,
    migrated: servers.Database,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    jobs: Sequence[Job],
) -> None:
    # A fold is handed on days after its changes; here these days are a second.
    monkeypatch.setattr(readings, "UNSETTLED", timedelta(seconds=1))
    monkeypatch.setattr(readings, "LATE", timedelta(seconds=0.5))
    chosen = random.Random(steps)  # noqa: S311 - the same each time
    origin = Origin(CLUSTER, ClusterSettings(zookeeper=world.hosts), SecretStr(migrated.service_dsn))
    done: dict[str, list[FinishedRun]] = {job.name: [] for job in jobs}
    for number in range(steps):
        world.live()
        what = FIRST[number] if number < len(FIRST) else chosen.choice([(), (), *((each,) for each in SELDOM)])
        for each in what:
            getattr(world, each)()
        with stores.read(spark, origin, jobs=jobs) as (reading, _), runner(spark, reading, origin.dsn) as found:
            for job in jobs:
                finished = found.run(job, RunOptions("User:olga@cli"))
                done[job.name].append(finished)
                assert rows_of(migrated, finished) == at_once(reading, job), (number, what, job.name)
        if "restore_zookeeper" in what:
            world.pass_all_revisions()
    for name, runs in done.items():
        built_on = [each.run.folded if name == "integrity" else each.run.previous for each in runs]
        assert len([each for each in built_on if each]) > steps // 4, (name, built_on)
        assert runs[-1].run.rows, name


def rows_of(database: servers.Database, done: FinishedRun) -> list[dict[str, Any]]:
    query = "SELECT item FROM rollup_rows WHERE run_id = %s ORDER BY part, ordinal"
    return [item for (item,) in fetch(database.owner_dsn, query, done.run.id)]


def at_once(at: Reading, job: Any) -> list[dict[str, Any]]:
    """The rows of a run from the beginning."""
    frames, _ = at.frames(job)
    known = {"teams": None, **at.options}
    return returned(job(**frames, **{name: known.get(name) for name in job.options}), job)
