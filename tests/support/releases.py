"""Two releases of the service: the one in this checkout, and an earlier one from the repository's history."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import tarfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support import stepping
from tests.support.processes import ROOT, start
from tests.support.tools import ToolMissingError, obtain
from tests.support.waiting import PATIENCE_S
from tests.support.world import RECORDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.service import Service
    from tests.support.world import World

EARLIER: Final = "6dfb68db65d50535666bd22e0e8465bec0c47160"
"""The commit of the earlier release. Replace it by a newer one once no process of it can be running any more."""
EARLIER_APPLYING: Final = "e1a8778bf7de4182d9b2552d7ebff7c27cc76548"
"""The commit of an earlier release that applies changes to Kafka clusters."""
EARLIER_REQUESTING: Final = "36de74ef5cadfaac58e43395c510f41e2235d1b5"
"""The commit of an earlier release that has change requests without reverts, and plans without policies."""
EARLIER_REVERTING: Final = "e835331d0a909c932471bad6abb74fb93170aef9"
"""The commit of an earlier release that has change requests without drafts and manifests."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release as files, from which its programs run with this checkout's interpreter and libraries."""

    name: str
    root: Path
    program: str
    """Program for its command line, with steps at which it can be killed."""
    quick: Mapping[str, float] = field(repr=False)
    """Its constants for short waits, by the names that they have in it."""

    def service(self, world: World, **cluster: Any) -> Service:
        """Return a service of it, not started, with settings of its cluster."""
        made = world.make_service(constants=self.quick, cluster=cluster, module=self.program)
        made.root = self.root
        # Ahead of the packages of this checkout, which are installed.
        made._environment["PYTHONPATH"] = str(self.root / "app")
        return made

    def run(self, service: Service, *arguments: str, dies_at: str | None = None) -> None:
        """Run a command with the settings of one of its services, to its end.

        It must succeed, unless it is to be killed at a step.
        """
        if dies_at is not None:
            service.dies_at(dies_at)
        self._run(service, *arguments, "--cluster", "default", dies=dies_at is not None)

    def migrate(self, service: Service, owner_dsn: str) -> None:
        """Migrate the database of one of its services to its schema, as the owner of the tables."""
        self._run(service, "migrate", CONFPLANE_POSTGRES__MIGRATION_DSN=owner_dsn)

    def _run(self, service: Service, *arguments: str, dies: bool = False, **variables: str) -> None:
        environment = service._environment | {"LOGNAME": "olga"} | variables
        with service.log.open("wb") as said:
            command = ["-m", self.program, *arguments]
            ended = start(command, environment=environment, stdout=said, stderr=said, cwd=self.root).wait(PATIENCE_S)
        assert ended == (-signal.SIGKILL if dies else 0), service.tail()


PRESENT: Final = Release(
    "present",
    ROOT,
    stepping.__name__,
    RECORDING,
)


def _git(commit: str) -> Path:
    """Find git in a checkout with its history.

    Raises:
        ToolMissingError: No git, or no earlier release in the checkout.
    """
    git = shutil.which("git")
    if git is None:
        raise ToolMissingError("git, which has the files of the earlier release, is not on PATH")
    known = subprocess.run([git, "cat-file", "-e", commit], cwd=ROOT, capture_output=True, check=False)
    if known.returncode != 0:
        raise ToolMissingError(
            f"This checkout came without its history: git does not know the earlier release {commit[:7]}. Fetch the"
            " history: `git fetch --unshallow`"
        )
    return Path(git)


def _lay_out(commit: str, directory: Path) -> None:
    git = obtain(partial(_git, commit))
    wanted = ["app", "migrations", "tests/support"]
    packed = subprocess.run([git, "archive", commit, *wanted], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(directory, filter="data")


def earlier_applying(directory: Path) -> Path:
    """Lay out the files of :data:`EARLIER_APPLYING`, as :func:`earlier` does; return their directory."""
    _lay_out(EARLIER_APPLYING, directory)
    return directory


def earlier(directory: Path, commit: str | None = None) -> Release:
    """Lay out the files of an earlier release; a checkout without its history skips the test, or fails it."""
    _lay_out(commit or EARLIER, directory)
    return Release("earlier", directory, stepping.__name__, RECORDING)
