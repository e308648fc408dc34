"""The stop of a write-behind buffer, and the wait of a row, on a clock that the writes themselves advance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from sqlalchemy import text

from confplane.audit.write_behind_buffer import WriteBehindBuffer, WriteBehindOptions, close_together

if TYPE_CHECKING:
    from collections.abc import Sequence


class Slow:
    """A writer each of whose statements takes seconds of the event loop's clock."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        self._seconds = seconds
        self._now = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self._now)

    async def write(self, rows: Sequence[bytes]) -> None:
        self._now += self._seconds
        for _ in range(5):  # timers that are due run meanwhile
            await asyncio.sleep(0)
        self.rows += len(rows)

    async def close(self) -> None:
        pass


def made(writer: object, options: WriteBehindOptions = WriteBehindOptions()) -> WriteBehindBuffer[int]:  # noqa: B008 - frozen
    """A buffer whose rows a double of its writer takes."""
    return WriteBehindBuffer(
        cast("Any", None), text("SELECT 1"), kind="rows", options=options, writer=cast("Any", writer)
    )


@pytest.mark.parametrize(
    ("seconds", "rows", "written"),
    [
        pytest.param(2.0, 9_000, 9_000, id="all are written while some are every three seconds"),
        pytest.param(2.0, 50_000, 9_000, id="after twenty seconds the rest is given up"),
        pytest.param(4.0, 9_000, 0, id="without any in three seconds all are given up"),
    ],
)
async def test_a_stop_writes_what_waits_as_long_as_postgres_takes_it(
    seconds: float,
    rows: int,
    written: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Slow(seconds, monkeypatch)
    buffer = made(slow)
    for number in range(rows):
        buffer.add(number, {"number": number})
    await buffer.close()
    assert slow.rows == written
    lost = [f"{rows - written} rows were not written"] if rows > written else []
    assert [record.getMessage() for record in caplog.records] == lost


async def test_a_stop_with_rows_of_several_kinds_gives_up_all_after_twenty_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow(2.0, monkeypatch)
    buffers = [made(slow) for _ in range(2)]
    for buffer in buffers:
        for number in range(50_000):
            buffer.add(number, {"number": number})
    begun = asyncio.get_running_loop().time()
    await close_together(buffers)
    assert 18 <= asyncio.get_running_loop().time() - begun <= 24
    assert 8_000 <= slow.rows <= 12_000


async def test_a_row_waits_for_one_pause_and_one_statement_while_postgres_keeps_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pause_s, statement_s, step_s = 0.0, 1.0, 0.3, 0.01
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    waits: list[float] = []

    class Writer:
        """A writer of a thousand rows in the time in which six hundred come."""

        async def write(self, rows: Sequence[bytes]) -> None:
            await asyncio.sleep(statement_s)
            waits.extend(now - orjson.loads(row)["added"] for row in rows)

        async def close(self) -> None:
            pass

    async def refresh() -> None:
        pass

    buffer = made(Writer(), WriteBehindOptions(pause_s, 600))
    buffer.start(refresh)
    for number in range(2_000):
        now += step_s
        for each in range(20):
            buffer.add(20 * number + each, {"added": now})
        for _ in range(5):  # timers that are due run meanwhile
            await asyncio.sleep(0)
    assert len(waits) > 30_000
    assert max(waits) <= pause_s + statement_s + 5 * step_s
    closing = asyncio.create_task(buffer.close())
    while not closing.done():
        now += step_s
        await asyncio.sleep(0)
    assert len(waits) == 40_000
