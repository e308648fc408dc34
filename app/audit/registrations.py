"""Registrations of client software (KIP-649): append-only in Postgres, deduplicated and answered from memory.

A registration gets a row when it is first seen and, while it is still seen, one more a day: the rows show when it was
first and last seen. A clearing is a row too: it hides the rows before it, and registrations seen again count anew.

Two background tasks connect memory and Postgres. One writes new registrations, about once a second. The other loads the
current registrations at the start, and then reads the rows of all replicas, by id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from app.audit import registration_statements as sql
from app.audit.group_commit import GroupWriter, Lane
from app.audit.registration_view import RegistrationView, Software
from app.domain.access.ranges import EVERYTHING, LAST, Ranges
from app.domain.errors import InvalidRequestError, UnavailableError
from app.domain.texts import storable
from app.services.metrics import Sample
from app.services.ports.registrations import Registration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.audit.database import Database

_log: Final = logging.getLogger(__name__)

_MAX_PENDING: Final = 100_000
_MAX_REGISTRATIONS: Final = 2_000_000
_ROWS_PER_INSERT: Final = 1_000
_ROWS_PER_READ: Final = 1_000
_ENTITIES_PER_READ: Final = 500
"""Entities read at a time, few enough that the work does not delay requests."""
_RANGES_PER_READ: Final = 1_000
"""Ranges of visible entities that one statement looks into."""
_MAX_WINDOWS: Final = 10
"""Windows of entities read for one page, at most: where nearly all was cleared, a page is short and yet has a
cursor."""
_LOAD_PATIENCE_S: Final = 5.0
_CLOSE_PATIENCE_S: Final = 3.0
_COMPLAINT_INTERVAL_S: Final = 60.0
_SECONDS_PER_DAY: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


_Key = tuple[Any, ...]
"""Entity id, software name, version, supported configs: the order of searches. Or the entity id alone."""


class _Pending(NamedTuple):
    cluster: str
    entity_id: str
    software: Software
    seen_at_s: float

    def as_row(self) -> bytes | None:
        try:
            return orjson.dumps(
                {
                    "cluster": self.cluster,
                    "entity_id": self.entity_id,
                    "software_name": self.software.name,
                    "software_version": self.software.version,
                    "supported_configs": self.software.supported_configs,
                    "seen_at_s": self.seen_at_s,
                }
            )
        except orjson.JSONEncodeError:
            _log.exception("A registration holds what is not a text; it is dropped")
            return None


class PostgresRegistrationLog:
    """Implements :class:`app.services.ports.registrations.RegistrationLog`.

    Args:
        database: The database.
        write_interval_s: Pause between writes.
        read_interval_s: Pause between reads of other replicas' rows.
        max_pending: Most registrations that wait to be written; further ones are dropped, and taken when seen again.
        max_registrations: Most that are held in memory, some 250 bytes each; further ones are dropped.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        write_interval_s: float = 1.0,
        read_interval_s: float = 2.0,
        max_pending: int = _MAX_PENDING,
        max_registrations: int = _MAX_REGISTRATIONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._writer = GroupWriter(database, sql.INSERT_SEEN, lane=Lane(database))
        self._write_interval_s = write_interval_s
        self._read_interval_s = read_interval_s
        self._max_pending = max_pending
        self._clock = clock
        self._view = RegistrationView(max_registrations)
        self._pending: deque[_Pending] = deque()
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._loaded = asyncio.Event()
        self._read_up_to = 0
        self._dropped = 0
        self._complained_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the background tasks; Postgres may be down."""
        self._tasks = [
            asyncio.create_task(self._repeat(self._write_pending, self._write_interval_s), name="write registrations"),
            asyncio.create_task(self._repeat(self._refresh, self._read_interval_s), name="read registrations"),
        ]

    async def close(self) -> None:
        """Stop, and write the pending registrations, for a few seconds at most."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_CLOSE_PATIENCE_S):
                await self._write_pending()
        except (UnavailableError, TimeoutError):
            _log.warning("%d registrations were not written; clients will send them again", len(self._pending))
        await self._writer.close()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._writer.metrics("registrations")
        yield Sample("registrations_held", len(self._view))
        yield Sample("registrations_pending", len(self._pending))
        yield Sample("registrations_dropped", self._dropped)

    @property
    def dropped(self) -> int:
        """The number of registrations dropped since the start, for want of room."""
        return self._dropped

    @property
    def loaded(self) -> bool:
        """True once the registrations of before the start are in memory."""
        return self._loaded.is_set()

    def record(self, registration: Registration) -> None:
        """Take a registration: see the port."""
        software = Software(registration.software_name, registration.software_version, registration.supported_configs)
        now = self._clock()
        day = int(now // _SECONDS_PER_DAY)
        cluster, entity_id = registration.cluster, registration.entity_id
        known = self._view.last_seen(cluster, entity_id, software)
        if known is not None and known >= day:
            return
        if len(self._pending) >= self._max_pending or not self._view.add(cluster, entity_id, software, day):
            self._drop()
        else:
            self._pending.append(_Pending(cluster, entity_id, software, now))

    def registered(self, cluster: str, *, within: Ranges | None = None) -> Collection[str]:
        """Return the ids of the entities with registrations: see the port."""
        return self._view.entities(cluster, within)

    def compatibility(self, cluster: str, entity_id: str) -> list[Registration]:
        """Return the known registrations of an entity: see the port."""
        return self._view.of_entity(cluster, entity_id)

    async def search(
        self,
        cluster: str,
        *,
        entity_id: str | None,
        page_size: int,
        after: str | None,
        within: Ranges | None = None,
    ) -> tuple[list[tuple[Registration, datetime, datetime]], str | None]:
        """Return a page: see the port. The latest registrations may still be missing.

        Raises:
            InvalidRequestError: ``after`` is not a cursor of this search.
        """
        behind = _parse_cursor(after)
        if entity_id is not None:
            if not storable(entity_id):
                return [], None
            one = Ranges((entity_id,), (_successor(entity_id),))
            within = one if within is None else one & within
        found: list[Row[Any]] = []
        start = behind[0]
        for _ in range(_MAX_WINDOWS):
            parts = list(islice((EVERYTHING if within is None else within).between(start, LAST), _RANGES_PER_READ))
            if not parts:
                return _page(found, page_size, None)
            rows = await self._select(
                sql.CURRENT_WITHIN,
                {
                    "cluster": cluster,
                    "starts": [low for low, _ in parts],
                    "ends": [high for _, high in parts],
                    "entities": page_size + 1,
                },
            )
            found += _behind(rows, behind)
            if len(found) > page_size:
                return _page(found, page_size, None)
            is_full = bool(rows) and rows[-1].number > page_size
            start = _successor(rows[-1].entity_id) if is_full else parts[-1][1]
        return _page(found, page_size, (start,))

    async def clear(self, cluster: str, *, entity_id: str | None, principal: str, request_id: str) -> int:
        """Append a clearing: see the port."""
        try:
            async with asyncio.timeout(_LOAD_PATIENCE_S):
                await self._loaded.wait()
        except TimeoutError:
            raise UnavailableError("The registrations are still being loaded") from None
        # Pending registrations were seen before the clearing, so their rows must be before it.
        await self._write_pending()
        parameters = {
            "cluster": cluster,
            "entity_id": entity_id,
            "principal": principal,
            "request_id": request_id,
        }

        async def append(connection: AsyncConnection) -> int:
            # May run twice when a reply is lost: a second clearing hides nothing more.
            return int((await connection.execute(sql.INSERT_CLEARED, parameters)).scalar_one())

        async with self._reading:
            clearing = await self._database.read(append)
            try:
                return await self._read_new(count_hidden_by=clearing)
            except UnavailableError:
                # The clearing stands. The next refresh applies it once more, in its place among the others.
                return self._view.clear(cluster, entity_id)

    # -- memory to Postgres

    async def _write_pending(self) -> None:
        async with self._writing:
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(_ROWS_PER_INSERT, len(self._pending)))]
                rows = [row for row in map(_Pending.as_row, batch) if row is not None]
                if not rows:
                    continue
                try:
                    await self._writer.write(rows)
                except (UnavailableError, asyncio.CancelledError):
                    self._pending.extendleft(reversed(batch))
                    raise
                except Exception:  # noqa: BLE001 - a row that can't be stored must not hold back the others
                    _log.exception("Postgres refused a registration; it is dropped")

    def _drop(self) -> None:
        self._dropped += 1
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAINT_INTERVAL_S:
            self._complained_at = now
            _log.warning(
                "Registrations are dropped (%d so far): %d wait for Postgres, %d are held",
                *(self._dropped, len(self._pending), len(self._view)),
            )

    # -- Postgres to memory

    async def _refresh(self) -> None:
        async with self._reading:
            if not self._loaded.is_set():
                await self._load()
                self._loaded.set()
            await self._read_new()

    async def _load(self) -> None:
        newest: int = (await self._select(sql.NEWEST_ID, {}))[0][0]
        cluster = entity_id = ""
        while True:
            # These may include rows newer than `newest`; taking a registration twice does no harm.
            rows = await self._select(
                sql.CURRENT_OF_ALL, {"cluster": cluster, "entity_id": entity_id, "entities": _ENTITIES_PER_READ}
            )
            for row in rows:
                if row.software_name is not None:
                    self._take(row, row.last_seen_on)
            if not rows or rows[-1].number < _ENTITIES_PER_READ:
                break
            cluster, entity_id = rows[-1].cluster, _successor(rows[-1].entity_id)
        self._read_up_to = newest
        _log.info("%d registrations were loaded", len(self._view))

    async def _read_new(self, *, count_hidden_by: int | None = None) -> int:
        """Apply the events behind the last one read, and return the number that one clearing hid."""
        hidden = 0
        while True:
            rows = await self._select(sql.EVENTS_AFTER, {"after": self._read_up_to, "count": _ROWS_PER_READ})
            for row in rows:
                if row.event == "seen":
                    self._take(row, row.seen_on)
                else:
                    count = self._view.clear(row.cluster, row.entity_id)
                    hidden += count if row.id == count_hidden_by else 0
                self._read_up_to = row.id
            if len(rows) < _ROWS_PER_READ:
                return hidden

    def _take(self, row: Row[Any], day: date) -> None:
        software = Software(row.software_name, row.software_version, tuple(row.supported_configs))
        if not self._view.add(row.cluster, row.entity_id, software, day.toordinal() - _EPOCH_ORDINAL):
            self._drop()

    # -- both

    async def _select(self, statement: Any, parameters: dict[str, Any]) -> Sequence[Row[Any]]:
        async def fetch(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(statement, parameters)).all()

        return await self._database.read(fetch)

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause_s: float) -> None:
        away = False
        while True:
            try:
                await work()
                away = False
            except UnavailableError as error:
                if not away:
                    _log.warning("%s; registrations wait", error.detail)
                away = True
            except Exception:  # noqa: BLE001 - a background task that dies would do so unseen
                _log.exception("Registrations could not be exchanged with Postgres; trying again")
            await asyncio.sleep(pause_s)


