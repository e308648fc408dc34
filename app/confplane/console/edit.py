"""The steps that change one entity: the form, the review, and saving or proposing what was reviewed.

A review is of one ETag, and saving it fails if the entity has another one by then; the review is then shown again.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uuid_utils import uuid7

from confplane.console import proposal
from confplane.console.api import ApiAnswer, ApiRefusal
from confplane.console.edit_form import DURATIONS, QUOTAS, Definitions, EntityEdit, new_field, read_edit
from confplane.console.entities import FACETS, facets_of
from confplane.console.entity import SOURCES, declared_in
from confplane.console.impact import impact_of
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect
from confplane.console.texts import ShellCommand, entity_title, plain
from confplane.domain.entities import split_id

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/entities/{entity_id}/edit/{facet}"
_CHANGED: Final = 412


@router.get(_PATH)
async def edit_form(
    page: PageDep, cluster: str, facet: str, entity_id: str, *, key: str = "", revises: str = ""
) -> Response:
    """The form, with the keys that are set, one more if the address names it, and the values of a change request."""
    now, etag, definitions = await _current(page, cluster, facet, entity_id)
    edit = EntityEdit(facet, entity_id, etag)
    edit.fill(now, definitions)
    if revises:
        found = await proposal.revisable(page, cluster, revises)
        edit.revises, edit.request_etag = revises, found.headers["etag"]
        for each in found.json()["changes"]:
            if (each["facet"], each["id"]) == (facet, entity_id):
                edit.take(each["diff"], definitions)
    if key and key not in edit.fields:
        edit.fields[key] = new_field(facet, key, definitions)
    return _form_page(page, cluster, edit, definitions)


@router.post(_PATH)
async def edit_step(page: PageDep, form: FormDep, cluster: str, facet: str, entity_id: str) -> Response:
    """One step with the form: a further key, a review, or saving what was reviewed."""
    now, etag, definitions = await _current(page, cluster, facet, entity_id)
    edit = read_edit(form, facet, entity_id, definitions)
    step = "add" if form.text("add") else form.get("step", "review")
    if step in {"add", "edit"}:
        return _form_page(page, cluster, edit, definitions, focus=form.get("add", ""))
    refused, error = None, None
    try:
        if step == "break-glass" and not edit.emergency:
            error = proposal.NO_REASON
        elif step in {"save", "propose", "break-glass"}:
            done = await _done(page, cluster, edit, etag, form)
            if isinstance(done, Response):
                return done
            refused = done
            now, etag, definitions = await _current(page, cluster, facet, entity_id)
        if etag != edit.etag:
            edit.rebase(now, etag, definitions)
        wanted = edit.merged(now)
        if wanted == now and edit.changed is None:
            return _form_page(page, cluster, edit, definitions, error="Nothing is different from what is set now.")
        return await _review(page, cluster, edit, now, wanted, refused=refused, error=error)
    except ValueError:
        return _form_page(page, cluster, edit, definitions, error="Some values can't be used; see below.", status=400)
    except ApiRefusal as other:
        error = _explain(edit, other.problem)
        return _form_page(page, cluster, edit, definitions, error=error, status=other.status)


async def _done(
    page: ConsolePage, cluster: str, edit: EntityEdit, etag: str | None, form: FormFields
) -> Response | ApiRefusal | None:
    """Write or propose what was reviewed, whatever is set by now: a form that is sent again repeats the request.

    Returns:
        The response; a refusal that another review shows; or None if the entity was changed since the review.

    Raises:
        ValueError: A value can't be used.
        ApiRefusal: The change was refused.
    """
    reviewed, attempt = edit.merged(edit.shown()), form.text("attempt") or str(uuid7())
    is_proposal = form["step"] == "propose"
    if form["step"] != "break-glass":
        edit.emergency = ""
    try:
        if is_proposal:
            return await _propose(page, cluster, edit, reviewed, attempt, is_late=etag != edit.etag)
        return await _save(page, cluster, edit, reviewed, attempt)
    except ApiRefusal as refused:
        if refused.status == _CHANGED and not is_proposal:
            return None
        if is_proposal or proposal.is_by_rules(refused):
            return refused
        raise


async def _save(page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any], attempt: str) -> Response:
    """Save a reviewed change, and lead to it; sent again, the form has it done once."""
    answer = await _write(page, cluster, edit, wanted, attempt=attempt)
    change, home = answer.headers.get("confplane-change-id"), f"/console/clusters/{cluster}"
    return redirect(f"{home}/entities/{edit.entity_id}" if change is None else f"{home}/audit/{change}?saved=true")


async def _propose(
    page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any], attempt: str, *, is_late: bool
) -> Response | None:
    """Propose a reviewed change, and lead to the request; sent again, the form makes one request.

    Nothing is proposed if it is late: the entity was changed since the review.
    """
    if is_late:
        return None
    wished = await proposal.proposal_of(page, cluster, edit, wanted)
    # Another revision of a request has the condition that the request is as it was reviewed.
    made = (await proposal.propose(page, wished, attempt=None if edit.revises else attempt)).json()
    return redirect(f"/console/clusters/{cluster}/requests/{made['id']}{'?revised=true' if edit.revises else ''}")


async def _warnings(
    page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any]
) -> tuple[list[str], ApiRefusal | None]:
    """Return the API's warnings about a change, which it checks as a write, or else as a proposal.

    A change that the rules refuse is checked past them if the caller may bypass them; their refusal is returned too.

    Raises:
        ApiRefusal: The change was refused.
    """
    is_proposal = proposal.may_propose(page, cluster, edit) and not proposal.may_save(page, cluster, edit)
    if edit.revises or is_proposal:
        checked = await proposal.proposal_of(page, cluster, edit, wanted)
        checked = checked._replace(body={name: part for name, part in checked.body.items() if name == "edits"})
        found = (await proposal.propose(page, checked, validate_only=True)).json()
        return [*found["warnings"], *found["requirements"]], None
    refused = None
    try:
        found = (await _write(page, cluster, edit, wanted)).json()
    except ApiRefusal as other:
        if not proposal.is_by_rules(other) or not proposal.may_bypass(page, cluster, edit):
            raise
        refused = other
        found = (await _write(page, cluster, edit, wanted, checks_past=True)).json()
    return list(found.get("status", found).get("warnings", ())), refused


async def _current(
    page: ConsolePage, cluster: str, facet: str, entity_id: str
) -> tuple[dict[str, Any], str | None, Definitions]:
    """Return the values of an entity, their ETag, and the definitions of the keys that it may have."""
    if facet not in facets_of(entity_id):
        raise HTTPException(404, "No such entity, or it has no such facet")
    found, defined = await asyncio.gather(
        declared_in(page, cluster, facet, entity_id),
        page.api.get(f"/v1/clusters/{cluster}/config-definitions"),
    )
    kind = ",".join(name for name, _ in split_id(entity_id))
    definitions = {
        each["name"]: each
        for each in defined["items"]
        if kind in each["settableOn"] and (each["section"] == "quota") == (facet == QUOTAS)
    }
    return found[FACETS[facet]], found["status"]["etag"], definitions


def _body(edit: EntityEdit, wanted: dict[str, Any]) -> tuple[str, Any]:
    """Return the method and the body that make the content what is wanted."""
    return ("PUT", {FACETS[edit.facet]: wanted}) if wanted else ("DELETE", None)


def _condition(edit: EntityEdit) -> dict[str, str]:
    return {"If-None-Match": "*"} if edit.etag is None else {"If-Match": edit.etag}


async def _write(
    page: ConsolePage,
    cluster: str,
    edit: EntityEdit,
    wanted: dict[str, Any],
    *,
    attempt: str | None = None,
    checks_past: bool = False,
) -> ApiAnswer:
    """Write the content, as one attempt that is done once; without an attempt only check it."""
    method, body = _body(edit, wanted)
    query = {**edit.query, "view": "full"}
    once = {} if attempt is None else {"Idempotency-Key": attempt}
    past = {"Confplane-Break-Glass": edit.emergency or "a check"} if checks_past or (attempt and edit.emergency) else {}
    return await page.api.send(
        method,
        f"/v1/clusters/{cluster}/{edit.facet}/{edit.entity_id}",
        query=query if attempt is not None else {**query, "validateOnly": "true"},
        body=body,
        headers={**_condition(edit), **once, **past},
    )


def _explain(edit: EntityEdit, problem: dict[str, Any]) -> str:
    """Put what the API says about keys next to their fields, and return the rest."""
    for part in problem.get("errors", ()):
        key = part["pointer"].rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        if key in edit.fields:
            edit.fields[key].error = part["detail"]
    detail: str = problem["detail"]
    return detail


def _form_page(
    page: ConsolePage,
    cluster: str,
    edit: EntityEdit,
    definitions: Definitions,
    *,
    error: str | None = None,
    focus: str = "",
    status: int = 200,
) -> Response:
    return page.render(
        "edit.html",
        status=status,
        cluster=cluster,
        edit=edit,
        fields=sorted(edit.fields.values(), key=lambda each: each.key),
        shown=orjson.dumps(edit.shown()).decode(),
        keys=orjson.dumps(list(edit.fields)).decode(),
        others=[definitions[name] for name in sorted(definitions) if name not in edit.fields],
        durations=list(DURATIONS),
        error=error,
        focus=focus,
        command=page.command(
            "GET", f"/v1/clusters/{cluster}/{edit.facet}/{edit.entity_id}", "get", edit.entity_id, "--cluster", cluster
        ),
    )


async def _command(
    page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any], *, proposes: bool
) -> ShellCommand | None:
    """Return the command lines that write or propose a change; None if it changes nothing."""
    path = f"/v1/clusters/{cluster}/{edit.facet}/{edit.entity_id}"
    method, body = _body(edit, wanted)
    kept = {key for key, value in wanted.items() if value is None}
    sets = [
        each.key if each.secret else f"{each.key}={plain(wanted[each.key])}"
        for each in edit.fields.values()
        if each.key in wanted and (each.was is None or each.secret or plain(wanted[each.key]) != each.was)
        and each.key not in kept
    ]  # fmt: skip
    removed = [each.key for each in edit.fields.values() if each.remove and each.was is not None]
    options = ["--cluster", cluster]
    if edit.etag is not None and not proposes:
        options += ["--quotas-etag" if edit.facet == QUOTAS else "--configs-etag", edit.etag]
    for name in ("reason", "ticket"):
        options += [f"--{name}", getattr(edit, name)] if getattr(edit, name) else []
    options += ["--for", edit.duration] if edit.duration else []
    options += ["--propose"] if proposes else []
    if not sets and not removed:
        return None
    verb, parts = ("set", sets) if sets else ("delete", removed)
    cli = () if sets and removed else (verb, edit.entity_id, *parts, *options)
    hidden = {each.key for each in edit.fields.values() if each.secret and each.typed}
    if proposes:
        kept_secret = {key: "..." if key in hidden else value for key, value in wanted.items()}
        made = await proposal.proposal_of(page, cluster, edit, kept_secret)
        cli = () if edit.revises else cli
        return page.command("POST", made.path, *cli, query=made.query, body=made.body, headers=made.headers)
    if body is not None:
        body = {member: {key: "..." if key in hidden else value for key, value in values.items()}
                for member, values in body.items()}  # fmt: skip
    return page.command(method, path, *cli, query=edit.query, body=body, headers=_condition(edit))


async def _review(
    page: ConsolePage,
    cluster: str,
    edit: EntityEdit,
    now: dict[str, Any],
    wanted: dict[str, Any],
    *,
    refused: ApiRefusal | None,
    error: str | None,
) -> Response:
    warnings, by_rules = await _warnings(page, cluster, edit, wanted)
    refused = refused or by_rules
    base = f"/v1/clusters/{cluster}"
    fall, shared, impact = {}, None, None
    try:
        effective = await page.api.get(f"{base}/{edit.facet}/{edit.entity_id}/effective")
        removed = set(now) - set(wanted)
        for item in effective[FACETS[edit.facet]]:
            if item["key"] in removed:
                own = item["synonyms"][0]["source"] if edit.facet == "configs" else edit.entity_id
                lower = [each for each in item["synonyms"] if each["source"] != own]
                fall[item["key"]] = _level(edit.facet, lower[0]) if lower else "not set"
        shared = next(
            (each.get("sharedBy") for each in effective.get("levels", ()) if each["id"] == edit.entity_id), None
        )
        if edit.facet != "configs":
            keys = {key for key in {*now, *wanted} if now.get(key) != wanted.get(key)}
            impact = await impact_of(page, cluster, edit.facet, edit.entity_id, keys, wanted)
    except ApiRefusal:
        pass  # the review is without these remarks
    secrets = {each.key for each in edit.fields.values() if each.secret}
    ways = _ways(page, cluster, edit, warnings, refused)
    if refused is not None:
        error = refused.detail
    return page.render(
        "edit_review.html",
        status=(400 if error else 200) if refused is None else refused.status,
        cluster=cluster,
        error=error,
        ways=ways,
        edit=edit,
        before={key: None if value is None else plain(value) for key, value in now.items()},
        after={key: None if key in secrets or value is None else plain(value) for key, value in wanted.items()},
        new_secrets=sorted(each.key for each in edit.fields.values() if each.secret and each.typed and not each.remove),
        fall=fall,
        shared=shared,
        impact=impact,
        warnings=warnings,
        default=any(name is None for _, name in split_id(edit.entity_id)),
        shown=orjson.dumps(edit.shown()).decode(),
        keys=orjson.dumps(list(edit.fields)).decode(),
        attempt=str(uuid7()),
        command=await _command(page, cluster, edit, wanted, proposes="save" not in ways and "propose" in ways),
        action=page.request.url.path,
    )


def _ways(
    page: ConsolePage, cluster: str, edit: EntityEdit, warnings: list[str], refused: ApiRefusal | None
) -> tuple[str, ...]:
    """Return the steps that a review offers, the one in colour first."""
    if edit.revises:
        return ("propose",)
    return proposal.ways_of(
        page,
        cluster,
        [edit.entity_id],
        [*warnings, *([] if refused is None else [refused.detail])],
        is_refused=refused is not None and proposal.is_by_rules(refused),
        is_request=not edit.duration,
    )


def _level(facet: str, level: dict[str, Any]) -> str:
    """Return the value of a level, and the level in words."""
    source = level["source"]
    words = SOURCES.get(source, source) if facet == "configs" else entity_title(source)
    return f"{plain(level['value'])} from {words}"
