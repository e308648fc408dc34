"""Changes of ``confplane configs``: all changes of a command line are one request with one Idempotency-Key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote import apply_results
from confplane.cli.remote.changes import ChangeOptions, EntityUpdate, refuse_unset
from confplane.cli.remote.configs import lines
from confplane.cli.remote.configs.describe import of_clients, of_resources, own
from confplane.domain.client_configs import SUPPORTED_CONFIGS
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane


def altering(command: Command) -> Callable[[AsyncConfplane], Coroutine[Any, Any, int]]:
    """Return a function that makes a change, prints its success message, and returns the exit code.

    Raises:
        InvalidRequestError: A key is not valid for the entity, is both added and deleted, or a value is not a number.
        The returned function raises it if a key to delete is not set.
    """
    if both := [key for key in command.added if key in command.deleted]:
        raise InvalidRequestError(f"{', '.join(both)}: a key is either added or deleted in one command, not both")
    change = EntityUpdate.of(command.entity, {**command.added, **dict.fromkeys(command.deleted)})

    async def alter(client: AsyncConfplane) -> int:
        alter_one = _alter_clients if command.quotas else _alter_resource
        result = await alter_one(client, command, change)
        typer.echo(lines.altered(command))
        return apply_results.report_one(result)

    return alter


async def _alter_clients(client: AsyncConfplane, command: Command, change: EntityUpdate) -> dict[str, Any]:
    """Make the change, and return its result, which is empty if only registrations are altered."""
    removes = {
        FacetName.CLIENT_QUOTAS: None in change.quotas.values(),
        FacetName.CLIENT_CONFIGS: None in change.configs.values(),
    }
    found: set[str] = set()
    for facet in filter(removes.get, removes):
        for entry in (await of_clients(client, facet, command))["entries"]:
            found.update(each["key"] for each in entry["values"])
            found.update([SUPPORTED_CONFIGS] if entry.get("entityCompatibility") else [])
    refuse_unset(command.deleted, found)
    registrations = SUPPORTED_CONFIGS in command.deleted
    if registrations:
        del change.configs[SUPPORTED_CONFIGS]
    altered = change.quotas or change.configs
    result = await change.send(client, ChangeOptions(wait_applied_ms=command.wait_applied_ms)) if altered else {}
    if registrations:
        # Registrations are not configs, and are in another store. Their endpoint accepts no Idempotency-Key, because
        # clearing is idempotent.
        await client.registrations.clear(command.entity)
    return result


async def _alter_resource(client: AsyncConfplane, command: Command, change: EntityUpdate) -> dict[str, Any]:
    """Make the change, and return its result."""
    [kind], [name] = command.types, command.names
    if command.deleted:
        async for result in of_resources(client, kind, [name], synonyms=False):
            refuse_unset(command.deleted, {each["name"] for each in own(kind, result)})
    return await change.send(client, ChangeOptions(wait_applied_ms=command.wait_applied_ms))
