"""Single changes of several callers that share transactions, on a store and a trail whose answers are set by the test."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.errors import (
    FrozenError,
    UnavailableError,
)
from confplane.services.changes.callers import Caller
from confplane.services.ports.cluster_states import LayoutCheck
from confplane.services.ports.trail import FEW
from confplane.services.ports.transactions import Conflict
from tests.support.waiting import until
from tests.unit.services.scripted_stores import REVISION, World, committed, entities, lost, ok, paths_of, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.facets import Tree
    from confplane.services.changes.commit import ChangeRun
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import Outcome

FIRST = ("x", "y")
"""Two changes whose transactions are under way, so that further ones wait."""


class Callers:
    """Changes by a caller each, named like the entity."""

    def __init__(self, world: World, **more: Any) -> None:
        self.world = world
        self.runner = world.runner(**more)
        self.deadlines: dict[str, float] = {}
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    def begin(self, *names: str, seconds: float = 60) -> None:
        for name in names:
            self.deadlines[name] = time.monotonic() + seconds
            caller = Caller.operator(f"User:{name}", "here", f"request-{name}", self.deadlines[name])
            job = self.world.job(name)
            run = self.runner.run(cast("ClusterStore", self.world), job, caller)
            self.tasks[name] = asyncio.create_task(run)

    async def begin_behind(self, *names: str, seconds: float = 60) -> None:
        """Begin changes while no transaction is answered; return once all but the first two wait."""
        self.world.transactions.clear()
        self.world.intended.clear()
        self.world.open.clear()
        self.begin(*FIRST)
        await until(lambda: len(self.world.transactions) == len(FIRST))
        self.begin(*names, seconds=seconds)
        await until(lambda: {"x", "y", *names} == {name for some in self.world.intended for name in entities(some)})
        await until(self.all_wait)

    async def begin_late(self, monkeypatch: pytest.MonkeyPatch) -> asyncio.Timeout:
        """Begin the change ``late``; return the deadline of its wait, once it waits."""
        timeouts, timeout = list[asyncio.Timeout](), asyncio.timeout

        def note_timeout(delay: float) -> asyncio.Timeout:
            timeouts.append(timeout(delay))
            return timeouts[-1]

        monkeypatch.setattr(asyncio, "timeout", note_timeout)
        self.begin("late")
        await until(self.all_wait)
        monkeypatch.undo()
        [deadline] = timeouts
        return deadline

    def all_wait(self) -> bool:
        queues = self.runner._committer._queues.values()
        return sum(len(queue.waiting) for queue in queues) == len(self.tasks) - len(FIRST)

    async def ended(self) -> dict[str, ChangeRun[Any] | Exception]:
        """Let ZooKeeper answer, and return how each change ended."""
        self.world.open.set()
        found = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await self.runner.drain(60)
        assert not self.runner._turns
        assert not self.runner._committer._queues
        return dict(zip(self.tasks, cast("list[Any]", found), strict=True))

    def behind(self) -> list[list[tuple[str, int]]]:
        """The transactions after the first two."""
        return self.world.sent()[len(FIRST) :]


async def test_a_lone_caller_does_not_wait() -> None:
    world = World()
    callers = Callers(world)
    for name in ("a", "b", "c"):
        callers.begin(name)
        assert ok(await callers.tasks[name])
    assert world.sent() == [[("a", 1)], [("b", 1)], [("c", 1)]]


async def test_changes_of_several_callers_share_a_transaction() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c")
    ended = await callers.ended()
    assert callers.behind() == [[("a", 1), ("b", 1), ("c", 1)]]
    shared = world.transactions[-1]
    # Each keeps its caller, and the ids have the order of the notifications.
    assert [(each.principal, each.request_id) for each in shared.changes] == [
        (f"User:{name}", f"request-{name}") for name in "abc"
    ]
    ids = [each.change_id for each in shared.changes]
    assert ids == sorted(ids)
    assert [intent.principal for some in world.intended for intent in some][-3:] == ["User:a", "User:b", "User:c"]
    # The outcomes are one call.
    assert [(each.change_id, each.revision) for each in world.concluded[-1]] == [(each, REVISION) for each in ids]
    assert world.released[-3:] == ids
    assert all(map(ok, ended.values()))
    assert [cast("ChangeRun[Any]", ended[name]).change_id for name in "abc"] == ids


async def test_the_changes_of_a_transaction_are_limited_in_number() -> None:
    world = World()
    callers = Callers(world)
    names = [f"n{number:02}" for number in range(2 * FEW + 3)]
    await callers.begin_behind(*names)
    ended = await callers.ended()
    assert [len(some) for some in callers.behind()] == [FEW, FEW, 3]
    assert all(map(ok, ended.values()))


async def test_the_changes_of_a_transaction_are_limited_in_size() -> None:
    world = World()
    world.shares = {"a": 0.5, "b": 0.4, "c": 0.2, "d": 0.7, "huge": 1.5}
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c", "d")
    callers.begin("huge")
    # It goes alone, and waits for nobody.
    await until(lambda: len(world.transactions) == 3)
    assert callers.behind() == [[("huge", 1)]]
    ended = await callers.ended()
    # What does not fit leads the next one.
    assert callers.behind()[1:] == [[("a", 1), ("b", 1)], [("c", 1), ("d", 1)]]
    assert all(map(ok, ended.values()))


async def test_changes_on_other_layouts_do_not_share() -> None:
    world = World()
    world.layouts = {name: LayoutCheck(1, cast("Tree", None)) for name in ("x", "y", "a", "b")}
    world.layouts |= {name: LayoutCheck(2, cast("Tree", None)) for name in ("c", "d")}
    callers = Callers(world)
    await callers.begin_behind("a", "b")
    callers.begin("c", "d")
    await until(lambda: len(world.transactions) == 4)
    assert sorted(callers.behind()) == [[("c", 1)], [("d", 1)]]
    ended = await callers.ended()
    assert callers.behind()[2:] == [[("a", 1), ("b", 1)]]
    assert all(map(ok, ended.values()))


async def test_a_refused_change_does_not_wait_for_the_others() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c")
    world.held = lambda transaction: transaction.again
    world.answers[:] = [committed, committed, refused("b")]
    world.open.set()
    assert ok(await callers.tasks["b"])
    assert not callers.tasks["a"].done()
    world.go_on.set()
    assert all(map(ok, (await callers.ended()).values()))


@pytest.mark.parametrize("refusals", [["b"], ["b", "c"]], ids=["again", "alone"])
async def test_what_is_submitted_after_a_refusal_counts_as_under_way(refusals: list[str]) -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c", "d")
    world.answers[:] = [committed, committed, *map(refused, refusals)]
    before = len(FIRST) + len(refusals)
    world.held = lambda _: len(world.transactions) > before
    world.open.set()
    await until(lambda: len(world.transactions) > before)
    callers.begin("e")
    await until(lambda: ("e", 1) in [each for some in world.sent() for each in some])
    callers.begin("f")
    await until(lambda: any("f" in entities(some) for some in world.intended))
    await until(lambda: sum(len(queue.waiting) for queue in callers.runner._committer._queues.values()) == 1)
    world.go_on.set()
    assert all(map(ok, (await callers.ended()).values()))


class HeldOutcomes(World):
    """A trail that writes no outcome until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        self.concluded.append(list(outcomes))
        await self.may_write.wait()
        return True


