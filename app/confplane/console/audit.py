"""The audit trail of a cluster: a search of changes and of refused attempts, and one change in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, PageDep
from confplane.domain.change_requests import RequestKind
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/audit"
_SHOWN: Final = 50
_AGE: Final = re.compile(r"^(\d{1,6})\s*([smhd])$")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_FILTERS: Final = ("entity", "key", "principal", "requestId", "since", "until", "outcome", "result")
_OF_CLUSTER: Final = "cluster"
"""The entity of freezes, thaws and layouts, which are not part of the feed."""
_OPTIONS: Final = {"entity", "key", "principal", "since", "until", "outcome"}
"""The filters that `confplane audit` has as well."""


def moment(text: str) -> str:
    """Return a time for the API: an age such as ``30m`` as the time so long ago, anything else as it is."""
    age = _AGE.match(text)
    if age is None:
        return text
    try:
        return rfc3339(datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])}))
    except OverflowError:  # before the year 1
        return text


@router.get(_PATH)
async def trail(page: PageDep, cluster: str) -> Response:
    """The changes, or the refused attempts, that the filters of the address select, newest first."""
    given = page.request.query_params
    search = {name: given.get(name, "").strip() for name in _FILTERS}
    token = given.get("token")
    query = {name: moment(text) if name in {"since", "until"} else text for name, text in search.items() if text}
    path = f"/v1/clusters/{cluster}/audit"
    found: dict[str, Any] = {"items": [], "nextPageToken": None}
    error, status = None, 200
    try:
        found = await page.api.get(path, pageSize=_SHOWN, pageToken=token, **query)
    except ApiRefusal as refused:
        error, status = refused.detail, refused.status
    refused_only = search["result"] == "refused"
    options = [part for name, text in query.items() if name in _OPTIONS for part in (f"--{name}", text)]
    command = page.command(
        "GET", path, "audit", *options, *(("--refused",) if refused_only else ()), "--cluster", cluster, query=query
    )
    chosen = {name: text for name, text in search.items() if text}
    return page.render(
        "audit.html",
        status=status,
        cluster=cluster,
        search=search,
        chosen=chosen,
        revert=_revert(cluster, search),
        refused=refused_only,
        items=[_with_known_states(each) for each in found["items"]],
        next=None if found["nextPageToken"] is None else urlencode({**chosen, "token": found["nextPageToken"]}),
        first=token is None,
        tail=None if error is not None or token is not None else _tail(search),
        error=error,
        command=command,
    )


def _tail(search: dict[str, str]) -> dict[str, str] | None:
    """Return the filters of the live tail of a search; None if new changes do not belong to it."""
    if search["requestId"] or search["until"] or search["result"] == "refused" or search["entity"] == _OF_CLUSTER:
        return None
    if search["outcome"] not in {"", "committed"}:
        return None
    return {"show": "row", **{name: search[name] for name in ("entity", "key", "principal") if search[name]}}


def _revert(cluster: str, search: dict[str, str]) -> str | None:
    """Return the address of the revert of what a search selects, if there is one that reverts just that."""
    others = {name for name, text in search.items() if text}
    parts: dict[str, str] = {}
    if others == {"requestId"}:
        parts = {"requestId": search["requestId"]}
    elif {"principal", "since"} <= others <= {"principal", "since", "until"}:
        until = moment(search["until"]) if search["until"] else rfc3339(datetime.now(UTC))
        parts = {"principal": search["principal"], "since": moment(search["since"]), "until": until}
    return f"/console/clusters/{cluster}/audit:revert?{urlencode(parts)}" if parts else None


@router.get(f"{_PATH}/{{change_id}}")
async def one_change(page: PageDep, cluster: str, change_id: str, saved: str | None = None) -> Response:
    """One change: who, when, why, and each key from what to what."""
    path = f"/v1/clusters/{cluster}/audit/{change_id}"
    change = _with_known_states(await page.api.get(path))
    command = page.command("GET", path, "audit", change_id, "--cluster", cluster)
    undone = (
        change["kind"] == "change"
        and change["outcome"] == "committed"
        and all(each["facet"] != "cluster" for each in change["entities"])  # a freeze or a layout can't be reverted
    )
    return page.render(
        "change.html",
        cluster=cluster,
        change=change,
        saved=saved is not None,
        past=await _past(page, cluster, change["applies"]),
        siblings=await _siblings(page, cluster, change),
        revert=f"/console/clusters/{cluster}/audit:revert?{urlencode({'changeId': change_id})}" if undone else None,
        command=command,
    )


def _with_known_states(item: dict[str, Any]) -> dict[str, Any]:
    """Return a change in which a state that the cluster does not have is absent, as a key is; null is for secrets."""
    entities = [
        {
            **each,
            **{
                side: {key: value for key, value in each[side].items() if value is not None}
                for side in ("before", "after")
            },
        }
        if each["facet"] == "cluster"
        else each
        for each in item.get("entities", ())
    ]
    return {**item, "entities": entities}


async def _past(page: ConsolePage, cluster: str, request_id: str | None) -> dict[str, Any] | None:
    """Return the request of a change that was made past the rules; None for other changes."""
    if request_id is None:
        return None
    try:
        found: dict[str, Any] = await page.api.get(f"/v1/clusters/{cluster}/change-requests/{request_id}")
    except ApiRefusal:
        return None
    return found if found["kind"] == RequestKind.BREAK_GLASS else None


async def _siblings(page: ConsolePage, cluster: str, change: dict[str, Any]) -> int:
    """Return how many changes the same request made, up to a page."""
    try:
        found = await page.api.get(f"/v1/clusters/{cluster}/audit", requestId=change["requestId"], pageSize=_SHOWN)
    except ApiRefusal:
        return 0
    return len(found["items"])
