"""``confplane serve`` with seams: it stops or dies at a named step of one write, and its waits can be shortened.

``CONFPLANE_TEST_STEP=<step>:<signal>`` has the process send itself that signal at the step of the first write whose
``reason`` is :data:`REASON`. Steps: ``intent`` (it is durable, nothing was sent to ZooKeeper) and ``transaction`` (it is
applied, no outcome was written). ``CONFPLANE_TEST_CONSTANTS`` is a JSON object of ``module.NAME`` -> value.

The service itself has no such seams: this program puts them on before it starts.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from app.audit import PostgresAuditLog
from app.cli.commands import main
from app.store import ZooKeeperStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from app.services.ports import Claim, CommitResult, Intent, Transaction

STEP_VARIABLE = "CONFPLANE_TEST_STEP"
CONSTANTS_VARIABLE = "CONFPLANE_TEST_CONSTANTS"
REASON = "step"

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

        async def intend(log: PostgresAuditLog, intents: Sequence[Intent], claim: Claim | None = None) -> None:
            await _intend(log, intents, claim)
            seams._marked.update(intent.change_id for intent in intents if intent.reason == REASON)
            for intent in intents:
                seams._at("intent", intent.change_id)

        async def commit(store: ZooKeeperStore, transaction: Transaction, deadline: float) -> CommitResult:
            result = await _commit(store, transaction, deadline)
            seams._at("transaction", transaction.change_id)
            return result

        classes: tuple[Any, Any] = (PostgresAuditLog, ZooKeeperStore)
        classes[0].intend, classes[1].commit = intend, commit


if __name__ == "__main__":
    for name, value in json.loads(os.environ.get(CONSTANTS_VARIABLE, "{}")).items():
        module, _, constant = name.rpartition(".")
        getattr(importlib.import_module(module), constant)  # it must be one that is there
        setattr(importlib.import_module(module), constant, value)
    if STEP_VARIABLE in os.environ:
        wanted, _, what = os.environ[STEP_VARIABLE].partition(":")
        Seams(wanted, signal.Signals[what]).put_on()
    main()
