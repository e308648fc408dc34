"""Access: the caller's own grants, who may do what, and the tokens and grants that an administrator manages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter

from confplane.console.api import ApiRefusal, TokenRefusedError
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect, whole_number
from confplane.domain.access.operations import Operation, ResourceType, Role
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/access"
_MAX_DAYS: Final = 36_500
_MAX_HOURS: Final = 720
_CHOICES: Final = {
    "operations": tuple(each.value for each in Operation),
    "resource_types": tuple(each.value for each in ResourceType),
    "roles": tuple(each.value for each in Role),
}


@router.get(_PATH)
async def my_access(page: PageDep, cluster: str) -> Response:
    """The caller: its principal, groups, limits and grants."""
    caller = await page.api.get("/v1/whoami")
    command = page.command("GET", "/v1/whoami", "whoami")
    return page.render("access.html", cluster=cluster, view="mine", caller=caller, command=command)


@router.get(f"{_PATH}/who")
async def who_may(
    page: PageDep, cluster: str, *, principal: str = "", group: str = "", resource: str = "", operation: str = ""
) -> Response:
    """The grants of a principal or a group, or who may do an operation on a resource."""
    path = f"/v1/clusters/{cluster}/access"
    query = {"principal": principal.strip(), "group": group.strip(), "resource": resource.strip()}
    asked = {name: text for name, text in query.items() if text}
    if "resource" in asked:
        asked["operation"] = operation or Operation.ALTER_CONFIGS
    items, error, status = None, None, 200
    if asked:
        try:
            items = (await page.api.get(path, **asked))["items"]
        except ApiRefusal as refused:
            error, status = refused.detail, refused.status
    cli = [part for name in ("principal", "group") if name in asked for part in (f"--{name}", asked[name])]
    command = page.command(
        "GET", path, *(("grants", "show", *cli, "--cluster", cluster) if cli else ()), query=asked or None
    )
    return page.render(
        "access_who.html", status=status, cluster=cluster, view="who", asked=query, operation=operation, items=items,
        error=error, command=command, **_CHOICES,
    )  # fmt: skip


@router.get(f"{_PATH}/tokens")
async def tokens(page: PageDep, cluster: str, principal: str = "", token: str | None = None) -> Response:
    """The tokens that the caller may see, and a form for a new one."""
    return await _tokens(page, cluster, principal=principal, token=token)


@router.post(f"{_PATH}/tokens")
async def change_tokens(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Create, rotate or revoke a token. A secret is in this answer, and in no other."""
    query = {"reason": form.text("reason"), "ticket": form.text("ticket")}
    token_id, step = form.get("id", ""), form.get("step", "create")
    made = None
    try:
        if step == "revoke":
            created = "true" if "withCreated" in form else None
            await page.api.send("DELETE", f"/v1/tokens/{token_id}", query={**query, "withCreated": created})
            return redirect(f"/console/clusters/{cluster}/access/tokens")
        if step == "rotate":
            body: dict[str, Any] = {"overlapSeconds": whole_number(form, "overlap", "Hours", 0, _MAX_HOURS) * 3_600}
            answer = await page.api.send("POST", f"/v1/tokens/{token_id}:rotate", query=query, body=body)
        else:
            answer = await page.api.send("POST", "/v1/tokens", query=query, body=_new_token(form))
        made = answer.json()
    except ValueError as error:
        return await _tokens(page, cluster, form=form, error=str(error), status=400)
    except ApiRefusal as refused:
        return await _tokens(page, cluster, form=form, error=refused.detail, status=refused.status)
    return await _tokens(page, cluster, made=made)


def _new_token(form: FormFields) -> dict[str, Any]:
    """Return the API's body of a new token."""
    ends = None
    if form.text("days") is not None:
        ends = rfc3339(datetime.now(UTC) + timedelta(days=whole_number(form, "days", "Days", 1, _MAX_DAYS)))
    narrowing = {
        "readOnly": "readOnly" in form,
        "clusters": [form["limit"]] if form.text("limit") else None,
        "operations": [each for each in _CHOICES["operations"] if f"operation {each}" in form] or None,
    }
    return {
        "principal": form.get("principal", ""),
        "groups": form.get("groups", "").replace(",", " ").split(),
        "note": form.text("note"),
        "expiresAt": ends,
        "narrowing": narrowing if any(narrowing.values()) else None,
    }


async def _tokens(
    page: ConsolePage,
    cluster: str,
    *,
    principal: str = "",
    token: str | None = None,
    form: FormFields | None = None,
    made: dict[str, Any] | None = None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    found: dict[str, Any] = {"items": [], "nextPageToken": None}
    unlisted = None
    try:
        found = await page.api.get("/v1/tokens", principal=principal or None, pageToken=token)
    except (ApiRefusal, TokenRefusedError) as refused:
        if made is None:
            raise
        # Nothing else has the secret, so it is shown without the list, also if the session's own token was rotated.
        unlisted = refused.detail
    cli = ("tokens", "list", *(("--principal", principal) if principal else ()))
    return page.render(
        "access_tokens.html", status=status, cluster=cluster, view="tokens", items=found["items"], **_CHOICES,
        next=found["nextPageToken"], principal=principal, form=form or FormFields(), made=made, error=error,
        unlisted=unlisted, command=page.command("GET", "/v1/tokens", *cli, query={"principal": principal or None}),
    )  # fmt: skip


@router.get(f"{_PATH}/grants")
async def grants(page: PageDep, cluster: str, principal: str = "", token: str | None = None) -> Response:
    """The grants that the caller may see, and a form for a new one."""
    return await _grants(page, cluster, principal=principal, token=token)


@router.post(f"{_PATH}/grants")
async def change_grants(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Add or remove a grant."""
    query = {"reason": form.text("reason"), "ticket": form.text("ticket")}
    try:
        if form.get("step") == "remove":
            await page.api.send("DELETE", f"/v1/grants/{form.get('id', '')}", query=query)
        else:
            await page.api.send("POST", "/v1/grants", query=query, body=_new_grant(form))
    except ApiRefusal as refused:
        return await _grants(page, cluster, form=form, error=refused.detail, status=refused.status)
    return redirect(f"/console/clusters/{cluster}/access/grants")


def _new_grant(form: FormFields) -> dict[str, Any]:
    """Return the API's body of a new grant."""
    kind, _, what = form.get("what", "").partition(" ")
    name = form.text("name")
    return {
        "principal": form.get("principal", ""),
        "permission": "deny" if "deny" in form else "allow",
        "cluster": form.text("cluster"),
        "operation": what if kind == "operation" else None,
        "role": what if kind == "role" else None,
        "resourceType": form.text("resourceType"),
        "patternType": None if name is None else "prefixed" if "prefixed" in form else "literal",
        "name": name,
        "note": form.text("note"),
    }


async def _grants(
    page: ConsolePage,
    cluster: str,
    *,
    principal: str = "",
    token: str | None = None,
    form: FormFields | None = None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    found = await page.api.get("/v1/grants", principal=principal or None, pageToken=token)
    cli = ("grants", "list", *(("--principal", principal) if principal else ()))
    return page.render(
        "access_grants.html", status=status, cluster=cluster, view="grants", items=found["items"],
        next=found["nextPageToken"], principal=principal, form=form or FormFields(), error=error,
        command=page.command("GET", "/v1/grants", *cli, query={"principal": principal or None}), **_CHOICES,
    )  # fmt: skip
