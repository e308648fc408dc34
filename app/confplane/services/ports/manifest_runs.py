"""Stored runs of plans. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ManifestRun:
    """The run that applies a plan. It holds no values: what is left to do follows from the document."""

    cluster: str
    plan_id: str
    request_id: str
    """The request id of all changes of the run."""
    writer: str
    """The writer node of the request that executes the run, or executed it last."""
    bases: bytes
    """The presence and the versions that the plan rests on, in the form of the service that stored them."""
    in_time: bool = True
    """True while a request executes the run, by Postgres's clock."""
    owner: str | None = None
    """The owner of the plan, which has one run at most."""


class ManifestRuns(Protocol):
    """The store of runs. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def find(self, cluster: str, plan_id: str) -> ManifestRun | None:
        """Return the run of a plan; None if none was begun, or it is forgotten."""

    async def begin(self, run: ManifestRun, seconds: float, *, replaced: ManifestRun | None = None) -> bool:
        """Store a run that is executed for so many seconds at most.

        False: the plan has a run, or its owner has another one that is executed. One that has ended is forgotten.
        Forgets runs that were begun more than a day ago.

        Args:
            run: The run.
            seconds: The seconds.
            replaced: The run of the same plan, as it was found, that this one replaces if no request executes it.
        """

    async def resume(self, run: ManifestRun, writer: str, seconds: float) -> bool:
        """Execute a run, as it was found, for so many seconds at most; False: another writer's request executes it.

        The requests of one writer exclude each other before they call this.
        """

    async def end(self, run: ManifestRun) -> None:
        """Note that the writer of a run does not execute it any more; nothing if another one has continued it."""
