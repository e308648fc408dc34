"""The entities of a list or of an export: the filters that select them, and a reader that reads them page by page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.output import show_count
from confplane.cli.remote.entities import KINDS, MEMBERS, facets_of_kind
from confplane.cli.times import moment_of
from confplane.client import ClientError
from confplane.domain.entities import Entity, split_id
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.manifest_text import LabelsOfOwner, join_facets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.client import AsyncConfplane

Value = str | int | float | None
"""A quota, a config, or None for a secret."""

_REASONS: Final = 20


@dataclass(frozen=True, slots=True)
class ListedEntity:
    """An entity with its keys, by facet; a facet without keys is absent."""

    id: str
    facets: dict[FacetName, dict[str, Value]]

    @property
    def entity(self) -> Entity:
        """The entity of the id."""
        return Entity.from_components(split_id(self.id))


@dataclass(frozen=True, slots=True)
class EntitySelection:
    """Filters of entities, as supported by the API's lists.

    Raises:
        InvalidRequestError: There is no such type, no entity has all the named types, or :attr:`not_applied` is
        combined with a past moment.
    """

    names: Mapping[str, str | None]
    """Types and names; '' names the default entity, and None any."""
    kind: str | None = None
    """Exactly these types, joined by a comma."""
    key: str | None = None
    prefix: str = ""
    """The prefix of each entity's name; for a pair, of the user's."""
    at: str | None = None
    """A time in the past, parsed once for all lists by :func:`.moments.moment_of`; None means now."""
    not_applied: bool = False
    """Only client configs that some clients report not to use, or to refuse in part."""
    owner: str | None = None
    """Only the keys of this owner."""

    facets: tuple[FacetName, ...] = field(init=False)
    """The facets of the entities that have all the named types."""

    def __post_init__(self) -> None:
        named = {name for name, value in self.names.items() if value is not None}
        if self.at is not None:
            object.__setattr__(self, "at", moment_of(self.at, "--at"))
        kinds = KINDS if self.kind is None else (self.kind,)
        found = {facet for kind in kinds if named.issubset(kind.split(",")) for facet in facets_of_kind(kind)}
        if self.not_applied:
            if self.at is not None:
                raise InvalidRequestError("The applied status is only known for the present. Omit --at.")
            found &= {FacetName.CLIENT_CONFIGS}
        if not found:
            wanted = sorted({*named, *filter(None, [self.kind])})
            having = " at once and has client configs" if self.not_applied else " at once"
            raise InvalidRequestError(f"No entity is of the types {', '.join(wanted)}{having}")
        object.__setattr__(self, "facets", tuple(facet for facet in FacetName if facet in found))

    @property
    def filters(self) -> dict[str, Any]:
        """The filters of a list, in the client library's form."""
        names = {name.replace("-", "_"): value for name, value in self.names.items()}
        applied = False if self.not_applied else None
        found = {**names, "kind": self.kind, "key": self.key, "at": self.at, "applied": applied}
        return found if self.owner is None else {**found, "owner": self.owner, "full": True}

    def has(self, entity_id: str) -> bool:
        """Return True if the name of an entity has the prefix."""
        return not self.prefix or (split_id(entity_id)[0][1] or "").startswith(self.prefix)


@dataclass(slots=True)
class EntityReader:
    """Reads the selected entities of a cluster, and counts them."""

    client: AsyncConfplane
    selection: EntitySelection
    noun: str = "entities"
    """The plural noun for the items of a form."""
    count: int = 0
    secrets: int = 0
    unreadable: dict[str, None] = field(default_factory=dict)
    """Paths of znodes that the service can't read, in the order of the lists; facets may share a znode."""
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)
    """The first reasons for omissions; all reasons are comments in the export."""
    page_size: int = 1000
    labels: LabelsOfOwner = field(default_factory=LabelsOfOwner)
    """The labels of the selected owner."""

    def read(self, *facets: FacetName) -> AsyncIterator[ListedEntity]:
        """Iterate over entities in the order of their ids, with those of these facets that are selected.

        The lists of all facets are read in parallel. Each page has its own moment: an entity that exists throughout is
        read once, and one that is created or deleted during the read may be read or not.

        Raises:
            ClientError: The service refused a page, or did not answer.
        """
        return show_count(self._merged(facets), self.noun)

    async def _merged(self, facets: tuple[FacetName, ...]) -> AsyncIterator[ListedEntity]:
        lists = {facet: self._list(facet) for facet in self.selection.facets if facet in facets}
        async for entity_id, found in join_facets(lists):
            self.count += 1
            self.secrets += sum(value is None for values in found.values() for value in values.values())
            yield ListedEntity(entity_id, found)

    def leave_out(self, reason: str) -> str:
        """Count an item that the export can't represent, and return the comment about it for the export."""
        self.left_out += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(reason)
        return f"# Left out: {reason}\n"

    async def _list(self, facet: FacetName) -> AsyncIterator[tuple[str, dict[str, Value]]]:
        async for page in self.client.resources(facet).list(**self.selection.filters, page_size=self.page_size).pages():
            self.unreadable |= dict.fromkeys(page["skipped"])
            for item in page["items"]:
                values = item[MEMBERS[facet]] if self.selection.owner is None else self._owned(item, facet)
                if self.selection.has(item["id"]) and values:
                    yield item["id"], values

    def _owned(self, item: Mapping[str, Any], facet: FacetName) -> dict[str, Value]:
        """Return the keys of the selected owner, and note its labels.

        Raises:
            ClientError: The service could not read the owners. Without this entity, `--prune` would delete its keys.
        """
        owner, status = self.selection.owner, item["status"]
        if "owners" not in status:
            raise ClientError(f"The service could not read the owners of {item['id']}. Export again.")
        keys = {key: value for key, value in item[MEMBERS[facet]].items() if status["owners"].get(key) == owner}
        if keys:
            self.labels.add(status["labels"].get(owner, {}))
        return keys
