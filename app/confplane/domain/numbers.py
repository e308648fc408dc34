"""Numbers as Java writes and reads them, and as the API returns them.

Kafka keeps DOUBLE configs in ZooKeeper in the layout of ``Double.toString`` and reads them with ``Double.parseDouble``;
both differ from Python's ``repr`` and ``float``. The API returns numbers in plain decimal.

Source: the documentation of java.lang.Double (``toString``, ``valueOf``).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from confplane.domain.texts import shown

_BLANK: Final = "".join(map(chr, range(0x21)))
"""The characters that ``String.trim`` removes."""
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_WORDS: Final = {sign + word: float(sign + word.lower()) for sign in ("", "+", "-") for word in ("NaN", "Infinity")}

_PLAIN_FROM: Final = 1e-3
_PLAIN_BELOW: Final = 1e7


def java_double(value: float) -> str:
    """Return a finite number in the layout of Java's ``Double.toString``.

    The digits are the shortest that read back as the same double, with at least one after the point. The layout is
    plain from 1e-3 to below 1e7, and ``d.dddE[-]n`` otherwise: ``200.0``, ``1.0E7``, ``1.0E-4``.

    Raises:
        ValueError: The number is not finite.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if len(digits) == 1:
        # Java chooses the nearest among all two-digit spellings: the smallest double is 4.9E-324 there, not 5E-324.
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
    fraction = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{int(exponent) + len(digits) - 1}"


def parse_java_double(text: str) -> float:
    """Read a number as Java's ``Double.parseDouble`` does.

    Surrounding blanks, a trailing ``f`` or ``d``, hexadecimal floats, ``NaN`` and ``Infinity`` are accepted; ``inf``
    and ``1_000`` are not. Numbers out of range are infinite or zero.

    Raises:
        ValueError: The text is not a number.
    """
    trimmed = java_trim(text)
    if trimmed in _WORDS:
        return _WORDS[trimmed]
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1])
    if match := _HEX.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise ValueError(f"{shown(text)} is not a number")


def java_trim(text: str) -> str:
    """Trim as Java's ``String.trim`` does: leading and trailing characters up to U+0020, and no other characters."""
    return text.strip(_BLANK)


def plain_number(value: float) -> str:
    """Return a finite number in plain decimal: shortest digits that read back, no exponent, no trailing ``.0``.

    ``1e22`` is ``10000000000000000000000`` and ``1e-7`` is ``0.0000001``; an ``int`` stays exact.

    Raises:
        ValueError: The number is not finite.
    """
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    text = format(Decimal(repr(value)), "f").removesuffix(".0")
    return "0" if text == "-0" else text


def stored_number(text: str) -> float | None:
    """Read a stored number as Kafka does; whole numbers remain exact, and None is returned for other texts."""
    trimmed = java_trim(text)
    if _INTEGER.fullmatch(trimmed):
        return int(trimmed)
    try:
        return parse_java_double(trimmed)
    except ValueError:
        return None
