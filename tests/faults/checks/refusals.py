"""Failures: each response is valid for its request, and has a cause in what really happened."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tests.faults import kinds
from tests.faults.checks.answers import allowed
from tests.faults.checks.facts import evidence_of
from tests.faults.checks.timeline import plain
from tests.faults.history import Kind, Mode
from tests.faults.topology import DEADLINE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.checks.answers import Tags
    from tests.faults.checks.facts import Facts
    from tests.faults.checks.timeline import Shown
    from tests.faults.history import Call, Part, PartResult

UNEXPECTED: Final = "a response is not valid for its request"
CAUSELESS: Final = "a request was refused without a cause"
UNTOLD: Final = "a response has no revision"

_HEARD_S: Final = 30.0
"""A process knows the new controller so many seconds after its election, unless a fault concerned it."""

_OK, _TIMED_OUT, _STALE_CONTROLLER, _UNAVAILABLE = 0, 7, 11, 13
_NOT_ATTEMPTED, _NOT_FOUND, _DUPLICATE, _OTHER_VERSION = 55, 91, 92, 95
_NOT_APPLIED, _UNKNOWN = "not_applied", "unknown"
_READ: Final = {(200, None), (404, _NOT_FOUND), (503, _UNAVAILABLE)}
_FAILED: Final = {
    (408, _TIMED_OUT),
    (409, _STALE_CONTROLLER),
    (409, _DUPLICATE),
    (409, _OTHER_VERSION),
    (412, _OTHER_VERSION),
    (503, _UNAVAILABLE),
    (504, _TIMED_OUT),
}
"""HTTP status and Kafka's code. The suite's requests are well formed, and all that they name is there."""
_ENTRY: Final = {_STALE_CONTROLLER, _OTHER_VERSION, _UNAVAILABLE, _TIMED_OUT, _NOT_ATTEMPTED}


def check(facts: Facts, tags: Tags) -> None:
    """Check each answer by itself."""
    causes = _Causes(facts, tags)
    for call in facts.run.calls:
        if call.kind is Kind.EXTERNAL or call.status is None:
            continue
        if not (_read(call) if call.kind is Kind.READ else _write(call)):
            facts.add(UNEXPECTED, f"{call.status}, code {call.error_code}, {call.outcome}", evidence_of(call))
        elif not causes.found(call):
            facts.add(CAUSELESS, f"{call.status}, code {call.error_code}", evidence_of(call))
        if call.revision is None and (call.acknowledged or call.status == 404):
            facts.add(UNTOLD, str(call.status), evidence_of(call))


def _read(call: Call) -> bool:
    # A read that did not reach its store reports what a write would have to: nothing was applied.
    return (call.status, call.error_code) in _READ and call.outcome in {None, _NOT_APPLIED}


def _write(call: Call) -> bool:
    codes = [result.error_code for result in call.results]
    if call.acknowledged:
        failed = sum(code != _OK for code in codes)
        fits = 0 < failed < len(codes) if call.status == 207 else not failed
        return fits and call.outcome is None and all(map(_entry, call.results))
    if (call.status, call.error_code) not in _FAILED or call.outcome not in _outcomes(call, call.error_code):
        return False
    first = [code for code in codes if code != _NOT_ATTEMPTED]
    return not codes or (call.error_code in first and all(_entry(result) for result in call.results))


def _entry(result: PartResult) -> bool:
    """Say whether an entry of an alter may be answered so."""
    if result.error_code == _OK:
        return result.outcome is None
    outcome = _UNKNOWN if result.error_code == _TIMED_OUT else _NOT_APPLIED
    return result.error_code in _ENTRY and result.outcome == outcome


def _outcomes(call: Call, code: int | None) -> set[str | None]:
    """Return what may be said of whether a refused write was applied."""
    if call.status == 408:
        return {None}
    if code == _TIMED_OUT:
        return {_UNKNOWN}
    if not call.parts:
        # An earlier attempt of an end may be without an outcome.
        return {_NOT_APPLIED, _UNKNOWN}
    if call.key is not None and (code == _UNAVAILABLE or (call.status, code) == (409, _OTHER_VERSION)):
        # Postgres alone knows of an earlier send of the key, and one that is under way may yet be applied.
        return {_NOT_APPLIED, _UNKNOWN}
    return {_NOT_APPLIED}


class _Causes:
    """The possible causes of a refusal."""

    def __init__(self, facts: Facts, tags: Tags) -> None:
        self._facts = facts
        self._tags = tags

    def found(self, call: Call) -> bool:
        """Return True if there is a cause for the refusal of a request, as far as the run shows."""
        if call.kind is Kind.READ:
            asked = call.strong or call.min_revision is not None
            # Without a wish a read is refused only by a process that has loaded nothing yet, and has no revision.
            return call.status != 503 or asked or call.revision is None
        if call.status == 408:
            # A body that is late by a machine under load; the service waits for it as long as a request may take.
            return call.end is not None and call.end - call.start >= DEADLINE_MS / 1000
        if call.status == 412:
            return any(self._stood(call, part, self._mismatched) for part in call.parts)
        if call.error_code == _DUPLICATE:
            return any(self._stood(call, part, _other_content) for part in call.parts)
        if call.error_code == _STALE_CONTROLLER:
            return not self._facts.run.faults or self._controller_moved(call)
        # Ends and reverts also depend on changes of the same keys before.
        return call.error_code != _OTHER_VERSION or not call.parts or self._contended(call)

    def _stood(self, call: Call, part: Part, stands_in_the_way: Callable[[Part, Shown], bool]) -> bool:
        """Say whether an entity was at some moment of a call as it must not be for a part of it."""
        timeline = self._facts.log.of_path(part.path)
        indices = self._facts.during(call, timeline)
        return any(stands_in_the_way(part, timeline.shown(part.facet, index)) for index in indices)

    def _mismatched(self, part: Part, content: Shown) -> bool:
        conditional = part.if_none_match or part.if_match is not None
        return conditional and not allowed(part, content, self._tags)

    def _controller_moved(self, call: Call) -> bool:
        assert call.end is not None
        return any(
            fault.kind == kinds.CONTROLLER_MOVED and fault.began - 1 < call.end and call.start < fault.ended + _HEARD_S
            for fault in self._facts.run.faults
        )

    @cached_property
    def _writers(self) -> dict[str, list[Call]]:
        """Path -> the calls that meant to write there."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in self._facts.run.calls:
            if call.kind is not Kind.READ:
                for part in call.parts:
                    found[part.path].append(call)
        return dict(found)

    def _contended(self, call: Call) -> bool:
        """Return True if another call wrote where this one meant to write, before its end, or an earlier send of it may have."""
        assert call.end is not None
        if call.resend_of is not None:
            return True
        return any(
            other is not call and other.start < call.end and (other.status is None or (other.end or 0.0) > call.start)
            for part in call.parts
            for other in self._writers[part.path]
        )


def _other_content(part: Part, content: Shown) -> bool:
    """Say whether a create meets keys, and not the very ones that it sets."""
    given = {key: plain(value) for key, value in part.set.items()}
    return part.mode is Mode.CREATE and bool(content) and dict(content) != given
