"""The snapshot of a feed: the current states of the entities that a consumer asks for and may describe.

States are read from the mirror in pages, facet by facet and in the order of ids. Each is that of the snapshot's
position or a later one, and the changes after the position follow the snapshot. So nothing is missing, and a consumer
skips what it has by the revision of the entity. The place in a snapshot is part of a position, and any process
continues from it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.facets import FacetName
from confplane.services.feed.events import event_of
from confplane.services.feed.merge import EntitySteps, notified_state
from confplane.services.feed.positions import SnapshotPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.changes import Node
    from confplane.services.access import Access
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster
    from confplane.services.feed.events import FeedEvent, FeedFilter
    from confplane.services.feed.positions import FeedPosition

PAGE: Final = 100
"""Nodes of a page: they take a few milliseconds."""
BEGIN: Final = SnapshotPlace(next(iter(FacetName)), "")


class SnapshotPage(NamedTuple):
    """Some states of a snapshot."""

    states: Sequence[FeedEvent]
    """Each with the position after it, and the keys of one facet."""
    following: SnapshotPlace | None
    """The place after the page; None at the end of the snapshot."""


def read_page(
    cluster: Cluster, access: Access, wanted: FeedFilter, position: FeedPosition, place: SnapshotPlace
) -> SnapshotPage:
    """Return the states after a place of a snapshot.

    Args:
        cluster: The cluster.
        access: The rights of the consumer.
        wanted: The filter.
        position: The position of the snapshot.
        place: The place in it.

    Raises:
        UnauthenticatedError: The credential is no longer valid.
        UnavailableError: The mirror was never loaded, or the copy of tokens and grants is too old.
    """
    facet = cluster.facets[place.facet].visible_to(access)
    nodes = _nodes(facet, wanted, place.entity_id) if wanted.facet in {None, place.facet} else ()
    states = []
    for node in nodes:
        after = position._replace(snapshot=SnapshotPlace(place.facet, node.id))
        state = _state(cluster.name, facet, node, after)
        if state is not None and all(wanted.takes(part) and wanted.takes_keys(part) for part in state.parts):
            states.append(state)
    if len(nodes) == PAGE:
        return SnapshotPage(states, SnapshotPlace(place.facet, nodes[-1].id))
    facets = list(FacetName)
    left = facets[facets.index(place.facet) + 1 :]
    return SnapshotPage(states, SnapshotPlace(left[0], "") if left else None)


def _nodes(facet: ClusterFacet, wanted: FeedFilter, after: str) -> Sequence[Node]:
    if wanted.entity_id is None:
        return list(islice(facet.with_keys(after=after or None), PAGE))
    node = facet.find(wanted.entity_id) if after < wanted.entity_id else None
    return () if node is None else (node,)


def _state(cluster: str, facet: ClusterFacet, node: Node, position: FeedPosition) -> FeedEvent | None:
    """Return the state of a node; None if it has no keys of the facet, or can't be read."""
    steps = EntitySteps(facet.tree, node.id, "", None, node)
    change = notified_state(cluster, steps, facet.redact, position.place)
    event = None if change is None else event_of(change, {facet.name: facet}, position)
    return event if event is not None and all(part.keys for part in event.parts) else None
