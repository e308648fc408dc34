"""``confplane get`` without an entity: all entities that have configs, as its options select them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from app.cli.remote.entities import MEMBERS, facets_of_kind
from app.cli.remote.moments import moment_of
from app.cli.remote.output import print_json, print_table, value_text
from app.cli.remote.progress import counted
from app.cli.remote.session import DONE, FAILED
from app.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from app.client import ConfplaneClient

_PAGE: Final = "1000"


@dataclass(frozen=True, slots=True)
class Selection:
    """The entities of a list; a member that is None leaves none of them out."""

    kind: str | None = None
    """A type, or ``user,client-id``."""
    user: str | None = None
    """A user, plain; empty is the default user."""
    client_id: str | None = None
    """A client-id, plain; empty is the default client-id."""
    key: str | None = None
    """Entities that set this key; a table then shows nothing else of them."""
    at: str | None = None

    @property
    def facets(self) -> tuple[FacetName, ...]:
        """The collections that can have such entities.

        Raises:
            InvalidRequestError: There is no such type.
        """
        if self.kind is not None:
            return facets_of_kind(self.kind)
        if self.user is not None or self.client_id is not None:
            return (FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS)
        return tuple(FacetName)

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the API's lists."""
        given = {
            "kind": self.kind,
            "user": self.user,
            "client-id": self.client_id,
            "key": self.key,
            "at": None if self.at is None else moment_of(self.at),
        }
        return {name: value for name, value in given.items() if value is not None}


async def listed(client: ConfplaneClient, selection: Selection, *, as_json: bool) -> int:
    """Print the entities with their keys, by id, and return the exit code: 1 where one can't be read."""
    facets, parameters = selection.facets, selection.parameters()
    found: dict[str, dict[str, Any]] = {}
    skipped: set[str] = set()
    async for facet, item in counted(_items(client, facets, parameters, skipped), "entities"):
        found.setdefault(item["id"], {})[facet.value] = item[MEMBERS[facet]]
    if as_json:
        for entity_id in sorted(found):
            print_json({"id": entity_id} | found[entity_id])
    else:
        print_table(("ENTITY", "KEY", "VALUE"), _rows(found, selection.key))
    for path in sorted(skipped):
        typer.echo(f"Can't be read: {path}", err=True)
    return FAILED if skipped else DONE


async def _items(
    client: ConfplaneClient, facets: tuple[FacetName, ...], parameters: Mapping[str, str], skipped: set[str]
) -> AsyncIterator[tuple[FacetName, dict[str, Any]]]:
    for facet in facets:
        async for page in client.pages(facet.value, pageSize=_PAGE, **parameters):
            skipped.update(page["skipped"])
            for item in page["items"]:
                yield facet, item


def _rows(found: Mapping[str, Mapping[str, Any]], only: str | None) -> list[tuple[str, str, str]]:
    return [
        (entity_id, key, value_text(value))
        for entity_id in sorted(found)
        for values in found[entity_id].values()
        for key, value in values.items()
        if only is None or key == only
    ]
