"""``confplane effective``: the values in effect for an entity, and the level of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli.remote.entities import MEMBERS, entity_of, facets_of
from confplane.cli.remote.output import print_json, print_table, value_text
from confplane.cli.remote.session import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.client import AsyncConfplane

_DEFAULT: Final = "DEFAULT_CONFIG"


async def effective(client: AsyncConfplane, name: str, *, key: str | None, everything: bool, as_json: bool) -> int:
    """Print the values and their sources, and return the exit code.

    Args:
        client: The client.
        name: The entity, in the form of arguments.
        key: The only key to show; None for all of them.
        everything: Show defaults of Kafka too.
        as_json: Print the API's answers.
    """
    entity = entity_of(name)
    facets = facets_of(entity)
    answers = await asyncio.gather(*(client.resources(each).effective(entity) for each in facets))
    found = {facet: answer.body for facet, answer in zip(facets, answers, strict=True)}
    if as_json:
        print_json({"id": entity.id} | {facet.value: body for facet, body in found.items()})
        return DONE
    values = [value for facet, body in found.items() for value in body[MEMBERS[facet]]]
    shown = [each for each in values if _is_shown(each, key, everything=everything)]
    print_table(("KEY", "VALUE", "SOURCE"), [(each["key"], _text(each), each["source"]) for each in shown])
    for body in found.values():
        for warning in body["warnings"]:
            typer.echo(f"Warning: {warning}", err=True)
    return DONE


def _is_shown(value: Mapping[str, Any], key: str | None, *, everything: bool) -> bool:
    if key is not None:
        return bool(value["key"] == key)
    return everything or value["source"] != _DEFAULT


def _text(value: Mapping[str, Any]) -> str:
    """Return a value as text. Kafka has configs without a value that are not secrets."""
    if value["value"] is None and not value.get("isSensitive"):
        return "(none)"
    return value_text(value["value"])
