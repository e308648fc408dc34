"""Values of the rollups in readable form: quotas with units, parts in percent, levels and error codes by name."""

from __future__ import annotations

from typing import Final

from confplane.domain.errors import KafkaCode

LEVELS: Final = {
    1: "user with client-id",
    2: "user with any client-id",
    3: "user",
    4: "any user with client-id",
    5: "any user with any client-id",
    6: "any user",
    7: "client-id",
    8: "any client-id",
}
"""The level of a quota's entry, as numbered in KIP-55 -> the clients to which the entry applies."""

_BYTE_RATES: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_THOUSAND: Final = 1_000
_UNITS: Final = {
    "request_percentage": "% of a thread",
    "controller_mutation_rate": "partitions/s",
}


def amount(config_key: str, value: float) -> str:
    """Return a quota, or the use of it, with its unit; prefixes are decimal: a MB has 1,000,000 bytes."""
    if not config_key.endswith("_byte_rate"):
        return f"{number(value)} {_UNITS.get(config_key, '')}".rstrip()
    unit = 0
    while abs(value) >= _THOUSAND and unit < len(_BYTE_RATES) - 1:
        value, unit = value / _THOUSAND, unit + 1
    return f"{number(value)} {_BYTE_RATES[unit]}"


def percent(share: float) -> str:
    """Return a fraction in percent."""
    return f"{number(100 * share)} %"


def number(value: float) -> str:
    """Return a number with its significant digits."""
    if value == 0:
        return "0"
    if abs(value) < 1:
        return f"{value:.2g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004 - three digits in all
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or the code if this service never returns it."""
    try:
        return KafkaCode(code).name
    except ValueError:
        return str(code)
