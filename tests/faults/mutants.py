"""Confplane with one part of its write protocol left out or put in the wrong place: what the fault suite has to notice.

``python -m tests.faults.mutants serve`` runs ``tests.support.stepping`` with the mutant that ``CONFPLANE_TEST_MUTANT``
names. Nothing in the service knows of it: the parts are replaced here, before it starts.

``CONFPLANE_TEST_STALL`` names a file. At the intent of the first write whose reason is ``REASON`` the event loop stands
still until that file is there and ZooKeeper has given the process's client a new session, which kazoo takes by itself on
a thread of its own. This stands for whatever keeps a loop from running: a long collection of garbage, a call that blocks.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

from confplane.audit import PostgresAuditLog, open_changes
from confplane.cli.commands import main
from confplane.services.changes import settle
from confplane.services.ports.store import Marker
from confplane.services.ports.trail import Outcome
from confplane.services.ports.transactions import Committed, Conflict
from confplane.store import ZooKeeperStore, znodes
from confplane.store.write import markers, transactions
from tests.support import stepping
from tests.support.forgetful import marked_by_reading
from tests.support.stepping import REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confplane.services.ports.trail import Claim, Intent
    from confplane.services.ports.transactions import CommitResult, Transaction
    from confplane.store.session.session_manager import Session

VARIABLE: Final = "CONFPLANE_TEST_MUTANT"
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
        for change in transaction.changes:
            outcome = Outcome(
                change.change_id,
                change.attempt,
                store.name,
                committed=True,
                revision=stat.mzxid + 1,
                time_ms=stat.mtime,
                versions={write.path: 0 if write.expected is None else write.expected + 1 for write in change.writes},
            )
            await logs[0].conclude([outcome])
        return await commit(store, transaction, deadline)

    _replace(PostgresAuditLog, "intend", intend_and_note)
    _replace(ZooKeeperStore, "commit", conclude_and_commit)


def without_marker() -> None:
    """A transaction leaves nothing that proves it."""
    _leave_out("marker")


def without_last_marker() -> None:
    """Of several changes in one transaction the last leaves nothing that proves it."""
    _leave_out("marker", last=True)


def refused_taken_for_applied() -> None:
    """Of a transaction that is refused because of one change the others are committed, and all take it for theirs."""
    commit = ZooKeeperStore.commit

    async def commit_others(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
        result = await commit(store, transaction, deadline)
        if not isinstance(result, Conflict) or result.change_id is None:
            return result
        others = tuple(change for change in transaction.changes if change.change_id != result.change_id)
        result = await commit(store, replace(transaction, changes=others, again=True), deadline)
        if not isinstance(result, Committed):
            return result
        versions = {write.path: 0 if write.expected is None else write.expected + 1 for write in transaction.writes}
        told = Outcome(UUID(int=0), 1, "", True, result.revision, result.time_ms, versions)  # noqa: FBT003 - its fields
        return settle.committed(told, transaction.writes)

    _replace(ZooKeeperStore, "commit", commit_others)


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
    """A transaction takes its revision and time from a node that is always there, whoever's session it is under."""

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


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "no-version-check": without_version_check,
    "outcome-before-commit": outcome_before_commit,
    "no-marker": without_marker,
    "no-last-marker": without_last_marker,
    "refused-taken-for-applied": refused_taken_for_applied,
    "settled-by-reading": settled_by_reading,
    "no-writer-node": without_writer_node,
    "fresh-for-ever": fresh_for_ever,
    "mirror-decides": mirror_decides,
    "markers-go-once-read": markers_go_once_read,
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
    """Have the loop stand still at an intent; a file beside the one that is waited for tells that it does."""
    intend, start = PostgresAuditLog.intend, ZooKeeperStore.start
    stores: list[ZooKeeperStore] = []

    async def start_and_note(store: ZooKeeperStore) -> None:
        stores.append(store)
        await start(store)

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
    """The file that appears once the loop stands still."""
    return until.with_suffix(".reached")


if __name__ == "__main__":
    # First, since it sets constants of which a mutant may be one.
    stepping.put_on()
    if VARIABLE in os.environ:
        MUTANTS[os.environ[VARIABLE]]()
    if STALL_VARIABLE in os.environ:
        stall(Path(os.environ[STALL_VARIABLE]))
    main()
