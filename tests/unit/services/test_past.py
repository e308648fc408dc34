"""States of the past by the changes around a revision, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from confplane.domain.changes import Node
from confplane.services.ports.history import Content, RecordedState, SurroundingChanges, ZnodeChange
from confplane.services.reads.past import PastState, current, past_of
from confplane.services.reads.point_in_time import PointInTime

SINCE: Final = 100
OLD: Final[Content] = {"producer_byte_rate": "1"}
NEW: Final[Content] = {"producer_byte_rate": "2"}


def written(revision: int, **given: Any) -> ZnodeChange:
    """A change of this service from version 3 to version 4 of one znode."""
    values: dict[str, Any] = {
        "change_id": UUID(int=revision),
        "kind": "change",
        "revision": revision,
        "writes": None,
        "version_read": 3,
        "czxid_read": 50,
        "version": 4,
        "remade": None,
        "before": OLD,
        "after": NEW,
        "defect": None,
    }
    return ZnodeChange(**{**values, **given})


def external(revision: int, **given: Any) -> ZnodeChange:
    return written(revision, **{"kind": "external", "writes": 1, **given})


def recorded(**given: Any) -> RecordedState:
    values: dict[str, Any] = {
        "present": True,
        "czxid": 50,
        "version": 3,
        "mzxid": 90,
        "content": OLD,
        "first_version": 3,
        "first_czxid": 50,
    }
    return RecordedState(**{**values, **given})


def node(version: int, mzxid: int, czxid: int = 50, **given: Any) -> Node:
    return Node("user=alice", ("producer_byte_rate", "2"), version, czxid, mzxid, 0, **given)


EARLIER: Final = written(110, version_read=2, version=3, before={}, after=OLD)
LATER: Final = external(130)


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        pytest.param(
            SurroundingChanges(EARLIER, written(130)), PastState(OLD), id="two changes of ours, without a gap"
        ),
        pytest.param(SurroundingChanges(EARLIER, LATER), PastState(OLD), id="one write of others"),
        pytest.param(
            SurroundingChanges(EARLIER, external(130, writes=2, version=5)),
            PastState(OLD, exact=False, low=110, high=130),
            id="two writes of others",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, LATER, written(131, version_read=4, version=5)),
            PastState(OLD, exact=False, low=110, high=130),
            id="a write of others that the next change found",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, LATER, written(132)),
            PastState(OLD),
            id="a write of others before a later change",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, external(130, version=None, after={})),
            PastState(OLD, exact=False, low=110, high=130),
            id="a removal by others",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, written(130, version_read=5, version=6)),
            PastState(OLD, exact=False, low=110, high=130),
            id="writes of others that left everything as it was",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, written(130, version_read=4, version=5)),
            PastState(OLD),
            id="one such write changed nothing",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, written(130, czxid_read=120)),
            PastState(OLD, exact=False, low=110, high=130),
            id="a znode made anew unseen",
        ),
        pytest.param(
            SurroundingChanges(EARLIER, written(130, remade=125)),
            PastState(OLD, exact=False, low=110, high=130),
            id="remade meanwhile",
        ),
        pytest.param(
            SurroundingChanges(None, written(130, version_read=None, before={})),
            PastState({}),
            id="made by us, and never before",
        ),
        pytest.param(
            SurroundingChanges(None, written(130, version_read=0)),
            PastState(OLD),
            id="one version before the first change",
        ),
        pytest.param(
            SurroundingChanges(None, written(130)),
            PastState(OLD, exact=False, low=SINCE, high=130),
            id="versions before unknown",
        ),
        pytest.param(
            SurroundingChanges(None, written(130), None, recorded(version=4, mzxid=130)),
            PastState(OLD),
            id="the first state is known",
        ),
        pytest.param(
            SurroundingChanges(None, written(130), None, recorded(first_version=2)),
            PastState(OLD),
            id="one write since the first state",
        ),
        pytest.param(
            SurroundingChanges(None, written(130), None, recorded(first_version=1)),
            PastState(OLD, exact=False, low=SINCE, high=130),
            id="two writes since the first state",
        ),
        pytest.param(
            SurroundingChanges(None, written(130), None, recorded(first_czxid=SINCE + 1)),
            PastState(OLD, exact=False, low=SINCE, high=130),
            id="made after the first contact",
        ),
        pytest.param(
            SurroundingChanges(written(110, version=None, after={}), written(130, version_read=0, before={})),
            PastState({}),
            id="removed, and made again without content",
        ),
        pytest.param(
            SurroundingChanges(external(110, version=3, after={}, defect="is no JSON"), written(130, before={})),
            PastState({}, defect="is no JSON"),
            id="a content that could not be read",
        ),
    ],
)
def test_the_first_later_change_saw_the_content(around: SurroundingChanges, expected: PastState) -> None:
    assert past_of(node(9, 200), NEW, around, SINCE) == expected
    assert past_of(None, {}, around, SINCE) == expected


@pytest.mark.parametrize(
    ("seen", "around", "expected"),
    [
        pytest.param(node(4, 130), SurroundingChanges(EARLIER), PastState(OLD), id="one write, not recorded yet"),
        pytest.param(
            node(5, 130),
            SurroundingChanges(EARLIER),
            PastState(OLD, exact=False, low=110, high=130),
            id="two writes, not recorded yet",
        ),
        pytest.param(
            node(4, 130),
            SurroundingChanges(None, None, None, recorded()),
            PastState(OLD),
            id="one since the first contact",
        ),
        pytest.param(
            node(5, 130),
            SurroundingChanges(None, None, None, recorded()),
            PastState(OLD, exact=False, low=SINCE, high=130),
            id="two since the first contact",
        ),
        pytest.param(node(0, 130, 130), SurroundingChanges(), PastState({}), id="made by one write"),
        pytest.param(
            node(1, 130, 120),
            SurroundingChanges(),
            PastState({}, exact=False, low=SINCE, high=130),
            id="made, and written again",
        ),
        pytest.param(
            node(0, 130, 130),
            SurroundingChanges(written(110, version=None, after={})),
            PastState({}),
            id="made again after a removal",
        ),
        pytest.param(
            None, SurroundingChanges(EARLIER), PastState(OLD, exact=False, low=110), id="a removal, not recorded yet"
        ),
        pytest.param(
            None,
            SurroundingChanges(None, None, None, recorded()),
            PastState(OLD, exact=False, low=SINCE),
            id="removed since contact",
        ),
        pytest.param(
            None, SurroundingChanges(written(110, version=None, after={})), PastState({}), id="removed before"
        ),
        pytest.param(None, SurroundingChanges(), PastState({}), id="never there"),
    ],
)
def test_without_a_later_change_the_last_known_state_stood(
    seen: Node | None, around: SurroundingChanges, expected: PastState
) -> None:
    assert past_of(seen, {} if seen is None else NEW, around, SINCE) == expected


def test_what_was_not_written_since_is_as_it_is() -> None:
    assert current(node(3, 90), NEW) == PastState(NEW)
    broken = Node("user=alice", (), 3, 50, 90, 0, "is no JSON")
    assert current(broken, {}) == PastState({}, defect="is no JSON")


def test_a_znode_is_later_than_a_time_by_its_revision_or_by_its_time() -> None:
    moment = PointInTime(revision=110, since=SINCE, recorded=120, time_ms=1_000)
    written_at = {(110, 1_000): False, (111, 1_000): True, (110, 1_001): True}
    for (revision, time_ms), later in written_at.items():
        assert moment.precedes(node(4, revision)._replace(mtime_ms=time_ms)) is later
    assert not replace(moment, time_ms=None).precedes(node(4, 110)._replace(mtime_ms=1_001))
