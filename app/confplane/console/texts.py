"""Texts of pages: times, values in units that people use, names of entities, and commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.domain.entities import split_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DURATIONS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_RATES: Final = {
    "producer_byte_rate": "bytes",
    "consumer_byte_rate": "bytes",
    "request_percentage": "%",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
_KIB: Final = 1_024
_BINARY_SIZES: Final = tuple((_KIB**step, name) for step, name in reversed(tuple(enumerate(_BINARY))))
_SIZES: Final = (
    *((name, _KIB**step) for step, name in enumerate(_BINARY[:5])),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
)
"""Units of sizes; SI units too, because networks are measured in them."""
_MILLISECONDS: Final = re.compile(r"[._]ms(\.|$)")
_BYTES: Final = re.compile(r"bytes(\.|$)|buffer\.size$")
_UNLIMITED: Final = frozenset({
    "retention.bytes", "retention.ms", "log.retention.bytes", "log.retention.ms", "log.retention.minutes",
    "log.retention.hours", "queued.max.request.bytes",
})  # fmt: skip
"""The keys for which -1 means no limit. For others it means something else, such as the default of the system."""
_LARGEST_LONG: Final = (2**63 - 1, 9_223_372_036_854_776_000)
"""The largest long, and the closest double as JSON has it: Kafka's definitions use them for no limit."""
_LARGEST_INT: Final = 2**31 - 1
"""No limit as well, except where it is an amount of bytes or time."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,2})?", re.ASCII)
_LONGEST_NUMBER: Final = 40


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The command lines that do the same as a page."""

    curl: str
    cli: str | None

    @classmethod
    def of(
        cls, method: str, url: str, cli: Sequence[str], *, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ShellCommand:
        """Return the command lines of a request; see :meth:`confplane.console.page.ConsolePage.command`."""
        parts = ["curl -sS" if method == "GET" else f"curl -sS -X {method}"]
        parts.append('-H "Authorization: Bearer $(cat token)"')
        parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in (headers or {}).items()]
        if body is not None:
            content = orjson.dumps(body).decode()
            parts += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(content)}"]
        parts.append(shlex.quote(url))
        return cls(" \\\n  ".join(parts), shlex.join(("confplane", *cli)) if cli else None)


def utc(time: str | datetime | None) -> str:
    """Return a time of the API as people read it, in UTC."""
    if time is None:
        return ""
    moment = time if isinstance(time, datetime) else datetime.fromisoformat(time)
    return moment.astimezone(UTC).strftime("%-d %b %Y, %H:%M:%S UTC")


def count(value: float) -> str:
    """Return a number with separators of thousands."""
    return f"{value:,}"


def plain(value: Any) -> str:
    """Return a value as the API has it; a value that is not shown is a secret."""
    if value is None:
        return "(hidden)"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def human(value: Any, key: str) -> str | None:
    """Return a value in units that people use, without loss, or None if the value itself is as readable."""
    text = "" if value is None else plain(value)
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number in _LARGEST_LONG or (number == -1 and key in _UNLIMITED):
        return "no limit"
    return _amount(number, key) if 0 <= number < max(_LARGEST_LONG) else None


def _amount(number: Decimal, key: str) -> str | None:
    """Return a number with its unit."""
    kind = _RATES.get(key)
    if kind is not None:
        return f"{_in_units(number, _BINARY_SIZES)}/s" if kind == "bytes" else f"{_grouped(number)} {kind}"
    if _MILLISECONDS.search(key):
        return _in_units(number, (*_DURATIONS, (1, "ms")))
    if _BYTES.search(key):
        return _in_units(number, _BINARY_SIZES)
    return "no limit" if number == _LARGEST_INT else None


def units(key: str) -> tuple[tuple[str, int], ...]:
    """Return the units in which a value can be typed, each with its factor, that of the value itself first."""
    if _RATES.get(key) == "bytes":
        return tuple((f"{name}/s", factor) for name, factor in _SIZES)
    if key in _RATES:
        return ()
    if _MILLISECONDS.search(key):
        return (("ms", 1), *((name, size) for size, name in reversed(_DURATIONS)))
    return _SIZES if _BYTES.search(key) else ()


def unit_of(value: str, choices: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Return the greatest unit in which a value is a whole number, and the number; otherwise its own unit."""
    own = choices[0][0] if choices else ""
    if not value.isascii() or not value.isdigit() or len(value) > _LONGEST_NUMBER:
        return own, value
    if int(value) in {0, *_LARGEST_LONG}:
        return own, value
    fits = [(factor, name) for name, factor in choices if int(value) % factor == 0]
    factor, name = max(fits, default=(1, own))
    return name, str(int(value) // factor)


def _in_units(number: Decimal, sizes: Sequence[tuple[int, str]]) -> str:
    """Return a number in the greatest unit in which it is exact with two decimals, otherwise in the smallest."""
    for size, unit in sizes:
        amount = round(number / size, 2)
        if amount >= 1 and amount * size == number:
            return f"{_grouped(amount)} {unit}"
    return f"{_grouped(number)} {sizes[-1][1]}"


def _grouped(number: Decimal) -> str:
    """Return a number in full, with separators of thousands."""
    text = f"{number:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def sides(diff: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values before and after a change by key, and the keys of its secrets, whose values are not shown."""
    shown = [each for each in diff if not each.get("secret")]
    return {
        "before": {each["key"]: each["before"] for each in shown if each["before"] is not None},
        "after": {each["key"]: each["after"] for each in shown if each["after"] is not None},
        "secrets": [each["key"] for each in diff if each.get("secret")],
    }


def entity_names(entity_id: str) -> tuple[tuple[str, str | None], ...]:
    """Return the types and names of an entity id; the name None is the default entity."""
    return split_id(entity_id)


def entity_title(entity_id: str) -> str:
    """Return an entity id as people write it: ``user payments / client-id billing``."""
    return " / ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in split_id(entity_id))


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "utc": utc,
    "count": count,
    "plain": plain,
    "human": human,
    "entity_names": entity_names,
    "entity_title": entity_title,
}
"""The filters of the templates."""
