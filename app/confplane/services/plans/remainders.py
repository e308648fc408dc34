"""The remainder of a run whose time was up, kept in memory for the request that continues it.

A request that continues a run would make the plan of the whole document again, to find the entities that are left. It
is the same client most of the time, and it comes at once, so that a process that keeps them need not. Each edit still
rests on its base, and is validated when it is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.services.changes.edits import Edit
from confplane.services.cooperative_yielding import in_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.changes.alter import Entry
    from confplane.services.changes.callers import Caller
    from confplane.services.plans.planned import Plan, PlannedEntry, PlanOptions
    from confplane.services.ports.manifest_runs import ManifestRun

_KEPT_S: Final = 60.0
"""Seconds for which a remainder is kept."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The parts by which the request that continues a run is recognized, besides its document and the run."""

    options: PlanOptions
    principal: str
    temporary: bool


class Remainder(NamedTuple):
    """The plan of a run, without its entries, and the entities that were not sent."""

    plan: Plan
    entries: list[PlannedEntry]


class _Kept(NamedTuple):
    """A remainder with the run, the writer and the request that left it."""

    place: tuple[str, str]
    writer: str
    request: _Request
    document: bytes
    remainder: Remainder


class Remainders:
    """Keeps the remainder of one run, the last. One instance serves all clusters of a process."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    async def keep(
        self, run: ManifestRun, document: Sequence[Entry], options: PlanOptions, caller: Caller, remainder: Remainder
    ) -> None:
        """Keep the remainder of a run, whose writer is this process, for a while."""
        lean = Remainder(replace(remainder.plan, entries=[]), remainder.entries)
        self._kept = kept = _Kept(_place(run), run.writer, _request(options, caller), await _digest(document), lean)
        asyncio.get_running_loop().call_later(_KEPT_S, self._drop, kept)

    async def take(
        self, run: ManifestRun, document: Sequence[Entry], options: PlanOptions, caller: Caller
    ) -> Remainder | None:
        """Return the remainder of a run, once; None if it is not kept, or the request is another one.

        Any request that continues the run leaves less than the remainder, so it is dropped.
        """
        kept = self._kept
        if kept is None or kept.place != _place(run):
            return None
        self._drop(kept)
        is_same = kept.writer == run.writer and kept.request == _request(options, caller)
        return kept.remainder if is_same and await _digest(document) == kept.document else None

    def _drop(self, kept: _Kept) -> None:
        if self._kept is kept:
            self._kept = None


def _place(run: ManifestRun) -> tuple[str, str]:
    return run.cluster, run.plan_id


def _request(options: PlanOptions, caller: Caller) -> _Request:
    return _Request(options, caller.principal, caller.revert_at is not None)


async def _digest(document: Sequence[Entry]) -> bytes:
    digest = hashlib.sha256()

    def add(entry: Entry) -> None:
        for cluster_facet, each in entry.items():
            edit = each if isinstance(each, Edit) else each.edit
            ops = [(op.key, op.value) for op in edit.ops]
            digest.update(json.dumps([cluster_facet.name, edit.entity.id, ops]).encode() + b"\n")

    await in_slices(add, document)
    return digest.digest()
