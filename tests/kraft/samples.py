"""Seeded messages as kio has them: nulls, empty and long texts and arrays, the least and the greatest numbers."""

from __future__ import annotations

import datetime as dt
import re
import types
import typing
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from tests.kraft.generate import VERSIONS

if TYPE_CHECKING:
    import random

_TEXTS: Final = ("", "a", "user", "\u00fcml\u00e4ut \u2615", "\U0001f600", "x" * 127, "y" * 128, "z" * 20_000, "a\n\0")
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "bool": (True, False),
    "uint16": (0, 1, 40_000, 65_535),
    "float64": (0.0, -0.0, 1.5, 1e308, -5e-324, float(2**53)),
    "string": _TEXTS,
    "error_code": tuple(ErrorCode),
    "timedelta_i32": tuple(dt.timedelta(milliseconds=each) for each in (0, 1, 2**31 - 1)),
    "timedelta_i64": tuple(dt.timedelta(milliseconds=each) for each in (0, 1, 2**40)),
    "datetime_i64": tuple(dt.datetime.fromtimestamp(each, dt.UTC) for each in (0, 1_700_000_000)),
}
_SIZES: Final = (0, 0, 1, 1, 2, 3, 130)
_WHOLE: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

ALL: Final = [
    (name, kind, version)
    for name, (low, high) in VERSIONS.items()
    for kind in ("request", "response")
    for version in range(low, high + 1)
]
"""Each message and version that is written and read: ("Fetch", "request", 17)."""


def kio_type(name: str, kind: str, version: int) -> type[Any]:
    """Return kio's class for a request or response."""
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    module = import_module(f"kio.schema.{folder}.v{version}.{kind}")
    found: type[Any] = getattr(module, f"{name}{kind.capitalize()}")
    return found


def sample(kind: type[Any], chooser: random.Random) -> Any:
    """Return an instance of a class of kio with seeded values."""
    hints = typing.get_type_hints(kind)
    values = {}
    for field in fields(kind):
        values[field.name] = _value(hints[field.name], field.metadata.get("kafka_type"), chooser)
    return kind(**values)


def _value(hint: Any, kafka_type: str | None, chooser: random.Random) -> Any:
    if get_origin(hint) in {types.UnionType, typing.Union}:
        inner, *_ = (each for each in get_args(hint) if each is not type(None))
        return None if chooser.random() < 0.3 else _value(inner, kafka_type, chooser)
    if get_origin(hint) is tuple:
        size = chooser.choice(_SIZES) if kafka_type else chooser.choice(_SIZES[:-1])
        return tuple(_value(get_args(hint)[0], kafka_type, chooser) for _ in range(size))
    if is_dataclass(hint):
        return sample(typing.cast("type[Any]", hint), chooser)
    assert kafka_type is not None
    return _primitive(kafka_type, chooser)


def _primitive(kafka_type: str, chooser: random.Random) -> Any:
    if kafka_type in _WHOLE:
        most = 2 ** (_WHOLE[kafka_type] - 1)
        return chooser.choice((0, 1, -1, most - 1, -most, chooser.randrange(-most, most)))
    if kafka_type in {"bytes", "records"}:
        return chooser.randbytes(chooser.choice((0, 1, 127, 128, 5_000)))
    return UUID(bytes=chooser.randbytes(16)) if kafka_type == "uuid" else chooser.choice(_CHOICES[kafka_type])


def leaves(value: Any) -> list[Any]:
    """Return the values of a message in their order, as Kafka counts them; arrays and nulls have a mark of their own."""
    if isinstance(value, tuple):
        return ["[", *(leaf for each in value for leaf in leaves(each)), "]"]
    if is_dataclass(value) and not isinstance(value, type):
        return [leaf for field in fields(value) for leaf in leaves(getattr(value, field.name))]
    return [_plain(value)]


def _plain(value: Any) -> Any:
    """Return a value of kio, which has types of its own for codes, times and the UUID of zeros, as a number."""
    match value:
        case ErrorCode():
            return value.value
        case dt.timedelta():
            return round(value / dt.timedelta(milliseconds=1))
        case dt.datetime():
            return round(value.timestamp() * 1000)
        case UUID(int=0):
            return None
    return value
