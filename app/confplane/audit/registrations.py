"""Registrations of client software (KIP-649): append-only in Postgres, deduplicated and answered from memory.

A registration gets a row when it is first seen, and one more for each day on which it is still seen. So the rows show
when it was first and last seen. A clearing is a row too: it hides the rows before it, and registrations that are seen
again count again. Rows of a month ago are deleted, except for the first and the last of each registration.

A :class:`~confplane.audit.write_behind_buffer.WriteBehindBuffer` connects memory and Postgres. It writes new
registrations about once a second, loads the current ones at the start, and then reads the rows of all replicas, by id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson
from typing_extensions import override

from confplane.audit import registration_statements as sql
from confplane.audit.registration_view import RegistrationView, SoftwareVersion
from confplane.audit.write_behind_buffer import WriteBehindBuffer, WriteBehindOptions
from confplane.domain.access.ranges import EVERYTHING, LAST, NameRanges
from confplane.domain.errors import InvalidRequestError, UnavailableError
from confplane.domain.texts import LONGEST_INDEXED, storable
from confplane.services.metrics import Sample
from confplane.services.ports.registrations import ClientRegistration, RegistrationLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Row

    from confplane.audit.database import Database
    from confplane.audit.group_commit import WritePartition


_MOST_USERS: Final = 10_000
"""Users whose registrations of the day are counted; beyond it, those that registered least recently are forgotten."""


@dataclass(slots=True)
class _DailyUsage:
    """The registrations that a user added in a day."""

    day: int
    registrations: int = 0
    versions: set[int] = field(default_factory=set)
    """The hashes of the software versions."""
    size: int = 0
    """The bytes of the software versions."""


class RegistrationBudget:
    """Counts the new registrations of users in a process.

    Args:
        registrations: Maximum number of a user's new registrations in a day, over all of its client-ids.
        versions: Maximum number of their different software versions.
        size: Maximum number of bytes of these software versions.
    """

    def __init__(self, *, registrations: int = 50_000, versions: int = 256, size: int = 1024 * 1024) -> None:
        self._registrations = registrations
        self._versions = versions
        self._size = size
        self._users: OrderedDict[tuple[str, str], _DailyUsage] = OrderedDict()

    def take(self, cluster: str, entity_id: str, software: SoftwareVersion, day: int) -> bool:
        """Count a new registration. Return False, without counting it, if the user's budget of the day is used up."""
        user = cluster, entity_id.partition(",")[0]
        usage = self._users.get(user)
        if usage is None or usage.day != day:
            usage = self._users[user] = _DailyUsage(day)
            if len(self._users) > _MOST_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user)
        version = hash(software)
        grown = 0 if version in usage.versions else software.size
        is_full = usage.registrations >= self._registrations or (
            grown and (len(usage.versions) >= self._versions or usage.size + grown > self._size)
        )
        if is_full:
            return False
        usage.registrations += 1
        usage.versions.add(version)
        usage.size += grown
        return True


_log: Final = logging.getLogger(__name__)

_MAX_REGISTRATIONS: Final = 2_000_000
_ROWS_PER_READ: Final = 1_000
_ENTITIES_PER_READ: Final = 500
"""Entities per read, few enough not to delay requests."""
_RANGES_PER_READ: Final = 1_000
"""Ranges of visible entities that one statement reads."""
_MAX_WINDOWS: Final = 10
"""Maximum number of windows of entities that are read for one page. If nearly all registrations were cleared, a page is
short but still has a cursor."""
_LOAD_PATIENCE_S: Final = 5.0
_ROWS_PER_EXPIRY: Final = 1_000
"""Rows that one statement examines, once after each read of new rows."""
_SECONDS_PER_DAY: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


_Seen = tuple[str, str, SoftwareVersion, int]
"""Cluster, entity id, software, day since the epoch: at most one row each."""
_Key = tuple[Any, ...]
"""Entity id, software name, version, supported configs: the order of searches. Or the entity id alone."""


