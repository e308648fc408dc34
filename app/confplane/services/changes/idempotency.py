"""Requests with an Idempotency-Key: each is done once, however often it is sent, through whichever process.

The key's row is written in the Postgres transaction of the request's first intent, so a request that wrote nothing
leaves none. The row names the **holder**: the one request whose turn it is. An intent under a key is written only while
its request holds the key. A repeated request

- gets the stored answer, if there is one;
- waits while the holder's writer is alive and the holder's deadline is in the future;
- otherwise takes the key over. From then on the former holder can't write another intent. The new holder settles the
  changes made under the key, and runs the request again; applied changes are not run again, and get their first answer.
  So each entity's part of a request is applied once, after any crash.

An answer is stored once something was applied and nothing failed with an error that invites another try. The grants
that the request needed are stored with the answer: a caller who has lost one of them is refused, and not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from uuid_utils.compat import uuid7

from confplane.domain.access.identities import Authentication
from confplane.domain.access.operations import Operation
from confplane.domain.changes import Difference, Node
from confplane.domain.errors import (
    ForbiddenError,
    IdempotencyKeyBusyError,
    IdempotencyKeyReusedError,
    OutcomeUnknownError,
    UnavailableError,
    WriteOutcome,
)
from confplane.domain.facets import full_path
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.changes.edits import EditResult
from confplane.services.changes.settle import settle_own
from confplane.services.metrics import Sample
from confplane.services.ports.trail import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.access.identities import Identity
    from confplane.domain.errors import ConfplaneError
    from confplane.services.access import Access
    from confplane.services.changes.edits import Edit
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.ports.request_keys import KeyedChange, KeyRow, RequestKeys, StoredAnswer
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditLog

logger = logging.getLogger(__name__)

KEEP_S = 24 * 3600.0
"""Seconds for which a key is kept, at least."""
PURGE_S = 600.0
"""Seconds between two purges."""
POINTER: Final = "Idempotency-Key"
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_WRITER_CHECK_S: Final = 1.0
"""Seconds between two checks in ZooKeeper that the holder's writer is alive."""
_CONCURRENCY: Final = 64
_OPERATIONS: Final = frozenset(operation.value for operation in Operation)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The identity of a request. Key and body are kept only as digests."""

    key: str
    body: str

    @classmethod
    def of(cls, key: str, *, cluster: str, identity: Identity, method: str, path: str, body: Any) -> RequestKey:
        """Make a key; ``body`` is the parsed body, None if there is none.

        A key is one caller's alone: two sources of credentials never share one, nor a portal and the users for whom it
        acts. The admin token's digest is that of earlier releases, so that a request is done once across an upgrade.

        The body's digest is keyed by the Idempotency-Key, which is not kept, so that readers of the tables can't try
        guesses on a password in a body.
        """
        whole = json.dumps([cluster, *_sender(identity), method, path, key]).encode()
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        return cls(hashlib.sha256(whole).hexdigest(), hmac.new(key.encode(), canonical, "sha256").hexdigest())


def _sender(identity: Identity) -> list[str | None]:
    if identity.kind is Authentication.ADMIN_TOKEN and identity.behalf_of is None:
        return [identity.principal]
    return [identity.principal, identity.kind.value, identity.issuer, identity.acts_for]


class RequestRun:
    """One holder's run of a request."""

    def __init__(self, key: RequestKey, row: KeyRow | None, holder: UUID, applied: Sequence[KeyedChange] = ()) -> None:
        self.key = key
        self.id = holder if row is None else row.id
        self.holder = holder
        self._fresh = row is None
        self._applied: dict[tuple[str, str], tuple[KeyedChange, dict[str, Any]]] = {
            (result["facet"], result["entity"]): (change, result) for change in applied for result in change.results
        }
        self.claimed = row is not None
        """True if the key's row may exist, with this run as its holder."""
        self.lost = False
        """True if another request turned out to hold the key."""
        self.wrote = False
        """True if this run itself applied a change."""
        self.inviting = False
        """True if something failed with an error that invites another try."""
        self.unknown = False
        """True if a change's outcome is unknown."""
        self._needed: dict[str, None] = {}

    @property
    def applied(self) -> bool:
        """True if any change of the request is applied."""
        return self.wrote or bool(self._applied)

    @property
    def replays(self) -> bool:
        """True if everything in the answer was done by earlier runs."""
        return bool(self._applied) and not self.wrote

    def claim(self, answers: Sequence[dict[str, Any]], deadline: float) -> Claim:
        """Return the claim for the intent of a change with these answers."""
        self.claimed = True
        return Claim(
            key=self.key.key,
            key_id=self.id,
            holder=self.holder,
            fresh=self._fresh,
            body=self.key.body,
            seconds=max(0.0, deadline - time.monotonic()),
            results=list(answers),
        )

    def result(self, cluster_facet: ClusterFacet, edit: Edit) -> EditResult | None:
        """Return the result of an edit that an earlier run applied; None for other edits."""
        found = self.earlier(cluster_facet.name.value, edit.entity.id)
        return None if found is None else _restored(cluster_facet, edit, *found)

    def needs(self, operation: Operation, spelling: str) -> None:
        """Take note of a right that the request needed, and had."""
        self._needed[f"{operation} {spelling}"] = None

    def kept(self, answer: StoredAnswer) -> StoredAnswer:
        """Return an answer in the form in which it is kept."""
        return replace(answer, needs=tuple(self._needed) or None)

    def earlier(self, facet: str, entity_id: str) -> tuple[KeyedChange, dict[str, Any]] | None:
        """Return the change of an earlier run on an entity, with its kept answer; None if there is none."""
        return self._applied.get((facet, entity_id))

    def record(self, results: Sequence[EditResult]) -> None:
        """Take note of the results of edits in this run."""
        for result in results:
            error = result.error
            if error is None:
                self.wrote = self.wrote or result.change_id is not None
                continue
            self.record_error(error)

    def record_error(self, error: ConfplaneError) -> None:
        """Take note of an error in this run."""
        self.lost = self.lost or isinstance(error, IdempotencyKeyBusyError)
        self.unknown = self.unknown or isinstance(error, OutcomeUnknownError)
        self.inviting = self.inviting or error.retriable


