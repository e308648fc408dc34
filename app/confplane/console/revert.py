"""A revert: of a change, of a request, of a principal's changes in a span of time, or of an entity to a moment.

A preview comes first, and the form of the preview does what it showed, or nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from uuid_utils import uuid7

from confplane.console import proposal
from confplane.console.api import ApiRefusal
from confplane.console.audit import moment
from confplane.console.edit_form import TIMES, emergency_of
from confplane.console.entities import facets_of
from confplane.console.entity import declared_in
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect
from confplane.console.texts import sides
from confplane.domain.errors import KafkaCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/audit:revert"
_SELECTORS: Final = ("changeId", "requestId", "principal", "since", "until")
_PAST: Final = "Confplane-Break-Glass"
_ENTITY: Final = ("entity", "facet", "to")
"""The parts of an address that return one facet of an entity to a moment."""
_OPTIONS: Final = {"changeId": "change", "requestId": "request-id"}


@router.get(_PATH)
async def revert_preview(page: PageDep, cluster: str) -> Response:
    """Preview a revert."""
    given = page.request.query_params
    return await _preview(page, cluster, _selected(given), given)


@router.post(_PATH)
async def revert_changes(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Revert or propose it, if that still does what the preview showed; otherwise show the preview again."""
    selected, step = _selected(form), form.get("step", "save")
    if step == "review" or (step == "break-glass" and not emergency_of(form)):
        return await _preview(page, cluster, selected, form, error=None if step == "review" else proposal.NO_REASON)
    attempt = form.text("attempt") or str(uuid7())
    condition = await _condition(page, cluster, selected)
    before = await _checked(page, cluster, selected, form)
    if _digest(before) != form.get("seen") or not _is_possible(before):
        # The form may have been sent twice: what the first one changed has the id of the attempt.
        if earlier := await _earlier(page, cluster, attempt):
            return _lead_to(cluster, attempt, earlier)
        return await _preview(page, cluster, selected, form, is_changed=True)
    if step == "propose":
        return await _propose(page, cluster, selected, form, before, attempt=attempt)
    return await _revert(page, cluster, selected, form, attempt=attempt, condition=condition)


async def _revert(
    page: ConsolePage,
    cluster: str,
    selected: dict[str, Any],
    form: FormFields,
    *,
    attempt: str,
    condition: dict[str, str],
) -> Response:
    """Revert, and lead to the changes; a refusal of a rule is shown with a preview."""
    headers = {**condition, "Idempotency-Key": attempt}
    if form.get("step") == "break-glass":
        headers |= {_PAST: emergency_of(form)}
    done = await _results(page, cluster, selected, form, validate_only=False, attempt=attempt, headers=headers)
    if _is_refused(done) and not any(each["changeId"] for each in done["results"]):
        error, status = _refusal(done), done.get("status", 200)
        return await _preview(page, cluster, selected, form, error=error, status=status)
    if not _is_possible(done):
        return await _preview(page, cluster, selected, form, done=done)
    return _lead_to(cluster, attempt, [each["changeId"] for each in done["results"] if each["changeId"] is not None])


async def _propose(
    page: ConsolePage,
    cluster: str,
    selected: dict[str, Any],
    form: FormFields,
    before: dict[str, Any],
    *,
    attempt: str,
) -> Response:
    """Propose a revert, and lead to the request; sent again, the form makes one request."""
    try:
        made = (await proposal.propose(page, _proposal(cluster, selected, form, before), attempt=attempt)).json()
    except ApiRefusal as refused:
        return await _preview(page, cluster, selected, form, error=refused.detail, status=refused.status)
    return redirect(f"/console/clusters/{cluster}/requests/{made['id']}")


async def _earlier(page: ConsolePage, cluster: str, attempt: str) -> list[str]:
    """Return changes that an attempt has made already: two of them if there are more."""
    try:
        found = await page.api.get(f"/v1/clusters/{cluster}/audit", requestId=attempt, pageSize=2)
    except ApiRefusal:
        return []
    return [each["changeId"] for each in found["items"] if each["outcome"] in {"committed", "open"}]


