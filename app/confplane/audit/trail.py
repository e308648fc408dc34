"""The trail in Postgres: intents, and their outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
import psycopg
from sqlalchemy import Uuid, any_, bindparam, select
from sqlalchemy.dialects.postgresql import ARRAY
from typing_extensions import override

from confplane.audit import checks, history, trail_queries
from confplane.audit.group_commit import GroupCommitOptions, GroupWriter, RowRefusedError, WritePartition
from confplane.audit.statements import INSERT_CLAIMED_INTENTS, INSERT_INTENTS, INSERT_OUTCOMES
from confplane.audit.tables import outcomes as outcomes_table
from confplane.domain.errors import IdempotencyKeyBusyError, InvalidRequestError, UnavailableError, WriteOutcome
from confplane.domain.texts import LONGEST_INDEXED, LONGEST_PRINCIPAL
from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.trail import FEW, AuditLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from sqlalchemy import TextClause

    from confplane.audit.database import Database
    from confplane.domain.access.ranges import NameRanges
    from confplane.services.ports.trail import AuditQuery, AuditRecord, Claim, HistoryPosition, Intent, Outcome

_log: Final = logging.getLogger(__name__)

_RESEND_ROWS: Final = 256
_RESEND_PAUSE_S: Final = 0.5
_CLOSE_PATIENCE_S: Final = 3.0

_STORED_OUTCOMES: Final = select(*outcomes_table.c["change_id", "attempt", "committed", "revision"]).where(
    outcomes_table.c.change_id == any_(bindparam("ids", type_=ARRAY(Uuid)))
)


class _Writers:
    """Two writers of one kind of rows, so that a call of many rows never delays a call of a few."""

    def __init__(
        self,
        database: Database,
        statement: TextClause,
        kind: str,
        bulks: WritePartition,
        *,
        on_repeats: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        self._kind = kind
        self.partition = WritePartition(database, bulks.options)
        self._few = GroupWriter(database, statement, partition=self.partition, on_repeats=on_repeats)
        self._many = GroupWriter(database, statement, partition=bulks, on_repeats=on_repeats)

    async def write(self, rows: Sequence[bytes]) -> None:
        """Return once the rows are written: see :meth:`GroupWriter.write`."""
        await (self._many if len(rows) > FEW else self._few).write(rows)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._few.metrics(self._kind)
        yield from self._many.metrics(f"bulk_{self._kind}")

    async def close(self) -> None:
        """Wait for the batches under way."""
        await self._few.close()
        await self._many.close()


class PostgresAuditLog(AuditLog):
    """The trail, in Postgres.

    An outcome that can't be written to Postgres now is kept in memory and sent again until it is written. If the
    process ends before that, the intent stays open, and settling it by its marker in ZooKeeper gives the same outcome.

    Args:
        database: The database.
        options: Intervals of the writes.
        most_kept: The greatest number of outcomes in memory; more of them drop the oldest.
    """

    def __init__(
        self,
        database: Database,
        *,
        options: GroupCommitOptions = GroupCommitOptions(),  # noqa: B008 - nothing alters it
        most_kept: int = 100_000,
    ) -> None:
        self._database = database
        self._most_kept = most_kept
        # One partition for the bulks of all kinds, so that they take one connection of the pool.
        bulks = WritePartition(database, options)
        self._intents = _Writers(database, INSERT_INTENTS, "intents", bulks)
        self._claimed = _Writers(database, INSERT_CLAIMED_INTENTS, "claimed_intents", bulks)
        self._outcomes = _Writers(database, INSERT_OUTCOMES, "outcomes", bulks, on_repeats=self._compare_later)
        self._kept: deque[bytes] = deque()
        self._resending: asyncio.Task[None] | None = None
        self._comparisons: set[asyncio.Task[None]] = set()
        self.differing = 0
        """Number of outcomes that differed from the stored one. Each is a fault of this service or of its stores."""

    @property
    def claims(self) -> WritePartition:
        """The write partition of intents with Idempotency-Keys."""
        return self._claimed.partition

    async def close(self) -> None:
        """Send the kept outcomes, for a few seconds at most."""
        if self._resending is not None:
            await asyncio.wait({self._resending}, timeout=_CLOSE_PATIENCE_S)
            self._resending.cancel()
            await asyncio.gather(self._resending, return_exceptions=True)
        if self._kept:
            _log.error(
                "%d outcomes were not written to Postgres; their intents stay open until settled", len(self._kept)
            )
        await self._intents.close()
        await self._claimed.close()
        await self._outcomes.close()
        await asyncio.gather(*self._comparisons, return_exceptions=True)

    @override
    async def intend(self, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        if not intents:
            return
        try:
            if claims:
                await self._claimed.write([_with_claim(*both) for both in zip(intents, claims, strict=True)])
            else:
                await self._intents.write([orjson.dumps(intent) for intent in intents])
        except RowRefusedError:
            raise IdempotencyKeyBusyError(
                "Another request with this Idempotency-Key is under way; nothing was changed by this one",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            ) from None
        except psycopg.errors.ProgramLimitExceeded:
            # An entity that was created outside Confplane, or a principal of an earlier release.
            raise InvalidRequestError(
                "The change can't be recorded, because Postgres can't index one of its names: an entity id takes"
                f" {LONGEST_INDEXED} bytes at most, a principal {LONGEST_PRINCIPAL}. Nothing was changed. Alter this"
                " entity with Kafka's tools, or use a credential with a shorter principal",
                outcome=WriteOutcome.NOT_APPLIED,
            ) from None
        except UnavailableError as error:
            raise UnavailableError(
                f"{error.detail}; nothing was changed",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=error.retry_after_s or 1,
            ) from error

    @override
    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        if not outcomes:
            return True
        rows = [orjson.dumps(outcome) for outcome in outcomes]
        try:
            await self._outcomes.write(rows)
        except UnavailableError as error:
            self._keep(rows, error)
            return False
        except Exception:  # noqa: BLE001 - the change has ended: its caller must get its outcome, not this error
            _log.exception("Postgres refused an outcome; its intent stays open until settled")
            return False
        return True

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield from self._intents.metrics()
        yield from self._claimed.metrics()
        yield from self._outcomes.metrics()
        yield Sample("outcomes_kept", self.kept)
        yield Sample("outcomes_differing", self.differing)

    @property
    def kept(self) -> int:
        """The number of outcomes kept in memory until they are written to Postgres."""
        return len(self._kept)

    @override
    async def search(self, query: AuditQuery) -> tuple[list[AuditRecord], UUID | None]:
        return await self._database.read(lambda connection: trail_queries.search(connection, query))

    @override
    async def count(self, query: AuditQuery, most: int) -> int:
        count = 0
        cursor = query.before
        while True:
            page = replace(query, before=cursor)
            found, cursor = await self._database.read(partial(trail_queries.count, query=page, most=most - count))
            count += found
            if cursor is None or count > most:
                return count

    @override
    async def history(
        self, cluster: str, entity_id: str, *, page_size: int, after: HistoryPosition | None
    ) -> tuple[list[AuditRecord], HistoryPosition | None]:
        return await self._database.read(
            lambda connection: history.page(connection, cluster, entity_id, page_size=page_size, after=after)
        )

    @override
    async def get(self, cluster: str, change_id: UUID, *, within: NameRanges | None = None) -> AuditRecord | None:
        return await self._database.read(lambda connection: trail_queries.get(connection, cluster, change_id, within))

    @override
    async def altered(self, cluster: str, author: str) -> list[tuple[str, str]]:
        return await self._database.read(lambda connection: trail_queries.altered(connection, cluster, author))

    @override
    async def check(self) -> list[OperatorWarning]:
        warnings = await self._database.read(checks.check)
        if self.differing:
            warnings.append(
                OperatorWarning(
                    f"{self.differing} changes were given a second outcome that differs from the one that stands; the"
                    " log names them. Config and trail may disagree: look at what was restored or copied."
                )
            )
        return warnings

    # -- outcomes that could not be written at once

    def _keep(self, rows: Sequence[bytes], error: UnavailableError) -> None:
        if not self._kept:
            _log.warning("%s; outcomes are kept and sent again", error.detail)
        self._kept.extend(rows)
        dropped = len(self._kept) - self._most_kept
        if dropped > 0:
            for _ in range(dropped):
                self._kept.popleft()
            _log.error("%d kept outcomes were dropped; their intents stay open until settled", dropped)
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend(), name="resend outcomes")

    async def _resend(self) -> None:
        sent = 0
        while self._kept:
            await asyncio.sleep(_RESEND_PAUSE_S)
            while self._kept:
                rows = [self._kept.popleft() for _ in range(min(_RESEND_ROWS, len(self._kept)))]
                try:
                    await self._outcomes.write(rows)
                except UnavailableError:
                    self._kept.extendleft(reversed(rows))
                    break
                except asyncio.CancelledError:
                    self._kept.extendleft(reversed(rows))
                    raise
                except Exception:  # noqa: BLE001 - after any error the other outcomes must still be sent
                    _log.exception("Postgres refused a kept outcome; its intent stays open until settled")
                sent += len(rows)
        _log.info("%d kept outcomes were written", sent)

    # -- outcomes that existed already

    def _compare_later(self, rows: Sequence[bytes]) -> None:
        task = asyncio.create_task(self._compare(rows), name="compare outcomes")
        self._comparisons.add(task)
        task.add_done_callback(self._comparisons.discard)

    async def _compare(self, rows: Sequence[bytes]) -> None:
        """Log outcomes that differ from the stored one. An equal outcome was sent twice, after a lost reply."""
        given = {row["change_id"]: row for row in map(orjson.loads, rows)}
        try:
            stored = await self._database.rows(_STORED_OUTCOMES, ids=list(given))
        except UnavailableError as error:
            _log.warning("%s; %d repeated outcomes were not compared", error.detail, len(given))
            return
        for change_id, attempt, committed, revision in map(tuple, stored):
            other = given[str(change_id)]
            # For a change that was not applied, the first writer has decided the last attempt and the reason.
            same_attempt = not committed or other["attempt"] == attempt
            if (other["committed"], other["revision"]) != (committed, revision) or not same_attempt:
                self.differing += 1
                _log.error(
                    "Change %s has a second, different outcome: attempt %s committed=%s revision=%s stands, "
                    "attempt %s committed=%s revision=%s was given",
                    *(change_id, attempt, committed, revision),
                    *(other["attempt"], other["committed"], other["revision"]),
                )


def _with_claim(intent: Intent, claim: Claim) -> bytes:
    """Return one JSON object with the members of both."""
    return orjson.dumps(intent)[:-1] + b"," + orjson.dumps(claim)[1:]
