"""``confplane`` commands run as processes on the settings of a service that need not run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.service import ROOT, Service

if TYPE_CHECKING:
    from pathlib import Path


class Said(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Commands:
    """Runs commands on one cluster, named ``default``."""

    def __init__(self, directory: Path, *, connect: str, dsn: str, cluster: dict[str, Any] | None = None) -> None:
        service = Service(directory / "settings", connect=connect, dsn=dsn, cluster=cluster)
        self.environment = service._environment | {"LOGNAME": "olga", "COLUMNS": "200"}

    def run(self, *arguments: str) -> Said:
        """Run one to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "app", *arguments, "--cluster", "default"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)
