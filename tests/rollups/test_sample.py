"""Made-up clusters: the same seed makes the same, rows are as the trail has them, and odd things are in them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import duckdb

from confplane.domain.entities import Entity
from confplane.rollups import schemas
from confplane.services.ports.cluster_states import ENTITY as FREEZE
from tests.bench.sample import __main__ as sample_data
from tests.bench.sample import clients
from tests.bench.sample.files import OPTIONS
from tests.bench.sample.trail import Plan, Trail
from tests.rollups.samples import STORED

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


PLAN = Plan(entities=2_000, events=20_000, seed=5)


def test_the_same_seed_makes_the_same_rows() -> None:
    first, second = Trail(PLAN), Trail(PLAN)
    assert list(first.rows()) == list(second.rows())
    assert list(first.znodes()) == list(second.znodes())
    assert list(clients.events(PLAN, first.members)) == list(clients.events(PLAN, second.members))
    other = Trail(Plan(PLAN.entities, PLAN.events, seed=6))
    assert list(itertools.islice(other.rows(), 50)) != list(itertools.islice(Trail(PLAN).rows(), 50))


def test_everything_that_happens_to_a_trail_is_in_it() -> None:
    trail = Trail(PLAN)
    rows = [dict(zip(schemas.CHANGES.names, row, strict=True)) for row in trail.rows()]
    assert len(rows) == PLAN.events
    kinds = Counter((row["kind"], row["outcome"]) for row in rows)
    assert kinds.keys() == {
        ("change", "committed"), ("change", "rejected"), ("change", "open"), ("external", "committed"),
    }  # fmt: skip
    assert {row["facet"] for row in rows} == {"client-quotas", "client-configs", "configs", "node", FREEZE}
    assert max(row["position"] for row in rows) >= 2
    removed = [row for row in rows if row["outcome"] == "committed" and row["version"] is None]
    again = {row["entity_id"] for row in rows if row["version_read"] is None and row["outcome"] == "committed"}
    assert {row["entity_id"] for row in removed} & again, "deleted and recreated"
    assert any(row["recorded_at"] - row["created_at"] > 3_600_000_000 for row in rows), "recorded late"
    in_order = [row["change_id"] for row in sorted(rows, key=lambda row: row["revision"] or 0) if row["revision"]]
    assert in_order != sorted(in_order), "ids in another order than revisions"
    for row in rows:
        assert UUID(row["change_id"]).int >> 80 == row["created_at"] // 1000
        assert (row["revision"] is None) == (row["outcome"] != "committed")
        if row["facet"] != FREEZE:
            assert row["path"] == f"/config/{Entity.from_id(row['entity_id']).path}"
    span = timedelta(microseconds=rows[-1]["created_at"] - rows[0]["created_at"])
    assert timedelta(days=90) < span < timedelta(days=150)
    busiest = Counter(row["entity_id"] for row in rows).most_common(20)
    assert sum(count for _, count in busiest) > len(rows) / 5, "a few are changed most"


def test_it_writes_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "sample"
    assert sample_data.run(directory, entities=300, events=2_000, seed=4) == 0
    options = json.loads((directory / OPTIONS).read_text())
    counts = {name: duckdb.read_parquet(f"{directory / name}/*.parquet").count("*").fetchall()[0][0] for name in STORED}
    assert counts["changes"] == 2_000
    assert counts["registration_events"] == 1_000
    assert 0 < counts["znodes"] <= counts["states"] <= 300
    highest = duckdb.read_parquet(f"{directory}/changes/*.parquet").max("revision").fetchall()[0][0]
    assert highest <= options["floor"] == options["horizon"] == options["watermark"]
    written = "2,000 changes, 200 refused attempts, 1,000 registration events, {reports} reports, {znodes} znodes"
    assert written.format(**counts) in capsys.readouterr().out


def test_it_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("kept")
    assert sample_data.run(tmp_path, entities=1, events=1, seed=1) == 1
    assert sample_data.run(tmp_path / "mine", entities=1, events=1, seed=1) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert "is not an empty directory" in capsys.readouterr().err