async def test_no_transaction_waits_for_outcomes_of_changes_that_go_alone() -> None:
    world = HeldOutcomes()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c", "d")
    world.answers[:] = [committed, committed, refused("b"), refused("c")]
    world.open.set()
    await until(lambda: {("a", 1), ("d", 1)} <= {each for some in callers.behind() if len(some) == 1 for each in some})
    await until(lambda: not callers.runner._committer._queues)
    world.may_write.set()
    assert all(map(ok, (await callers.ended()).values()))


async def test_each_caller_gets_an_error_of_its_own() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b")

    def frozen(_: Any) -> Any:
        return FrozenError("frozen")

    world.answers[:] = [committed, committed, frozen, frozen, frozen]
    ended = await callers.ended()
    assert isinstance(ended["a"], FrozenError)
    assert isinstance(ended["b"], FrozenError)
    assert ended["a"] is not ended["b"]
    assert [each.outcome for each in (ended["a"], ended["b"])] == ["not_applied"] * 2
    rejected = {each.change_id for some in world.concluded for each in some if not each.committed}
    assert rejected == {each.change_id for each in world.transactions[2].changes}


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_fault_of_this_process_reaches_every_caller(names: str) -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind(*names)

    def fail(_: Any) -> Any:
        raise RuntimeError("a bug")

    world.answers[:] = [committed, committed, fail]
    ended = await callers.ended()
    assert ["a bug" in str(ended[name]) for name in names] == [True] * len(names)
    assert len({id(ended[name]) for name in names}) == len(names)
    assert ok(ended["x"])


