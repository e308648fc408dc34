"""Confplane with a planted bug that the checker must find: one part of its protocol left out or misplaced.

``python -m tests.faults.planted_bugs serve`` runs ``tests.support.stepping`` with the bug that ``CONFPLANE_TEST_BUG``
names. The service has no code for this: its parts are replaced here, before it starts.

``CONFPLANE_TEST_STALL`` names a file. At the intent of the first write whose reason is ``REASON`` the event loop stalls
until that file exists and ZooKeeper has given the process's client a new session, which kazoo takes by itself in its own
thread. This represents any cause of a stalled loop, such as a long garbage collection or a blocking call.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

from confplane.audit import PostgresAuditLog, PostgresFeedTrail, open_changes
from confplane.cli.commands import main
from confplane.services.changes import commit as commits
from confplane.services.changes import settle
from confplane.services.ports.store import Marker
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import Committed, Conflict, TransactionUnknown
from confplane.services.recorder.record import Recorder
from confplane.services.upkeep import incarnation
from confplane.store import ZooKeeperStore, znodes
from confplane.store.mirror import follower
from confplane.store.mirror.follower import MirrorFollower
from confplane.store.write import markers, transactions
from tests.support import stepping
from tests.support.forgetful import marked_by_reading
from tests.support.stepping import REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.services.ports.recording import Watermark
    from confplane.services.ports.trail import Claim, Intent
    from confplane.services.ports.transactions import CommitResult, Transaction
    from confplane.store.session.session import Session

VARIABLE: Final = "CONFPLANE_TEST_BUG"
STALL_VARIABLE: Final = "CONFPLANE_TEST_STALL"

_operations_of = transactions.operations_of


def without_version_check() -> None:
    """A config node is set in whatever version it is."""

    def operations_of(transaction: Transaction, **more: Any) -> transactions.Operations:
        made = _operations_of(transaction, **more)
        for _, index in made.written:
            kind, path, data, *_ = made.operations[index]
            if kind == "set":
                made.operations[index] = ("set", path, data, -1)
        return made

    _replace(transactions, "operations_of", operations_of)


def outcome_before_commit() -> None:
    """The outcome is written as it will be, so that the transaction need not be waited for, and then it is submitted."""
    commit, logs = ZooKeeperStore.commit, list[PostgresAuditLog]()
    intend = PostgresAuditLog.intend

    async def intend_and_note(log: PostgresAuditLog, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        logs[:] = [log]
        await intend(log, intents, claims)

    async def conclude_and_commit(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
        stat = await store._session_manager.current.touch()
        for change, writes in zip(transaction.changes, transaction.writes, strict=True):
            outcome = Outcome(
                change.change_id,
                change.attempt,
                store.name,
                committed=True,
                revision=stat.mzxid + 1,
                time_ms=stat.mtime,
                versions={write.path: 0 if write.expected is None else write.expected + 1 for write in writes},
            )
            await logs[0].conclude([outcome])
        return await commit(store, transaction, deadline)

    _replace(PostgresAuditLog, "intend", intend_and_note)
    _replace(ZooKeeperStore, "commit", conclude_and_commit)


def positions_unchecked() -> None:
    """A ZooKeeper that has fewer commits than the trail is not taken for a restored one."""
    _replace(incarnation, "_earlier", lambda _trail, _found: None)


def without_marker() -> None:
    """A transaction leaves nothing that proves it, and the check for a restored ZooKeeper does not miss it."""
    _leave_out("marker")
    positions_unchecked()


def without_last_marker() -> None:
    """Of several changes in one transaction the last leaves nothing that proves it."""
    _leave_out("marker", last=True)


def refused_taken_for_applied() -> None:
    """If a transaction is refused because of one change, the other changes are committed and all count as applied."""
    commit = ZooKeeperStore.commit

    async def commit_others(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
        result = await commit(store, transaction, deadline)
        if not isinstance(result, Conflict) or result.change_id is None:
            return result
        both = zip(transaction.changes, transaction.writes, strict=True)
        changes, writes = zip(*[each for each in both if each[0].change_id != result.change_id], strict=True)
        result = await commit(store, replace(transaction, changes=changes, writes=writes, again=True), deadline)
        if not isinstance(result, Committed):
            return result
        every = [write for some in transaction.writes for write in some]
        versions = {write.path: 0 if write.expected is None else write.expected + 1 for write in every}
        outcome = Outcome(UUID(int=0), 1, "", True, result.revision, result.time_ms, versions)  # noqa: FBT003 - its fields
        return settle.committed(outcome, every)

    _replace(ZooKeeperStore, "commit", commit_others)


def shared_in_the_order_of_arrival() -> None:
    """The changes of several callers are in a transaction in the order in which they came to wait, the last first."""
    next_load = commits._Queue.next_load
    _replace(commits._Queue, "next_load", lambda queue: next_load(queue)[::-1])


def shared_sent_again() -> None:
    """After a lost reply each of several changes is decided again, as after a refusal of all."""
    commit = ZooKeeperStore.commit

    async def commit_again(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
        result = await commit(store, transaction, deadline)
        is_lost = isinstance(result, TransactionUnknown) and len(transaction.changes) > 1
        return Conflict() if is_lost else result

    _replace(ZooKeeperStore, "commit", commit_again)


def settled_by_reading() -> None:
    """A settler looks whether there is a marker, and takes its absence for the end."""

    async def settle_by_reading(_self: markers.CommitMarkers, session: Session, change_id: UUID) -> Marker | None:
        await session.touch()
        try:
            data, stat = await session.get(znodes.marker_path(change_id))
        except NoNodeError:
            return Marker(change_id, committed=False)
        return markers.decode(change_id, data, stat.czxid, stat.ctime)

    _replace(markers.CommitMarkers, "_settle", settle_by_reading)


def without_writer_node() -> None:
    """A transaction takes its revision and time from a permanent node, under any session."""

    def operations_of(transaction: Transaction, **more: Any) -> transactions.Operations:
        made = _operations_of(transaction, **more)
        made.operations[0] = ("set", znodes.COMMITS, b"", -1)
        return made

    _replace(transactions, "operations_of", operations_of)


def fresh_for_ever() -> None:
    """A settler never looks again whether there is an outcome, however long ago it saw none."""
    _replace(settle, "_FRESH_S", math.inf)


def mirror_decides() -> None:
    """An end without a change is not confirmed by ZooKeeper."""

    async def confirm(store: ZooKeeperStore, *_args: Any, **_named: Any) -> int:
        return store._follower.revision

    _replace(ZooKeeperStore, "confirm", confirm)


def markers_go_once_read() -> None:
    """A marker is dropped once its outcome was read, which need not be durable."""
    _replace(open_changes, "MARKED", marked_by_reading())


def gap_ignored() -> None:
    """Notifications that are gone count as read."""
    read_chunk = MirrorFollower._read_chunk

    async def read_what_is_left(self: MirrorFollower, session: Session, end: int, early: Mapping[int, Any]) -> int:
        try:
            return await read_chunk(self, session, end, early)
        except follower._GapError:
            return 0

    _replace(MirrorFollower, "_read_chunk", read_what_is_left)


def strong_read_without_write() -> None:
    """A strong read is answered by the server that the process is connected to, without a write to the leader."""
    make_pass = MirrorFollower._pass

    async def weak_pass(self: MirrorFollower, session: Session, *, strong: bool) -> None:  # noqa: ARG001 - the bug
        await make_pass(self, session, strong=False)

    _replace(MirrorFollower, "_pass", weak_pass)


def intent_not_awaited() -> None:
    """A transaction is submitted before Postgres has confirmed its intent."""
    intend, sent = PostgresAuditLog.intend, set[asyncio.Task[None]]()

    async def begin_to_intend(log: PostgresAuditLog, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        sent.add(asyncio.create_task(intend(log, intents, claims)))

    _replace(PostgresAuditLog, "intend", begin_to_intend)


def keys_forgotten() -> None:
    """An Idempotency-Key is not stored with the intent of its change."""
    intend = PostgresAuditLog.intend

    async def intend_without(log: PostgresAuditLog, intents: Sequence[Intent], _claims: Sequence[Claim] = ()) -> None:
        await intend(log, intents)

    _replace(PostgresAuditLog, "intend", intend_without)


def settled_marker_dropped() -> None:
    """A settler drops the marker that it read, before it writes the outcome."""
    settle_by_marker = markers.CommitMarkers.settle

    async def settle_and_drop(self: markers.CommitMarkers, change_id: UUID, deadline: float) -> Marker | None:
        marker = await settle_by_marker(self, change_id, deadline)
        if marker is not None and marker.committed:
            await self.drop([change_id])
        return marker

    _replace(markers.CommitMarkers, "settle", settle_and_drop)


def nothing_compared() -> None:
    """A new leader does not compare the entities with the states that the recorder knows."""

    async def compare_nothing(self: Recorder, _watermark: Watermark) -> None:
        self._anew = False

    _replace(Recorder, "_compare_all", compare_nothing)


def feed_passes_over() -> None:
    """The feed does not wait for changes without an outcome."""

    async def unsettled_writes(_trail: PostgresFeedTrail, *_: Any) -> list[Any]:
        return []

    _replace(PostgresFeedTrail, "unsettled_writes", unsettled_writes)


PLANTED_BUGS: Final[dict[str, Callable[[], None]]] = {
    "no-version-check": without_version_check,
    "outcome-before-commit": outcome_before_commit,
    "positions-unchecked": positions_unchecked,
    "no-marker": without_marker,
    "no-last-marker": without_last_marker,
    "refused-taken-for-applied": refused_taken_for_applied,
    "shared-in-the-order-of-arrival": shared_in_the_order_of_arrival,
    "shared-sent-again": shared_sent_again,
    "settled-by-reading": settled_by_reading,
    "no-writer-node": without_writer_node,
    "fresh-for-ever": fresh_for_ever,
    "mirror-decides": mirror_decides,
    "markers-go-once-read": markers_go_once_read,
    "gap-ignored": gap_ignored,
    "strong-read-without-write": strong_read_without_write,
    "intent-not-awaited": intent_not_awaited,
    "keys-forgotten": keys_forgotten,
    "settled-marker-dropped": settled_marker_dropped,
    "nothing-compared": nothing_compared,
    "feed-passes-over": feed_passes_over,
}


def _leave_out(role: str, *, last: bool = False) -> None:
    def operations_of(transaction: Transaction, **more: Any) -> transactions.Operations:
        made = _operations_of(transaction, **more)
        indices = [index for index, each in enumerate(made.roles) if each == role]
        index = indices[-1 if last else 0]
        del made.operations[index], made.roles[index], made.owners[index]
        return made

    _replace(transactions, "operations_of", operations_of)


def _replace(owner: Any, name: str, value: Any) -> None:
    getattr(owner, name)  # it must be one that is there
    setattr(owner, name, value)


def stall(until: Path) -> None:
    """Stall the loop at an intent; a file next to the awaited one shows that it does."""
    intend, start = PostgresAuditLog.intend, ZooKeeperStore.start
    stores: list[ZooKeeperStore] = []

    def start_and_note(store: ZooKeeperStore, *, purges: bool = True) -> None:
        stores.append(store)
        start(store, purges=purges)

    async def intend_and_stall(log: PostgresAuditLog, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
        await intend(log, intents, claims)
        if any(intent.reason == REASON for intent in intents) and not stalled(until).exists():
            client = stores[0]._session_manager.current._client
            before = client.client_id
            stalled(until).touch()
            _wait(lambda: until.exists() and client.client_id != before and client.state == KazooState.CONNECTED)

    _replace(ZooKeeperStore, "start", start_and_note)
    _replace(PostgresAuditLog, "intend", intend_and_stall)


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


def stalled(until: Path) -> Path:
    """The file that appears once the loop is stalled."""
    return until.with_suffix(".reached")


if __name__ == "__main__":
    # First, since it sets constants of which a bug may be one.
    stepping.put_on()
    if VARIABLE in os.environ:
        PLANTED_BUGS[os.environ[VARIABLE]]()
    if STALL_VARIABLE in os.environ:
        stall(Path(os.environ[STALL_VARIABLE]))
    main()
