"""Change requests: the table of their states, and who may approve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.access.identities import ADMIN
from confplane.domain.change_requests import (
    TRANSITIONS,
    Person,
    RequestAction,
    RequestKind,
    RequestState,
    check_action,
    shared_names,
    uncovered,
    with_approval,
)
from confplane.domain.errors import RequestStateError

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLE: Final = """
draft     redraft draft
draft     submit  open
draft     discard cancelled
open      revise  open
open      approve open approved scheduled acknowledged
open      reject  rejected
open      cancel  cancelled
open      expire  expired
open      reopen  open
open      finish  applied
open      finish-partly partly-applied
approved  revise  open
approved  approve open approved scheduled
approved  reject  rejected
approved  cancel  cancelled
approved  expire  expired
approved  reopen  open
approved  begin   applying
approved  finish  applied
approved  finish-partly partly-applied
scheduled revise  open
scheduled approve open approved scheduled
scheduled reject  rejected
scheduled cancel  cancelled
scheduled expire  expired
scheduled reopen  open
scheduled begin   applying
scheduled finish  applied
scheduled finish-partly partly-applied
applying  finish  applied
applying  finish-partly partly-applied
applying  delay   approved scheduled
applying  reopen  open
applying  fail    failed
failed    revise  open
failed    cancel  cancelled
failed    finish  applied
failed    finish-partly partly-applied
partly-applied begin applying
partly-applied finish applied
partly-applied revert reverting
partly-applied finish-revert reverted
partly-applied finish-revert-partly reverted-partly
applied   revert  reverting
applied   finish-revert reverted
applied   finish-revert-partly reverted-partly
reverting finish-revert reverted
reverting finish-revert-partly reverted-partly
reverting drop-revert applied partly-applied
rejected  finish  applied
rejected  finish-partly partly-applied
cancelled finish  applied
cancelled finish-partly partly-applied
cancelled reopen  open
expired   finish  applied
expired   finish-partly partly-applied
"""


def test_the_transitions_are_the_ones_of_the_table() -> None:
    expected = {
        (before, action): set(after) for before, action, *after in (line.split() for line in TABLE.strip().splitlines())
    }
    assert expected == {
        (before.value, action.value): {each.value for each in after}
        for before, actions in TRANSITIONS.items()
        for action, after in actions.items()
    }
    assert set(TRANSITIONS) == set(RequestState)


def test_every_state_is_reached_from_open_and_each_action_is_used() -> None:
    reached = {RequestState.DRAFT, RequestState.OPEN}
    while more := {to for each in reached for some in TRANSITIONS[each].values() for to in some} - reached:
        reached |= more
    assert reached == set(RequestState)
    assert {action for actions in TRANSITIONS.values() for action in actions} == set(RequestAction)


@pytest.mark.parametrize("state", RequestState, ids="in {}".format)
@pytest.mark.parametrize("action", RequestAction)
@pytest.mark.parametrize("kind", RequestKind)
def test_an_action_that_the_table_does_not_have_is_refused(
    state: RequestState, action: RequestAction, kind: RequestKind
) -> None:
    if action in TRANSITIONS[state] and (
        kind is RequestKind.CHANGE or action in {RequestAction.APPROVE, RequestAction.CANCEL, RequestAction.REOPEN}
    ):
        check_action(kind, state, action)
        return
    with pytest.raises(RequestStateError):
        check_action(kind, state, action)


@pytest.mark.parametrize(
    ("state", "action", "text"),
    [
        ("draft", "begin", "The request is draft: apply is not possible. Possible: revise, cancel"),
        ("applied", "begin", "The request is applied: apply is not possible. Possible: revert"),
        ("rejected", "discard", "The request is rejected: cancel is not possible. Possible: comment"),
    ],
)
def test_a_refusal_names_the_operations_of_callers(state: str, action: str, text: str) -> None:
    with pytest.raises(RequestStateError) as refused:
        check_action(RequestKind.CHANGE, RequestState(state), RequestAction(action))
    assert refused.value.detail == text


ALICE, BOB, CAROL, PORTAL = "User:alice", "User:bob", "User:carol", "User:portal"


def person(*principals: str, related: Iterable[str] = ()) -> Person:
    return Person(frozenset(principals), frozenset(related))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (person(ALICE), person(BOB), set()),
        (person(ALICE), person(ALICE), {ALICE}),
        (person(PORTAL, ALICE), person(ALICE), {ALICE}),
        (person(PORTAL, ALICE), person(PORTAL, BOB), {PORTAL}),
        (person(PORTAL, ALICE), person(BOB), set()),
        (person("User:robot", related=[ALICE]), person(ALICE), {ALICE}),
        (person("User:robot", related=["team-a"]), person("User:job", related=["team-a"]), {"team-a"}),
        (person("User:one", related=[CAROL]), person("User:two", related=[CAROL]), {CAROL}),
        (person(ALICE, related=[ADMIN]), person(BOB, related=[ADMIN]), set()),
        (person(ALICE, related=[ADMIN, CAROL]), person(BOB, related=[ADMIN, CAROL]), {CAROL}),
        (person(ADMIN), person(BOB, related=[ADMIN]), {ADMIN}),
        (person(ADMIN), person(BOB), set()),
        (person(ADMIN), person(ADMIN), {ADMIN}),
    ],
)
def test_a_person_is_known_by_all_names_behind_a_credential(one: Person, other: Person, shared: set[str]) -> None:
    assert shared_names(one, other) == shared_names(other, one) == shared


def test_a_second_approval_of_a_person_replaces_the_first() -> None:
    people = {"first": person(BOB), "again": person("User:robot", related=[BOB]), "other": person(CAROL)}
    approvals = with_approval(["first"], "other", people.__getitem__)
    assert with_approval(approvals, "again", people.__getitem__) == ["other", "again"]


def test_every_entity_needs_an_approver_who_may_alter_it() -> None:
    assert uncovered(["a", "b", "c"], [{"a"}, {"c", "d"}]) == ["b"]
    assert uncovered(["a"], []) == ["a"]
    assert not uncovered(["a", "b"], [{"a"}, {"b"}])
