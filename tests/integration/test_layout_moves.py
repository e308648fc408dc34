"""A move of client configs to the other layout, concurrently with other writers and other moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.upkeep.layout import LayoutService
from tests.support.observing import caller
from tests.support.stores import ALICE, content, kafka_writes, soon

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from tests.support.world import World

CONFIGS: Final = FacetName.CLIENT_CONFIGS


@pytest.mark.parametrize("other_move", [False, True])
async def test_a_write_during_a_move_is_kept_and_another_move_ends_it(
    world: World, monkeypatch: pytest.MonkeyPatch, *, other_move: bool
) -> None:
    one = await world.replica(client_configs_layout="shared")
    await one.edit(ALICE, CONFIGS, (Op("acks", OpType.SET, "all"),))
    layouts = LayoutService(one.parts.runner, one.parts.clusters.get("default").facets[CONFIGS])
    await layouts.begin(await layouts.survey(Tree.CLIENT_CONFIGS, soon(60)), caller())
    survey = await layouts.survey(Tree.CLIENT_CONFIGS, soon(60))
    read = one.store.read

    async def overtaken(tree: Tree, *arguments: Any) -> Node | None:
        found = await read(tree, *arguments)
        if tree is survey.source:
            monkeypatch.undo()
            kafka_writes(world.zk, ALICE.path, content(acks="all", producer_byte_rate="1"))
            if other_move:
                await layouts.begin(await layouts.survey(Tree.CONFIG, soon(60)), caller())
        return found

    monkeypatch.setattr(one.store, "read", overtaken)
    moves = layouts.move(survey, survey.version, caller())
    if other_move:
        with pytest.raises(UnavailableError, match="Another command changed the layout"):
            await anext(moves)
    else:
        assert [each.error async for each in moves] == [None]
    nodes = [await one.store.read(tree, ALICE, soon(60)) for tree in (Tree.CONFIG, Tree.CLIENT_CONFIGS)]
    quota, acks = {"producer_byte_rate": "1"}, {"acks": "all"}
    expected = [quota | acks, None] if other_move else [quota, acks]
    assert [None if node is None else node.config for node in nodes] == expected
