"""The revisions of the schema, by the names of the migrations' files: Alembic takes a tenth of a service's start."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

OLDEST_RELEASE: Final = "0019"
"""The head revision of the oldest release whose processes can run on this release's schema. Raise it with a migration
that they can't run on. ``confplane migrate`` stores it, and an older release's reads it."""


def location() -> Path:
    """Return the folder of the migrations: in a checkout, or in an installed wheel.

    Raises:
        RuntimeError: The folder does not exist.
    """
    package = Path(__file__).parents[1]
    installed = package / "_migrations"
    found = installed if installed.is_dir() else package.parents[1] / "migrations"
    if not (found / "env.py").is_file():
        raise RuntimeError(f"The migrations are missing: looked in {installed} and {found}")
    return found


@cache
def known_revisions() -> frozenset[str]:
    """Return every revision that this version of the code knows."""
    return frozenset(path.name.partition("_")[0] for path in (location() / "versions").glob("[0-9]*_*.py"))


@cache
def head_revision() -> str:
    """Return the revision that this version of the code needs."""
    return max(known_revisions())
