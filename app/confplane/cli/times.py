"""Times in options and arguments: RFC 3339 with an offset, revisions, times ago such as ``30m``, and durations."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

import typer

from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import rfc3339

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


_REVISION: Final = re.compile(r"[0-9]{1,19}")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_FORMS: Final = "RFC 3339 with an offset, such as 2026-01-31T12:00:00Z, or a time ago, such as 30m, 2h or 1d"


def seconds(text: str) -> int | None:
    """Read a duration such as ``90m``. Returns None for any other text."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def duration_of(text: str, option: str) -> int:
    """Return the seconds of a duration.

    Raises:
        typer.BadParameter: The text is not a duration.
    """
    found = seconds(text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is not a valid duration. Use a number and s, m, h or d, such as 90m.", param_hint=option
        )
    return found


def moment_of(text: str, option: str, now: datetime | None = None) -> str:
    """Return a moment in the API's form; a duration such as ``30m`` means that time ago.

    Args:
        text: The argument.
        option: The name of the option, for the error.
        now: The time from which a time ago counts; None means the present.

    Raises:
        InvalidRequestError: The text has none of these forms, or is before the year 1.
    """
    if _REVISION.fullmatch(text):
        return text
    found = _time(text, now)
    if found is None:
        raise InvalidRequestError(f"{option} {text} is not a valid moment. Use a revision, {_FORMS}.")
    return found


def time_of(text: str, option: str, now: datetime | None = None) -> str:
    """Return a time in the API's form.

    Args:
        text: The argument.
        option: The name of the option, for the error.
        now: The time from which a time ago counts; None means the present.

    Raises:
        InvalidRequestError: The text is neither a time with an offset nor a time ago, or before the year 1.
    """
    found = _time(text, now)
    if found is None:
        raise InvalidRequestError(f"{option} {text} is not a valid time. Use {_FORMS}.")
    return found


def later_of(text: str, option: str, now: datetime | None = None) -> str:
    """Return a time to come in the API's form; a duration such as ``2h`` means that time from now.

    Args:
        text: The argument.
        option: The name of the option, for the error.
        now: The time from which a duration counts; None means the present.

    Raises:
        typer.BadParameter: The text is neither a time with an offset nor a duration, or after the year 9999.
    """
    if _TIME.fullmatch(text):
        return text
    try:
        return rfc3339((now or datetime.now(timezone.utc)) + timedelta(seconds=duration_of(text, option)))
    except OverflowError:
        raise typer.BadParameter(f"{text} from now is after the year 9999", param_hint=option) from None
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is not a valid time. Use RFC 3339 with an offset, such as 2026-01-31T12:00:00Z, or a time from"
            " now, such as 2h or 1d.",
            param_hint=option,
        ) from None


def datetime_of(text: str, option: str) -> datetime:
    """Return a time as commands on the stores need it.

    Raises:
        typer.BadParameter: The text is neither a time with an offset nor a time ago.
    """
    try:
        return datetime.fromisoformat(time_of(text, option).upper().replace("Z", "+00:00")).astimezone(timezone.utc)
    except (InvalidRequestError, ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not a valid time. Use {_FORMS}.", param_hint=option) from None


def _time(text: str, now: datetime | None) -> str | None:
    ago = seconds(text)
    if ago is None:
        return text if _TIME.fullmatch(text) else None
    try:
        moment = (now or datetime.now(timezone.utc)) - timedelta(seconds=ago)
    except OverflowError:
        raise InvalidRequestError(f"{text} ago is before the year 1") from None
    return rfc3339(moment)
