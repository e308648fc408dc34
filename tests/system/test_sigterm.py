"""SIGTERM ends a service that ignores SIGINT, as a process in the background of a shell script does."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.support.processes import ignoring_sigint
from tests.support.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database


def test_a_service_that_ignores_sigint_ends_by_sigterm(tmp_path: Path, chroot: str, migrated: Database) -> None:
    service = Service(tmp_path, connect=chroot, dsn=migrated.service_dsn)
    with ignoring_sigint():
        service.start()
    assert service.stop() == -signal.SIGTERM
