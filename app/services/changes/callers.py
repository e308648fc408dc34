"""The caller of a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