async def test_a_fault_in_a_change_that_goes_alone_reaches_its_caller_only() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c")

    def fail_for_b(transaction: Any) -> Any:
        if transaction.writes[0][0].path.endswith("/b"):
            raise RuntimeError("a bug")
        return committed(transaction)

    world.answers[:] = [committed, committed, lambda _: FrozenError("frozen"), fail_for_b, fail_for_b, fail_for_b]
    ended = await callers.ended()
    assert str(ended["b"]) == "a bug"
    assert ok(ended["a"])
    assert ok(ended["c"])


async def test_a_fault_after_a_refusal_reaches_the_changes_that_still_wait() -> None:
    class Faulty(World):
        async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
            if len(outcomes) > 1:
                raise RuntimeError("a bug")
            return await super().conclude(outcomes)

    world = Faulty()
    callers = Callers(world)
    await callers.begin_behind("a", "b", "c")
    world.answers[:] = [committed, committed, refused("a")]
    world.held = lambda _: len(world.transactions) > len(FIRST) + 1
    world.open.set()
    # The refused change has begun its next attempt, while the others are submitted again.
    await until(lambda: sorted(callers.behind()[1:]) == [[("a", 2)], [("b", 1), ("c", 1)]])
    world.go_on.set()
    # Each was committed before the fault.
    assert all(map(ok, (await callers.ended()).values()))


async def test_a_caller_whose_deadline_passes_before_its_change_is_submitted_leaves_the_queue() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a")
    callers.begin("late", seconds=0.1)
    with pytest.raises(UnavailableError, match="before anything was submitted") as refusal:
        await callers.tasks["late"]
    assert refusal.value.outcome == "not_applied"
    ended = await callers.ended()
    assert callers.behind() == [[("a", 1)]]
    assert ok(ended["a"])
    # Its intent is closed.
    [outcome] = [each for some in world.concluded for each in some if not each.committed]
    assert outcome.change_id in {intent.change_id for some in world.intended for intent in some}


async def test_a_caller_whose_deadline_passes_within_a_transaction_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    callers = Callers(world)
    world.held = lambda transaction: len(transaction.changes) > 1
    await callers.begin_behind("a", "b", seconds=300)
    deadline = await callers.begin_late(monkeypatch)
    world.open.set()
    await callers.tasks["x"]
    world.markers_committed = None
    deadline.reschedule(asyncio.get_running_loop().time())
    # Its change may be applied yet, so it is settled, by its own marker.
    await until(lambda: world.settled)
    assert not callers.tasks["a"].done()
    world.markers_committed = True
    assert ok(await callers.tasks["late"])
    world.go_on.set()
    ended = await callers.ended()
    assert ok(ended["a"])
    assert ok(ended["b"])
    # The transaction was awaited until the latest deadline in it.
    assert world.deadlines[-1] == callers.deadlines["b"] > callers.deadlines["late"]
    # The outcome that the transaction gives is the same.
    assert [each.committed for each in world.concluded[-1]] == [True] * 3


