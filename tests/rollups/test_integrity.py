"""Integrity finds nothing on a made-up cluster as it is, and each of fifty mismatches that are planted in it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from app.domain.rollups import ROLLUPS
from app.rollups import schemas
from app.services.ports.cluster_states import ENTITY as FREEZE
from app.services.ports.trail import CLIENTS
from tests.bench.sample.files import write_frame
from tests.bench.sample.trail import Plan, Trail
from tests.rollups import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

Row = dict[str, Any]
Found = tuple[str, str, str]
"""Entity id, kind and config key of a mismatch."""

MADE_UP: Final = "made.up.key"


class Cluster:
    """A made-up cluster, row by row, so that it can be tampered with."""

    def __init__(self, plan: Plan) -> None:
        self.trail = Trail(plan)
        self.changes = named(schemas.CHANGES.names, self.trail.rows())
        self.znodes = {row["entity_id"]: row for row in named(schemas.ZNODES.names, self.trail.znodes())}
        self.states = named(schemas.STATES.names, self.trail.states())
        self.planted: set[Found] = set()
        self._histories: dict[str, list[Row]] = {}
        for row in self.changes:
            if row["outcome"] == "committed" and row["facet"] != FREEZE:
                self._histories.setdefault(row["entity_id"], []).append(row)
        self._untouched = sorted(self._histories)
        random.Random(3).shuffle(self._untouched)  # noqa: S311 - of no use to an attacker

    def take(self, wanted: Callable[[list[Row], Row], object], *, changes: int = 1) -> tuple[list[Row], Row]:
        """Choose an entity that nothing was planted in: its changes in order, and its znode, which is there.

        What its last change left is told wholly, and is what the znode holds.
        """
        for entity_id in self._untouched:
            history, znode = self._histories[entity_id], self.znodes.get(entity_id)
            if len(history) < changes or znode is None or history[-1]["version"] != znode["version"]:
                continue
            if history[-1]["after"] == znode["config"] and wanted(history, znode):
                self._untouched.remove(entity_id)
                return history, znode
        raise AssertionError("The sample has no more of these entities")

    def revisions(self) -> list[tuple[str, int]]:
        """All that the trail and the recorder have: entity id and revision."""
        of_changes = [(row["entity_id"], row["revision"]) for rows in self._histories.values() for row in rows]
        return of_changes + [(row["entity_id"], row["mzxid"]) for row in self.states]

    def restore(self, end: int) -> set[str]:
        """Put the znodes back to as they were at a zxid, and return the entities that were written later.

        Those of which the trail can't say how they were are left out of all frames.
        """
        later = {entity_id for entity_id, revision in self.revisions() if revision > end}
        untold = set()
        for entity_id in later:
            znode = self.znodes.pop(entity_id, None)
            before = [row for row in self._histories.get(entity_id, []) if row["revision"] <= end]
            after = [row for row in self._histories.get(entity_id, []) if row["revision"] > end]
            if not before:
                if not after or after[0]["version_read"] is not None:
                    untold.add(entity_id)
                continue
            last = before[-1]
            if not after or (after[0]["version_read"], after[0]["before"]) != (last["version"], last["after"]):
                untold.add(entity_id)
            elif last["version"] is not None and znode is not None:
                czxid = after[0]["czxid_read"]
                self.znodes[entity_id] = {
                    **znode, "config": last["after"], "version": last["version"], "czxid": czxid, "mzxid": last["revision"]
                }  # fmt: skip
            elif last["version"] is not None:
                untold.add(entity_id)
        self.changes = [row for row in self.changes if row["entity_id"] not in untold]
        self.states = [row for row in self.states if row["entity_id"] not in untold]
        return later - untold

    def expect(self, entity_id: str, kind: str, key: str = "") -> None:
        self.planted.add((entity_id, kind, key))

    def save(self, directory: Path) -> Path:
        frames: dict[str, list[Row]] = {
            "changes": self.changes, "znodes": list(self.znodes.values()), "states": self.states,
            "registration_events": [], "reports": [],
        }  # fmt: skip
        directory.mkdir(exist_ok=True)
        for name, rows in frames.items():
            write_frame(directory / name, samples.STORED[name], [tuple(row.values()) for row in rows])
        return directory

    def mismatches(self, spark: SparkSession, directory: Path, **options: int) -> list[Any]:
        """Save it and run the job; of options those that are not as of a run right after the last change."""
        end = self.trail.zxid + 1
        given = samples.frames(spark, self.save(directory))
        usual = {
            "begin": self.trail.begin, "ceiling": end, "floor": end, "horizon": end,
            "recorded_since": self.trail.since if self.trail.plan.recorded else None,
            "watermark": end if self.trail.plan.recorded else None,
        }  # fmt: skip
        return samples.run("integrity", given, **{**usual, **options}).collect()


def named(names: list[str], rows: Any) -> list[Row]:
    return [dict(zip(names, row, strict=True)) for row in rows]


PLAN: Final = Plan(entities=5_000, events=25_000, seed=2)
FULL: Final = Plan(entities=20_000, events=100_000, seed=2)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        Plan(entities=2_000, events=10_000, recorded=False),
        Plan(entities=0, events=10),
        pytest.param(FULL, marks=pytest.mark.long),
        pytest.param(Plan(entities=100_000, events=1_000_000), marks=pytest.mark.long),
    ],
    ids=["recorded", "not recorded", "empty", "100k", "1M"],
)
def test_a_clean_cluster_has_no_mismatch(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    cluster = Cluster(plan)
    for row in cluster.changes[::5]:
        if row["facet"] in {"client-quotas", "client-configs"}:
            row["facet"] = CLIENTS  # as of a change of both
    assert len(cluster.changes) == (plan.events if plan.entities else 0)
    assert cluster.mismatches(spark, tmp_path) == []


@pytest.mark.parametrize("plan", [PLAN, pytest.param(FULL, marks=pytest.mark.long)], ids=["25k", "100k"])
def test_each_of_fifty_planted_mismatches_is_found(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    cluster = Cluster(plan)
    for plant, count in PLANTS.items():
        for _ in range(count):
            plant(cluster)
    assert len(cluster.planted) == sum(PLANTS.values()) == 50
    found = cluster.mismatches(spark, tmp_path)
    assert {(row.entity_id, row.kind, row.config_key) for row in found} == cluster.planted
    assert not any(row.pending for row in found)
    assert {row.kind for row in found} | {"rewound"} == set(ROLLUPS["integrity"].kinds)
    of_content = [row for row in found if row.kind == "content" and row.config_key != MADE_UP]
    assert of_content
    assert all(row.expected != row.found for row in of_content)


@pytest.mark.parametrize(
    "plan",
    [Plan(entities=2_000, events=10_000), Plan(entities=2_000, events=10_000, recorded=False)],
    ids=["recorded", "not recorded"],
)
def test_another_ensemble_under_the_old_name_is_told(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
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


def test_a_zookeeper_that_was_restored_is_told(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(Plan(entities=3_000, events=15_000))
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


def test_pending_is_what_a_recorder_that_is_behind_has_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(Plan(entities=5_000, events=20_000))
    revisions = sorted(revision for _, revision in cluster.revisions())
    watermark, end = revisions[len(revisions) // 2], cluster.trail.zxid + 1
    pending = set()

    # Others deleted it, and the recorder's state has it still.
    for _ in range(3):
        deleted_by_hand(cluster)
    pending |= cluster.planted
    # We made it after what the recorder has seen, and others deleted it.
    _, znode = cluster.take(lambda history, znode: is_created_once(history, znode) and znode["mzxid"] > watermark)
    del cluster.znodes[znode["entity_id"]]
    cluster.states = [row for row in cluster.states if row["entity_id"] != znode["entity_id"]]
    cluster.expect(znode["entity_id"], "no_znode")
    # Others wrote it, later than what the recorder has seen.
    _, znode = cluster.take(lambda history, znode: has_told(history, znode) and znode["mzxid"] <= watermark)
    znode.update(config={**znode["config"], MADE_UP: None}, mzxid=end, version=znode["version"] + 1)
    cluster.expect(znode["entity_id"], "content", MADE_UP)
    pending |= cluster.planted

    # The recorder has come past these: a value that nobody wrote, and a znode that it knows as gone.
    _, znode = cluster.take(lambda history, znode: has_told(history, znode) and znode["mzxid"] <= watermark)
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
    assert not any(row.pending for row in level)


# -- what is planted


def a_key(row: Row) -> str:
    return min(str(key) for key, value in row["config"].items() if value is not None)


def has_told(_: list[Row], znode: Row) -> bool:
    return any(value is not None for value in znode["config"].values())


def value_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(has_told)
    key = a_key(znode)
    znode["config"] = {**znode["config"], key: "31"}
    cluster.expect(znode["entity_id"], "content", key)


def removed_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(has_told)
    key = a_key(znode)
    znode["config"] = {name: value for name, value in znode["config"].items() if name != key}
    znode["version"] += 1
    cluster.expect(znode["entity_id"], "content", key)


def added_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, _znode: True)
    znode["config"] = {**znode["config"], MADE_UP: None}
    znode["version"] += 3
    cluster.expect(znode["entity_id"], "content", MADE_UP)


def deleted_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, znode: znode["config"])
    del cluster.znodes[znode["entity_id"]]
    cluster.expect(znode["entity_id"], "no_znode")


def created_by_hand(cluster: Cluster) -> None:
    number = len(cluster.planted)
    _, like = cluster.take(lambda _history, znode: znode["config"])
    entity_id = f"topic=by-hand-{number}"
    cluster.znodes[entity_id] = {**like, "entity_id": entity_id, "path": f"/config/topics/by-hand-{number}"}
    cluster.expect(entity_id, "no_trail")


def row_between_withheld(cluster: Cluster) -> None:
    """One whose change shows in what the next one read, and can't be told from what came before it."""

    def wanted(history: list[Row], _znode: Row) -> bool:
        one, withheld, following = history[-3:]
        told = {**one["after"], **withheld["after"]}
        return (
            all(row["kind"] == "change" and row["version"] is not None for row in (one, withheld, following))
            and (following["version_read"], following["czxid_read"]) == (withheld["version"], withheld["czxid_read"])
            and withheld["version_read"] == one["version"]
            and None not in told.values()
            and one["after"] != following["before"]
        )

    history, znode = cluster.take(wanted, changes=3)
    cluster.changes.remove(history[-2])
    cluster.expect(znode["entity_id"], "gap")


