"""A cluster of several nodes, and a client of the one node of tests/conftest.py, for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from confplane.kraft.client import KraftClient
    from tests.support.kraft import KraftCluster


@pytest.fixture(scope="session")
def quorum(kraft_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """Three nodes, each a broker and a controller, with a snapshot every few writes.

    Tests may kill its nodes, and start them again before they end.
    """
    properties = {"metadata.log.max.record.bytes.between.snapshots": "5000"}
    directory = tmp_path_factory.mktemp("quorum")
    with kraft_cluster(directory, kraft_class_path, brokers=3, combined=3, properties=properties) as running:
        yield running


@pytest.fixture
async def client(kraft: KraftCluster) -> AsyncIterator[KraftClient]:
    """A client of the cluster of one node."""
    async with client_of(*kraft.bootstrap) as made:
        yield made