async def test_a_late_reply_does_not_replace_the_result_of_a_settled_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(committed, committed, lost)
    world.markers_committed = True
    world.held = lambda transaction: len(transaction.changes) > 1
    callers = Callers(world)
    await callers.begin_behind("a", seconds=300)
    deadline = await callers.begin_late(monkeypatch)
    world.open.set()
    await until(lambda: len(world.transactions) == len(FIRST) + 1)
    deadline.reschedule(asyncio.get_running_loop().time())
    assert ok(await callers.tasks["late"])
    world.go_on.set()
    assert all(map(ok, (await callers.ended()).values()))


async def test_a_path_that_was_refused_goes_alone_for_a_second() -> None:
    world = World(refused("a"))
    times = [100.0]
    callers = Callers(world, now=lambda: times[0])
    callers.begin("a")
    await callers.tasks.pop("a")
    await callers.begin_behind("b", "c")
    callers.begin("a")
    await until(lambda: ("a", 1) in world.sent()[-1])
    assert world.sent()[-1] == [("a", 1)]
    ended = await callers.ended()
    assert all(map(ok, ended.values()))
    times[0] += 1.5
    callers.tasks.clear()
    await callers.begin_behind("a", "b")
    await callers.ended()
    assert callers.behind() == [[("a", 1), ("b", 1)]]


async def test_the_paths_that_were_refused_are_limited_in_number() -> None:
    world = World()
    callers = Callers(world, most_refused=3)
    for name in ("a", "b", "c", "d", "a"):
        world.answers[:] = [refused(name)]
        callers.begin(name)
        await callers.tasks[name]
    assert [path.rpartition("/")[2] for path in callers.runner._committer._refused] == ["c", "d", "a"]


async def test_a_change_in_turn_with_one_that_waits_goes_in_a_later_transaction() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b")
    caller = Caller.operator("User:a2", "here", "request-a2", time.monotonic() + 60)
    job = world.job("a")
    second = asyncio.create_task(callers.runner.run(cast("ClusterStore", world), job, caller))
    ended = await callers.ended()
    assert ok(await second)
    assert callers.behind() == [[("a", 1), ("b", 1)], [("a", 1)]]
    assert all(map(ok, ended.values()))


async def test_a_stop_waits_for_the_changes_that_wait() -> None:
    world = World()
    callers = Callers(world)
    await callers.begin_behind("a", "b")
    for task in callers.tasks.values():
        task.cancel()
    asyncio.get_running_loop().call_soon(world.open.set)
    await callers.runner.drain(60)
    assert callers.behind() == [[("a", 1), ("b", 1)]]
    committed_ids = [each.change_id for some in world.concluded for each in some if each.committed]
    assert len(committed_ids) == 4


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_refused_each_change_ends_once_with_its_own_result(seed: int) -> None:
    """Among random refusals and lost replies: one outcome for each change, ids in order, no change sent after the end."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    world = World()
    world.markers_committed = True

    def answer(transaction: Any) -> Any:
        ids = [each.change_id for each in transaction.changes]
        assert all(one < other for one, other in pairwise(ids))
        paths = paths_of(transaction)
        assert len(set(paths)) == len(paths)
        kind = chance.random()
        if kind < 0.2:
            return Conflict(chance.choice(ids) if len(ids) > 1 else None)
        if kind < 0.25:
            return Conflict()
        return lost(transaction) if kind < 0.3 else committed(transaction)

    world.answers = [answer] * 10_000
    callers = Callers(world)
    names = [f"n{number:03}" for number in range(150)]
    for name in names:
        callers.begin(name)
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    ended = await callers.ended()
    for name, end in ended.items():
        assert ok(end), (name, end)
    outcomes = [each for some in world.concluded for each in some]
    assert len(outcomes) == len({each.change_id for each in outcomes}) == len(names)
    applied = [each.change_id for transaction in world.transactions for each in transaction.changes]
    assert {each.change_id for each in outcomes} == set(applied)
