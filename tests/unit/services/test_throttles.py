"""The watch over throttles of reassignments: what it reports, and when."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.services.ports.cluster_states import Target
from confplane.services.upkeep.throttles import ThrottleWatch
from tests.support.alerts import PartAlerts

if TYPE_CHECKING:
    from collections.abc import Collection

    from confplane.domain.facets import Tree
    from confplane.services.ports.store import ClusterStore

LEADER, RATE = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
ORDERS, BROKER = (Entity.of(topic="orders"), LEADER), (Entity.of(broker="1"), RATE)
TARGET = Target("cluster", imported=True)


class Cluster:
    """A store with some configs, and the reassignments of its cluster."""

    name = "default"

    def __init__(self) -> None:
        self.configs = {"topic=orders": {LEADER: "*", "retention.ms": "1"}, "broker=1": {RATE: "1"}, "topic=other": {}}
        self.reassigned: Collection[str] | None = ()
        self.down = False
        self.state: Target | None = TARGET
        self.leadership = SimpleNamespace(held=True)
        self.asked: list[Collection[str]] = []
        self.watch = ThrottleWatch(cast("ClusterStore", self), self, self)

    def target(self) -> Target | None:
        return self.state

    async def moment(self, _tree: Tree, _facet: str, *, prefix: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=each, config=self.configs[each]) for each in self.configs if each.startswith(prefix)]

    async def reassigned_topics(self, topics: Collection[str], deadline: float) -> frozenset[str] | None:
        del deadline
        self.asked.append(topics)
        if self.down:
            raise UnavailableError("The cluster is away")
        return None if self.reassigned is None else frozenset(self.reassigned)

    @property
    def warned(self) -> list[tuple[str, str | None]]:
        return [(each.public, each.detailed) for each in self.watch.warnings()]

    @property
    def measured(self) -> dict[str, object]:
        return {each.name: each.value for each in self.watch.metrics()}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_throttles_are_left_if_two_rounds_find_no_reassignment(cluster: Cluster) -> None:
    await cluster.watch.round()
    assert (cluster.watch.left, cluster.warned) == ([], [])
    alerts = PartAlerts(cluster.watch)
    assert alerts.scrape() == set()
    await cluster.watch.round()
    assert cluster.watch.left == [BROKER, ORDERS]
    assert alerts.scrape() == {"ThrottlesLeft"}
    assert cluster.asked == [{"orders"}] * 2
    [(public, detailed)] = cluster.warned
    assert public == (
        "default: 2 throttles of reassignments are left, and no reassignment is in progress;"
        " `kafka-reassign-partitions.sh --verify` removes them"
    )
    assert detailed == f"{public}: broker=1 {RATE}, topic=orders {LEADER}"
    assert cluster.measured == {"reassignment_throttles_left": 2, "reassignment_throttles_unknown": 0}


async def test_throttles_that_were_set_a_moment_before_their_reassignment_are_not_left(cluster: Cluster) -> None:
    await cluster.watch.round()
    cluster.reassigned = {"orders"}
    await cluster.watch.round()
    assert cluster.watch.left == []
    cluster.reassigned = ()
    await cluster.watch.round()
    assert cluster.watch.left == []


async def test_a_reassignment_of_another_topic_uses_only_the_rates(cluster: Cluster) -> None:
    cluster.reassigned = {"other"}
    await cluster.watch.round()
    await cluster.watch.round()
    assert cluster.watch.left == [ORDERS]


async def test_nothing_is_asked_without_throttles(cluster: Cluster) -> None:
    await cluster.watch.round()
    await cluster.watch.round()
    cluster.configs = {"topic=orders": {"retention.ms": "1"}, "broker=1": {}}
    cluster.asked.clear()
    await cluster.watch.round()
    assert (cluster.watch.left, cluster.asked) == ([], [])


async def test_it_is_unknown_without_the_right(cluster: Cluster) -> None:
    await cluster.watch.round()
    await cluster.watch.round()
    cluster.reassigned = None
    await cluster.watch.round()
    assert cluster.measured == {"reassignment_throttles_left": 0, "reassignment_throttles_unknown": 2}
    [(public, detailed)] = cluster.warned
    assert "the right to read reassignments is missing" in public
    assert detailed == f"{public}: broker=1 {RATE}, topic=orders {LEADER}"
    # The right is given: two rounds decide, as always.
    cluster.reassigned = ()
    await cluster.watch.round()
    assert cluster.warned == []
    await cluster.watch.round()
    assert cluster.watch.left == [BROKER, ORDERS]


async def test_findings_stay_while_the_cluster_is_away(cluster: Cluster) -> None:
    await cluster.watch.round()
    await cluster.watch.round()
    cluster.down = True
    with pytest.raises(UnavailableError):
        await cluster.watch.round()
    assert cluster.watch.left == [BROKER, ORDERS]


async def test_zookeeper_is_asked_until_a_target_is_set(cluster: Cluster) -> None:
    zookeeper = Cluster()
    zookeeper.reassigned = {"orders"}
    watch = ThrottleWatch(cast("ClusterStore", cluster), zookeeper, cluster)
    cluster.state = None
    await watch.round()
    await watch.round()
    assert (watch.left, zookeeper.asked, cluster.asked) == ([], [{"orders"}] * 2, [])
    cluster.state = TARGET
    await watch.round()
    assert (len(zookeeper.asked), cluster.asked) == (2, [{"orders"}])


@pytest.mark.parametrize("reason", ["follows", "paused", "imports"])
async def test_only_the_leader_of_a_followed_cluster_watches(cluster: Cluster, reason: str) -> None:
    await cluster.watch.round()
    await cluster.watch.round()
    cluster.leadership.held = reason != "follows"
    cluster.state = replace(TARGET, paused=reason == "paused", imported=reason != "imports")
    cluster.asked.clear()
    await cluster.watch.round()
    assert (cluster.watch.left, cluster.asked, cluster.warned) == ([], [], [])


async def test_a_cluster_with_zookeeper_has_no_target(cluster: Cluster) -> None:
    cluster.state = None
    await cluster.watch.round()
    await cluster.watch.round()
    assert cluster.watch.left == [BROKER, ORDERS]


async def test_the_first_names_are_listed(cluster: Cluster) -> None:
    cluster.configs = {f"topic=t{number}": {LEADER: "*"} for number in range(5)}
    await cluster.watch.round()
    await cluster.watch.round()
    [(_, detailed)] = cluster.warned
    assert str(detailed).endswith(f": topic=t0 {LEADER}, topic=t1 {LEADER}, topic=t2 {LEADER} and 2 more")


async def test_ids_of_entities_without_throttles_are_not_parsed(cluster: Cluster) -> None:
    cluster.configs["topic="] = {"retention.ms": "1"}
    await cluster.watch.round()
    assert cluster.asked == [{"orders"}]
