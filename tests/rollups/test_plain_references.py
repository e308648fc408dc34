"""``integrity`` and ``drift`` of a made-up cluster that was tampered with equal references that know nothing of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.sample.trail import Plan
from tests.rollups import samples
from tests.rollups.at_size import AtSize

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> AtSize:
    directory = tmp_path_factory.mktemp("made")
    found = AtSize(Plan(entities=600, events=4_000, seed=9), directory / "frames", odds=50)
    found.make(directory / "zookeeper")
    return found


@pytest.mark.parametrize("name", ["integrity", "drift"])
def test_a_job_is_what_its_definition_says(spark: SparkSession, made: AtSize, tmp_path: Path, name: str) -> None:
    rows = samples.run(name, samples.frames(spark, made.directory), **made.revisions)
    rows.write.parquet(str(tmp_path / name))
    assert made.check(name, f"{tmp_path / name}/*.parquet") > 20
    if name == "integrity":
        kinds = {row[2] for row in made.expected(name)}
        assert kinds == {"altered", "content", "gap", "no_trail", "no_znode", "state", "version"}