def _lead_to(cluster: str, attempt: str, changes: list[str]) -> Response:
    """Lead to the change that a revert made, or to its changes."""
    home = f"/console/clusters/{cluster}/audit"
    if len(set(changes)) == 1:
        return redirect(f"{home}/{changes[0]}?saved=true")
    return redirect(f"{home}?{urlencode({'requestId': attempt})}")


def _selected(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what a revert is of, from an address or a form: the API's body, or an entity, its facet and a moment.

    Raises:
        HTTPException: The entity has no such facet.
    """
    if given.get("entity"):
        if given.get("facet") not in facets_of(given["entity"]):
            raise HTTPException(404, "No such entity, or it has no such facet")
        return {name: moment(given.get(name, "").strip()) if name == "to" else given.get(name, "") for name in _ENTITY}
    body: dict[str, Any] = {name: given[name].strip() for name in _SELECTORS if given.get(name, "").strip()}
    keys = [key for key in (part.strip() for part in given.get("only", "").split(",")) if key]
    return {**body, **({"keys": keys} if keys else {}), **({"force": True} if given.get("force") else {})}


async def _results(
    page: ConsolePage,
    cluster: str,
    selected: dict[str, Any],
    given: Mapping[str, str],
    *,
    validate_only: bool,
    attempt: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the API's answer; that to a refused revert is its problem, which has the results too."""
    query = {"reason": given.get("reason") or None, "ticket": given.get("ticket") or None}
    api = page.api if attempt is None else replace(page.api, request_id=attempt)
    path, body = _request(cluster, selected)
    try:
        answer = await api.send(
            "POST", path, query=query, body={**body, "validateOnly": validate_only}, headers=headers
        )
    except ApiRefusal as refused:
        return {"results": [], "skipped": [], "failed": 1, **refused.problem}
    found: dict[str, Any] = answer.json()
    return {"results": [found], "skipped": [], "failed": 0} if "entity" in selected else found


def _request(cluster: str, selected: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the API's path and body of a revert."""
    if "entity" not in selected:
        return f"/v1/clusters/{cluster}/audit:revert", selected
    return f"/v1/clusters/{cluster}/{selected['facet']}/{selected['entity']}:revert", {"to": selected["to"]}


async def _condition(page: ConsolePage, cluster: str, selected: dict[str, Any]) -> dict[str, str]:
    """Return the headers by which an entity must be as it is now: a return to a moment undoes any later change."""
    if "entity" not in selected:
        return {}
    etag = (await declared_in(page, cluster, selected["facet"], selected["entity"]))["status"]["etag"]
    return {"If-None-Match": "*"} if etag is None else {"If-Match": etag}


async def _checked(
    page: ConsolePage, cluster: str, selected: dict[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """Return the preview of a revert.

    If a rule refuses the revert, and the caller may bypass it, the preview is that past the rules, with the refusal as
    ``detail``. If the caller may only propose the revert of a change, it is that of the proposal.
    """
    found = await _results(page, cluster, selected, given, validate_only=True)
    if _is_refused(found) and proposal.may_bypass_for(page, cluster, _entities(selected, found)):
        past = await _results(page, cluster, selected, given, validate_only=True, headers={_PAST: "a check"})
        if _is_possible(past):
            return {**past, "detail": _refusal(found), "status": found.get("status", 200), "is_refused": True}
    if found.get("kafkaErrorCode") == KafkaCode.CLUSTER_AUTHORIZATION_FAILED and _is_one_change(selected):
        try:
            made = (await proposal.propose(page, _proposal(cluster, selected, {}, found), validate_only=True)).json()
        except ApiRefusal:
            return found  # with the grant that the revert itself lacks
        warnings = [*made["warnings"], *made["requirements"]]
        results = [{**each, "errorMessage": None, "reverts": [], "warnings": []} for each in made["changes"]]
        results[0]["warnings"] = warnings
        return {"results": results, "skipped": [], "failed": 0}
    return found


def _proposal(
    cluster: str, selected: dict[str, Any], given: Mapping[str, str], found: dict[str, Any]
) -> proposal.Proposal:
    """Return a revert as a new change request."""
    body: dict[str, Any] = {"revert": selected["changeId"]}
    if not _is_one_change(selected):
        body = {"edits": [proposal.decided(each) for each in found["results"] if each["diff"]]}
    times = {name: given[name] for name in TIMES if given.get(name)}
    query = {name: given.get(name) or None for name in ("reason", "ticket")}
    return proposal.Proposal(f"/v1/clusters/{cluster}/change-requests", query, {**body, **times}, {})


def _is_one_change(selected: dict[str, Any]) -> bool:
    """Return True if a revert is of one change as a whole."""
    return set(selected) == {"changeId"}


def _entities(selected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [selected["entity"]] if "entity" in selected else [each["id"] for each in found["results"]]


def _is_refused(found: dict[str, Any]) -> bool:
    """Return True if a rule refuses a part of a revert, or all of it."""
    if found.get("is_refused") or found.get("kafkaErrorCode") == KafkaCode.POLICY_VIOLATION:
        return True
    return any(each.get("errorCode") == KafkaCode.POLICY_VIOLATION for each in found["results"])


def _refusal(found: dict[str, Any]) -> str:
    """Return the refusal of a rule."""
    texts = [each["errorMessage"] for each in found["results"] if each.get("errorCode") == KafkaCode.POLICY_VIOLATION]
    refusal: str = found.get("detail") or texts[0]
    return refusal


def _ways(page: ConsolePage, cluster: str, selected: dict[str, Any], found: dict[str, Any]) -> tuple[str, ...]:
    """Return the steps that a preview offers, the one in colour first."""
    has_secrets = any(part.get("secret") for each in found["results"] for part in each["diff"])
    texts = [*(text for each in found["results"] for text in each["warnings"]), found.get("detail") or ""]
    return proposal.ways_of(
        page,
        cluster,
        _entities(selected, found),
        texts,
        is_refused=_is_refused(found),
        is_request=_is_one_change(selected) or not has_secrets,
    )


def _is_possible(found: dict[str, Any]) -> bool:
    """True if nothing is in the way."""
    return not found["failed"]


def _digest(found: dict[str, Any]) -> str:
    """Return what a revert does as one text, to compare two previews."""
    seen = [
        [each["facet"], each["id"], each["diff"], each["reverts"], each.get("laterChanges")]
        for each in found["results"]
    ]
    return hashlib.sha256(orjson.dumps([seen, found["skipped"]])).hexdigest()


async def _preview(
    page: ConsolePage,
    cluster: str,
    selected: dict[str, Any],
    given: Mapping[str, str],
    *,
    is_changed: bool = False,
    done: dict[str, Any] | None = None,
    error: str | None = None,
    status: int = 400,
) -> Response:
    found = done or await _checked(page, cluster, selected, given)
    results = found["results"]
    ways = _ways(page, cluster, selected, found)
    path, body = _request(cluster, selected)
    options = [f"--{_OPTIONS.get(name, name)}={text}" for name, text in selected.items() if name in _SELECTORS]
    options += [f"--key={key}" for key in selected.get("keys", ())] + (["--force"] if "force" in selected else [])
    cli: tuple[str, ...] = ("revert", *options, "--cluster", cluster)
    if "entity" in selected:
        facets = facets_of(selected["entity"])  # of which the command reverts all
        cli = () if len(facets) > 1 else ("revert", selected["entity"], "--to", selected["to"], "--cluster", cluster)
    query: Mapping[str, str | None] = {}
    if "save" not in ways and "propose" in ways:
        path, query, body, _ = _proposal(cluster, selected, given, found)
        cli = ()
    return page.render(
        "revert.html",
        status=found.get("status", 200) if error is None else status,
        cluster=cluster,
        selected=selected,
        only=", ".join(selected.get("keys", ())),
        reason=given.get("reason", ""),
        ticket=given.get("ticket", ""),
        times={name: given.get(name, "") for name in TIMES},
        emergency=emergency_of(given),
        ways=ways,
        error=error or found.get("detail"),
        results=[{**each, **sides(each["diff"]), "later": each.get("laterChanges") or ()} for each in results],
        skipped=found["skipped"],
        possible=_is_possible(found) and any(each["diff"] for each in results),
        is_changed=is_changed,
        is_done=done is not None,
        seen=_digest(found),
        attempt=str(uuid7()),
        command=page.command("POST", path, *cli, query=query, body=body),
    )
