"""The form that changes one entity, generated from the definitions, and the review before it is saved.

The form has each value as it was shown besides what was typed, so only what a person changed is changed. A review is of
one ETag, and saving it fails if the entity has another one by then; the review is then shown again.
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from uuid_utils import uuid7

from confplane.console.api import ApiAnswer, ApiRefusal
from confplane.console.entities import FACETS, facets_of
from confplane.console.entity import SOURCES, declared_in
from confplane.console.page import ConsolePage, FormDep, FormFields, PageDep, redirect
from confplane.console.texts import entity_title, plain, unit_of, units
from confplane.domain.broker_keys import is_password
from confplane.domain.entities import split_id

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter()

_PATH: Final = "/console/clusters/{cluster}/entities/{entity_id}/edit/{facet}"
_QUOTAS: Final = "client-quotas"
_CHANGED: Final = 412
_NUMBERS: Final = frozenset({"INT", "SHORT", "LONG", "DOUBLE"})
_WHOLE: Final = frozenset({"INT", "SHORT", "LONG"})
_NUMBER: Final = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d*)(\.\d*)?([eE][+-]?\d{1,2})?", re.ASCII)
"""A number that a person types; a comma only separates thousands."""
_LONGEST_NUMBER: Final = 100
_EXACT: Final = Context(prec=300)
"""Rounds no number that can be typed."""


@dataclass(slots=True)
class FormField:
    """One key of the form. Values are texts; those of secrets are empty."""

    key: str
    definition: dict[str, Any] | None
    """None for a key that Kafka's catalog does not have."""
    was: str | None
    """The value when the form was made; None if the key was not set, empty for a secret."""
    typed: str = ""
    unit: str = ""
    secret: bool = False
    """True if its value is never shown."""
    remove: bool = False
    error: str | None = None

    @property
    def units(self) -> tuple[tuple[str, int], ...]:
        """The units to choose from; empty if the value has none."""
        known = self.definition
        return units(self.key) if known is not None and known["type"] in _NUMBERS else ()

    @property
    def choices(self) -> tuple[str, ...]:
        """The values to choose from; empty if it is not such a key, or is set to something else."""
        known = self.definition
        if known is None:
            return ()
        valid = known["valid"] or ""
        found: tuple[str, ...] = ()
        if known["type"] == "BOOLEAN":
            found = ("true", "false")
        elif known["type"] == "STRING" and valid.startswith("[") and "..." not in valid:
            found = tuple(valid[1:-1].split(", "))
        return found if not self.typed or self.typed in found else ()

    @property
    def is_untouched(self) -> bool:
        """True if the person left the field as it was shown."""
        try:
            return self.value() is None
        except ValueError:
            return False

    def value(self) -> str | None:
        """Return the new value, or None to leave the key as it is.

        Raises:
            ValueError: What was typed has a unit, and is not a number; the text is for people.
        """
        typed = _line_ends(self.typed)
        if self.secret:
            return typed or None
        was = None if self.was is None else _line_ends(self.was)
        factor = dict(self.units).get(self.unit, 1)
        if factor != 1:
            number = _EXACT.multiply(_decimal(typed), Decimal(factor))
            whole = self.definition is not None and self.definition["type"] in _WHOLE
            if number != number.to_integral_value() and whole:
                raise ValueError(f"{typed} {self.unit} is not a whole number of {self.units[0][0]}")
            typed = f"{number:f}"
            if "." in typed:
                typed = typed.rstrip("0").rstrip(".")
        elif typed != was and self.definition is not None and self.definition["type"] in _NUMBERS:
            typed = typed.strip()
        # Browsers change line ends; a value that was not touched stays as it is.
        return None if typed == was else typed


