"""Conditional requests: If-Match, If-None-Match and their body forms."""

import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header
from starlette.requests import Request

from confplane.api import formats
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.domain.errors import InvalidRequestError
from confplane.domain.etags import ANY, Precondition

_REFRESHED_FIRST: Final = (
    ". Quotas and configs that are also written in a Kafka 4 cluster are read from the cluster first"
)
_ETAG: Final = re.compile(r'\s*(?:(W/)?("[\x21\x23-\x7e\x80-\xff]*"))\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class ConditionalHeaders:
    """The conditional headers of a write, as sent."""

    if_match: str | None = None
    if_none_match: str | None = None

    def precondition(self, *, body_etag: str | None = None) -> Precondition:
        """Return the precondition of a write; a body's ``etag`` counts as one more If-Match.

        Raises:
            InvalidRequestError: A header is not a list of ETags, or header and body name different ones.
        """
        if_match = _header_etags(self.if_match, "If-Match", weak=False)
        if body_etag is not None:
            own = etag_field(body_etag, pointer="/etag")
            if if_match is not None and if_match != own:
                raise InvalidRequestError("If-Match and the body's etag differ; send one of them", pointer="/etag")
            if_match = own
        pointer = None if body_etag is None else "/etag"
        return Precondition(if_match, _header_etags(self.if_none_match, "If-None-Match", weak=True), pointer)


def _conditions(
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description="Only if the entity's current ETag is one of these; `*`: if anything is set."
            + _REFRESHED_FIRST,
            json_schema_extra={"pattern": formats.ETAGS},
        ),
    ] = None,
    if_none_match: Annotated[
        str | None,
        Header(
            alias="If-None-Match",
            description="Only if the current ETag differs from all of these; `*`: if nothing is set" + _REFRESHED_FIRST,
            json_schema_extra={"pattern": formats.ETAGS},
        ),
    ] = None,
) -> ConditionalHeaders:
    return ConditionalHeaders(if_match, if_none_match)


ConditionalHeadersDep = Annotated[ConditionalHeaders, Depends(_conditions)]


def refuse_conditions(request: Request) -> None:
    """Refuse conditional headers of a request that writes several entities, instead of ignoring them.

    Raises:
        InvalidRequestError: The request has a conditional header.
    """
    for name in ("If-Match", "If-None-Match"):
        if name.lower().encode() in request.scope[REQUEST_CONTEXT].headers:
            raise InvalidRequestError(
                f"{name} is not taken here, where each entry has a precondition of its own; use the entry's `etag` "
                "field",
                pointer=name,
            )


def entry_precondition(etag: str | None, *, pointer: str) -> Precondition:
    """Return the precondition of one of several entries, from its ``etag``.

    Raises:
        InvalidRequestError: The text is not an ETag.
    """
    if etag is None:
        return Precondition()
    return Precondition(if_match=etag_field(etag, pointer=pointer), pointer=pointer)


def etag_field(value: str, *, pointer: str) -> tuple[str, ...]:
    """Return a body's ``etag`` as an If-Match: an ETag with its quotes, or ``*``.

    Raises:
        InvalidRequestError: The text is neither.
    """
    return _etags(value, what="etag", pointer=pointer, weak=False)


def not_modified(given: str | None, etag: str) -> bool:
    """Return True if a read with this If-None-Match may be answered 304 (weak comparison, as in RFC 9110)."""
    if given is None:
        return False
    if given == etag:  # the header of a poller
        return True
    wanted = _etags(given, what="If-None-Match", pointer="If-None-Match", weak=True)
    return ANY in wanted or etag in wanted


def _header_etags(given: str | None, header: str, *, weak: bool) -> tuple[str, ...] | None:
    return None if given is None else _etags(given, what=header, pointer=header, weak=weak)


def _etags(text: str, *, what: str, pointer: str, weak: bool) -> tuple[str, ...]:
    if text.strip() == ANY:
        return (ANY,)
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _ETAG.match(text, position)
        if match is None:
            break
        # A weak ETag never matches strongly. It stays in the list but can't match.
        found.append(match[2] if weak or not match[1] else f"W/{match[2]}")
        position = match.end()
    if not found or position < len(text):
        raise InvalidRequestError(f'{what} is not a list of ETags such as "5f2a...", nor *', pointer=pointer)
    return tuple(found)
