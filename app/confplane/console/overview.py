"""The overview: all clusters with health, mode, drift, the changes of the last day, and their freezes."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, FormDep, PageDep, redirect
from confplane.console.rights import allowed
from confplane.domain.access.operations import Operation

router = APIRouter()

_HOURS: Final = 24
_COUNTED: Final = 500
"""Changes of the last day that are counted; further ones are "500 or more"."""
_DRIFT: Final = 100


@router.get("/console/")
async def overview(page: PageDep) -> Response:
    """All clusters. What takes a search is loaded afterwards, for each cluster."""
    return await _page(page)


@router.post("/console/clusters/{cluster}/freeze")
async def change_freeze(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Freeze or thaw a cluster."""
    if (step := form.get("step")) not in {"freeze", "thaw"}:
        raise HTTPException(400, "The form is not complete")
    try:
        await page.api.send("POST", f"/v1/clusters/{cluster}:{step}", body={"reason": form.get("reason", "")})
    except ApiRefusal as refused:
        return await _page(page, error=refused.detail, status=refused.status)
    return redirect("/console/")


async def _page(page: ConsolePage, *, error: str | None = None, status: int = 200) -> Response:
    listed = (await page.api.get("/v1/clusters"))["items"]
    clusters = [await page.api.get(f"/v1/clusters/{each['name']}") for each in listed]
    command = page.command("GET", "/v1/clusters", "clusters")
    described = [each["name"] for each in clusters if "connected" in each]
    freezable = {name for name in described if "cluster" in allowed(page.caller, name, Operation.FREEZE)}
    return page.render(
        "overview.html",
        status=status,
        items=clusters,
        described=described,
        freezable=freezable,
        error=error,
        command=command,
    )


@router.get("/console/clusters/{cluster}/activity")
async def activity(page: PageDep, cluster: str) -> Response:
    """The drift and the changes of the last day of one cluster, as cells of the table."""
    changes, drift = await asyncio.gather(_changes(page, cluster), _drift(page, cluster))
    return page.partial("activity.html", changes=changes, drift=drift, cluster=cluster)


async def _changes(page: PageDep, cluster: str) -> dict[str, Any]:
    """Return the changes of the last day by hour, the newest hour last."""
    now = datetime.now(UTC)
    since = now - timedelta(hours=_HOURS)
    found = await page.api.get(
        f"/v1/clusters/{cluster}/audit", since=since.strftime("%Y-%m-%dT%H:%M:%SZ"), pageSize=_COUNTED
    )
    times = [datetime.fromisoformat(each["createdAt"]) for each in found["items"]]
    hours = Counter(min(_HOURS - 1, int((now - time) / timedelta(hours=1))) for time in times)
    bars = [hours[_HOURS - 1 - hour] for hour in range(_HOURS)]
    return {"count": len(times), "more": found["nextPageToken"] is not None, "bars": bars, "highest": max(bars)}


async def _drift(page: PageDep, cluster: str) -> dict[str, Any] | None:
    """Return the entities that differ from the Kafka cluster; None if there is none to compare with."""
    try:
        found = await page.api.get(f"/v1/clusters/{cluster}/drift", pageSize=_DRIFT)
    except ApiRefusal:
        return None
    return {"count": len(found["items"]), "more": found["nextPageToken"] is not None}
