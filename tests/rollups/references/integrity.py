"""The reference of ``integrity``: plain Python over the tables' rows and the znodes, entity by entity.

Written from the definition at the head of app/confplane/rollups/jobs/integrity.py, and sharing nothing with it. Changes arrive in
the order of their entities, so that those of one entity at a time are in memory.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

Row = dict[str, Any]
Place = tuple[str, str]
Config = dict[str, str | None]

COLUMNS: Final = (
    "change_id", "entity_id", "facet", "path", "version_read", "czxid_read", "writes", "before", "after", "outcome",
    "revision", "version",
)  # fmt: skip
"""The columns of changes that are read."""
_CLIENT_CONFIGS: Final = "/confplane/client-configs"
_GAPS: Final = 1_000
_UNNOTIFIED: Final = timedelta(minutes=25)


class Options(NamedTuple):
    """The options of the job, by the same names."""

    as_of: datetime
    begin: int | None
    ceiling: int
    floor: int
    horizon: int
    recorded_since: int | None
    watermark: int | None


class _Left(NamedTuple):
    """The state that a change left; ``version`` is None where there is no znode, ``czxid`` where it is not known."""

    version: int | None
    czxid: int | None
    config: Config
    revision: int
    change_id: str


def tree_of(path: str) -> str:
    """The tree of a path."""
    return _CLIENT_CONFIGS if path.startswith(f"{_CLIENT_CONFIGS}/") else "/config"


def integrity(
    changes: Iterable[Row], znodes: Mapping[Place, Row], states: Mapping[Place, Row], options: Options
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the job, in the order of its columns.

    Args:
        changes: Rows with :data:`COLUMNS`; those of one tree and entity follow each other, in any order.
        znodes: Tree and entity -> the row of the frame.
        states: Tree and entity -> the row of the frame.
        options: As of the job.
    """
    seen: set[Place] = set()
    of_znodes = (row for row in changes if row["facet"] != "cluster")
    for place, found in itertools.groupby(of_znodes, key=lambda row: (tree_of(row["path"]), row["entity_id"])):
        assert place not in seen
        seen.add(place)
        yield from _of_entity(place, list(found), znodes.get(place), states.get(place), options)
    for place in {*znodes, *states} - seen:
        yield from _of_entity(place, [], znodes.get(place), states.get(place), options)


def _of_entity(
    place: Place, changes: list[Row], node: Row | None, state: Row | None, options: Options
) -> Iterator[tuple[Any, ...]]:
    history = sorted((row for row in changes if row["outcome"] == "committed"), key=lambda row: row["revision"])
    is_open = any(row["outcome"] == "open" for row in changes)
    left = [_left_by(row) for row in history]
    pending = is_open or _is_unseen(left, node, state, options)
    is_recent = _is_recent(node, state, options)
    for kind, *cells in _mismatches(history, left, node, state, options):
        may_go = kind not in {"rewound", "altered"} and (
            pending or (is_recent and kind in {"content", "version", "no_trail"})
        )
        yield (*place, kind, *cells, None if node is None else node["mzxid"], may_go)


def _is_recent(node: Row | None, state: Row | None, options: Options) -> bool:
    """Return whether the recorder may not have found a write without a notification yet."""
    return (
        options.watermark is not None
        and node is not None
        and options.as_of - node["mtime"] < _UNNOTIFIED
        and (state is None or state["mzxid"] < node["mzxid"])
    )


def _left_by(row: Row) -> _Left:
    czxid = row["revision"] if row["version_read"] is None else row["czxid_read"]
    if row["writes"] is not None and (
        row["version_read"] is None
        or (row["version"] is not None and row["writes"] != row["version"] - row["version_read"])
    ):
        czxid = None  # others made the znode in a run of writes, or made it anew
    return _Left(row["version"], czxid, dict(row["after"]), row["revision"], row["change_id"])


def _is_unseen(left: list[_Left], node: Row | None, state: Row | None, options: Options) -> bool:
    reached = options.horizon if options.watermark is None else min(options.watermark, options.horizon)
    if node is not None:
        return bool(node["mzxid"] > reached)
    if options.horizon < options.floor:
        return True
    is_kept = options.watermark is not None and state is not None and state["present"]
    if reached == options.horizon:
        return is_kept
    # Of changes up to the floor the last one is known, of later ones each.
    settled = [each.revision for each in left if each.revision <= options.floor]
    known = [*settled[-1:], *(each.revision for each in left if each.revision > options.floor)]
    return is_kept or any(reached < revision <= options.ceiling for revision in known)


