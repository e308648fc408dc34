"""Postgres: the trail of changes and the registrations of client software. The only package that imports SQLAlchemy."""

from app.audit.database import Database
from app.audit.open_changes import PostgresOpenChanges
from app.audit.registrations import PostgresRegistrationLog
from app.audit.request_keys import PostgresRequestKeys
from app.audit.rollups import PostgresRollups
from app.audit.states import PostgresEntityStates
from app.audit.trail import PostgresAuditLog

__all__ = [
    "Database",
    "PostgresAuditLog",
    "PostgresEntityStates",
    "PostgresOpenChanges",
    "PostgresRegistrationLog",
    "PostgresRequestKeys",
    "PostgresRollups",
]
