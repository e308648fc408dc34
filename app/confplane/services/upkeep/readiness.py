"""Readiness: the state of a process's stores, and warnings for operators.

Ready means: every cluster's mirror was loaded, its connection was checked for a restore, Postgres has answered with the
right schema, and tokens and grants were read, each once since the start. Without the check of the connection a restored
store would serve as an ordinary one, and without tokens and grants every caller but the admin token would be answered
503.
Later losses make the service *degraded*, not unready: reads still come from the mirror, and a balancer that takes the
process out would end them too. A process that is stopping is not ready, though it still serves for a while.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confplane.domain.errors import UnavailableError
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from confplane.services.clusters import ClusterRegistry
    from confplane.services.operator_warnings import OperatorWarning
    from confplane.services.ports.store import StoreStatus
    from confplane.services.ports.trail import AuditLog

_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class ReadinessState:
    """The state of a process."""

    ready: bool
    degraded: bool
    stopping: bool
    clusters: dict[str, StoreStatus]
    postgres: str | None
    """The fault of Postgres; None without a fault."""
    warnings: tuple[OperatorWarning, ...]


@dataclass(frozen=True, slots=True)
class _Postgres:
    """The outcome of a check of Postgres."""

    fault: str | None
    warnings: Sequence[OperatorWarning]


class WarningSource(Protocol):
    """Background work with warnings for operators."""

    def warnings(self) -> list[OperatorWarning]:
        """Return the warnings for operators."""


class Readiness:
    """Answers readiness probes.

    Args:
        clusters: All clusters.
        audit: The trail, whose Postgres is checked.
        background: The sources of warnings.
        tokens_read: Returns True once tokens and grants were read.
        kept_s: Seconds for which a check of Postgres is reused: the probe is open to anybody, and each check costs a
            statement.
    """

    def __init__(
        self,
        clusters: ClusterRegistry,
        audit: AuditLog,
        background: Collection[WarningSource] = (),
        *,
        tokens_read: Callable[[], bool],
        kept_s: float = 0.25,
    ) -> None:
        self._kept_s = kept_s
        self._tokens_read = tokens_read
        self._clusters = clusters
        self._audit = audit
        self._background = background
        self._was_ready = False
        self._warnings = 0
        self._check: asyncio.Task[_Postgres] | None = None
        self._kept_until = 0.0
        self.stopping = False
        """True once the process is stopping: clients should use another process from now on."""

    async def report(self) -> ReadinessState:
        """Return the state of all stores; takes at most three seconds.

        Concurrent callers, and those of the next moment, share one check of Postgres.
        """
        check = self._check
        if check is None or (check.done() and time.monotonic() >= self._kept_until):
            check = self._check = asyncio.create_task(self._checked(), name="check of Postgres")
        postgres = await asyncio.shield(check)
        statuses = {cluster.name: cluster.store.status() for cluster in self._clusters}
        warnings = [
            *postgres.warnings,
            *(warning.about(name) for name, status in statuses.items() for warning in status.warnings),
            *(warning for work in self._background for warning in work.warnings()),
        ]
        sound = postgres.fault is None and all(status.connected and status.loaded for status in statuses.values())
        checked = all(status.checked for status in statuses.values())
        self._was_ready = self._was_ready or (sound and checked and self._tokens_read())
        self._warnings = len(warnings)
        ready = self._was_ready and not self.stopping
        return ReadinessState(ready, not sound, self.stopping, statuses, postgres.fault, tuple(warnings))

    async def _checked(self) -> _Postgres:
        try:
            found = _Postgres(None, await asyncio.wait_for(self._audit.check(), _TIMEOUT_S))
        except UnavailableError as error:
            found = _Postgres(error.detail, ())
        except TimeoutError:
            found = _Postgres(f"Postgres did not answer within {_TIMEOUT_S:g} seconds", ())
        self._kept_until = time.monotonic() + self._kept_s
        return found

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics of the last report."""
        yield Sample("ready", self._was_ready and not self.stopping)
        yield Sample("stopping", self.stopping)
        yield Sample("warnings", self._warnings)
