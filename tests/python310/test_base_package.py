"""The base package on Python 3.10, the oldest that it supports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import tools
from tests.support.processes import build_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

_IMPORTS: Final = """\
import importlib, pkgutil, sys
import confplane.cli.commands, confplane.cli.remote, confplane.client

assert sys.version_info[:2] == (3, 10)
found = 0
for package in (confplane.client, confplane.cli.remote):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
        found += 1
print(confplane.__file__, found)
"""


@pytest.fixture(scope="module")
def python() -> str:
    return tools.obtain(tools.python310, fetched=False).read_text()


@pytest.fixture(scope="module")
def installed(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel was installed, by the pip of Python 3.10."""
    wheel, folder = build_wheel(tmp_path_factory.mktemp("wheel")), tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(folder))
    _run(python, "-m", "pip", "install", *options, str(wheel), cwd=folder)
    return folder


def test_all_modules_of_the_base_package_are_imported(python: str, installed: Path) -> None:
    file, found = _run(python, "-c", _IMPORTS, cwd=installed).split()
    assert Path(file).is_relative_to(installed)
    assert int(found) > 60


def test_the_help_shows_all_commands_and_those_of_the_service_say_which_python_they_need(
    python: str, installed: Path
) -> None:
    assert "serve" in _run(python, "-m", "confplane", "--help", cwd=installed)
    for command in ("serve", "target status --cluster c"):
        said = _run(python, "-m", "confplane", *command.split(), cwd=installed, status=1)
        assert said.startswith("This command needs the service, and thus Python 3.11 or later; this is Python 3.10.")


def test_lines_of_the_shell_share_an_event_loop(python: str, installed: Path) -> None:
    away = {**os.environ, "CONFPLANE_URL": "http://127.0.0.1:1"}
    line = "--describe --entity-type topics\n"
    said = _run(python, "-m", "confplane", "shell", cwd=installed, lines="help\n" + line, environment=away, status=1)
    assert said.startswith("Usage: confplane configs")
    assert "The service did not answer" in said


def test_unit_tests_of_the_client_library_pass(python: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    folder = tools.ROOT / "tests" / "unit"
    names = (
        "cli/test_logins.py", "cli/test_profiles.py", "client/dynamic", "client/test_both.py", "client/test_client.py",
        "client/test_device.py",
    )  # fmt: skip
    # Without the fixtures of all tests, for which the requirements of the service are needed.
    options = ("-q", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", f"--rootdir={tools.ROOT}")
    places = ("-c", str(tmp_path / "pytest.ini"), f"--basetemp={tmp_path / 'tests'}")
    tests = [str(folder / name) for name in names]
    sources = {**os.environ, "PYTHONPATH": str(tools.ROOT / "app")}
    said = _run(python, "-m", "pytest", *options, *places, *tests, cwd=tools.ROOT, environment=sources)
    assert " passed" in said


def _run(
    *command: str, cwd: Path, status: int = 0, lines: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Run a program, and return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, input=lines, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout
