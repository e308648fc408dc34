"""Missing approvals of a change."""

from __future__ import annotations

import pytest

from confplane.domain.approvals import Approval, Requirement, missing
from confplane.domain.globs import Globs

ANYBODY = Requirement("anybody", 2)
LEADS = Requirement("leads", 1, Globs(["Group:leads-*", "User:carol"]))
ALICE = Approval("User:alice", frozenset({"Group:leads-emea"}))
BOB = Approval("User:bob", frozenset({"Group:staff"}))
CAROL = Approval("User:carol")


@pytest.mark.parametrize(
    ("approvals", "names"),
    [
        ([], ["anybody", "leads"]),
        ([BOB], ["anybody", "leads"]),
        ([ALICE], ["anybody"]),
        ([CAROL], ["anybody"]),
        ([ALICE, ALICE], ["anybody"]),
        ([ALICE, Approval("User:alice", frozenset({"Group:staff"}))], ["anybody"]),
        ([BOB, Approval("User:dave", frozenset({"Group:Leads-emea"}))], ["leads"]),
        ([BOB, CAROL], []),
    ],
)
def test_missing_approvals(approvals: list[Approval], names: list[str]) -> None:
    assert [each.rule for each in missing([ANYBODY, LEADS], approvals)] == names


def test_nothing_is_missing_where_no_rule_asks() -> None:
    assert missing([], []) == ()


def test_a_requirement_in_words() -> None:
    assert str(ANYBODY) == "rule 'anybody' asks for 2 approvals"
    assert str(LEADS) == "rule 'leads' asks for an approval of Group:leads-*, User:carol"
