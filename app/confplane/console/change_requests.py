"""Change requests: the list, and one request with its diff, its approvals, and the forms of reviewers and authors."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from uuid_utils.compat import uuid7

from confplane.console.api import ApiRefusal
from confplane.console.edit_form import TIMES, line_ends
from confplane.console.impact import impact_of
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect
from confplane.console.rights import allowed
from confplane.console.texts import sides
from confplane.domain.access.identities import Authentication
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.access.ranges import spell
from confplane.domain.change_requests import TRANSITIONS, RequestAction, RequestKind, RequestState
from confplane.domain.entities import split_id
from confplane.domain.facets import FacetName
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/requests"
_LISTED: Final = 50
_PENDING: Final = frozenset({RequestState.OPEN, RequestState.APPROVED, RequestState.SCHEDULED, RequestState.FAILED})
"""The states in which the change of a request is still to come."""
_APPLICABLE: Final = frozenset({RequestState.APPROVED, RequestState.PARTLY_APPLIED})
_COMPARED: Final = 5
"""Changes of a request whose impact is shown."""
_SEARCHED: Final = 500
"""Changes that are searched for those of a request past the rules."""
_LONGEST_WRITE: Final = timedelta(minutes=5)
"""The time in which such a request makes its changes."""
_AWAITING: Final = "awaiting"
"""Instead of a state: open requests that the caller may approve."""
_VALUE: Final = "value "
"""The beginning of the names of fields with sensitive values, which keep their surrounding spaces."""
_COMMENTED: Final = frozenset({"reject", "cancel", "comment"})
_STEPS: Final = _COMMENTED | {"approve", "apply", "revise", "revert"}
_TYPED: Final = ("comment", "reason", "ticket", "partly", *TIMES)
"""The fields that keep what a person typed if a step is refused."""


@router.get(_PATH)
async def change_requests(page: PageDep, cluster: str) -> Response:
    """The requests that the filters of the address select, newest first."""
    given = page.request.query_params
    search = {name: given.get(name, "").strip() for name in ("state", "entity")}
    chosen = {name: text for name, text in search.items() if text}
    token = given.get("token")
    path = f"/v1/clusters/{cluster}/change-requests"
    query = {**chosen, "state": RequestState.OPEN.value} if search["state"] == _AWAITING else chosen
    found: dict[str, Any] = {"items": [], "nextPageToken": None}
    error, status = None, 200
    try:
        found = await page.api.get(path, pageSize=_LISTED, pageToken=token, **query)
    except ApiRefusal as refused:
        error, status = refused.detail, refused.status
    items = found["items"]
    following = found["nextPageToken"]
    options = [part for name, text in query.items() for part in (f"--{name}", text)]
    return page.render(
        "change_requests.html",
        status=status,
        cluster=cluster,
        search=search,
        chosen=chosen,
        states=[each.value for each in RequestState],
        items=awaiting_approval(page, cluster, items) if search["state"] == _AWAITING else items,
        next=None if following is None else urlencode({**chosen, "token": following}),
        error=error,
        command=page.command("GET", path, "requests", "list", *options, "--cluster", cluster, query=query),
    )


@router.get(f"{_PATH}/{{request_id}}")
async def change_request(page: PageDep, cluster: str, request_id: str, *, revised: str | None = None) -> Response:
    """One request."""
    return await _one(page, cluster, request_id, is_revised=revised is not None)


@router.get(f"{_PATH}/{{request_id}}/impact")
async def impact(page: PageDep, cluster: str, request_id: str) -> Response:
    """The registered clients that would see other values, as a part of the page of a request."""
    changes = (await page.api.get(_api_path(cluster, request_id)))["changes"]
    impacts = []
    for each in changes[:_COMPARED]:
        after = {part["key"]: part["after"] for part in each["diff"] if part["after"] is not None}
        keys, made = [part["key"] for part in each["diff"]], None
        if each["facet"] != FacetName.CONFIGS:
            try:
                made = await impact_of(page, cluster, each["facet"], each["id"], keys, after)
            except ApiRefusal:
                continue  # the caller may not see what clients have
        impacts.append((each["id"], each["facet"], made))
    return page.partial(
        "change_request_impact.html",
        impacts=impacts,
        more=max(0, len(changes) - _COMPARED),
        default=lambda entity_id: any(name is None for _, name in split_id(entity_id)),
    )


@router.post(f"{_PATH}/{{request_id}}")
async def review_change_request(page: PageDep, form: FormDep, cluster: str, request_id: str) -> Response:
    """One step: approve, reject, comment, cancel, apply, decide again, or propose the revert."""
    step = form.get("step", "")
    if step not in _STEPS:
        raise HTTPException(400, "The form is not complete")
    body: dict[str, Any] = {}
    query: dict[str, str | None] = {}
    if step == "approve":
        body = {"digest": form.get("digest", ""), "comment": form.text("comment")}
    elif step in _COMMENTED:
        body = {"comment": form.get("comment", "") if step == "comment" else form.text("comment")}
    elif step == "apply":
        body = {"values": list(_supplied(form))}
    elif step == "revise":
        body = {name: form.text(name) for name in TIMES if name in form and form[name] != form.get(f"{name} shown")}
    elif step == "revert":
        body = {"partly": "partly" in form, **{name: text for name in TIMES if (text := form.text(name)) is not None}}
        query = {name: form.text(name) for name in ("reason", "ticket")}
    headers = {"If-Match": form.get("etag", "")} if step == "revise" else {}
    if step == "revert":
        headers = {"Idempotency-Key": form.text("attempt") or str(uuid7())}
    path = f"{_api_path(cluster, request_id)}:{step}"
    try:
        done = await page.api.send("POST", path, query=query, body=body, headers=headers)
    except ApiRefusal as refused:
        typed = {"step": step, **{name: form[name] for name in _TYPED if name in form}}
        return await _one(page, cluster, request_id, error=refused.detail, typed=typed, status=refused.status)
    home = f"{_PATH.format(cluster=cluster)}/{done.json()['id']}"  # of the new request if a revert was proposed
    return redirect(f"{home}?revised=true" if step == "revise" else home)


def _api_path(cluster: str, request_id: str) -> str:
    return f"/v1/clusters/{cluster}/change-requests/{request_id}"


def _supplied(form: FormFields) -> Iterable[dict[str, str]]:
    """Yield the sensitive values of a form, with the line ends that Kafka has."""
    for name, text in form.items():
        if name.startswith(_VALUE):
            entity_id, _, key = name.removeprefix(_VALUE).partition(" ")
            yield {"id": entity_id, "key": key, "value": line_ends(text)}


async def _one(
    page: ConsolePage,
    cluster: str,
    request_id: str,
    *,
    error: str | None = None,
    typed: Mapping[str, str] = MappingProxyType({}),
    status: int = 200,
    is_revised: bool = False,
) -> Response:
    path = _api_path(cluster, request_id)
    answer = await page.api.send("GET", path)
    request = answer.json()
    is_past = request["kind"] == RequestKind.BREAK_GLASS
    return page.render(
        "change_request.html",
        status=status,
        cluster=cluster,
        proposal=request,
        etag=answer.headers["etag"],
        changes=[{**each, **sides(each["diff"])} for each in request["changes"]],
        differences=[_difference(each) for each in request["differences"]],
        steps=_steps(page.caller, cluster, request),
        is_past=is_past,
        written=await _written(page, cluster, request) if is_past else [],
        revised=is_revised,
        is_pending=not is_past and request["state"] in _PENDING,
        typed=typed,
        attempt=str(uuid7()),
        error=error,
        command=page.command("GET", path, "requests", "show", request_id, "--cluster", cluster),
    )


async def _written(page: ConsolePage, cluster: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes that were made past the rules, as the audit trail has them."""
    began = datetime.fromisoformat(request["createdAt"])
    given = {"principal": request["author"]["principal"], "since": request["createdAt"],
             "until": rfc3339(began + _LONGEST_WRITE)}  # fmt: skip
    try:
        found = await page.api.get(f"/v1/clusters/{cluster}/audit", pageSize=_SEARCHED, **given)
    except ApiRefusal:
        return []
    return [each for each in found["items"] if each["applies"] == request["id"]]


