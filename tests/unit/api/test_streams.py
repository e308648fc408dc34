"""Responses with many entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confplane.api.rendering import WHOLE
from confplane.api.routing.bounded import entries_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_no_entry_is_older_than_the_revision_of_the_response() -> None:
    """The mirror moves on while entries are read: the response has the revision of the first moment."""
    revision = 7
    store = SimpleNamespace(freshness=lambda: (revision, None), restored=False, applied_revision=lambda: None)
    call: Any = SimpleNamespace(cluster=SimpleNamespace(store=store), throttle_ms=lambda _: 0)

    async def parts() -> AsyncIterator[list[bytes]]:
        nonlocal revision
        yield [b'{"read":"at 7"}']
        revision = 9
        yield [b'{"read":"at 9"}']

    response = await entries_response(call, WHOLE, parts(), [])
    assert response.headers["confplane-revision"] == "7"
    assert b"at 9" in response.body
