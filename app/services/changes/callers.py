"""The caller of a change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.domain.errors import UnavailableError, WriteOutcome

if TYPE_CHECKING:
    from app.services.changes.idempotency import Run


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a change, with the id and address of the request, and the deadline of its answer."""

    principal: str
    source: str
    request_id: str
    deadline: float
    """The deadline on the clock of ``time.monotonic()``."""
    reason: str | None = None
    ticket: str | None = None
    run: Run | None = None
    """The run of a request with an Idempotency-Key."""

    def check_in_time(self) -> None:
        """Refuse to begin after the deadline.

        Raises:
            UnavailableError: The deadline has passed.
        """
        if time.monotonic() >= self.deadline:
            raise UnavailableError(
                "The request's deadline passed before this entry was begun; nothing of it was applied. Send it again,"
                " in a request of fewer entries",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )
