"""The run of ``confplane export`` over the API."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.cli.remote.export import kafka_configs, terraform, yaml_form
from confplane.cli.remote.export.destination import opened
from confplane.cli.remote.selection import Source
from confplane.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from confplane.cli.remote.selection import Selection
    from confplane.client import AsyncConfplane

    Form = Callable[[Source], AsyncIterator[str]]
    """Writes a source piece by piece."""


def form_of(name: str, command: str | None) -> Form:
    """Return a form by its name; ``command`` has other words for those of Kafka's tool."""
    forms: dict[str, Form] = {
        "yaml": yaml_form.written,
        "kafka-configs": partial(kafka_configs.written, command=command or kafka_configs.COMMAND),
        "terraform": terraform.written,
    }
    return forms[name]


async def export(client: AsyncConfplane, form: Form, selection: Selection, output: Path | None) -> int:
    """Write the selected entities of a cluster, and return the exit code.

    Raises:
        InvalidRequestError: No entity can be of the selected types.
        ClientError: The service refused, or did not answer.
    """
    source = Source(client, selection)
    try:
        with opened(output) as stream:
            async for text in form(source):
                stream.write(text)
            for path in source.unreadable:
                stream.write(source.leave_out(f"the znode {json.dumps(path)}: the service can't read it"))
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        typer.echo(f"Not exported: {output or 'standard output'} can't be written: {error.strerror}", err=True)
        return FAILED
    return _ended(source, output)


def _ended(source: Source, output: Path | None) -> int:
    where = "" if output is None else f" to {output}"
    secrets = f"; secrets that it leaves to you: {source.secrets}" if source.secrets else ""
    typer.echo(f"Exported {source.noun}{where}: {source.count}{secrets}", err=True)
    for reason in source.reasons:
        typer.echo(f"Left out: {reason}", err=True)
    if further := source.left_out - len(source.reasons):
        typer.echo(f"Left out besides, see the comments: {further}", err=True)
    return FAILED if source.left_out else DONE
