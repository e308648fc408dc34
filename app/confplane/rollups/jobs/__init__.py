"""The jobs, by name."""

from __future__ import annotations

from typing import Final

from confplane.rollups.jobs import activity, compare, compatibility, drift, impact, integrity, quotas, usage

JOBS: Final = {
    job.name: job
    for job in (
        compatibility.JOB,
        drift.JOB,
        impact.JOB,
        quotas.JOB,
        activity.JOB,
        integrity.JOB,
        compare.JOB,
        usage.JOB,
    )
}
"""The jobs, in the order in which they are run and listed."""
