"""The chain of policies: order, refusals, and policies that fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from confplane.domain.errors import PolicyViolationError
from confplane.domain.policies import Policies
from tests.unit.policy.requests import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.domain.policy_rules import PolicyRequest

ASKED = request("user=alice", "producer_byte_rate=5", "-request_percentage")


class Scripted:
    """A policy that does what it is told, and remembers being asked."""

    def __init__(self, name: str, act: Callable[[PolicyRequest], object]) -> None:
        self.name = name
        self.asked: list[PolicyRequest] = []
        self._act = act

    def check(self, request: PolicyRequest) -> None:
        self.asked.append(request)
        return self._act(request)  # type: ignore[return-value]


def _refuse(request: PolicyRequest) -> object:
    raise PolicyViolationError("mine: no", pointer=request.pointers["producer_byte_rate"])


def _break(request: PolicyRequest) -> object:
    raise RuntimeError(f"broken on {request.set}")


async def _later() -> None:
    raise AssertionError


def test_no_policies_allow_everything() -> None:
    assert not Policies()
    Policies().check(ASKED)


def test_all_are_asked_in_order_until_one_refuses() -> None:
    first, second, third = Scripted("1", lambda _: None), Scripted("2", _refuse), Scripted("3", lambda _: None)
    policies = Policies([first, second, third])
    assert policies
    assert policies.names == ("1", "2", "3")
    with pytest.raises(PolicyViolationError) as caught:
        policies.check(ASKED)
    assert (caught.value.detail, caught.value.pointer) == ("mine: no", "/ops/0")
    assert [policy.asked for policy in (first, second, third)] == [[ASKED], [ASKED], []]


def test_a_policy_that_breaks_refuses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(PolicyViolationError) as caught:
        Policies([Scripted("mine", _break)]).check(ASKED)
    assert caught.value.detail.startswith("policy 'mine' failed, so the change is refused.")
    assert "producer_byte_rate" not in caught.value.detail
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "policy mine failed on client-quotas of user=alice, cluster payments; the change is refused"
    )
    assert record.exc_info is not None
    assert "Traceback" in caplog.text
    assert "in _break" in caplog.text


@pytest.mark.parametrize("answer", [True, False, "s3cret", 0])
def test_a_policy_that_answers_refuses(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(PolicyViolationError, match="policy 'mine' failed"):
        Policies([Scripted("mine", lambda _: answer)]).check(ASKED)
    assert f"policy mine returned {type(answer).__name__}" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_policy_that_answers_later_refuses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(PolicyViolationError, match="policy 'mine' failed"):
        Policies([Scripted("mine", lambda _: _later())]).check(ASKED)
    assert "policy mine returned coroutine" in caplog.text
