"""The jobs, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.rollups.job import Job

_ALL: Final[tuple[Job, ...]] = ()

JOBS: Final = {job.name: job for job in _ALL}
"""In the order in which they are run and listed."""
