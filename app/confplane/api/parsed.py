"""Parsing of times and ids in parameters and bodies."""

import re
from datetime import UTC, datetime
from uuid import UUID

from confplane.api import patterns
from confplane.domain.errors import InvalidRequestError

_RFC_3339 = re.compile(patterns.TIME)
_REVISION_DIGITS = 19
WAIT_APPLIED = "Confplane-Wait-Applied"
_WAIT_MS = re.compile(patterns.WAIT_MS)


def wait_applied(text: str) -> float:
    """Read the header ``Confplane-Wait-Applied``; return the seconds to wait.

    Raises:
        InvalidRequestError: The text is not a number of milliseconds up to a minute.
    """
    if _WAIT_MS.fullmatch(text):
        return int(text) / 1000
    raise InvalidRequestError(
        f"{WAIT_APPLIED} is not a number of milliseconds from 0 to 60000, in digits", pointer=WAIT_APPLIED
    )


def moment(text: str | None, pointer: str) -> datetime | None:
    """Read an optional time, as :func:`time` does."""
    return None if text is None else time(text, pointer)


def time(text: str, pointer: str) -> datetime:
    """Read a time. Pydantic is not used because it accepts numbers and other forms that are not RFC 3339.

    Raises:
        InvalidRequestError: The text is not a time, or has no offset.
    """
    try:
        if _RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequestError(
        f"{pointer.removeprefix('/')} is not a time with its offset (RFC 3339), such as 2026-01-31T12:00:00Z; in a URL"
        " a + is written %2B",
        pointer=pointer,
    )


def revision_or_time(text: str, pointer: str) -> int | datetime:
    """Read a moment: a revision if the text is all digits, otherwise a time.

    Raises:
        InvalidRequestError: The text is neither.
    """
    if text.isascii() and text.isdigit():
        if len(text) > _REVISION_DIGITS or int(text) >= 2**63:
            raise InvalidRequestError(
                f"{pointer.removeprefix('/')} is not a valid revision: it has too many digits", pointer=pointer
            )
        return int(text)
    return time(text, pointer)


def page_token(text: str | None) -> UUID | None:
    """Read the cursor of a list that is ordered by UUIDs; None is the first page.

    Raises:
        InvalidRequestError: The text is not a cursor of such a list.
    """
    return None if text is None else uuid(text, "pageToken")


def uuid(text: str, name: str) -> UUID:
    """Read an id or a page token that is a UUID in canonical form.

    Raises:
        InvalidRequestError: The text is not a UUID in canonical form.
    """
    try:
        found = UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise InvalidRequestError(f"{name} is not one that this API gave: {text[:100]!a}", pointer=name)
    return found
