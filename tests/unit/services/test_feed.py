"""Decisions of the feed: what is external, what a consumer gets, and which tokens are positions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from confplane.domain.access.ranges import NOTHING, NameRanges
from confplane.domain.base64url import encode_base64url
from confplane.domain.changes import Node
from confplane.domain.entities import EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.feed.events import FeedFilter, event_of
from confplane.services.feed.merge import LATE, external_change, steps_of, unexplained, with_complete_states
from confplane.services.feed.positions import FeedPosition, SnapshotPlace, decode, encode
from confplane.services.ports.feed import FeedChange, FeedEntity
from confplane.services.ports.journal import JournalEntry
from confplane.services.ports.trail import LAST_ID, HistoryPlace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RATE = "producer_byte_rate"
ALICE = "user=alice"
PATH = "/config/users/alice"
FACETS: Any = {FacetName.CLIENT_QUOTAS: SimpleNamespace(facet=ClientQuotasFacet())}


def node(version: int, mzxid: int, czxid: int = 10) -> Node:
    return Node(ALICE, (RATE, str(version)), version, czxid, mzxid, mzxid)


def own(revision: int, version_read: int | None, version: int, kind: str = "change") -> FeedChange:
    before = {} if version_read is None else {RATE: str(version_read)}
    czxid = None if version_read is None else 10
    entity = FeedEntity(ALICE, PATH, version_read, czxid, version, None, [RATE], before, {RATE: str(version)})
    place = HistoryPlace(1, revision, UUID(int=(revision << 80) + 1))
    return FeedChange(place, revision, kind, "User:one", None, None, None, [entity])


def plain(_tree: Tree, _entity_id: str, config: Mapping[str, str]) -> dict[str, str | None]:
    return dict(config)


@pytest.mark.parametrize(
    ("entries", "changes", "gaps"),
    [
        ([(None, node(0, 10))], [own(10, None, 0)], []),
        ([(None, node(0, 10))], [], [(None, "0", 10)]),
        ([(node(0, 10), node(2, 14))], [own(12, 0, 1), own(14, 1, 2)], []),
        ([(node(0, 10), node(2, 14))], [own(14, 1, 2)], [("0", "1", 13)]),
        ([(node(0, 10), node(2, 14))], [own(12, 0, 1)], [("1", "2", 14)]),
        ([(node(0, 10), node(1, 12)), (node(1, 12), node(2, 14))], [own(12, 0, 1), own(14, 1, 2)], []),
        ([(node(1, 12), node(2, 14))], [own(12, 0, 1), own(14, 1, 2)], []),
        ([(node(0, 10), None)], [], [("0", None, 20)]),
        ([(node(3, 16), node(0, 18, 18))], [], [("3", "0", 18)]),
        # The recorder's own row explains nothing: the feed finds external writes itself.
        ([(node(0, 10), node(1, 12))], [own(12, 0, 1, "external")], [("0", "1", 12)]),
    ],
    ids=[
        "created by us",
        "created by others",
        "two changes seen as one write",
        "another before ours",
        "another after ours",
        "two entries of the journal",
        "a change that was seen before",
        "deleted",
        "created again",
        "recorded already",
    ],
)
def test_versions_that_no_change_explains_are_external(
    entries: Sequence[tuple[Node | None, Node | None]],
    changes: Sequence[FeedChange],
    gaps: Sequence[tuple[str | None, str | None, int]],
) -> None:
    steps = steps_of(JournalEntry(20, Tree.CONFIG, ALICE, *each) for each in entries)
    found = unexplained(steps, changes, plain, 20, 20)
    assert [
        (each.gap.before.content.get(RATE), each.gap.after.content.get(RATE), each.gap.revision) for each in found
    ] == gaps
    for each in found:
        change = external_change("default", each, HistoryPlace(1, 20, LAST_ID))
        assert change is not None
        assert (change.kind, change.entities[0].keys) == ("external", [RATE])
        assert change == external_change("default", each, HistoryPlace(1, 20, LAST_ID))


def test_a_write_that_changes_no_value_is_no_external_change() -> None:
    old = node(0, 10)
    [gap] = unexplained(
        steps_of([JournalEntry(12, Tree.CONFIG, ALICE, old, old._replace(version=1, mzxid=12))]), (), plain, 12, 12
    )
    assert external_change("default", gap, HistoryPlace(1, 12, LAST_ID)) is None


OTHER = "consumer_byte_rate"


def two_keys(version: int, rate: int, mzxid: int, czxid: int = 10) -> Node:
    return Node(ALICE, (RATE, str(rate), OTHER, "7"), version, czxid, mzxid, mzxid)


@pytest.mark.parametrize(
    ("before", "after", "keys", "complete"),
    [
        (two_keys(0, 1, 10), two_keys(1, 2, 12), [(RATE, 1, 2)], False),
        (two_keys(0, 1, 10), two_keys(2, 2, 14), [(OTHER, 7, 7), (RATE, 1, 2)], True),
        (two_keys(0, 1, 10), two_keys(1, 2, 16, czxid=14), [(OTHER, 7, 7), (RATE, 1, 2)], True),
        (None, two_keys(0, 2, 14), [(OTHER, None, 7), (RATE, None, 2)], False),
        (two_keys(0, 1, 10), None, [(OTHER, 7, None), (RATE, 1, None)], True),
    ],
    ids=["one write", "two writes", "created again", "created", "deleted"],
)
def test_external_writes_of_which_another_process_may_have_shown_each_come_with_all_keys(
    before: Node | None, after: Node | None, keys: Sequence[tuple[str, int | None, int | None]], *, complete: bool
) -> None:
    [gap] = unexplained(steps_of([JournalEntry(20, Tree.CONFIG, ALICE, before, after)]), (), plain, 20, 20)
    change = external_change("default", gap, HistoryPlace(1, 20, LAST_ID))
    assert change is not None
    event = event_of(change, FACETS, FeedPosition(change.place, 20))
    assert event is not None
    [part] = event.parts
    assert part.complete == complete
    assert [(each.key, each.before, each.after) for each in part.keys] == keys
    # A key that an earlier one of them may have added is gone.
    selected = FeedFilter(key="request_percentage").select(event, None, lambda _: False)
    assert (selected is not None) == complete


_LATE_MS = LATE // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("version_read", "time_ms", "loaded", "complete"),
    [
        (1, 15, 13, True),
        (1, 12 + _LATE_MS, 13, True),
        (1, 13 + _LATE_MS, 13, False),
        (2, 15, 13, False),
        (1, 15, 11, False),
        (None, 15, 13, False),
    ],
    ids=["first", "just in time", "notified by then", "second", "loaded before it", "created again"],
)
def test_the_first_change_of_an_entity_after_a_load_has_all_keys(
    version_read: int | None, time_ms: int, loaded: int, *, complete: bool
) -> None:
    steps = {each.path: each for each in steps_of([JournalEntry(20, Tree.CONFIG, ALICE, node(1, 12), node(3, 20))])}
    change = replace(own(15, version_read, 2), time_ms=time_ms)
    [entity] = with_complete_states(change, steps, loaded).entities
    assert entity.complete == complete


@pytest.mark.parametrize(
    ("wanted", "visible", "got"),
    [
        ({}, None, 1),
        ({"entity_id": ALICE}, None, 1),
        ({"entity_id": "user=bob"}, None, None),
        ({"entity_type": EntityType.USER}, None, 1),
        ({"entity_type": EntityType.CLIENT_ID}, None, None),
        ({"facet": FacetName.CONFIGS}, None, None),
        ({"user": "alice"}, None, 1),
        ({"prefix": "al"}, None, 1),
        ({"prefix": "b"}, None, None),
        ({"key": RATE}, None, 1),
        ({"key": "consumer_byte_rate"}, None, None),
        ({"principal": "User:one"}, None, 1),
        ({"principal": "User:two"}, None, None),
        ({}, NOTHING, None),
        ({}, NameRanges(("user=a",), ("user=b",)), 1),
    ],
)
def test_a_consumer_gets_what_it_asks_for_and_may_see(
    wanted: dict[str, Any], visible: NameRanges | None, got: int | None
) -> None:
    change = own(12, 0, 1)
    event = event_of(change, FACETS, FeedPosition(change.place, 12))
    assert event is not None
    selected = FeedFilter(**wanted).select(event, visible, lambda _: False)
    assert (None if selected is None else len(selected[0])) == got


def test_a_position_is_read_back_and_no_other_text_is_one() -> None:
    position = FeedPosition(HistoryPlace(3, 8_589_934_635, UUID(int=7)), 1_767_225_600_000)
    token = encode("default", position)
    assert decode("default", token, "after") == position
    in_snapshot = position._replace(snapshot=SnapshotPlace(FacetName.CONFIGS, "topic=orders"))
    assert decode("default", encode("default", in_snapshot), "after") == in_snapshot
    elsewhere = encode_base64url(b"3@1@" + b"0" * 32 + b"@1@default\nquotas\nuser=alice")
    never = encode("default", position._replace(time_ms=253_402_300_800_000))  # the year 10000
    for text in ("", "x", token[:-1], token + "A", "é", encode("other", position), "A" * 600, never, elsewhere):
        with pytest.raises(InvalidRequestError) as caught:
            decode("default", text, "after")
        assert caught.value.pointer == "after"
