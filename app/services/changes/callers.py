"""The caller of a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.services.changes.idempotency import Run


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, how the request is told apart, and until when an answer is worth having."""

    principal: str
    source: str
    request_id: str
    deadline: float
    """On the clock of ``time.monotonic()``."""
    reason: str | None = None
    ticket: str | None = None
    run: Run | None = None
    """Of a request with an Idempotency-Key."""
