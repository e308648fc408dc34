"""``confplane get``: the keys that are set on an entity, now or at a moment of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote.entities import entity_of, facets_of
from confplane.cli.remote.entity_values import keys_of, read_entity_values
from confplane.cli.remote.moments import moment_of
from confplane.cli.remote.output import NOT_KEPT, note_inexact, print_json, print_table, value_text
from confplane.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from confplane.client import Answer, AsyncConfplane
    from confplane.domain.facets import FacetName


async def get(client: AsyncConfplane, name: str, *, at: str | None, as_json: bool) -> int:
    """Print the content of all facets of an entity, and return the exit code."""
    entity = entity_of(name)
    moment = None if at is None else moment_of(at, "--at")
    found = await read_entity_values(client, entity, moment)
    if as_json:
        print_json(
            {"id": entity.id}
            | {facet.value: keys_of(facet, found[facet]) if facet in found else None for facet in facets_of(entity)}
            | {"etags": {facet.value: answer.etag for facet, answer in found.items()}}
            | ({} if moment is None else {"at": {facet.value: answer.body["at"] for facet, answer in found.items()}})
        )
    if not found:
        when = "" if at is None else f" at {at}"
        typer.echo(f"Nothing is set on {entity.id} in the cluster {client.cluster}{when}", err=True)
        return FAILED
    note_inexact(answer.body["at"] for answer in found.values() if "at" in answer.body)
    if not as_json:
        print_table(("KEY", "VALUE"), [row for facet, answer in found.items() for row in _rows(facet, answer)])
    return DONE


def _rows(facet: FacetName, answer: Answer[Any]) -> list[tuple[str, str]]:
    """Return keys and values. For a past moment, this includes keys whose values the trail does not have."""
    values = keys_of(facet, answer)
    not_kept = [key for key in answer.body.get("at", {}).get("notKept", ()) if key not in values]
    return [(key, value_text(value)) for key, value in values.items()] + [(key, NOT_KEPT) for key in not_kept]
