"""The installed wheel beside a project that has a package ``app`` of its own: client, command line and service."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import confplane
from tests.support.processes import build_wheel
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.servers import Database

_PROGRAM: Final = """\
import sys
from pathlib import Path

import app.client
from confplane.client import Confplane, Entity

assert app.client.OWNER == "the project"
with Confplane(sys.argv[1], token=Path(sys.argv[2]), cluster="default") as client:
    client.client_quotas.put(Entity.of(user="alice"), {"producer_byte_rate": 5})
    print(client.client_quotas.get("user=alice").body["quotas"])
"""


class Installed:
    """An environment with the wheel, and a project beside it whose directory every program is started in."""

    def __init__(self, directory: Path) -> None:
        wheel = build_wheel(directory)
        self.project = directory / "project"
        package = self.project / "app"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "client.py").write_text('OWNER = "the project"\n')
        (self.project / "program.py").write_text(_PROGRAM)
        venv.create(directory / "venv", symlinks=True)
        self.bin = directory / "venv" / "bin"
        # The wheel's requirements are those of this environment. A path in a .pth file is not searched for such files, so
        # the checkout that is installed here is not found.
        [packages] = directory.glob("venv/lib/python*/site-packages")
        (packages / "requirements.pth").write_text("\n".join(site.getsitepackages()))
        options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
        _check(
            sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", *options, str(wheel),
            cwd=directory,
        )  # fmt: skip

    def run(self, program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
        """Run a program of the environment in the project's directory, and return its output."""
        return _check(str(self.bin / program), *arguments, cwd=self.project, environment=environment)


class InstalledService(Service):
    """A service of the installed wheel."""

    def __init__(self, installed: Installed, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        self._installed = installed
        self.environment = _without_path(self._environment)

    def start(self, *, wait_ready: bool = True) -> None:
        """Start ``confplane serve`` in the project's directory."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._installed.bin / "confplane", "serve"],
                cwd=self._installed.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait_ready:
            self.wait_ready()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_the_package_is_the_wheels(installed: Installed) -> None:
    places = installed.run("python", "-c", "import app, confplane; print(confplane.__file__, app.__file__, sep='\\n')")
    package, other = (Path(line) for line in places.splitlines())
    assert package.is_relative_to(installed.bin.parent)
    assert other == installed.project / "app" / "__init__.py"


def test_command_line_client_and_service_run_beside_a_package_named_app(
    installed: Installed, database: Database, chroot: str, tmp_path: Path
) -> None:
    assert installed.run("confplane", "--version").strip().endswith(confplane.__version__)
    service = InstalledService(installed, tmp_path, connect=chroot, dsn=database.service_dsn)
    owner = {"CONFPLANE_POSTGRES__MIGRATION_DSN": database.owner_dsn}
    installed.run("confplane", "migrate", environment=service.environment | owner)
    service.start()
    try:
        token = str(tmp_path / f"token-{service.port}")
        assert installed.run("python", "program.py", service.url, token) == "{'producer_byte_rate': 5}\n"
        caller = {"CONFPLANE_URL": service.url, "CONFPLANE_TOKEN_FILE": token, "CONFPLANE_CLUSTER": "default"}
        shown = installed.run("confplane", "get", "user=alice", "--json", environment=service.environment | caller)
        assert json.loads(shown)["client-quotas"] == {"producer_byte_rate": 5}
    finally:
        service.stop()


def _without_path(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}


def _check(*command: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program, which must succeed, and return its standard output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=_without_path(os.environ) if environment is None else environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