class PostgresRegistrationLog(RegistrationLog):
    """The registrations of clients, in Postgres.

    Args:
        database: The database.
        options: Intervals of writes and of reads. A registration without room is dropped, and added when it is seen
            again.
        max_registrations: Maximum number held in memory, about 250 bytes each; further registrations are dropped.
        budget: The new registrations of each user; those beyond it are dropped.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        options: WriteBehindOptions = WriteBehindOptions(),  # noqa: B008 - nothing alters it
        max_registrations: int = _MAX_REGISTRATIONS,
        budget: RegistrationBudget | None = None,
        clock: Callable[[], float] = time.time,
        ranges_per_read: int = _RANGES_PER_READ,
    ) -> None:
        self._ranges_per_read = ranges_per_read
        self._database = database
        self._buffer: WriteBehindBuffer[_Seen] = WriteBehindBuffer(
            database, sql.INSERT_SEEN, kind="registrations", options=options
        )
        self._clock = clock
        self._view = RegistrationView(max_registrations)
        self._budget = budget or RegistrationBudget()
        self._reading = asyncio.Lock()
        self._loaded = asyncio.Event()
        self._read_up_to = 0
        self._expired_up_to: int | None = 0
        """The id up to which rows were examined; None if all were, on the day below."""
        self._expired_on = 0

    async def start(self) -> None:
        """Start the background tasks; Postgres may be down."""
        self._buffer.start(self._refresh)

    async def close(self) -> None:
        """Stop, and write the pending registrations, as :meth:`WriteBehindBuffer.close` does."""
        await self._buffer.close()

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._buffer.metrics(len(self._view))
        yield Sample("registrations_bytes", self._view.bytes_held)

    @property
    def partition(self) -> WritePartition:
        """The write partition of the background writes, also for other rows that do not block a request."""
        return self._buffer.partition

    @property
    def dropped(self) -> int:
        """The number of registrations dropped since the start because there was no room."""
        return self._buffer.dropped

    @property
    def loaded(self) -> bool:
        """True once the registrations from before the start are in memory."""
        return self._loaded.is_set()

    @override
    def record(self, registration: ClientRegistration) -> None:
        software = SoftwareVersion(
            registration.software_name, registration.software_version, registration.supported_configs
        )
        now = self._clock()
        day = int(now // _SECONDS_PER_DAY)
        cluster, entity_id = registration.cluster, registration.entity_id
        known = self._view.last_seen(cluster, entity_id, software)
        if known is not None and known >= day:
            return
        key = cluster, entity_id, software, day
        if (
            len(entity_id) > LONGEST_INDEXED
            or not self._buffer.has_room(key)
            or (known is None and not self._budget.take(*key))
            or not self._view.add(*key)
        ):
            self._buffer.drop(len(self._view))
        else:
            self._buffer.add(
                key,
                {
                    "cluster": cluster,
                    "entity_id": entity_id,
                    "software_name": software.name,
                    "software_version": software.version,
                    "supported_configs": software.supported_configs,
                    "seen_at_s": now,
                },
            )

    @override
    def registered(self, cluster: str, *, within: NameRanges | None = None) -> Collection[str]:
        return self._view.entities(cluster, within)

    @override
    def compatibility(self, cluster: str, entity_id: str) -> list[ClientRegistration]:
        return self._view.of_entity(cluster, entity_id)

    @override
    async def search(
        self,
        cluster: str,
        *,
        entity_id: str | None,
        page_size: int,
        after: str | None,
        within: NameRanges | None = None,
    ) -> tuple[list[tuple[ClientRegistration, datetime, datetime]], str | None]:
        """Return a page. The latest registrations may still be missing.

        Raises:
            InvalidRequestError: ``after`` is not a cursor of this search.
        """
        behind = _parse_cursor(after)
        if entity_id is not None:
            if not storable(entity_id):
                return [], None
            one = NameRanges((entity_id,), (_successor(entity_id),))
            within = one if within is None else one & within
        found: list[Row[Any]] = []
        start = behind[0]
        for _ in range(_MAX_WINDOWS):
            parts = list(islice((EVERYTHING if within is None else within).between(start, LAST), self._ranges_per_read))
            if not parts:
                return _page(found, page_size, None)
            rows = await self._database.rows(
                sql.CURRENT_WITHIN,
                cluster=cluster,
                starts=[low for low, _ in parts],
                ends=[high for _, high in parts],
                entities=page_size + 1,
            )
            found += _behind(rows, behind)
            if len(found) > page_size:
                return _page(found, page_size, None)
            is_full = bool(rows) and rows[-1].number > page_size
            start = _successor(rows[-1].entity_id) if is_full else parts[-1][1]
        return _page(found, page_size, (start,))

    @override
    async def clear(self, cluster: str, *, entity_id: str | None, principal: str, request_id: str) -> int:
        try:
            async with asyncio.timeout(_LOAD_PATIENCE_S):
                await self._loaded.wait()
        except TimeoutError:
            raise UnavailableError("The registrations are still being loaded") from None
        # Pending registrations were seen before the clearing, so their rows must be before it.
        await self._buffer.flush()
        given = {"cluster": cluster, "entity_id": entity_id, "principal": principal, "request_id": request_id}
        async with self._reading:
            # May run twice if a reply is lost: a second clearing hides nothing more.
            [clearing] = await self._database.scalars(sql.INSERT_CLEARED, **given)
            try:
                return await self._read_new(count_hidden_by=clearing)
            except UnavailableError:
                # The clearing is stored. The next refresh applies it again, in the order of all events.
                return self._view.clear(cluster, entity_id)

    # -- Postgres to memory

    async def _refresh(self) -> None:
        async with self._reading:
            if not self._loaded.is_set():
                await self._load()
                self._loaded.set()
            await self._read_new()
        await self._expire()

    async def _expire(self) -> None:
        """Delete some of the rows that are not needed any more; begin again on each day."""
        today = int(self._clock() // _SECONDS_PER_DAY)
        if self._expired_up_to is None:
            if today == self._expired_on:
                return
            self._expired_up_to = 0
        given = {"after": self._expired_up_to, "count": _ROWS_PER_EXPIRY}
        # May run twice if a reply is lost: the second run finds nothing to delete.
        [self._expired_up_to] = await self._database.scalars(sql.EXPIRE, **given)
        self._expired_on = today

    async def _load(self) -> None:
        [newest] = await self._database.scalars(sql.NEWEST_ID)
        cluster = entity_id = ""
        while True:
            # These may include rows newer than `newest`; adding a registration twice does no harm.
            rows = await self._database.rows(
                sql.CURRENT_OF_ALL, cluster=cluster, entity_id=entity_id, entities=_ENTITIES_PER_READ
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
        """Apply the events after the last one read. Return the number of registrations that one clearing hid."""
        hidden = 0
        while True:
            rows = await self._database.rows(sql.EVENTS_AFTER, after=self._read_up_to, count=_ROWS_PER_READ)
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
        software = SoftwareVersion(row.software_name, row.software_version, tuple(row.supported_configs))
        if not self._view.add(row.cluster, row.entity_id, software, day.toordinal() - _EPOCH_ORDINAL):
            self._buffer.drop(len(self._view))


def _registration(row: Row[Any]) -> ClientRegistration:
    return ClientRegistration(
        row.cluster, row.entity_id, row.software_name, row.software_version, tuple(row.supported_configs)
    )


def _key(row: Row[Any]) -> _Key:
    return (row.entity_id, row.software_name, row.software_version, row.supported_configs)


def _behind(rows: Sequence[Row[Any]], cursor: _Key) -> list[Row[Any]]:
    return [row for row in rows if row.software_name is not None and _key(row) > cursor]


def _page(
    found: Sequence[Row[Any]], page_size: int, end: _Key | None
) -> tuple[list[tuple[ClientRegistration, datetime, datetime]], str | None]:
    page = [(_registration(row), row.first_seen, row.last_seen) for row in found[:page_size]]
    if len(found) > page_size:
        end = _key(found[page_size - 1])
    return page, None if end is None else orjson.dumps(end).decode()


def _successor(text: str) -> str:
    """Return the first text after this one in code-point order (texts can't contain NUL)."""
    return text + "\1"


def _parse_cursor(after: str | None) -> _Key:
    if after is None:
        return ("",)
    try:
        # orjson refuses texts that Postgres can't store, except those with NUL.
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
