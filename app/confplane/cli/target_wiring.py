"""The opening of a cluster for ``confplane target``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from confplane.domain.errors import InvalidRequestError
from confplane.domain.releases import newest
from confplane.kraft.cluster import KraftCluster
from confplane.observation import rules_of
from confplane.wiring import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.observation import Observation
    from confplane.settings import Settings
    from confplane.store import ZooKeeperStore


@asynccontextmanager
async def observation(settings: Settings, cluster: str) -> AsyncIterator[tuple[Observation, ZooKeeperStore]]:
    """Open a cluster, and everything that observes its Kafka cluster.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        ConfplaneError: As :func:`confplane.wiring.opened`.
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
