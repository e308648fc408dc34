"""Retried items: growing pauses between the attempts at a due item, and the log of its failures."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from confplane.domain.errors import InvalidRequestError
from confplane.services.background import RetriedItems
from tests.support.clock import Clock

START = datetime(2026, 11, 29, tzinfo=UTC)


def make() -> tuple[RetriedItems, Clock[datetime]]:
    clock = Clock(START)
    return RetriedItems(logging.getLogger(__name__), clock, "Item %s failed"), clock


def attempt(retries: RetriedItems, item: UUID, error: Exception | None = None) -> None:
    with retries.attempt(item):
        if error is not None:
            raise error


def test_the_pauses_double_up_to_a_minute() -> None:
    retries, clock = make()
    item = uuid4()
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        assert retries.ready([item]) == [item]
        attempt(retries, item, InvalidRequestError("no"))
        clock.now += timedelta(seconds=pause) - timedelta(milliseconds=1)
        assert retries.ready([item]) == []
        clock.now += timedelta(milliseconds=1)


def test_an_item_that_fails_for_days_is_still_attempted_each_minute() -> None:
    retries, clock = make()
    item = uuid4()
    for _ in range(1_100):
        attempt(retries, item, InvalidRequestError("no"))
    assert retries.failed[item].next_at == clock.now + timedelta(minutes=1)


@pytest.mark.parametrize("outcome", ["attempted", "not due"])
def test_a_success_and_an_item_that_is_no_longer_due_start_again(outcome: str) -> None:
    retries, _ = make()
    item = uuid4()
    attempt(retries, item, InvalidRequestError("no"))
    if outcome == "attempted":
        attempt(retries, item)
    else:
        retries.ready([])
    assert retries.ready([item]) == [item]
    assert not retries.failed


def test_a_refusal_is_logged_once_and_any_other_error_each_time(caplog: pytest.LogCaptureFixture) -> None:
    retries, _ = make()
    refused, broken = uuid4(), uuid4()
    for _ in range(2):
        attempt(retries, refused, InvalidRequestError("no"))
        attempt(retries, broken, ValueError("a secret"))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"Item {refused} failed: no", f"Item {broken} failed", f"Item {broken} failed"]
    assert [retries.failed[each].error for each in (refused, broken)] == ["no", "ValueError"]
