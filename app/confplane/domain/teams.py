"""Teams: which team a trail's principals belong to, by name or by pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANY: Final = "*"
"""Matches any characters in a pattern, including none."""
_FORM: Final = (
    "a map with `teams`, a map of team names to lists of principals, and maybe `default`, the team of the rest"
)
_DEFAULT: Final = "unassigned"


@dataclass(frozen=True, slots=True)
class Teams:
    """Maps principals to teams: an exact name decides, then the first pattern that fits, then the default.

    Attributes:
        default: The team of principals that match no name or pattern.
        names: (team, its principals by their exact names), in the order of the file.
        patterns: (pattern, team), in the order of the file; ``*`` matches any characters.
    """

    default: str
    names: tuple[tuple[str, tuple[str, ...]], ...]
    patterns: tuple[tuple[str, str], ...]


def teams(given: object) -> Teams:
    """Read teams.

    Args:
        given: ``{"default": "platform", "teams": {"payments": ["User:alice", "User:payments-*"]}}``; ``default`` may be
            omitted, and is then "unassigned".

    Raises:
        ValueError: The value has another form, or names a principal or a pattern twice.
    """
    if not isinstance(given, dict) or not isinstance(given.get("teams"), dict):
        raise ValueError(f"this must be {_FORM}")  # noqa: TRY004 - it is a person's input
    if unknown := [str(key) for key in given if key not in {"teams", "default"}]:
        raise ValueError(f"{unknown[0]!r} is not known; this must be {_FORM}")
    named: dict[str, str] = {}
    for team, principals in given["teams"].items():
        _text("a team's name", team)
        if not isinstance(principals, list) or not principals:
            raise ValueError(f"teams.{team}: this must be a list of principals or patterns, such as User:payments-*")
        for principal in principals:
            _text(f"teams.{team}", principal)
            if principal in named:
                raise ValueError(f"teams.{team}: {principal!r} is in {named[principal]!r} already")
            named[principal] = team
    default = given.get("default", _DEFAULT)
    _text("default", default)
    exact = {team: tuple(name for name in named if named[name] == team and ANY not in name) for team in given["teams"]}
    return Teams(
        default,
        tuple((team, names) for team, names in exact.items() if names),
        tuple((name, team) for name, team in named.items() if ANY in name),
    )


def _text(where: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{where}: {value!r} is not a text in one line")
