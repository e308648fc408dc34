"""The class-data archive of Java: made once, used where it is whole and the user's own, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.devstack.java import find_java
from confplane.rollups.class_archive import ClassArchive
from confplane.rollups.java_settings import join_java_options
from tests.audit.rows import run
from tests.rollups.test_command import SEEN
from tests.support.commands import Commands
from tests.support.spark import launched

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import servers
    from tests.support.commands import Said


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "confplane"


def archive() -> ClassArchive:
    found = ClassArchive.of(find_java())
    assert found is not None
    return found


def java(given: ClassArchive) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [find_java(), *given.options(), "-version"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def spark(process: subprocess.Popen[bytes]) -> Any:
    """A session whose Java is a process that ends by itself."""
    return SimpleNamespace(
        stop=lambda: None, sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process))
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive in a cache directory of odd characters; making one takes seconds."""
    directory = tmp_path_factory.mktemp("made") / "a  b'c\"d\\\\e$f"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory))
        given = archive()
        with java(given) as process, given.kept(spark(process)):
            pass
        made = archive()
        assert made.is_made
    return made.path


def said(given: ClassArchive) -> bytes:
    """All that Java says with an archive, which it ends well with."""
    with java(given) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    return out.replace(b", sharing", b"")


@pytest.mark.long
def test_the_first_run_makes_it_and_the_next_one_uses_it(cache: Path) -> None:
    first, beside = archive(), archive()
    assert (first.is_made, beside.is_made) == (False, False)
    # Two first runs at once: the archive of the last to end is kept.
    with java(first) as one, java(beside) as other, first.kept(spark(one)), beside.kept(spark(other)):
        pass
    used = archive()
    assert used.is_made
    assert list(cache.iterdir()) == [used.path]
    assert f"-XX:SharedArchiveFile={used.path}" in used.options()
    assert b"openjdk" in said(used).lower()
    # A run that uses it leaves it, and Java, alone.
    with java(used) as process, used.kept(spark(process)):
        process.communicate()
    assert process.returncode == 0
    assert list(cache.iterdir()) == [used.path]


def test_an_archive_that_does_not_fit_is_not_in_the_way(
    cache: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not archive().is_made
    content, there = made.read_bytes(), cache / made.name
    there.write_bytes(content)
    plain = said(archive())
    # Java itself would crash with it.
    there.write_bytes(content[: len(content) // 2])
    assert not archive().is_made
    # Of another Java, or no archive at all: Java says nothing, and does without.
    there.write_bytes(b"x" * len(content))
    assert archive().path == there
    assert said(archive()) == plain
    # Another Spark has one of its own.
    elsewhere = cache.parent / "pyspark"
    elsewhere.mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: SimpleNamespace(origin=str(elsewhere / "__init__.py")))
    assert not archive().is_made


def test_a_run_that_fails_and_a_java_that_fails_leave_none(cache: Path) -> None:
    making = archive()
    with subprocess.Popen(["false"], stdin=subprocess.PIPE) as process, making.kept(spark(process)):
        making.path.write_bytes(b"half")
    assert list(cache.iterdir()) == []
    stopped = []
    session = spark(process := subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE))
    session.stop = lambda: stopped.append(process.returncode)
    with pytest.raises(ValueError, match="the run's"), process, making.kept(session):
        raise ValueError("the run's")
    # Spark cleans up before Java is ended without its archive.
    assert (stopped, process.returncode) == ([None], -9)
    assert list(cache.iterdir()) == []


def test_what_no_run_used_for_long_is_removed_when_another_is_made(cache: Path, made: Path) -> None:
    first = archive()
    old = {name: cache / name for name in ("spark-0-1.jsa", "spark-0.abc.making", "spark-1-2.jsa", "other")}
    for name, path in old.items():
        path.write_bytes(b"x")
        if name != "spark-1-2.jsa":
            os.utime(path, (time.time() - 31 * 86_400,) * 2)
    with subprocess.Popen(["cp", made, first.path], stdin=subprocess.PIPE) as process, first.kept(spark(process)):
        pass
    used = archive()
    assert {path.name for path in cache.iterdir()} == {used.path.name, "spark-1-2.jsa", "other"}
    # Its age is that of its last use.
    os.utime(used.path, (0, 0))
    assert archive().path.stat().st_mtime > time.time() - 86_400


def test_without_a_directory_of_ones_own_or_room_there_is_none(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    # Whoever else may write there would decide what Java runs.
    cache.chmod(0o777)
    assert ClassArchive.of(find_java()) is None
    cache.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    assert ClassArchive.of(find_java()) is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**29))
        assert ClassArchive.of(find_java()) is None
    assert ClassArchive.of(find_java()) is not None
    shutil.rmtree(cache)
    cache.touch()
    assert ClassArchive.of(find_java()) is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert ClassArchive.of(find_java()) is None


def test_its_path_reaches_java_through_sparks_launcher_whatever_its_characters(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)  # the tests' own session has options of its own
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parents[1]))
    given = archive()
    assert given.is_made
    command = launched("--conf", f"spark.driver.extraJavaOptions={join_java_options(given.options())}")
    assert [part for part in command if part in given.options()] == given.options()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    assert ClassArchive.of(find_java()) is None


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_command_keeps_it_once_says_so_and_says_nothing_of_java(
    migrated: servers.Database, chroot: str, tmp_path: Path
) -> None:
    run(migrated.service_dsn, SEEN)
    commands = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    cache = tmp_path / "the cache" / "confplane"
    given = {"XDG_CACHE_HOME": str(cache.parent), "CONFPLANE_CLASS_ARCHIVE": "true", "SPARK_SUBMIT_OPTS": ""}

    def ran(**more: str) -> Said:
        commands.environment.update(given | more)
        # The run that makes the archive takes minutes on a busy machine.
        found = commands.run("rollups", "run", "compatibility", seconds=1200)
        assert found.code == 0, found.err
        assert [line.split()[:2] for line in found.out.splitlines()] == [["rollup", "rows"], ["compatibility", "7"]]
        return found

    def about_archives(found: Said) -> list[str]:
        return [line for line in found.err.splitlines() if "classes" in line or "rchive" in line or "jsa" in line]

    for without in ({"CONFPLANE_CLASS_ARCHIVE": "false"}, {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}):
        assert about_archives(ran(**without)) == []
        assert not cache.exists()
    [line] = about_archives(ran())
    assert line.startswith("Done; keeping Java's classes, once, for later runs")
    [made] = cache.iterdir()
    made.chmod(0o600)
    for _ in range(2):
        assert about_archives(ran()) == []
        assert list(cache.iterdir()) == [made]
        # Java does without what is no archive, as quietly. The last run's Java may still be ending, and crashes where
        # the very file that it reads from gets other bytes.
        other = tmp_path / "no archive"
        other.write_bytes(b"x" * made.stat().st_size)
        other.replace(made)
