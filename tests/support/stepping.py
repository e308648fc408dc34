"""``confplane serve`` with seams: it stops or dies at a named step of the protocol, and its waits can be shortened.

``CONFPLANE_TEST_STEP=<step>:<signal>`` makes the process send itself that signal at the step of the first write whose
``reason`` is :data:`REASON`. Steps: ``intent`` (it is durable, nothing was sent to ZooKeeper) and ``transaction`` (it
is applied, no outcome was written).

``CONFPLANE_TEST_STEP_FILE`` names a file that need not exist. When a test writes ``<step>:<signal>`` into it, the
process removes it and sends itself that signal the next time it reaches the step, regardless of the operation. More
steps are available in this way: those of :data:`STEPS`. For each step that it reached, the process leaves a file next
to that one (:func:`reached_steps`).

``CONFPLANE_TEST_CONSTANTS`` is a JSON object of ``module.NAME`` -> value.

A client that sends ``Bearer <token>/<name>`` is the principal ``User:<name>``, so that there are several.

The service itself has no such seams: this program installs them before it starts.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.audit import (
    PostgresAuditLog,
    PostgresEntityStates,
    PostgresRequestKeys,
    PostgresStorePositions,
    PostgresTableWriter,
    PostgresTargetStates,
)
from confplane.cli.commands import main
from confplane.kraft.cluster import KraftCluster
from confplane.security.authenticator import AdminToken
from confplane.store import ZooKeeperStore, ZooKeeperTreeCopy
from confplane.store.leadership import ZooKeeperLeadership
from confplane.store.write.markers import CommitMarkers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from confplane.domain.access.identities import Identity
    from confplane.services.ports.trail import Claim, Intent
    from confplane.services.ports.transactions import CommitResult, Transaction

STEP_VARIABLE = "CONFPLANE_TEST_STEP"
STEP_FILE_VARIABLE = "CONFPLANE_TEST_STEP_FILE"
CONSTANTS_VARIABLE = "CONFPLANE_TEST_CONSTANTS"
REASON = "step"

STEPS: Final = {
    "begin": "the change is planned, its intent was not sent to Postgres",
    "intent": "the intent is durable, nothing was sent to ZooKeeper",
    "claim": "the same, of a request with an Idempotency-Key",
    "transaction": "ZooKeeper answered the transaction, no outcome was sent to Postgres",
    "outcome": "the outcome is durable, nobody was answered",
    "answer": "the answer of an Idempotency-Key is stored, nobody was answered",
    "take-over": "an Idempotency-Key was taken over, nothing was done under it",
    "abort-marker": "a change was settled by its marker, no outcome was sent to Postgres",
    "lead": "the process became the leader, it did nothing as such",
    "sweep": "markers are about to be dropped",
    "swept": "some markers were dropped, the sweep continues",
    "record": "the recorder is about to move states",
    "claimed": "what is sent to a Kafka cluster is durable, nothing was sent",
    "sending": "the same, and the mode and the freeze were looked at again",
    "sent": "the Kafka cluster answered, no end was written",
    "ended": "the ends of what was sent are durable",
    "marked": "the target is one that no earlier release reads, and its states were not moved",
    "moved": "the states of an earlier release were moved, nothing was sent",
    "recorded": "the recorder moved states, its watermark was not raised",
    "accounted": "an adoption advanced the states over the changes of this service, and the watermark",
    "adopted": "the trail has the new incarnation, ZooKeeper does not",
    "znodes": "a restore wrote some znodes",
    "rows": "a restore sent some rows to Postgres, and did not commit them",
    "restored": "a restore wrote both stores, and did not adopt them",
}

_intend = PostgresAuditLog.intend
_commit = ZooKeeperStore.commit


class Seams:
    """The two calls of a write after which the process can be made to stop."""

    def __init__(self, step: str, number: int) -> None:
        self._step = step
        self._signal = number
        self._marked: set[UUID] = set()

    def _at(self, step: str, change_id: UUID) -> None:
        if step == self._step and change_id in self._marked:
            self._marked.discard(change_id)
            self._step = ""
            os.kill(os.getpid(), self._signal)

    def put_on(self) -> None:
        """Wrap the calls."""
        seams = self

        async def intend(log: PostgresAuditLog, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
            await _intend(log, intents, claims)
            seams._marked.update(intent.change_id for intent in intents if intent.reason == REASON)
            for intent in intents:
                seams._at("intent", intent.change_id)

        async def commit(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
            result = await _commit(store, transaction, deadline)
            for change in transaction.changes:
                seams._at("transaction", change.change_id)
            return result

        classes: tuple[Any, Any] = (PostgresAuditLog, ZooKeeperStore)
        classes[0].intend, classes[1].commit = intend, commit


class Steps:
    """The calls before or after which the process stops if a file requests it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._reached: set[str] = set()

    def at(self, step: str) -> None:
        """Do what the file requests, if it names this step."""
        if step not in self._reached:
            self._reached.add(step)
            _reached_file(self._file, step).touch()
        try:
            wanted, _, name = self._file.read_text().partition(":")
            if wanted != step:
                return
            # The test that created the file may remove it at the same moment: one of the two finds it missing.
            self._file.rename(self._file.with_suffix(".taken"))
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.Signals[name])

    def put_on(self) -> None:
        """Wrap the calls."""
        self._wrap_intend()
        self._wrap(ZooKeeperStore, "commit", after="transaction")
        self._wrap(PostgresAuditLog, "conclude", after="outcome")
        self._wrap(PostgresRequestKeys, "store", after="answer")
        self._wrap(PostgresRequestKeys, "take_over", after="take-over")
        self._wrap(CommitMarkers, "settle", after="abort-marker")
        self._wrap_seek()
        self._wrap(CommitMarkers, "drop", before="sweep", after="swept")
        self._wrap(PostgresEntityStates, "move", before="record", after="recorded")
        self._wrap(PostgresEntityStates, "advance", after="accounted")
        self._wrap(PostgresStorePositions, "adopt", after="adopted")
        self._wrap(PostgresTargetStates, "begin", after="claimed")
        self._wrap(KraftCluster, "alter_quotas", before="sending", after="sent")
        self._wrap(KraftCluster, "alter_configs", before="sending", after="sent")
        self._wrap(PostgresTargetStates, "end", after="ended")
        self._wrap(PostgresTargetStates, "move_earlier", before="marked", after="moved")
        self._wrap(ZooKeeperTreeCopy, "write", after="znodes")
        self._wrap(PostgresTableWriter, "insert", after="rows")
        self._wrap(PostgresTableWriter, "commit", after="restored")

    def _wrap_intend(self) -> None:
        seams, intend = self, PostgresAuditLog.intend

        async def wrapped(log: PostgresAuditLog, intents: Sequence[Intent], claims: Sequence[Claim] = ()) -> None:
            seams.at("begin")
            await intend(log, intents, claims)
            if claims:
                seams.at("claim")
            seams.at("intent")

        owner: Any = PostgresAuditLog
        owner.intend = wrapped

    def _wrap_seek(self) -> None:
        seams, seek = self, ZooKeeperLeadership.seek

        async def wrapped(leadership: ZooKeeperLeadership, deadline: float) -> bool:
            led = leadership.held
            leads = await seek(leadership, deadline)
            if leads and not led:
                seams.at("lead")
            return leads

        owner: Any = ZooKeeperLeadership
        owner.seek = wrapped

    def _wrap(self, owner: Any, name: str, *, before: str = "", after: str = "") -> None:
        call: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def wrapped(*args: Any, **named: Any) -> Any:
            if named.get("validate_only"):
                return await call(*args, **named)
            if before:
                self.at(before)
            result = await call(*args, **named)
            if after:
                self.at(after)
            return result

        setattr(owner, name, wrapped)