@dataclass(slots=True)
class EntityEdit:
    """A change that a person makes to one entity in one facet."""

    facet: str
    entity_id: str
    etag: str | None
    """Of the content that the person was shown; None if nothing was set."""
    fields: dict[str, FormField] = field(default_factory=dict)
    reason: str = ""
    ticket: str = ""
    changed: dict[str, dict[str, Any]] | None = None
    """The content that the person was shown, and the content now, if somebody changed it in between."""

    def shown(self) -> dict[str, Any]:
        """Return the content that the person was shown. Secrets are None."""
        shown = {each.key: None if each.secret else each.was for each in self.fields.values() if each.was is not None}
        return {key: orjson.loads(was or "null") for key, was in shown.items()} if self.facet == _QUOTAS else shown

    def merged(self, now: dict[str, Any]) -> dict[str, Any]:
        """Return the content with the changes. A secret that stays is None, which the API takes as that.

        Raises:
            ValueError: A field is not valid; its ``error`` says why.
        """
        wanted = dict(now)
        for each in self.fields.values():
            if each.remove:
                wanted.pop(each.key, None)
                continue
            try:
                value = each.value()
                if value is None or (value == "" and each.was is None):
                    continue
                wanted[each.key] = _number(value) if self.facet == _QUOTAS else value
            except ValueError as error:
                each.error = str(error)
        if any(each.error for each in self.fields.values()):
            raise ValueError
        return wanted


@router.get(_PATH)
async def edit_form(page: PageDep, cluster: str, facet: str, entity_id: str, key: str = "") -> Response:
    """The form, with the keys that are set, and one more if the address names it."""
    now, etag, definitions = await _current(page, cluster, facet, entity_id)
    edit = EntityEdit(facet, entity_id, etag)
    _fill(edit, now, definitions)
    if key and key not in edit.fields:
        edit.fields[key] = _field(facet, key, definitions)
    return _form_page(page, cluster, edit, definitions)


@router.post(_PATH)
async def edit_step(page: PageDep, form: FormDep, cluster: str, facet: str, entity_id: str) -> Response:
    """One step with the form: a further key, a review, or saving what was reviewed."""
    now, etag, definitions = await _current(page, cluster, facet, entity_id)
    edit = _read(form, facet, entity_id, definitions)
    step = "add" if form.text("add") else form.get("step", "review")
    if step in {"add", "edit"}:
        return _form_page(page, cluster, edit, definitions, focus=form.get("add", ""))
    try:
        if step == "save":
            # What was reviewed, whatever is set by now: a form that is sent again repeats the request that was done.
            try:
                return await _save(page, cluster, edit, edit.merged(edit.shown()), form.text("attempt"))
            except ApiRefusal as refused:
                if refused.status != _CHANGED:
                    raise
                now, etag, definitions = await _current(page, cluster, facet, entity_id)
        if etag != edit.etag:
            _rebase(edit, now, etag, definitions)
        wanted = edit.merged(now)
        if wanted == now and edit.changed is None:
            return _form_page(page, cluster, edit, definitions, error="Nothing is different from what is set now.")
        answer = await _write(page, cluster, edit, wanted)
        warnings = answer.json().get("status", {}).get("warnings", ()) if answer.body else ()
        return await _review(page, cluster, edit, now, wanted, warnings)
    except ValueError:
        return _form_page(page, cluster, edit, definitions, error="Some values can't be used; see below.", status=400)
    except ApiRefusal as refused:
        error = _explain(edit, refused.problem)
        return _form_page(page, cluster, edit, definitions, error=error, status=refused.status)


async def _save(
    page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any], attempt: str | None
) -> Response:
    """Save a reviewed change, and lead to it; sent again, the form has it done once."""
    answer = await _write(page, cluster, edit, wanted, attempt=attempt or str(uuid7()))
    change, home = answer.headers.get("confplane-change-id"), f"/console/clusters/{cluster}"
    return redirect(f"{home}/entities/{edit.entity_id}" if change is None else f"{home}/audit/{change}?saved=true")


async def _current(
    page: ConsolePage, cluster: str, facet: str, entity_id: str
) -> tuple[dict[str, Any], str | None, dict[str, dict[str, Any]]]:
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
        if kind in each["settableOn"] and (each["section"] == "quota") == (facet == _QUOTAS)
    }
    return found[FACETS[facet]], found["status"]["etag"], definitions