def last_row_withheld(cluster: Cluster) -> None:
    """The recorder's state has a content then that no row explains."""

    def wanted(history: list[Row], znode: Row) -> bool:
        return (
            history[-2]["version"] is not None
            and history[-2]["after"] != znode["config"]
            and None not in {**history[-2]["after"], **znode["config"]}.values()
        )

    history, znode = cluster.take(wanted, changes=2)
    cluster.changes.remove(history[-1])
    cluster.expect(znode["entity_id"], "state")


def only_row_withheld(cluster: Cluster) -> None:
    """The recorder's state is of a znode then that came while it recorded, and no row has it come."""
    history, znode = cluster.take(is_created_once)
    cluster.changes.remove(history[0])
    cluster.expect(znode["entity_id"], "state")


def is_created_once(history: list[Row], znode: Row) -> bool:
    return len(history) == 1 and history[0]["version_read"] is None and bool(znode["config"])


def row_with_another_value(cluster: Cluster) -> None:
    history, znode = cluster.take(has_told)
    key = a_key(znode)
    history[-1]["after"] = {**history[-1]["after"], key: "31"}
    cluster.expect(znode["entity_id"], "content", key)


def written_as_it_was(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, _znode: True)
    znode["version"] += 1
    cluster.expect(znode["entity_id"], "version")


def made_again_as_it_was(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, znode: znode["czxid"] != znode["mzxid"])
    znode["czxid"] = znode["mzxid"]
    cluster.expect(znode["entity_id"], "version")


PLANTS: Final = {
    value_by_hand: 10,
    removed_by_hand: 5,
    added_by_hand: 4,
    deleted_by_hand: 5,
    created_by_hand: 4,
    row_between_withheld: 7,
    last_row_withheld: 3,
    only_row_withheld: 4,
    row_with_another_value: 4,
    written_as_it_was: 2,
    made_again_as_it_was: 2,
}
