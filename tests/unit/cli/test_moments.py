"""Moments in arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.times import moment_of, time_of
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded


@pytest.mark.parametrize("text", ["8589934635", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+02:00"])
def test_revisions_and_times_go_to_the_service_as_they_are(text: str) -> None:
    assert moment_of(text, "--at") == text


@pytest.mark.parametrize("text", ["yesterday", "30 m", "30min", "2026-01-31", "2026-01-31T12:00:00", "-5", "", "now"])
def test_other_moments_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        moment_of(text, "--at")
    assert str(refused.value) == (
        f"--at {text} is not a valid moment. Use a revision, RFC 3339 with an offset, such as 2026-01-31T12:00:00Z, or a"
        " time ago, such as 30m, 2h or 1d."
    )


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("get user=a --at yesterday", "--at"),
        ("get --type user --at yesterday", "--at"),
        ("diff user=a --from yesterday", "--from"),
        ("diff user=a --from 1 --to yesterday", "--to"),
        ("revert user=a --to yesterday --yes", "--to"),
        ("export --at yesterday", "--at"),
        ("audit --since yesterday", "--since"),
    ],
)
def test_every_command_refuses_them_before_any_request(answered: Recorded, line: str, option: str) -> None:
    said = CliRunner().invoke(cli, line.split())
    assert (said.exit_code, answered.requests) == (2, []), said.output
    assert f"{option} yesterday is not a valid" in said.stderr
    assert "30m" in said.stderr


@pytest.mark.parametrize(("text", "minutes"), [("90m", 90), ("2h", 120), ("1d", 1440), ("60s", 1)])
def test_a_length_of_time_is_that_time_ago(text: str, minutes: int) -> None:
    now = datetime(2026, 11, 27, 9, tzinfo=UTC)
    found = datetime.fromisoformat(time_of(text, "--since", now))
    assert found == now - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "text", ["8589934635", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z"]
)
def test_a_time_without_an_offset_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"--until .* is not a valid time\. Use .*2026-01-31T12:00:00Z.*30m"):
        time_of(text, "--until")


def test_before_all_time() -> None:
    with pytest.raises(InvalidRequestError, match="before the year 1"):
        moment_of("999999999d", "--at")
