"""An edit that rules are in the way of: as a change request, as the new content of one, or past the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.exceptions import HTTPException

from confplane.console.rights import allowed
from confplane.domain.access.operations import Operation
from confplane.domain.errors import KafkaCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.console.api import ApiAnswer, ApiRefusal
    from confplane.console.edit_form import EntityEdit
    from confplane.console.page import ConsolePage

_NEEDED: Final = " needs approval: "
"""The words of the API's refusals of changes that lack approvals, and of its warnings about them."""


NO_REASON: Final = "Nothing was written: a change past the rules needs the reason of the emergency."


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
    return _may(page, cluster, Operation.ALTER_CONFIGS, [edit.entity_id])


def may_propose(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the caller may propose the change. A request has no end, so a temporary change can't be one."""
    return not edit.duration and _may(page, cluster, Operation.PROPOSE, [edit.entity_id])


def may_bypass(page: ConsolePage, cluster: str, edit: EntityEdit) -> bool:
    """Return True if the grants of the caller allow the change past the rules."""
    return not edit.revises and may_bypass_for(page, cluster, [edit.entity_id])


def may_bypass_for(page: ConsolePage, cluster: str, entity_ids: Collection[str]) -> bool:
    """Return True if the grants of the caller allow changes of some entities past the rules."""
    return all(
        _may(page, cluster, operation, entity_ids) for operation in (Operation.BYPASS_RULES, Operation.ALTER_CONFIGS)
    )


def _may(page: ConsolePage, cluster: str, operation: Operation, entity_ids: Collection[str]) -> bool:
    granted = allowed(page.caller, cluster, operation)
    return all(each in granted for each in entity_ids)


def ways_of(
    page: ConsolePage,
    cluster: str,
    entity_ids: Collection[str],
    texts: Collection[str],
    *,
    is_refused: bool,
    is_request: bool = True,
) -> tuple[str, ...]:
    """Return the steps that a review of a change offers, the one in colour first.

    Args:
        page: The page.
        cluster: The cluster.
        entity_ids: The entities of the change.
        texts: The API's warnings about the change, and its refusals.
        is_refused: Whether a rule refused it.
        is_request: Whether it can be a change request.
    """
    lacks_approval = needs_approval(texts)
    is_ruled = is_refused or lacks_approval
    ways = []
    if _may(page, cluster, Operation.ALTER_CONFIGS, entity_ids) and not is_ruled:
        ways.append("save")
    if is_request and _may(page, cluster, Operation.PROPOSE, entity_ids) and (lacks_approval or not is_refused):
        ways.append("propose")
    if is_ruled and may_bypass_for(page, cluster, entity_ids):
        ways.append("break-glass")
    return tuple(ways) or ("save",)  # the API says why it can't be saved


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
        decided(each) for each in revised["changes"] if (each["facet"], each["id"]) != (edit.facet, edit.entity_id)
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


def decided(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change of an entity, with its diff, as an edit for the API."""
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