def _mismatches(
    history: list[Row], left: list[_Left], node: Row | None, state: Row | None, options: Options
) -> Iterator[tuple[Any, ...]]:
    """Yield kind, key, revision and id of the trail, expected, found, and the versions of the trail and the znode."""
    version = None if node is None else node["version"]
    yield from list(_gaps(history, left, options))[-_GAPS:]
    lost = [each for each in left if each.revision > options.ceiling][-1:]
    if state is not None and state["mzxid"] > options.ceiling:
        highest = max([state["mzxid"], *(each.revision for each in lost)])
        of_state = state["version"] if state["present"] else None
        yield (
            "rewound", "", highest, lost[0].change_id if lost else None, None, None,
            lost[0].version if lost else of_state, version,
        )  # fmt: skip
        state = None
    elif lost:
        yield "rewound", "", lost[0].revision, lost[0].change_id, None, None, lost[0].version, version

    upto = options.ceiling if node is None else max(node["mzxid"], options.floor)
    last = next((each for each in reversed(left) if each.revision <= min(upto, options.ceiling)), None)
    trail = (0, None) if last is None else (last.revision, last.change_id)
    expected = None if last is None else last
    if state is not None and state["mzxid"] <= upto and (last is None or state["mzxid"] > last.revision):
        of_state = _Left(
            state["version"] if state["present"] else None, state["czxid"], dict(state["content"]) if state["present"] else {},
            state["mzxid"], "",
        )  # fmt: skip
        if last is None or not _is_same_znode(last, of_state):
            was_made = (
                options.recorded_since is not None and state["present"] and state["czxid"] > options.recorded_since
            )
            by_trail = {} if last is None or last.version is None else last.config
            expected = of_state
            if not _alike(by_trail, of_state.config) and (last is not None or was_made):
                yield "state", "", *trail, None, None, of_state.version, version
            elif last is not None:
                expected = of_state._replace(config=by_trail)
    if expected is not None and expected.czxid is None and state is not None and state["version"] == expected.version:
        expected = expected._replace(czxid=state["czxid"])
    yield from _compared(expected, node, trail, options)


def _gaps(history: list[Row], left: list[_Left], options: Options) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(history):
        read, before = row["version_read"], dict(row["before"])
        if not number:
            if read is None:
                yield from _altered(row, {}, before, None)
            # Before the trail a znode may have had any content.
            is_later = read is not None and options.begin is not None and row["czxid_read"] > options.begin
            if is_later and not _alike({}, before):
                yield "gap", "", row["revision"], row["change_id"], None, None, None, read
            continue
        known = left[number - 1]
        if known.version is None:
            joins = read is None
        else:
            joins = read == known.version and (
                known.czxid is None or row["czxid_read"] is None or row["czxid_read"] == known.czxid
            )
        content = {} if known.version is None else known.config
        if joins:
            yield from _altered(row, content, before, known.version)
        elif not _alike(content, before):
            yield "gap", "", row["revision"], row["change_id"], None, None, known.version, read


def _altered(row: Row, left: Config, before: Config, version: int | None) -> Iterator[tuple[Any, ...]]:
    for key in {**left, **before}:
        if not _alike(
            {name: left[name] for name in {key} & left.keys()}, {name: before[name] for name in {key} & before.keys()}
        ):
            yield (
                "altered", key, row["revision"], row["change_id"], left.get(key), before.get(key), version,
                row["version_read"],
            )  # fmt: skip


def _is_same_znode(last: _Left, state: _Left) -> bool:
    if last.version is None or state.version is None:
        return last.version is state.version
    return last.version == state.version and last.czxid in {None, state.czxid}


def _compared(
    expected: _Left | None, node: Row | None, trail: tuple[int, str | None], options: Options
) -> Iterator[tuple[Any, ...]]:
    is_expected = expected is not None and expected.version is not None
    trail_version = None if expected is None else expected.version
    if node is None:
        if expected is not None and is_expected and expected.config and expected.revision <= options.floor:
            yield "no_znode", "", *trail, None, None, trail_version, None
        return
    if node["forbidden"]:
        return
    config = dict(node["config"])
    if expected is None or not is_expected:
        is_new = options.watermark is not None or (options.begin is not None and node["czxid"] > options.begin)
        if config and (expected is not None or is_new):
            yield "no_trail", "", *trail, None, None, None, node["version"]
        return
    found = False
    for key in {} if node["undecodable"] else {**expected.config, **config}:
        wanted, has = expected.config.get(key), config.get(key)
        if (key in expected.config) != (key in config) or (None not in {wanted, has} and wanted != has):
            found = True
            yield "content", key, *trail, wanted, has, trail_version, node["version"]
    if not found and (node["version"] != expected.version or expected.czxid not in {None, node["czxid"]}):
        yield "version", "", *trail, None, None, trail_version, node["version"]


def _alike(one: Config, other: Config) -> bool:
    return one.keys() == other.keys() and all(None in {one[key], other[key]} or one[key] == other[key] for key in one)
