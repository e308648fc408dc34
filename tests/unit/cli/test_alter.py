"""``confplane set`` with secrets, against answers that are made up."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.answers import Recorded

KEY = "ssl.keystore.password"
_ASKS = f"""
import sys
from confplane.cli.remote.change_commands import values_of
sys.exit(values_of(["{KEY}"]) != {{"{KEY}": "geheim"}})
"""


@pytest.fixture
def secret(answered: Recorded) -> Recorded:
    """Answers to the change of a secret."""
    diff = [{"key": KEY, "before": None, "after": None, "secret": True}]
    result: dict[str, Any] = {"warnings": [], "diff": diff, "revision": "7", "changeId": "c"}
    answered.answers["incrementalAlter"] = {"responses": [result]}
    return answered


@pytest.mark.parametrize("given", ["line", "file", "standard input", "asked"])
def test_a_secret_is_never_shown_and_on_a_command_line_it_is_warned_of(
    secret: Recorded, given: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("geheim\n")
    words = {"line": f"{KEY}=geheim", "file": f"{KEY}=@{tmp_path / 'file'}", "standard input": f"{KEY}=@-"}
    answer = CliRunner().invoke(cli, ["set", "broker=0", words.get(given, KEY)], input="geheim\n")
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[1].split() == [KEY, "(hidden)", "(hidden)"]
    assert "geheim" not in answer.output
    assert ("every user of the machine can read it" in answer.stderr) is (given == "line")
    [(path, body)] = secret.sent
    assert path == "configs:incrementalAlter"
    [resource] = body["resources"]
    assert resource["configs"] == [{"name": KEY, "configOperation": "SET", "value": "geheim"}]


def test_a_terminal_does_not_show_what_is_typed() -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # the process on the terminal
        os.execv(sys.executable, [sys.executable, "-c", _ASKS])  # noqa: S606 - no shell is needed
    shown = b""
    while not shown.endswith(b": "):
        shown += os.read(terminal, 1024)
    os.write(terminal, b"geheim\n")
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # Linux: nobody has the other end
        shown += os.read(terminal, 1024)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert KEY.encode() in shown
    assert b"geheim" not in shown


@pytest.mark.parametrize(
    ("applied", "code", "said"),
    [
        ({"state": "applied", "revision": "7", "code": None, "message": None}, 0, "has applied the change"),
        ({"state": "pending", "revision": None, "code": None, "message": None}, 1, "has not applied the change yet"),
        (
            {"state": "refused", "revision": None, "code": 42, "message": "Invalid quota"},
            1,
            "refuses the change, which stays committed: Invalid quota (code 42)",
        ),
        (None, 0, "Changed user=alice"),
    ],
)
def test_a_change_that_waits_says_what_the_kafka_cluster_made_of_it(
    answered: Recorded, applied: dict[str, Any] | None, code: int, said: str
) -> None:
    diff = {"quotas": [{"key": "producer_byte_rate", "before": None, "after": 1}], "configs": []}
    result: dict[str, Any] = {"warnings": [], "diff": diff, "revision": "7", "changeId": "c"}
    if applied is not None:
        result["applied"] = applied
    answered.answers["alter"] = {"entries": [result]}
    answer = CliRunner().invoke(cli, ["set", "user=alice", "producer_byte_rate=1", "--wait-applied", "5000"])
    assert (answer.exit_code, said in answer.stderr) == (code, True)
    [request] = answered.requests
    assert request.headers["Confplane-Wait-Applied"] == "5000"


@pytest.mark.parametrize("warning", [None, "Past the rules: rule 'closed': no"])
def test_a_change_that_breaks_no_rule_says_that_nothing_was_bypassed(answered: Recorded, warning: str | None) -> None:
    diff = {"quotas": [{"key": "producer_byte_rate", "before": None, "after": 1}], "configs": []}
    warnings = [] if warning is None else [warning]
    answered.answers["alter"] = {"entries": [{"warnings": warnings, "diff": diff, "revision": "7", "changeId": "c"}]}
    for glass in ([], ["--break-glass", "an outage"]):
        answer = CliRunner().invoke(cli, ["set", "user=alice", "producer_byte_rate=1", *glass])
        said = "--break-glass has no effect" in answer.stderr
        assert (answer.exit_code, said) == (0, bool(glass) and warning is None), answer.output


@pytest.mark.parametrize("warning", [None, "Past the rules: rule 'closed': no"])
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("revert --request-id r --yes", "revert"),
        ("revert --request-id r --validate-only", "revert"),
        ("drift adopt user=alice", "adopt"),
    ],
)
def test_changes_of_several_entities_say_that_nothing_was_bypassed(
    answered: Recorded, words: str, answer: str, warning: str | None
) -> None:
    key = {"key": "acks", "before": "1", "after": "all"}
    plain = {"changeId": "c", "errorCode": 0, "errors": [], "warnings": [], "diff": []}
    changed = {**plain, "id": "user=alice", "diff": [key], "warnings": [] if warning is None else [warning]}
    answered.answers[answer] = {"failed": 0, "skipped": [], "results": [changed, {**plain, "id": "user=bob"}]}
    for glass in ([], ["--break-glass", "an outage"]):
        found = CliRunner().invoke(cli, [*words.split(), *glass])
        said = found.stderr.count("--break-glass has no effect")
        assert (found.exit_code, said) == (0, glass != [] and warning is None), found.output


def test_a_revert_shows_its_warnings_before_it_is_made_and_what_was_refused(answered: Recorded) -> None:
    key = {"key": "acks", "before": "1", "after": "all"}
    plain = {"changeId": None, "errorCode": 0, "errors": [], "warnings": [], "diff": [key]}
    plan = [{**plain, "id": "user=a"}, {**plain, "id": "user=b", "warnings": ["user=b needs approval"]}]
    done = [plan[0], {**plain, "id": "user=b", "diff": [], "errorCode": 44, "errorName": None, "errorMessage": "no"}]

    def reverted(request: httpx.Request) -> httpx.Response:
        results = plan if b"validateOnly" in request.url.query else done
        return httpx.Response(200, json={"failed": int(results is done), "skipped": [], "results": results})

    answered.answers["revert"] = reverted
    answer = CliRunner().invoke(cli, ["revert", "--request-id", "r", "--yes"])
    assert answer.exit_code == 1
    assert answer.stderr.splitlines() == [
        "Warning: user=b needs approval",
        "Warning: the outcome differs from the changes above. Reverted:",
        "Not reverted: user=b: no",
        "Reverted 1 key of 1 entity",
    ]


def test_a_wait_of_a_bad_length_is_refused(answered: Recorded) -> None:
    answer = CliRunner().invoke(cli, ["set", "user=alice", "producer_byte_rate=1", "--wait-applied", "60001"])
    assert (answer.exit_code, answered.requests) == (2, [])
    assert "--wait-applied" in answer.output


@pytest.mark.parametrize("line", ["set topic=a flush.ms=1", "delete topic=a flush.ms"])
def test_an_etag_of_quotas_that_the_entity_does_not_have_is_refused(answered: Recorded, line: str) -> None:
    answered.answers["configs/topic=a"] = {"id": "topic=a", "configs": {"flush.ms": "2"}}
    refused = CliRunner().invoke(cli, [*line.split(), "--quotas-etag", '"5f2a"'])
    assert (refused.exit_code, refused.stderr) == (2, "topic=a has no quotas; give its ETag as --configs-etag.\n")
    assert not [path for path, _ in answered.sent if "lter" in path]
