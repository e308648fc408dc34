"""The world fixture: services and replicas on one chroot and one database."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from tests.audit import rows
from tests.support.commands import target
from tests.support.replicas import Replica
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE, STEP_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.kraft import KraftCluster
    from tests.support.proxy import Proxy
    from tests.support.servers import Database


RECORDING: Final = {
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.2,
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
    "confplane.services.recorder.record.UNNOTIFIED_INTERVAL_S": 0.5,
    "confplane.store.write.unnotified.UNNOTIFIED_AGE_S": 0.5,
}
"""Constants of services that record and settle within a second."""
UNTIL_APPLIED: Final = {"Confplane-Wait-Applied": "50000"}
"""Headers of a change that is answered when brokers use it; the deadline of :meth:`World.make_service` is later."""


class World:
    """Starts services in their own processes and replicas in this process, all on the same stores.

    Replicas run until the block ends.

    Args:
        directory: The directory of their logs and tokens.
        chroot: ZooKeeper's connect string.
        database: The trail's.
        zk: A plain client, rooted at the chroot.
        constants: Other values of constants in each service that is given none, ``module.NAME`` -> value.
    """

    def __init__(
        self,
        directory: Path,
        chroot: str,
        database: Database,
        zk: KazooClient,
        constants: Mapping[str, float] | None = None,
    ) -> None:
        self.directory = directory
        self.chroot = chroot
        self.database = database
        self.zk = zk
        self._constants = constants or {}
        self._replicas: list[Replica] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_replicas()

    async def replica(self, *, leads: bool = True, **cluster: Any) -> Replica:
        """Start a replica; one that leads believes so, regardless of other replicas."""
        replica = Replica(self.chroot, self.database, self.directory, **cluster)
        self._replicas.append(replica)
        return await replica.start(leads=leads)

    async def stop_replicas(self, *which: Replica) -> None:
        """Stop the given replicas, or all."""
        for each in which or tuple(reversed(self._replicas)):
            self._replicas.remove(each)
            await each.stop()

    def age(self, table: str, seconds: int) -> None:
        """Make the rows of a table of the trail look older."""
        rows.age(self.database.owner_dsn, table, seconds)

    def make_service(
        self,
        *,
        step: str | None = None,
        constants: Mapping[str, float] | None = None,
        deadline_ms: int = 60_000,
        cluster: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        through: Proxy | None = None,
        module: str = "tests.support.stepping",
    ) -> Service:
        """Return a service, not started, with the seams of :mod:`tests.support.stepping`.

        Args:
            step: The step at which it sends itself a signal: ``intent:SIGKILL``.
            constants: Used instead of those of the world.
            deadline_ms: The deadline of a request.
            cluster: Settings of the cluster, such as ``session_timeout_ms``.
            settings: More variables of its environment.
            through: A proxy to ZooKeeper that can be cut.
            module: The program.
        """
        return Service(
            self.directory,
            connect=self.chroot if through is None else through.connect(self.chroot),
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

    def adopting(
        self,
        cluster: KraftCluster,
        *,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Service:
        """Return a service that has adopted a Kafka 4 cluster, not started.

        Args:
            cluster: The cluster.
            settings: Further settings of it.
            options: As of :meth:`make_service`.
        """
        kafka = {"bootstrap": cluster.bootstrap, **(settings or {})}
        service = self.make_service(cluster={"kafka": kafka}, **options)
        target(service, "import", "--apply")
        assert "accepts changes of quotas and configs" in target(service, "adopt", "--reason", "a test")
        return service

    @asynccontextmanager
    async def service(self, *, ready: bool = True, **options: Any) -> AsyncIterator[Service]:
        """Run a service, and wait until it is ready unless told otherwise; options as of :meth:`make_service`."""
        service = self.make_service(**options)
        try:
            # In threads, because the loop must run the proxy.
            await asyncio.to_thread(service.start, wait_ready=ready)
            yield service
        finally:
            await asyncio.to_thread(service.__exit__)
