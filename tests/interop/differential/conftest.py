"""Both sides of the differential test, apart from the broker and the service of the other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.differential.both_sides import BothSides, run_both_sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.broker import Broker


@pytest.fixture(scope="session")
def both(
    zookeeper: ZooKeeper, postgres: Postgres, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BothSides]:
    """Kafka and Confplane, each on a chroot of its own."""
    directory = tmp_path_factory.mktemp("differential")
    with run_both_sides(directory, hosts=zookeeper.hosts, postgres=postgres, class_path=kafka_class_path) as running:
        yield running


@pytest.fixture(scope="session")
def broker(both: BothSides) -> Broker:
    """The broker that these tests ask."""
    return both.broker
