"""The rendered response to a polled read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


class PolledResponse(NamedTuple):
    """The response to a polled read, without the consistency headers."""

    body: bytes
    etag: str
    tag: tuple[bytes, bytes]
    """The ETag as a header."""

    @classmethod
    def of(cls, content: Mapping[str, Any], etag: str) -> Self:
        """Render a content."""
        return cls(orjson.dumps(content), etag, (b"etag", etag.encode()))
