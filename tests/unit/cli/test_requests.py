"""``confplane set --propose`` and ``confplane requests``, against made-up answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

REQUEST: Final = "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c"
ONE: Final = f"change-requests/{REQUEST}"
DIGEST: Final = "7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"
SHOWN: Final[dict[str, Any]] = {
    "id": REQUEST,
    "kind": "change",
    "state": "approved",
    "digest": DIGEST,
    "author": {"principal": "User:portal", "behalfOf": "User:dev"},
    "reason": "more load",
    "createdAt": "2026-01-31T12:00:00Z",
    "approvals": [{"principal": "User:ops", "behalfOf": None, "at": "2026-01-31T12:00:00Z"}],
    "requirements": ["rule 'leads' asks for an approval of Group:leads"],
    "changeId": None,
    "error": None,
    "entities": ["user=alice"],
    "changes": [
        {
            "facet": "client-quotas",
            "id": "user=alice",
            "mode": "alter",
            "diff": [{"key": "producer_byte_rate", "before": 1, "after": 2}],
        }
    ],
    "warnings": [],
    "approvalRules": [
        {
            "rule": "leads",
            "count": 2,
            "approvers": ["Group:leads", "User:olga"],
            "entities": ["user=alice"],
            "given": [{"principal": "User:olga", "behalfOf": None, "at": "2026-01-31T12:00:00Z"}],
            "missing": 1,
        }
    ],
    "toSupply": [{"id": "broker=1", "key": "ssl.key.password"}],
    "differences": [
        {"entity": "user=bob", "facet": "client-quotas", "revision": "7", "keys": [{"key": "k", "now": "9"}]}
    ],
    "events": [
        {"action": "approve", "at": "2026-01-31T12:00:00Z", "principal": "User:ops", "behalfOf": None, "text": "fine"}
    ],
}


def test_a_change_is_proposed_with_its_reason(answered: Recorded) -> None:
    answered.answers["change-requests"] = SHOWN
    given = ["set", "user=alice", "producer_byte_rate=2", "acks=all", "--propose", "--reason", "more load"]
    answer = CliRunner().invoke(cli, given)
    assert (answer.exit_code, f"confplane requests show {REQUEST}" in answer.stderr) == (0, True)
    [(path, body)] = answered.sent
    assert path.startswith("change-requests?")
    assert body == {
        "edits": [
            {"facet": "client-quotas", "id": "user=alice", "ops": [{"key": "producer_byte_rate", "value": 2}]},
            {"facet": "client-configs", "id": "user=alice", "ops": [{"key": "acks", "value": "all"}]},
        ]
    }


def test_a_proposal_has_the_times_that_are_given(answered: Recorded) -> None:
    answered.answers["change-requests"] = SHOWN
    given = ["set", "topic=orders", "retention.ms=1", "--propose", "--apply-at", "2030-01-31T12:00:00Z"]
    assert CliRunner().invoke(cli, [*given, "--expires-at", "30d"]).exit_code == 0
    [(_, body)] = answered.sent
    assert (body["applyAt"], body["expiresAt"].endswith("Z")) == ("2030-01-31T12:00:00Z", True)


@pytest.mark.parametrize("words", [["set", "topic=orders", "flush.ms=1"], ["delete", "topic=orders", "flush.ms"]])
def test_a_draft_is_made_and_proposed_by_a_revision(answered: Recorded, words: list[str]) -> None:
    answered.answers |= {"configs/topic=orders": {"configs": {"flush.ms": "1"}}, "revise": SHOWN}
    answered.answers["change-requests"] = {**SHOWN, "state": "draft"}
    answer = CliRunner().invoke(cli, [*words, "--propose", "--draft"])
    assert (answer.exit_code, f"confplane requests revise {REQUEST}" in answer.stderr) == (0, True), answer.output
    for options in (["--draft"], []):
        assert CliRunner().invoke(cli, ["requests", "revise", REQUEST, *options]).exit_code == 0
    proposed, redrafted, submitted = [body for path, body in answered.sent if path.startswith(("change-requests",))]
    assert (proposed["draft"], proposed["edits"][0]["id"]) == (True, "topic=orders")
    assert [redrafted, submitted] == [{"edits": [], "draft": True}, {"edits": []}]


@pytest.mark.parametrize(
    ("words", "times"),
    [
        (["--apply-at", "2030-01-31T12:00:00Z"], {"applyAt": "2030-01-31T12:00:00Z"}),
        (
            ["--no-apply-at", "--expires-at", "2030-01-31T12:00:00Z"],
            {"applyAt": None, "expiresAt": "2030-01-31T12:00:00Z"},
        ),
    ],
)
def test_a_revision_has_the_times_that_are_given(
    answered: Recorded, words: list[str], times: dict[str, str | None]
) -> None:
    answered.answers["revise"] = SHOWN
    assert CliRunner().invoke(cli, ["requests", "revise", REQUEST, *words]).exit_code == 0
    assert answered.sent == [(f"{ONE}:revise", {"edits": [], **times})]


@pytest.mark.parametrize(
    "words",
    [
        ["set", "topic=orders", "retention.ms=1", "--apply-at", "2h"],
        ["set", "topic=orders", "retention.ms=1", "--propose", "--apply-at", "soon"],
        ["set", "topic=orders", "retention.ms=1", "--propose", "--expires-at", "999999999d"],
        ["set", "topic=orders", "retention.ms=1", "--draft"],
        ["delete", "topic=orders", "retention.ms", "--expires-at", "2h"],
        ["requests", "revise", REQUEST, "--apply-at", "2h", "--no-apply-at"],
        ["set", "topic=orders", "retention.ms=1", "--propose", "--for", "6h"],
        ["set", "topic=orders", "retention.ms=1", "--for", "soon"],
    ],
)
def test_options_that_are_not_valid_are_refused_before_any_request(answered: Recorded, words: list[str]) -> None:
    refused = CliRunner().invoke(cli, words)
    assert (refused.exit_code, answered.sent) == (2, []), refused.output


def test_a_request_is_shown_with_all_that_a_reviewer_needs(answered: Recorded) -> None:
    answered.answers[ONE] = SHOWN
    answer = CliRunner().invoke(cli, ["requests", "show", REQUEST])
    assert answer.exit_code == 0
    for text in (
        "approved by User:ops",
        "User:portal for User:dev: more load",
        DIGEST,
        "producer_byte_rate",
        "Group:leads",
        "Changed since: user=bob, client-quotas: k is 9",
        "approve by User:ops: fine",
        "Rule leads: 2 of Group:leads, User:olga for user=alice; approved by User:olga, 1 missing",
    ):
        assert text in answer.stdout


def test_a_change_past_the_rules_is_shown_with_what_it_wrote(answered: Recorded) -> None:
    answered.answers[ONE] = {**SHOWN, "kind": "break-glass", "changes": []}
    entity = {"id": "user=alice", "keys": ["producer_byte_rate"], "ops": [], "before": {}}
    change = {"changeId": "c-1", "outcome": "committed", "applies": REQUEST}
    other = {**change, "applies": None, "entities": [{**entity, "after": {"producer_byte_rate": 6}}]}
    written = {**change, "entities": [{**entity, "after": {"producer_byte_rate": 7}}]}
    answered.answers["audit"] = {"items": [other, written], "nextPageToken": None}
    answer = CliRunner().invoke(cli, ["requests", "show", REQUEST])
    assert answer.exit_code == 0, answer.output
    lines = [line.split() for line in answer.stdout.splitlines()]
    place = lines.index(["Change", "c-1,", "committed:"])
    assert lines[place + 1 : place + 3] == [
        ["ENTITY", "KEY", "BEFORE", "AFTER"], ["user=alice", "producer_byte_rate", "(not", "set)", "7"],
    ]  # fmt: skip
    assert answer.stdout.count("user=alice  producer_byte_rate") == 1
    query = answered.requests[-1].url.params
    assert query["principal"] == "User:portal"
    assert query["since"] <= "2026-01-31T12:00:00Z" < query["until"]


def test_a_change_past_the_rules_is_shown_to_those_who_may_not_read_the_trail(answered: Recorded) -> None:
    answered.answers[ONE] = {**SHOWN, "kind": "break-glass", "changes": []}
    answered.answers["audit"] = httpx.Response(403, json={"title": "Forbidden", "detail": "DESCRIBE is missing"})
    answer = CliRunner().invoke(cli, ["requests", "show", REQUEST])
    assert (answer.exit_code, "approve by User:ops: fine" in answer.stdout) == (0, True)
    assert "Its changes can't be read: 403 Forbidden: DESCRIBE is missing" in answer.stderr


def test_an_open_request_is_shown_with_the_command_that_approves_it(answered: Recorded) -> None:
    command = f"To approve it: confplane requests approve {REQUEST} --digest {DIGEST}"
    for state in ("open", "applied"):
        answered.answers[ONE] = {**SHOWN, "state": state}
        answer = CliRunner().invoke(cli, ["requests", "show", REQUEST])
        assert (command in answer.stdout.splitlines()) is (state == "open")


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["approve", REQUEST, "--digest", DIGEST], {"digest": DIGEST}),
        (["reject", REQUEST, "--comment", "no"], {"comment": "no"}),
        (["cancel", REQUEST], {}),
        (["comment", REQUEST, "please"], {"comment": "please"}),
        (["revise", REQUEST], {"edits": []}),
    ],
)
def test_each_command_sends_its_operation(answered: Recorded, words: list[str], body: dict[str, Any]) -> None:
    answered.answers[words[0]] = SHOWN
    answer = CliRunner().invoke(cli, ["requests", *words])
    assert (answer.exit_code, f"Request {REQUEST}: approved" in answer.stderr) == (0, True)
    assert answered.sent == [(f"change-requests/{REQUEST}:{words[0]}", body)]


def test_a_sensitive_value_is_supplied_for_the_entity_that_needs_it(answered: Recorded) -> None:
    answered.answers |= {ONE: SHOWN, "apply": SHOWN}
    answer = CliRunner().invoke(cli, ["requests", "apply", REQUEST, "ssl.key.password=hunter2"])
    assert answer.exit_code == 0
    path, body = answered.sent[-1]
    assert path == f"change-requests/{REQUEST}:apply"
    assert body == {"values": [{"id": "broker=1", "key": "ssl.key.password", "value": "hunter2"}]}


def test_a_revert_is_proposed_with_its_terms(answered: Recorded) -> None:
    answered.answers["revert"] = SHOWN
    terms = ["--partly", "--apply-at", "2030-01-31T12:00:00Z", "--reason", "harmful"]
    assert CliRunner().invoke(cli, ["requests", "revert", REQUEST, *terms]).exit_code == 0
    assert answered.sent == [(f"{ONE}:revert?reason=harmful", {"partly": True, "applyAt": "2030-01-31T12:00:00Z"})]


def test_a_change_past_the_rules_is_to_be_acknowledged(answered: Recorded) -> None:
    past = {**SHOWN, "kind": "break-glass", "state": "open", "requirements": [], "changes": [], "approvalRules": []}
    nothing: dict[str, Any] = {"items": [], "nextPageToken": None}
    answered.answers |= {ONE: past, "change-requests": {**nothing, "items": [past]}, "audit": nothing}
    shown = CliRunner().invoke(cli, ["requests", "show", REQUEST]).stdout
    assert "A change past the rules, of user=alice" in shown
    assert f"To acknowledge it: confplane requests approve {REQUEST} --digest {DIGEST}" in shown
    assert "to acknowledge" in CliRunner().invoke(cli, ["requests", "list"]).stdout