class IdempotencyService(BackgroundService):
    """Runs requests once. One instance serves all clusters of a process."""

    def __init__(self, keys: RequestKeys, audit: AuditLog) -> None:
        self._keys = keys
        self._audit = audit
        self._begun: Counter[str] = Counter()
        self._background = BackgroundTask(self._purge_forever, name="purge of request keys")

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        for how, number in self._begun.items():
            yield Sample("idempotent_requests", number, (how,))

    async def begin(
        self, key: RequestKey, store: ClusterStore, access: Access, deadline: float, *, ended: RequestRun | None = None
    ) -> StoredAnswer | RequestRun:
        """Return the answer of an earlier request, or the run that makes one.

        Args:
            key: The request.
            store: The request's cluster.
            access: The access of the caller.
            deadline: The deadline of waiting for another request, on the clock of ``time.monotonic()``.
            ended: A run of the same request by this caller that is over.

        Raises:
            IdempotencyKeyReusedError: The key was used with another body.
            ForbiddenError: There is an answer, and the caller no longer has a grant that it needs.
            IdempotencyKeyBusyError: Another request with the key was under way until the deadline.
            OutcomeUnknownError: A change of an earlier request can't be settled in time.
            UnavailableError: Postgres or ZooKeeper is away. This request did nothing; ``outcome`` is unknown all the
                same, because an earlier request may have been applied.
        """
        with _earlier_ones_unknown():
            return await self._begin(key, store, access, deadline, ended)

    async def _begin(
        self, key: RequestKey, store: ClusterStore, access: Access, deadline: float, ended: RequestRun | None
    ) -> StoredAnswer | RequestRun:
        pause, check_at = _FIRST_PAUSE_S, time.monotonic()
        if ended is not None and check_at >= deadline:
            raise _busy()
        while (row := await self._keys.find(key.key)) is not None:
            if row.body != key.body:
                raise IdempotencyKeyReusedError(
                    "This Idempotency-Key was used for a request with another body; use a new key for every request",
                    pointer=POINTER,
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            if row.answer is not None:
                _require(access, store.name, row.answer)
                self._begun["replayed"] += 1
                return row.answer
            over = not row.in_time or (ended is not None and row.holder == ended.holder)
            if not over and time.monotonic() >= check_at:
                over = not await _is_there(store, row.writer, deadline)
                check_at = time.monotonic() + _WRITER_CHECK_S
            if over:
                run = await self._take_over(key, row, store, deadline)
                if run is not None:
                    self._begun["taken_over"] += 1
                    return run
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise _busy()
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1)))  # noqa: S311 - spreads the waiting requests
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self._begun["first"] += 1
        return RequestRun(key, None, uuid7())

    async def finish(self, run: RequestRun, answer: StoredAnswer | None) -> bool:
        """End a run; return True if its answer counts, False if the request must begin again.

        Args:
            run: The run, all of whose changes have ended.
            answer: The answer; None for an error.

        Raises:
            UnavailableError: Postgres is away, and this run wrote nothing; ``outcome`` is unknown, as in :meth:`begin`.
        """
        if run.lost:
            return False
        if not run.claimed:
            # This run wrote nothing. Another run may have written, and then this run's decisions rest on its changes.
            with _earlier_ones_unknown():
                return await self._keys.find(run.key.key) is None
        try:
            if answer is not None and run.applied and not run.inviting:
                held = await self._keys.store(run.id, run.holder, run.kept(answer))
            elif run.applied or run.unknown:
                held = await self._keys.hand_on(run.id, run.holder)
            else:
                held = await self._keys.release(run.id, run.holder)
            if not held:
                # Taken over by another run, whose answer counts; or never written.
                row = await self._keys.find(run.key.key)
                return row is None or row.holder == run.holder
        except UnavailableError as error:
            # The next repetition takes over after this run's deadline, and finds the applied changes.
            logger.warning("%s; the answer to a request with an Idempotency-Key was not stored", error.detail)
        return True

    async def _take_over(self, key: RequestKey, row: KeyRow, store: ClusterStore, deadline: float) -> RequestRun | None:
        holder = uuid7()
        seconds = max(0.0, deadline - time.monotonic())
        if not await self._keys.take_over(row, holder, writer=store.writer(), seconds=seconds):
            return None
        try:
            return RequestRun(key, row, holder, await self._settled(row.id, store, deadline))
        except BaseException:
            with contextlib.suppress(UnavailableError):
                await self._keys.hand_on(row.id, holder)
            raise

    async def _settled(self, key_id: UUID, store: ClusterStore, deadline: float) -> list[KeyedChange]:
        """Return the applied changes made under a key, each as its last attempt, once all have an outcome."""
        asked_at = time.monotonic()
        attempts = await self._keys.changes(key_id)
        last = {made.change_id: made for made in attempts}
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def ended(made: KeyedChange) -> KeyedChange:
            if made.outcome is None:
                async with slots:
                    outcome = await settle_own(
                        self._audit, store, made.change_id, made.attempt, began=asked_at, deadline=deadline
                    )
                return replace(made, outcome=outcome)
            if made.outcome.revision is not None:
                with contextlib.suppress(UnavailableError):
                    await store.wait_for(made.outcome.revision, deadline)
            return made

        found = await asyncio.gather(*(ended(made) for made in last.values()), return_exceptions=True)
        results: dict[tuple[UUID, int], KeyedChange] = {(made.change_id, made.attempt): made for made in attempts}
        applied = []
        for made in found:
            if isinstance(made, BaseException):
                raise made
            if made.outcome is not None and made.outcome.committed:
                applied.append(replace(results[made.change_id, made.outcome.attempt], outcome=made.outcome))
        return applied

    async def _purge_forever(self) -> None:
        while True:
            # All processes purge, at different times.
            await asyncio.sleep(PURGE_S * random.uniform(0.5, 1))  # noqa: S311 - as above
            with contextlib.suppress(UnavailableError):
                await self._keys.purge(KEEP_S)


