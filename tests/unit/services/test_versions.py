"""The chain of an entity's states, against a plain model of who wrote what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.znode_versions import ABSENT, OwnWrite, Point, explained, gaps

if TYPE_CHECKING:
    from confplane.domain.znode_versions import Content

QUOTA, CONFIG = "quota", "config"
STEPS = st.lists(
    st.sampled_from(["own quota", "own config", "own removal", "quota", "config", "both", "delete"]), max_size=14
)


class World:
    """One znode, and everything that happened to it."""

    def __init__(self) -> None:
        self.now = ABSENT
        self.own: list[OwnWrite] = []
        self.external = 0
        self.zxid = 100
        self.contents: dict[tuple[int, int], Content] = {}

    def _write(self, content: Content) -> Point:
        self.zxid += 3
        now = self.now
        place = (now.czxid, now.version + 1) if now.present else (self.zxid, 0)
        self.contents[place] = content
        return Point(present=True, czxid=place[0], version=place[1], mzxid=self.zxid, content=content)

    def step(self, what: str) -> None:
        before, value = self.now, str(self.zxid)
        if what.startswith("own"):
            if what == "own removal" and not before.present:
                return
            key = CONFIG if what == "own config" else QUOTA
            self.now = self._write({**before.content, key: value})
            if what == "own removal":
                self.now = Point(present=False, czxid=before.czxid, version=-1, mzxid=self.zxid)
            self.own.append(
                OwnWrite(
                    self.zxid, self.zxid, self.zxid - 1,
                    before.version if before.present else None, before.czxid if before.present else None,
                    self.now.version if self.now.present else None, before.content, self.now.content,
                )
            )  # fmt: skip
        elif what == "delete":
            if before.present:
                self.zxid += 3
                self.external += 1
                self.now = Point(present=False, czxid=before.czxid, version=-1, mzxid=self.zxid)
        else:
            names = {"quota": [QUOTA], "config": [CONFIG], "both": [QUOTA, CONFIG]}[what]
            self.now = self._write({**before.content, **dict.fromkeys(names, value)})
            self.external += 1


@given(STEPS, STEPS)
def test_every_write_is_ours_or_in_a_run_of_external_changes(first: list[str], then: list[str]) -> None:
    world = World()
    for what in first:
        world.step(what)
    start, others, ours = world.now, world.external, len(world.own)
    for what in then:
        world.step(what)
    others = world.external - others
    found_gaps = gaps(start, world.own, world.now, 7)
    assert explained(start, world.own, world.now) is (not found_gaps)
    if not others:
        assert found_gaps == []
    deleted = any(what == "delete" for what in then)
    if not deleted:
        # What a znode lived through between two states is counted by its versions.
        assert sum(gap.writes for gap in found_gaps) == others
    # The chain has no break: each gap begins where a change of ours or the start left off, and ends where one begins.
    at = start
    steps = [(write.revision, write) for write in world.own[ours:]]
    for gap in found_gaps:
        while steps and steps[0][0] <= gap.revision:
            _, write = steps.pop(0)
            at = Point(write.version is not None, write.czxid or write.revision, write.version or 0)
        assert gap.before.same(at) or deleted
        at = gap.after
    if found_gaps and found_gaps[-1].time_ms == 7:
        assert found_gaps[-1].after == world.now


@given(STEPS)
def test_what_stood_before_and_after_a_run_is_what_was_there(then: list[str]) -> None:
    world = World()
    for what in then:
        world.step(what)
    for gap in gaps(ABSENT, world.own, world.now, 7):
        for point in (gap.before, gap.after):
            assert not point.present or point.content == world.contents[point.czxid, point.version]


def test_a_change_of_a_removed_znode_is_after_the_chain() -> None:
    gone = Point(present=False, czxid=5, version=-1, mzxid=50)
    late = OwnWrite(60, 60, 59, 3, 5, 4)
    back = Point(present=True, czxid=70, version=0, mzxid=70, content={"a": "1"})
    [gap] = gaps(gone, [late], back, 1)
    assert (gap.before.present, gap.writes) == (False, 1)
