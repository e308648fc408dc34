"""``confplane history`` and ``confplane diff``: the past of an entity, in all its facets together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote.entities import entity_of, facets_of
from confplane.cli.remote.moments import moment_of
from confplane.cli.remote.output import (
    author_text,
    note_inexact,
    print_changes,
    print_json,
    print_table,
    reason_text,
    sides_of,
)
from confplane.cli.remote.progress import show_count
from confplane.cli.remote.session import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.client import AsyncConfplane
    from confplane.client.types import HistoryItem, PastDiff
    from confplane.domain.entities import Entity
    from confplane.domain.facets import FacetName


async def history(client: AsyncConfplane, name: str, *, limit: int, as_json: bool) -> int:
    """Print the changes of an entity, newest first, and return the exit code."""
    entity = entity_of(name)
    changes = await _changes(client, entity, limit)
    if as_json:
        for change in changes:
            print_json(change)
        return DONE
    if not changes:
        typer.echo(f"The trail has no change of {entity.id} in the cluster {client.cluster}", err=True)
        return DONE
    print_table(
        ("TIME", "REVISION", "BY", "KEY", "BEFORE", "AFTER", "REASON", "CHANGE"),
        [row for change in changes for row in _rows(change)],
    )
    return DONE


async def _changes(client: AsyncConfplane, entity: Entity, limit: int) -> list[HistoryItem]:
    """Return the newest changes; a joint change of quotas and client configs counts once."""
    by_id: dict[str, HistoryItem] = {}
    for facet in facets_of(entity):
        taken = 0
        async for item in show_count(aiter(client.resources(facet).history(entity)), "changes"):
            known = by_id.setdefault(item["changeId"], item)
            if known is not item:
                known["changes"] += item["changes"]
            taken += 1
            if taken == limit:
                break
    newest = sorted(by_id.values(), key=lambda each: (int(each["revision"]), each["changeId"]), reverse=True)
    return newest[:limit]


def _rows(change: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each key; the first row also has the facts of the change as a whole."""
    shown = [sides_of(each) for each in change["changes"]]
    if not shown:
        shown = [("(moved to another layout)" if change.get("moved") else "(no value changed)", "", "")]
    first = (change["time"], change["revision"], author_text(change), *shown[0])
    beside = (reason_text(change), change["changeId"])
    return [(*first, *beside), *(("", "", "", *each, "", "") for each in shown[1:])]


async def diff(client: AsyncConfplane, name: str, *, before: str, after: str | None, as_json: bool) -> int:
    """Print the keys that differ between two moments, and return the exit code."""
    entity = entity_of(name)
    facets = facets_of(entity)
    found = await _differences(
        client, entity, facets, moment_of(before, "--from"), None if after is None else moment_of(after, "--to")
    )
    note_inexact(moment for each in found for moment in (each["before"], each["after"]))
    if as_json:
        print_json({"id": entity.id} | {facet.value: each for facet, each in zip(facets, found, strict=True)})
        return DONE
    changes = [change for each in found for change in each["changes"]]
    if not changes:
        typer.echo(f"{entity.id} has no difference between {before} and {after or 'now'}", err=True)
        return DONE
    print_changes(changes)
    return DONE


async def _differences(
    client: AsyncConfplane, entity: Entity, facets: Sequence[FacetName], before: str, after: str | None
) -> list[PastDiff]:
    diffs = (client.resources(facet).diff(entity, before=before, after=after) for facet in facets)
    answers = await asyncio.gather(*diffs)
    return [answer.body for answer in answers]
