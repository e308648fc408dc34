"""The trail: intents before changes, outcomes after them, and searches. Implemented by ``confplane.audit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from confplane.domain.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from confplane.domain.access.ranges import NameRanges
    from confplane.services.operator_warnings import OperatorWarning

FEW: Final = 32
"""The greatest number of rows of one call that travel with the rows of single changes, and so the greatest number of
single changes that share a transaction. More rows are a bulk's, and delay no single change."""


CLIENTS: Final = "clients"
"""The facet of one znode's change in client quotas and client configs together."""


@fast_dataclass(frozen=True, slots=True)
class IntentEntity:
    """One entity of an intent: the state read, the ops asked for, the state to be stored.

    The values of secrets, and of keys of no facet, are None.
    """

    entity_id: str
    facet: str
    path: str
    version_read: int | None
    czxid_read: int | None
    keys: tuple[str, ...]
    """The keys whose values differ, and those whose files are loaded again."""
    ops: tuple[dict[str, Any], ...]
    """As :meth:`confplane.domain.ops.Op.as_json`; or the one op that stands for all keys of a facet."""
    before: dict[str, str | None]
    after: dict[str, str | None]
    claim: dict[str, Any] | None = None
    """The keys that the change gives to an owner: an :class:`~confplane.domain.ownership.OwnershipClaim` as JSON."""


FIRST_INCARNATION: Final = 1
"""The incarnation of a store that was never restored (docs/writes-design.md, "Restored stores")."""

CHANGE: Final = "change"
"""The kind of a change by a caller."""
RELOAD: Final = "reload"
"""The kind of a change by a caller that gives no key another value: brokers load files again whose paths stay."""
IMPORT: Final = "import"
"""The kind of a change that takes over configs of an observed cluster before the import is complete."""
OBSERVED: Final = "observed"
"""The kind of a change that follows an external write to an observed cluster."""
MOST_REVERTS: Final = 1_000
"""Ids of reverted changes that a row of the trail names, at most."""
WHOLE_OPS: Final = frozenset({"MOVE", "DISCARD"})
"""Ops of moves between layouts, which give no key another value."""
EXTERNAL: Final = "external"
"""The kind of an external change that the recorder found."""
EXTERNAL_PRINCIPAL: Final = "External:unknown"
"""The principal of changes made outside Confplane."""
PUT_BACK: Final = "put-back"
"""The kind of an external write to a Kafka cluster that was put back (services/kraft/reconcile/enforce.py). It
never was a version of an entity here, so it is not a committed change."""
FOLLOWING: Final = (IMPORT, OBSERVED)
"""The kinds of changes that follow an observed cluster (services/kraft)."""


@dataclass(frozen=True, slots=True)
class ObservedRange:
    """The range of the metadata log with the external writes to an entity of an observed cluster, as far as known.

    The entity's writes are the records after ``after``, up to ``until``. If they were observed by a poll, there is at
    least one, and the exact number is unknown. If they were read from the log, there are exactly ``writes``. The names
    of the fields are stored in the trail.
    """

    after: int | None
    """A metadata offset at which the entity was as before the change; None: no earlier poll is known."""
    until: int
    """A metadata offset at which the entity was as after the change; of the log, the last record's."""
    at_ms: int
    """The start of the poll by this service's clock, or the time of the last record by the controller's clock;
    milliseconds since the epoch."""
    exact: bool = False
    """True if the records were read from the log."""
    writes: int = 1
    """The number of the entity's records; the least number if they were not read from the log."""


@fast_dataclass(frozen=True, slots=True)
class Intent:
    """One attempt, durable before its transaction is submitted."""

    change_id: UUID
    attempt: int
    cluster: str
    writer: str
    principal: str
    source: str
    """The caller's address."""
    request_id: str
    reason: str | None
    ticket: str | None
    entities: tuple[IntentEntity, ...]
    behalf_of: str | None = None
    """The user for whom the principal acted; None if it acted for itself."""
    kind: str = CHANGE
    """The kind of the change: of the writing path :data:`CHANGE`, :data:`RELOAD`, :data:`IMPORT` or :data:`OBSERVED`;
    the recorder's kinds are in services/ports/recording.py."""
    observed: ObservedRange | None = None
    """The log range of the followed writes; None for a change that follows nothing."""
    reverts: tuple[UUID, ...] = ()
    """The changes that this change reverts, the latest :data:`MOST_REVERTS` of them; none for any other change."""
    revert_at: datetime | None = None
    """The time at which a temporary change ends (services/schedules); None for a change that stays."""
    ends: UUID | None = None
    """The temporary change that this change ends; None for any other change."""
    applies: UUID | None = None
    """The change request that this change applies, or that was opened because the change bypassed the rules; None for
    any other change."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The Idempotency-Key under which an intent is made (services/changes/idempotency.py). It holds no secret."""

    key: str
    """A digest of the key, its sender and its target."""
    key_id: UUID
    holder: UUID
    """The holder that the key must have."""
    fresh: bool
    """True if the key did not exist when the request began: the claim makes it. Otherwise it must exist."""
    body: str
    """A digest of the request's body."""
    seconds: float
    """Seconds that the request may still take."""
    results: list[dict[str, Any]]
    """The answers of the change."""


