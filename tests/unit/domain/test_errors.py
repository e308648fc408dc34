from __future__ import annotations

import pytest

from confplane.domain import errors
from confplane.domain.errors import ConfplaneError, KafkaCode, WriteOutcome


def subclasses(root: type[ConfplaneError]) -> dict[str, type[ConfplaneError]]:
    found = {}
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            found[child.__name__] = child
            found |= subclasses(child)
    return found


@pytest.mark.parametrize("kind", [kind for _, kind in sorted(subclasses(ConfplaneError).items())])
def test_every_error_says_what_and_when(kind: type[ConfplaneError]) -> None:
    """The parts that the API renders of any error, whatever else its class takes."""
    extra: dict[str, dict[str, object]] = {
        "CorruptZnodeError": {"reason": "is broken"},
        "PreconditionFailedError": {"etag": None},
        "OutcomeUnknownError": {"change_id": "x"},
        "LimitExceededError": {"throttle_ms": 1},
        "BeforeHistoryError": {"pointer": "at"},
        "RevertConflictError": {"later": ()},
    }
    error = kind("a sentence", **extra.get(kind.__name__, {}))  # type: ignore[arg-type]  # each class has its own
    assert "a sentence" in error.detail
    assert str(error) == error.detail
    assert isinstance(error.code, KafkaCode)
    assert error.code is not KafkaCode.NONE
    assert isinstance(error.retriable, bool)


def test_what_is_known_of_a_failed_write() -> None:
    assert errors.OutcomeUnknownError("x", change_id="1").outcome is WriteOutcome.UNKNOWN
    assert errors.PreconditionFailedError("x", etag='"1"').outcome is WriteOutcome.NOT_APPLIED
    assert errors.UnavailableError("x").outcome is None
    assert errors.UnavailableError("x").retry_after_s == 2


def test_a_corrupt_znode_is_named() -> None:
    error = errors.CorruptZnodeError("/config/users/a", "is no JSON")
    assert error.path == "/config/users/a"
    assert error.detail == "The znode /config/users/a is no JSON; it is left as it is until a person mends it"


def test_a_bad_id_says_the_right_one() -> None:
    assert errors.InvalidEntityIdError("'x' is no id").canonical_id is None
    error = errors.InvalidEntityIdError("'x' is no id", canonical_id="user=x")
    assert error.detail == "'x' is no id; use 'user=x'"
