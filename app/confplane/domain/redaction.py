"""Redaction of a znode's config for the trail, regardless of its author: it keeps only known keys without secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.domain.quotas import ClientQuotasFacet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.client_configs import ClientConfigsFacet
    from confplane.domain.configs import ConfigsFacet
    from confplane.domain.definitions import Catalog
    from confplane.domain.facets import Facet

Redact = Callable[[Tree, str, Mapping[str, str]], dict[str, str | None]]
"""A function from the tree, the entity id and the stored map to the map without secrets: None for a removed value."""

_CACHED: Final = 10_000


def facets_by_tree(client_configs: ClientConfigsFacet, configs: ConfigsFacet) -> dict[Tree, tuple[Facet, ...]]:
    """Return, for each tree, the facets whose keys its znodes may hold under any layout.

    Args:
        client_configs: The cluster's rules of client configs.
        configs: The cluster's rules of topics and brokers.
    """
    return {Tree.CONFIG: (ClientQuotasFacet(), client_configs, configs), Tree.CLIENT_CONFIGS: (client_configs,)}


def redactor(facets: Mapping[Tree, Sequence[Facet]], catalog: Callable[[], Catalog]) -> Redact:
    """Return the redaction of a cluster: it keeps only values of keys that a facet has and that no facet keeps secret.

    The redaction is the same for all facets: a change through one facet leaves no doubt about the values of another.

    Args:
        facets: By tree, the facets whose keys its nodes hold.
        catalog: Returns the cluster's definitions, which determine which configs are secrets.
    """
    cache: dict[tuple[Tree, tuple[str, ...], str, Catalog], bool] = {}

    def redact(tree: Tree, entity_id: str, config: Mapping[str, str]) -> dict[str, str | None]:
        # A key is a secret by the types of an entity, not by its names.
        types = tuple([part.partition("=")[0] for part in entity_id.split(",")])
        of = catalog()
        redacted: dict[str, str | None] = {}
        for key, value in config.items():
            kind = (tree, types, key, of)
            shown = cache.get(kind)
            if shown is None:
                if len(cache) >= _CACHED:
                    cache.clear()
                shown = cache[kind] = _shown(facets[tree], Entity.from_id(entity_id), key)
            redacted[storable(key)] = value if shown and "\0" not in value else None
        return redacted

    return redact


def _shown(facets: Sequence[Facet], entity: Entity, key: str) -> bool:
    owners = [facet for facet in facets if facet.owns(entity, key)]
    return bool(owners) and not any(facet.has_secrets and facet.is_secret(entity, key) for facet in owners)


def storable(text: str) -> str:
    """Return a key or a value in a form that Postgres can store."""
    return text.replace("\0", "�")
