"""The way of a stranger: docs/cli.md from its first line to its last, with the base package alone."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import venv
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from tests.support import documents
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

GUIDE = (ROOT / "docs/cli.md").read_text()
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the base package, the packages that it requires, and nothing else."""
    directory = tmp_path_factory.mktemp("machine")
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in sorted(_required()):
        for file in metadata.files(name) or ():
            top = packages / file.parts[0]
            if file.parts[0] != ".." and not top.exists():
                top.symlink_to(str(metadata.distribution(name).locate_file(file.parts[0])))
    (packages / "confplane").symlink_to(ROOT / "app" / "confplane")
    command = directory / "bin" / "confplane"
    command.write_text(f"#!{directory / 'bin' / 'python'}\nfrom confplane.cli.commands import main\nmain()\n")
    command.chmod(0o755)
    return directory


def _required() -> set[str]:
    """Return the names of the packages that the base package requires, directly or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    wanted = [*project["dependencies"]]
    while wanted:
        requirement = wanted.pop()
        match = _NAME.match(requirement)
        assert match is not None
        name = match[0].lower().replace("_", "-")
        if name in found or "extra ==" in requirement:
            continue
        try:
            wanted += metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system or Python
            continue
        found.add(name)
    return found


def test_the_machine_has_no_part_of_the_service(machine: Path) -> None:
    for package in ("kazoo", "sqlalchemy", "fastapi", "pyspark", "pydantic_settings"):
        command = [str(machine / "bin" / "python"), "-c", f"import {package}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "ModuleNotFoundError" in done.stderr, package


def test_the_commands_of_the_guide_print_what_it_shows(service: Service, machine: Path, tmp_path: Path) -> None:
    _install, *shown = documents.blocks(GUIDE, "text")
    (tmp_path / ".confplane").mkdir()
    (tmp_path / ".confplane" / "admin-token").write_text(service.token)
    service.wait_recorded()
    scripts = [each.replace("http://127.0.0.1:8080", service.url) for each in documents.blocks(GUIDE)]
    scripts[0] = f"exec 2>&1\n{scripts[0]}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONFPLANE", "PYTHON", "XDG"))}
    environment = kept | {"PATH": f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    for printed, wanted in zip(documents.run(scripts, tmp_path, environment), shown, strict=True):
        found = printed.replace(service.url, "http://127.0.0.1:8080").replace(str(tmp_path), "/home/olga")
        assert _settled(found) == _settled(wanted.strip())


def _settled(text: str) -> list[str]:
    """Return lines without what differs from run to run: times, revisions, ids, and the widths of their columns."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"(?<=revision )\d+|(?<=TIME  )\d+", "REVISION", text)
    return [re.sub(r"  +", "  ", line) for line in text.splitlines()]
