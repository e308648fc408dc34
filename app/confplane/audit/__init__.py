"""Postgres: the trail of changes, the registrations of client software, tokens and grants.

This is the only package that imports SQLAlchemy.

Exports are imported at first use: a task of a rollup, which writes rows with the driver alone, does not need
SQLAlchemy, and would take longer to load it than to write the rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from app.audit.access import PostgresAccessStore
    from app.audit.applied import PostgresAppliedReports
    from app.audit.database import Database
    from app.audit.history import PostgresTrailHistory
    from app.audit.open_changes import PostgresOpenChanges
    from app.audit.registrations import PostgresRegistrationLog
    from app.audit.request_keys import PostgresRequestKeys
    from app.audit.rollups import PostgresRollups
    from app.audit.states import PostgresEntityStates
    from app.audit.target_states import PostgresTargetStates
    from app.audit.trail import PostgresAuditLog

__all__ = [
    "Database",
    "PostgresAccessStore",
    "PostgresAppliedReports",
    "PostgresAuditLog",
    "PostgresEntityStates",
    "PostgresOpenChanges",
    "PostgresRegistrationLog",
    "PostgresRequestKeys",
    "PostgresRollups",
    "PostgresTargetStates",
    "PostgresTrailHistory",
]

_MODULES: Final = {
    "Database": "database",
    "PostgresAccessStore": "access",
    "PostgresAppliedReports": "applied",
    "PostgresAuditLog": "trail",
    "PostgresEntityStates": "states",
    "PostgresOpenChanges": "open_changes",
    "PostgresRegistrationLog": "registrations",
    "PostgresRequestKeys": "request_keys",
    "PostgresRollups": "rollups",
    "PostgresTargetStates": "target_states",
    "PostgresTrailHistory": "history",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
