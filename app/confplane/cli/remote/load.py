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
from confplane.cli.remote.output import print_json, print_table, sides_of
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

_ROWS: Final = 1000
"""Rows of a table: a longer list of differences is printed as several tables."""
_STANDARD_INPUT: Final = Path("-")
_Result = dict[str, Any]


async def load(client: AsyncConfplane, path: Path, options: ChangeOptions, *, as_json: bool) -> int:
    """Set the keys of a file, several hundred entities at a time until one is refused, and return the exit code.

    The whole file is read first, so that an error at its end leaves the cluster unchanged. A dry run shows what would
    change, and goes on after a refusal.

    Raises:
        InvalidRequestError: The file can't be read, or does not have the expected form.
        ClientError: The service refused a request as a whole, or did not answer.
    """
    report = _LoadReport(options.validate_only, as_json)
    with _opened(path) as stream:
        secrets = _checked(path, stream)
        results = _EntityLoader(client, options).results(stream, str(path))
        try:
            async for item, result in show_count(results, "entities"):
                report.add(item, result)
        except (ClientError, asyncio.CancelledError) as error:
            report.break_off(interrupted=isinstance(error, asyncio.CancelledError))
            raise
    return report.finish(secrets)


class _LoadReport:
    """Prints what a load does, and counts it.

    Args:
        dry: Nothing is written; the differences are shown.
        as_json: Print each result as a line of JSON, and text on standard error alone.
    """

    def __init__(self, dry: bool, as_json: bool) -> None:  # noqa: FBT001 - private, with one caller
        self._dry = dry
        self._as_json = as_json
        self._changed = self._equal = 0
        self._refused: list[_Result] = []
        self._messages: list[str] = []
        self._applied: list[tuple[str, _Result]] = []
        self._rows: list[tuple[str, ...]] = []

    def add(self, item: LoadedEntity, result: _Result) -> None:
        """Count the result of an entity."""
        entity_id = item.entity.id
        where = f"{item.place}, {entity_id}"
        self._messages += [f"Warning: {where}: {each}" for each in result.get("warnings", ())]
        if self._as_json:
            print_json({"id": entity_id, **result})
        if result["errorCode"]:
            self._refused.append(result)
            self._messages.append(f"{where}: {result['errorMessage']}")
            return
        changes = differences(result)
        if not changes:
            self._equal += 1
            return
        self._changed += 1
        if "applied" in result:
            self._applied.append((entity_id, {"applied": result["applied"]}))
        if self._dry and not self._as_json:
            self._rows += [(entity_id, *sides_of(each)) for each in changes]
            if len(self._rows) >= _ROWS:
                self._print_rows()

    def break_off(self, *, interrupted: bool) -> None:
        """Print what was done before an error or Ctrl-C."""
        self._print_rows()
        if self._dry:
            typer.echo("Not all is checked. Nothing was written.", err=True)
            return
        typer.echo(f"Not all is loaded. Entities changed before: {self._changed}", err=True)
        if interrupted:
            typer.echo("The last request may be done or not. Load the file again: equal values stay.", err=True)

    def finish(self, secrets: int) -> int:
        """Print the end of the report, and return the exit code."""
        self._print_rows()
        for message in self._messages:
            typer.echo(message, err=True)
        left_out = f"; secrets left out: {secrets}" if secrets else ""
        what = "to change" if self._dry else "changed"
        refused = f"; refused: {len(self._refused)}" if self._dry and self._refused else ""
        typer.echo(
            f"Entities {what}: {self._changed}; equal already: {self._equal}{refused}{left_out}", err=self._as_json
        )
        taken = apply_results.report_many(self._applied)
        if not self._refused:
            return taken
        end = "Nothing was written." if self._dry else "Not all is loaded. What is set already stays."
        typer.echo(f"{end} Correct the file and load it again.", err=True)
        return UNKNOWN if any(result["outcome"] == "unknown" for result in self._refused) else FAILED

    def _print_rows(self) -> None:
        if self._rows:
            print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), self._rows)
        self._rows = []


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
        """Set the entities of a file up to the first request with a refusal, and yield each entity with its result.

        A dry run goes on after a refusal.
        """
        for piece in pieces(stream, file):
            resources = [item for item in piece if item.values.get(FacetName.CONFIGS)]
            clients = [item for item in piece if item.values and FacetName.CONFIGS not in item.values]
            for items, send in ((resources, self._resources), (clients, self._clients)):
                results = await send(items) if items else []
                for item, result in zip(items, results, strict=True):
                    yield item, result
                if any(result["errorCode"] for result in results) and not self.options.validate_only:
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
