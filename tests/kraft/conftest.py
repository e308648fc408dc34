"""A cluster of one node with a client, and one of several nodes, for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import ExitStack

    from confplane.kraft.client import KraftClient
    from tests.support.kraft import KraftCluster


@pytest.fixture(scope="session")
def kraft(of_work: ExitStack, kraft_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> KraftCluster:
    """A running Kafka 4 of one node, with all listeners and an authorizer. Never stop this one in a test."""
    directory = tmp_path_factory.mktemp("kraft")
    return of_work.enter_context(kraft_cluster(directory, kraft_class_path, logins=True, authorizer=True))


@pytest.fixture(scope="session")
def quorum(of_work: ExitStack, kraft_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> KraftCluster:
    """Three nodes, each a broker and a controller, with a snapshot every few writes.

    Tests may kill its nodes, and start them again before they end.
    """
    properties = {"metadata.log.max.record.bytes.between.snapshots": "5000"}
    directory = tmp_path_factory.mktemp("quorum")
    return of_work.enter_context(
        kraft_cluster(directory, kraft_class_path, brokers=3, combined=3, properties=properties)
    )


@pytest.fixture
async def client(kraft: KraftCluster) -> AsyncIterator[KraftClient]:
    """A client of the cluster of one node."""
    async with client_of(*kraft.bootstrap) as made:
        yield made