def _field(facet: str, key: str, definitions: dict[str, dict[str, Any]]) -> FormField:
    """Return the field of a key that is not set; a form for one listener has the definition of its base.

    As in the API, a config is a secret if its type is a password's, or is not known.
    """
    known = definitions.get(key)
    if known is None and key.startswith("listener.name."):
        bases = [name for name in definitions if key.endswith(f".{name}")]
        known = definitions[max(bases, key=len)] if bases else None
    secret = facet == "configs" and (known is None or known["sensitive"] or is_password(key))
    return FormField(key, known, None, secret=secret)


def _fill(edit: EntityEdit, now: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> None:
    """Add a field for each key that is set."""
    for key, value in sorted(now.items()):
        made = _field(edit.facet, key, definitions)
        made.was, made.secret = "" if value is None else plain(value), value is None
        made.unit, made.typed = unit_of(made.was, made.units)
        edit.fields[key] = made


def _read(form: FormFields, facet: str, entity_id: str, definitions: dict[str, dict[str, Any]]) -> EntityEdit:
    """Return what was typed into the form."""
    edit = EntityEdit(facet, entity_id, form.text("etag"), reason=form.get("reason", ""), ticket=form.get("ticket", ""))
    try:
        shown = orjson.loads(form.get("shown", "{}"))
        keys = orjson.loads(form.get("keys", "[]"))
    except ValueError:
        raise HTTPException(400, "The form is not complete") from None
    if not isinstance(shown, dict) or not isinstance(keys, list):
        raise HTTPException(400, "The form is not complete")
    _fill(edit, shown, definitions)
    try:
        edit.shown()
    except ValueError:
        raise HTTPException(400, "The form is not complete") from None
    for key in [*keys, *filter(None, [form.text("add")])]:
        made = edit.fields.setdefault(str(key), _field(facet, str(key), definitions))
        made.typed = form.get(f"value {key}", made.typed)
        made.unit = form.get(f"unit {key}", made.unit)
        made.remove = f"remove {key}" in form
    return edit


def _rebase(edit: EntityEdit, now: dict[str, Any], etag: str | None, definitions: dict[str, dict[str, Any]]) -> None:
    """Base the changes on what is set now: fields that the person did not touch have the values of now."""
    before = {key: None if value is None else plain(value) for key, value in edit.shown().items()}
    after = {key: None if value is None else plain(value) for key, value in now.items()}
    for each in edit.fields.values():
        untouched = not each.remove and not each.secret and each.is_untouched
        each.was = (after[each.key] or "") if each.key in after else None
        if untouched:
            each.unit, each.typed = unit_of(each.was or "", each.units)
    _fill(edit, {key: value for key, value in now.items() if key not in edit.fields}, definitions)
    edit.etag, edit.changed = etag, {"before": before, "after": after}


def _body(edit: EntityEdit, wanted: dict[str, Any]) -> tuple[str, Any]:
    """Return the method and the body that make the content what is wanted."""
    return ("PUT", {FACETS[edit.facet]: wanted}) if wanted else ("DELETE", None)


def _condition(edit: EntityEdit) -> dict[str, str]:
    return {"If-None-Match": "*"} if edit.etag is None else {"If-Match": edit.etag}


async def _write(
    page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any], *, attempt: str | None = None
) -> ApiAnswer:
    """Write the content, as one attempt that is done once; without an attempt only check it."""
    method, body = _body(edit, wanted)
    query = {"reason": edit.reason or None, "ticket": edit.ticket or None, "view": "full"}
    return await page.api.send(
        method,
        f"/v1/clusters/{cluster}/{edit.facet}/{edit.entity_id}",
        query=query if attempt is not None else {**query, "validateOnly": "true"},
        body=body,
        headers=_condition(edit) if attempt is None else {**_condition(edit), "Idempotency-Key": attempt},
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
    definitions: dict[str, dict[str, Any]],
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
        error=error,
        focus=focus,
        command=_command(page, cluster, edit, None),
    )


