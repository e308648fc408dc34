"""``confplane get``: the keys that are set on an entity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import typer

from app.cli.remote.entities import entity_of, facets_of
from app.cli.remote.output import print_json, print_table, value_text
from app.cli.remote.session import DONE, FAILED
from app.client import ProblemError

if TYPE_CHECKING:
    from app.client import ConfplaneClient
    from app.domain.entities import Entity
    from app.domain.facets import FacetName

_NOT_FOUND = 404


async def get(client: ConfplaneClient, name: str, *, as_json: bool) -> int:
    """Print what all facets of an entity have, and return the exit code."""
    entity = entity_of(name)
    facets = facets_of(entity)
    found = dict(zip(facets, await asyncio.gather(*(_declared(client, each, entity) for each in facets)), strict=True))
    if as_json:
        print_json({"id": entity.id} | {facet.value: values for facet, values in found.items()})
    if not any(found.values()):
        typer.echo(f"Nothing is set on {entity.id} in the cluster {client.cluster}", err=True)
        return FAILED
    if not as_json:
        rows = [(key, value_text(value)) for values in found.values() for key, value in (values or {}).items()]
        print_table(("KEY", "VALUE"), rows)
    return DONE


async def _declared(client: ConfplaneClient, facet: FacetName, entity: Entity) -> dict[str, Any] | None:
    """Return the keys of a facet; None where it has none."""
    try:
        body = (await client.get(facet.value, entity)).body
    except ProblemError as error:
        if error.status == _NOT_FOUND and error.kafka_error_code == 91:  # noqa: PLR2004 - the code of no such entity
            return None
        raise
    values: dict[str, Any] = body["quotas"] if "quotas" in body else body["configs"]
    return values
