"""Whether a process can do its work, and what stands in the way.

Ready means: every cluster's mirror was loaded, and Postgres has answered with the right schema, once since the start.
Later losses make the service *degraded*, not unready: reads go on from the mirror, and taking the process out of its
load balancer would end them too. A process that was told to stop is not ready, though it still serves for a while.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from app.domain.errors import UnavailableError
from app.services.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from app.services.clusters import Clusters
    from app.services.ports import AuditLog, StoreStatus

_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a process."""

    ready: bool
    degraded: bool
    stopping: bool
    clusters: dict[str, StoreStatus]
    postgres: str | None
    """What is wrong with Postgres; None when nothing is."""
    warnings: tuple[str, ...]


class Watchful(Protocol):
    """Work in the background that knows what an operator should know."""

    def warnings(self) -> list[str]:
        """Return it, a sentence each."""


class Readiness:
    """Answers readiness probes."""

    def __init__(self, clusters: Clusters, audit: AuditLog, background: Collection[Watchful] = ()) -> None:
        self._clusters = clusters
        self._audit = audit
        self._background = background
        self._was_ready = False
        self._warnings = 0
        self.stopping = False
        """The process was told to stop: whoever asks should go to another one from now on."""

    async def report(self) -> Report:
        """Look at all stores; takes at most three seconds."""
        statuses = {cluster.name: cluster.store.status() for cluster in self._clusters}
        postgres: str | None = None
        warnings: list[str] = []
        try:
            warnings += await asyncio.wait_for(self._audit.check(), _TIMEOUT_S)
        except UnavailableError as error:
            postgres = error.detail
        except TimeoutError:
            postgres = f"Postgres did not answer within {_TIMEOUT_S:g} seconds"
        warnings += [f"{name}: {text}" for name, status in statuses.items() for text in status.warnings]
        warnings += [text for work in self._background for text in work.warnings()]
        sound = postgres is None and all(status.connected and status.loaded for status in statuses.values())
        self._was_ready = self._was_ready or sound
        ready = self._was_ready and not self.stopping
        self._warnings = len(warnings)
        return Report(ready, not sound, self.stopping, statuses, postgres, tuple(warnings))

    def figures(self) -> Iterator[Figure]:
        """Return the figures: as whoever asked last was told."""
        yield Figure("ready", self._was_ready and not self.stopping)
        yield Figure("stopping", self.stopping)
        yield Figure("warnings", self._warnings)
