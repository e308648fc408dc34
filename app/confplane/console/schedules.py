"""Scheduled work: ends of temporary changes, and change requests that are applied at their times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, FormDep, PageDep, redirect
from confplane.console.rights import allowed
from confplane.domain.access.operations import Operation
from confplane.domain.change_requests import RequestState

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/schedules"
_SHOWN: Final = 100


@router.get(_PATH)
async def schedules(page: PageDep, cluster: str, ended: str = "", token: str | None = None) -> Response:
    """The temporary changes that have not ended, or those that have, and the requests with a time."""
    return await _page(page, cluster, ended=bool(ended), token=token)


@router.post(_PATH)
async def change_schedules(page: PageDep, form: FormDep, cluster: str) -> Response:
    """End a temporary change now, or pause or resume the ends of all."""
    base = f"/v1/clusters/{cluster}/schedules"
    steps: dict[str, tuple[str, Any]] = {
        "end": (f"{base}/{form.get('change', '')}:end", None),
        "pause": (f"{base}:pause", {"reason": form.get("reason", "")}),
        "resume": (f"{base}:resume", None),
    }
    if form.get("step") not in steps:
        raise HTTPException(400, "The form is not complete")
    path, body = steps[form["step"]]
    query = {"reason": form.text("reason")} if form["step"] == "end" else None
    try:
        await page.api.send("POST", path, query=query, body=body)
    except ApiRefusal as refused:
        return await _page(page, cluster, error=refused.detail, status=refused.status)
    return redirect(_PATH.format(cluster=cluster))


async def _page(
    page: ConsolePage,
    cluster: str,
    *,
    ended: bool = False,
    token: str | None = None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    path = f"/v1/clusters/{cluster}/schedules"
    query = {"ended": "true" if ended else None}
    found = await page.api.get(path, pageSize=_SHOWN, pageToken=token, **query)
    requests: list[dict[str, Any]] = []
    if not ended and token is None:
        requests = await _with_time(page, cluster)
    alterable = allowed(page.caller, cluster, Operation.ALTER_CONFIGS)
    now = datetime.now(UTC)
    items = [
        {
            **each,
            "due": datetime.fromisoformat(each["revertAt"]) <= now,
            "may_end": not ended and all(one in alterable for one in each["entities"]),
        }
        for each in found["items"]
    ]
    return page.render(
        "schedules.html",
        status=status,
        cluster=cluster,
        items=items if ended else sorted(items, key=lambda each: each["revertAt"]),
        requests=requests,
        pause=found["pause"],
        may_pause="cluster" in allowed(page.caller, cluster, Operation.FREEZE),
        ended=ended,
        next=found["nextPageToken"],
        error=error,
        command=page.command("GET", path, "schedules", "list", *(("--ended",) if ended else ()), "--cluster", cluster,
                             query=query),
    )  # fmt: skip


async def _with_time(page: ConsolePage, cluster: str) -> list[dict[str, Any]]:
    """Return the requests that are applied at a time once they are approved, the next one first."""
    found = []
    for state in (RequestState.SCHEDULED, RequestState.OPEN):
        try:
            part = await page.api.get(f"/v1/clusters/{cluster}/change-requests", state=state.value, pageSize=_SHOWN)
        except ApiRefusal:
            continue
        found += [each for each in part["items"] if each["applyAt"] is not None]
    return sorted(found, key=lambda each: str(each["applyAt"]))
