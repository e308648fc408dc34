"""Tests of a missing tool: skipped with the reason, or failed in a run that may skip nothing."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import tools

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with nothing on it, and a place for what is built; returns the folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(tools, "TOOLS_DIR", tmp_path / "tools")
    monkeypatch.delenv(tools.REQUIRE_VARIABLE, raising=False)
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!{shutil.which('sh', path='/bin:/usr/bin')}\n{text}\n")
    path.chmod(0o755)


def test_without_helm_and_go_a_test_is_skipped(empty_path: Path) -> None:
    assert shutil.which("go", path=str(empty_path)) is None
    with pytest.raises(pytest.skip.Exception, match="Neither the tool nor Go"):
        tools.obtain(tools.helm)


def test_without_maven_a_test_of_kafka_is_skipped(empty_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="Maven, which fetches jars, is not on PATH"):
        tools.obtain(tools.kafka_class_path)
    script(empty_path / "mvn", "echo '[ERROR] Unknown host'; exit 1")
    with pytest.raises(pytest.skip.Exception, match=r"`mvn dependency:copy-dependencies` failed.*Unknown host"):
        tools.obtain(tools.kafka_class_path)


def test_a_class_path_whose_jars_are_gone_is_rebuilt(empty_path: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; given = dict(option.split('=', 1) for option in sys.argv[1:] if '=' in option);"
        "jars = pathlib.Path(given['-DoutputDirectory']); jars.mkdir(); (jars / 'kafka.jar').touch();"
        "out = pathlib.Path(given['-Dmdep.outputFile']); out.write_text(given['-Dmdep.prefix'] + '/kafka.jar')"
    )
    script(empty_path / "mvn", f'{sys.executable} -c "{code}" "$@"')
    for _ in range(2):
        kept = tools.obtain(tools.kafka_class_path)
        jar = tmp_path / "tools" / f"kafka-{tools.KAFKA_VERSION}" / "kafka.jar"
        assert kept.read_text() == str(jar)
        assert jar.is_file()
        jar.unlink()


def test_where_nothing_may_be_skipped_it_fails(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_path.is_dir()
    monkeypatch.setenv(tools.REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="Neither the tool nor Go"):
        tools.obtain(tools.helm)


def test_without_modules_the_reason_is_gos_own(empty_path: Path) -> None:
    script(empty_path / "go", "echo 'dial tcp: no such host' >&2; exit 1")
    with pytest.raises(pytest.skip.Exception, match="no such host"):
        tools.obtain(tools.helm)
    with pytest.raises(pytest.skip.Exception, match="no such host"):
        tools.obtain(tools.manifestcheck)


def test_a_program_of_ours_that_does_not_compile_is_no_reason_to_skip(empty_path: Path) -> None:
    script(empty_path / "go", "[ $1 = mod ] && exit 0; echo 'undefined: x' >&2; exit 1")
    with pytest.raises(AssertionError, match="undefined: x"):
        tools.obtain(tools.manifestcheck)


def test_helm_on_the_path_is_taken(empty_path: Path) -> None:
    script(empty_path / "helm", "exit 0")
    assert tools.obtain(tools.helm) == empty_path / "helm"


def test_what_was_built_is_built_once(empty_path: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    python = f"{sys.executable} -c \"import os, pathlib; pathlib.Path(os.environ['GOBIN'], 'helm').touch()\""
    script(empty_path / "go", f"echo $1 >> {calls}; [ $1 = list ] || {python}")
    first = tools.obtain(tools.helm)
    assert first == tmp_path / "tools" / f"helm-{tools.HELM_VERSION}"
    assert first.is_file()
    assert tools.obtain(tools.helm) == first
    assert calls.read_text().split() == ["list", "install"]
    assert {path.name for path in first.parent.iterdir()} == {first.name, f"{first.name}.lock"}
