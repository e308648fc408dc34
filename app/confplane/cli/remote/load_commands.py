"""``confplane load``: the entities of a YAML file, as written by ``confplane export``, set over the API."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_error, print_json, print_table, show_count, sides_of
from confplane.cli.remote.changes import ChangeOptions, differences, report_many
from confplane.cli.remote.entities import facets_of
from confplane.cli.remote.options import (
    AsLines,
    BreakGlass,
    ClusterName,
    ProfileName,
    Reason,
    Ticket,
    ValidateOnly,
    WaitApplied,
)
from confplane.cli.remote.session import FAILED, UNKNOWN, refusal_texts, run
from confplane.client import Change, ClientChange, ClientError, ProblemError
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.releases import newest, releases
from confplane.strict_yaml import read_items

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
    from typing import BinaryIO

    from confplane.client import Answer, AsyncConfplane
    from confplane.strict_yaml import YamlNode


commands = CommandGroup()


@commands.command(
    epilog="Examples:\n\n"
    "    confplane load payments.yaml --validate-only\n\n"
    '    confplane load payments.yaml --cluster payments-copy --reason "CHG-1234"\n\n'
    "Exit codes: 0 loaded; 1 an entity was refused, or not applied in time, or the service did not answer; 2 the file,"
    " the arguments or the profile are not valid, and nothing was set; 3 the answer to a write was lost: load the file"
    " again."
)
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; - is standard input.")],
    *,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    break_glass: BreakGlass = None,
    wait_applied: WaitApplied = None,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Set the quotas and configs of a file that `confplane export` wrote.

    Keys that are not in the file are not changed, and neither are keys with null, which stands for a secret. The first
    refusal ends the load, but not a dry run. A file may be loaded again: equal values are not changed.
    """
    options = ChangeOptions(validate_only, reason, ticket, wait_applied_ms=wait_applied, break_glass=break_glass)
    raise run(profile, cluster, lambda client: _load(client, file, options))


_ROWS: Final = 1000
"""Rows of a table: a longer list of differences is printed as several tables."""
_STANDARD_INPUT: Final = Path("-")
_Result = dict[str, Any]


async def _load(client: AsyncConfplane, path: Path, options: ChangeOptions) -> int:
    """Set the keys of a file, several hundred entities at a time until one is refused, and return the exit code.

    The whole file is read first, so that an error at its end leaves the cluster unchanged. A dry run shows what would
    change, and goes on after a refusal.

    Raises:
        InvalidRequestError: The file can't be read, or does not have the expected form.
        ClientError: The service refused a request as a whole, or did not answer.
    """
    from asyncio import CancelledError

    report = _LoadReport(options.validate_only)
    with open_source(path) as stream:
        secrets = _checked(path, stream)
        results = _EntityLoader(client, options).results(stream, str(path))
        try:
            async for item, result in show_count(results, "entities"):
                report.add(item, result)
        except (ClientError, CancelledError) as error:
            report.break_off(interrupted=isinstance(error, CancelledError))
            raise
    return report.finish(secrets)


class _LoadReport:
    """Prints what a load does, and counts it.

    Args:
        dry: Nothing is written; the differences are shown.
    """

    def __init__(self, dry: bool) -> None:  # noqa: FBT001 - private, with one caller
        self._dry = dry
        self._changed = self._equal = 0
        self._refused: list[_Result] = []
        self._messages: list[str] = []
        self._applied: list[tuple[str, _Result]] = []
        self._rows: list[tuple[str, ...]] = []

    def add(self, item: LoadedEntity, result: _Result) -> None:
        """Count the result of an entity."""
        entity_id = item.entity.id
        where = f"{item.place}, {entity_id}"
        if is_json():
            print_json({"id": entity_id, "place": item.place, **result})
        else:
            self._messages += [f"Warning: {where}: {each}" for each in result.get("warnings", ())]
        if result["errorCode"]:
            self._refused.append(result)
            if not is_json():
                self._messages += [f"{where}: {text}" for text in refusal_texts(result)]
            return
        changes = differences(result)
        if not changes:
            self._equal += 1
            return
        self._changed += 1
        if "applied" in result:
            self._applied.append((entity_id, {name: result[name] for name in ("applied", "changeId")}))
        if self._dry and not is_json():
            self._rows += [(entity_id, *sides_of(each)) for each in changes]
            if len(self._rows) >= _ROWS:
                self._print_rows()

    def break_off(self, *, interrupted: bool) -> None:
        """Print what was done before an error or Ctrl-C."""
        self._print_rows()
        if self._dry:
            echo("Not all entities were checked. Nothing was written.", err=True)
            return
        echo(f"Not all entities were loaded. Entities changed before: {self._changed}", err=True)
        if interrupted:
            echo(
                "The last request may or may not be applied. Load the file again: equal values are not changed.",
                err=True,
            )

    def finish(self, secrets: int) -> int:
        """Print the end of the report, and return the exit code."""
        self._print_rows()
        for message in self._messages:
            echo(message, err=True)
        left_out = f"; secrets left out: {secrets}" if secrets else ""
        what = "to change" if self._dry else "changed"
        refused = f"; refused: {len(self._refused)}" if self._dry and self._refused else ""
        echo(f"Entities {what}: {self._changed}; already equal: {self._equal}{refused}{left_out}", err=is_json())
        taken = report_many(self._applied)
        if not self._refused:
            return taken
        end = "Nothing was written." if self._dry else "Not all entities were loaded. Changes that were made stay."
        is_unknown = any(result["outcome"] == "unknown" for result in self._refused)
        return print_error(
            f"{end} Fix the errors above and load the file again.",
            UNKNOWN if is_unknown else FAILED,
            refused=len(self._refused),
        )

    def _print_rows(self) -> None:
        if self._rows:
            print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), self._rows)
        self._rows = []


@contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
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
        raise InvalidRequestError(f"Nothing was loaded. {error}") from None


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
        if error.problem_type == "frozen" or len(body.get(member, ())) != number:
            raise
    results: list[_Result] = body[member]
    return results


MOST_ENTITIES: Final = 500
_MOST_BYTES: Final = 1 << 20
"""Maximum size of a piece, unless one entity has more: the service accepts 8 MiB."""
_ID: Final = "id"
_BYTES_OF_A_KEY: Final = 80
"""Maximum of what a key takes in a request besides its name and value."""


@dataclass(frozen=True, slots=True)
class LoadedEntity:
    """The keys of one entity that a file sets."""

    place: str
    """The file, line and column."""
    line: int
    entity: Entity
    values: dict[FacetName, dict[str, Any]]
    secrets: int
    """Keys whose value is null, which are not in ``values``."""

    @property
    def size(self) -> int:
        """An estimate of the bytes in a request."""
        keys = [each for values in self.values.values() for each in values.items()]
        return len(self.entity.id) + sum(_BYTES_OF_A_KEY + len(key) + len(str(value)) for key, value in keys)


def check(stream: BinaryIO, file: str) -> int:
    """Read the whole file, and return the number of its secrets.

    Raises:
        InvalidRequestError: The file does not have the expected form, or names an entity twice; the text has the place.
    """
    secrets = 0
    lines: dict[str, int] = {}
    for each in _entities(stream, file):
        entity_id = each.entity.id
        if entity_id in lines:
            raise InvalidRequestError(
                f"{each.place}: {entity_id} occurs twice: here and in line {lines[entity_id]}. Join both items."
            )
        lines[entity_id] = each.line
        secrets += each.secrets
    return secrets


def pieces(stream: BinaryIO, file: str) -> Iterator[list[LoadedEntity]]:
    """Read a file from its beginning, several hundred entities at a time.

    Raises:
        InvalidRequestError: The file does not have the expected form; the text has the place, and never a value.
    """
    piece: list[LoadedEntity] = []
    size = 0
    for each in _entities(stream, file):
        if piece and (len(piece) == MOST_ENTITIES or size + each.size > _MOST_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += each.size
    if piece:
        yield piece


def _entities(stream: BinaryIO, file: str) -> Iterator[LoadedEntity]:
    return map(_loaded, read_items(stream, file))


def _loaded(item: YamlNode) -> LoadedEntity:
    members = item.value if isinstance(item.value, dict) else {}
    entity = entity_at(item, members.get(_ID))
    facets = {facet.value: facet for facet in facets_of(entity)}
    values: dict[FacetName, dict[str, Any]] = {}
    secrets = 0
    for member, keys in members.items():
        if member == _ID:
            continue
        if member not in facets or not isinstance(keys.value, dict):
            raise keys.error(f"{entity.id} has {' and '.join(facets)}, each with keys and values; not {member!r}")
        facet = facets[member]
        for key, node in keys.value.items():
            check_value(entity, facet, key, node)
        values[facet] = {key: node.value for key, node in keys.value.items() if node.value is not None}
        secrets += len(keys.value) - len(values[facet])
    return LoadedEntity(item.place, item.line, entity, values, secrets)


def entity_at(item: YamlNode, named: YamlNode | None) -> Entity:
    """Return the entity of an item by the node of its id.

    Raises:
        InvalidRequestError: It has no id, or no entity can have it; the text has the place.
    """
    if named is None or not isinstance(named.value, str):
        raise item.error("an entity has an id, such as `id: user=alice`")
    try:
        entity = Entity.from_id(named.value)
        if FacetName.CONFIGS in facets_of(entity):
            _configs_of(newest()).check_entity(entity)
        else:  # an id with a user fits both facets of clients
            ClientQuotasFacet().check_entity(entity)
    except ConfplaneError as error:
        raise named.error(str(error)) from None
    return entity


def check_value(entity: Entity, facet: FacetName, key: str, node: YamlNode) -> None:
    """Refuse a value of the wrong kind; only the service knows the ranges.

    Raises:
        InvalidRequestError: The value is not of the kind of the facet; the text has the place.
    """
    value = node.value
    if facet is FacetName.CLIENT_QUOTAS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise node.error(f"the value of {key} is not a number")
    elif value is None:
        if facet is not FacetName.CONFIGS or not may_be_secret(entity, key):
            raise node.error(
                f"{key} is not a secret, so its value can't be null; `confplane delete` removes a key from an entity"
            )
    elif not isinstance(value, str):
        raise node.error(f"the value of {key} is not text; put it in quotes")


def may_be_secret(entity: Entity, key: str) -> bool:
    """Return True if a cluster of some release hides the values of a key, so that its exports have null."""
    return any(_configs_of(release).is_secret(entity, key) for release in releases())


def _configs_of(release: str) -> ConfigsFacet:
    return ConfigsFacet(lambda: catalog_of(release))
