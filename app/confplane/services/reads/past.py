"""The state of a znode at a past revision, from the changes around it. Pure functions.

The first change after a revision saw the content of that revision, unless there were external writes in between. These
show in the versions: each write of a znode raises its version by one. The recorder sees several external writes as one
run, with the content before and after. Within a run the content is not known exactly; then the state has the bounds of
the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from confplane.services.ports.trail import EXTERNAL

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from confplane.services.ports.history import Content, SurroundingChanges, ZnodeChange

_MANY: Final = 2
"""More writes than one: the content between them is unknown."""


@dataclass(frozen=True, slots=True)
class PastState:
    """The state of a znode at a revision."""

    content: Content = field(repr=False)
    """Empty for an absent znode."""
    exact: bool = True
    """False within a run of external writes; the content is then that before the run."""
    low: int | None = None
    """The last revision at which the content is known to have stood, of a state that is not exact."""
    high: int | None = None
    """The revision at which the run was over, of a state that is not exact; None: not recorded yet."""
    defect: str | None = None
    """The reason why the content could not be read then."""


@dataclass(frozen=True, slots=True)
class _KnownState:
    """A state that the trail knows, at the revision in question or before it."""

    revision: int
    version: int | None
    """None: the znode was absent."""
    czxid: int | None
    """None: unknown."""
    content: Content | None
    """None: unknown."""
    defect: str | None = None


def current(node: Node, content: Content) -> PastState:
    """Return the state of a znode that was not written since the revision."""
    return PastState(content, defect=node.defect if not node.items else None)


def past_of(node: Node | None, content: Content, around: SurroundingChanges, since: int) -> PastState:
    """Return the state at a revision of a znode that is absent now, or was written since.

    Args:
        node: The znode by a mirror that had reached the revision, as of before ``around`` was read; None: absent.
        content: The content of the node without secrets.
        around: The changes of the znode around the revision.
        since: The revision from which on the trail has every write.
    """
    left = _left(around, since)
    if around.later is not None:
        return _before(around.later, around.after_later, left, since)
    if node is not None:
        return _unrecorded(node, content, left, since)
    if left is None or left.version is None or not left.content:
        return PastState({})
    # A removal that is not recorded yet.
    return PastState(left.content, exact=False, low=left.revision, defect=left.defect)


def _left(around: SurroundingChanges, since: int) -> _KnownState | None:
    """Return the last known state at the revision or before it; None if none is known."""
    earlier, recorded = around.earlier, around.recorded
    if earlier is not None:
        return _KnownState(earlier.revision, earlier.version, _czxid(earlier), earlier.after, earlier.defect)
    if recorded is None or recorded.first_version is None or recorded.first_czxid is None:
        return None
    if recorded.first_czxid > since:
        return None  # made after the first contact, and no change of it is at the revision or before it
    # The content is that of the last state as long as no change of the znode is known.
    content = recorded.content if around.later is None and recorded.present else None
    return _KnownState(since, recorded.first_version, recorded.first_czxid, content)


def _czxid(written: ZnodeChange) -> int | None:
    """Return the czxid of the znode after a change, if the trail has it."""
    if written.remade is not None:
        return written.remade
    if written.kind == EXTERNAL:
        return None  # others may have deleted the znode and made it again within the run
    return written.revision if written.version_read is None else written.czxid_read


def _before(later: ZnodeChange, after_later: ZnodeChange | None, left: _KnownState | None, since: int) -> PastState:
    """Return the state by the first change after the revision."""
    content = later.before if later.version_read is not None else {}
    unseen = _writes_between(left, later.version_read, later.czxid_read, content)
    exact = unseen < _MANY and later.remade is None
    if exact and later.kind == EXTERNAL:
        exact = _is_one_write(later, after_later)
    low = since if left is None else left.revision
    past = PastState(content, defect=None if left is None or unseen else left.defect)
    return past if exact else replace(past, exact=False, low=low, high=later.revision)


def _is_one_write(run: ZnodeChange, following: ZnodeChange | None) -> bool:
    """Return True if a run is one write with a known revision.

    A removal has the revision at which it was found. A run that was found by the next change of this service has the
    revision before that change.
    """
    found_by_next = following is not None and following.revision == run.revision + 1
    return run.writes == 1 and run.version is not None and not found_by_next


def _unrecorded(node: Node, content: Content, left: _KnownState | None, since: int) -> PastState:
    """Return the state of a znode that was written after the revision, if the trail has no such change.

    Either the change is not recorded yet, or it left the content as it was.
    """
    if left is None or left.version is None:
        # One write made the znode, after the revision: before it there was none.
        low = since if left is None else left.revision
        return PastState({}) if node.version == 0 else PastState({}, exact=False, low=low, high=node.mzxid)
    before = content if left.content is None else left.content
    if _writes_between(left, node.version, node.czxid, content) < _MANY:
        return PastState(before, defect=left.defect)
    return PastState(before, exact=False, low=left.revision, high=node.mzxid, defect=left.defect)


def _writes_between(left: _KnownState | None, version: int | None, czxid: int | None, content: Content) -> int:
    """Return the number of writes between a state that is known and a later one: 0, 1, or :data:`_MANY` for more.

    Args:
        left: The state that is known; None: none.
        version: The version of the later state; None: absent.
        czxid: The czxid of its znode.
        content: Its content.
    """
    if left is None:
        return 0 if not version else _MANY
    if left.version is None or version is None:
        if left.version is None and version is None:
            return 0
        # A znode that came or went without content made no change of the trail.
        return 1 if not content and not left.content and not version else _MANY
    if left.czxid is not None and left.czxid != czxid:
        return _MANY
    return min(max(version - left.version, 0), _MANY) if version >= left.version else _MANY
