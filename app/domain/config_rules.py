"""Rules of Kafka's definitions for values, besides their types.

``str()`` of a rule gives Kafka's notation, as its documentation prints it.

Source: clients/src/main/java/org/apache/kafka/common/config/ConfigDef.java (the validators),
server-common/src/main/java/org/apache/kafka/server/common/MetadataVersionValidator.java,
storage/src/main/java/org/apache/kafka/storage/internals/log/ThrottledReplicaListValidator.java.
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


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``minimum`` to ``maximum``, both included and either open (None), or one of ``also``."""

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
class KafkaVersion:
    """A release of Kafka, or an inter-broker protocol version: ``3.9``, ``3.9.1``, ``3.9-IV0``."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]"

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence ("must be ..."); None for a valid value."""
        return None if self._known(str(value)) else f"must be a version of Kafka, such as {self.values[-1]}"

    def _known(self, text: str) -> bool:
        # The leading parts count: two of them, or three of a release before 1.0.
        parts = text.split(".")
        leading = 3 if text.startswith("0.") else 2
        # Java drops empty parts at the end before counting.
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return (text if len(parts) <= leading else ".".join(parts[:leading])) in self.values


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A list of ``partition:broker``, or ``*`` alone; commas at the end do not count.

    Kafka's validator also takes blanks around elements, empty elements, ``*,`` and numbers of any size. The brokers'
    reader (core/src/main/scala/kafka/server/ConfigHandler.scala, parseThrottledPartitions) takes none of them: a broker
    that meets such a value when it starts does not start.
    """

    def __str__(self) -> str:
        return "* or [partition]:[broker],[partition]:[broker],..."

    def fault(self, value: ConfigValue) -> str | None:
        """Return the broken rule as the end of a sentence; None for a valid value. Takes the text, not its list."""
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


Rule = Range | OneOf | NonEmpty | KafkaVersion | ThrottledReplicas
