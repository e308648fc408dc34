"""Waits until changes are applied: how often they read the states, and what wakes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from confplane.domain.changes import Node
from confplane.services.kraft.apply import apply_status
from confplane.services.kraft.apply.apply_status import ApplyStatus, ApplyWaiter, ChangeApplyState
from confplane.services.ports.applying import NO_STATE, TargetState
from confplane.services.znode_metadata import with_pending_keys
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import Collection

REVISION: Final = 7


class Tree:
    """A mirror in which every entity has a client change of the revision. Only what waits use."""

    name = "default"

    def on_applied(self, call: Any) -> None:
        self.publish = call

    def freshness(self) -> tuple[int, None]:
        return REVISION, None

    def get(self, _tree: object, entity_id: str) -> Node:
        extra = with_pending_keys(None, ["producer_byte_rate"])
        return Node(entity_id, (), version=1, czxid=1, mzxid=REVISION, mtime_ms=0, extra=extra)


class States:
    """The states of entities, and which were read."""

    def __init__(self) -> None:
        self.applied: set[str] = set()
        self.reads: list[frozenset[str]] = []

    async def load(self, _cluster: str, entity_ids: Collection[str]) -> dict[str, TargetState]:
        if entity_ids:
            self.reads.append(frozenset(entity_ids))
        await asyncio.sleep(0)
        applied = replace(NO_STATE, sent_mzxid=REVISION, applied_mzxid=REVISION)
        return {each: applied if each in self.applied else NO_STATE for each in entity_ids}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> States:
    monkeypatch.setattr(apply_status, "POLL_S", 3600.0)
    return States()


def make(states: States) -> tuple[ApplyWaiter, Tree]:
    tree = Tree()
    return ApplyWaiter(cast("Any", tree), cast("Any", states)), tree


def begin(waiter: ApplyWaiter, entity_id: str) -> asyncio.Task[dict[str, ApplyStatus]]:
    return asyncio.create_task(waiter.wait({entity_id: REVISION}, soon()))


async def states_of(*waits: asyncio.Task[dict[str, ApplyStatus]]) -> set[ChangeApplyState]:
    return {each.state for found in await asyncio.gather(*waits) for each in found.values()}


async def test_waits_that_begin_do_not_read_the_states_of_all_others(states: States) -> None:
    waiter, tree = make(states)
    names = [f"user={number}" for number in range(300)]
    waits = []
    for name in names:
        waits.append(begin(waiter, name))
        await asyncio.sleep(0)
    assert len(states.reads) < 100
    states.applied.update(names)
    tree.publish()
    assert await states_of(*waits) == {ChangeApplyState.APPLIED}


async def test_a_wait_for_an_applied_change_ends_beside_one_that_goes_on(states: States) -> None:
    waiter, tree = make(states)
    states.applied.add("user=done")
    waits = begin(waiter, "user=waits")
    # At once, and again while the first one waits.
    for _ in range(2):
        assert await states_of(begin(waiter, "user=done")) == {ChangeApplyState.APPLIED}
    assert not waits.done()
    assert states.reads.count(frozenset({"user=done"})) >= 1
    states.applied.add("user=waits")
    tree.publish()
    assert await states_of(waits) == {ChangeApplyState.APPLIED}
