"""Moments in arguments: times of RFC 3339, revisions, and times ago such as ``30m``."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from confplane.cli.durations import seconds
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import rfc3339


def moment_of(text: str, now: datetime | None = None) -> str:
    """Return a moment in the API's form; a duration such as ``30m`` means that time before now.

    Raises:
        InvalidRequestError: The resulting time is before the year 1.
    """
    ago = seconds(text)
    if ago is None:
        return text
    try:
        moment = (now or datetime.now(timezone.utc)) - timedelta(seconds=ago)
    except OverflowError:
        raise InvalidRequestError(f"{text} ago is before all time") from None
    return rfc3339(moment)


def time_of(text: str, option: str, now: datetime | None = None) -> str:
    """Return a time in the API's form.

    Args:
        text: The argument.
        option: The name of the option, for the error.
        now: The time from which a time ago counts; None means the present.

    Raises:
        InvalidRequestError: The text is neither a time with an offset nor a time ago.
    """
    text = moment_of(text, now)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or "T" not in text.upper():
        raise InvalidRequestError(
            f"{option} {text} is no time: give one with an offset, such as 2026-01-31T12:00:00Z, or a time ago, such as"
            " 30m"
        )
    return text
