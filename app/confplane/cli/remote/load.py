"""``confplane load``: the entities of a file, set over the API."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli.remote import apply_results
from confplane.cli.remote.changes import differences
from confplane.cli.remote.load_file import check, pieces
from confplane.cli.remote.progress import show_count
from confplane.cli.remote.session import FAILED, UNKNOWN
from confplane.client import Change, ClientChange, ClientError, ProblemError
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
    from typing import BinaryIO

    from confplane.cli.remote.changes import ChangeOptions
    from confplane.cli.remote.load_file import LoadedEntity
    from confplane.client import Answer, AsyncConfplane

_STANDARD_INPUT: Final = Path("-")
_Result = dict[str, Any]


async def load(client: AsyncConfplane, path: Path, options: ChangeOptions) -> int:
    """Set the keys of a file, several hundred entities at a time until one is refused, and return the exit code.

    The whole file is read first, so that an error at its end leaves the cluster unchanged.

    Raises:
        InvalidRequestError: The file can't be read, or does not have the expected form.
        ClientError: The service refused a request as a whole, or did not answer.
    """
    changed = equal = 0
    refused: list[tuple[LoadedEntity, _Result]] = []
    done: list[tuple[str, _Result]] = []
    warnings: list[str] = []
    with _opened(path) as stream:
        secrets = _checked(path, stream)
        results = _EntityLoader(client, options).results(stream, str(path))
        try:
            async for item, result in show_count(results, "entities"):
                warnings += [f"{item.place}, {item.entity.id}: {each}" for each in result.get("warnings", ())]
                if result["errorCode"]:
                    refused.append((item, result))
                elif differences(result):
                    changed += 1
                    if "applied" in result:
                        done.append((item.entity.id, {"applied": result["applied"]}))
                else:
                    equal += 1
        except (ClientError, asyncio.CancelledError) as error:
            typer.echo(f"Not all is loaded. Entities changed before: {changed}", err=True)
            if isinstance(error, asyncio.CancelledError) and not options.validate_only:
                typer.echo("The last request may be done or not. Load the file again: equal values stay.", err=True)
            raise
    for warning in warnings:
        typer.echo(f"Warning: {warning}", err=True)
    for item, result in refused:
        typer.echo(f"{item.place}, {item.entity.id}: {result['errorMessage']}", err=True)
    left_out = f"; secrets left out: {secrets}" if secrets else ""
    what = "to change" if options.validate_only else "changed"
    typer.echo(f"Entities {what}: {changed}; equal already: {equal}{left_out}")
    taken = apply_results.report_many(done)
    if not refused:
        return taken
    typer.echo("Not all is loaded. Correct the file and load it again: what is set already stays.", err=True)
    return UNKNOWN if any(result["outcome"] == "unknown" for _, result in refused) else FAILED


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file that can be read twice. A pipe is copied to disk first.

    Raises:
        InvalidRequestError: The file can't be read.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == _STANDARD_INPUT else path.open("rb") as file:
            if file.seekable():
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                yield copy
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be read: {error.strerror}") from None


def _checked(path: Path, stream: BinaryIO) -> int:
    """Read the whole file, and return the number of its secrets.

    Raises:
        InvalidRequestError: The file does not have the expected form, or names an entity twice.
    """
    try:
        return check(stream, str(path))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"Nothing is loaded. {error}") from None


@dataclass(frozen=True, slots=True)
class _EntityLoader:
    """Sends the requests that set entities."""

    client: AsyncConfplane
    options: ChangeOptions

    async def results(self, stream: BinaryIO, file: str) -> AsyncIterator[tuple[LoadedEntity, _Result]]:
        """Set the entities of a file up to the first request with a refusal, and yield each entity with its result."""
        for piece in pieces(stream, file):
            resources = [item for item in piece if item.values.get(FacetName.CONFIGS)]
            clients = [item for item in piece if item.values and FacetName.CONFIGS not in item.values]
            for items, send in ((resources, self._resources), (clients, self._clients)):
                results = await send(items) if items else []
                for item, result in zip(items, results, strict=True):
                    yield item, result
                if any(result["errorCode"] for result in results):
                    return

    async def _resources(self, items: Sequence[LoadedEntity]) -> list[_Result]:
        changes = [Change(item.entity, item.values[FacetName.CONFIGS]) for item in items]
        request = self.client.configs.alter(changes, **self.options.client_kwargs())
        return await _results_of(request, "responses", len(items))

    async def _clients(self, items: Sequence[LoadedEntity]) -> list[_Result]:
        quotas, configs = FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS
        changes = [
            ClientChange(item.entity, item.values.get(quotas, {}), item.values.get(configs, {})) for item in items
        ]
        request = self.client.clients.alter(changes, **self.options.client_kwargs())
        return await _results_of(request, "entries", len(items))


async def _results_of(request: Awaitable[Answer[Any]], member: str, number: int) -> list[_Result]:
    """Return the results of an alter, which are in the problem if all entities are refused."""
    try:
        body = (await request).body
    except ProblemError as error:
        body = error.body
        if len(body.get(member, ())) != number:
            raise
    results: list[_Result] = body[member]
    return results
