"""Formats of texts in parameters and bodies: their patterns in the specification, and the parsers of times and ids.

The patterns are in the common part of Python's and ECMA 262's syntax. Those of entity ids are in
:mod:`confplane.domain.id_patterns`.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Final

from confplane.domain import id_patterns
from confplane.domain.errors import InvalidRequestError

REVISION: Final = "^[0-9]{1,19}$"
WAIT_MS: Final = "^([0-9]{1,4}|[1-5][0-9]{4}|60000)$"
CHANGE_ID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
ROW_TOKEN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\.[0-9]{1,9}\\.[0-9]{1,9}$"  # noqa: S105 - a page token
UUID: Final = CHANGE_ID
"""Ids of tokens, grants and rows of their history."""
REQUEST_ID: Final = "^[A-Za-z0-9._:-]{1,128}$"
PLAN_ID: Final = "^[0-9a-f]{40}$"
CLUSTER: Final = "^[a-z0-9][a-z0-9-]{0,62}$"
WEBHOOK: Final = CLUSTER
"""Names of webhooks."""

_ETAG: Final = '"[!#-~\\u0080-\\u00ff]*"'
ETAG: Final = f"^{_ETAG}$"
_GIVEN: Final = f"[ \\t]*(W/)?{_ETAG}[ \\t]*"
ETAGS: Final = f"^([ \\t]*\\*[ \\t]*|{_GIVEN}(,{_GIVEN})*)$"
"""The value of If-Match: a list of ETags, or ``*``."""

NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]+$"
"""A name that a znode can carry."""

AUDITED_ID: Final = f"^({id_patterns.ANY}|cluster)$"
"""Ids of everything with changes in the trail."""
ROLLUP_ID: Final = f"^({id_patterns.ANY})?$"
"""Ids of all entities; empty for the whole cluster."""
RESOURCE_NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]*$"
"""Names of topics, brokers, groups and subscriptions, and the empty one."""
TIME: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
"""RFC 3339, with an offset."""
IDEMPOTENCY_KEY: Final = "^[!-~]([ -~]{0,253}[!-~])?$"
"""Printable ASCII. Blanks at the ends of a header are not part of it."""
PRINCIPAL: Final = "^(User|Group):[^\\u0000-\\u001f\\u007f]+$"
RESOURCE: Final = "^[a-z-]+(:[^\\u0000]*)?$"
"""A resource in a query: ``topic:orders``, ``cluster``."""

WAIT_APPLIED: Final = "Confplane-Wait-Applied"
"""The header with a number of milliseconds."""
_RFC_3339: Final = re.compile(TIME)
_WAIT: Final = re.compile(WAIT_MS)
_REVISION_DIGITS: Final = 19


def parse_wait_applied(text: str) -> float:
    """Read the header ``Confplane-Wait-Applied``; return the seconds to wait.

    Raises:
        InvalidRequestError: The text is not a number of milliseconds up to a minute.
    """
    if _WAIT.fullmatch(text):
        return int(text) / 1000
    raise InvalidRequestError(
        f"{WAIT_APPLIED} is not a number of milliseconds from 0 to 60000, in digits", pointer=WAIT_APPLIED
    )


def parse_moment(text: str | None, pointer: str) -> datetime | None:
    """Read an optional time, as :func:`parse_time` does."""
    return None if text is None else parse_time(text, pointer)


def parse_time(text: str, pointer: str) -> datetime:
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


def parse_revision_or_time(text: str, pointer: str) -> int | datetime:
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
    return parse_time(text, pointer)


def parse_page_token(text: str | None) -> uuid.UUID | None:
    """Read the cursor of a list that is ordered by UUIDs; None is the first page.

    Raises:
        InvalidRequestError: The text is not a cursor of such a list.
    """
    return None if text is None else parse_uuid(text, "pageToken")


def parse_uuid(text: str, name: str) -> uuid.UUID:
    """Read an id or a page token that is a UUID in canonical form.

    Raises:
        InvalidRequestError: The text is not a UUID in canonical form.
    """
    try:
        found = uuid.UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise InvalidRequestError(f"{name} is not one that this API gave: {text[:100]!a}", pointer=name)
    return found
