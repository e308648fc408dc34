"""Eligible leader replicas (KIP-966) are on or off by the finalized features of a real Kafka 4."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confplane.connection_settings import KafkaSettings
from confplane.domain.entities import Entity
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft_wiring import rules_of
from tests.support.catalogs import NEWEST
from tests.support.kraft import kraft_cluster
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kraft import KraftCluster
    from tests.support.world import World

KEY, DEFAULT = "min.insync.replicas", Entity.of(broker=None)


async def managed(kraft: KraftCluster) -> tuple[bool, bool]:
    """Say whether the cluster sets the key by itself: before the first poll, and after it."""
    settings = KafkaSettings.model_validate({"bootstrap": kraft.bootstrap})
    cluster: Cluster = Cluster("test", settings, rules_of(lambda: NEWEST), lambda: None)
    rules = rules_of(lambda: NEWEST, lambda: cluster.keeps_eligible_replicas)
    try:
        before = rules.manages(DEFAULT, KEY)
        look = await cluster.configs([DEFAULT], time.monotonic() + 60)
        has = any(KEY in each.config for each in look.entities)
        assert rules.manages(DEFAULT, KEY) is has
        return before, has
    finally:
        await cluster.close()


async def test_a_new_cluster_has_them(kraft: KraftCluster) -> None:
    assert await managed(kraft) == (True, True)


async def test_a_cluster_that_has_none_sets_no_key_of_brokers(kraft_class_path: str, tmp_path: Path) -> None:
    with kraft_cluster(tmp_path, kraft_class_path, features={"eligible.leader.replicas.version": 0}) as kraft:
        assert await managed(kraft) == (True, False)


async def test_whole_resources_leave_the_key_to_a_new_cluster(
    kraft_class_path: str, tmp_path: Path, world: World
) -> None:
    path = "configs/broker"
    with (
        kraft_cluster(tmp_path / "kafka", kraft_class_path) as kraft,
        world.adopting(kraft) as service,
    ):
        async with service.client() as http:

            async def configs() -> dict[str, str]:
                body = (await http.request("GET", f"{path}?view=full")).body
                assert body["status"]["managedKeys"] == [KEY]
                return {**body["configs"]}

            before = await configs()
            assert list(before) == [KEY]
            body = {"id": "broker", "configs": {"log.retention.ms": "604800000"}}
            for method, at, given, status in (
                ("POST", "configs", body, 201),
                ("PUT", path, body, 200),
                ("PUT", path, {"configs": {"message.max.bytes": "2000000"}}, 200),
                ("DELETE", path, None, 200),
            ):
                answer = await http.request(method, at, json=given, headers=UNTIL_APPLIED)
                assert answer.status == status, answer.body
                assert answer.body["applied"]["state"] == "applied"
                assert await configs() == before | ({} if given is None else given["configs"])  # type: ignore[operator]
