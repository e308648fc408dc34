"""Changes that go together, on a store and a trail whose answers are set by the test: splits and retries."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    FrozenError,
    IdempotencyKeyBusyError,
    ListFullError,
    OutcomeUnknownError,
    PreconditionFailedError,
    ThrottledError,
    UnavailableError,
)
from confplane.services.changes import runner as running
from confplane.services.changes import settle
from confplane.services.changes.bulk import run_together
from confplane.services.changes.callers import Caller
from confplane.services.ports.cluster_states import LayoutCheck
from confplane.services.ports.transactions import (
    Conflict,
    SessionEnded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.changes.commit import ChangeRun
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import Claim, Intent, Outcome
    from confplane.services.ports.transactions import Write

from tests.unit.services.scripted_stores import REVISION, World, change_of, entities, lost, ok, refused


async def test_changes_share_a_transaction_and_each_has_its_own_outcome() -> None:
    world = World()
    ended = await world.run("a", "b", "c")
    assert world.sent() == [[("a", 1), ("b", 1), ("c", 1)]]
    assert [entities(some) for some in world.intended] == [["a", "b", "c"]]
    ids = [change.change_id for change in world.transactions[0].changes]
    # In the order of their ids, which is that of the trail.
    assert ids == sorted(ids) == [intent.change_id for intent in world.intended[0]]
    [outcomes] = world.concluded
    assert [(outcome.change_id, outcome.revision, outcome.versions) for outcome in outcomes] == [
        (each, REVISION, {f"/config/users/{of}": 0}) for each, of in zip(ids, "abc", strict=True)
    ]
    assert world.released == ids
    assert [cast("ChangeRun[Any]", ended[of]).change_id for of in "abc"] == ids
    assert all(map(ok, ended.values()))


async def test_a_refused_change_is_decided_again_and_goes_alone() -> None:
    world = World(refused("b"))
    ended = await world.run("a", "b", "c")
    assert world.sent() == [[("a", 1), ("b", 1), ("c", 1)], [("a", 1), ("c", 1)], [("b", 2)]]
    assert [transaction.again for transaction in world.transactions] == [False, True, False]
    # The others are neither decided nor intended again.
    assert world.decided == {"a": 1, "b": 1, "c": 1, "b again": 1}
    assert [entities(some) for some in world.intended] == [["a", "b", "c"], ["b"]]
    assert [[intent.attempt for intent in some] for some in world.intended] == [[1, 1, 1], [2]]
    assert all(map(ok, ended.values()))
    assert [[outcome.attempt for outcome in some] for some in world.concluded] == [[1, 1], [2]]


async def test_a_refused_change_that_may_not_be_made_any_more_is_rejected_alone() -> None:
    world = World(refused("b"))
    world.unchanged_again = {"b": PreconditionFailedError("not any more", etag=None)}
    ended = await world.run("a", "b", "c")
    assert ok(ended["a"])
    assert ok(ended["c"])
    error = cast("ChangeRun[Any]", ended["b"]).error
    assert isinstance(error, PreconditionFailedError)
    assert error.in_trail
    assert [[(each.change_id.int, each.committed) for each in some] for some in world.concluded] == [
        [(1, True), (3, True)],
        [(2, False)],
    ]


@pytest.mark.parametrize(
    ("answers", "names", "sent"),
    [
        # After a second refusal each goes alone.
        ([refused("b"), refused("d")], "abcde", ["a1 b1 c1 d1 e1", "a1 c1 d1 e1", "a1", "b2", "c1", "d2", "e1"]),
        # Of two, the one that is left goes alone.
        ([refused("a"), refused("b")], "ab", ["a1 b1", "b1", "a2", "b2"]),
        # What was not as read for all is decided again for each.
        ([lambda _: Conflict()], "ab", ["a1 b1", "a2", "b2"]),
        # What is found too large after its intent is sent in parts.
        ([lambda _: BodyTooLargeError("after all")], "ab", ["a1 b1", "a1", "b1"]),
    ],
    ids=["second-refusal", "one-is-left", "all-refused", "too-large"],
)
async def test_a_transaction_that_is_refused_is_split(answers: list[Any], names: str, sent: list[str]) -> None:
    world = World(*answers)
    ended = await world.run(*names)
    found = [" ".join(f"{of}{attempt}" for of, attempt in some) for some in world.sent()]
    assert sorted(found) == sorted(sent)
    assert found[0] == sent[0]
    assert all(map(ok, ended.values()))
    outcomes = Counter(each.change_id for some in world.concluded for each in some)
    assert outcomes == {UUID(int=at + 1): 1 for at in range(len(names))}


async def test_a_change_whose_marker_exists_ends_and_the_rest_continue() -> None:
    world = World(lambda transaction: SessionEnded("it stands", change_of(transaction, "b")))
    ended = await world.run("a", "b", "c")
    assert world.sent() == [[("a", 1), ("b", 1), ("c", 1)], [("a", 1), ("c", 1)]]
    assert isinstance(ended["b"], UnavailableError)
    assert ended["b"].outcome == "not_applied"
    assert ok(ended["a"])
    assert ok(ended["c"])
    assert [[(each.change_id.int, each.committed) for each in some] for some in world.concluded] == [
        [(1, True), (3, True)],
        [(2, False)],
    ]


async def test_a_session_that_ended_ends_all() -> None:
    world = World(lambda _: SessionEnded("gone"))
    ended = await world.run("a", "b")
    assert len(world.transactions) == 1
    assert [type(each) for each in ended.values()] == [UnavailableError, UnavailableError]
    assert sorted(each.change_id.int for some in world.concluded for each in some if not each.committed) == [1, 2]


@pytest.mark.parametrize("before", [[], [refused("b")]])
async def test_after_a_lost_reply_nothing_goes_again_and_each_is_settled(before: list[Any]) -> None:
    world = World(*before, lost)
    world.markers_committed = True
    ended = await world.run("a", "b", "c")
    left = ["a", "c"] if before else ["a", "b", "c"]
    again = [each for each in world.sent()[len(before) + 1 :] if each != [("b", 2)]]
    assert not again
    assert all(map(ok, ended.values()))
    settled = [some for some in world.concluded if len(some) == 1 and some[0].attempt == 1]
    assert len(settled) == len(left)


@pytest.mark.parametrize(("committed", "outcome"), [(False, "not_applied"), (None, "unknown")])
async def test_a_lost_reply_of_what_is_not_settled_as_committed(
    monkeypatch: pytest.MonkeyPatch, *, committed: bool | None, outcome: str
) -> None:
    world = World(lost)
    world.markers_committed = committed
    if committed is None:
        monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60))
    ended = await world.run("a", "b")
    assert len(world.transactions) == 1
    assert [cast("ConfplaneError", each).outcome for each in ended.values()] == [outcome] * 2
    if committed is None:
        found = [cast("OutcomeUnknownError", each).change_id for each in ended.values()]
        assert found == [str(UUID(int=1)), str(UUID(int=2))]
        assert world.concluded == []


async def test_one_whose_entity_is_busy_holds_up_no_other() -> None:
    world, gate = World(), asyncio.Event()
    runner = world.runner()
    caller = Caller.operator("User:olga", "here", "r-0", time.monotonic() + 60)
    busy = world.job("b", gate=gate)
    first = asyncio.create_task(runner.run(cast("ClusterStore", world), busy, caller))
    await asyncio.sleep(0)
    jobs = [world.job(of) for of in "abc"]
    ends = await run_together(runner, cast("ClusterStore", world), jobs, caller)
    assert [end.done() for end in ends] == [True, False, True]
    assert world.sent() == [[("a", 1), ("c", 1)]]
    gate.set()
    await first
    await runner.drain(60)
    assert ok(ends[1].result())
    assert world.sent()[1:] == [[("b", 1)], [("b", 1)]]


async def test_one_that_is_not_in_time_for_its_turn_fails_alone() -> None:
    world, gate = World(), asyncio.Event()
    runner = world.runner()
    busy = world.job("b", gate=gate)
    caller = Caller.operator("User:olga", "here", "r-0", time.monotonic() + 60)
    first = asyncio.create_task(runner.run(cast("ClusterStore", world), busy, caller))
    await asyncio.sleep(0)
    late = replace(caller, deadline=time.monotonic())
    ends = await run_together(runner, cast("ClusterStore", world), [world.job(of) for of in "ab"], late)
    assert ok(await ends[0])
    assert isinstance(await ends[1], ConcurrentChangeError)
    gate.set()
    await first


async def test_what_the_admission_refuses_to_all_is_asked_of_each_half() -> None:
    world = World()
    world.room = 5
    ended = await world.run(*"abcdefgh")
    assert [len(each) for each in world.sent()] == [4, 1]
    assert [of for of, each in ended.items() if ok(each)] == list("abcde")
    assert {type(each) for of, each in ended.items() if of in "fgh"} == {ThrottledError}
    # Nothing is intended of what was not admitted.
    assert [len(some) for some in world.intended] == [4, 1]


@pytest.mark.parametrize("error", [BodyTooLargeError, ListFullError])
async def test_a_transaction_that_is_too_large_is_halved(error: type[ConfplaneError]) -> None:
    class Narrow(World):
        async def check_admission(self, writes: Sequence[Write], *_: Any, **__: Any) -> float:
            if len(writes) > 2:
                raise error("too large")
            return 0.01

    world = Narrow()
    ended = await world.run(*"abcde")
    assert [len(each) for each in world.sent()] == [2, 1, 2]
    assert all(map(ok, ended.values()))


async def test_a_topic_that_is_not_there_is_refused_alone() -> None:
    world = World()
    world.unknown_topics = frozenset({"t1", "t3"})
    ended = await world.run("t1", "t2", "t3", "t4")
    assert world.sent() == [[("t2", 1), ("t4", 1)]]
    assert [str(ended[of]) for of in ("t1", "t3")] == ["no ['t1']", "no ['t3']"]
    assert ok(ended["t2"])


async def test_a_refusal_of_all_is_returned_to_each_and_checked_once() -> None:
    class Frozen(World):
        async def check_admission(self, writes: Sequence[Write], *_: Any, **__: Any) -> float:
            self.admitted.append(len(writes))
            raise FrozenError("frozen")

    world = Frozen()
    ended = await world.run("a", "b", "c")
    assert world.admitted == [3]
    assert {type(each) for each in ended.values()} == {FrozenError}
    assert {cast("ConfplaneError", each).outcome for each in ended.values()} == {"not_applied"}
    assert not any(cast("ConfplaneError", each).in_trail for each in ended.values())


async def test_a_freeze_after_the_intents_rejects_each() -> None:
    world = World(lambda _: FrozenError("frozen since"))
    ended = await world.run("a", "b")
    assert {type(each) for each in ended.values()} == {FrozenError}
    assert all(cast("ConfplaneError", each).in_trail for each in ended.values())
    assert sorted((each.change_id.int, each.committed) for some in world.concluded for each in some) == [
        (1, False),
        (2, False),
    ]


async def test_an_intent_that_postgres_can_not_take_fails_its_change_alone() -> None:
    world = World()
    world.unstorable = {"b"}
    ended = await world.run("a", "b", "c")
    assert sorted(world.sent()) == [[("a", 1)], [("c", 1)]]
    assert isinstance(ended["b"], RuntimeError)
    assert ok(ended["a"])
    assert ok(ended["c"])


@pytest.mark.parametrize("error", [UnavailableError("away"), IdempotencyKeyBusyError("taken", pointer=None)])
async def test_without_intents_nothing_is_sent(error: ConfplaneError) -> None:
    class Refusing(World):
        async def intend(self, _intents: Sequence[Intent], _claims: Sequence[Claim] = ()) -> None:
            raise error

    world = Refusing()
    ended = await world.run("a", "b")
    assert (world.transactions, world.concluded, list(ended.values())) == ([], [], [error, error])


async def test_unchanged_entities_are_confirmed_at_once_and_the_rest_are_written() -> None:
    world = World()
    world.unchanged = {"b": None, "d": PreconditionFailedError("not so", etag=None)}
    ended = await world.run("a", "b", "c", "d")
    assert world.confirmed == [["b", "d"]]
    assert world.sent() == [[("a", 1), ("c", 1)]]
    as_asked, failed = (cast("ChangeRun[Any]", ended[of]) for of in "bd")
    assert (as_asked.change_id, as_asked.error, as_asked.revision) == (None, None, REVISION)
    assert isinstance(failed.error, PreconditionFailedError)
    assert failed.error.outcome == "not_applied"


async def test_where_one_is_not_as_read_each_is_confirmed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    # The deadline passes after the second attempt of the stale one.
    late = SimpleNamespace(monotonic=lambda: time.monotonic() + (60 if len(world.confirmed) >= 4 else 0))
    monkeypatch.setattr(running, "time", late)
    world.unchanged = world.unchanged_again = {"a": None, "b": None}
    world.stale = {"b"}
    ended = await world.run("a", "b")
    assert world.confirmed[:3] in (
        [["a", "b"], ["a"], ["b"]],
        [["a", "b"], ["b"], ["a"]],
    )
    assert cast("ChangeRun[Any]", ended["a"]).revision == REVISION
    assert world.decided["b again"]
    assert isinstance(ended["b"], ConcurrentChangeError)


async def test_what_is_only_validated_is_admitted_and_goes_no_further() -> None:
    world = World()
    ended = await world.run("a", "b", validate_only=True)
    assert (world.admitted, world.intended, world.transactions) == ([2], [], [])
    assert [cast("ChangeRun[Any]", each).change_id for each in ended.values()] == [None, None]


async def test_another_layout_is_another_transaction() -> None:
    world = World()
    world.layouts = {"a": LayoutCheck(1), "b": LayoutCheck(2), "c": LayoutCheck(1)}
    ended = await world.run("a", "b", "c")
    assert world.sent() == [[("a", 1), ("c", 1)], [("b", 1)]]
    assert [transaction.layout for transaction in world.transactions] == [LayoutCheck(1), LayoutCheck(2)]
    assert all(map(ok, ended.values()))


async def test_under_a_key_each_intent_has_its_claim() -> None:
    class Key:
        def claim(self, answers: Sequence[Any], _deadline: float) -> Any:
            return ("claim", answers)

    world = World()
    await world.run("a", "b", key=Key())
    assert world.claims == [[("claim", ()), ("claim", ())]]


async def test_a_caller_that_goes_away_cuts_none_of_them() -> None:
    world, gate = World(), asyncio.Event()
    runner = world.runner()
    caller = Caller.operator("User:olga", "here", "r", time.monotonic() + 60)
    jobs = [world.job("a", gate=gate), world.job("b")]
    task = asyncio.create_task(run_together(runner, cast("ClusterStore", world), jobs, caller))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    gate.set()
    await runner.drain(60)
    assert world.sent() == [[("a", 1), ("b", 1)]]
    assert len(world.concluded) == 1


async def test_a_fault_of_the_program_lets_go_of_every_turn() -> None:
    class Broken(World):
        async def conclude(self, _outcomes: Sequence[Outcome]) -> bool:
            raise RuntimeError("a fault")

    world = Broken()
    runner = world.runner()
    with pytest.raises(RuntimeError, match="a fault"):
        await world.run("a", "b", runner=runner)
    assert not runner._turns
    assert next(iter(runner.metrics())).value == 0
