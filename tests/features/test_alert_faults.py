"""Alerts of the chart on the metrics of a replica's parts: each fires for its fault, and not before it."""

from __future__ import annotations

import secrets
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.services.changes import settle
from confplane.services.upkeep import reconcile
from confplane.store import ZooKeeperStore
from confplane.store.mirror import follower
from confplane.store.write.markers import CommitMarkers
from tests.audit import rows
from tests.audit.rows import committed, intent
from tests.support.adopting import overtake, restore
from tests.support.alerts import PartAlerts
from tests.support.stores import kafka_writes, rate, until
from tests.unit.services.scripted_stores import lost

if TYPE_CHECKING:
    from confplane.services.ports.transactions import TransactionUnknown
    from tests.support.adopting import Opener
    from tests.support.kafka_double import KafkaDouble
    from tests.support.proxy import Proxy
    from tests.support.world import World

ALICE = Entity.of(user="alice")
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.2); RETURN NULL; END';
CREATE TRIGGER slow AFTER INSERT ON intents FOR EACH STATEMENT EXECUTE FUNCTION slow()
"""


def later(seconds: float) -> Any:
    """The module time, so many seconds ahead."""
    return SimpleNamespace(monotonic=lambda: time.monotonic() + seconds, time=lambda: time.time() + seconds)


async def test_a_lost_reply_that_is_not_settled_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(_: ZooKeeperStore, *given: Any) -> TransactionUnknown:
        return lost(given[0])

    async def fail(*_: Any) -> None:
        raise UnavailableError("away")

    one = await world.replica()
    alerts = PartAlerts(one.parts.alter)
    assert (await one.alter(ALICE, producer_byte_rate=1)).error is None
    assert alerts.scrape() == set()
    monkeypatch.setattr(ZooKeeperStore, "commit", lose)
    monkeypatch.setattr(CommitMarkers, "settle", fail)
    monkeypatch.setattr(settle, "time", later(60))
    error = (await one.alter(ALICE, producer_byte_rate=2)).error
    assert error is not None
    assert error.outcome == "unknown"
    assert alerts.scrape() == {"OutcomeUnknown"}


async def test_a_change_that_stays_without_an_outcome(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await world.replica()
    await one.reconcile()
    alerts = PartAlerts(one.reconciler)
    assert alerts.scrape() == set()
    await one.audit.intend([intent(cluster="default", writer=one.store.writer(), attempt=1)])
    await one.reconcile()
    assert alerts.scrape() == set()
    monkeypatch.setattr(reconcile, "time", later(121))
    assert alerts.scrape() == {"ChangeUnsettled"}


async def test_two_different_outcomes_of_a_change(world: World) -> None:
    one = await world.replica()
    alerts, change = PartAlerts(one.audit), intent()
    await one.audit.intend([change])
    await one.audit.conclude([committed(change)])
    assert alerts.scrape() == set()
    await one.audit.conclude([committed(change, revision=5)])
    await one.audit.close()
    assert alerts.scrape() == {"OutcomesDiffer"}


async def test_external_changes_that_are_not_recorded(world: World) -> None:
    one = await world.replica()
    await one.record()
    alerts = PartAlerts(one.recorder)
    assert alerts.scrape() == set()
    rows.run(world.database.owner_dsn, "REVOKE SELECT, INSERT, UPDATE ON entity_states FROM confplane")
    kafka_writes(world.zk, "users/alice", rate(1))
    await one.store.catch_up(time.monotonic() + 60)
    await one.round()
    one.recorder.clock = later(61).monotonic
    with pytest.raises(UnavailableError):
        await one.recorder.round()
    assert alerts.scrape() == {"RecorderBehind"}


async def test_an_entity_that_can_not_be_recorded(world: World) -> None:
    one = await world.replica()
    await one.record()
    alerts = PartAlerts(one.recorder)
    kafka_writes(world.zk, "users/fine", rate(1))
    await one.record()
    assert alerts.scrape() == set()
    kafka_writes(world.zk, f"users/{secrets.token_hex(4500)}", rate(1))
    await one.record()
    assert alerts.scrape() == {"RecorderRefused"}


async def test_a_mirror_that_zookeeper_does_not_confirm(
    world: World, zk_proxy: Proxy, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await world.replica(zookeeper=zk_proxy.connect(chroot))
    alerts = PartAlerts(one.store)
    assert alerts.scrape() == set()
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: not one.store.status().connected)
    monkeypatch.setattr(follower, "time", later(61))
    found = alerts.scrape()
    monkeypatch.undo()
    zk_proxy.accepting = True
    assert found == {"MirrorStale", "ZooKeeperUnreachable"}


async def test_a_zookeeper_that_commits_slowly(world: World, zk_proxy: Proxy, chroot: str) -> None:
    one = await world.replica(zookeeper=zk_proxy.connect(chroot))
    alerts = PartAlerts(one.store)
    await one.alter(ALICE, producer_byte_rate=1)
    assert alerts.scrape() == set()
    zk_proxy.delay_s = 1.0
    assert (await one.alter(ALICE, producer_byte_rate=2)).error is None
    zk_proxy.delay_s = 0.0
    assert alerts.scrape() == {"ZooKeeperSlow"}


async def test_a_postgres_that_commits_slowly(world: World) -> None:
    one = await world.replica()
    alerts = PartAlerts(one.audit)
    await one.alter(ALICE, producer_byte_rate=1)
    assert alerts.scrape() == set()
    rows.run(world.database.owner_dsn, SLOW)
    assert (await one.alter(ALICE, producer_byte_rate=2)).error is None
    assert alerts.scrape() == {"PostgresSlow"}


async def test_values_that_come_back_again_and_again(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    alerts = PartAlerts(one.reporter)
    for _ in range(4):
        assert "KafkaAppliedLate" not in alerts.scrape()
        await overtake(one, kafka)
        kafka.arrive()
        await restore(one)
    assert "KafkaAppliedLate" in alerts.scrape()
