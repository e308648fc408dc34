"""Conditional requests: If-Match, If-None-Match and their body forms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from app.api.edge import HEADERS
from app.domain.errors import InvalidRequestError
from app.services.etags import ANY, Precondition

if TYPE_CHECKING:
    from starlette.requests import Request

_ETAG: Final = re.compile(r'\s*(?:(W/)?("[\x21\x23-\x7e\x80-\xff]*"))\s*(?:,|$)')


def precondition(request: Request, *, body_etag: str | None = None) -> Precondition:
    """Return what a write demands of the current state; a body's ``etag`` counts as one more If-Match.

    Raises:
        InvalidRequestError: A header is not a list of ETags, or header and body name different ones.
    """
    if_match = _parse(request, "if-match", weak=False)
    if body_etag is not None:
        own = etag_field(body_etag, pointer="/etag")
        if if_match is not None and if_match != own:
            raise InvalidRequestError("If-Match and the body's etag differ; send one of them", pointer="/etag")
        if_match = own
    pointer = None if body_etag is None else "/etag"
    return Precondition(if_match, _parse(request, "if-none-match", weak=True), pointer)


def entry_precondition(etag: str | None, *, pointer: str) -> Precondition:
    """Return what one entry of several demands by its ``etag``.

    Raises:
        InvalidRequestError: It is no ETag.
    """
    if etag is None:
        return Precondition()
    return Precondition(if_match=etag_field(etag, pointer=pointer), pointer=pointer)


def etag_field(value: str, *, pointer: str) -> tuple[str, ...]:
    """Return a body's ``etag`` as an If-Match: an ETag with its quotes, or ``*``.

    Raises:
        InvalidRequestError: It is neither.
    """
    return _etags(value, what="etag", pointer=pointer, weak=False)


def not_modified(given: str | None, etag: str) -> bool:
    """Say whether a read with this If-None-Match may be answered 304 (weak comparison, as RFC 9110 wants there)."""
    if given is None:
        return False
    if given == etag:  # what a poller sends
        return True
    wanted = _etags(given, what="If-None-Match", pointer="If-None-Match", weak=True)
    return ANY in wanted or etag in wanted


def _parse(request: Request, header: str, *, weak: bool) -> tuple[str, ...] | None:
    if header.encode() not in request.scope[HEADERS]:
        return None
    given = request.headers.getlist(header)
    name = header.title()
    return _etags(",".join(given), what=name, pointer=name, weak=weak) if given else None


def _etags(text: str, *, what: str, pointer: str, weak: bool) -> tuple[str, ...]:
    if text.strip() == ANY:
        return (ANY,)
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _ETAG.match(text, position)
        if match is None:
            break
        # A weak ETag never matches strongly; it stays in the list as one that can't match.
        found.append(match[2] if weak or not match[1] else f"W/{match[2]}")
        position = match.end()
    if not found or position < len(text):
        raise InvalidRequestError(f'{what} is not a list of ETags such as "5f2a...", nor *', pointer=pointer)
    return tuple(found)
