"""Moments in arguments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from confplane.cli.remote.moments import moment_of, time_of
from confplane.domain.errors import InvalidRequestError


@pytest.mark.parametrize("text", ["8589934635", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+02:00", "no moment"])
def test_what_is_no_length_of_time_goes_to_the_service_as_it_is(text: str) -> None:
    assert moment_of(text) == text


@pytest.mark.parametrize(("text", "minutes"), [("90m", 90), ("2h", 120), ("1d", 1440), ("60s", 1)])
def test_a_length_of_time_is_that_time_ago(text: str, minutes: int) -> None:
    now = datetime(2026, 11, 27, 9, tzinfo=UTC)
    found = datetime.fromisoformat(time_of(text, "--since", now))
    assert found == now - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "text", ["8589934635", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z"]
)
def test_a_time_without_an_offset_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"--until .* is no time: give .*2026-01-31T12:00:00Z.*30m"):
        time_of(text, "--until")


def test_before_all_time() -> None:
    with pytest.raises(InvalidRequestError, match="before all time"):
        moment_of("999999999d")
