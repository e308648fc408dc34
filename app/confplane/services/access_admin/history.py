"""Rows of the history of tokens and grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uuid_utils.compat import uuid7

from confplane.services.ports.access import AccessChange

if TYPE_CHECKING:
    from confplane.services.changes.callers import Caller


def change_of(
    caller: Caller,
    kind: str,
    subject: str,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AccessChange:
    """Return the row of one change.

    Args:
        caller: The caller of the change.
        kind: As :class:`AccessChange` names kinds.
        subject: ``tokens/<id>`` or ``grants/<id>``.
        before: The token or grant before the change, as the API shows it.
        after: The same after the change.
    """
    return AccessChange(
        uuid7(),
        kind,
        caller.principal,
        caller.source,
        subject,
        request_id=caller.request_id,
        behalf_of=caller.behalf_of,
        reason=caller.reason,
        ticket=caller.ticket,
        before=before,
        after=after,
    )
