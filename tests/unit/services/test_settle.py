"""Settling on a store and a trail whose answers are set by the test: when the trail is asked first, and what is told."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.errors import CorruptZnodeError, OutcomeUnknownError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.changes import settle as settling
from confplane.services.changes.settle import committed, settle, settle_own
from confplane.services.ports.store import Marker
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import EntityWrite
from confplane.services.upkeep.reconcile import SWEEP_AGE_S
from confplane.store.write.markers import RELEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog, AuditRecord

ID = uuid.uuid4()
APPLIED = Marker(ID, committed=True, attempt=2, revision=77, time_ms=1_000, versions={"/config/users/a": 5})
ABORTED = Marker(ID, committed=False)
OUTCOME = Outcome(ID, 2, "c", committed=True, revision=77, time_ms=1_000, versions={"/config/users/a": 5})


class Record:
    intent = SimpleNamespace(entities=())

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome


class World:
    """A store and a trail in one."""

    name = "c"
    accepted, incarnation = True, 1

    def __init__(self, *markers: Marker | Exception | None, record: Record | None = None) -> None:
        self.markers = self
        self.standing = list(markers)
        self.record = record
        self.durable = True
        self.happened: list[Any] = []

    async def get(self, cluster: str, change_id: uuid.UUID) -> AuditRecord | None:
        self.happened.append(("get", cluster, change_id))
        return cast("AuditRecord | None", self.record)

    async def settle(self, change_id: uuid.UUID, _deadline: float) -> Marker | None:
        self.happened.append(("settle", change_id))
        marker = self.standing.pop(0)
        if isinstance(marker, Exception):
            raise marker
        return marker

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        self.happened += outcomes
        return self.durable

    async def wait_for(self, revision: int, _deadline: float) -> None:
        self.happened.append(("wait", revision))
        raise UnavailableError("behind")

    def release(self, change_id: uuid.UUID) -> None:
        self.happened.append(("release", change_id))

    async def run(self, age_s: float = 0) -> Outcome:
        now = time.monotonic()
        return await settle(*self.both(), ID, 3, open_at=now - age_s, deadline=now + 60)

    async def run_own(self, seconds: float = 60) -> Outcome:
        now = time.monotonic()
        return await settle_own(*self.both(), ID, 2, began=now, deadline=now + seconds)

    def both(self) -> tuple[AuditLog, ClusterStore]:
        return cast("AuditLog", self), cast("ClusterStore", self)


async def test_a_commit_is_reported_by_its_marker() -> None:
    world = World(APPLIED)
    assert await world.run() == OUTCOME
    assert world.happened == [("settle", ID), ("get", "c", ID), OUTCOME, ("release", ID)]


async def test_a_marker_stays_while_the_outcome_is_not_durable() -> None:
    world = World(APPLIED)
    world.durable = False
    assert await world.run() == OUTCOME
    assert world.happened == [("settle", ID), ("get", "c", ID), OUTCOME]


async def test_an_abort_marker_is_an_abort_and_stays() -> None:
    world = World(ABORTED)
    outcome = await world.run()
    assert (outcome.change_id, outcome.attempt, outcome.committed, outcome.error_code) == (ID, 3, False, 13)
    assert world.happened == [("settle", ID), outcome]


async def test_changes_open_for_a_while_are_looked_up_before_an_abort_marker_is_created() -> None:
    concluded = World(record=Record(OUTCOME))
    assert await concluded.run(age_s=settling._FRESH_S + 1) == OUTCOME
    assert concluded.happened == [("get", "c", ID)]
    for record in (None, Record(None)):
        still_open = World(APPLIED, record=record)
        assert await still_open.run(age_s=settling._FRESH_S + 1) == OUTCOME
        assert still_open.happened[:2] == [("get", "c", ID), ("settle", ID)]


def test_a_read_of_the_trail_is_valid_for_less_time_than_markers_are_kept() -> None:
    """An abort marker that was asked for at the last moment may wait in the client for as long as a session lasts."""
    longest_session_s = 45
    assert settling._FRESH_S + longest_session_s <= min(SWEEP_AGE_S, RELEASE_SECONDS)


async def test_a_marker_that_was_dropped_in_the_meantime_means_that_the_trail_knows() -> None:
    world = World(None, record=Record(OUTCOME))
    assert await world.run() == OUTCOME
    assert world.happened == [("settle", ID), ("get", "c", ID)]


async def test_the_own_change_is_tried_until_it_is_settled() -> None:
    world = World(UnavailableError("away"), UnavailableError("away"), APPLIED)
    assert await world.run_own() == OUTCOME
    # The mirror's being behind takes nothing from it.
    assert world.happened[-2:] == [("release", ID), ("wait", 77)]


@pytest.mark.parametrize("error", [UnavailableError("away"), CorruptZnodeError("/confplane/commits/x", "is odd")])
async def test_the_own_change_that_can_not_be_settled_is_unknown(error: Exception) -> None:
    world = World(*[error] * 100)
    with pytest.raises(OutcomeUnknownError) as caught:
        await world.run_own(seconds=0)
    assert caught.value.change_id == str(ID)
    assert caught.value.outcome == "unknown"


def test_a_settled_commit_returns_what_the_lost_reply_would_have() -> None:
    there, absent = Entity.of(user="a"), Entity.of(user="b")
    writes = (
        EntityWrite("/config/users/a", Tree.CONFIG, there, 4, {"k": "2"}, b'{"x":1}', czxid=50),
        EntityWrite("/confplane/client-configs/users/b", Tree.CLIENT_CONFIGS, absent, None, {"acks": "1"}),
    )
    outcome = Outcome(
        ID,
        1,
        "c",
        committed=True,
        revision=77,
        time_ms=1_000,
        versions={"/config/users/a": 5, "/confplane/client-configs/users/b": 0},
    )
    result = committed(outcome, writes)
    assert (result.revision, result.time_ms) == (77, 1_000)
    assert result.nodes == (
        Node("user=a", ("k", "2"), 5, czxid=50, mzxid=77, mtime_ms=1_000, extra=b'{"x":1}'),
        Node("user=b", ("acks", "1"), 0, czxid=77, mzxid=77, mtime_ms=1_000),
    )
