"""The owners of keys in Postgres: part of the recorder's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree, full_path
from confplane.domain.ownership import NO_OWNERS, Ownership, OwnershipClaim
from confplane.domain.znode_versions import OwnershipStep, ownership_after_all
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.history import Znode
from confplane.services.ports.ownerships import OwnedState, Ownerships
from confplane.services.ports.recording import RECOVERED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.services.ports.recording import Key

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

# Only entities with a claim have owners. A recovered change has no contents. An external change that counts more writes
# than its last version has is a deletion and a creation; the version of a new znode is 0.
_STEPS: Final = text("""
SELECT given.tree, given.entity_id, changed.keys, changed.recreated, changed.claim
FROM unnest(:trees, :ids, :paths) AS given(tree, entity_id, path) CROSS JOIN LATERAL (
  SELECT
    outcomes.incarnation, outcomes.revision, entity.change_id, entity.claim,
    ARRAY(SELECT jsonb_object_keys(entity.after)) AS keys,
    coalesce(
      outcomes.remade ? given.path OR intents.writes > CAST(outcomes.versions -> given.path AS integer) + 1, false
    ) AS recreated
  FROM intent_entities AS entity
    JOIN outcomes USING (change_id, attempt) JOIN intents USING (change_id, attempt)
  WHERE entity.cluster = :cluster AND entity.entity_id = given.entity_id AND entity.path = given.path
    AND outcomes.committed AND intents.kind <> :recovered
  OFFSET 0
) AS changed
WHERE EXISTS (
  SELECT FROM intent_entities AS claimed
  WHERE claimed.cluster = :cluster AND claimed.entity_id = given.entity_id AND claimed.claim IS NOT NULL
)
ORDER BY changed.incarnation, changed.revision, changed.change_id
""").bindparams(*(bindparam(name, type_=_TEXTS) for name in ("trees", "ids", "paths")))


class PostgresOwnerships(Ownerships):
    """The owners and labels of entities, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def known(self, cluster: str, znodes: Sequence[Znode]) -> Mapping[Znode, OwnedState]:
        found: dict[Znode, OwnedState] = {}
        for start in range(0, len(znodes), _PAGE):
            page = znodes[start : start + _PAGE]
            trees, ids = [each.tree.value for each in page], [each.entity_id for each in page]
            found.update(
                await in_slices(_known, await self._database.rows(_KNOWN, cluster=cluster, trees=trees, ids=ids))
            )
        return found

    @override
    async def owned(self, cluster: str, tree: str, first: str, size: int) -> list[tuple[str, Ownership]]:
        rows = await self._database.rows(_OWNED, cluster=cluster, tree=tree, first=first, size=size)
        return [(row.entity_id, ownership_of(row.owners, row.labels)) for row in rows]

    async def derived(self, cluster: str, keys: Sequence[Key]) -> dict[Key, Ownership]:
        """Return the owners of keys after all changes in the trail, for entities whose state is missing.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        found = dict.fromkeys(keys, NO_OWNERS)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            trees, ids = [tree for tree, _ in page], [entity_id for _, entity_id in page]
            paths = [full_path(Tree(tree), Entity.from_id(entity_id)) for tree, entity_id in page]
            given = {"cluster": cluster, "trees": trees, "ids": ids, "paths": paths, "recovered": RECOVERED}
            steps: dict[Key, list[OwnershipStep]] = {}
            for row in await self._database.rows(_STEPS, **given):
                claim = None if row.claim is None else OwnershipClaim.from_json(row.claim)
                steps.setdefault((row.tree, row.entity_id), []).append(OwnershipStep(row.keys, row.recreated, claim))
            found.update((key, ownership_after_all(some)) for key, some in steps.items())
        return found


def ownership_of(owners: Mapping[str, str] | None, labels: Mapping[str, Any] | None) -> Ownership:
    """Return the ownership in the columns of a state."""
    return NO_OWNERS if owners is None else Ownership(owners, labels or {})


def _known(row: Row[Any]) -> tuple[Znode, OwnedState]:
    state = OwnedState(row.present, row.czxid, row.version, ownership_of(row.owners, row.labels))
    return Znode(Tree(row.tree), row.entity_id), state
