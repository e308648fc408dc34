"""The examples of docs/python.md, as strict type checkers see them next to the installed library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import tools
from tests.support.processes import build_wheel
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_HEAD: Final = "from pathlib import Path\n\nfrom confplane.client import Confplane\n\n"
"""Imports that the first example of the page shows, and the later ones rely on."""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of mypy, for programs of an environment into which the wheel was installed."""
    directory = tmp_path_factory.mktemp("installed")
    wheel = build_wheel(directory)
    venv.create(directory / "venv", symlinks=True)
    [packages] = directory.glob("venv/lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    python = str(directory / "venv" / "bin" / "python")
    return [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--python-executable", python]


@pytest.fixture
def examples(tmp_path: Path) -> list[str]:
    """The names of a file for each example, in ``tmp_path``."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert len(found) > 4
    names = [f"example_{number}.py" for number in range(len(found))]
    for name, text in zip(names, found, strict=True):
        (tmp_path / name).write_text(text if "import Path" in text else _HEAD + text)
    return names


def test_mypy_accepts_the_examples(mypy: list[str], examples: list[str], tmp_path: Path) -> None:
    _accepted([*mypy, *examples], tmp_path)


def test_mypy_reports_a_value_of_a_wrong_type(mypy: list[str], examples: list[str], tmp_path: Path) -> None:
    wrong = tmp_path / examples[0]
    wrong.write_text(wrong.read_text().replace("1048576", '"fast"'))
    done = _run([*mypy, *examples], tmp_path)
    assert done.returncode == 1
    assert 'expected "str": "float"' in done.stdout


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_pyright_accepts_the_examples(examples: list[str], tmp_path: Path) -> None:
    pyright = tools.obtain(tools.pyright)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    _accepted([str(pyright), "--pythonpath", sys.executable, *examples], tmp_path)


def _accepted(command: list[str], directory: Path) -> None:
    done = _run(command, directory)
    assert done.returncode == 0, done.stdout + done.stderr


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "PYTHONPATH"}}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
