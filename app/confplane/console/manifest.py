"""A manifest: pasted or dropped, planned, applied as it was planned, and continued if the time was up.

The text goes back and forth in the form, so the page stores nothing. A manifest that may have secrets is not repeated
in a page; it is pasted again, and the plan id proves that it is the same.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter

from confplane.console.api import ApiRefusal
from confplane.console.edit_form import DURATIONS
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep
from confplane.console.texts import entity_title, sides
from confplane.domain.broker_keys import is_sensitive
from confplane.domain.definitions import catalog_of
from confplane.domain.errors import InvalidRequestError
from confplane.domain.manifests import forced_key
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.strict_yaml import read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/manifest"
_TEXT: Final = "value manifest"
"""The field with the manifest. Fields whose names begin so keep their surrounding spaces, which count in YAML."""
_OPTIONS: Final = ("atomic", "prune", "scope", "most", "force")
"""The fields with the options of a plan."""


@router.get(_PATH)
async def manifest_form(page: PageDep) -> Response:
    """The form for a manifest."""
    return _show(page, FormFields())


@router.post(_PATH)
async def manifest_step(page: PageDep, form: FormDep, cluster: str) -> Response:
    """Plan a manifest, or apply the plan that was shown."""
    try:
        body = _body(form)
    except InvalidRequestError as error:
        # The text may have secrets in a place that can't be found.
        return _show(page, form, error=error.detail, status=400)
    kept = "" if _may_have_secrets(body) else form.get(_TEXT, "")
    base = f"/v1/clusters/{cluster}/manifests"
    try:
        if (plan_id := form.text("plan")) is None:
            return _show(page, form, text=kept, plan=await _send(page, f"{base}:plan", form, body))
        sent = {**body, "planId": plan_id, "revision": form.get("revision", "0")}
        done = await _send(page, f"{base}:apply", form, sent)
        return _show(page, form, text=kept, done=done, revision=form.get("revision", "0"))
    except ApiRefusal as refused:
        problem = refused.problem
        return _show(
            page,
            form,
            text=kept,
            error=_explained(problem),
            plan=problem if "changes" in problem else None,
            done=problem if "results" in problem and "changes" not in problem else None,
            revision=form.get("revision", ""),
            status=refused.status,
        )


async def _send(page: ConsolePage, path: str, form: FormFields, body: dict[str, Any]) -> dict[str, Any]:
    query = {"reason": form.text("reason"), "ticket": form.text("ticket")}
    if (seconds := DURATIONS.get(form.get("duration", ""))) is not None:
        query["expiresIn"] = str(seconds)
    answer = await page.api.send("POST", path, query=query if path.endswith(":apply") else None, body=body)
    found: dict[str, Any] = answer.json()
    return found


def _body(form: FormFields) -> dict[str, Any]:
    """Return the manifest of a form and its options, as the API takes them.

    Raises:
        InvalidRequestError: The text is not a map in strict YAML or JSON, or an option is not valid.
    """
    found = read_document(io.BytesIO(form.get(_TEXT, "").encode()), "the manifest")
    if found is None or not isinstance(found.value, dict):
        raise InvalidRequestError("Paste a manifest: a map with the members apiVersion, kind and entities.")
    options: dict[str, Any] = {name: True for name in ("atomic", "prune") if form.get(name)}
    if (scope := form.text("scope")) is not None:
        options |= {"prune": True, "scope": scope}
    if lines := [line.strip() for line in form.get("force", "").splitlines() if line.strip()]:
        options["force"] = [{"id": entity_id, "key": key} for entity_id, key in map(forced_key, lines)]
    if (most := form.text("most")) is not None:
        if not most.isdecimal() or len(most) > len("100000"):
            raise InvalidRequestError("The most deletions are a whole number.")
        options["maxDeletes"] = int(most)
    plain: dict[str, Any] = found.plain()
    if twice := sorted(
        plain.keys() & {"atomic", "prune", "merge", "scope", "maxDeletes", "force", "planId", "revision"}
    ):
        raise InvalidRequestError(f"{twice[0]} is not a member of a manifest.")
    return {**plain, **options}


def _may_have_secrets(body: Mapping[str, Any]) -> bool:
    """Return True if a manifest sets a key of a broker whose value may be a secret. Unknown keys count as secrets."""
    catalog = catalog_of(ON_ZOOKEEPER)
    entities = body.get("entities")
    return any(
        value is not None and is_sensitive(catalog, key)
        for each in (entities if isinstance(entities, list) else ())
        if isinstance(each, dict) and str(each.get("id", "")).startswith("broker")
        for values in [each.get("configs")]
        if isinstance(values, dict)
        for key, value in values.items()
    )


def _explained(problem: dict[str, Any]) -> str:
    """Return a refusal with the parts of the manifest that it is about."""
    detail: str = problem["detail"]
    parts = [f"{each['pointer']}: {each['detail']}" for each in problem.get("errors", ()) if each.get("pointer")]
    return "\n".join(parts) or detail


def _show(
    page: ConsolePage,
    form: FormFields,
    *,
    text: str = "",
    plan: dict[str, Any] | None = None,
    done: dict[str, Any] | None = None,
    revision: str = "",
    error: str | None = None,
    status: int = 200,
) -> Response:
    changes = [] if plan is None else [_change(each) for each in plan["changes"]]
    possible = plan is not None and plan.get("refusal") is None and not plan["failed"] if error is None else False
    return page.render(
        "manifest.html",
        status=status,
        cluster=page.cluster,
        form={name: form.get(name, "") for name in (*_OPTIONS, "reason", "ticket", "duration")},
        options=_OPTIONS,
        durations=list(DURATIONS),
        text=text,
        plan=plan,
        is_stale=plan is not None and form.text("plan") is not None,
        changes=changes,
        possible=possible and any(each["action"] != "none" for each in changes),
        may_apply=all(each["mayAlter"] for each in changes if each["action"] != "none"),
        done=done,
        revision=revision,
        error=error,
        command=page.command(
            "POST", f"/v1/clusters/{page.cluster}/manifests:plan", "plan", "PATH", f"--cluster={page.cluster}"
        ),
    )


def _change(change: dict[str, Any]) -> dict[str, Any]:
    fall = {each["key"]: _fallback(each["fallback"]) for each in change["diff"] if each.get("fallback")}
    return {**change, **sides(change["diff"]), "fall": fall}


def _fallback(fallback: dict[str, Any]) -> str:
    value, source = fallback["value"], fallback["source"]
    place = source if source.isupper() else entity_title(source)
    return f"from {place}" if value is None else f"{value} from {place}"