@fast_dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a change. The first outcome of a change is final."""

    change_id: UUID
    attempt: int
    cluster: str
    committed: bool
    revision: int | None = None
    time_ms: int | None = None
    versions: dict[str, int] = field(default_factory=dict)
    """Full znode path -> version."""
    error_code: int | None = None
    error: str | None = None
    remade: dict[str, int] = field(default_factory=dict)
    """Full znode path -> czxid, of znodes that were deleted and recreated externally between the read and the
    transaction with the version that was read: external writes into them were lost unseen."""
    incarnation: int = FIRST_INCARNATION
    """The incarnation of the store at the commit: a restored store reuses revisions."""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A search of the trail; None means any. Newest first."""

    cluster: str
    entity_id: str | None = None
    key: str | None = None
    principal: str | None = None
    request_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    """``committed``, ``rejected`` or ``open`` (no outcome yet)."""
    page_size: int = 100
    before: UUID | None = None
    """Cursor: only changes older than this one."""
    within: NameRanges | None = None
    """Only changes of entities in these ranges, without their other entities; None: all."""


class HistoryPlace(NamedTuple):
    """The place of a committed change in a history.

    Change ids alone do not sort a history: a change gets its id before it waits for its turn at the znode. Revisions
    alone do not sort it either: a restored store reuses them.
    """

    incarnation: int
    revision: int
    change_id: UUID


LAST_ID: Final = UUID(int=(1 << 128) - 1)
"""No change id is above it."""
END_OF_HISTORY: Final = HistoryPlace((1 << 31) - 1, (1 << 63) - 1, LAST_ID)
"""The place after every change."""


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """A position between two pages of a history, which lists the last change first."""

    place: HistoryPlace
    """The next page has changes before this place."""
    ceiling: UUID
    """None of these changes has an id above it, except for changes whose ids are far from their times."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A change in the trail: its last attempt and, when known, its outcome."""

    intent: Intent
    created_at: datetime
    outcome: Outcome | None
    recorded_at: datetime | None
    writes: int | None = None
    """The least number of writes of an external or recovered change."""
    partial: bool = False
    """True if entities are left out. The text of an error, which may name them, is left out then, too."""

    @property
    def kind(self) -> str:
        """``change``; ``reload``: gave no key another value; ``import`` and ``observed``: followed from a Kafka cluster
        (services/kraft); ``put-back``: made there externally, and reverted (services/kraft/reconcile/enforce.py);
        ``external``: made externally, and found by the recorder (services/recorder/record.py); ``recovered``: made by
        this service, lost with Postgres's rows and found by its marker.
        """  # noqa: D205 - one list
        return self.intent.kind


class AuditLog(Protocol):
    """The trail. Every read raises ``UnavailableError`` if Postgres is unavailable."""

    async def intend(self, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        """Make intents durable, except those that are already. Rows of concurrent calls share a commit.

        Args:
            intents: The intents.
            claims: One for each intent, or none. The key becomes durable in the same transaction, and an intent whose
                key the holder does not hold (any more) is refused.

        Raises:
            IdempotencyKeyBusyError: A key is another request's; no intent under it was recorded.
            UnavailableError: Postgres did not confirm the intents; ``outcome`` is not_applied.
            Exception: Postgres refused the content of an intent; the other intents are recorded.
        """

    async def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        """Write outcomes, so that every replica shows them; False when Postgres could not do so now.

        Such outcomes are kept and sent again. The outcome of a commit may be lost with a crash of Postgres until its
        marker is dropped (services/upkeep/dropping.py); it is written again from the marker. An outcome that its
        marker lacks in part is durable once this returns: of a change that was not applied, or one with ``remade``.
        """

    async def search(self, query: AuditQuery) -> tuple[list[AuditRecord], UUID | None]:
        """Return one page and the cursor of the next, or None."""

    async def count(self, query: AuditQuery, most: int) -> int:
        """Return the number of changes that a search finds, without reading them; above ``most`` any above it."""

    async def history(
        self, cluster: str, entity_id: str, *, page_size: int, after: HistoryPosition | None
    ) -> tuple[list[AuditRecord], HistoryPosition | None]:
        """Return a page of the committed changes of an entity, and the position of its end; None: it is the last page.

        The changes are sorted by incarnation, revision and change id, the last one first. A page may be short and
        still have a position, because its work is bounded.

        Args:
            cluster: The cluster.
            entity_id: The entity.
            page_size: Maximum number of changes.
            after: The position that the previous page returned; None for the first page.
        """

    async def get(self, cluster: str, change_id: UUID, *, within: NameRanges | None = None) -> AuditRecord | None:
        """Return one change; ``within`` as in :class:`AuditQuery`, None for a change of none of these entities."""

    async def altered(self, cluster: str, author: str) -> list[tuple[str, str]]:
        """Return the facets and ids of the entities that an author altered in the last hour, each once.

        Changes that were not applied do not count; those whose outcome is not known yet do.

        Args:
            cluster: The cluster.
            author: The principal that acted for itself, or the user for whom another one acted.
        """

    async def check(self) -> list[OperatorWarning]:
        """Return warnings about the database (migrations missing, synchronous_commit off, ownership of tables)."""
