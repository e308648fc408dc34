"""The client library as others have it: installed from a wheel, outside of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from typing import TYPE_CHECKING, Final

from tests.support.processes import build_wheel

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM: Final = """\
from confplane.client import Confplane

with Confplane("http://confplane.test", token=None) as client:
    reveal_type(client.client_quotas.get("user=alice").body["quotas"])
    client.client_quotas.put("user=alice", {"producer_byte_rate": "fast"})
"""


def test_a_type_checker_sees_the_types_of_the_installed_library(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "venv", symlinks=True)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (tmp_path / "program.py").write_text(_PROGRAM)
    python = str(tmp_path / "venv" / "bin" / "python")
    said = _run(
        "mypy", "--strict", "--python-version", "3.10", "--python-executable", python, "program.py",
        cwd=tmp_path, status=1,
    )  # fmt: skip
    assert 'program.py:4: note: Revealed type is "dict[str, float]"' in said.replace("builtins.", "")
    assert 'program.py:5: error: Dict entry 0 has incompatible type "str": "str"; expected "str": "float"' in said
    assert "Found 1 error in 1 file" in said


def _run(module: str, *arguments: str, cwd: Path, status: int = 0) -> str:
    """Run a module, and return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "PYTHONPATH"}}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout
