"""Rules of Kafka's definitions for values, besides their types.

``str()`` of a rule gives Kafka's notation, as its documentation prints it.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigDef.java (the validators),
server-common/src/main/java/org/apache/kafka/server/common/MetadataVersionValidator.java,
storage/src/main/java/org/apache/kafka/storage/internals/log/ThrottledReplicaListValidator.java,
clients/src/main/java/org/apache/kafka/clients/consumer/internals/AutoOffsetResetStrategy.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ConfigValue = bool | int | float | str | list[str]
"""A parsed value: bool for BOOLEAN, int for SHORT, INT and LONG, float for DOUBLE, a list for LIST, else a string."""

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_LARGEST_INT: Final = 2**31 - 1
_MOST_DIGITS: Final = 100
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,40})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]{1,40})H)?(?:(?P<minutes>[-+]?[0-9]{1,40})M)?"
    r"(?:(?P<seconds>[-+]?[0-9]{1,40})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_LONG: Final = 2**63


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``minimum`` to ``maximum``, both inclusive and each optional (None), or one of ``also``."""

    minimum: float | None
    maximum: float | None
    also: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [str(bound) for bound in (self.minimum, "...", self.maximum) if bound is not None]
        return " or ".join([f"[{','.join(parts)}]", *map(str, self.also)])

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        if not isinstance(value, int | float) or value in self.also:
            return None
        also = "".join(f", or {number}" for number in self.also)
        # Written so that NaN fails.
        if self.minimum is not None and not value >= self.minimum:
            return f"must be at least {self.minimum}{also}"
        if self.maximum is not None and not value <= self.maximum:
            return f"must be at most {self.maximum}{also}"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some strings, or a list of them."""

    values: tuple[str, ...]
    ignore_case: bool = False

    def __str__(self) -> str:
        return f"{'(case insensitive) ' if self.ignore_case else ''}[{', '.join(self.values)}]"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        elements = value if isinstance(value, list) else [str(value)]
        if all((element.upper() if self.ignore_case else element) in self.values for element in elements):
            return None
        of = "a list of" if isinstance(value, list) else "one of"
        return f"must be {of} {', '.join(self.values)}{' in any case' if self.ignore_case else ''}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """Any string or list except the empty one."""

    def __str__(self) -> str:
        return "non-empty string"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        return "must not be empty" if value in ("", []) else None


@dataclass(frozen=True, slots=True)
class DistinctElements:
    """A list without an empty element; only ``values`` are allowed. Repetitions do not count (KIP-1161)."""

    values: tuple[str, ...] = ()
    """The elements that are allowed; empty means any."""
    non_empty: bool = False

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]" if self.values else "distinct elements"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        elements = value if isinstance(value, list) else [str(value)]
        if self.non_empty and not elements:
            return "must not be empty"
        if "" in elements:
            return "must not have an empty element"
        if self.values and not all(element in self.values for element in elements):
            return f"must be a list of {', '.join(self.values)}"
        return None


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """One of some strategies, or ``by_duration:`` and a duration of ISO 8601 that is not negative (KIP-1106)."""

    strategies: tuple[str, ...]

    def __str__(self) -> str:
        return f"[{', '.join(self.strategies)}, {_BY_DURATION}PnDTnHnMn.nS]"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        text = str(value)
        if text in self.strategies or (text.startswith(_BY_DURATION) and _is_duration(text.removeprefix(_BY_DURATION))):
            return None
        return f"must be one of {', '.join(self.strategies)}, or {_BY_DURATION} and a duration such as PT1H30M"


def _is_duration(text: str) -> bool:
    """Return True for a duration that ``java.time.Duration`` reads, and that is not negative."""
    match = _DURATION.fullmatch(text)
    if match is None or match["time"] in {"T", "t"} or not (match["days"] or match["time"]):
        return False
    parts = [int(match[unit] or 0) for unit in _UNITS]
    if not all(-_LONG <= part < _LONG for part in parts):
        return False
    whole = sum(part * factor for part, factor in zip(parts, _UNITS.values(), strict=True))
    fraction = int(f"{match['fraction'] or '':0<9}") * (-1 if (match["seconds"] or "").startswith("-") else 1)
    nanos = (whole * 10**9 + fraction) * (-1 if match["sign"] == "-" else 1)
    return 0 <= nanos < _LONG * 10**9


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """A release of Kafka, or an inter-broker protocol version: ``3.9``, ``3.9.1``, ``3.9-IV0``."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        return None if self._known(str(value)) else f"must be a version of Kafka, such as {self.values[-1]}"

    def _known(self, text: str) -> bool:
        # Only the leading parts are significant: two of them, or three for a release before 1.0.
        parts = text.split(".")
        leading = 3 if text.startswith("0.") else 2
        # Java drops empty parts at the end before counting.
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return (text if len(parts) <= leading else ".".join(parts[:leading])) in self.values


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A list of ``partition:broker``, or ``*`` alone; commas at the end do not count.

    Kafka's validator also accepts blanks around elements, empty elements, ``*,`` and numbers of any size. The brokers'
    reader (core/src/main/scala/kafka/server/ConfigHandler.scala, parseThrottledPartitions) accepts none of them: a
    broker that reads such a value at startup does not start.
    """

    def __str__(self) -> str:
        return "* or [partition]:[broker],[partition]:[broker],..."

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence; None for a valid value. Expects the text, not its list."""
        text = str(value)
        listed = text.rstrip(",")
        if text == "*" or all(map(self._is_replica, listed.split(",") if listed else [])):
            return None
        return "must be * alone, or a list of partition:broker such as 0:1,1:2, with nothing else between them"

    @staticmethod
    def _is_replica(element: str) -> bool:
        if not _REPLICA.fullmatch(element):
            return False
        return all(len(number) < _MOST_DIGITS and int(number) <= _LARGEST_INT for number in element.split(":"))


Rule = Range | OneOf | NonEmpty | DistinctElements | OffsetReset | KafkaVersion | ThrottledReplicas
