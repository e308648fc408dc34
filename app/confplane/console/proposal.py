"""An edit as a change request, for others to approve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.console.rights import allowed
from confplane.domain.access.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confplane.console.api import ApiAnswer
    from confplane.console.edit_form import EntityEdit
    from confplane.console.page import ConsolePage

_NEEDED: Final = " needs approval: "
"""The words of the API's refusals of changes that lack approvals, and of its warnings about them."""


def needs_approval(texts: Iterable[str]) -> bool:
    """Return True if a refusal or warning says that the change lacks approvals."""
    return any(_NEEDED in each for each in texts)


def may_save(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the grants of the caller allow the change."""
    return edit.entity_id in allowed(page.caller, cluster, Operation.ALTER_CONFIGS)


def may_propose(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the caller may propose the change. A request has no end, so a temporary change can't be one."""
    return not edit.duration and edit.entity_id in allowed(page.caller, cluster, Operation.PROPOSE)


def proposal_body(edit: EntityEdit, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the API's body of a request that changes what the person was shown into what is wanted."""
    shown = edit.shown()
    ops: list[dict[str, Any]] = [
        {"key": key, "op": "SET", "value": value}
        for key, value in wanted.items()
        if value is not None and value != shown.get(key)
    ]
    ops += [{"key": key, "op": "DELETE"} for key in shown if key not in wanted]
    return {"edits": [{"facet": edit.facet, "id": edit.entity_id, "ops": ops}], **edit.times}


async def propose(
    page: ConsolePage, cluster: str, edit: EntityEdit, body: dict[str, Any], *, validate_only: bool = False
) -> ApiAnswer:
    """Propose a change, or only check it.

    Raises:
        ApiRefusal: The API refused.
    """
    query = {"reason": edit.reason or None, "ticket": edit.ticket or None}
    return await page.api.send(
        "POST",
        f"/v1/clusters/{cluster}/change-requests",
        query={**query, "validateOnly": "true"} if validate_only else query,
        body=body,
    )
