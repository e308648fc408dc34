"""Strong ETags of an entity's declared content in one facet, and their preconditions (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from confplane.domain.errors import PreconditionFailedError
from confplane.domain.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.facets import JsonValue

ANY = "*"


def etag_of(declared: Mapping[str, JsonValue]) -> str | None:
    """Return the ETag of a default view's content, quotes included, or None if nothing is declared.

    The ETag depends on the content alone, so equal content has an equal ETag on every replica and after every rewrite.
    """
    return digest(declared) if declared else None


def digest(content: Mapping[str, JsonValue]) -> str:
    """Return an ETag of some content, quotes included; the order of keys counts."""
    text = "\n".join([f"{key}={value!r}" for key, value in content.items()])
    return f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


@fast_dataclass(frozen=True, slots=True)
class Precondition:
    """The demands of a request on the current state. Both halves must hold; None demands nothing."""

    if_match: tuple[str, ...] | None = None
    """ETags, one of which must be current; ``*`` is any existing ETag."""
    if_none_match: tuple[str, ...] | None = None
    """ETags that must not be current; ``*`` demands that nothing is declared."""
    pointer: str | None = None
    """The JSON pointer of ``if_match`` in the body; None: it is a header."""

    @property
    def demands(self) -> bool:
        """True if either half demands something."""
        return self.if_match is not None or self.if_none_match is not None

    def check(self, etag: str | None) -> None:
        """Compare the precondition with the current ETag (None: nothing is declared).

        Raises:
            PreconditionFailedError: The precondition does not hold; the error has the current ETag.
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
