"""Histories that are corrupted throughout, as by a service with one systematic defect, and the rule that finds it.

``broken.py`` has one violation in a small made-up history. These take any correct history, a kept
one too, and are what a checker that looks at successes alone would let pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.faults.checks import external, reads, refusals, requests
from tests.faults.history import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.history import Call, Run, TrailEntity, TrailIntent

_BUG = -1


def _calls(run: Run, change: Callable[[Call], dict[str, Any]]) -> Run:
    return replace(run, calls=[replace(call, **change(call)) for call in run.calls])


def _intents(run: Run, change: Callable[[TrailIntent], dict[str, Any]]) -> Run:
    return replace(run, intents=[replace(intent, **change(intent)) for intent in run.intents])


def _entities(run: Run, change: Callable[[TrailEntity], dict[str, Any]]) -> Run:
    return _intents(
        run,
        lambda intent: {
            "entities": tuple(
                replace(entity, **({} if intent.kind == "external" else change(entity))) for entity in intent.entities
            )
        },
    )


def failed_writes_are_bugs(run: Run) -> Run:
    """Answer 500 to each write that is not applied."""

    def change(call: Call) -> dict[str, Any]:
        failed = call.kind is Kind.WRITE and call.status is not None and not call.acknowledged
        return {"status": 500, "error_code": _BUG} if failed else {}

    return _calls(run, change)


def reads_are_bugs(run: Run) -> Run:
    """All reads are answered 500."""
    answer = {"status": 500, "error_code": _BUG, "content": None, "etag": None, "results": ()}
    return _calls(run, lambda call: answer if call.kind is Kind.READ and call.status is not None else {})


def unavailable_is_precondition_failed(run: Run) -> Run:
    """All 503 ``not_applied`` are 412, whole with Kafka's code."""

    def change(call: Call) -> dict[str, Any]:
        return {"status": 412, "error_code": 95, "results": ()} if _not_applied(call) else {}

    return _calls(run, change)


def unavailable_has_another_status(run: Run) -> Run:
    """All 503 ``not_applied`` are 412, the code as it was."""
    return _calls(run, lambda call: {"status": 412} if _not_applied(call) else {})


def _not_applied(call: Call) -> bool:
    return call.kind is Kind.WRITE and (call.status, call.outcome) == (503, "not_applied")


def principals_are_anothers(run: Run) -> Run:
    """The trail names the caller of the change before."""
    return _shifted(run, "principal")


def reasons_are_anothers(run: Run) -> Run:
    """The trail has the reason of the previous change."""
    return _shifted(run, "reason")


def _shifted(run: Run, name: str) -> Run:
    values = [getattr(intent, name) for intent in run.intents]
    if len(set(values)) == 1:
        values = [f"not {values[0]}"] * len(values)
    shifted = iter([*values[-1:], *values[:-1]])
    return _intents(run, lambda _: {name: next(shifted)})


def ops_are_anothers(run: Run) -> Run:
    """The trail has other values than requested."""

    def change(entity: TrailEntity) -> dict[str, Any]:
        ops = tuple(op | ({"value": f"{op['value']}1"} if op.get("value") is not None else {}) for op in entity.ops)
        return {"ops": ops}

    return _entities(run, change)


def keys_are_anothers(run: Run) -> Run:
    """The trail names keys that were not altered."""
    return _entities(run, lambda entity: {"keys": (*entity.keys[1:], "another.key")})


def external_writes_are_miscounted(run: Run) -> Run:
    """Rows of external changes count one write too many."""
    return _intents(run, lambda intent: {} if intent.writes is None else {"writes": intent.writes + 1})


def staleness_is_not_reported(run: Run) -> Run:
    """No response is marked as stale."""
    return _calls(run, lambda _: {"stale_ms": None})


CORRUPTED: list[tuple[Callable[[Run], Run], str]] = [
    (failed_writes_are_bugs, refusals.UNEXPECTED),
    (reads_are_bugs, refusals.UNEXPECTED),
    (unavailable_is_precondition_failed, refusals.CAUSELESS),
    (unavailable_has_another_status, refusals.UNEXPECTED),
    (principals_are_anothers, requests.OTHER_CALLER),
    (reasons_are_anothers, requests.OTHER_REASON),
    (ops_are_anothers, requests.OTHER_REQUEST),
    (keys_are_anothers, requests.OTHER_KEYS),
    (external_writes_are_miscounted, external.OTHER_COUNT),
    (staleness_is_not_reported, reads.UNMARKED),
]
