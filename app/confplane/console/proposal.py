"""An edit that rules are in the way of: as a change request, as the new content of one, or past the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.exceptions import HTTPException

from confplane.console.rights import allowed
from confplane.domain.access.operations import Operation
from confplane.domain.errors import KafkaCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.console.api import ApiAnswer, ApiRefusal
    from confplane.console.edit_form import EntityEdit
    from confplane.console.page import ConsolePage

_NEEDED: Final = " needs approval: "
"""The words of the API's refusals of changes that lack approvals, and of its warnings about them."""


class Proposal(NamedTuple):
    """A change as a request for the API."""

    path: str
    query: Mapping[str, str | None]
    body: dict[str, Any]
    headers: Mapping[str, str]


def needs_approval(texts: Iterable[str]) -> bool:
    """Return True if a refusal or warning says that the change lacks approvals."""
    return any(_NEEDED in each for each in texts)


def is_by_rules(refused: ApiRefusal) -> bool:
    """Return True if a policy of the cluster refused a change, or asks for approvals of it."""
    return refused.problem.get("kafkaErrorCode") == KafkaCode.POLICY_VIOLATION


def may_save(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the grants of the caller allow the change."""
    return edit.entity_id in allowed(page.caller, cluster, Operation.ALTER_CONFIGS)


def may_propose(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the caller may propose the change. A request has no end, so a temporary change can't be one."""
    return not edit.duration and edit.entity_id in allowed(page.caller, cluster, Operation.PROPOSE)


def may_bypass(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the grants of the caller allow the change past the rules."""
    bypassed = edit.entity_id in allowed(page.caller, cluster, Operation.BYPASS_RULES)
    return bypassed and not edit.revises and may_save(page, cluster, edit)


def proposed_edit(edit: EntityEdit, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the edit that changes what the person was shown into what is wanted, as the API has it."""
    shown = edit.shown()
    ops: list[dict[str, Any]] = [
        {"key": key, "op": "SET", "value": value}
        for key, value in wanted.items()
        if value is not None and value != shown.get(key)
    ]
    ops += [{"key": key, "op": "DELETE"} for key in shown if key not in wanted]
    return {"facet": edit.facet, "id": edit.entity_id, "ops": ops}


async def proposal_of(page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any]) -> Proposal:
    """Return a change as a request for the API: a new change request, or the new content of one.

    The other edits of a request that is revised stay as they were decided.

    Raises:
        ApiRefusal: The API refused to show the request that is revised.
        HTTPException: That request has sensitive values, which only its author knows.
    """
    own = proposed_edit(edit, wanted)
    query = {"reason": edit.reason or None, "ticket": edit.ticket or None}
    path = f"/v1/clusters/{cluster}/change-requests"
    if not edit.revises:
        return Proposal(path, query, {"edits": [own], **edit.times}, {})
    path = f"{path}/{edit.revises}"
    revised = (await revisable(page, cluster, edit.revises)).json()
    others = [
        _decided(each) for each in revised["changes"] if (each["facet"], each["id"]) != (edit.facet, edit.entity_id)
    ]
    return Proposal(f"{path}:revise", query, {"edits": [*others, own]}, {"If-Match": edit.request_etag})


async def revisable(page: ConsolePage, cluster: str, request_id: str) -> ApiAnswer:
    """Return a change request whose edits can be taken into a form.

    Raises:
        ApiRefusal: The API refused.
        HTTPException: It has sensitive values, which it does not store.
    """
    found = await page.api.send("GET", f"/v1/clusters/{cluster}/change-requests/{request_id}")
    if found.json()["toSupply"]:
        raise HTTPException(409, "The request has sensitive values")
    return found


def _decided(change: dict[str, Any]) -> dict[str, Any]:
    """Return an edit of a request as it was decided."""
    ops = [
        {"key": each["key"], "op": "DELETE"}
        if each["after"] is None
        else {"key": each["key"], "op": "SET", "value": each["after"]}
        for each in change["diff"]
    ]
    return {"facet": change["facet"], "id": change["id"], "ops": ops}


async def propose(
    page: ConsolePage, proposal: Proposal, *, attempt: str | None = None, validate_only: bool = False
) -> ApiAnswer:
    """Propose a change, or only check it. With an attempt, a new request is made once.

    Raises:
        ApiRefusal: The API refused.
    """
    query = {**proposal.query, "validateOnly": "true"} if validate_only else proposal.query
    once = {} if attempt is None else {"Idempotency-Key": attempt}
    headers = {**proposal.headers, **once}
    return await page.api.send("POST", proposal.path, query=query, body=proposal.body, headers=headers)
