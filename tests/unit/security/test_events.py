"""Security events: lines of JSON within bounds, sums by minute, counts, and Postgres away."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.access.operations import Operation
from confplane.domain.errors import UnavailableError
from confplane.security.events import BACKLOG, LINES, OVERFLOW, SUMS, EventLog
from tests.support.alerts import PartAlerts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.ports.access import AccessChange

ALICE = Identity("User:alice", Authentication.TOKEN)


class Store:
    """Keeps added rows."""

    def __init__(self) -> None:
        self.rows: list[AccessChange] = []
        self.away = False

    async def add_events(self, rows: Sequence[AccessChange]) -> None:
        if self.away:
            raise UnavailableError("away")
        self.rows += rows


class World:
    """Events with a store and a clock of the test."""

    def __init__(self) -> None:
        self.store = Store()
        self.now = 0.0
        self.events = EventLog(self.store, clock=lambda: self.now)

    def deny(self, times: int = 1, *, who: Identity = ALICE, source: str = "10.0.0.1", name: str = "user=bob") -> None:
        for _ in range(times):
            self.events.denied(who, source, "r-1", Operation.ALTER_CONFIGS, name)

    async def sums(self) -> dict[tuple[str, str, str, str], int]:
        self.store.rows.clear()
        await self.events.flush()
        return {(row.kind, row.principal, row.source, row.subject): row.count for row in self.store.rows}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines of the log of security events so far, parsed."""
    caplog.set_level(logging.INFO, "confplane.security")

    def parsed() -> list[dict[str, Any]]:
        assert all("\n" not in record.getMessage() for record in caplog.records)
        return [json.loads(record.getMessage()) for record in caplog.records if record.name == "confplane.security"]

    return parsed


def test_each_event_is_one_line_of_json(lines: Any) -> None:
    world = World()
    portal = Identity("User:portal", Authentication.TOKEN, behalf_of=Identity("User:eve", Authentication.BEHALF))
    world.deny(who=portal)
    world.events.unauthenticated("invalid", "10.0.0.2", "r-2")
    world.events.admitted_admin("10.0.0.3", "r-3")
    world.events.broke_glass(portal, "10.0.0.4", "r-4", "payments", "c-1")
    assert lines() == [
        {
            "event": "denied",
            "principal": "User:portal",
            "source": "10.0.0.1",
            "requestId": "r-1",
            "operation": "ALTER_CONFIGS",
            "resource": "user=bob",
            "onBehalfOf": "User:eve",
        },
        {
            "event": "unauthenticated",
            "principal": "User:ANONYMOUS",
            "source": "10.0.0.2",
            "requestId": "r-2",
            "reason": "invalid",
        },
        {"event": "admin-token-used", "principal": "User:admin", "source": "10.0.0.3", "requestId": "r-3"},
        {
            "event": "break-glass",
            "principal": "User:portal",
            "source": "10.0.0.4",
            "requestId": "r-4",
            "cluster": "payments",
            "changeRequest": "c-1",
            "onBehalfOf": "User:eve",
        },
    ]


def test_names_of_callers_break_no_line_and_are_clipped(lines: Any) -> None:
    world = World()
    world.deny(who=Identity("User:a\nb\u2028" + "c" * 5000, Authentication.OIDC), name="user=" + "d" * 5000)
    [line] = lines()
    assert len(json.dumps(line)) < 1_000


def test_a_flood_writes_few_lines_and_says_how_many_are_missing(lines: Any) -> None:
    world = World()
    world.deny(10_000)
    assert len(lines()) == LINES
    assert "only counted" in lines()[-1]["note"]
    world.deny(source="10.0.0.9")
    assert len(lines()) == LINES + 1, "another source has lines of its own"
    world.now += 60
    world.deny()
    assert lines()[-2:] == [{"event": "not-shown", "count": 10_000 - LINES}, lines()[0]]


def test_lines_are_bounded_also_where_every_event_has_another_caller(lines: Any) -> None:
    world = World()
    for number in range(10 * SUMS):
        world.deny(source=f"10.1.{number // 250}.{number % 250}")
    assert len(lines()) <= SUMS + LINES


async def test_sums_are_by_kind_principal_source_and_subject() -> None:
    world = World()
    world.deny(3)
    world.deny(2, name="user=other")
    world.deny(1, name="topic=orders")
    world.deny(4, source="10.0.0.2")
    world.events.unauthenticated("missing", "10.0.0.1", "r")
    assert await world.sums() == {
        ("denied", "User:alice", "10.0.0.1", "ALTER_CONFIGS user"): 5,
        ("denied", "User:alice", "10.0.0.1", "ALTER_CONFIGS topic"): 1,
        ("denied", "User:alice", "10.0.0.2", "ALTER_CONFIGS user"): 4,
        ("unauthenticated", "User:ANONYMOUS", "10.0.0.1", "missing"): 1,
    }
    assert await world.sums() == {}


async def test_the_number_of_sums_is_bounded_and_no_event_is_lost() -> None:
    world = World()
    for number in range(3 * SUMS):
        world.deny(source=f"10.1.{number // 250}.{number % 250}")
    sums = await world.sums()
    assert len(sums) == SUMS + 1
    assert sums["denied", OVERFLOW, OVERFLOW, OVERFLOW] == 2 * SUMS
    assert sum(sums.values()) == 3 * SUMS


async def test_sums_wait_for_postgres_within_a_bound() -> None:
    world = World()
    world.store.away = True
    world.deny(2)
    assert await world.sums() == {}
    world.deny(3)
    world.store.away = False
    await world.events.flush()
    assert [row.count for row in world.store.rows] == [2, 3]
    world.store.away = True
    for round_ in range(2 * BACKLOG // SUMS):
        for number in range(SUMS):
            world.deny(source=f"{round_}.1.{number // 250}.{number % 250}")
        await world.events.flush()
    world.store.away = False
    world.store.rows.clear()
    await world.events.flush()
    assert len(world.store.rows) == BACKLOG


async def test_the_background_adds_sums_and_the_end_adds_the_rest() -> None:
    world = World()
    events = EventLog(world.store, interval_s=3600)
    events.start()
    events.admitted_admin("10.0.0.1", "r")
    await events.stop()
    assert [(row.kind, row.count) for row in world.store.rows] == [("admin-token-used", 1)]


def test_events_are_counted_by_kind() -> None:
    world = World()
    alerts = PartAlerts(world.events)
    world.deny(25)
    assert alerts.scrape() == set()
    world.events.broke_glass(Identity("User:portal", Authentication.TOKEN), "10.0.0.4", "r-4", "payments", "c-1")
    counts = {labels: value for name, value, labels in world.events.metrics() if name == "security_events"}
    assert counts == {("denied",): 25, ("unauthenticated",): 0, ("admin-token-used",): 0, ("break-glass",): 1}
    assert alerts.scrape() == {"GlassBroken"}
