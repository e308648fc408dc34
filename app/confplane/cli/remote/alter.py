"""``confplane set`` and ``confplane delete``: one change of an entity, shown with the values before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote import applied
from confplane.cli.remote.assignments import values_of
from confplane.cli.remote.changes import Change, differences, refuse_unset
from confplane.cli.remote.declared import declared, keys_of
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.output import print_changes, print_json
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.cli.remote.changes import Terms
    from confplane.client import AsyncConfplane


async def put(client: AsyncConfplane, name: str, words: Sequence[str], terms: Terms, *, as_json: bool) -> int:
    """Set keys, print what changed, and return the exit code."""
    change = Change.of(entity_of(name), values_of(words))
    on_line = {key for key, equals, text in (word.partition("=") for word in words) if equals and text[:1] != "@"}
    result = await change.send(client, terms)
    if bared := sorted(each["key"] for each in differences(result) if each.get("secret") and each["key"] in on_line):
        typer.echo(
            f"Warning: {', '.join(bared)} stood on the command line, where everybody on the machine can read it; give"
            f" a secret as KEY=@FILE, or as KEY alone to be asked for it",
            err=True,
        )
    _show(change, result, terms, as_json=as_json)
    return applied.of_one(result)


async def delete(
    client: AsyncConfplane, name: str, keys: Sequence[str], terms: Terms, *, everything: bool, as_json: bool
) -> int:
    """Remove keys, or all keys; print what changed, and return the exit code.

    All keys are those of one read: a key that somebody sets behind it makes the change fail.
    """
    entity = entity_of(name)
    if bool(keys) == everything:
        raise InvalidRequestError("Give the keys to delete, or --all for all keys of the entity")
    found = await declared(client, entity)
    present = [key for facet, answer in found.items() for key in keys_of(facet, answer)]
    refuse_unset(keys, present)
    if everything:
        if not present:
            raise InvalidRequestError(f"Nothing is changed: nothing is set on {entity.id}")
        etags = {facet: answer.etag for facet, answer in found.items()}
        configs = etags.get(FacetName.CLIENT_CONFIGS, etags.get(FacetName.CONFIGS))
        terms = replace(
            terms,
            quotas_etag=terms.quotas_etag or etags.get(FacetName.CLIENT_QUOTAS),
            configs_etag=terms.configs_etag or configs,
        )
    change = Change.of(entity, dict.fromkeys(present if everything else keys))
    result = await change.send(client, terms)
    _show(change, result, terms, as_json=as_json)
    return applied.of_one(result)


def _show(change: Change, result: Mapping[str, Any], terms: Terms, *, as_json: bool) -> None:
    """Print the result; on standard error what was done, in words."""
    changes = differences(result)
    if as_json:
        print_json(result)
    elif changes:
        print_changes(changes)
    if not changes:
        said = f"Nothing to change: {change.entity.id} has these values already"
    elif terms.validate_only:
        said = "Valid; nothing was written"
    else:
        said = f"Changed {change.entity.id}: revision {result['revision']}, change {result['changeId']}"
    typer.echo(said, err=True)
