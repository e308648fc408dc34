"""Results of the commands: ``--json`` prints JSON alone, and ``--fail-on-mismatch`` makes integrity a gate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.audit.rows import change_id, committed, entity, fetch, intent
from tests.rollups.trail import START_MS, fill, write
from tests.support.commands import Commands
from tests.support.stores import rate

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from tests.support import servers

PROGRESS: Final = "integrity (1 of 1)\n"
GATE: Final = ("rollups", "run", "integrity", "--fail-on-mismatch")


@pytest.fixture
def commands(spark: SparkSession, chroot: str, migrated: servers.Database, tmp_path: Path) -> Commands:
    del spark  # the commands take the session that there is
    return Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)


def test_results_are_json(commands: Commands, migrated: servers.Database, tmp_path: Path) -> None:
    def result(*arguments: str) -> list[dict[str, Any]]:
        said = commands.run_here("rollups", *arguments, "--json")
        assert said.code == 0, said
        return [json.loads(line) for line in said.out.splitlines()]

    fill(migrated.service_dsn)
    [run] = result("run", "activity")
    assert (run["rollup"], run["state"], run["isCurrent"], run["path"]) == ("activity", "complete", True, None)
    lake = str(tmp_path / "lake")
    exported = {each["name"]: each for each in result("export", "all", "--output", lake)}
    assert {"trail", "registrations", "znodes"} <= exported.keys()
    assert exported["trail"]["written"] == exported["trail"]["rows"]
    again = {each["name"]: each for each in result("export", "trail", "--output", lake)}
    assert (again["trail"]["rows"], again["trail"]["written"]) == (exported["trail"]["rows"], 0)


def test_the_gate_is_open_while_writers_send_no_notifications(
    commands: Commands, raw_zk: KazooClient, migrated: servers.Database
) -> None:
    written, again = (
        raw_zk.create(f"/config/users/{name}", rate(1), makepath=True, include_data=True)[1] for name in ("a", "b")
    )
    raw_zk.set("/config/users/a", rate(2))
    raw_zk.set("/config/users/b", rate(1))
    raw_zk.create("/config/users/c", rate(3))
    # The recorder is past all of these writes, since none of them had a notification.
    with psycopg.connect(migrated.service_dsn) as connection:
        for name, stat in (("a", written), ("b", again)):
            connection.execute(
                "INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content)"
                " VALUES ('default', '/config', %s, true, %s, 0, %s, '{\"producer_byte_rate\": \"1\"}')",
                [f"user={name}", stat.czxid, stat.mzxid],
            )
        connection.execute(
            "INSERT INTO watermarks (cluster, revision, complete, since) VALUES ('default', %s, true, %s)",
            [again.czxid + 1_000_000, again.czxid],
        )
    said = commands.run_here(*GATE)
    assert (said.code, said.err) == (0, PROGRESS)
    assert fetch(
        migrated.owner_dsn,
        "SELECT item ->> 'entity_id', item ->> 'kind', item -> 'pending' FROM rollup_rows ORDER BY 1",
    ) == [("user=a", "content", True), ("user=b", "version", True), ("user=c", "no_trail", True)]


def test_the_gate_is_shut_by_mismatches_that_stay(commands: Commands, migrated: servers.Database) -> None:
    # A znode that is gone, and one more change of it under way.
    lost = intent(change_id(START_MS, 1), entity("user=a"), cluster="default")
    left = committed(lost, revision=1)
    again = intent(change_id(START_MS, 2), entity("user=a"), cluster="default")
    write(migrated.service_dsn, [lost, again], [left])
    said = commands.run_here(*GATE)
    assert (said.code, said.err) == (0, PROGRESS)
    assert fetch(migrated.owner_dsn, "SELECT DISTINCT item -> 'pending' FROM rollup_rows") == [(True,)]
    # A change that ZooKeeper never reached stays a mismatch, whatever ends.
    never = intent(
        change_id(START_MS, 3), entity("user=b", version_read=None, czxid_read=None, before={}), cluster="default"
    )
    write(migrated.service_dsn, [never], [committed(never)])
    said = commands.run_here(*GATE)
    assert said.code == 4
    stay = (
        "SELECT item ->> 'entity_id', item ->> 'kind' FROM rollup_rows WHERE item @> '{\"pending\": false}' ORDER BY 2"
    )
    assert fetch(migrated.owner_dsn, stay) == [("user=b", "rewound")]
    assert said.err == (
        f"{PROGRESS}integrity: 1 mismatch that will not resolve by themselves; `confplane rollups show integrity --cluster default"
        " --where pending=false` lists all\n"
    )
