"""Changes of ours that the trail lost, against what they did: contents are told where they are certain, else not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.znode_versions import OwnWrite, Point, gaps
from confplane.services.ports.store import Marker
from confplane.services.recorder.recover import LostChanges, as_writes, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = "/config/users/alice"


def point(version: int, mzxid: int, **content: str) -> Point:
    return Point(present=True, czxid=5, version=version, mzxid=mzxid, content=dict(content))


def marker(revision: int, version: int) -> Marker:
    return Marker(
        UUID(int=revision << 80 | 0x7 << 76 | 0b10 << 62), committed=True, attempt=1, revision=revision,
        time_ms=revision, versions={PATH: version},
    )  # fmt: skip


def test_one_lost_change_is_reported_completely() -> None:
    start, end = point(3, 10, a="1"), point(4, 20, a="2", b="1")
    [write] = as_writes(PATH, [marker(20, 4)], start, [], end)
    assert (write.before, write.after) == ({"a": "1"}, {"a": "2", "b": "1"})
    assert (write.version_read, write.czxid) == (3, 5)
    assert gaps(start, [write], end, 1) == []


def test_one_before_a_change_that_is_known_left_what_that_one_saw() -> None:
    start, end = point(3, 10, a="1"), point(5, 30, a="3")
    known = OwnWrite(30, 30, 29, 4, 5, 5, {"a": "2"}, {"a": "3"})
    [write] = as_writes(PATH, [marker(20, 4)], start, [known], end)
    assert (write.before, write.after) == ({"a": "1"}, {"a": "2"})
    assert gaps(start, [known, write], end, 1) == []


def test_unobserved_changes_are_not_reported() -> None:
    start, end = point(3, 10, a="1", same="7"), point(5, 30, a="3", same="7")
    first, second = as_writes(PATH, [marker(20, 4), marker(30, 5)], start, [], end)
    assert (first.before, first.after) == ({"a": "1", "same": "7"}, {"a": None, "same": "7"})
    assert (second.before, second.after) == (first.after, {"a": "3", "same": "7"})


def test_a_lost_creation_and_a_lost_change_on_an_externally_recreated_znode() -> None:
    absent = Point(present=False, czxid=5, mzxid=10)
    created = Point(present=True, czxid=20, version=0, mzxid=20, content={"a": "1"})
    [write] = as_writes(PATH, [marker(20, 0)], absent, [], created)
    assert (write.version_read, write.before, write.after) == (None, {}, {"a": "1"})
    anew = Point(present=True, czxid=15, version=1, mzxid=20, content={"a": "2"})
    [write] = as_writes(PATH, [marker(20, 1)], point(3, 10, a="1"), [], anew)
    assert (write.version_read, write.czxid, write.after) == (0, 15, {"a": "2"})
    [gap] = gaps(point(3, 10, a="1"), [write], anew, 1)
    assert (gap.before.version, gap.after.czxid, gap.after.version) == (3, 15, 0)


def test_a_lost_removal_ends_the_znode() -> None:
    start, gone = point(3, 10), Point(present=False, czxid=5, mzxid=25)
    removal = Marker(
        UUID(int=20), committed=True, attempt=1, revision=20, time_ms=20, removed={PATH: 3}, principal="User:admin"
    )
    [write] = as_writes(PATH, [removal], start, [], gone)
    assert (write.version_read, write.czxid, write.version, write.before, write.after) == (3, 5, None, {}, {})
    assert gaps(start, [write], gone, 1) == []
    row = row_of(PATH, removal, write)
    assert (row["versions"], row["position"], row["version_read"], row["keys"]) == ({}, 0, 3, [])


def test_changes_that_the_states_already_show_are_not_lost() -> None:
    assert as_writes(PATH, [marker(10, 3)], point(3, 10), [], point(3, 10)) == []


@given(st.lists(st.sampled_from(["lost", "own", "others"]), max_size=10))
def test_each_write_is_lost_ours_or_in_a_run_of_external_changes(steps: list[str]) -> None:
    start = at = point(0, 5, k="0")
    markers, own, others, truth = [], [], 0, {}
    for number, what in enumerate(steps, 1):
        now = point(number, 10 * number, k=str(number))
        if what == "lost":
            markers.append(marker(now.mzxid, now.version))
            truth[now.mzxid] = (at.content, now.content)
        elif what == "own":
            own.append(OwnWrite(now.mzxid, 1, 1, at.version, 5, now.version, at.content, now.content))
        else:
            others += 1
        at = now
    found = as_writes(PATH, markers, start, own, at)
    assert [write.revision for write in found] == [each.revision for each in markers]
    found_gaps = gaps(start, [*own, *found], at, 1)
    assert sum(gap.writes for gap in found_gaps) == others
    for write in found:
        for told, true in zip((write.before, write.after), truth[write.revision], strict=True):
            assert told["k"] in {None, true["k"]}


class _Stores:
    """A cluster and a trail that lacks each change with a marker; counts the lists of markers."""

    def __init__(self) -> None:
        self.recording = self
        self.lists = 0

    def freshness(self) -> tuple[int, int]:
        return 0, 0

    async def markers(self) -> list[UUID]:
        self.lists += 1
        return [marker(20, 4).change_id]

    async def lost(self, change_ids: Sequence[UUID]) -> list[UUID]:
        return list(change_ids)

    async def commits(self, change_ids: Sequence[UUID]) -> list[Marker]:
        return [marker(20, 4) for _ in change_ids]


async def test_lost_changes_are_searched_from_a_suspicion_until_all_is_explained() -> None:
    stores = _Stores()
    search = LostChanges(cast("Any", stores), cast("Any", stores), seconds=-1)
    assert (await search.found(20), stores.lists) == ({}, 0)
    search.suspect()
    for revision in (20, 30):
        assert await search.found(revision) == {PATH: [marker(20, 4)]}
    assert stores.lists == 2
    search.all_explained()
    assert (await search.found(40), stores.lists) == ({}, 2)
