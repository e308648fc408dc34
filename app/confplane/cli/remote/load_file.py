"""The file of ``confplane load``: a YAML list of entities, as written by ``confplane export``, read piece by piece.

The list is in block style, with ``- `` at the beginning of a line before each entity, so that a million entities need
the memory of a few hundred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from confplane.cli.remote.entities import facets_of
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

MOST_ENTITIES: Final = 500
_MOST_BYTES: Final = 1 << 20
"""Maximum bytes of a piece, unless one entity has more: the service accepts 8 MiB."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ID: Final = "id"
_INSIDE: Final = " \t\r\n#"
"""First characters of an entity's other lines, and of comments."""


@dataclass(frozen=True, slots=True)
class LoadedEntity:
    """The keys of one entity that a file sets."""

    line: int
    """The line of the file, from 1."""
    entity: Entity
    values: dict[FacetName, dict[str, Any]]
    secrets: int
    """Keys whose value is null, which are not in ``values``."""


def pieces(stream: BinaryIO, *, most_bytes: int = _MOST_BYTES) -> Iterator[list[LoadedEntity]]:
    """Read a file from its beginning, several hundred entities at a time.

    Raises:
        InvalidRequestError: The file does not have the expected form; the text has the line, and never a value.
    """
    stream.seek(0)
    lines: list[str] = []
    starts: list[int] = []
    size = 0
    for number, line in enumerate(_texts(stream), 1):
        begins = line.startswith("- ") or line.rstrip() == "-"
        if not begins and (line[0] not in _INSIDE if starts else not _blank(line)):
            raise InvalidRequestError(
                f"line {number}: an entity begins with '- ' at the beginning of a line, and its other lines with blanks"
            )
        if begins:
            if len(starts) == MOST_ENTITIES or (starts and size > most_bytes):
                yield _entities(lines, starts)
                lines, starts, size = [], [], 0
            starts.append(number)
        if starts:
            lines.append(line)
            size += len(line)
    if starts:
        yield _entities(lines, starts)


def _texts(stream: BinaryIO) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise InvalidRequestError(f"line {number}: it is not UTF-8") from None


def _blank(line: str) -> bool:
    """Return True if a line before the first entity has no content; ``[]`` is the empty list."""
    return not line.strip() or line.startswith("#") or line.strip() in {"---", "[]"}


def _entities(lines: list[str], starts: list[int]) -> list[LoadedEntity]:
    try:
        items = yaml.load("".join(lines), Loader=_LOADER)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = starts[0] + (0 if mark is None else mark.line)
        # The mark's own text has an excerpt of the file, which may include a value.
        raise InvalidRequestError(f"line {line}: {getattr(error, 'problem', None) or 'this is not YAML'}") from None
    if len(items) != len(starts):
        raise InvalidRequestError(f"line {starts[0]}: a text in one of the entities from here on is not indented")
    return [_loaded(line, item) for line, item in zip(starts, items, strict=True)]


def _loaded(line: int, item: Any) -> LoadedEntity:
    if not isinstance(item, dict) or not isinstance(item.get(_ID), str):
        raise InvalidRequestError(f"line {line}: an entity has an id, such as `id: user=alice`")
    try:
        entity = Entity.from_id(item[_ID])
    except InvalidRequestError as error:
        raise InvalidRequestError(f"line {line}: {error}") from None
    facets = {facet.value: facet for facet in facets_of(entity)}
    values: dict[FacetName, dict[str, Any]] = {}
    secrets = 0
    for member, keys in item.items():
        if member == _ID:
            continue
        if member not in facets or not isinstance(keys, dict):
            raise InvalidRequestError(
                f"line {line}: {entity.id} has {' and '.join(facets)}, each with keys and values; not {member!r}"
            )
        for key, value in keys.items():
            _check(line, facets[member], key, value)
        values[facets[member]] = {key: value for key, value in keys.items() if value is not None}
        secrets += sum(value is None for value in keys.values())
    return LoadedEntity(line, entity, values, secrets)


def _check(line: int, facet: FacetName, key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise InvalidRequestError(f"line {line}: the key {key!r} is not text")
    if facet is FacetName.CLIENT_QUOTAS:
        # JSON has no NaN. The service checks the ranges.
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InvalidRequestError(f"line {line}: the value of {key} is not a number")
    elif value is not None and not isinstance(value, str):
        raise InvalidRequestError(f"line {line}: the value of {key} is not text; put it in quotes")