def _command(page: ConsolePage, cluster: str, edit: EntityEdit, wanted: dict[str, Any] | None) -> Any:
    path = f"/v1/clusters/{cluster}/{edit.facet}/{edit.entity_id}"
    if wanted is None:
        return page.command("GET", path, "get", edit.entity_id, "--cluster", cluster)
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
    if edit.etag is not None:
        options += ["--quotas-etag" if edit.facet == _QUOTAS else "--configs-etag", edit.etag]
    for name in ("reason", "ticket"):
        options += [f"--{name}", getattr(edit, name)] if getattr(edit, name) else []
    if not sets and not removed:
        return None
    verb, parts = ("set", sets) if sets else ("delete", removed)
    cli = () if sets and removed else (verb, edit.entity_id, *parts, *options)
    if body is not None:
        hidden = {each.key for each in edit.fields.values() if each.secret and each.typed}
        body = {member: {key: "..." if key in hidden else value for key, value in values.items()}
                for member, values in body.items()}  # fmt: skip
    query = {"reason": edit.reason or None, "ticket": edit.ticket or None}
    return page.command(method, path, *cli, query=query, body=body, headers=_condition(edit))


async def _review(
    page: ConsolePage, cluster: str, edit: EntityEdit, now: dict[str, Any], wanted: dict[str, Any], warnings: Any
) -> Response:
    base = f"/v1/clusters/{cluster}"
    fall, shared, clients = {}, None, None
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
            registered = await page.api.get(f"{base}/registrations", id=edit.entity_id)
            number = len(registered["items"])
            clients = f"{number} kind" if number == 1 else f"{number} kinds"
            if registered["nextPageToken"] is not None:
                clients = f"More than {clients}"
    except ApiRefusal:
        pass  # the review is without these remarks
    secrets = {each.key for each in edit.fields.values() if each.secret}
    return page.render(
        "edit_review.html",
        cluster=cluster,
        edit=edit,
        before={key: None if value is None else plain(value) for key, value in now.items()},
        after={key: None if key in secrets or value is None else plain(value) for key, value in wanted.items()},
        new_secrets=sorted(each.key for each in edit.fields.values() if each.secret and each.typed and not each.remove),
        fall=fall,
        shared=shared,
        clients=clients,
        warnings=warnings,
        default=any(name is None for _, name in split_id(edit.entity_id)),
        shown=orjson.dumps(edit.shown()).decode(),
        keys=orjson.dumps(list(edit.fields)).decode(),
        attempt=str(uuid7()),
        command=_command(page, cluster, edit, wanted),
        action=page.request.url.path,
    )


def _level(facet: str, level: dict[str, Any]) -> str:
    """Return the value of a level, and the level in words."""
    source = level["source"]
    words = SOURCES.get(source, source) if facet == "configs" else entity_title(source)
    return f"{plain(level['value'])} from {words}"


def _line_ends(text: str) -> str:
    """Return a text with the line ends that Kafka has; browsers send those of HTTP."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decimal(text: str) -> Decimal:
    """Return the number that a person typed.

    Raises:
        ValueError: It is not a number; the text is for people.
    """
    typed = text.strip()
    is_number = len(typed) <= _LONGEST_NUMBER and _NUMBER.fullmatch(typed) and any(map(str.isdigit, typed))
    if not is_number or typed.lstrip("+-.")[:1] in {"e", "E"}:
        point = " Use a point for decimals, and commas only between thousands." if "," in typed else ""
        raise ValueError(f"{typed[:_LONGEST_NUMBER]!r} is not a number.{point}")
    return Decimal(typed.replace(",", ""))


def _number(text: str) -> int | float:
    """Return a quota as a JSON number.

    Raises:
        ValueError: It is not a number, or is too large for one; the text is for people.
    """
    number = _decimal(text)
    if number == number.to_integral_value() and abs(number) < 2**63:
        return int(number)
    if math.isinf(rounded := float(number)):
        raise ValueError(f"{text[:_LONGEST_NUMBER]!r} is too large.")
    return rounded