def reached_steps(file: Path) -> set[str]:
    """Return the steps that the processes with this file have reached."""
    return {step for step in STEPS if _reached_file(file, step).exists()}


def _reached_file(file: Path, step: str) -> Path:
    return file.with_suffix(f".reached-{step}")


def name_principals() -> None:
    """Let clients with the token choose their principal."""
    authenticate = AdminToken.authenticate

    def named(token: AdminToken, given: bytes) -> Identity | None:
        plain, slash, name = given.partition(b"/")
        found = authenticate(token, plain if slash else given)
        return replace(found, principal=f"User:{name.decode()}") if slash and found is not None else found

    owner: Any = AdminToken
    owner.authenticate = named


def put_on() -> None:
    """Install the seams that the environment requests."""
    name_principals()
    for name, value in json.loads(os.environ.get(CONSTANTS_VARIABLE, "{}")).items():
        module, _, constant = name.rpartition(".")
        getattr(importlib.import_module(module), constant)  # it must exist
        setattr(importlib.import_module(module), constant, value)
    if STEP_VARIABLE in os.environ:
        wanted, _, what = os.environ[STEP_VARIABLE].partition(":")
        Seams(wanted, signal.Signals[what]).put_on()
    if STEP_FILE_VARIABLE in os.environ:
        Steps(Path(os.environ[STEP_FILE_VARIABLE])).put_on()


if __name__ == "__main__":
    put_on()
    main()
