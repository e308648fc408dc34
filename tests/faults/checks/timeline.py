"""The states that each config node went through, from ZooKeeper's own log: what really happened.

The other modules of the checker compare the responses and the trail with it.
"""

from __future__ import annotations

import functools
import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.faults.history import NodeEvent

Config = dict[str, str]
Shown = tuple[tuple[str, str], ...]
"""A facet's keys and values, sorted, in a form in which equal values are equal."""

NEVER: Final = 1 << 63
"""A zxid that comes after all others."""
_SINGLE: Final = 2
_PAIR: Final = 4
_TREES: Final = ("/config", "/confplane/client-configs")
_TYPES: Final = frozenset({"users", "clients", "ips", "topics", "brokers"})
_QUOTAS: Final = frozenset(
    {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
)
_WRITERS: Final = "/confplane/writers/"
_NOTIFICATIONS: Final = "/config/changes/config_change_"
_MARKERS: Final = "/confplane/commits/"


def is_entity(path: str) -> bool:
    """Say whether a znode is an entity's, and no root, no folder between two and no notification."""
    for tree in _TREES:
        if path.startswith(f"{tree}/"):
            parts = path[len(tree) + 1 :].split("/")
            if parts[0] not in _TYPES:
                return False
            return len(parts) == _SINGLE or (len(parts) == _PAIR and parts[0] == "users" and parts[2] == "clients")
    return False


def ancestors(path: str) -> list[str]:
    """Return the paths above a path, the root left out."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def parse(data: str | None) -> Config | None:
    """Return the config that a znode holds; None where it is absent or can't be read."""
    if data is None:
        return None
    if not data:
        return {}
    try:
        config = json.loads(data)["config"]
    except (ValueError, TypeError, KeyError):
        return None
    return config if isinstance(config, dict) else None


def owns(facet: str, path: str, key: str) -> bool:
    """Say whether a key of a znode belongs to a facet."""
    if facet == "node" or path.startswith(("/config/topics/", "/config/brokers/")):
        return True
    if facet == "client-quotas":
        return key in _QUOTAS
    return key not in _QUOTAS and not key.startswith("SCRAM-")


def shown(facet: str, path: str, config: Mapping[str, object] | None) -> Shown:
    """Return a facet's part of a znode's config, or of an answer about it."""
    if not config:
        return ()
    return tuple(sorted((key, plain(value)) for key, value in config.items() if owns(facet, path, key)))


@functools.lru_cache(maxsize=100_000)
def plain(value: object) -> str:
    """Return a value such that a number and its text are equal."""
    try:
        return str(Decimal(str(value)).normalize())
    except InvalidOperation:
        return str(value)


@dataclass(frozen=True, slots=True)
class State:
    """The state of an entity's znode from one transaction on."""

    zxid: int
    """Of the transaction that brought it about; 0 of the absence at the very beginning."""
    czxid: int
    """Of an absent one: that of the znode which was there before, 0 where there was none."""
    version: int | None
    """None: it is absent."""
    config: Config | None
    session: int
    data: str | None

    @property
    def present(self) -> bool:
        """True while the znode exists."""
        return self.version is not None

    def __str__(self) -> str:
        """Return it as evidence."""
        if not self.present:
            return f"zxid {self.zxid}: absent"
        return (
            f"zxid {self.zxid}: version {self.version} (czxid {self.czxid}), by session {self.session:#x}: {self.data}"
        )


BEGINNING: Final = State(0, 0, None, None, 0, None)


@dataclass(slots=True)
class Timeline:
    """The states of one path, in order. The first is the absence before all."""

    path: str
    states: list[State] = field(default_factory=lambda: [BEGINNING])
    zxids: list[int] = field(default_factory=lambda: [0])
    notified: list[int] = field(default_factory=list)
    """The zxids of the path's notifications, in order."""
    _facets: dict[str, tuple[list[Shown], dict[Shown, list[int]]]] = field(default_factory=dict)

    def append(self, state: State) -> None:
        """Add the next state."""
        self.states.append(state)
        self.zxids.append(state.zxid)

    def index_of(self, zxid: int) -> int | None:
        """Return the index of the state that a transaction brought about; None where it did not touch this path."""
        at = bisect_left(self.zxids, zxid)
        return at if 0 < at < len(self.zxids) and self.zxids[at] == zxid else None

    def index_at(self, zxid: int) -> int:
        """Return the index of the state at a zxid."""
        return bisect_right(self.zxids, zxid) - 1

    def until(self, index: int) -> int:
        """Return the zxid from which a reader must know that a state had ended; ``NEVER`` of the last.

        That is the notification of a later one. Others write theirs after the node, if at all.
        """
        if index + 1 == len(self.zxids):
            return NEVER
        at = bisect_left(self.notified, self.zxids[index + 1])
        return self.notified[at] if at < len(self.notified) else NEVER

    def shown(self, facet: str, index: int) -> Shown:
        """Return a facet's part of a state."""
        return self._of(facet)[0][index]

    def with_content(self, facet: str, content: Shown) -> Sequence[int]:
        """Return the indices of the states with this content of a facet, in order."""
        return self._of(facet)[1].get(content, ())

    def _of(self, facet: str) -> tuple[list[Shown], dict[Shown, list[int]]]:
        found = self._facets.get(facet)
        if found is None:
            every = [shown(facet, self.path, state.config) for state in self.states]
            by_content: dict[Shown, list[int]] = defaultdict(list)
            for index, content in enumerate(every):
                by_content[content].append(index)
            found = self._facets[facet] = (every, dict(by_content))
        return found


def certain_writes(before: State, after: State) -> int:
    """Return how many writes certainly lie between two states of a znode: a creation and a deletion count as one each."""
    if before.version is not None and after.version is not None and before.czxid == after.czxid:
        return after.version - before.version
    return before.present + (0 if after.version is None else after.version + 1)


def is_parent(state: State) -> bool:
    """Say whether a znode was made without content, as the parent of another; the trail has no row of that."""
    return state.version == 0 and not state.config


def latest_before(timeline: Timeline, indices: Sequence[int], zxid: int) -> int | None:
    """Return the last of some states that was brought about before a zxid."""
    at = bisect_left(indices, zxid, key=lambda index: timeline.zxids[index])
    return indices[at - 1] if at else None


@dataclass(frozen=True, slots=True)
class Log:
    """ZooKeeper's log, by path."""

    timelines: dict[str, Timeline]
    """Of each entity that was ever there."""
    ours: frozenset[int]
    """The sessions of Confplane's processes: those that made a writer node."""
    gaps: list[tuple[str, State, State]]
    """Path and two states that can't follow each other."""
    marked: frozenset[tuple[int, str]]
    """The zxids of transactions, each with the id of a change whose marker it made as that of a commit."""
    notifications: dict[int, list[list[str]]]
    """By zxid, the paths of each notification, in order."""

    @classmethod
    def of(cls, events: Iterable[NodeEvent]) -> Log:
        """Read the events, in order."""
        timelines: dict[str, Timeline] = {}
        ours: set[int] = set()
        gaps: list[tuple[str, State, State]] = []
        marked: set[tuple[int, str]] = set()
        notifications: dict[int, list[list[str]]] = defaultdict(list)
        for event in events:
            if event.path.startswith(_WRITERS) and event.version == 0:
                ours.add(event.session)
            if event.path.startswith(_MARKERS) and event.version == 0 and _commits(event.data):
                marked.add((event.zxid, event.path.removeprefix(_MARKERS)))
            if event.path.startswith(_NOTIFICATIONS) and event.version == 0:
                paths = _notified(event.data)
                notifications[event.zxid].append(paths)
                for path in paths:
                    timelines.setdefault(path, Timeline(path)).notified.append(event.zxid)
            if not is_entity(event.path):
                continue
            timeline = timelines.setdefault(event.path, Timeline(event.path))
            before = timeline.states[-1]
            created = event.version is not None and not before.present
            state = State(
                event.zxid,
                event.zxid if created else before.czxid,
                event.version,
                parse(event.data),
                event.session,
                event.data,
            )
            if not _follows(before, state):
                gaps.append((event.path, before, state))
            timeline.append(state)
        return cls(timelines, frozenset(ours), gaps, frozenset(marked), dict(notifications))

    def of_path(self, path: str) -> Timeline:
        """Return a path's timeline, also where the path was never there."""
        return self.timelines.get(path) or Timeline(path)


def _notified(data: str | None) -> list[str]:
    """Return the paths that a notification is of: both trees have the same ones."""
    entity = json.loads(data or "{}").get("entity_path", "")
    return [f"{tree}/{entity}" for tree in _TREES]


def _commits(data: str | None) -> bool:
    """Say whether a marker is that of a commit, and not an abort marker."""
    return bool(json.loads(data or "{}").get("state") == "committed")


def _follows(before: State, state: State) -> bool:
    if state.zxid <= before.zxid:
        return False
    if state.version is None:
        return before.present
    return state.version == (0 if before.version is None else before.version + 1)
