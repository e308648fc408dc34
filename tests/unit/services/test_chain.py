"""The chain of an entity's states, against a plain model of who wrote what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from app.services.chain import ABSENT, OwnWrite, Point, explained, runs_of_others

if TYPE_CHECKING:
    from app.services.chain import Content

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

    def _write(self, content: Content) -> Point:
        self.zxid += 3
        now = self.now
        if now.present:
            return Point(present=True, czxid=now.czxid, version=now.version + 1, mzxid=self.zxid, content=content)
        return Point(present=True, czxid=self.zxid, version=0, mzxid=self.zxid, content=content)

    def step(self, what: str) -> None:
        before, value = self.now, str(self.zxid)
        if what.startswith("own"):
            if what == "own removal" and not before.present:
                return
            key = CONFIG if what == "own config" else QUOTA
            self.now = self._write({**before.content, key: value})
            if what == "own removal":
                self.now = Point(present=False, czxid=before.czxid, version=-1, mzxid=self.zxid)
            # Of the other facet's keys a change tells only that they are there.
            seen = {name: text if name == key else None for name, text in before.content.items()}
            left = {name: text if name == key else None for name, text in self.now.content.items()}
            self.own.append(
                OwnWrite(
                    self.zxid, self.zxid, self.zxid - 1,
                    before.version if before.present else None, before.czxid if before.present else None,
                    self.now.version if self.now.present else None, seen, left,
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
def test_every_write_is_ours_or_in_a_run_of_others(first: list[str], then: list[str]) -> None:
    world = World()
    for what in first:
        world.step(what)
    start, others, ours = world.now, world.external, len(world.own)
    for what in then:
        world.step(what)
    others = world.external - others
    runs = runs_of_others(start, world.own, world.now, 7)
    assert explained(start, world.own, world.now) is (not runs)
    if not others:
        assert runs == []
    deleted = any(what == "delete" for what in then)
    if not deleted:
        # What a znode lived through between two states is counted by its versions.
        assert sum(run.writes for run in runs) == others
    # The chain has no break: each run begins where a change of ours or the start left off, and ends where one begins.
    at = start
    steps = [(write.revision, write) for write in world.own[ours:]]
    for run in runs:
        while steps and steps[0][0] <= run.revision:
            _, write = steps.pop(0)
            at = Point(write.version is not None, write.czxid_read or write.revision, write.version or 0)
        assert run.before.same(at) or deleted
        at = run.after
    if runs and runs[-1].time_ms == 7:
        assert runs[-1].after == world.now


@given(STEPS)
def test_without_others_values_are_never_made_up(then: list[str]) -> None:
    world = World()
    for what in then:
        world.step(what)
    for run in runs_of_others(ABSENT, world.own, world.now, 7):
        for content in (run.before.content, run.after.content):
            assert all(text is None or int(text) <= world.zxid for text in content.values())


def test_an_unknown_value_is_what_our_other_changes_saw() -> None:
    start = Point(present=True, czxid=5, version=0, mzxid=5, content={"a": "1", "b": "1"})
    ours = OwnWrite(20, 20, 19, 1, 5, 2, {"a": "2", "b": None}, {"a": "3", "b": None})
    end = Point(present=True, czxid=5, version=3, mzxid=30, content={"a": "3", "b": "1"})
    first, second = runs_of_others(start, [ours], end, 1)
    assert (first.before.content, first.after.content) == ({"a": "1", "b": "1"}, {"a": "2", "b": "1"})
    assert second.before.content == second.after.content


def test_a_change_of_a_znode_that_is_gone_is_behind_the_chain() -> None:
    gone = Point(present=False, czxid=5, version=-1, mzxid=50)
    late = OwnWrite(60, 60, 59, 3, 5, 4)
    back = Point(present=True, czxid=70, version=0, mzxid=70, content={"a": "1"})
    [run] = runs_of_others(gone, [late], back, 1)
    assert (run.before.present, run.writes) == (False, 1)


def test_what_is_guessed_is_told_as_such() -> None:
    """Of two runs around a change of another facet, it can't be known which one wrote what the end has."""
    start = Point(present=True, czxid=5, version=0, mzxid=5, content={"a": "1", "b": "1"})
    ours = OwnWrite(20, 20, 19, 1, 5, 2, {"a": "1", "b": None}, {"a": "2", "b": None})
    end = Point(present=True, czxid=5, version=3, mzxid=30, content={"a": "2", "b": "9"})
    first, second = runs_of_others(start, [ours], end, 1)
    assert first.after.content == {"a": "1", "b": "9"}
    assert second.before.content == second.after.content
    assert first.guessed == second.guessed == {"b"}
