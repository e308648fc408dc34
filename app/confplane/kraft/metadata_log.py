"""The metadata log of a cluster, followed from its active controller: each committed record, with offset and time.

The log is read by a replica without an id, which does not take part in the quorum: Fetch (KIP-595). Only records below
the high watermark are returned. Snapshots of the log are not read: what they replace has to be described.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from confplane.kraft.pool import ConnectionPartition, ConnectionPool
from confplane.kraft.wire import errors
from confplane.kraft.wire.batches import batches
from confplane.kraft.wire.codec import Reader
from confplane.kraft.wire.errors import AnswerError, ProtocolError, UnreachableError, UnsupportedError, WireError
from confplane.kraft.wire.message import SLICE_S
from confplane.kraft.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FetchRequest,
    FetchResponse,
    RemoveTopicRecord,
    TopicRecord,
    fetch,
)
from confplane.kraft.wire.options import Address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from confplane.kraft.wire.batches import Batch, Record
    from confplane.kraft.wire.connection import KraftConnection
    from confplane.kraft.wire.message import Message
    from confplane.kraft.wire.messages.fetch import PartitionData
    from confplane.kraft.wire.options import Options


_KINDS: Final[dict[int | None, type[Message]]] = {
    kind.API_KEY: kind
    for kind in (
        AbortTransactionRecord,
        BeginTransactionRecord,
        ClientQuotaRecord,
        ConfigRecord,
        EndTransactionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )
}
_FRAME: Final = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A committed record of a kind that is followed. Records of other kinds, including credentials, are not read."""

    offset: int
    timestamp: int
    """The controller's time, milliseconds since the epoch."""
    message: Message
    """A ClientQuotaRecord, ConfigRecord, TopicRecord or RemoveTopicRecord."""


def read(record: Record) -> Message | None:
    """Return the message of a record, or None for a kind that is not followed.

    Raises:
        WireError: The record is malformed.
        UnsupportedError: The record is of a kind that is followed, in a version that is unknown.
    """
    if record.value is None:
        raise WireError("MetadataRecord", None, f"the record {record.offset} has no value")
    source = Reader(record.value)
    try:
        frame, kind, version = source.varint(), source.varint(), source.varint()
    except (IndexError, ValueError):
        raise WireError("MetadataRecord", source.at, "the bytes end too early") from None
    if frame != _FRAME:
        raise UnsupportedError(f"The record {record.offset} of the metadata log has the frame {frame}, 1 is known.")
    followed = _KINDS.get(kind)
    if followed is None:
        return None
    if version not in followed.VERSIONS:
        raise UnsupportedError(
            f"The metadata log has {followed.NAME} in version {version}, {followed.VERSIONS[-1]} is the newest known."
            " The cluster is newer than this service: follow it by describes, without `controllers`, or upgrade."
        )
    return followed.decode(record.value, version, source.at)


class RecordTransactions:
    """Committed records in their order, with the records of a transaction held back until its end."""

    def __init__(self) -> None:
        self._begin: int | None = None
        self._held: list[LogRecord] = []

    @property
    def begin(self) -> int | None:
        """The offset of the open transaction's first record, or None if no transaction is open."""
        return self._begin

    def add(self, record: Record) -> list[LogRecord]:
        """Add the next record, and return the records that now take effect.

        The list is empty, or has the record itself or a whole transaction.
        """
        message = read(record)
        match message:
            case None:
                return []
            case BeginTransactionRecord():
                self._begin, self._held = record.offset, []
                return []
            case EndTransactionRecord():
                return self._close()
            case AbortTransactionRecord():
                self._close()
                return []
        made = LogRecord(record.offset, record.timestamp, message)
        if self._begin is None:
            return [made]
        self._held.append(made)
        return []

    def _close(self) -> list[LogRecord]:
        held, self._begin, self._held = self._held, None, []
        return held


METADATA_TOPIC_ID: Final = UUID(int=1)
_MOST_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 500
_CALL_S: Final = 20.0
_SEARCH_S: Final = 60.0
"""The time in which an active controller must be found."""
_SEARCH_PAUSE_S: Final = 0.1
_UNCOMMITTED_S: Final = 0.005
"""The pause if all fetched records are still uncommitted."""
_ELSEWHERE: Final = frozenset({errors.NOT_LEADER_OR_FOLLOWER, errors.FENCED_LEADER_EPOCH, errors.UNKNOWN_LEADER_EPOCH})


_P = TypeVar("_P")


@dataclass(frozen=True, slots=True)
class LogPart:
    """Committed records, in order."""

    records: tuple[LogRecord, ...]
    after: int
    """The offset after which to continue: every record up to it is in this part or an earlier one, or of a kind that is
    not followed. Records of an open transaction come after it."""
    reset: bool = False
    """True if a snapshot replaced the log up to ``after``, so that its single records are not available."""


