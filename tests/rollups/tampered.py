"""A made-up cluster, row by row, so that tests can tamper with what Postgres, the recorder and ZooKeeper say of it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from confplane.rollups import schemas
from confplane.services.ports.cluster_states import ENTITY as FREEZE
from confplane.services.ports.trail import EXTERNAL
from tests.bench.sample.files import write_frame
from tests.bench.sample.trail import Plan, Trail
from tests.rollups import samples
from tests.rollups.references import integrity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

Row = dict[str, Any]
Found = tuple[str, str, str]
"""Entity id, kind and config key of a mismatch."""

MADE_UP: Final = "made.up.key"


class Cluster:
    """The rows of the cluster, and the mismatches that were planted in them."""

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

    def take_deleted(self) -> list[Row]:
        """Choose an entity that nothing was planted in, and whose last change deleted it: its changes in order."""
        for entity_id in self._untouched:
            history = self._histories[entity_id]
            if entity_id not in self.znodes and history[-1]["version"] is None and history[-1]["before"]:
                self._untouched.remove(entity_id)
                return history
        raise AssertionError("The sample has no more entities that were deleted")

    def state_of(self, znode: Row) -> Row:
        """The recorder's state of an entity."""
        return next(
            row for row in self.states if (row["tree"], row["entity_id"]) == (znode["tree"], znode["entity_id"])
        )

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

    def fall_behind(self, watermark: int) -> set[str]:
        """Withhold what the recorder writes of later revisions, and return the entities; nothing was planted in them.

        These are the rows of what others wrote, and the states that it took from their znodes.
        """
        withheld = {
            entity_id: rows
            for entity_id in self._untouched
            if (rows := [row for row in self._histories[entity_id] if row["kind"] == EXTERNAL and row["revision"] > watermark])
        }  # fmt: skip
        gone = {id(row) for rows in withheld.values() for row in rows}
        self.changes = [row for row in self.changes if id(row) not in gone]
        self.states = [
            row if row["entity_id"] not in withheld else self._state_before(row, withheld[row["entity_id"]][0], watermark)
            for row in self.states
            if row["entity_id"] not in withheld or withheld[row["entity_id"]][0]["version_read"] is not None
        ]  # fmt: skip
        return set(withheld)

    def _state_before(self, state: Row, change: Row, watermark: int) -> Row:
        """The recorder's state of the znode that others changed, as it was before."""
        earlier = [
            row["revision"] for row in self._histories[state["entity_id"]] if row["revision"] < change["revision"]
        ]
        return {
            **state, "present": True, "version": change["version_read"], "czxid": change["czxid_read"],
            "mzxid": max([watermark, *earlier]), "content": change["before"],
        }  # fmt: skip

    def expect(self, entity_id: str, kind: str, key: str = "") -> None:
        self.planted.add((entity_id, kind, key))

    def save(self, directory: Path) -> Path:
        frames: dict[str, list[Row]] = {
            "changes": self.changes, "znodes": list(self.znodes.values()), "states": self.states,
            "refused_attempts": [], "registration_events": [], "reports": [], "topics": [],
        }  # fmt: skip
        directory.mkdir(exist_ok=True)
        for name, rows in frames.items():
            write_frame(directory / name, samples.STORED[name], [tuple(row.values()) for row in rows])
        return directory

    @property
    def as_of(self) -> datetime:
        """A moment at which each write is so old that the recorder has found it, with or without a notification."""
        return self.trail.now + timedelta(hours=1)

    def mismatches(self, spark: SparkSession, directory: Path, **options: int | None) -> list[Any]:
        """Save it and run the job; of options those that are not as of a run after the last change."""
        given = samples.frames(spark, self.save(directory))
        return samples.run("integrity", given, **{**self._usual, "newest_version": 0, **options}).collect()

    def expected(self, **options: int | None) -> set[tuple[Any, ...]]:
        """The rows of the reference, which knows nothing of what was planted."""

        def place(row: Row) -> tuple[str, str]:
            return integrity.tree_of(row["path"]), row["entity_id"]

        znodes = ({**row, "mtime": datetime.fromtimestamp(row["mtime"] / 1e6, UTC)} for row in self.znodes.values())
        return set(
            integrity.integrity(
                sorted(self.changes, key=place),
                {(row["tree"], row["entity_id"]): row for row in znodes},
                {(row["tree"], row["entity_id"]): row for row in self.states},
                integrity.Options(**{**self._usual, **options}),
            )
        )

    @property
    def _usual(self) -> dict[str, Any]:
        end, is_recorded = self.trail.zxid + 1, self.trail.plan.recorded
        return {
            "as_of": self.as_of, "begin": self.trail.begin, "ceiling": end, "floor": end, "horizon": end,
            "recorded_since": self.trail.since if is_recorded else None, "watermark": end if is_recorded else None,
        }  # fmt: skip


def named(names: list[str], rows: Any) -> list[Row]:
    return [dict(zip(names, row, strict=True)) for row in rows]
