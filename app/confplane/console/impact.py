"""The impact of a change of an entity: the registered clients that would see another value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confplane.console.entities import FACETS
from confplane.domain.entities import split_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from confplane.console.page import ConsolePage

_READ: Final = 1_000
"""Registrations that are read."""
_COMPARED: Final = 100
"""Clients whose values are compared."""
_NAMED: Final = 5


class ChangeImpact(NamedTuple):
    """The registered clients to which an entity applies, and those that would see another value."""

    affected: int
    compared: int
    examples: tuple[str, ...]
    """The ids of some of the affected."""
    complete: bool
    """False if there are more clients than those that were compared."""


async def impact_of(
    page: ConsolePage, cluster: str, facet: str, entity_id: str, keys: Collection[str], values: dict[str, Any]
) -> ChangeImpact:
    """Compare the values that registered clients have now with those that they would have.

    Args:
        page: The page.
        cluster: The cluster.
        facet: The facet: quotas or configs of clients.
        entity_id: The entity.
        keys: The keys that change.
        values: The values of the entity afterwards.

    Raises:
        ApiRefusal: The API refused a read.
    """
    path = f"/v1/clusters/{cluster}"
    registered = await page.api.get(f"{path}/registrations", pageSize=_READ)
    ids = dict.fromkeys(each["id"] for each in registered["items"] if _applies(entity_id, each["id"]))
    chosen = list(ids)[:_COMPARED]
    compared, affected = 0, []
    for client in chosen:
        effective = await page.api.get(f"{path}/{facet}/{client}/effective")
        order = [level["id"] for level in effective["levels"]]
        if entity_id not in order:
            continue
        compared += 1
        now = {item["key"]: item["synonyms"] for item in effective[FACETS[facet]]}
        if any(_differs(now.get(key, []), key, values, entity_id, order) for key in keys):
            affected.append(client)
    complete = len(chosen) == len(ids) and registered["nextPageToken"] is None
    return ChangeImpact(len(affected), compared, tuple(affected[:_NAMED]), complete)


def _applies(entity_id: str, client: str) -> bool:
    """Return False if the names of an entity exclude a client."""
    names = dict(split_id(client))
    return all(name is None or names.get(kind) == name for kind, name in split_id(entity_id))


def _differs(
    synonyms: list[dict[str, Any]], key: str, values: dict[str, Any], entity_id: str, order: list[str]
) -> bool:
    """Return True if a client gets another value of a key.

    Args:
        synonyms: The values of the key by level, the one in force first.
        key: The key.
        values: The values of the entity afterwards.
        entity_id: The entity.
        order: The levels of the client, the most specific first.
    """
    above = [each for each in synonyms if order.index(each["source"]) < order.index(entity_id)]
    below = [each for each in synonyms if order.index(each["source"]) > order.index(entity_id)]
    own = [{"value": values[key]}] if key in values else []
    after = [*above, *own, *below]
    return [each["value"] for each in synonyms[:1]] != [each["value"] for each in after[:1]]
