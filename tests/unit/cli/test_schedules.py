"""``confplane set --for`` and ``confplane schedules``, against made-up answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

CHANGE: Final = "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c"
PAUSE: Final = {"principal": "User:olga", "reason": "an incident", "since": "2026-01-31T12:00:00Z"}
SCHEDULE: Final[dict[str, Any]] = {
    "changeId": CHANGE,
    "state": "ended-partly",
    "kept": [{"entity": "user=alice", "key": "acks"}],
}


def test_a_duration_makes_a_change_temporary(answered: Recorded) -> None:
    diff = [{"key": "retention.ms", "before": None, "after": "1"}]
    answered.answers["incrementalAlter"] = {
        "responses": [{"warnings": [], "diff": diff, "revision": "7", "changeId": CHANGE}]
    }
    answer = CliRunner().invoke(cli, ["set", "topic=orders", "retention.ms=1", "--for", "6h"])
    assert (answer.exit_code, "confplane schedules list" in answer.stderr) == (0, True)
    [(path, _)] = answered.sent
    assert path.partition("?")[2] == "expiresIn=21600"


def test_an_end_names_the_keys_that_it_kept(answered: Recorded) -> None:
    answered.answers["end"] = SCHEDULE
    answer = CliRunner().invoke(cli, ["schedules", "end", CHANGE])
    assert (answer.exit_code, "acks of user=alice" in answer.stderr) == (0, True)
    assert [path for path, _ in answered.sent] == [f"schedules/{CHANGE}:end"]


def test_a_list_tells_that_ends_are_paused(answered: Recorded) -> None:
    answered.answers["schedules"] = {"items": [], "nextPageToken": None, "pause": PAUSE}
    answer = CliRunner().invoke(cli, ["schedules", "list"])
    assert answer.exit_code == 0
    assert "Paused by User:olga since 2026-01-31T12:00:00Z: an incident. `confplane schedules resume`" in answer.stderr
    answered.answers["schedules"] = {"items": [], "nextPageToken": None, "pause": None}
    assert "Paused" not in CliRunner().invoke(cli, ["schedules", "list"]).stderr


def test_ends_are_paused_for_a_reason_and_resumed(answered: Recorded) -> None:
    answered.answers |= {"pause": {"pause": PAUSE}, "resume": {"pause": None}}
    answer = CliRunner().invoke(cli, ["schedules", "pause", "an incident"])
    assert (answer.exit_code, "Paused by User:olga" in answer.stderr) == (0, True)
    assert CliRunner().invoke(cli, ["schedules", "resume"]).exit_code == 0
    assert answered.sent == [("schedules:pause", {"reason": "an incident"}), ("schedules:resume", None)]
