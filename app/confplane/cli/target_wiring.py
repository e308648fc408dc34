"""The opening of a cluster for ``confplane target``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.domain.errors import InvalidRequestError
from app.domain.releases import newest
from app.kraft.cluster import KraftCluster
from app.observation import rules_of
from app.wiring import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.observation import Observation
    from app.settings import Settings
    from app.store import ZooKeeperStore


@asynccontextmanager
async def observation(settings: Settings, cluster: str) -> AsyncIterator[tuple[Observation, ZooKeeperStore]]:
    """Open a cluster, and everything that observes its Kafka cluster.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        ConfplaneError: As :func:`app.wiring.opened`.
    """
    async with opened(settings, cluster) as parts:
        found = parts.observations.get(cluster)
        if found is None:
            raise _no_brokers(cluster)
        yield found, parts.stores[cluster]


@asynccontextmanager
async def kafka(settings: Settings, cluster: str) -> AsyncIterator[KraftCluster]:
    """Open the Kafka cluster of the settings alone: neither ZooKeeper nor Postgres, and no target.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        NotFoundError: The settings have no such cluster.
        UnusableSettingsError: A file of the settings can't be used.
    """
    given = settings.cluster(cluster).kafka
    if given is None:
        raise _no_brokers(cluster)
    found = KraftCluster(f"clusters.{cluster}.kafka", given, rules_of(newest), lambda: None)
    try:
        yield found
    finally:
        await found.close()


def _no_brokers(cluster: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The settings name no brokers of a Kafka cluster: set clusters.{cluster}.kafka.bootstrap (docs/kafka4.md)"
    )
