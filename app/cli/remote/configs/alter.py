"""Changes of ``confplane configs``: those of a command line are one request with one Idempotency-Key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from app.cli.remote.configs import changes, lines
from app.cli.remote.configs.describe import RESOURCE_TYPES, of_clients, of_resources, own
from app.cli.remote.session import DONE, new_key
from app.domain.client_configs import SUPPORTED_CONFIGS
from app.domain.errors import InvalidRequestError
from app.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from app.cli.remote.configs.arguments import Command
    from app.cli.remote.configs.changes import ClientChanges
    from app.client import ConfplaneClient


def altering(command: Command) -> Callable[[ConfplaneClient], Coroutine[Any, Any, int]]:
    """Return what makes a change, prints the line of its success, and returns the exit code.

    Raises:
        InvalidRequestError: A key is none of the entity's, or a value is not a number. What is returned raises it where
            a key to delete is not set.
    """
    wanted = changes.of_clients(command) if command.quotas else None

    async def alter(client: ConfplaneClient) -> int:
        if wanted is not None:
            await _alter_clients(client, command, wanted)
        else:
            await _alter_resource(client, command)
        typer.echo(lines.altered(command))
        return DONE

    return alter


async def _alter_clients(client: ConfplaneClient, command: Command, wanted: ClientChanges) -> None:
    removes = {
        FacetName.CLIENT_QUOTAS: None in wanted.quotas.values(),
        FacetName.CLIENT_CONFIGS: None in wanted.configs.values() or wanted.registrations,
    }
    found: set[str] = set()
    for facet in filter(removes.get, removes):
        for entry in (await of_clients(client, facet, command))["entries"]:
            found.update(each["key"] for each in entry["values"])
            found.update([SUPPORTED_CONFIGS] if entry.get("entityCompatibility") else [])
    _refuse_unset(command, found)
    if wanted.quotas or wanted.configs:
        entries = [(command.entity, wanted.quotas, wanted.configs)]
        answer = await client.alter_clients(entries, idempotency_key=new_key())
        _warn(answer.body["entries"])
    if wanted.registrations:
        # Registrations are no configs, and in another store. Their endpoint takes no Idempotency-Key: to clear them
        # twice is to clear them once.
        await client.request("DELETE", "registrations", params={"id": command.entity.id})


async def _alter_resource(client: ConfplaneClient, command: Command) -> None:
    [kind], [name] = command.types, command.names
    if command.deleted:
        async for result in of_resources(client, kind, [name], synonyms=False):
            _refuse_unset(command, {each["name"] for each in own(kind, result)})
    ops = [{"name": key, "configOperation": "SET", "value": value} for key, value in command.added.items()]
    ops += [{"name": key, "configOperation": "DELETE"} for key in command.deleted]
    resource = {"resourceType": RESOURCE_TYPES[kind], "resourceName": name, "configs": ops}
    headers = {"Idempotency-Key": new_key()}
    answer = await client.request("POST", "configs:incrementalAlter", json={"resources": [resource]}, headers=headers)
    _warn(answer.body["responses"])


def _refuse_unset(command: Command, found: set[str]) -> None:
    """Refuse to delete what is not set, as Kafka's tool does: a misspelt key is no success."""
    if unset := [key for key in command.deleted if key not in found]:
        raise InvalidRequestError(f"Nothing is changed: not set, so not to be deleted: {', '.join(unset)}")


def _warn(results: Iterable[Mapping[str, Any]]) -> None:
    for result in results:
        for warning in result["warnings"]:
            typer.echo(f"Warning: {warning}", err=True)
