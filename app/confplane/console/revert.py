"""A revert of a change, of a request, or of a principal's changes in a span of time: a preview, then the revert."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter
from uuid_utils import uuid7

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, FormDep, PageDep, redirect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/audit:revert"
_SELECTORS: Final = ("changeId", "requestId", "principal", "since", "until")
_OPTIONS: Final = {"changeId": "change", "requestId": "request-id"}
_UNAUTHENTICATED: Final = 401


@router.get(_PATH)
async def revert_preview(page: PageDep, cluster: str) -> Response:
    """Preview a revert."""
    given = page.request.query_params
    return await _preview(page, cluster, _selected(given), given)


@router.post(_PATH)
async def revert_changes(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Revert, if that still does what the preview showed; otherwise show the preview again."""
    selected = _selected(form)
    before = await _results(page, cluster, selected, form, validate_only=True)
    if _digest(before) != form.get("seen") or not _is_possible(before):
        return await _preview(page, cluster, selected, form, is_changed=True)
    attempt = form.text("attempt") or str(uuid7())
    done = await _results(page, cluster, selected, form, validate_only=False, attempt=attempt)
    if not _is_possible(done):
        return await _preview(page, cluster, selected, form, done=done)
    changes = [each["changeId"] for each in done["results"] if each["changeId"] is not None]
    home = f"/console/clusters/{cluster}/audit"
    if len(changes) == 1:
        return redirect(f"{home}/{changes[0]}?saved=true")
    return redirect(f"{home}?{urlencode({'requestId': page.api.request_id})}")


def _selected(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the API's body of a revert, from an address or a form."""
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
) -> dict[str, Any]:
    """Return the API's answer; that to a refused revert is its problem, which has the results too."""
    query = {"reason": given.get("reason") or None, "ticket": given.get("ticket") or None}
    try:
        answer = await page.api.send(
            "POST",
            f"/v1/clusters/{cluster}/audit:revert",
            query=query,
            body={**selected, "validateOnly": validate_only},
            headers={} if attempt is None else {"Idempotency-Key": attempt},
        )
    except ApiRefusal as refused:
        if refused.status == _UNAUTHENTICATED:
            raise
        return {"results": [], "skipped": [], "failed": 1, **refused.problem}
    found: dict[str, Any] = answer.json()
    return found


def _is_possible(found: dict[str, Any]) -> bool:
    """True if nothing is in the way."""
    return not found["failed"]


def _digest(found: dict[str, Any]) -> str:
    """Return what a revert does as one text, to compare two previews."""
    seen = [[each["facet"], each["id"], each["diff"], each["reverts"]] for each in found["results"]]
    return hashlib.sha256(orjson.dumps(seen)).hexdigest()


async def _preview(
    page: ConsolePage,
    cluster: str,
    selected: dict[str, Any],
    given: Mapping[str, str],
    *,
    is_changed: bool = False,
    done: dict[str, Any] | None = None,
) -> Response:
    found = done or await _results(page, cluster, selected, given, validate_only=True)
    results = found["results"]
    options = [f"--{_OPTIONS.get(name, name)}={text}" for name, text in selected.items() if name in _SELECTORS]
    options += [f"--key={key}" for key in selected.get("keys", ())] + (["--force"] if "force" in selected else [])
    return page.render(
        "revert.html",
        status=found.get("status", 200),
        cluster=cluster,
        selected=selected,
        only=", ".join(selected.get("keys", ())),
        reason=given.get("reason", ""),
        ticket=given.get("ticket", ""),
        error=found.get("detail"),
        results=[
            {
                **each,
                "before": _side(each["diff"], "before"),
                "after": _side(each["diff"], "after"),
                "later": each.get("laterChanges") or (),
            }
            for each in results
        ],
        skipped=found["skipped"],
        possible=_is_possible(found) and any(each["diff"] for each in results),
        is_changed=is_changed,
        is_done=done is not None,
        seen=_digest(found),
        attempt=str(uuid7()),
        command=page.command(
            "POST", f"/v1/clusters/{cluster}/audit:revert", "revert", *options, "--cluster", cluster, body=selected
        ),
    )


def _side(diff: list[dict[str, Any]], side: str) -> dict[str, Any]:
    """Return the values of one side of a diff by key; a secret is None."""
    return {each["key"]: each[side] for each in diff if each[side] is not None or each.get("secret")}
