"""One moment of both stores."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from confplane.domain.facets import Tree
from confplane.rollups import reading as readings
from confplane.rollups import stores
from confplane.rollups.jobs import activity, compatibility, impact, integrity, quotas
from confplane.rollups.origin import Origin
from confplane.rollups.runner import RunOptions, runner
from confplane.services.ports.cluster_states import Layout
from confplane.settings import ClusterSettings
from confplane.store.scan import Scanner
from confplane.store.znodes import encode_layout
from tests.audit.rows import committed, entity, run
from tests.rollups.made import at_once, rows_of
from tests.rollups.trail import CLUSTER, collected, fill, own, write
from tests.support.stores import content, rate

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from confplane.services.ports.rollups import RollupRun
    from tests.support import servers

PASSWORD = "a-password-in-clear"


@pytest.fixture
def origin(raw_zk: KazooClient, chroot: str, migrated: servers.Database) -> Origin:
    """A cluster with a trail, and with znodes that have little to do with it."""
    fill(migrated.service_dsn)
    for number in range(20):
        raw_zk.create(f"/config/users/u{number}", rate(number), makepath=True)
    raw_zk.create(
        "/config/brokers/0", f'{{"version":1,"config":{{"x.password":"{PASSWORD}"}}}}'.encode(), makepath=True
    )
    return Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))


def test_znodes_are_those_of_just_before_the_moment(spark: SparkSession, origin: Origin, raw_zk: KazooClient) -> None:
    written = raw_zk.set("/config/users/u0", rate(7)).mzxid
    with stores.read(spark, origin, jobs=[quotas.JOB, impact.JOB]) as (reading, _):
        later = raw_zk.set("/config/users/u1", rate(9)).mzxid
        floor, horizon = reading.options["floor"], reading.options["horizon"]
        assert written <= floor <= horizon < later
        assert {reading.position["floor"], reading.position["horizon"]} == {str(floor), str(horizon)}
        frame = reading.frame("znodes", ("entity_id", "config", "mzxid"))
        found = {row["entity_id"]: row for row in collected(frame)}
        assert found["user=u0"]["mzxid"] == written
        assert found["user=u1"]["config"] == {"producer_byte_rate": "1"}
        assert len(found) == 21
        shown = frame._jdf.queryExecution().toString() + repr([reading, found])
        assert PASSWORD not in shown
        # Only what the jobs read was read.
        assert "fingerprints" not in frame._jdf.queryExecution().toString()
    with stores.read(spark, origin) as (reading, _):
        assert {row["entity_id"]: row["config"] for row in collected(reading.frame("znodes", ("entity_id", "config")))}[
            "user=u1"
        ] == {"producer_byte_rate": "9"}
        versions = [row["version"] for row in collected(reading.frame("znodes", ("version",)))]
        assert reading.options["newest_version"] == max(versions) > 0


def test_a_zookeeper_that_went_back_is_reported_and_concurrent_changes_are_not(
    spark: SparkSession,
    origin: Origin,
    raw_zk: KazooClient,
    migrated: servers.Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = stores._moment

    def meanwhile(*given: Any) -> Any:
        """A change commits between the last look at ZooKeeper and the snapshot of Postgres."""
        stat = raw_zk.set("/config/users/u5", rate(5))
        path = "/config/users/u5"
        changed = entity("user=u5", path=path, version_read=0, czxid_read=stat.czxid, before={}, after={})
        write(migrated.service_dsn, [own(60, changed)], [committed(own(60), revision=stat.mzxid, versions={path: 1})])
        return taken(*given)

    monkeypatch.setattr(stores, "_moment", meanwhile)
    with stores.read(spark, origin, jobs=[integrity.JOB]) as (reading, _):
        assert reading.options["horizon"] < raw_zk.exists("/config/users/u5").mzxid <= reading.options["ceiling"]
        frames, _ = reading.frames(integrity.JOB)
        options = {name: reading.options[name] for name in integrity.JOB.options}
        found = {(row.entity_id, row.kind): row for row in integrity.JOB(**frames, **options).collect()}
    # fill() has changes, and states of others, of revisions that no ZooKeeper has come to.
    rewound = {entity_id for entity_id, kind in found if kind == "rewound"}
    assert rewound == {"topic=t", "user=u1", "user=u2", *(f"user={number}" for number in range(1, 10))}
    assert found["topic=t", "rewound"].trail_revision == 2**62
    assert found["user=1", "rewound"].trail_revision == 2**61 + 1


def test_impact_counts_the_client_configs_of_the_stored_layout(
    spark: SparkSession, chroot: str, raw_zk: KazooClient, migrated: servers.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_zk.create("/config/users/u", content(acks="0"), makepath=True)
    raw_zk.create("/confplane/client-configs/users/u", content(acks="1"), makepath=True)
    raw_zk.create("/config/users/later", content(acks="2"))
    origin = Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))

    def found() -> dict[str, str]:
        with stores.read(spark, origin, jobs=[impact.JOB]) as (reading, _):
            options = {name: reading.options[name] for name in impact.JOB.options}
            rows = impact.JOB(**reading.frames(impact.JOB)[0], **options).where("facet = 'client-configs'").collect()
        return {row.default_id: row.value for row in rows}

    assert found() == {"user=u": "0", "user=later": "2"}
    raw_zk.create("/confplane/layout", encode_layout(Layout(Tree.CLIENT_CONFIGS, Tree.CONFIG)))
    assert found() == {"user=u": "1", "user=later": "2"}
    raw_zk.set("/confplane/layout", encode_layout(Layout(Tree.CLIENT_CONFIGS)))
    assert found() == {"user=u": "1"}
    raw_zk.set("/confplane/layout", b"of a later release")
    assert found() == {"user=u": "0", "user=later": "2"}
    # A move that began and ended while the znodes were read.
    raw_zk.set("/confplane/layout", encode_layout(Layout(Tree.CONFIG)))
    layout = Scanner.layout

    def moved(scanner: Scanner, least: int = 0) -> Layout:
        before = layout(scanner, least)
        raw_zk.set("/confplane/layout", encode_layout(Layout(Tree.CLIENT_CONFIGS)))
        return before

    monkeypatch.setattr(Scanner, "layout", moved)
    assert found() == {"user=u": "1", "user=later": "2"}


def test_an_external_deletion_is_pending_until_the_recorder_records_it(
    spark: SparkSession, chroot: str, raw_zk: KazooClient, migrated: servers.Database
) -> None:
    created = raw_zk.create("/config/users/gone", rate(1), makepath=True, include_data=True)[1].czxid
    raw_zk.delete("/config/users/gone")
    content = '{"producer_byte_rate": "1"}'
    run(
        migrated.service_dsn,
        f"""
        INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content)
        VALUES ('{CLUSTER}', '/config', 'user=gone', true, {created}, 0, {created}, '{content}');
        INSERT INTO watermarks (cluster, revision, complete, since) VALUES ('{CLUSTER}', {created}, true, {created})
        """,  # noqa: S608 - constants
    )
    origin = Origin(CLUSTER, ClusterSettings(zookeeper=chroot), SecretStr(migrated.service_dsn))
    found = []
    # Deletions without a notification are found later, when the recorder reads all znodes.
    passed, recorded = "UPDATE watermarks SET revision = revision + 1000", "UPDATE entity_states SET present = false"
    for then in (passed, recorded, "SELECT 1"):
        with stores.read(spark, origin, jobs=[integrity.JOB]) as (reading, _):
            assert reading.options["recorded_since"] == created
            options = {name: reading.options[name] for name in integrity.JOB.options}
            rows = integrity.JOB(**reading.frames(integrity.JOB)[0], **options).collect()
            found.append([(row.entity_id, row.kind, row.pending) for row in rows])
        run(migrated.service_dsn, then)
    assert found == [[("user=gone", "no_znode", True)], [("user=gone", "no_znode", True)], []]


def test_runs_that_continue_come_to_the_rows_of_runs_from_the_beginning(
    spark: SparkSession,
    origin: Origin,
    raw_zk: KazooClient,
    migrated: servers.Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = (activity.JOB, compatibility.JOB, integrity.JOB)
    # A fold is handed on days after its changes were recorded; here at once.
    monkeypatch.setattr(readings, "UNSETTLED", timedelta())
    monkeypatch.setattr(readings, "LATE", timedelta())

    def run_all() -> dict[str, RollupRun]:
        with stores.read(spark, origin, jobs=jobs) as (reading, _), runner(spark, reading, origin.dsn) as made:
            done = {job.name: made.run(job, RunOptions("User:olga@cli")).run for job in jobs}
            for job in jobs:
                assert rows_of(migrated, done[job.name]) == at_once(reading, job), job.name
        return done

    first = run_all()
    stat, path = raw_zk.set("/config/users/u0", rate(7)), "/config/users/u0"
    values = {"before": {"producer_byte_rate": "0"}, "after": {"producer_byte_rate": "7"}}
    made = own(60, entity("user=u0", path=path, version_read=0, czxid_read=stat.czxid, **values))
    late = own(0, entity("user=late"))
    write(migrated.service_dsn, [made, late], [committed(made, revision=stat.mzxid, versions={path: 1})])
    raw_zk.delete("/config/users/u1")
    cleared = "INSERT INTO registrations (event, cluster, entity_id, principal, request_id)"
    run(migrated.service_dsn, f"{cleared} VALUES ('cleared', '{CLUSTER}', 'user=u2', 'p', 'r')")
    second = run_all()
    assert {name: found.previous for name, found in second.items()} == {name: each.id for name, each in first.items()}
    assert second["integrity"].folded == first["integrity"].position["fold"]["revision"]
    # The outcome of a revision below that of the fold comes late.
    write(migrated.service_dsn, [], [committed(late, revision=stat.czxid)])
    assert run_all()["integrity"].folded is None
