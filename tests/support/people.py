"""Callers who are people: with every grant, and bound to the rules of the policies."""

from __future__ import annotations

from typing import Any, cast

from confplane.domain.access.identities import Authentication, Identity
from confplane.services.access import Access, Rights, unrestricted
from confplane.services.changes.callers import Caller
from tests.support.stores import soon


def person(principal: str, **more: Any) -> Caller:
    """Return a caller with half a minute of time; ``more`` are members of it."""
    rights = Rights(Identity(principal, Authentication.TOKEN), cast("Any", None))
    return Caller(unrestricted(Access(rights, "127.0.0.1", "request-1")), soon(30), **more)
