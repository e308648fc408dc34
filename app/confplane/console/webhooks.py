"""Webhooks: the list, a form for a new one, and one webhook with its deliveries and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter

from confplane.console.api import ApiAnswer, ApiRefusal, TokenRefusedError
from confplane.console.entities import FACETS
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect, whole_number
from confplane.console.rights import may_use
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.entities import EntityType

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/webhooks"
_FILTERS: Final = ("facet", "entityType", "entity", "user", "prefix", "key", "principal", "requests")
_CHOICES: Final = {
    "formats": {"cloudevents": "CloudEvents, for programs", "slack": "Slack", "teams": "Teams"},
    "facets": tuple(FACETS),
    "entity_types": tuple(each.value for each in EntityType),
    "filters": _FILTERS,
    "request_events": {"include": "also events of change requests", "only": "only events of change requests"},
}
_MAX_HOURS: Final = 168
_CREATED: Final = {"If-None-Match": "*"}


@router.get(_PATH)
async def webhooks(page: PageDep, cluster: str) -> Response:
    """The webhooks that the caller may see, and a form for a new one."""
    return await _list(page, cluster)


@router.post(_PATH)
async def create_webhook(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Create a webhook. Its signing secret is in this answer, and in no other."""
    name = form.get("name", "")
    try:
        answer = await page.api.send(
            "PUT", _api_path(cluster, name), query=_why(form), body=_content(form), headers=_CREATED
        )
    except ApiRefusal as refused:
        return await _list(page, cluster, form=form, error=_words(refused), status=refused.status)
    if "secret" not in answer.json():
        return redirect(_console_path(cluster, name))
    return await _one(page, cluster, name, stored=answer)


@router.get(f"{_PATH}/{{name}}")
async def webhook(page: PageDep, cluster: str, name: str, resumed: str | None = None) -> Response:
    """One webhook: its content, its state, its last deliveries."""
    message = None if resumed is None else "The webhook was resumed. The next event is sent now."
    return await _one(page, cluster, name, message=message)


@router.post(f"{_PATH}/{{name}}")
async def change_webhook(page: PageDep, form: FormDep, cluster: str, name: str) -> Response:
    """One step: save the form, send a sample, resume, replace the secret, hand over, or remove."""
    try:
        shown = await _step(page, form, cluster, name)
    except ValueError as error:
        return await _one(page, cluster, name, form=form, error=str(error), status=400)
    except ApiRefusal as refused:
        return await _one(page, cluster, name, form=form, error=_words(refused), status=refused.status)
    return redirect(shown) if isinstance(shown, str) else await _one(page, cluster, name, **shown)


async def _step(page: ConsolePage, form: FormFields, cluster: str, name: str) -> str | dict[str, Any]:
    """Do a step, and return the address that follows, or what the page shows this once."""
    path, here, why = _api_path(cluster, name), _console_path(cluster, name), _why(form)
    condition = {"If-Match": form.get("etag", "")}
    shown: str | dict[str, Any] = here
    match form.get("step", ""):
        case "save":
            answer = await page.api.send("PUT", path, query=why, body=_content(form), headers=condition)
            shown = {"stored": answer, "message": "Saved."}
        case "test":
            answer = await page.api.send("POST", f"{path}:test", query=why)
            shown = {"tested": answer.json()["delivery"]}
        case "resume":
            await page.api.send("POST", f"{path}:resume", query=why)
            shown = f"{here}?resumed=true"
        case "rotate":
            body = {"overlapSeconds": whole_number(form, "overlap", "Hours", 0, _MAX_HOURS) * 3_600}
            answer = await page.api.send("POST", f"{path}:rotate", query=why, body=body)
            shown = {"stored": answer}
        case "assign":
            await page.api.send("POST", f"{path}:assign", query=why, body={"owner": form.get("owner", "")})
        case "delete":
            await page.api.send("DELETE", path, query=why, headers=condition)
            shown = _PATH.format(cluster=cluster)
    return shown


def _api_path(cluster: str, name: str) -> str:
    return f"/v1/clusters/{cluster}/webhooks/{name}"


def _console_path(cluster: str, name: str) -> str:
    return f"{_PATH.format(cluster=cluster)}/{name}"


def _why(form: FormFields) -> dict[str, Any]:
    return {"reason": form.text("reason"), "ticket": form.text("ticket")}


def _content(form: FormFields) -> dict[str, Any]:
    """Return the API's body of a webhook. An empty URL keeps that of an existing one."""
    given = {name: form.text(name) for name in _FILTERS}
    return {
        "url": form.text("url"),
        "format": form.get("format", "cloudevents"),
        "filter": {name: text for name, text in given.items() if text is not None},
        "note": form.text("note"),
    }


def _words(refused: ApiRefusal) -> str:
    """Return the message of the API, and its messages about each field."""
    errors = refused.problem.get("errors", ())
    return " ".join(dict.fromkeys((refused.detail, *(each["detail"] for each in errors if "detail" in each))))


async def _list(
    page: ConsolePage, cluster: str, *, form: FormFields | None = None, error: str | None = None, status: int = 200
) -> Response:
    path = f"/v1/clusters/{cluster}/webhooks"
    items = (await page.api.get(path))["items"]
    return page.render(
        "webhooks.html", status=status, cluster=cluster, items=items, form=form or FormFields(), error=error,
        alters=_alters(page, cluster), command=page.command("GET", path, "webhooks", "list", "--cluster", cluster),
        **_CHOICES,
    )  # fmt: skip


async def _one(
    page: ConsolePage,
    cluster: str,
    name: str,
    *,
    stored: ApiAnswer | None = None,
    form: FormFields | None = None,
    status: int = 200,
    **shown: Any,
) -> Response:
    """Return the page of a webhook: as the answer to a write has it, or as it is stored."""
    path = _api_path(cluster, name)
    answer = stored or await page.api.send("GET", path)
    found = answer.json()
    try:
        deliveries = (await page.api.get(f"{path}/deliveries"))["items"]
    except (ApiRefusal, TokenRefusedError):
        if "secret" not in found:
            raise
        deliveries = []  # nothing else has the secret, so it is shown
    if form is None or form.get("step") != "save":
        given = {each: text for each, text in found["filter"].items() if text is not None}
        form = FormFields({**given, "format": found["format"], "note": found["note"] or ""})
    command = page.command("GET", path, "webhooks", "show", name, "--cluster", cluster)
    return page.render(
        "webhook.html", status=status, cluster=cluster, webhook=found, etag=answer.headers["etag"], form=form,
        deliveries=deliveries, alters=_alters(page, cluster), command=command, **_CHOICES,
        secret=found.get("secret"), **{"tested": None, "message": None, "error": None, **shown},
    )  # fmt: skip


def _alters(page: ConsolePage, cluster: str) -> bool:
    return may_use(page.caller, cluster, ResourceType.WEBHOOKS, Operation.ALTER)
