"""The run of ``confplane export`` over the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import typer

from app.cli.remote.export import yaml_form
from app.cli.remote.export.destination import opened
from app.cli.remote.export.selection import Source
from app.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from app.cli.remote.export.selection import Selection
    from app.client import ConfplaneClient

FORMS: Final[dict[str, Callable[[Source], AsyncIterator[str]]]] = {"yaml": yaml_form.written}


async def export(client: ConfplaneClient, form: str, selection: Selection, output: Path | None) -> int:
    """Write the selected entities of a cluster, and return the exit code.

    Raises:
        InvalidRequestError: No entity can be of the selected types.
        ClientError: The service refused, or did not answer.
    """
    source = Source(client, selection)
    written = FORMS[form](source)
    try:
        with opened(output) as stream:
            async for text in written:
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
    typer.echo(f"Exported entities{where}: {source.entities}{secrets}", err=True)
    for reason in source.reasons:
        typer.echo(f"Left out: {reason}", err=True)
    if further := source.left_out - len(source.reasons):
        typer.echo(f"Left out besides, see the comments: {further}", err=True)
    return FAILED if source.left_out else DONE