@contextlib.contextmanager
def _earlier_ones_unknown() -> Iterator[None]:
    """Answer with an unknown outcome if a store is unavailable: an earlier request with the key may be applied."""
    try:
        yield
    except UnavailableError as error:
        raise UnavailableError(
            f"{error.detail}; an earlier request with this Idempotency-Key may have been applied: send the request"
            " again with the same key",
            outcome=WriteOutcome.UNKNOWN,
            retry_after_s=error.retry_after_s or 1,
        ) from error


def _require(access: Access, cluster: str, answer: StoredAnswer) -> None:
    """Refuse a caller who no longer has the grants that a stored answer needs.

    Raises:
        ForbiddenError: A grant is missing, or the needed grants are not known.
    """
    if access.unlimited:
        return
    needs = [need.partition(" ") for need in answer.needs or ()]
    # A later release, before it was rolled back, may have stored an operation that this one does not know.
    if answer.needs is None or not all(operation in _OPERATIONS for operation, _, _ in needs):
        raise ForbiddenError(
            "It is not known which grants the answer to this Idempotency-Key needs; look for the change in the trail,"
            " or read the resource",
            pointer=POINTER,
            outcome=WriteOutcome.UNKNOWN,
        )
    for operation, _, spelling in needs:
        try:
            access.require(cluster, Operation(operation), spelling, pointer=POINTER)
        except ForbiddenError as error:
            error.outcome = WriteOutcome.UNKNOWN  # the outcome is the first request's
            raise


