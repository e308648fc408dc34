"""The changes of a plan for people: as a table, or as a unified diff."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli.output import escape, print_table, side_text, sides_of, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_NOTHING: Final = "/dev/null"
"""The name of the side that does not exist, as in a diff of files."""
_COLOURS: Final = {"-": "red", "+": "green"}


def print_plan_table(changes: Sequence[Mapping[str, Any]]) -> None:
    """Print each key with its values before and after, and a note."""
    rows = [(each["id"], *sides_of(item), _note(each, item)) for each, item in _keys(changes)]
    rows += [(each["id"], *row) for each, row in _claims(changes)]
    if rows:
        print_table(("ENTITY", "KEY", "BEFORE", "AFTER", "NOTE"), rows)


def print_plan_diff(changes: Sequence[Mapping[str, Any]]) -> None:
    """Print the keys of each entity as lines with a minus and a plus, below a header with the entity and the facet."""
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    header: tuple[str, str] | None = None
    for claim in (f"{each['id']}: {' '.join(filter(None, row))}" for each, row in _claims(changes)):
        typer.echo(f"# {escape(claim)}")
    for change, item in _keys(changes):
        if header != (header := (change["id"], change["facet"])):
            name = " ".join(header)
            typer.echo(f"--- {_NOTHING if change['action'] == 'create' else name}")
            typer.echo(f"+++ {_NOTHING if change['action'] == 'delete' else name}")
        for line in _lines(change, item):
            text = escape(line).replace("\n", "\\n")
            typer.echo(typer.style(text, fg=_COLOURS[line[0]]) if is_coloured else text, color=is_coloured or None)


def _claims(changes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], tuple[str, str, str, str]]]:
    """Iterate over the keys of which only the owner changes, and the entities of which only labels change, as rows."""
    for change in changes:
        shown = {item["key"] for item in change["diff"]}
        claimed = change.get("claimed", ())
        if not change["errorCode"]:
            yield from (
                (change, (each["key"], "", "", _owner_note(each))) for each in claimed if each["key"] not in shown
            )
            if change["action"] == "claim" and not claimed:
                yield change, ("", "", "", "other labels")


def _owner_note(claimed: Mapping[str, Any]) -> str:
    return "gets the owner" if claimed["owner"] is None else f"taken over from {claimed['owner']}"


def _keys(changes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Iterate over the keys of the changes that are not refused."""
    return ((each, item) for each in changes if not each["errorCode"] for item in each["diff"])


def _lines(change: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of a key. A secret has both: whether one was stored is not known."""
    note = _note(change, item)
    key, is_secret = item["key"], item.get("secret")
    is_added = item["after"] is not None or (is_secret and change["action"] != "delete" and "fallback" not in item)
    if item["before"] is not None or (is_secret and change["action"] != "create"):
        yield f"-{key}: {side_text(item, 'before')}" + (f"  # {note}" if note and not is_added else "")
    if is_added:
        yield f"+{key}: {side_text(item, 'after')}" + (f"  # {note}" if note else "")


def _note(change: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    if "fallback" in item:
        fallback = item["fallback"]
        value = "a value" if fallback["value"] is None else value_text(fallback["value"])
        return f"{value} of {fallback['source']} takes effect"
    if item.get("fingerprint"):
        return f"fingerprint {item['fingerprint']}"
    if change["pruned"]:
        return "not in the manifest"
    taken = (each for each in change.get("claimed", ()) if each["key"] == item["key"] and each["owner"] is not None)
    return next((_owner_note(each) for each in taken), "")