def _registration(row: Row[Any]) -> Registration:
    return Registration(
        row.cluster, row.entity_id, row.software_name, row.software_version, tuple(row.supported_configs)
    )


def _key(row: Row[Any]) -> _Key:
    return (row.entity_id, row.software_name, row.software_version, row.supported_configs)


def _behind(rows: Sequence[Row[Any]], cursor: _Key) -> list[Row[Any]]:
    return [row for row in rows if row.software_name is not None and _key(row) > cursor]


def _page(
    found: Sequence[Row[Any]], page_size: int, end: _Key | None
) -> tuple[list[tuple[Registration, datetime, datetime]], str | None]:
    page = [(_registration(row), row.first_seen, row.last_seen) for row in found[:page_size]]
    if len(found) > page_size:
        end = _key(found[page_size - 1])
    return page, None if end is None else orjson.dumps(end).decode()


def _successor(text: str) -> str:
    """Return the first text behind this one in code-point order (NUL can't be in one)."""
    return text + "\1"


def _parse_cursor(after: str | None) -> _Key:
    if after is None:
        return ("",)
    try:
        # orjson refuses texts that Postgres can't hold, except those with NUL.
        values = None if "\\u0000" in after else orjson.loads(after)
    except orjson.JSONDecodeError:
        values = None
    match values:
        case [str(entity_id)]:
            return (entity_id,)
        case [str(entity_id), str(name), str(version), [*configs]] if all(isinstance(one, str) for one in configs):
            return (entity_id, name, version, configs)
        case _:
            raise InvalidRequestError("The page token is not one of this search")
