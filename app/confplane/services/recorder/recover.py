"""Changes of this service that the trail lost: found by their markers in ZooKeeper.

Postgres may lose rows that it confirmed: a lagging standby is promoted, or a backup is restored. For at least a minute
each such change still has its marker, with its author and the versions that it wrote; a marker without an intent
shows the loss. The recorder then writes the change's row again, as **recovered**, with the change's own id. The ops of
the change are lost; its contents are recorded as far as the states around it show them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.znode_versions import OwnWrite, changed_keys
from confplane.services.ports.recording import RECOVERED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from uuid import UUID

    from confplane.domain.znode_versions import Content, Point
    from confplane.services.ports.recording import EntityStates, RecordedStore
    from confplane.services.ports.store import Marker

_PIECE: Final = 2_000
"""Markers of one query of the trail, and of one read of ZooKeeper."""


class LostChanges:
    """The search for lost changes in one cluster, after a reason to suspect a loss.

    The search lasts until all entities were compared and explained, however long this takes, and for a while longer.
    Each marker is read once in a search.

    Args:
        store: The cluster.
        states: The trail.
        seconds: Seconds of the search after everything was explained: a change may have been under way, and commit
            later.
    """

    def __init__(self, store: RecordedStore, states: EntityStates, *, seconds: float) -> None:
        self._store = store
        self._states = states
        self.seconds = seconds
        self._until = float("-inf")
        self._forget()

    def _forget(self) -> None:
        self._listed_at = -1
        self._read: set[UUID] = set()
        self._by_path: dict[str, list[Marker]] = {}

    def suspect(self) -> None:
        """Search from now on."""
        self._forget()
        self._until = float("inf")

    def all_explained(self) -> None:
        """Take note that each entity was compared and explained since the suspicion."""
        self._until = min(self._until, time.monotonic() + self.seconds)

    async def found(self, revision: int) -> Mapping[str, Sequence[Marker]]:
        """Return the markers of lost changes up to a revision, by the paths that they wrote.

        A change whose row was written again is among them: other entities of the change may still lack their part.

        Args:
            revision: The revision, of a state that the mirror has seen.

        Raises:
            UnavailableError: A store is unavailable. Markers read so far stay known.
        """
        if time.monotonic() > self._until:
            self._forget()
        elif revision > self._listed_at:
            freshness = self._store.freshness()
            # The markers are listed first: an intent is durable before its marker, so an intent missing by then is
            # lost.
            marked = [change_id for change_id in await self._store.recording.markers() if change_id not in self._read]
            for start in range(0, len(marked), _PIECE):
                await self._take(marked[start : start + _PIECE])
            self._listed_at = -1 if freshness is None else freshness[0]
        return self._by_path

    async def _take(self, marked: Sequence[UUID]) -> None:
        lost = await self._states.lost(marked)
        for marker in await self._store.recording.commits(lost) if lost else ():
            for path in (*marker.versions, *marker.removed):
                self._by_path.setdefault(path, []).append(marker)
        self._read.update(marked)


def as_writes(
    path: str, markers: Iterable[Marker], start: Point, own: Sequence[OwnWrite], end: Point
) -> list[OwnWrite]:
    """Return the writes of lost changes to one entity, with contents as far as they are known.

    Args:
        path: The path of the entity's znode.
        markers: The markers of the lost changes.
        start: The last state that the trail explains, its content known.
        own: Changes of this service that are not lost, with their contents.
        end: The state seen, its content known.
    """
    lost = {marker.revision: marker for marker in markers if start.mzxid < (marker.revision or 0) <= end.mzxid}
    steps: list[tuple[OwnWrite, bool]] = [(write, True) for write in own]
    steps += [(_bare(path, marker), False) for marker in lost.values()]
    steps.sort(key=lambda step: step[0].revision)
    steps = _with_creations(steps, start, end)
    between = {
        key: start.content.get(key) if start.content.get(key) == end.content.get(key) else None
        for key in start.content.keys() | end.content.keys()
    }
    afters: list[Content] = []
    for index, (write, known) in enumerate(steps):
        following = steps[index + 1] if index + 1 < len(steps) else None
        if known:
            afters.append(write.after)
        elif write.version is None:
            afters.append({})
        elif following is None:
            joins = (end.present, end.czxid, end.version) == (True, write.czxid or write.revision, write.version)
            afters.append(end.content if joins else between)
        else:
            afters.append(following[0].before if following[1] and _joins(write, following[0]) else between)
    found = []
    for index, (write, known) in enumerate(steps):
        if known:
            continue
        before: Content = {} if write.version_read is None else between
        if write.version_read is not None:
            if index and _joins(steps[index - 1][0], write):
                before = afters[index - 1]
            elif (start.present, start.czxid, start.version) == (True, write.czxid, write.version_read):
                before = start.content
        found.append(replace(write, before=before, after=afters[index]))
    return found


def _bare(path: str, marker: Marker) -> OwnWrite:
    version = marker.versions.get(path)
    read = marker.removed[path] if version is None else version - 1 if version else None
    return OwnWrite(marker.revision or 0, marker.time_ms or 0, marker.change_id.int >> 80, read, None, version)


def _with_creations(steps: Sequence[tuple[OwnWrite, bool]], start: Point, end: Point) -> list[tuple[OwnWrite, bool]]:
    """Add the znodes that the lost changes were made on: a marker has only the version."""
    czxid = start.czxid if start.present else 0
    found: list[tuple[OwnWrite, bool]] = []
    for write, known in steps:
        if end.present and czxid < end.czxid < write.revision:
            czxid = end.czxid
        if known:
            czxid = write.revision if write.version_read is None else write.czxid or czxid
            found.append((write, known))
        elif write.version_read is None:
            czxid = write.revision
            found.append((write, known))
        else:
            found.append((replace(write, czxid=czxid), known))
    return found


def _joins(write: OwnWrite, following: OwnWrite) -> bool:
    """Return True if a change was made on the state that another change left."""
    left = write.revision if write.version_read is None else write.czxid
    return (left, write.version) == (following.czxid, following.version_read)


def parents(lost: Mapping[str, Sequence[Marker]], path: str, znodes: Container[int]) -> list[OwnWrite]:
    """Return the creations of a user's znode by lost changes that created pairs below the user.

    Args:
        lost: The markers of the lost changes, by the paths that they wrote.
        path: The path of the user's znode.
        znodes: The czxids of the user's znodes that nothing else explains.
    """
    found = {
        marker.revision: _bare(pair, marker)
        for pair, markers in lost.items()
        if pair.startswith(f"{path}/")
        for marker in markers
        if marker.versions.get(pair) == 0 and marker.revision in znodes
    }
    return list(found.values())


def row_of(path: str, marker: Marker, write: OwnWrite) -> dict[str, Any]:
    """Return the row of a lost change."""
    return {
        "change_id": str(marker.change_id),
        "path": path,
        "revision": marker.revision,
        "time_ms": marker.time_ms,
        "writes": 1,
        "version_read": write.version_read,
        "czxid_read": write.czxid,
        "versions": marker.versions,
        "keys": changed_keys(write.before, write.after),
        "before": write.before,
        "after": write.after,
        "reason": "Found by its marker in ZooKeeper: Postgres had lost it, and with it what was asked for",
        "kind": RECOVERED,
        "attempt": marker.attempt,
        "principal": marker.principal,
        "writer": marker.writer,
        "request_id": marker.request_id,
        "position": sorted((*marker.versions, *marker.removed)).index(path),
    }


def by_revision(markers: Mapping[str, Sequence[Marker]], path: str) -> dict[int, Marker]:
    """Return the markers of a path by the revisions of their changes."""
    return {marker.revision or 0: marker for marker in markers.get(path, ())}
