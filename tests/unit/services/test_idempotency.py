"""The end of a key's run: the answer is stored, or the key is handed on, or forgotten."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.access.operations import Operation, ResourceType, Role
from confplane.domain.entities import Entity
from confplane.domain.errors import (
    ConcurrentChangeError,
    ConfplaneError,
    ForbiddenError,
    IdempotencyKeyBusyError,
    IdempotencyKeyReusedError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
    WriteOutcome,
)
from confplane.services.access import of_operator
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, EditResult
from confplane.services.changes.idempotency import IdempotencyService, RequestKey, RequestRun
from confplane.services.ports.request_keys import KeyedChange, KeyRow, StoredAnswer
from confplane.services.ports.trail import Outcome
from tests.support.grants import Grants, access_of

if TYPE_CHECKING:
    from confplane.services.ports.request_keys import RequestKeys
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog

ADMIN = of_operator("User:admin", "", "")
KEY = RequestKey("k", "b")
ANSWER = StoredAnswer(200, {}, "{}")
EDIT = Edit(Entity.of(user="alice"), ())
DONE = EditResult(EDIT, change_id="c-1", revision=7)
UNCHANGED = EditResult(EDIT, revision=7)
USER = ResourceType.USER
ID, FIRST = uuid.uuid4(), uuid.uuid4()


class Keys:
    """Keeps one row, and what was called."""

    def __init__(self, row: KeyRow | None = None, *, held: bool = True) -> None:
        self.row = row
        self.held = held
        self.away = False
        self.happened: list[str] = []

    def _did(self, what: str) -> bool:
        if self.away:
            raise UnavailableError("away")
        self.happened.append(what)
        return self.held

    async def find(self, _key: str) -> KeyRow | None:
        self._did("find")
        return self.row

    async def take_over(self, row: KeyRow, holder: uuid.UUID, *, writer: str, seconds: float) -> bool:
        self.row = KeyRow(row.id, holder, row.body, writer, in_time=seconds > 0, answer=None)
        return self._did("take over")

    async def changes(self, _key_id: uuid.UUID) -> list[KeyedChange]:
        return []

    async def store(self, _id: uuid.UUID, _holder: uuid.UUID, _answer: StoredAnswer) -> bool:
        return self._did("store")

    async def hand_on(self, _id: uuid.UUID, _holder: uuid.UUID) -> bool:
        return self._did("hand on")

    async def release(self, _id: uuid.UUID, _holder: uuid.UUID) -> bool:
        return self._did("release")


class Store:
    """A cluster of which one writer is there."""

    name = "default"

    def __init__(self, *, there: bool | None) -> None:
        self.there = there
        self.markers = self
        self.asked = 0

    def writer(self) -> str:
        return "w-2"

    async def writers(self, _deadline: float) -> frozenset[str]:
        self.asked += 1
        if self.there is None:
            raise UnavailableError("away")
        return frozenset({"w-1"} if self.there else ())


def service(keys: Keys) -> IdempotencyService:
    return IdempotencyService(cast("RequestKeys", keys), cast("AuditLog", None))


def failed(error: ConfplaneError) -> EditResult:
    return EditResult(EDIT, error)


def claimed(*results: EditResult, applied: bool = False) -> RequestRun:
    outcome = Outcome(ID, 1, "c", committed=True, revision=7, time_ms=1)
    earlier = KeyedChange(ID, 1, [{"facet": "client-quotas", "entity": "user=bob"}], outcome)
    run = RequestRun(KEY, row(), uuid.uuid4(), [earlier] if applied else [])
    run.record(results)
    return run


def row(*, in_time: bool = True, answer: StoredAnswer | None = None, body: str = "b") -> KeyRow:
    return KeyRow(ID, FIRST, body, "w-1", in_time, answer)


BAD = InvalidRequestError("bad")
LATE = ConcurrentChangeError("late")
UNKNOWN = OutcomeUnknownError("unknown", change_id="c-2")


@pytest.mark.parametrize(
    ("results", "answer", "applied", "expected"),
    [
        ([DONE], ANSWER, False, "store"),
        ([DONE, UNCHANGED, failed(BAD)], ANSWER, False, "store"),
        ([UNCHANGED], ANSWER, True, "store"),
        ([DONE, failed(LATE)], ANSWER, False, "hand on"),
        ([DONE, failed(UNKNOWN)], ANSWER, False, "hand on"),
        ([DONE], None, False, "hand on"),
        ([failed(LATE)], None, True, "hand on"),
        ([failed(UNKNOWN)], None, False, "hand on"),
        ([failed(LATE)], None, False, "release"),
        ([failed(BAD)], None, False, "release"),
        ([UNCHANGED], ANSWER, False, "release"),
    ],
)
async def test_what_a_key_ends_in(
    results: list[EditResult], answer: StoredAnswer | None, expected: str, *, applied: bool
) -> None:
    keys = Keys()
    assert await service(keys).finish(claimed(*results, applied=applied), answer)
    assert keys.happened == [expected]


async def test_an_answer_does_not_count_once_the_key_is_anothers() -> None:
    keys = Keys(row(), held=False)
    assert not await service(keys).finish(claimed(DONE), ANSWER)
    assert not await service(keys).finish(claimed(failed(BAD)), None)
    keys.happened.clear()
    assert not await service(keys).finish(claimed(failed(IdempotencyKeyBusyError("busy"))), None)
    assert keys.happened == []
    # Never written, so nobody's.
    assert await service(Keys(None, held=False)).finish(claimed(failed(LATE)), None)


async def test_what_wrote_nothing_counts_while_nobody_wrote_under_the_key() -> None:
    assert await service(Keys()).finish(RequestRun(KEY, None, uuid.uuid4()), ANSWER)
    assert not await service(Keys(row())).finish(RequestRun(KEY, None, uuid.uuid4()), ANSWER)


async def test_an_answer_is_given_though_it_can_not_be_stored() -> None:
    keys = Keys()
    keys.away = True
    assert await service(keys).finish(claimed(DONE), ANSWER)
    with pytest.raises(UnavailableError) as caught:
        await service(keys).finish(RequestRun(KEY, None, uuid.uuid4()), ANSWER)
    assert caught.value.outcome == "unknown"


async def test_a_new_key_begins_a_run_and_a_known_one_is_answered() -> None:
    store, soon = cast("ClusterStore", Store(there=True)), time.monotonic() + 60
    begun = await service(Keys()).begin(KEY, store, ADMIN, soon)
    assert isinstance(begun, RequestRun)
    assert (begun.claimed, begun.applied) == (False, False)
    assert await service(Keys(row(answer=ANSWER))).begin(KEY, store, ADMIN, soon) == ANSWER
    with pytest.raises(IdempotencyKeyReusedError):
        await service(Keys(row(answer=ANSWER, body="other"))).begin(KEY, store, ADMIN, soon)


class AnsweredKeys(Keys):
    """Keys whose row has its answer at the third find."""

    async def find(self, key: str) -> KeyRow | None:
        found = await super().find(key)
        self.row = row(answer=ANSWER if len(self.happened) == 2 else None)
        return found


@pytest.mark.parametrize("there", [True, None], ids=["there", "nobody-knows"])
async def test_who_is_there_is_waited_for(there: Any) -> None:
    store, keys = Store(there=there), AnsweredKeys(row())
    assert await service(keys).begin(KEY, cast("ClusterStore", store), ADMIN, time.monotonic() + 60) == ANSWER
    assert keys.happened == ["find"] * 3
    assert store.asked >= 1


async def test_who_is_there_is_waited_for_until_the_deadline() -> None:
    keys = Keys(row())
    with pytest.raises(IdempotencyKeyBusyError) as caught:
        await service(keys).begin(KEY, cast("ClusterStore", Store(there=True)), ADMIN, time.monotonic())
    assert caught.value.retry_after_s
    assert keys.happened == ["find"]


@pytest.mark.parametrize("why", ["writer gone", "late", "own"])
async def test_a_key_is_taken_over(why: str) -> None:
    store, keys = Store(there=why != "writer gone"), Keys(row(in_time=why != "late"))
    ended = RequestRun(KEY, None, FIRST) if why == "own" else None
    begun = await service(keys).begin(KEY, cast("ClusterStore", store), ADMIN, time.monotonic() + 60, ended=ended)
    assert isinstance(begun, RequestRun)
    assert (begun.id, begun.claimed) == (ID, True)
    assert keys.row is not None
    assert keys.row.holder == begun.holder != FIRST


@pytest.mark.parametrize("call", ["find", "take_over", "changes", "writer"])
async def test_while_a_store_is_away_the_outcome_of_an_earlier_request_is_unknown(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store, keys = Store(there=False), Keys(row())

    def away(*_: Any, **__: Any) -> Any:
        raise UnavailableError("away", outcome=WriteOutcome.NOT_APPLIED, retry_after_s=30)

    monkeypatch.setattr(store if call == "writer" else keys, call, away)
    with pytest.raises(UnavailableError) as caught:
        await service(keys).begin(KEY, cast("ClusterStore", store), ADMIN, time.monotonic() + 60)
    assert (caught.value.outcome, caught.value.retry_after_s) == ("unknown", 30)


async def test_nobody_begins_again_for_ever() -> None:
    ended = RequestRun(KEY, None, uuid.uuid4())
    with pytest.raises(IdempotencyKeyBusyError):
        await service(Keys()).begin(KEY, cast("ClusterStore", Store(there=True)), ADMIN, time.monotonic(), ended=ended)


async def test_an_answer_is_given_again_to_who_still_has_the_grants() -> None:
    grants, store, soon = Grants(), cast("ClusterStore", Store(there=True)), time.monotonic() + 60
    access = access_of("User:team", grants)
    run = RequestRun(KEY, None, FIRST)
    with pytest.raises(ForbiddenError):
        Caller(access, soon, run=run).require("default", Operation.ALTER_CONFIGS, "user=bob")
    given = [grants.give("User:team", operation=Operation.ALTER_CONFIGS, resource=USER, name=name) for name in "ab"]
    for name in "ab":
        Caller(access, soon, run=run).require("default", Operation.ALTER_CONFIGS, f"user={name}")
    # An entity that was refused then says nothing in the answer, and needs no grant now.
    kept = run.kept(ANSWER)
    assert kept.needs == ("ALTER_CONFIGS user=a", "ALTER_CONFIGS user=b")
    keys = service(Keys(row(answer=kept)))
    assert await keys.begin(KEY, store, access, soon) == kept
    grants.take(given[1])
    with pytest.raises(ForbiddenError, match="ALTER_CONFIGS on user=b") as refused:
        await keys.begin(KEY, store, access, soon)
    assert refused.value.outcome is WriteOutcome.UNKNOWN
    assert await keys.begin(KEY, store, ADMIN, soon) == kept


@pytest.mark.parametrize("needs", [None, ("A_LATER_OPERATION user=a",)])
async def test_an_answer_whose_needs_are_not_known_is_given_to_who_may_do_everything(
    needs: tuple[str, ...] | None,
) -> None:
    """Earlier releases did not keep them, and later ones may know more operations."""
    grants, store, soon = Grants(), cast("ClusterStore", Store(there=True)), time.monotonic() + 60
    grants.give("User:team", role=Role.ADMIN)
    keys = service(Keys(row(answer=replace(ANSWER, needs=needs))))
    with pytest.raises(ForbiddenError, match="not known which grants"):
        await keys.begin(KEY, store, access_of("User:team", grants), soon)
    assert await keys.begin(KEY, store, ADMIN, soon) == replace(ANSWER, needs=needs)
    assert RequestRun(KEY, None, FIRST).kept(ANSWER).needs is None
