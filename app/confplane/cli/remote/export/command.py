"""The run of ``confplane export`` over the API."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.cli.remote.export import kafka_configs, terraform, yaml_form
from confplane.cli.remote.export.destination import open_destination
from confplane.cli.remote.selection import EntityReader
from confplane.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from confplane.cli.remote.selection import EntitySelection
    from confplane.client import AsyncConfplane

    Form = Callable[[EntityReader], AsyncIterator[str]]
    """Writes a source piece by piece."""


def form_of(name: str, command: str | None) -> Form:
    """Return a form by its name; ``command`` replaces the words of Kafka's tool."""
    forms: dict[str, Form] = {
        "yaml": yaml_form.render,
        "kafka-configs": partial(kafka_configs.render, command=command or kafka_configs.COMMAND),
        "terraform": terraform.render,
    }
    return forms[name]


async def export(client: AsyncConfplane, form: Form, selection: EntitySelection, output: Path | None) -> int:
    """Write the selected entities of a cluster, and return the exit code.

    Raises:
        InvalidRequestError: No entity can be of the selected types.
        ClientError: The service refused the request, or did not answer.
    """
    reader = EntityReader(client, selection)
    try:
        with open_destination(output) as stream:
            async for text in form(reader):
                stream.write(text)
            for path in reader.unreadable:
                stream.write(reader.leave_out(f"the znode {json.dumps(path)}: the service can't read it"))
    except BrokenPipeError:
        raise  # the reader has closed the pipe
    except OSError as error:
        typer.echo(f"Not exported: {output or 'standard output'} can't be written: {error.strerror}", err=True)
        return FAILED
    return _ended(reader, output)


def _ended(reader: EntityReader, output: Path | None) -> int:
    where = "" if output is None else f" to {output}"
    secrets = f"; secrets that it leaves to you: {reader.secrets}" if reader.secrets else ""
    typer.echo(f"Exported {reader.noun}{where}: {reader.count}{secrets}", err=True)
    for reason in reader.reasons:
        typer.echo(f"Left out: {reason}", err=True)
    if further := reader.left_out - len(reader.reasons):
        typer.echo(f"Left out besides, see the comments: {further}", err=True)
    return FAILED if reader.left_out else DONE
