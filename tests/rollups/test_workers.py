"""The place from which Spark's Python processes import PySpark."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import functions as F  # noqa: N812

from confplane.rollups.workers import sitecustomize
from confplane.rollups.workers.sitecustomize import without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = Path(pyspark.__file__).parent
OURS = str(Path(sitecustomize.__file__).parent)
ARCHIVES = [str(path) for path in (*(HOME / "python/lib").glob("*.zip"), *(HOME / "jars").glob("spark-core_*.jar"))]
PLACES = "import pyspark, sys; print(pyspark.__file__, *sys.path, sep='\\n')"
"""Prints the place of PySpark, and then the path."""


def started_with(*path: str, code: str = PLACES) -> list[str]:
    """The lines that a Python process with this path prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_pyspark_is_imported_as_it_is_installed(spark: SparkSession) -> None:
    @F.udf("string", useArrow=False)
    def path(_: int) -> str:
        import pyspark  # noqa: PLC0415 - in the worker

        return "\n".join([pyspark.__file__, *sys.path])

    [(said,)] = spark.range(1).select(path("id")).collect()
    assert said.startswith(str(HOME))
    assert not {*ARCHIVES, OURS} & set(said.splitlines())


def test_a_process_that_starts_with_what_spark_gives_it() -> None:
    assert len(ARCHIVES) == 3
    assert ".zip" in started_with(*ARCHIVES)[0]
    said = started_with(*ARCHIVES, OURS)
    assert said[0] == str(HOME / "__init__.py")
    assert not {*ARCHIVES, OURS} & set(said)


def test_a_full_collection_exempts_what_it_found() -> None:
    code = "import gc; gc.collect(0); print(gc.get_freeze_count()); gc.collect(); print(gc.get_freeze_count())"
    young, full = started_with(OURS, code=code)
    assert int(young) == 0
    assert int(full) > 1_000


def test_workers_walk_no_imports_after_each_task(spark: SparkSession) -> None:
    @F.udf("int", useArrow=False)
    def exempted(_: int) -> int:
        return gc.get_freeze_count()

    tasks = spark.range(0, 20, numPartitions=20).select(exempted("id").alias("found"))
    assert tasks.agg(F.max("found")).collect()[0][0] > 10_000


def test_a_hidden_sitecustomize_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.path.append('customized')\n")
    assert "customized" in started_with(OURS, str(tmp_path))


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    other = [str(tmp_path / "python" / "lib" / "pyspark.zip"), str(tmp_path / "lib.zip")]
    given = [other[0], *ARCHIVES, other[1], str(HOME.parent)]
    assert without_archives(given) == [*other, str(HOME.parent)]


def test_archives_of_the_only_spark_stay(tmp_path: Path) -> None:
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]
    # PySpark as files, Py4J in the archive.
    (tmp_path / "pyspark").symlink_to(HOME)
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]
