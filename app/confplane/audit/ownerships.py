"""The owners of keys in Postgres: part of the recorder's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.domain.facets import Tree
from confplane.domain.ownership import NO_OWNERS, Ownership
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.history import Znode
from confplane.services.ports.ownerships import OwnedState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from confplane.audit.database import Database

_PAGE: Final = 2_000
_TEXTS: Final = ARRAY(Text)

# OFFSET 0 keeps the subquery an index lookup.
_KNOWN: Final = text("""
SELECT given.tree, given.entity_id, present, czxid, version, owners, labels
FROM unnest(:trees, :ids) AS given(tree, entity_id) CROSS JOIN LATERAL (
  SELECT present, czxid, version, owners, labels FROM entity_states AS state
  WHERE state.cluster = :cluster AND state.tree = given.tree AND state.entity_id = given.entity_id OFFSET 0
) AS state
""").bindparams(bindparam("trees", type_=_TEXTS), bindparam("ids", type_=_TEXTS))

_OWNED: Final = text("""
SELECT entity_id, owners, labels FROM entity_states
WHERE cluster = :cluster AND tree = :tree AND entity_id >= :first AND owners IS NOT NULL
ORDER BY entity_id LIMIT :size
""")


class PostgresOwnerships:
    """Implements :class:`confplane.services.ports.ownerships.Ownerships`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, cluster: str, znodes: Sequence[Znode]) -> Mapping[Znode, OwnedState]:
        """Return the states of znodes."""
        found: dict[Znode, OwnedState] = {}
        for start in range(0, len(znodes), _PAGE):
            page = znodes[start : start + _PAGE]
            trees, ids = [each.tree.value for each in page], [each.entity_id for each in page]
            found.update(
                await in_slices(_known, await self._database.rows(_KNOWN, cluster=cluster, trees=trees, ids=ids))
            )
        return found

    async def owned(self, cluster: str, tree: str, first: str, size: int) -> list[tuple[str, Ownership]]:
        """Return entities that have an owner."""
        rows = await self._database.rows(_OWNED, cluster=cluster, tree=tree, first=first, size=size)
        return [(row.entity_id, ownership_of(row.owners, row.labels)) for row in rows]


def ownership_of(owners: Mapping[str, str] | None, labels: Mapping[str, Any] | None) -> Ownership:
    """Return the ownership in the columns of a state."""
    return NO_OWNERS if owners is None else Ownership(owners, labels or {})


def _known(row: Row[Any]) -> tuple[Znode, OwnedState]:
    state = OwnedState(row.present, row.czxid, row.version, ownership_of(row.owners, row.labels))
    return Znode(Tree(row.tree), row.entity_id), state
