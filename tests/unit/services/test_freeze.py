"""The writes and the answers of a freeze and a thaw, on a store whose answers are set by the test."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest

from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidRequestError,
    UnavailableError,
)
from confplane.services.changes.callers import Caller
from confplane.services.changes.freeze import FreezeService
from confplane.services.changes.idempotency import RequestKey, RequestRun
from confplane.services.changes.runner import ChangeRunner
from confplane.services.ports.cluster_states import Freeze, StoredState
from confplane.services.ports.request_keys import KeyedChange, KeyRow
from confplane.services.ports.transactions import (
    Committed,
    Conflict,
    Guarded,
    StateWrite,
    Transaction,
)
from tests.support.grants import Grants, access_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog, Claim, Intent, Outcome
    from confplane.services.ports.transactions import CommitResult, Write

KEY = RequestKey("k", "b")
COMMITTED = Committed(77, 1_000, (), {"/confplane/freeze": 5})
OTHERS = Freeze("maintenance", "User:bob", 1_700_000_000_000)


class World:
    """A store and a trail in one, and what happened on them in order."""

    name = "c"
    accepted, incarnation = True, 1

    def __init__(self, *results: CommitResult, freeze: Freeze | None = None) -> None:
        self.results = list(results)
        self.state = StoredState(4, freeze)
        self.happened: list[Any] = []
        self.claims: list[Claim] = []
        self.trail_is_away = False
        self.writers = ["w"]
        self.markers = self

    def writer(self) -> str:
        return self.writers.pop() if len(self.writers) > 1 else self.writers[0]

    async def read_state(self, _kind: type[Freeze], _deadline: float) -> StoredState[Freeze]:
        return self.state

    async def check_admission(
        self, _writes: Sequence[Write], _deadline: float, *, guarded: Guarded, changes: int
    ) -> float:
        assert guarded is Guarded.NONE
        assert changes == 1
        return 0.01

    async def commit(self, transaction: Transaction, _deadline: float) -> CommitResult:
        self.happened.append(transaction)
        return self.results.pop(0)

    async def intend(self, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        self.claims = list(claims)
        if self.trail_is_away:
            raise UnavailableError("away")
        self.happened += intents

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        self.happened += outcomes
        return True

    def new_change_id(self) -> UUID:
        return uuid4()

    def release(self, change_id: object) -> None:
        self.happened.append(("released", change_id))

    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.happened]

    async def run(self, method: str = "freeze", reason: str = "upgrade", *, run: RequestRun | None = None) -> Any:
        caller = Caller.operator("User:olga", "here", "r-1", time.monotonic() + 60)
        return await self.run_by(replace(caller, run=run), method, reason)

    async def run_by(self, caller: Caller, method: str, reason: str = "upgrade", *, validate_only: bool = False) -> Any:
        service = FreezeService(ChangeRunner(cast("AuditLog", self)))
        return await getattr(service, method)(cast("ClusterStore", self), reason, caller, validate_only=validate_only)


async def test_intent_then_transaction_then_outcome() -> None:
    world = World(COMMITTED)
    result = await world.run()
    intent, transaction, outcome, released = world.happened
    [change] = transaction.changes
    [[write]] = transaction.writes
    assert isinstance(write, StateWrite)
    assert isinstance(write.value, Freeze)
    assert world.kinds() == ["Intent", "Transaction", "Outcome", "tuple"]
    assert (intent.reason, intent.entities[0].before, intent.entities[0].after) == (
        "upgrade",
        {"frozen": None},
        {"frozen": "upgrade"},
    )
    assert (write.expected, transaction.writer, change.change_id, write.value.principal) == (
        4,
        intent.writer,
        intent.change_id,
        "User:olga",
    )
    assert (outcome.committed, outcome.revision, outcome.versions) == (True, 77, {"/confplane/freeze": 5})
    assert released == ("released", change.change_id)
    assert (result.revision, result.before, result.after) == (77, None, write.value)


async def test_all_attempts_are_made_under_one_session() -> None:
    world = World(Conflict(), COMMITTED)
    world.writers = ["second", "first", "first"]  # it is asked for before each attempt, and before the first queue
    with pytest.raises(UnavailableError):
        await world.run()
    assert world.kinds() == ["Intent", "Transaction", "Outcome"]
    assert world.happened[0].writer == "first"
    assert not world.happened[-1].committed


async def test_a_freeze_for_another_reason_stands() -> None:
    world = World(freeze=OTHERS)
    with pytest.raises(AlreadyExistsError, match=r"since 2023-11-14T22:13:20Z by User:bob: maintenance"):
        await world.run()
    assert world.happened == []


async def test_the_same_reason_is_nothing_to_do() -> None:
    world = World(freeze=OTHERS)
    result = await world.run(reason=" maintenance ")
    assert (result.change_id, result.after) == (None, OTHERS)
    assert world.happened == []


async def test_one_that_cannot_be_read_is_no_equal() -> None:
    unreadable = Freeze("upgrade", None, 0)
    with pytest.raises(AlreadyExistsError):
        await World(freeze=unreadable).run()
    world = World(COMMITTED, freeze=unreadable)
    assert (await world.run("thaw")).after is None


async def test_thawing_what_is_not_frozen_is_nothing_to_do() -> None:
    world = World()
    assert (await world.run("thaw")).change_id is None
    assert world.happened == []


@pytest.mark.parametrize("reason", ["", " \t", "a\nb", "a\0b", "\udcff", "x" * 1001])
@pytest.mark.parametrize("method", ["freeze", "thaw"])
async def test_reasons_that_cannot_be_stored(method: str, reason: str) -> None:
    world = World()
    with pytest.raises(InvalidRequestError) as caught:
        await world.run(method, reason)
    assert caught.value.pointer == "/reason"
    assert world.happened == []


@pytest.mark.parametrize("method", ["freeze", "thaw"])
async def test_the_grant_is_asked_for_before_anything_is_read(method: str) -> None:
    world = World(freeze=OTHERS)
    grants = Grants()
    grants.give("User:team", operation=Operation.ALTER_CONFIGS, resource=ResourceType.CLUSTER)
    deadline = time.monotonic() + 60
    with pytest.raises(ForbiddenError, match="User:team lacks the grant FREEZE on cluster c;"):
        await world.run_by(Caller(access_of("User:team", grants), deadline), method)
    grants.give("User:team", operation=Operation.FREEZE, resource=ResourceType.CLUSTER)
    world.state = StoredState(4, None if method == "freeze" else OTHERS)
    world.results.append(COMMITTED)
    assert (await world.run_by(Caller(access_of("User:team", grants), deadline), method)).change_id is not None


@pytest.mark.parametrize(("method", "before"), [("freeze", None), ("thaw", OTHERS)])
async def test_validation_goes_up_to_the_write(method: str, before: Freeze | None) -> None:
    world = World(freeze=before)
    caller = Caller.operator("User:olga", "here", "r-1", time.monotonic() + 60)
    result = await world.run_by(caller, method, validate_only=True)
    assert (result.change_id, result.before, result.after is None) == (None, before, method == "thaw")
    assert world.happened == []
    world.state = StoredState(4, OTHERS)
    with pytest.raises(AlreadyExistsError):
        await world.run_by(caller, "freeze", validate_only=True)


async def test_a_run_that_takes_over_answers_the_change_that_was_made_and_freezes_nothing_again() -> None:
    world = World(COMMITTED)
    first = RequestRun(KEY, None, uuid4())
    result = await world.run(run=first)
    [claim] = world.claims
    assert first.wrote
    intent, outcome = world.happened[0], world.happened[2]
    kept = json.loads(json.dumps(claim.results))  # as Postgres keeps it
    row = KeyRow(claim.key_id, claim.holder, "body", "w", in_time=False, answer=None)
    again = RequestRun(KEY, row, uuid4(), [KeyedChange(intent.change_id, 1, kept, outcome)])
    later = World()  # others have thawed it meanwhile
    assert await later.run(run=again) == result
    assert later.happened == []
    assert again.replays


async def test_an_error_that_invites_another_try_is_noted() -> None:
    world = World()
    world.trail_is_away = True
    run = RequestRun(KEY, None, uuid4())
    with pytest.raises(UnavailableError):
        await world.run(run=run)
    assert run.inviting
    assert not run.wrote
