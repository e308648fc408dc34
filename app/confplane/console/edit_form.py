"""The form that changes one entity: its fields, generated from the definitions, and what a person typed into them.

The form has each value as it was shown besides what was typed, so only what a person changed is changed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.exceptions import HTTPException

from confplane.console.texts import plain, unit_of, units
from confplane.domain.broker_keys import is_password

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.console.page import FormFields

QUOTAS: Final = "client-quotas"
_NUMBERS: Final = frozenset({"INT", "SHORT", "LONG", "DOUBLE"})
_WHOLE: Final = frozenset({"INT", "SHORT", "LONG"})
_NUMBER: Final = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d*)(\.\d*)?([eE][+-]?\d{1,2})?", re.ASCII)
"""A number that a person types; a comma only separates thousands."""
_LONGEST_NUMBER: Final = 100
_EXACT: Final = Context(prec=300)
"""Rounds no number that can be typed."""


DURATIONS: Final = {"1h": 3_600, "6h": 21_600, "1d": 86_400, "7d": 604_800}
"""The seconds of each time that a temporary change may last."""

TIMES: Final = ("applyAt", "expiresAt")
"""The times of a change request that a person may choose."""

Definitions = dict[str, dict[str, Any]]
"""Definitions of keys, by key."""


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
        typed = line_ends(self.typed)
        if self.secret:
            return typed or None
        was = None if self.was is None else line_ends(self.was)
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
    duration: str = ""
    """The time for which the change lasts, one of :data:`DURATIONS`; empty for a change that stays."""
    times: dict[str, str] = field(default_factory=dict)
    """The times of a change request, :data:`TIMES`, as they were typed."""
    emergency: str = ""
    """The reason to write past the rules; empty for a change within them."""
    revises: str = ""
    """The id of the change request whose content this edit replaces; empty for a change of its own."""
    request_etag: str = ""
    """The ETag of that request, as the person was shown it."""
    changed: dict[str, dict[str, Any]] | None = None
    """The content that the person was shown, and the content now, if somebody changed it in between."""

    @property
    def query(self) -> dict[str, str | None]:
        """The parameters of the write."""
        seconds = DURATIONS.get(self.duration)
        return {
            "reason": self.reason or None,
            "ticket": self.ticket or None,
            "expiresIn": None if seconds is None else str(seconds),
        }

    def shown(self) -> dict[str, Any]:
        """Return the content that the person was shown. Secrets are None."""
        shown = {each.key: None if each.secret else each.was for each in self.fields.values() if each.was is not None}
        return {key: orjson.loads(was or "null") for key, was in shown.items()} if self.facet == QUOTAS else shown

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
                wanted[each.key] = _number(value) if self.facet == QUOTAS else value
            except ValueError as error:
                each.error = str(error)
        if any(each.error for each in self.fields.values()):
            raise ValueError
        return wanted

    def fill(self, now: dict[str, Any], definitions: Definitions) -> None:
        """Add a field for each key that is set."""
        for key, value in sorted(now.items()):
            made = new_field(self.facet, key, definitions)
            made.was, made.secret = "" if value is None else plain(value), value is None
            made.unit, made.typed = unit_of(made.was, made.units)
            self.fields[key] = made

    def take(self, diff: Sequence[Mapping[str, Any]], definitions: Definitions) -> None:
        """Type the values that a change request without secrets proposes."""
        for each in diff:
            made = self.fields.setdefault(each["key"], new_field(self.facet, each["key"], definitions))
            if each["after"] is None:
                made.remove = True
            else:
                made.unit, made.typed = unit_of(plain(each["after"]), made.units)

    def rebase(self, now: dict[str, Any], etag: str | None, definitions: Definitions) -> None:
        """Base the changes on what is set now: fields that the person did not touch have the values of now."""
        before = {key: None if value is None else plain(value) for key, value in self.shown().items()}
        after = {key: None if value is None else plain(value) for key, value in now.items()}
        for each in self.fields.values():
            is_empty = each.was is None and not each.typed  # an added key
            untouched = not each.remove and not each.secret and (is_empty or each.is_untouched)
            each.was = (after[each.key] or "") if each.key in after else None
            if untouched:
                each.unit, each.typed = unit_of(each.was or "", each.units)
        self.fill({key: value for key, value in now.items() if key not in self.fields}, definitions)
        self.etag, self.changed = etag, {"before": before, "after": after}


def new_field(facet: str, key: str, definitions: Definitions) -> FormField:
    """Return the field of a key that is not set; a form for one listener has the definition of its base.

    As in the API, a config is a secret if its type is a password's, or is not known.
    """
    known = definitions.get(key)
    if known is None and key.startswith("listener.name."):
        bases = [name for name in definitions if key.endswith(f".{name}")]
        known = definitions[max(bases, key=len)] if bases else None
    secret = facet == "configs" and (known is None or known["sensitive"] or is_password(key))
    return FormField(key, known, None, secret=secret)


def read_edit(form: FormFields, facet: str, entity_id: str, definitions: Definitions) -> EntityEdit:
    """Return what was typed into the form."""
    edit = EntityEdit(facet, entity_id, form.text("etag"), reason=form.get("reason", ""), ticket=form.get("ticket", ""))
    duration = form.get("duration", "")
    edit.duration = duration if duration in DURATIONS else ""
    edit.emergency = emergency_of(form)
    edit.revises, edit.request_etag = form.get("revises", ""), form.get("requestEtag", "")
    edit.times = {name: text for name in TIMES if (text := form.text(name)) is not None}
    try:
        shown = orjson.loads(form.get("shown", "{}"))
        keys = orjson.loads(form.get("keys", "[]"))
    except ValueError:
        raise HTTPException(400, "The form is not complete") from None
    if not isinstance(shown, dict) or not isinstance(keys, list):
        raise HTTPException(400, "The form is not complete")
    edit.fill(shown, definitions)
    try:
        edit.shown()
    except ValueError:
        raise HTTPException(400, "The form is not complete") from None
    for key in [*keys, *filter(None, [form.text("add")])]:
        made = edit.fields.setdefault(str(key), new_field(facet, str(key), definitions))
        made.typed = form.get(f"value {key}", made.typed)
        made.unit = form.get(f"unit {key}", made.unit)
        made.remove = f"remove {key}" in form
    return edit


def emergency_of(form: Mapping[str, str]) -> str:
    """Return the reason of an emergency that was typed, as the value of a header."""
    return "".join(each if each.isprintable() else " " for each in form.get("emergency", "")).strip()


def line_ends(text: str) -> str:
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
