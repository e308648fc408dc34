"""Services with seams (:mod:`tests.support.stepping`) on the chroot and the database of one test."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from tests.support.proxy import Proxy
    from tests.support.servers import Database


class Stage:
    """Starts services that share their stores.

    Args:
        directory: Where their logs and tokens are.
        chroot: ZooKeeper's connect string.
        database: The trail's.
        constants: What is set otherwise in each service that is not given its own, ``module.NAME`` -> value.
    """

    def __init__(
        self, directory: Path, chroot: str, database: Database, constants: Mapping[str, float] | None = None
    ) -> None:
        self.directory = directory
        self.chroot = chroot
        self.database = database
        self._constants = constants or {}

    @asynccontextmanager
    async def service(
        self,
        *,
        step: str | None = None,
        constants: Mapping[str, float] | None = None,
        deadline_ms: int = 60_000,
        cluster: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        through: Proxy | None = None,
        module: str = "tests.support.stepping",
        ready: bool = True,
    ) -> AsyncIterator[Service]:
        """Run one.

        Args:
            step: Where it sends itself which signal: ``intent:SIGKILL``.
            constants: Instead of the stage's.
            deadline_ms: How long a request may take.
            cluster: Settings of the cluster, such as ``session_timeout_ms``.
            settings: More variables of its environment.
            through: The line to ZooKeeper that can be cut.
            module: The program.
            ready: Wait until it is ready.
        """
        host, _, chroot = self.chroot.partition("/")
        service = Service(
            self.directory,
            connect=f"{host if through is None else f'127.0.0.1:{through.port}'}/{chroot}",
            dsn=self.database.service_dsn,
            cluster=dict(cluster or {}),
            settings={
                CONSTANTS_VARIABLE: json.dumps(self._constants if constants is None else constants),
                "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": str(deadline_ms),
                **({} if step is None else {STEP_VARIABLE: step}),
                **(settings or {}),
            },
            module=module,
        )
        try:
            # In threads: the loop has the proxy to run.
            await asyncio.to_thread(service.start, wait_ready=ready)
            yield service
        finally:
            await asyncio.to_thread(service.__exit__)
