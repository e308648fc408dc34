"""The port of a controller named as a broker, and of a broker named as a controller, are reported as such."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from confplane.connection_settings import KafkaSettings
from confplane.domain.errors import UnavailableError
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft_wiring import rules_of
from tests.support.catalogs import NEWEST

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster


def _cluster(bootstrap: list[str], controllers: list[str]) -> Cluster:
    settings = KafkaSettings.model_validate({"bootstrap": bootstrap, "controllers": controllers})
    return Cluster("test", settings, rules_of(lambda: NEWEST), lambda: None)


async def test_a_controller_is_not_a_broker(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    cluster = _cluster([node.controller], [])
    with pytest.raises(UnavailableError, match=f"{node.controller} is the port of a controller, not of a broker"):
        await cluster.identity(time.monotonic() + 30)
    await cluster.close()


async def test_a_controller_among_the_brokers_is_passed_over(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    cluster = _cluster([node.controller, *kraft.bootstrap], [])
    assert (await cluster.identity(time.monotonic() + 30)).cluster_id == kraft.cluster_id
    await cluster.close()


async def test_a_broker_is_not_a_controller(kraft: KraftCluster) -> None:
    cluster = _cluster(kraft.bootstrap, kraft.bootstrap)
    problem = await cluster.unfollowed(time.monotonic() + 30)
    assert f"{kraft.bootstrap[0]} is the port of a broker, not of a controller" in (problem or "")
    await cluster.close()
