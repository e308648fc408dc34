"""The retry policy: which failures are retried, and after which pause."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confplane.client.core.calls import ApiCall
    from confplane.client.errors import ClientError

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class Retries:
    """The attempts of one call.

    A call is retried after a transient failure: no answer, or a retriable answer. A call that is not repeatable is
    retried only if the failed attempt is known to have changed nothing.

    Args:
        call: The call.
        tries: How often it may be sent.
        patience_s: Maximum pause in seconds that the caller accepts.
    """

    def __init__(self, call: ApiCall[Any], tries: int, patience_s: float) -> None:
        self._repeatable = call.repeatable
        self._tries = tries
        self._patience_s = patience_s
        self._failures = 0

    def pause_s(self, error: ClientError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            ClientError: The error itself, if no attempt follows.
        """
        self._failures += 1
        if self._failures >= self._tries or not error.retriable or not (self._repeatable or not error.may_be_applied):
            raise error
        if error.retry_after_s is None:
            return backoff_s(self._failures)
        if error.retry_after_s > self._patience_s:
            raise error  # an earlier attempt would fail again
        return error.retry_after_s * random.uniform(1.0, 1.2)  # noqa: S311 - no secret


def backoff_s(failures: int) -> float:
    """Return the seconds before the next attempt; the random part spreads clients that failed together."""
    return min(_FIRST_PAUSE_S * (1 << failures), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
