"""Opens a cluster for ``confplane target``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from confplane.domain.errors import InvalidRequestError
from confplane.domain.releases import newest
from confplane.kraft.cluster import KraftCluster
from confplane.kraft_wiring import rules_of
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.kraft_wiring import KraftWiring
    from confplane.settings import Settings
    from confplane.store import ZooKeeperStore


@asynccontextmanager
async def open_kraft_wiring(settings: Settings, cluster: str) -> AsyncIterator[tuple[KraftWiring, ZooKeeperStore]]:
    """Open a cluster and everything that observes its Kafka cluster.

    Raises:
        InvalidRequestError: The settings name no brokers of a Kafka cluster.
        ConfplaneError: As :func:`confplane.wiring.open_cluster`.
    """
    async with open_cluster(settings, cluster) as parts:
        found = parts.kraft_wirings.get(cluster)
        if found is None:
            raise _no_brokers(cluster)
        yield found, parts.stores[cluster]


@asynccontextmanager
async def open_kafka(settings: Settings, cluster: str) -> AsyncIterator[KraftCluster]:
    """Open only the Kafka cluster of the settings, without ZooKeeper, Postgres or a target.

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
