"""Services that end temporary changes at once, and the ends that they made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.support.world import RECORDING

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient

HOUR_S: Final = 3_600
SOON: Final = {
    **RECORDING,
    "confplane.services.schedules.service.SHORTEST_S": -HOUR_S,
    "confplane.services.schedules.scheduler.INTERVAL_S": 0.2,
}
"""Constants of a service that accepts ends in the past, and ends due changes at once."""


def now() -> str:
    """Return the time as ``revertAt`` takes it."""
    return datetime.now(UTC).isoformat()


async def ended(client: ConfplaneClient) -> list[dict[str, Any]]:
    """Return the schedules that have ended."""
    return [each async for each in client.items("schedules", ended="true")]


async def ends(client: ConfplaneClient) -> list[dict[str, Any]]:
    """Return the committed ends of temporary changes."""
    return [each async for each in client.items("audit", outcome="committed") if each["ends"] is not None]
