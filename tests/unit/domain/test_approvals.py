"""Missing approvals of a change."""

from __future__ import annotations

import pytest

from confplane.domain.approvals import Approval, Globs, Requirement, missing

ANYBODY = Requirement("anybody", 2)
LEADS = Requirement("leads", 1, Globs(["Group:leads-*", "User:carol"]))
TOPIC = "topic=orders"


def approval(principal: str, *groups: str, entities: frozenset[str] = frozenset({TOPIC})) -> Approval:
    return Approval(principal, frozenset(groups), entities)


ALICE = approval("User:alice", "Group:leads-emea")
BOB = approval("User:bob", "Group:staff")
CAROL = approval("User:carol")


@pytest.mark.parametrize(
    ("approvals", "names"),
    [
        ([], ["anybody", "leads"]),
        ([BOB], ["anybody", "leads"]),
        ([ALICE], ["anybody"]),
        ([CAROL], ["anybody"]),
        ([ALICE, ALICE], ["anybody"]),
        ([ALICE, approval("User:alice", "Group:staff")], ["anybody"]),
        ([BOB, approval("User:dave", "Group:Leads-emea")], ["leads"]),
        ([BOB, CAROL], []),
        ([BOB, approval("User:carol", entities=frozenset({"topic=other"}))], ["anybody", "leads"]),
        ([ALICE, approval("User:bob", entities=frozenset())], ["anybody"]),
    ],
)
def test_missing_approvals(approvals: list[Approval], names: list[str]) -> None:
    assert [each.rule for each in missing(TOPIC, [ANYBODY, LEADS], approvals)] == names


def test_nothing_is_missing_where_no_rule_asks() -> None:
    assert missing(TOPIC, [], []) == ()


def test_a_requirement_in_words() -> None:
    assert str(ANYBODY) == "rule 'anybody' asks for 2 approvals"
    assert str(LEADS) == "rule 'leads' asks for an approval of Group:leads-*, User:carol"