def _difference(difference: dict[str, Any]) -> dict[str, Any]:
    keys = difference["keys"]
    return {
        **difference,
        "before": {each["key"]: each["decided"] for each in keys if each["decided"] is not None},
        "after": {each["key"]: each["now"] for each in keys if each["now"] is not None},
    }


def awaiting_approval(page: ConsolePage, cluster: str, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the requests that the caller may approve and has not approved yet."""
    principal = page.caller["principal"]
    return [
        each
        for each in items
        if may_approve(page.caller, cluster, each)
        and not any(given["principal"] == principal for given in each["approvals"])
    ]


def is_own(page: ConsolePage, request: dict[str, Any]) -> bool:
    """Return True if the caller is the author of the present content of a request."""
    return page.caller["principal"] in _authors({"author": request["author"]})


def may_approve(caller: Mapping[str, Any], cluster: str, request: Mapping[str, Any]) -> bool:
    """Return True if a caller may alter an entity of a request, and has another name than its authors."""
    if caller["authenticatedBy"] == Authentication.ADMIN_TOKEN:
        return False  # it belongs to the service, and not to a person
    names = {caller["principal"], caller["owner"]} - {None}
    alterable = allowed(caller, cluster, Operation.ALTER_CONFIGS)
    return not names & _authors(request) and any(each in alterable for each in request["entities"])


def _authors(request: Mapping[str, Any]) -> set[str]:
    return {
        each[name] for each in request.get("authors", [request["author"]]) for name in ("principal", "behalfOf")
    } - {None}


def _steps(caller: Mapping[str, Any], cluster: str, request: Mapping[str, Any]) -> set[str]:
    """Return the steps that the state of a request allows, and for which the caller's grants are of use."""
    entities = request["entities"]
    alterable = allowed(caller, cluster, Operation.ALTER_CONFIGS)
    proposable = allowed(caller, cluster, Operation.PROPOSE)
    readable = allowed(caller, cluster, Operation.DESCRIBE_CONFIGS)
    first = request.get("authors", [request["author"]])[0]
    managed = spell(ResourceType.CHANGE_REQUESTS, first["principal"]) in allowed(caller, cluster, Operation.ALTER)
    may_alter_some = any(each in alterable for each in entities)
    may_propose_all = all(each in proposable and each in readable for each in entities)
    is_author = caller["principal"] in _authors(request)
    is_author_now = caller["principal"] in _authors({"author": request["author"]})
    rights = {
        "comment": managed or may_alter_some or any(each in proposable for each in entities),
        "approve": may_approve(caller, cluster, request),
    }
    if request["kind"] == RequestKind.CHANGE:
        rights |= {
            "reject": managed or may_alter_some,
            "cancel": managed or is_author,
            "apply": all(each in proposable or each in alterable for each in entities)
            and (is_author_now or all(each["id"] in alterable for each in request["toSupply"])),
            "revise": may_propose_all,
            "revert": may_propose_all and request["changeId"] is not None,
        }
    possible = {"comment", *TRANSITIONS[RequestState(request["state"])]}
    if RequestAction.BEGIN in possible and request["state"] in _APPLICABLE:
        possible.add("apply")
    if RequestAction.SUBMIT in possible:
        possible |= {"revise", "cancel"}
    return {step for step, right in rights.items() if right and step in possible}
