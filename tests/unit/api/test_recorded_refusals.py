"""The errors of a request that are recorded as refused attempts, and those that are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import CLUSTER
from confplane.api.routing.routes import record_refusals
from confplane.domain.errors import ConfplaneError, FrozenError, UnavailableError
from confplane.services.ports.refusals import RefusedAttempt, RefusedEdit


def recorded(*errors: ConfplaneError) -> list[tuple[str | None, str]]:
    """Return the entities and problems that are recorded of a request whose edits ended with these errors."""
    access: Any = SimpleNamespace(identity=SimpleNamespace(principal="User:olga", acts_for=None))
    edits = [RefusedEdit(f"user={number}", ("acks",), error) for number, error in enumerate(errors)]
    scope = {
        "type": "http",
        "path_params": {"cluster": "c"},
        CLUSTER: SimpleNamespace(name="c"),
        REQUEST_CONTEXT: RequestContext({}, "r", 0.0, access=access, refused=edits),
    }
    found: list[RefusedAttempt] = []
    log: Any = SimpleNamespace(record=found.append)
    record_refusals(log, Request(scope), "alterClientConfigs", None, {})
    return [(attempt.entity_id, attempt.problem) for attempt in found]


def test_a_change_that_the_trail_has_as_rejected_is_no_refused_attempt() -> None:
    begun = FrozenError("frozen after the intent")
    begun.in_trail = True
    assert recorded(FrozenError("frozen before"), begun, FrozenError("too")) == [
        ("user=0", "frozen"),
        ("user=2", "frozen"),
    ]


def test_faults_of_stores_are_not_recorded() -> None:
    assert recorded(UnavailableError("away"), FrozenError("frozen")) == [("user=1", "frozen")]
