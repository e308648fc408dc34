"""The bytes of large responses in flight: a quarter of the total for each principal, and the total for all."""

from __future__ import annotations

import pytest

from confplane.domain.errors import BodyTooLargeError, LimitExceededError, UnavailableError
from confplane.services.response_budget import ResponseBudget


def in_flight(budget: ResponseBudget) -> object:
    return next(each.value for each in budget.metrics() if each.name == "response_bytes_in_flight")


def test_a_principal_has_a_quarter_and_the_rest_is_left_to_others() -> None:
    budget = ResponseBudget(400)
    first, second = budget.lease("User:a"), budget.lease("User:a")
    first.hold(60)
    second.hold(40)
    third = budget.lease("User:a")
    with pytest.raises(LimitExceededError, match="User:a is receiving") as refused:
        third.hold(1)
    assert refused.value.retry_after_s == 1
    for name in "bcd":
        budget.lease(f"User:{name}").hold(100)
    with pytest.raises(UnavailableError, match="in flight are larger than 400 bytes") as full:
        budget.lease("User:e").hold(1)
    assert full.value.retry_after_s == 1
    # Refused bytes are not held.
    assert in_flight(budget) == 400
    first.release()
    budget.lease("User:e").hold(60)
    second.hold(0)
    second.release()
    first.release()
    assert in_flight(budget) == 360


def test_a_response_that_alone_is_above_the_share_can_not_succeed_later() -> None:
    budget = ResponseBudget(400)
    lease = budget.lease("User:a")
    lease.hold(99)
    with pytest.raises(BodyTooLargeError, match="larger than 100 bytes; ask for fewer"):
        lease.hold(2)
    lease.release()
    assert in_flight(budget) == 0


def test_of_two_responses_that_do_not_fit_together_one_is_received() -> None:
    budget = ResponseBudget(400)
    first, second = budget.lease("User:a"), budget.lease("User:a")
    for _ in range(5):
        first.hold(10)
        second.hold(10)
    with pytest.raises(LimitExceededError):
        first.hold(10)
    second.hold(50)
    assert in_flight(budget) == 100
