"""One moment of both stores, and the same kept as Parquet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from confplane.rollups import stores
from confplane.rollups.jobs import activity, compatibility, impact, integrity, quotas
from confplane.rollups.origin import Origin
from confplane.rollups.reading import NotInReadingError
from confplane.rollups.sources.tables import TABLES
from confplane.settings import ClusterSettings
from tests.audit.rows import committed, entity, run
from tests.bench.sample import snapshots
from tests.rollups.driver import rows_of
from tests.rollups.trail import CLUSTER, EPOCH, collected, expected, fill, own, same, write
from tests.support.stores import rate

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient
    from pyspark.sql import SparkSession

    from confplane.rollups.reading import Reading
    from tests.support import servers

FRAMES = ("changes", "refused_attempts", "registration_events", "registrations", "reports", "states", "znodes")
COLUMNS = {"registrations": ("entity_id", "software_name", "software_version", "supported_configs", "last_seen")}
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


def columns_of(name: str) -> Any:
    if name == "znodes":
        return integrity.JOB.inputs["znodes"]
    return COLUMNS[name] if name in COLUMNS else TABLES[name].schema.names


def history_reads(reading: Reading) -> list[Any]:
    """Looks into a reading's history, at the ends of what there is and in between."""
    history, moments = reading._frames.history, [EPOCH, datetime(2026, 2, 2, 2, 40, 4, tzinfo=UTC), reading.as_of]
    # Those of the changes, and between them.
    revisions = [0, 1, 2**41, 2**41 + 7, 2**42, 2**62 - 1, 2**62]
    return [
        *(look(moment) for look in (history.oldest, history.lowest_revision, history.last_until) for moment in moments),
        *(history.first_above(revision) for revision in revisions),
    ]


def test_znodes_are_those_of_just_before_the_moment(spark: SparkSession, origin: Origin, raw_zk: KazooClient) -> None:
    written = raw_zk.set("/config/users/u0", rate(7)).mzxid
    with stores.read(spark, origin, jobs=[quotas.JOB, impact.JOB]) as reading:
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
    with stores.read(spark, origin) as reading:
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
    with stores.read(spark, origin, jobs=[integrity.JOB]) as reading:
        assert reading.options["horizon"] < raw_zk.exists("/config/users/u5").mzxid <= reading.options["ceiling"]
        frames, _ = reading.frames(integrity.JOB)
        options = {name: reading.options[name] for name in integrity.JOB.options}
        found = {(row.entity_id, row.kind): row for row in integrity.JOB(**frames, **options).collect()}
    # fill() has changes, and states of others, of revisions that no ZooKeeper has come to.
    rewound = {entity_id for entity_id, kind in found if kind == "rewound"}
    assert rewound == {"topic=t", "user=u1", "user=u2", *(f"user={number}" for number in range(1, 10))}
    assert found["topic=t", "rewound"].trail_revision == 2**62
    assert found["user=1", "rewound"].trail_revision == 2**61 + 1


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
        with stores.read(spark, origin, jobs=[integrity.JOB]) as reading:
            assert reading.options["recorded_since"] == created
            options = {name: reading.options[name] for name in integrity.JOB.options}
            rows = integrity.JOB(**reading.frames(integrity.JOB)[0], **options).collect()
            found.append([(row.entity_id, row.kind, row.pending) for row in rows])
        run(migrated.service_dsn, then)
    assert found == [[("user=gone", "no_znode", True)], [("user=gone", "no_znode", True)], []]


@pytest.mark.long
def test_a_snapshot_is_the_reading(spark: SparkSession, origin: Origin, raw_zk: KazooClient, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/snapshot"
    jobs = (activity.JOB, integrity.JOB, quotas.JOB)
    with stores.read(spark, origin) as reading:
        snapshots.save_snapshot(spark, reading, path)
        wanted = {name: collected(reading.frame(name, columns_of(name))) for name in FRAMES}
        results = {job.name: rows_of(reading, job) for job in jobs}
        position, options, looked = reading.position, reading.options, history_reads(reading)
        before = {**position, "as_of": "2027-01-01T00:00:00+00:00", "registration_id": "3"}
        since = reading.frames(activity.JOB, {**before, "as_of": position["as_of"]})[1]
    raw_zk.delete("/config/users/u3")
    with snapshots.read_snapshot(spark, path) as kept:
        assert (kept.cluster, kept.position, kept.options) == (CLUSTER, position, options)
        assert history_reads(kept) == looked
        assert len(set(looked)) > 4
        for name in FRAMES:
            assert same(collected(kept.frame(name, columns_of(name))), wanted[name])
        assert {job.name: rows_of(kept, job) for job in jobs} == results
        frames, found = kept.frames(activity.JOB, {**before, "as_of": position["as_of"]})
        assert found == since is not None
        assert frames["changes"].count() == len(wanted["changes"])
        frames, _ = kept.frames(compatibility.JOB, {**before, "as_of": position["as_of"]})
        events = [row["id"] for row in wanted["registration_events"] if row["id"] > 3]
        assert sorted(row["id"] for row in frames["registration_events"].collect()) == sorted(events)
    assert all(results.values())
    assert PASSWORD not in "".join(f.read_text("latin-1") for f in tmp_path.rglob("*") if f.is_file())
    (about,) = (tmp_path / "snapshot" / "reading").glob("*.txt")
    (about.parent / f".{about.name}.crc").unlink()
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": 9}))
    with (
        pytest.raises(snapshots.NoSnapshotError, match="a format that is not known"),
        snapshots.read_snapshot(spark, path),
    ):
        pass
    about.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(snapshots.NoSnapshotError, match="was not finished"), snapshots.read_snapshot(spark, path):
        pass


def test_a_snapshot_of_the_past_leaves_out_what_is_not_known_of_it(
    spark: SparkSession, origin: Origin, migrated: servers.Database, tmp_path: Path
) -> None:
    with stores.read(spark, origin, jobs=[activity.JOB]) as reading:
        moment = reading.as_of
    path = f"file://{tmp_path}/snapshot"
    with stores.read(spark, origin, as_of=moment) as reading:
        snapshots.save_snapshot(spark, reading, path)
    with snapshots.read_snapshot(spark, path) as kept:
        wanted = expected(migrated.owner_dsn, "changes", as_of=moment)
        assert same(collected(kept.frame("changes", TABLES["changes"].schema.names)), wanted)
        with pytest.raises(NotInReadingError, match="no znodes in the snapshot"):
            kept.frames(quotas.JOB)
