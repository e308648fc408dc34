"""The command that makes up a cluster: what it writes is what was asked for, and it writes over nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb

from tests.bench.sample import __main__ as sample_data
from tests.bench.sample.files import OPTIONS
from tests.rollups.samples import STORED

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
