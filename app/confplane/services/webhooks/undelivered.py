"""A warning of subscriptions on a process that has no key for webhooks: while it leads, it delivers nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from confplane.domain.texts import first_of
from confplane.services.background import BackgroundService, BackgroundTask, poll_repeatedly
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.ports.webhooks import WebhookStore

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 30.0


class UndeliveredWebhooks(BackgroundService):
    """Reads the subscriptions of all clusters in the background, on a process where webhooks are off.

    Args:
        clusters: The clusters' names.
        store: The tables.
    """

    def __init__(self, clusters: Sequence[str], store: WebhookStore) -> None:
        self._clusters = clusters
        self._store = store
        self._names: dict[str, Sequence[str]] = {}
        self._background = BackgroundTask(self._run, name="undelivered-webhooks")

    async def _run(self) -> None:
        await poll_repeatedly(self.poll, INTERVAL_S, logger, "The webhooks could not be read")

    async def poll(self) -> None:
        """Read the subscriptions.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        for cluster in self._clusters:
            self._names[cluster] = [each.name for each in await self._store.list(cluster)]

    def warnings(self) -> list[OperatorWarning]:
        """Return a warning for each cluster with subscriptions."""
        return [_warning(names).about(cluster) for cluster, names in self._names.items() if names]


def _warning(names: Sequence[str]) -> OperatorWarning:
    what = "Webhooks that send nothing while this process leads, because its setting webhooks.key_file is missing"
    return OperatorWarning(f"{what}: {len(names)}", f"{what}: {first_of(names)}")
