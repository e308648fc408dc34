"""Kafka's ``ssl.principal.mapping.rules``: principals of certificates' subjects.

A list of ``RULE:pattern/replacement/[LU]`` and ``DEFAULT``; the first that matches decides. Patterns are Java's: those
that Python interprets differently are refused, so that no rule silently has another meaning here than in the brokers.

Source: clients/src/main/java/org/apache/kafka/common/security/ssl/SslPrincipalMapper.java of Kafka 3.9.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Final

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_TWO_DIGITS: Final = 10
_MOST_DIGITS: Final = 9
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's ``trim`` removes."""
_LINE_ENDS: Final = frozenset("\n\r\x85\u2028\u2029")
_ESCAPE: Final = re.compile(r"\\(?:[^A-Za-z0-9]|[dDsSwWbBAtnrf1-9]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})")
_GROUP: Final = re.compile(r"\(\?(?::|=|!|<=|<!|>|i\)|i:)")


class UnmappedError(ValueError):
    """No rule applies to a subject, or a rule fails on it."""


@dataclass(frozen=True, slots=True)
class _MappingRule:
    """One rule; ``DEFAULT`` has no pattern."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        template = _with_literals(self.replacement, self.pattern.groups)
        found = _replaced(self.pattern, template, subject)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class PrincipalMapper:
    """Maps subjects to names.

    Args:
        rules: As in ``ssl.principal.mapping.rules``.

    Raises:
        ValueError: A rule is not valid, or has a pattern that only Java reads.
    """

    def __init__(self, rules: str) -> None:
        if not _LINE_ENDS.isdisjoint(rules.strip(_TRIMMED)):
            raise ValueError("the rules have a line break; write them in one line")
        self._rules = [
            rule for match in _SPLITTER.finditer(rules.strip(_TRIMMED)) if (rule := _parsed(match[1])) is not None
        ]

    def name(self, subject: str) -> str:
        """Return the name of a subject.

        Raises:
            UnmappedError: No rule applies.
        """
        if not _LINE_ENDS.isdisjoint(subject):
            raise UnmappedError("the subject has a line break")
        for rule in self._rules:
            found = rule.apply(subject)
            if found is not None:
                return found
        raise UnmappedError("no rule applies to the subject")


def _parsed(text: str) -> _MappingRule | None:
    """Return a rule, or None for an empty one."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"{text!r} is not a rule of the form RULE:pattern/replacement/[LU], and not DEFAULT")
    if match[1] is not None:
        return _MappingRule()
    if match[2] is None:
        return None
    return _MappingRule(_compiled(match[2]), match[3], match[4])


def _compiled(pattern: str) -> re.Pattern[str]:
    _check_syntax(pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern!r} can't be used: {error}") from None


def _check_syntax(pattern: str) -> None:
    """Refuse all syntax that Java and Python interpret differently.

    Raises:
        ValueError: The pattern has such a part.
    """
    at, in_class = 0, False
    while at < len(pattern):
        part, step, fits = pattern[at], 1, True
        if part == "\\":
            escape = _ESCAPE.match(pattern, at)
            fits, step = escape is not None, len(escape[0]) if escape else 1
        elif in_class:
            fits = part != "[" and pattern[at : at + 2] != "&&"
            in_class = part != "]"
        elif part == "[":
            in_class = True
            step = 2 if pattern[at + 1 : at + 2] == "^" else 1
            fits = pattern[at + step : at + step + 1] != "]"
        elif pattern.startswith("(?", at):
            fits = _GROUP.match(pattern, at) is not None
        if not fits:
            raise ValueError(
                f"the pattern {pattern!r} has at character {at + 1} a part that only Java reads as Kafka does; write it"
                " with plain groups, classes, repetitions and the escapes \\d \\s \\w \\b"
            )
        at += step


def _with_literals(replacement: str, groups: int) -> str:
    """Escape references to groups that the pattern does not have, by Kafka's own steps.

    Positions are those of the text before any escape, as in Kafka.
    """
    if groups == 0:
        return replacement
    value = replacement
    for match in _REFERENCE.finditer(replacement):
        number = match[1]
        if number.startswith("0"):
            continue
        if len(number) > _MOST_DIGITS:
            raise UnmappedError("a reference of a rule has too many digits")
        index = int(number)
        while index > groups and index >= _TWO_DIGITS:
            index //= _TWO_DIGITS
        if index > groups:
            begin = match.start(1) - 1
            value = f"{value[:begin]}\\{value[begin:]}"
    return value


def _replaced(pattern: re.Pattern[str], template: str, subject: str) -> str:
    """Replace every match that Java's ``replaceAll`` finds. After an empty match, it skips one character."""
    found: list[str] = []
    at = copied = 0
    while at <= len(subject) and (match := pattern.search(subject, at)) is not None:
        found += [subject[copied : match.start()], _expanded(template, match)]
        copied = match.end()
        at = copied + (match.start() == copied)
    return "".join([*found, subject[copied:]])


def _expanded(template: str, match: re.Match[str]) -> str:
    """Return a replacement as Java's ``Matcher.appendReplacement`` makes it.

    Raises:
        UnmappedError: Java would raise an exception.
    """
    found: list[str] = []
    at, groups = 0, match.re.groups
    while at < len(template):
        part = template[at]
        at += 1
        if part == "\\":
            if at == len(template):
                raise UnmappedError("a rule's replacement ends with a backslash")
            found.append(template[at])
            at += 1
        elif part != "$":
            found.append(part)
        else:
            digits = re.match(r"\d+", template[at:], re.ASCII)
            if digits is None or int(digits[0][0]) > groups:
                raise UnmappedError("a rule's replacement names a group that its pattern does not have")
            taken = 1
            while taken < len(digits[0]) and int(digits[0][: taken + 1]) <= groups:
                taken += 1
            found.append(match[int(digits[0][:taken])] or "")
            at += taken
    return "".join(found)
