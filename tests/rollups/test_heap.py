"""The limit of the heap of Spark's Java on one machine: half of the memory, unless the user says otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from confplane.cli import spark_session as command
from confplane.devstack.java import find_java
from confplane.rollups import java_settings
from tests.support.spark import launched

GIB = 2**30


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*java_settings._GIVEN, "SPARK_DRIVER_MEMORY", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "")  # so that it is absent again afterwards
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        pytest.param("-XX:MaxRAM=8g", 4 * GIB, id="half"),
        pytest.param("-XX:MaxRAM=1g", 1 * GIB, id="little memory"),
        pytest.param("-XX:MaxRAM=200g", 31 * GIB, id="much memory"),
        pytest.param("-XX:MaxRAM=8g -Xmx3g", 3 * GIB, id="a limit of the user's"),
    ],
)
def test_limit_is_half_of_the_memory(options: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", options)
    assert java_settings.limit(find_java()) == limit


@pytest.mark.parametrize("java", [Path("/nowhere/java"), Path("/bin/echo"), Path("/bin/false")], ids=str)
def test_limit_is_that_of_spark_where_java_names_none(java: Path) -> None:
    assert java_settings.limit(java) == 1 * GIB


def test_limit_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "7g")
    java_settings.set_limit(find_java())
    assert os.environ["SPARK_DRIVER_MEMORY"] == "7g"


@pytest.mark.parametrize(
    ("master", "small", "given"),
    [(None, False, "4096m"), ("local[2]", False, "4096m"), (None, True, None), ("spark://spark:7077", False, None)],
)
def test_a_command_sets_it_for_its_own_java_where_the_cluster_is_not_small(
    monkeypatch: pytest.MonkeyPatch, master: str | None, *, small: bool, given: str | None
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:MaxRAM=8g")
    monkeypatch.setattr(command, "session", lambda *_, **__: os.environ.get("SPARK_DRIVER_MEMORY"))
    settings: Any = SimpleNamespace(log_level="info")
    with command.spark_session(settings, master, small=small, archives_classes=False) as found:
        assert found == given


@pytest.mark.parametrize(
    ("options", "defaults", "limit"),
    [
        pytest.param([], "", "5g", id="the variable alone"),
        pytest.param(["--driver-memory", "3g"], "spark.driver.memory 2g", "3g", id="an option"),
        pytest.param([], "spark.driver.memory 2g", "2g", id="a file of defaults"),
    ],
)
def test_every_other_way_to_give_spark_a_limit_wins(
    tmp_path: Path, options: list[str], defaults: str, limit: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    command = launched(*options, SPARK_CONF_DIR=str(tmp_path), SPARK_DRIVER_MEMORY="5g")
    assert [part for part in command if part.startswith("-Xmx")] == [f"-Xmx{limit}"]
