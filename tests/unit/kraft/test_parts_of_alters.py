"""Alters in several requests, whose connection goes between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.kraft import alters
from confplane.kraft.alters import AlterSender
from confplane.kraft.wire import errors
from confplane.services.ports.applying import AlterApplied, AlterRetriable, AlterUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.kraft.wire.connection import KraftConnection
    from confplane.services.ports.applying import AlterOutcome

ENTRIES: Any = [(name, {"key": "value"}) for name in "abcd"]


def made(asked: list[list[str]], connections: int, code: int = 0) -> AlterSender[str, str]:
    """Alters that find so many connections; requests of more than two entities are answered with the code."""
    left = [None] * connections

    async def connect(deadline: float) -> KraftConnection:
        del deadline
        if not left:
            raise errors.UnreachableError("No broker answers")
        left.pop()
        return cast("KraftConnection", None)

    async def ask(
        connection: KraftConnection, entries: Sequence[Any], deadline: float, *, validate_only: bool
    ) -> list[alters.AlterEntryResult | None]:
        del connection, deadline, validate_only
        asked.append([name for name, _ in entries])
        return [alters.AlterEntryResult(code if len(entries) > 2 else 0, None) for _ in entries]

    return AlterSender(ask, connect)


async def test_a_connection_that_goes_between_two_requests_leaves_the_ends_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alters, "MOST_RECORDS", 2)
    asked: list[list[str]] = []
    ends = await made(asked, connections=1).alter(ENTRIES, lambda: 0.0)
    assert asked == [["a", "b"]]
    assert ends == [AlterApplied()] * 2 + [AlterRetriable("No broker answers")] * 2


@pytest.mark.parametrize(
    ("code", "end"),
    [(44, AlterRetriable("No broker answers")), (-1, AlterUnknown("No broker answers"))],
    ids=["refused", "unexpected"],
)
async def test_a_connection_that_goes_between_two_halves_leaves_the_ends_of_the_first(
    code: int, end: AlterOutcome
) -> None:
    asked: list[list[str]] = []
    ends = await made(asked, connections=2, code=code).alter(ENTRIES, lambda: 0.0)
    assert asked == [["a", "b", "c", "d"], ["a", "b"]]
    assert ends == [AlterApplied()] * 2 + [end] * 2


async def test_without_a_connection_nothing_is_sent() -> None:
    asked: list[list[str]] = []
    with pytest.raises(errors.KraftError):
        await made(asked, connections=0).alter(ENTRIES, lambda: 0.0)
    assert asked == []
