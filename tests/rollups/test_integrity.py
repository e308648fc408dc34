"""Integrity finds nothing on a made-up cluster as it is, and each mismatch that is planted in it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.rollups import ROLLUPS
from confplane.services.ports.trail import CLIENTS
from tests.bench.sample.trail import Plan
from tests.rollups.planted import (
    PLANTS,
    deleted_by_hand,
    has_value,
    is_created_once,
    middle_row_left_another_value,
    row_of_others_withheld,
)
from tests.rollups.tampered import MADE_UP, Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PLAN: Final = Plan(entities=5_000, events=25_000, seed=2)
FULL: Final = Plan(entities=20_000, events=100_000, seed=2)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(entities=2_000, events=10_000),
        pytest.param(Plan(entities=2_000, events=10_000, recorded=False), marks=pytest.mark.long),
        Plan(entities=0, events=10),
        pytest.param(Plan(entities=100_000, events=1_000_000), marks=pytest.mark.long),
    ],
    ids=["recorded", "not recorded", "empty", "1M"],
)
def test_a_clean_cluster_has_no_mismatch(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    cluster = Cluster(plan)
    for row in cluster.changes[::5]:
        if row["facet"] in {"client-quotas", "client-configs"}:
            row["facet"] = CLIENTS  # as of a change of both
    assert len(cluster.changes) == (plan.events if plan.entities else 0)
    assert cluster.mismatches(spark, tmp_path) == []


@pytest.mark.parametrize("plan", [PLAN, pytest.param(FULL, marks=pytest.mark.long)], ids=["25k", "100k"])
def test_each_planted_mismatch_is_found_and_nothing_else(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    cluster = Cluster(plan)
    for plant, count in PLANTS.items():
        for _ in range(count):
            plant(cluster)
    assert len(cluster.planted) == sum(PLANTS.values()) == 52
    assert len(PLANTS) == 18
    # Folded up in ranges, as where a znode was written very often.
    found = cluster.mismatches(spark, tmp_path, newest_version=None)
    assert {(row.entity_id, row.kind, row.config_key) for row in found} == cluster.planted
    assert {tuple(row) for row in found} == cluster.expected()
    assert {row.kind for row in found} == set(ROLLUPS["integrity"].kinds)
    # The time of a deletion is not known, so the recorder may not have found it yet.
    assert {row.kind for row in found if row.pending} == {"no_znode"}

    # And while the recorder is behind: what it has not seen yet may go away, and so is what it has not written.
    revisions = sorted(revision for _, revision in cluster.revisions())
    watermark = revisions[len(revisions) * 19 // 20]
    unwritten = cluster.fall_behind(watermark)
    assert len(unwritten) > 20
    behind = cluster.mismatches(spark, tmp_path / "behind", watermark=watermark)
    assert {tuple(row) for row in behind} == cluster.expected(watermark=watermark)
    of_planted = [row for row in behind if row.entity_id not in unwritten]
    assert {(row.entity_id, row.kind, row.config_key) for row in of_planted} == cluster.planted
    assert {row.pending for row in of_planted} == {True, False}
    assert {row.entity_id for row in behind if row.pending} >= unwritten


def test_a_write_without_a_notification_is_pending_until_the_recorder_has_read_all_znodes(
    spark: SparkSession, tmp_path: Path
) -> None:
    cluster = Cluster(Plan(entities=2_000, events=8_000))
    end, pending = cluster.trail.zxid + 1, set()
    for minutes, is_pending in ((11, True), (30, False)):
        time = int((cluster.as_of - timedelta(minutes=minutes)).timestamp() * 1e6)
        for kind in ("content", "version", "no_trail"):
            _, znode = cluster.take(has_value)
            entity_id, key = znode["entity_id"], MADE_UP if kind == "content" else ""
            written = {**znode, "version": znode["version"] + 1, "mzxid": end, "mtime": time}
            if kind == "content":
                written["config"] = {**znode["config"], MADE_UP: None}
            if kind == "no_trail":
                entity_id = f"topic=by-hand-{minutes}"
                written |= {"entity_id": entity_id, "path": f"/config/topics/by-hand-{minutes}"}
            cluster.znodes[entity_id] = written
            cluster.expect(entity_id, kind, key)
            pending |= {(entity_id, kind, key)} if is_pending else set()
    # The recorder has this state, but its row is lost. And a row is altered, whenever its znode was written last.
    row_of_others_withheld(cluster)
    middle_row_left_another_value(cluster)
    for entity_id, kind, _ in cluster.planted:
        if kind in {"state", "altered"}:
            cluster.znodes[entity_id]["mtime"] = int(cluster.as_of.timestamp() * 1e6)
    found = cluster.mismatches(spark, tmp_path)
    assert {(row.entity_id, row.kind, row.config_key) for row in found} == cluster.planted
    assert {(row.entity_id, row.kind, row.config_key) for row in found if row.pending} == pending


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(entities=2_000, events=10_000), marks=pytest.mark.long),
        Plan(entities=2_000, events=10_000, recorded=False),
    ],
    ids=["recorded", "not recorded"],
)
def test_another_ensemble_under_the_old_name_is_reported(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    cluster = Cluster(plan)
    highest: dict[str, int] = {}
    for entity_id, revision in cluster.revisions():
        highest[entity_id] = max(revision, highest.get(entity_id, 0))
    cluster.znodes.clear()
    found = cluster.mismatches(spark, tmp_path, floor=900, horizon=950, ceiling=1_000)
    assert {(row.entity_id, row.trail_revision) for row in found} == set(highest.items())
    assert {(row.kind, row.pending, row.version, row.znode_revision) for row in found} == {
        ("rewound", False, None, None)
    }
    assert len(found) == len(highest) > 1_000


def test_a_zookeeper_that_was_restored_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(Plan(entities=1_500, events=7_500))
    revisions = sorted(revision for _, revision in cluster.revisions())
    end = revisions[len(revisions) * 3 // 4]
    gone = cluster.restore(end)
    found = cluster.mismatches(spark, tmp_path, floor=end, horizon=end, ceiling=end)
    assert {(row.entity_id, row.kind) for row in found} == {(entity_id, "rewound") for entity_id in gone}
    assert all(row.trail_revision > end and not row.pending for row in found)
    last = {row["change_id"]: row for row in cluster.changes}
    assert all(last[row.change_id]["revision"] <= row.trail_revision for row in found if row.change_id is not None)
    # Nobody has to stop for it: the same changes committed while the znodes were read, and before the trail was.
    usual = cluster.trail.zxid + 1
    assert cluster.mismatches(spark, tmp_path / "later", floor=end, horizon=end, ceiling=usual, watermark=end) == []


def test_pending_is_what_a_lagging_recorder_has_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(Plan(entities=2_000, events=8_000))
    revisions = sorted(revision for _, revision in cluster.revisions())
    watermark, end = revisions[len(revisions) // 2], cluster.trail.zxid + 1
    pending = set()

    # Others deleted it, and the recorder's state has it still.
    for _ in range(3):
        deleted_by_hand(cluster)
    deleted = set(cluster.planted)
    pending |= deleted
    # We made it after what the recorder has seen, and others deleted it.
    _, znode = cluster.take(lambda history, znode: is_created_once(history, znode) and znode["mzxid"] > watermark)
    del cluster.znodes[znode["entity_id"]]
    cluster.states = [row for row in cluster.states if row["entity_id"] != znode["entity_id"]]
    cluster.expect(znode["entity_id"], "no_znode")
    # Others wrote it, later than what the recorder has seen.
    _, znode = cluster.take(lambda history, znode: has_value(history, znode) and znode["mzxid"] <= watermark)
    znode.update(config={**znode["config"], MADE_UP: None}, mzxid=end, version=znode["version"] + 1)
    cluster.expect(znode["entity_id"], "content", MADE_UP)
    pending |= cluster.planted

    # The recorder has come past these: a value that nobody wrote, and a znode that it knows as gone.
    _, znode = cluster.take(lambda history, znode: has_value(history, znode) and znode["mzxid"] <= watermark)
    znode["config"] = {**znode["config"], MADE_UP: None}
    cluster.expect(znode["entity_id"], "content", MADE_UP)
    _, znode = cluster.take(lambda _history, znode: znode["config"] and znode["mzxid"] <= watermark)
    del cluster.znodes[znode["entity_id"]]
    for row in cluster.states:
        if row["entity_id"] == znode["entity_id"]:
            row.update(present=False, mzxid=watermark, content={})
    cluster.expect(znode["entity_id"], "state")

    behind = cluster.mismatches(spark, tmp_path, watermark=watermark)
    assert {(row.entity_id, row.kind, row.config_key) for row in behind} == cluster.planted
    assert {(row.entity_id, row.kind, row.config_key) for row in behind if row.pending} == pending
    level = cluster.mismatches(spark, tmp_path / "level", watermark=end)
    assert {(row.entity_id, row.kind, row.config_key) for row in level} == cluster.planted
    assert {(row.entity_id, row.kind, row.config_key) for row in level if row.pending} == deleted
