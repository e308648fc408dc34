"""Continuous integration: `.ci/run` and `make test`, run in small projects."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import psutil
import pytest

from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]

GOOD: Final = """
    def test_good():
        pass
"""
BROKEN: Final = """
    def test_broken():
        raise AssertionError
"""
FLAKY: Final = """
    from pathlib import Path

    def test_flaky():
        mark = Path("mark")
        if not mark.exists():
            mark.touch()
            raise AssertionError
"""
"""A test that fails the first time and passes from then on."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with this repository's Makefile, `.ci/run` and Python, which installs nothing."""
    for name in ("Makefile", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".ci/install.sh").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def start_ci(
    project: Path, files: dict[str, str], *, style: str = "true", types: str = "true", processes: int = 0
) -> subprocess.Popen[bytes]:
    """Start CI on test files, given as paths and sources. Its output goes to the project's file ``output``.

    ``style`` and ``types`` are the commands that stand for the linters and the type checker.
    """
    for name, source in files.items():
        path = project / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source))
    # Not a pipe: a process that CI leaves behind would keep it open, and the test would wait for that process.
    with (project / "output").open("w") as output:
        return subprocess.Popen(
            ["bash", ".ci/run"],
            cwd=project,
            env={"PATH": os.environ["PATH"], "MAKEFLAGS": f"-- PARALLEL=-n{processes} STYLE={style} TYPES={types}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def run_ci(project: Path, files: dict[str, str], **options: Any) -> tuple[int, str]:
    """Run CI on test files. Returns the exit code and the output."""
    code = start_ci(project, files, **options).wait()
    return code, (project / "output").read_text().rstrip()


def test_without_failures_nothing_is_run_again(project: Path) -> None:
    code, output = run_ci(project, {"test_a.py": GOOD})
    assert code == 0, output
    assert "Running alone" not in output


def test_tests_that_pass_alone_are_named_as_flaky(project: Path) -> None:
    odd_ids = """
        import pytest
        from pathlib import Path

        @pytest.mark.parametrize("name", ["a b[::c]", "é\\n"])
        def test_flaky(name):
            mark = Path(f"mark-{len(name)}")
            if not mark.exists():
                mark.touch()
                raise AssertionError
    """
    code, output = run_ci(project, {"test_a.py": odd_ids, "test_b.py": FLAKY, "test_c.py": GOOD}, processes=2)
    assert code == 0, output
    assert output.count("Running alone") == 3
    title, *flaky = output.splitlines()[-4:]
    assert title == "Flaky tests, which failed in the whole run and passed alone:"
    assert sorted(flaky) == [
        r"  tests/test_a.py::test_flaky[\xe9\n]",
        "  tests/test_a.py::test_flaky[a b[::c]]",
        "  tests/test_b.py::test_flaky",
    ]


def test_a_test_that_fails_again_fails_the_run(project: Path) -> None:
    code, output = run_ci(project, {"test_a.py": FLAKY, "test_b.py": BROKEN})
    assert code == 1, output
    assert output.endswith("  tests/test_a.py::test_flaky\n\nFailed again, alone:\n  tests/test_b.py::test_broken")


def test_a_test_that_is_skipped_when_run_again_has_not_passed(project: Path) -> None:
    then_skipped = FLAKY + '        import pytest\n        pytest.skip("no server")\n'
    code, output = run_ci(project, {"test_a.py": then_skipped})
    assert code == 1, output
    assert output.endswith("Failed again, alone:\n  tests/test_a.py::test_flaky")


NINE: Final = """
    import pytest

    @pytest.mark.parametrize("number", range(9))
    def test_broken(number):
        raise AssertionError
"""
EXIT: Final = """
    import pytest

    def test_exit():
        pytest.exit("the server is gone", 3)
"""
UNLISTED: Final = """
    import atexit
    import shutil

    def test_unlisted():
        atexit.register(shutil.rmtree, ".pytest_cache")
        raise AssertionError
"""


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        pytest.param({"test_a.py": NINE}, {}, "9 tests failed. At most 8 are run again.", id="nine tests"),
        pytest.param(
            {"faults/test_faults.py": FLAKY},
            {},
            "tests/faults/test_faults.py::test_flaky is a proof. Proofs are never run again.",
            id="a proof",
        ),
        pytest.param(
            {"test_a.py": FLAKY, "test_b.py": EXIT}, {}, "pytest ended with exit code 3", id="pytest ends early"
        ),
        pytest.param({"test_a.py": FLAKY, "test_b.py": "import x"}, {}, "exit code 2", id="an import error"),
        pytest.param(
            {"test_a.py": FLAKY, "test_b.py": "import x"},
            {"processes": 2},
            "tests/test_b.py could not be collected.",
            id="an import error in parallel",
        ),
        pytest.param({"test_a.py": UNLISTED}, {}, "pytest left no list of the failed tests.", id="no list"),
        pytest.param({"test_a.py": GOOD}, {"style": "false"}, "The installation or the linters failed.", id="style"),
        pytest.param({"test_a.py": GOOD}, {"types": "false"}, "The type checker failed.", id="types"),
        pytest.param({"test_a.py": FLAKY}, {"types": "false"}, "The type checker failed.", id="types and a test"),
    ],
)
def test_any_other_failure_fails_the_run_at_once(
    project: Path, files: dict[str, str], options: dict[str, Any], message: str
) -> None:
    code, output = run_ci(project, files, **options)
    assert code == 1, output
    assert message in output.splitlines()[-1]
    assert "Running alone" not in output


def test_each_proof_exists() -> None:
    """A proof that is moved without its entry in the list would be run again."""
    found = re.search(r"^readonly PROOFS='(.*)'$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert found
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    proofs = {test for test in tests if re.match(found[1], test)}
    assert len(proofs) == found[1].count("|") + 1


STARTS: Final = """
    import subprocess
    from pathlib import Path

    def test_starts():
        process = subprocess.Popen(["sleep", "600"])
        Path("new").write_text(str(process.pid))
        Path("new").rename("pid")
"""
"""A test that leaves a process running."""


def test_processes_that_a_test_leaves_are_ended(project: Path) -> None:
    code, output = run_ci(project, {"test_a.py": STARTS, "test_b.py": FLAKY})
    assert code == 0, output
    assert output.count("Running alone") == 1
    assert not psutil.pid_exists(int((project / "pid").read_text()))


def test_a_terminated_run_leaves_no_process(project: Path) -> None:
    pid = project / "pid"
    process = start_ci(project, {"test_a.py": STARTS + "        process.wait()\n"})
    wait_for(pid.exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert not psutil.pid_exists(int(pid.read_text()))
