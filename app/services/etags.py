"""Strong ETags of what an entity declares in one facet, and the preconditions that use them (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain.errors import PreconditionFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.domain.facets import JsonValue

ANY = "*"


def etag_of(declared: Mapping[str, JsonValue]) -> str | None:
    """Return the ETag of a default view's content, quotes included; None when nothing is declared.

    It depends on the content alone, so that equal content has an equal ETag on every replica and after every rewrite.
    """
    return digest(declared) if declared else None


def digest(content: Mapping[str, JsonValue]) -> str:
    """Return an ETag of some content, quotes included; the order of keys counts."""
    text = "\n".join([f"{key}={value!r}" for key, value in content.items()])
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a request demands of the current state. Both halves must hold; None demands nothing."""

    if_match: tuple[str, ...] | None = None
    """One of these must be the current ETag; ``*`` is any that exists."""
    if_none_match: tuple[str, ...] | None = None
    """None of these may be the current ETag; ``*`` demands that nothing is there."""
    pointer: str | None = None
    """Where ``if_match`` was given; None: in the header."""

    @property
    def demands(self) -> bool:
        """Whether anything is demanded at all."""
        return self.if_match is not None or self.if_none_match is not None

    def check(self, etag: str | None) -> None:
        """Hold the precondition against the current ETag (None: nothing is declared).

        Raises:
            PreconditionFailedError: With the current ETag.
        """
        if self.if_match is not None and (etag is None or not ({ANY, etag} & set(self.if_match))):
            raise PreconditionFailedError(
                f"The entity's current ETag is {etag}, which is not what If-Match names; read it and try again"
                if etag
                else "The entity has nothing set in this collection, so no If-Match holds",
                etag=etag,
                pointer=self.pointer or "If-Match",
            )
        if self.if_none_match is not None and etag is not None and ({ANY, etag} & set(self.if_none_match)):
            raise PreconditionFailedError(
                f"The entity exists with ETag {etag}, which If-None-Match excludes", etag=etag, pointer="If-None-Match"
            )