class MetadataLog:
    """The metadata log of one cluster.

    Args:
        controllers: Addresses of controllers; the other controllers, and the active one, are discovered through them.
        options: TLS, login, limits.
        cluster_id: The id that each node must report. None means the first node's.
    """

    def __init__(self, controllers: Sequence[Address], options: Options, *, cluster_id: str | None = None) -> None:
        self._pool = ConnectionPool(controllers, options, cluster_id=cluster_id, controllers=True)
        self._epoch = 0
        self._high_watermark = 0

    async def close(self) -> None:
        """Close the connections. A running iteration fails."""
        await self._pool.close()

    async def follow(self, after: int) -> AsyncGenerator[LogPart, None]:
        """Follow the log after an offset, without an end; -1 begins with the first record.

        Changes of the active controller are followed. A failure ends the iteration; call again with the last ``after``.
        After an offset within a transaction, the remaining records of the transaction are returned as they arrive.

        Raises:
            RightsError: The right CLUSTER_ACTION on the CLUSTER is missing.
            UnreachableError: No active controller is found within a minute.
            UnsupportedError: The log has records of a newer release.
            Others of :mod:`confplane.kraft.wire.errors`.
        """
        place = _LogPosition(after + 1)
        while True:
            connection, partition = await self._fetch(place)
            self._high_watermark = partition.high_watermark
            end, epoch = partition.snapshot_id.end_offset, partition.snapshot_id.epoch
            if end == place.position > 0 and place.epoch != epoch:
                place.epoch = epoch  # the snapshot ends exactly here: no part is missing
            elif end >= 0:
                if end <= place.position:
                    raise ProtocolError(f"{connection.address} has a snapshot up to {end}, which is read already.")
                place = _LogPosition(end, epoch)
                yield LogPart((), end - 1, reset=True)
            elif (found := await place.advance(partition)) is not None:
                yield found

    # -- the active controller

    async def _fetch(self, place: _LogPosition) -> tuple[KraftConnection, PartitionData]:
        """Fetch from the active controller. If the controller in use is not active, find the active one."""
        until = time.monotonic() + _SEARCH_S
        while True:
            try:
                connection = await self._pool.any(time.monotonic() + _CALL_S, ConnectionPartition.LONG)
                request = self._request(place.position, place.epoch)
                answer = await connection.call(request, FetchResponse, time.monotonic() + _CALL_S)
                errors.check("Fetch of the metadata log", answer.error_code)
                partition = _only([each for topic in answer.responses for each in topic.partitions], connection)
                if partition.error_code in _ELSEWHERE:
                    self._switch_controller(partition, answer)
                errors.check("Fetch of the metadata log", partition.error_code)
            except UnreachableError:
                if time.monotonic() >= until:
                    raise
            except AnswerError as error:
                if not error.passing or time.monotonic() >= until:
                    raise
            else:
                return connection, partition
            await asyncio.sleep(_SEARCH_PAUSE_S)

    def _request(self, position: int, epoch: int | None) -> FetchRequest:
        partition = fetch.FetchPartition(
            partition=0,
            current_leader_epoch=self._epoch,
            fetch_offset=position,
            # For a committed offset any epoch up to the newest is valid: the log has the offset in all of them.
            last_fetched_epoch=(self._epoch if epoch is None else epoch) if position > 0 else 0,
            partition_max_bytes=_MOST_BYTES,
            high_watermark=self._high_watermark,
        )
        return FetchRequest(
            cluster_id=self._pool.cluster_id,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_MOST_BYTES,
            topics=(fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        )

    def _switch_controller(self, partition: PartitionData, answer: FetchResponse) -> None:
        """Switch to the active controller that a response names, or to any controller if it names none."""
        leader = partition.current_leader
        self._epoch = max(self._epoch, leader.leader_epoch)
        named = [Address(each.host, each.port) for each in answer.node_endpoints if each.node_id == leader.leader_id]
        self._pool.prefer(named[0] if named else None)


class _LogPosition:
    """A position in the log, the epoch of the previous record, and the open transaction.

    Args:
        position: The offset of the next record.
        epoch: The leader's epoch of the previous record, or None if it is unknown.
    """

    def __init__(self, position: int, epoch: int | None = None) -> None:
        self.position = position
        self.epoch = epoch
        self._transactions = RecordTransactions()

    async def advance(self, partition: PartitionData) -> LogPart | None:
        """Process the committed records of a response. Return None if there are none."""
        if partition.diverging_epoch.end_offset >= 0:
            raise ProtocolError(
                f"The metadata log ends at {partition.diverging_epoch.end_offset}, before the offset {self.position}."
                " Were the controllers formatted again? If so, import the cluster again."
            )
        records: list[LogRecord] = []
        before = self.position
        for batch in await batches(partition.records or b""):
            if batch.last_offset >= partition.high_watermark:
                break  # not committed yet
            if batch.last_offset >= self.position:
                records += await _effective_records(batch, self.position, self._transactions)
                self.position, self.epoch = batch.last_offset + 1, batch.leader_epoch
        if self.position > before:
            begin = self._transactions.begin
            after = (self.position if begin is None else begin) - 1
            return LogPart(tuple(records), after)
        if partition.records:
            await asyncio.sleep(_UNCOMMITTED_S)
        return None


def _only(partitions: Sequence[_P], connection: KraftConnection) -> _P:
    if len(partitions) != 1:
        raise ProtocolError(f"{connection.address} answers for {len(partitions)} partitions, one was asked for.")
    return partitions[0]


async def _effective_records(batch: Batch, position: int, transactions: RecordTransactions) -> list[LogRecord]:
    """Return the records of a batch that take effect, starting at a position."""
    if batch.control:
        return []
    made: list[LogRecord] = []
    until = time.perf_counter() + SLICE_S
    for record in batch.records():
        if record.offset >= position:
            made += transactions.add(record)
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    return made
