"""``confplane get`` without an entity: the entities that have configs and match the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.cli.remote.output import print_json, print_table, value_text
from confplane.cli.remote.selection import EntityReader
from confplane.cli.remote.session import DONE, FAILED
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from confplane.cli.remote.selection import EntitySelection
    from confplane.client import AsyncConfplane


async def list_entities(client: AsyncConfplane, selection: EntitySelection, *, as_json: bool) -> int:
    """Print the entities with their keys, by id, and return the exit code: 1 if one can't be read.

    If a key is selected, the table shows only this key of each entity.
    """
    reader = EntityReader(client, selection)
    rows: list[tuple[str, str, str]] = []
    async for each in reader.read(*FacetName):
        if as_json:
            print_json({"id": each.id} | {facet.value: values for facet, values in each.facets.items()})
            continue
        keys = ((key, value) for values in each.facets.values() for key, value in values.items())
        rows += [(each.id, key, value_text(value)) for key, value in keys if selection.key in {None, key}]
    if not as_json:
        print_table(("ENTITY", "KEY", "VALUE"), rows)
    for path in sorted(reader.unreadable):
        typer.echo(f"Can't be read: {path}", err=True)
    return FAILED if reader.unreadable else DONE
