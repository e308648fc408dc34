"""Postgres: the trail of changes, the registrations of client software, tokens and grants, sessions of the console.

This is the only package that imports SQLAlchemy.

Exports are imported at first use. A rollup task writes rows with the driver alone and does not need SQLAlchemy;
loading it would take longer than writing the rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confplane.audit.access import PostgresAccessStore
    from confplane.audit.applied import PostgresAppliedReports
    from confplane.audit.change_requests import PostgresChangeRequests
    from confplane.audit.console_sessions import PostgresConsoleSessions
    from confplane.audit.database import Database
    from confplane.audit.feed import PostgresFeedTrail
    from confplane.audit.history import PostgresTrailHistory
    from confplane.audit.manifest_runs import PostgresManifestRuns
    from confplane.audit.observed_topics import PostgresObservedTopics
    from confplane.audit.open_changes import PostgresOpenChanges
    from confplane.audit.ownerships import PostgresOwnerships
    from confplane.audit.refusals import PostgresRefusedAttempts
    from confplane.audit.registrations import PostgresRegistrationLog
    from confplane.audit.request_keys import PostgresRequestKeys
    from confplane.audit.rollups import PostgresRollups
    from confplane.audit.schedules import PostgresSchedules
    from confplane.audit.states import PostgresEntityStates
    from confplane.audit.store_positions import PostgresStorePositions
    from confplane.audit.table_copies import PostgresTableSnapshot, PostgresTableWriter
    from confplane.audit.target_states import PostgresTargetStates
    from confplane.audit.trail import PostgresAuditLog
    from confplane.audit.webhooks import PostgresWebhooks

__all__ = [
    "Database",
    "PostgresAccessStore",
    "PostgresAppliedReports",
    "PostgresAuditLog",
    "PostgresChangeRequests",
    "PostgresConsoleSessions",
    "PostgresEntityStates",
    "PostgresFeedTrail",
    "PostgresManifestRuns",
    "PostgresObservedTopics",
    "PostgresOpenChanges",
    "PostgresOwnerships",
    "PostgresRefusedAttempts",
    "PostgresRegistrationLog",
    "PostgresRequestKeys",
    "PostgresRollups",
    "PostgresSchedules",
    "PostgresStorePositions",
    "PostgresTableSnapshot",
    "PostgresTableWriter",
    "PostgresTargetStates",
    "PostgresTrailHistory",
    "PostgresWebhooks",
]

_MODULES: Final = {
    "Database": "database",
    "PostgresAccessStore": "access",
    "PostgresAppliedReports": "applied",
    "PostgresAuditLog": "trail",
    "PostgresChangeRequests": "change_requests",
    "PostgresConsoleSessions": "console_sessions",
    "PostgresEntityStates": "states",
    "PostgresFeedTrail": "feed",
    "PostgresManifestRuns": "manifest_runs",
    "PostgresObservedTopics": "observed_topics",
    "PostgresOpenChanges": "open_changes",
    "PostgresOwnerships": "ownerships",
    "PostgresRefusedAttempts": "refusals",
    "PostgresRegistrationLog": "registrations",
    "PostgresRequestKeys": "request_keys",
    "PostgresRollups": "rollups",
    "PostgresSchedules": "schedules",
    "PostgresStorePositions": "store_positions",
    "PostgresTableSnapshot": "table_copies",
    "PostgresTableWriter": "table_copies",
    "PostgresTargetStates": "target_states",
    "PostgresTrailHistory": "history",
    "PostgresWebhooks": "webhooks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