def _busy() -> IdempotencyKeyBusyError:
    return IdempotencyKeyBusyError(
        "The first request with this Idempotency-Key is still under way; send it again for its answer",
        pointer=POINTER,
        outcome=WriteOutcome.UNKNOWN,  # the outcome is the first request's
        retry_after_s=1,
    )


async def _is_there(store: ClusterStore, writer: str, deadline: float) -> bool:
    try:
        return writer in await store.markers.writers(deadline)
    except UnavailableError:
        return True  # taken to be alive while nothing else is known


def _restored(cluster_facet: ClusterFacet, edit: Edit, change: KeyedChange, recorded: Mapping[str, Any]) -> EditResult:
    """Return the result of an edit as its own run would have answered."""
    outcome = change.outcome
    if outcome is None or outcome.revision is None or outcome.time_ms is None:
        raise ValueError("The change was not committed")
    # Values that are not kept (secrets, and keys of other facets) are never shown, so an empty text can represent them.
    after = {key: value or "" for key, value in recorded["after"].items()}
    revision = outcome.revision if recorded["changed"] else recorded["revision"]
    node = cluster_facet.get(edit.entity.id)
    if revision is None:
        node = None
    elif node is None or node.mzxid != revision:
        node = Node(
            id=edit.entity.id,
            items=tuple(part for pair in after.items() for part in pair),
            version=outcome.versions.get(full_path(cluster_facet.tree, edit.entity), 0),
            czxid=recorded["czxid"] or revision,
            mzxid=revision,
            mtime_ms=outcome.time_ms,
        )
    return EditResult(
        edit,
        change_id=str(change.change_id) if recorded["changed"] else None,
        revision=revision or outcome.revision,
        diff=tuple(Difference(**item) for item in recorded["diff"]),
        warnings=tuple(recorded["warnings"]),
        node=node,
        created=recorded["created"],
        after=after if node is None else node.config,
    )
