"""The file of ``confplane load``: a YAML list of entities, as written by ``confplane export``, read piece by piece.

A million entities need the memory of a few hundred, and of all ids while the file is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.remote.entities import facets_of
from confplane.cli.remote.strict_yaml import read_items
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.releases import newest, releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from confplane.cli.remote.strict_yaml import YamlNode

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
    named = members.get(_ID)
    if named is None or not isinstance(named.value, str):
        raise item.error("an entity has an id, such as `id: user=alice`")
    try:
        entity = Entity.from_id(named.value)
        if FacetName.CONFIGS in facets_of(entity):
            ConfigsFacet(partial(catalog_of, newest())).check_entity(entity)
        else:  # an id with a user fits both facets of clients
            ClientQuotasFacet().check_entity(entity)
    except ConfplaneError as error:
        raise named.error(str(error)) from None
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
            _check(entity, facet, key, node)
        values[facet] = {key: node.value for key, node in keys.value.items() if node.value is not None}
        secrets += len(keys.value) - len(values[facet])
    return LoadedEntity(item.place, item.line, entity, values, secrets)


def _check(entity: Entity, facet: FacetName, key: str, node: YamlNode) -> None:
    value = node.value
    if facet is FacetName.CLIENT_QUOTAS:
        # The service checks the ranges.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise node.error(f"the value of {key} is not a number")
    elif value is None:
        if facet is not FacetName.CONFIGS or not _may_be_secret(entity, key):
            raise node.error(
                f"{key} is not a secret, so its value can't be null; `confplane delete` removes a key from an entity"
            )
    elif not isinstance(value, str):
        raise node.error(f"the value of {key} is not text; put it in quotes")


def _may_be_secret(entity: Entity, key: str) -> bool:
    """Return True if a cluster of some release hides the values of a key, so that its exports have null."""
    return any(ConfigsFacet(partial(catalog_of, release)).is_secret(entity, key) for release in releases())
