"""Finds empty config nodes for their removal (services/upkeep/compact.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError

from confplane.domain.entities import Entity, EntityType
from confplane.services.ports.transactions import Removal
from confplane.services.znode_metadata import has_foreign_members
from confplane.store import znodes

if TYPE_CHECKING:
    from confplane.domain.facets import Tree
    from confplane.store.mirror.nodes import Mirror
    from confplane.store.session.session import Session

_TYPES: Final = (EntityType.USER.value, EntityType.CLIENT_ID.value, EntityType.IP.value)
_CLIENTS: Final = EntityType.CLIENT_ID.plural
_PAIR: Final = 2


def seemingly_empty(mirror: Mirror) -> list[tuple[Tree, str]]:
    """Return trees and ids of empty entities, a user's clients before the user."""
    return [
        (tree, node.id)
        for tree, copy in mirror.trees.items()
        for node in sorted(copy.nodes.values(), key=lambda each: (each.id.partition(",")[0], -len(each.id)))
        if not node.items and node.defect is None and not has_foreign_members(node.extra) and node.id.startswith(_TYPES)
    ]


async def find_removals(session: Session, tree: Tree, entity: Entity, age_s: float) -> tuple[Removal, ...] | None:
    """Read an entity, after all earlier writes, and return the nodes that may be removed with it.

    Raises:
        ZookeeperError: ZooKeeper did not answer.
        UnavailableError: There is no connection.
    """
    path = znodes.path_of(tree, entity)
    touched = session.touch()
    replies = [session.get(path), session.children(path)]
    untouched_since = (await touched).mtime - age_s * 1000
    try:
        (data, stat), (children, _) = [await reply for reply in replies]
    except NoNodeError:
        return None
    own = _empty(entity, path, data, stat, untouched_since)
    if own is None:
        return None
    if children:
        folder = f"{path}/{_CLIENTS}"
        # A user's folder of clients may be left without any.
        bare = entity.types == (EntityType.USER,) and children == [_CLIENTS] and not (await session.children(folder))[0]
        return (own, Removal(folder)) if bare else None
    return (
        (own,)
        if len(entity.components) < _PAIR
        else await _with_parents(session, tree, Entity(entity.components[:1]), own, untouched_since)
    )


async def _with_parents(
    session: Session, tree: Tree, user: Entity, own: Removal, untouched_since: float
) -> tuple[Removal, ...]:
    """Add the parents that the removal of a user's client leaves empty."""
    path = znodes.path_of(tree, user)
    folder = own.path.rpartition("/")[0]
    replies = [session.children(folder), session.get(path), session.children(path)]
    (clients, _), (data, stat), (children, _) = [await reply for reply in replies]
    if len(clients) > 1:
        return (own,)
    parent = _empty(user, path, data, stat, untouched_since) if len(children) == 1 else None
    return (own, Removal(folder)) if parent is None else (own, parent, Removal(folder))


def _empty(entity: Entity, path: str, data: bytes | None, stat: Any, untouched_since: float) -> Removal | None:
    content = znodes.decode_entity(data)
    if content.items or content.defect is not None or has_foreign_members(content.extra):
        return None
    if stat.mtime > untouched_since:
        return None
    return Removal(path, entity, stat.version, stat.czxid)
