"""One facet of one cluster, with the tree that holds its keys.

A cluster facet that is bound to an access (:meth:`ClusterFacet.visible_to`) reads only what the caller may describe: it
refuses a hidden entity before reading it, and its scans skip hidden entities.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from confplane.domain.access.operations import Operation
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    CorruptZnodeError,
    LayoutMovingError,
    LayoutUndecidedError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.etags import etag_of
from confplane.domain.facets import FacetName, full_path
from confplane.domain.observed import managed_keys
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.cluster_states import LayoutCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.changes import Node
    from confplane.domain.definitions import Catalog
    from confplane.domain.facets import Facet, JsonValue, Tree
    from confplane.domain.redaction import Redact
    from confplane.services.access import Access
    from confplane.services.ports.cluster_states import Place
    from confplane.services.ports.crypto import Fingerprinter
    from confplane.services.ports.store import ClusterStore

LAYOUT_PATH: Final = "/confplane/layout"
# Looked up once: in Python 3.11 the lookup of an enum member takes a quarter of the time of a check.
_DESCRIBE: Final = Operation.DESCRIBE_CONFIGS
_RESOLVE: Final = Operation.RESOLVE
_CLIENT_CONFIGS: Final = FacetName.CLIENT_CONFIGS


@dataclass(eq=False, slots=True)
class ClusterFacet:
    """A facet of one cluster: its rules, and the tree that holds its keys there. It never changes after its creation.

    It is not a frozen dataclass, because each read of a caller with grants creates one. It is compared by identity,
    because each poll looks one up.
    """

    facet: Facet
    root: Tree
    """The tree of a facet whose tree is fixed. With ``laid_out`` the cluster's layout names the tree."""
    store: ClusterStore
    redact: Redact
    """Removes the secrets from a stored map of the cluster, for the trail and the policies."""
    fingerprinter: Fingerprinter | None = None
    """The fingerprinter of a facet with secrets; None for other facets."""
    laid_out: bool = False
    """True for client configs: the cluster's layout names the tree."""
    layout_chosen: bool = True
    """True if the settings name a layout."""
    layout: LayoutCheck | None = None
    """The layout that the writes depend on; see :meth:`placed`."""
    access: Access | None = None
    """The access that restricts the reads; None if reads are not restricted."""
    unbound: ClusterFacet | None = None
    """The cluster facet without bounds, if this one is bound to an access."""

    @property
    def name(self) -> FacetName:
        """The facet's name."""
        return self.facet.name

    @property
    def catalog(self) -> Catalog:
        """The cluster's definitions, as they currently are."""
        return self.store.catalog()

    @property
    def tree(self) -> Tree:
        """The tree that holds the facet's keys; during a move of the layout, the destination."""
        return self.store.place().tree if self.laid_out else self.root

    # -- the bounds of a caller's access

    def visible_to(self, access: Access) -> ClusterFacet:
        """Return the cluster facet as a caller may read it: itself if the caller needs no grant."""
        if access.unlimited:
            return self
        # Positional arguments: each read of a caller with grants creates one, and replace() takes twice the time.
        laid_out = self.laid_out, self.layout_chosen, self.layout
        return ClusterFacet(self.facet, self.root, self.store, self.redact, self.fingerprinter, *laid_out, access, self)

    @property
    def whole(self) -> ClusterFacet:
        """The cluster facet without bounds. Caches for later requests use it as their key."""
        return self if self.unbound is None else self.unbound

    @property
    def visible(self) -> NameRanges | None:
        """The ids that the caller may describe; None: all."""
        return None if self.access is None else self.access.allowed(self.store.name, _DESCRIBE)

    def around(self, entity: Entity) -> ClusterFacet:
        """Return the cluster facet without bounds, for the effective values of one entity.

        Effective values are shown with all of their levels, including defaults. For client configs the caller needs
        only the right to resolve the entity. An application has this right on itself.

        Raises:
            ForbiddenError: The caller may not resolve the entity, or may not describe it.
        """
        if self.access is None:
            return self
        operation = _RESOLVE if self.facet.name is _CLIENT_CONFIGS else _DESCRIBE
        self.access.require(self.store.name, operation, entity.id)
        return self.whole

    # -- the mirror. During a move of client configs an entity may be in either tree; reads check both.

    def get(self, entity_id: str) -> Node | None:
        """Return an entity's node from the mirror.

        Raises:
            ForbiddenError: The caller may not describe the entity, whether it exists or not.
            UnavailableError: The mirror was never loaded.
        """
        if self.access is not None:
            self.access.require(self.store.name, _DESCRIBE, entity_id)
        if not self.laid_out:
            return self.store.get(self.root, entity_id)
        place = self.store.place()
        node = self.store.get(place.tree, entity_id)
        if place.source is None or self._has_keys(node):
            return node
        moved = self.store.get(place.source, entity_id)
        return moved if self._has_keys(moved) else node

    def _has_keys(self, node: Node | None) -> bool:
        """Return True if a node has keys of this facet, or may have them because its content can't be read."""
        if node is None:
            return False
        entity = Entity.from_id(node.id)
        return node.defect is not None or any(self.facet.owns(entity, key) for key in node.items[::2])

    def managed_keys(self, entity: Entity) -> frozenset[str]:
        """Return the keys that the Kafka cluster sets by itself and that no client can remove."""
        if self.name is not FacetName.CONFIGS or not self.store.keeps_eligible_replicas():
            return frozenset()
        return managed_keys(entity)

    def check_readable(self, entity: Entity, node: Node | None, pointer: str | None = None) -> None:
        """Refuse a node whose content can't be read at all.

        Raises:
            CorruptZnodeError: No part of the node's content can be read.
        """
        if node is not None and node.defect is not None and not node.items:
            raise CorruptZnodeError(full_path(self.tree, entity), node.defect, pointer=pointer)

    def find(self, entity_id: str) -> Node | None:
        """Return the result of :meth:`get`, for a filter: None for an entity that the caller may not describe."""
        visible = self.visible
        return None if visible is not None and entity_id not in visible else self.whole.get(entity_id)

    def with_keys(self, *, after: str | None = None, prefix: str = "") -> Iterator[Node]:
        """Iterate over the visible nodes with keys of this facet; see ``ClusterStore.with_keys``."""
        store, facet, visible = self.store, self.name.value, self.visible
        if not self.laid_out or (place := store.place()).source is None:
            return store.with_keys(self.tree, facet, after=after, prefix=prefix, within=visible)
        trees = (place.tree, place.source)
        return _merged(store.with_keys(tree, facet, after=after, prefix=prefix, within=visible) for tree in trees)

    async def moment(
        self, *, prefix: str = "", client_id: tuple[str | None] | None = None, within: NameRanges | None = None
    ) -> list[Node]:
        """Return visible nodes as of one point in time, as ``ClusterStore.moment``; other tasks run in the meantime."""
        store, facet, visible = self.store, self.name.value, self.visible
        if visible is not None:
            within = visible if within is None else within & visible
        if not self.laid_out or (place := store.place()).source is None:
            return await store.moment(self.tree, facet, prefix=prefix, client_id=client_id, within=within)
        # Tasks created together start one right after the other; no other task runs in between.
        found = await asyncio.gather(
            *(
                store.moment(tree, facet, prefix=prefix, client_id=client_id, within=within)
                for tree in (place.tree, place.source)
            )
        )
        return await in_slices(lambda node: node, _merged(found))

    def with_client_id(self, client_id: str | None, *, after: str | None = None) -> Iterator[Node]:
        """Iterate over the visible nodes whose client-id has this name, with keys of this facet or without."""
        store, visible = self.store, self.visible
        if not self.laid_out or (place := store.place()).source is None:
            return store.with_client_id(self.tree, client_id, after=after, within=visible)
        trees = (place.tree, place.source)
        # A node of the destination without keys must not hide one of the source: with_keys has only nodes with keys.
        return _merged(
            filter(self._has_keys, store.with_client_id(tree, client_id, after=after, within=visible)) for tree in trees
        )

    def own(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str]:
        """Return this facet's keys of a stored map, sorted, as stored strings."""
        owns = self.facet.owns
        return {key: config[key] for key in sorted(config) if owns(entity, key)}

    def declared(self, entity: Entity, config: Mapping[str, str]) -> dict[str, JsonValue]:
        """Return this facet's keys of a stored map, with their values as in JSON responses.

        Raises:
            ValueError: A stored value is not valid for its key.
        """
        decode = self.facet.decode
        return {key: decode(entity, key, value) for key, value in self.own(entity, config).items()}

    def tagged(
        self, entity: Entity, config: Mapping[str, str], node: Node | None
    ) -> tuple[dict[str, JsonValue], str | None]:
        """Return the result of :meth:`declared` and its ETag, None if nothing is declared.

        Secrets are None in the result. In the ETag a secret is represented by the transaction that wrote the node. So
        the ETag changes whenever the secret may have changed, and can't be used to guess the secret.

        Raises:
            ValueError: A stored value is not valid for its key.
        """
        declared = self.declared(entity, config)
        if not self.facet.has_secrets:
            return declared, etag_of(declared)
        written = "never" if node is None else f"in {node.mzxid}"
        return declared, etag_of({key: written if value is None else value for key, value in declared.items()})

    async def fingerprints(self, entity: Entity, config: Mapping[str, str]) -> dict[str, str | None] | None:
        """Return a keyed fingerprint of each secret of a stored map; None for a secret whose fingerprint is unknown.

        Returns None if the facet has no secrets.
        """
        fingerprinter = self.fingerprinter
        if fingerprinter is None:
            return None
        secrets = {key: value for key, value in config.items() if self.facet.is_secret(entity, key)}
        if not secrets:
            return {}
        broker = entity.get(EntityType.BROKER)
        return await asyncio.to_thread(fingerprinter.fingerprints, None if broker is None else int(broker), secrets)

    def placed(self) -> ClusterFacet:
        """Return the cluster facet for one change: its current tree, and the check of the layout for its transaction.

        Raises:
            LayoutMovingError: The client configs are being moved.
            LayoutUndecidedError: Client configs, brokers are registered, and the operator has not chosen a layout.
            CorruptZnodeError: The layout's znode can't be read.
            UnavailableError: The layout is not known yet.
        """
        if self.name is not FacetName.CLIENT_CONFIGS:
            return self
        place = self.store.place()
        self._check_place(place)
        return replace(
            self,
            root=place.tree,
            laid_out=False,
            layout=LayoutCheck(place.version, None if place.settled else place.tree),
        )

    def _check_place(self, place: Place) -> None:
        name = self.store.name
        if place.version < 0:
            raise UnavailableError(
                f"Cluster {name}: it is not known yet where its client configs are", outcome=WriteOutcome.NOT_APPLIED
            )
        if place.defect is not None:
            raise CorruptZnodeError(LAYOUT_PATH, f"can't be read: {place.defect}", outcome=WriteOutcome.NOT_APPLIED)
        if place.moving:
            layout = place.tree.layout
            raise LayoutMovingError(
                f"The client configs of cluster {name} are being moved to the layout {layout}. Reads continue; writes"
                f" continue once `confplane layout move --cluster {name} --to {layout} --apply` has finished",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=5,
            )
        if place.settled or self.layout_chosen or not self.store.status().brokers_registered:
            return
        raise LayoutUndecidedError(
            f"Brokers are registered in cluster {name!r}, and client_configs_layout is not set for it. "
            "Choose 'separate' to keep Kafka's own tools able to alter entities that have client configs, or 'shared' "
            "to store client configs beside the quotas as KIP-649 does (docs/kafka-compatibility.md).",
            outcome=WriteOutcome.NOT_APPLIED,
        )


def _merged(trees: Iterable[Iterable[Node]]) -> Iterator[Node]:
    """Return the nodes of several trees, ordered by id; of two nodes with one id, the node of the first tree."""
    last = None
    for node in heapq.merge(*trees, key=_by_id):
        if node.id != last:
            last = node.id
            yield node


_by_id = attrgetter("id")
