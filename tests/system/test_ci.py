"""Continuous integration: `.ci/run`, its make targets and tests/suites.py, run in small projects."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Final

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
STARTS: Final = """
    import subprocess
    from pathlib import Path

    def test_starts():
        process = subprocess.Popen(["sleep", "600"])
        Path("new").write_text(str(process.pid))
        Path("new").rename("pid")
"""
"""A test that leaves a process running."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with this repository's Makefile, CI and Python, which installs and fetches nothing."""
    for name in ("Makefile", ".ci/run", "tests/suites.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".ci/install.sh").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  long\n  proof\n")
    (tmp_path / "tests/flaky.txt").write_text("# none\n")
    (tmp_path / "tests/conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('new-seeds', settings())\n"
    )
    for folder in ("unit", "store", "audit", "contract", "console", "integration"):
        (tmp_path / "tests" / folder).mkdir()
    (tmp_path / "tests/unit/test_gate.py").write_text(dedent(GOOD))
    (tmp_path / "tests/support").mkdir()
    (tmp_path / "tests/support/tools.py").touch()
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


def run_ci(
    project: Path, files: dict[str, str], *, style: str = "true", types: str = "true", processes: int = 0
) -> tuple[int, str]:
    """Run CI on test files. Returns the exit code and the output."""
    code = start_ci(project, files, style=style, types=types, processes=processes).wait()
    return code, (project / "output").read_text().rstrip()


def test_a_run_without_failures_ends_with_a_table(project: Path) -> None:
    code, output = run_ci(project, {"kraft/test_a.py": GOOD, "faults/test_b.py": GOOD})
    assert code == 0, output
    assert "Running alone" not in output
    title, *rows, _ = output.splitlines()[-4:]
    assert title.split()[0] == "suite"
    assert [row.split()[:4] for row in rows] == [["faults", "1", "0", "0"], ["kraft", "1", "0", "0"]]


@pytest.mark.parametrize(
    ("files", "style", "types"),
    [
        pytest.param({"unit/test_a.py": FLAKY}, "true", "true", id="a flaky test"),
        pytest.param({"unit/test_a.py": "import x"}, "true", "true", id="an import error"),
        pytest.param({}, "false", "true", id="the linters"),
        pytest.param({}, "true", "false", id="the type checker"),
    ],
)
def test_a_gate_that_fails_is_never_run_again(project: Path, files: dict[str, str], style: str, types: str) -> None:
    code, output = run_ci(project, files, style=style, types=types)
    assert code == 1, output
    assert output.endswith("CI failed: make test did not pass.")
    assert "suite" not in output


def test_other_tests_that_pass_alone_are_named_as_flaky(project: Path) -> None:
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
    code, output = run_ci(project, {"kraft/test_a.py": odd_ids, "kraft/test_b.py": FLAKY}, processes=2)
    assert code == 0, output
    assert output.count("Running alone") == 3
    title, *flaky = output.splitlines()[-4:]
    assert title == "Flaky: failed in the whole run and passed alone. Add them to tests/flaky.txt:"
    assert sorted(flaky) == [
        r"  tests/kraft/test_a.py::test_flaky[\xe9\n]",
        "  tests/kraft/test_a.py::test_flaky[a b[::c]]",
        "  tests/kraft/test_b.py::test_flaky",
    ]


def test_a_test_that_fails_three_times_fails_the_run(project: Path) -> None:
    code, output = run_ci(project, {"kraft/test_a.py": FLAKY, "kraft/test_b.py": BROKEN})
    assert code == 1, output
    assert output.count("Running alone: tests/kraft/test_b.py") == 2
    assert "\nFailed again, alone:\n  tests/kraft/test_b.py::test_broken\n" in output
    assert output.endswith("CI failed: make suites did not pass.")


SESSION_FIXTURE: Final = """
    import pytest

    @pytest.fixture(scope="session")
    def server():
        raise RuntimeError("no server")

    def test_a(server):
        pass

    @pytest.mark.parametrize("number", range(50))
    def test_b(number):
        pass
"""
NINE: Final = """
    import pytest

    @pytest.mark.parametrize("number", range(99))
    def test_broken(number):
        raise AssertionError
"""
PROOF: Final = """
    import pytest

    @pytest.mark.proof
    def test_proof():
        raise AssertionError
"""


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(NINE, "More than 8 tests failed.", id="nine tests"),
        pytest.param(PROOF, "Proofs are never run again: tests/kraft/test_a.py::test_proof", id="a proof"),
        pytest.param(SESSION_FIXTURE, "The session fixture 'server' failed.", id="a session fixture"),
        pytest.param("import x", "tests/kraft/test_a.py could not be collected.", id="an import error"),
    ],
)
def test_any_other_failure_fails_the_run_at_once(project: Path, source: str, message: str, processes: int) -> None:
    code, output = run_ci(project, {"kraft/test_a.py": source}, processes=processes)
    assert code == 1, output
    assert f"\nFailed: {message}" in output
    assert "Running alone" not in output


def test_a_proof_whose_servers_did_not_start_is_started_once_more(project: Path) -> None:
    proof = """
        import pytest
        from pathlib import Path
        from confplane.devstack.errors import DevStackError

        @pytest.mark.proof
        @pytest.mark.parametrize("times", [1, 2])
        def test_proof(times):
            with Path(f"mark-{times}").open("a+") as mark:
                mark.write("x")
                if mark.tell() <= times:
                    raise DevStackError("no server")
    """
    code, output = run_ci(project, {"kraft/test_a.py": proof})
    assert code == 1, output
    assert "\n  tests/kraft/test_a.py::test_proof[1]\n" in output.partition("did not start the first time:")[2]
    assert "\n  tests/kraft/test_a.py::test_proof[2]\n" in output.partition("Incomplete:")[2]


def test_property_tests_of_the_gate_are_repeated_with_a_new_seed(project: Path) -> None:
    properties = """
        from hypothesis import given, strategies as st
        from pathlib import Path

        @given(st.integers())
        def test_property(number):
            with Path("numbers").open("a") as file:
                file.write(f"{number} ")

        def test_other():
            Path("other").open("a").write("x")
    """
    code, output = run_ci(project, {"unit/test_a.py": properties})
    assert code == 0, output
    assert output.splitlines()[-2].split()[:2] == ["properties", "1"]
    assert (project / "other").read_text() == "x"
    assert len((project / "numbers").read_text().split()) == 200


def test_processes_that_a_test_leaves_are_ended(project: Path) -> None:
    code, output = run_ci(project, {"kraft/test_a.py": STARTS, "kraft/test_b.py": FLAKY})
    assert code == 0, output
    assert output.count("Running alone") == 1
    assert not psutil.pid_exists(int((project / "pid").read_text()))


@pytest.mark.parametrize("folder", ["unit", "kraft"])
def test_a_terminated_run_leaves_no_process(project: Path, folder: str) -> None:
    pid = project / "pid"
    process = start_ci(project, {f"{folder}/test_a.py": STARTS + "        process.wait()\n"})
    wait_for(pid.exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert not psutil.pid_exists(int(pid.read_text()))
