"""The recorder's intake of the journal: all entries, in slices."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from confplane.domain.changes import Node
from confplane.domain.facets import Tree
from confplane.services import cooperative_yielding
from confplane.services.recorder.record import Recorder
from confplane.store.mirror.journal import MirrorJournal

if TYPE_CHECKING:
    import pytest


async def test_many_entries_are_taken_in_slices_each_with_the_node_of_one_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cooperative_yielding, "SLICE_S", 0)
    journal = MirrorJournal()
    nodes = {f"user=u{number}": Node(f"user=u{number}", ("acks", "1"), 0, 1, 20, 1) for number in range(100)}
    store = SimpleNamespace(
        name="c",
        journal=journal,
        recording=SimpleNamespace(),
        get=lambda tree, entity_id: nodes.get(entity_id) if tree is Tree.CONFIG else None,
    )
    recorder = Recorder(cast("Any", store), cast("Any", None), cast("Any", None), deadline_ms=1000)
    journal.begin(10)
    assert await recorder._take()
    for node in nodes.values():
        journal.record(Tree.CONFIG, node.id, None, node)
    journal.advance(20)

    taking = asyncio.create_task(recorder._take())
    turns = 0
    while not taking.done():
        turns += 1
        await asyncio.sleep(0)
        # Removed meanwhile: an entry of its own says so.
        nodes.clear()
    assert taking.result()
    assert turns > 50
    pending = recorder._explainer.pending
    assert {entity_id for _, entity_id in pending} == {f"user=u{number}" for number in range(100)}
    assert all(seen.node is not None and seen.revision == 20 for seen in pending.values())
