"""Records of ``__cluster_metadata`` as messages, and transactions of records (KIP-868)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.kraft.wire.codec import Reader
from confplane.kraft.wire.errors import UnsupportedError, WireError
from confplane.kraft.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from confplane.kraft.wire.batches import Record
    from confplane.kraft.wire.message import Message

_KINDS: Final[dict[int | None, type[Message]]] = {
    kind.API_KEY: kind
    for kind in (
        AbortTransactionRecord,
        BeginTransactionRecord,
        ClientQuotaRecord,
        ConfigRecord,
        EndTransactionRecord,
        FeatureLevelRecord,
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
    """A ClientQuotaRecord, ConfigRecord, TopicRecord, RemoveTopicRecord or FeatureLevelRecord."""


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
