"""``confplane set`` and ``confplane delete``: one change of an entity, shown with the values before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote import apply_results
from confplane.cli.remote.assignments import values_of
from confplane.cli.remote.changes import EntityUpdate, differences, refuse_unset
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.entity_values import keys_of, read_entity_values
from confplane.cli.remote.output import print_changes, print_json
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.cli.remote.changes import ChangeOptions
    from confplane.client import AsyncConfplane


async def put(client: AsyncConfplane, name: str, words: Sequence[str], options: ChangeOptions, *, as_json: bool) -> int:
    """Set keys, print what changed, and return the exit code."""
    change = EntityUpdate.of(entity_of(name), values_of(words))
    on_line = {key for key, equals, text in (word.partition("=") for word in words) if equals and text[:1] != "@"}
    result = await change.send(client, options)
    if bared := sorted(each["key"] for each in differences(result) if each.get("secret") and each["key"] in on_line):
        typer.echo(
            f"Warning: {', '.join(bared)} stood on the command line, where everybody on the machine can read it; give"
            f" a secret as KEY=@FILE, or as KEY alone to be asked for it",
            err=True,
        )
    _show(change, result, options, as_json=as_json)
    return apply_results.report_one(result)


async def delete(
    client: AsyncConfplane, name: str, keys: Sequence[str], options: ChangeOptions, *, everything: bool, as_json: bool
) -> int:
    """Remove keys, or all keys; print what changed, and return the exit code.

    "All keys" are those of one read. The change fails if another key is set after that read.
    """
    entity = entity_of(name)
    if bool(keys) == everything:
        raise InvalidRequestError("Give the keys to delete, or --all for all keys of the entity")
    found = await read_entity_values(client, entity)
    present = [key for facet, answer in found.items() for key in keys_of(facet, answer)]
    refuse_unset(keys, present)
    if everything:
        if not present:
            raise InvalidRequestError(f"Nothing is changed: nothing is set on {entity.id}")
        etags = {facet: answer.etag for facet, answer in found.items()}
        configs = etags.get(FacetName.CLIENT_CONFIGS, etags.get(FacetName.CONFIGS))
        options = replace(
            options,
            quotas_etag=options.quotas_etag or etags.get(FacetName.CLIENT_QUOTAS),
            configs_etag=options.configs_etag or configs,
        )
    change = EntityUpdate.of(entity, dict.fromkeys(present if everything else keys))
    result = await change.send(client, options)
    _show(change, result, options, as_json=as_json)
    return apply_results.report_one(result)


def _show(change: EntityUpdate, result: Mapping[str, Any], options: ChangeOptions, *, as_json: bool) -> None:
    """Print the result, and on standard error a description of it."""
    changes = differences(result)
    if as_json:
        print_json(result)
    elif changes:
        print_changes(changes)
    if not changes:
        said = f"Nothing to change: {change.entity.id} has these values already"
    elif options.validate_only:
        said = "Valid; nothing was written"
    else:
        said = f"Changed {change.entity.id}: revision {result['revision']}, change {result['changeId']}"
    typer.echo(said, err=True)
