"""The memory that large responses take until their clients have received them, shared by all callers of a process.

Polls and reads of one entity never count. A response counts from the time at which its first bytes are rendered.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import BodyTooLargeError, ConfplaneError, LimitExceededError, UnavailableError
from confplane.services.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

TOTAL: Final = 128 * 1024 * 1024
_SHARE: Final = 4
"""One principal gets at most this part of the total."""
_RETRY_S: Final = 1


class ResponseBudget:
    """The bytes of large responses in flight. Only the event loop touches it.

    Args:
        total: Maximum number of bytes of all principals together; each gets a quarter of it at most.
    """

    def __init__(self, total: int = TOTAL) -> None:
        self._total = total
        self._share = total // _SHARE
        self._held: Counter[str] = Counter()
        self._in_flight = 0
        self._refused = dict.fromkeys(("principal", "total", "size"), 0)

    def lease(self, principal: str) -> ResponseLease:
        """Return the lease of one response, which holds nothing yet."""
        return ResponseLease(self, principal)

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("response_bytes_in_flight", self._in_flight)
        for reason, count in self._refused.items():
            yield Sample("responses_refused", count, (reason,))

    def take(self, principal: str, size: int, whole: int) -> None:
        """Count more bytes of a response.

        Args:
            principal: The principal of the caller.
            size: The number of bytes.
            whole: The number of bytes of the response with them.

        Raises:
            BodyTooLargeError: The response alone is larger than the share of a principal.
            LimitExceededError: The principal's responses are larger than its share.
            UnavailableError: All responses together are larger than the total.
        """
        if whole > self._share:
            self._refused["size"] += 1
            raise BodyTooLargeError(
                f"The response would be larger than {self._share} bytes; ask for fewer entities, or for fewer of their"
                " keys"
            )
        if self._held[principal] + size > self._share:
            self._refused["principal"] += 1
            raise LimitExceededError(
                f"The responses that {principal} is receiving from this process are larger than {self._share} bytes;"
                " send the request again once others have been received",
                throttle_ms=_RETRY_S * 1000,
            )
        if self._in_flight + size > self._total:
            self._refused["total"] += 1
            raise UnavailableError(
                f"The responses in flight are larger than {self._total} bytes; try again", retry_after_s=_RETRY_S
            )
        self._held[principal] += size
        self._in_flight += size

    def give_back(self, principal: str, size: int) -> None:
        """Stop counting bytes."""
        self._in_flight -= size
        self._held[principal] -= size
        if not self._held[principal]:
            del self._held[principal]


class ResponseLease:
    """The bytes that one response holds.

    Args:
        budget: The budget that they are taken from.
        principal: The principal of the caller.

    Attributes:
        size: The number of bytes.
    """

    def __init__(self, budget: ResponseBudget, principal: str) -> None:
        self.size = 0
        self._budget = budget
        self._principal = principal

    def hold(self, size: int) -> None:
        """Hold more bytes. If they are refused, the response holds nothing from then on.

        Raises:
            BodyTooLargeError: The response alone is larger than the share of a principal.
            LimitExceededError: The principal's responses are larger than its share.
            UnavailableError: All responses together are larger than the total.
        """
        try:
            self._budget.take(self._principal, size, self.size + size)
        except ConfplaneError:
            # At once, so that of several responses that are rendered concurrently not all are refused.
            self.release()
            raise
        self.size += size

    def release(self) -> None:
        """Give all bytes back."""
        self._budget.give_back(self._principal, self.size)
        self.size = 0
