"""Alerts of the chart on the metrics of a running service: none on a healthy one, and each of these faults its own.

tests/unit/test_alerts.py has all alerts at their limits. Here the service's own metrics and labels are evaluated.
"""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from confplane.devstack.postgres import SERVICE
from confplane.devstack.zookeeper import ZooKeeper
from confplane.services.ports.cluster_states import Freeze
from confplane.store.znodes import FREEZE, INCARNATION, encode_freeze
from tests.audit.rows import run
from tests.support.alerts import firing
from tests.support.metrics import scrape
from tests.support.promql import ScrapeSeries
from tests.support.published import publish
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import notify, rate
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from tests.support.servers import Database

SOON: Final = {
    "confplane.services.upkeep.incarnation.INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
    "confplane.services.upkeep.reconcile.STRAYS_INTERVAL_S": 0.2,
    "confplane.services.upkeep.reconcile.SWEEP_INTERVAL_S": 1.0,
    "confplane.services.upkeep.rollup_watch.INTERVAL_S": 0.2,
}
NEVER: Final = "01900000-0000-7000-8000-000000000000"
"""The id of a change that no trail has."""


def alerting(service: Service) -> set[str]:
    """Return the alerts whose expressions hold."""
    return firing(ScrapeSeries().add(scrape(service).text, datetime.now(UTC).timestamp()))


class AlertingSite(NamedTuple):
    """A service and its stores."""

    service: Service
    zk: KazooClient
    database: Database


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    """Small limits, short intervals and a policy."""
    return {
        "cluster": {"notifications_max": 10, "client_configs_layout": "shared"},
        "settings": {CONSTANTS_VARIABLE: json.dumps(SOON), "CONFPLANE_HTTP__MAX_CONNECTIONS": "16"},
        "module": "tests.support.stepping",
    }


@pytest.fixture(scope="module")
def site(service: Service, zk: KazooClient, module_database: Database) -> AlertingSite:
    service.wait_recorded()
    return AlertingSite(service, zk, module_database)


def znodes(*nodes: tuple[str, bytes]) -> Callable[[AlertingSite], AbstractContextManager[None]]:
    @contextmanager
    def planted(site: AlertingSite) -> Iterator[None]:
        made = [site.zk.create(path, data, sequence=path.endswith("_"), makepath=True) for path, data in nodes]
        try:
            yield
        finally:
            for path in made:
                site.zk.delete(path)

    return planted


def rollup(job: str, items: list[dict[str, Any]], *, days: int = 0, complete: bool = True) -> Any:
    @contextmanager
    def planted(site: AlertingSite) -> Iterator[None]:
        at = datetime.now(UTC) - timedelta(days=days)
        publish(site.database.service_dsn, job, items, at=at, complete=complete)
        try:
            yield
        finally:
            run(site.database.owner_dsn, "DELETE FROM rollup_runs")

    return planted


@contextmanager
def frozen(site: AlertingSite) -> Iterator[None]:
    site.zk.set(FREEZE, encode_freeze(Freeze("INC-7", "User:a", 0)))
    try:
        yield
    finally:
        site.zk.set(FREEZE, b"")


@contextmanager
def restored(site: AlertingSite) -> Iterator[None]:
    before, _ = site.zk.get(INCARNATION)
    site.zk.delete(INCARNATION)
    try:
        yield
    finally:
        site.zk.create(INCARNATION, before)


@contextmanager
def notifications(site: AlertingSite) -> Iterator[None]:
    """Announce nine changes, of which brokers see ten."""
    with znodes(("/brokers/ids/1", b"{}"), ("/config/users/busy", rate(1)))(site):
        made = [notify(site.zk, "users/busy") for _ in range(9)]
        try:
            yield
        finally:
            for path in made:
                site.zk.delete(path)


@contextmanager
def unreadable(site: AlertingSite) -> Iterator[None]:
    with znodes(("/config/users/broken", b"{"))(site):
        notify(site.zk, "users/broken")
        yield
    notify(site.zk, "users/broken")


@contextmanager
def connections(site: AlertingSite) -> Iterator[None]:
    """Open connections that send nothing."""
    with ExitStack() as stack:
        for _ in range(14):
            stack.enter_context(socket.create_connection(("127.0.0.1", site.service.port)))
        yield


MISMATCH: Final = {
    "tree": "/config", "entity_id": "user=a", "kind": "content", "config_key": "acks", "trail_revision": 2,
    "change_id": None, "expected": "1", "found": None, "trail_version": 1, "version": 1, "znode_revision": 2,
    "pending": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("alert", "plant"),
    [
        ("FrozenForLong", frozen),
        ("StoreRestored", restored),
        ("StrayNotifications", znodes(("/config/changes/other", b""))),
        ("NamelessNotifications", znodes(("/config/changes/config_change_", b'{"version":2,"entity_path":""}'))),
        ("UnreadableZnodes", unreadable),
        ("StrayMarkers", znodes((f"/confplane/commits/{NEVER}", b""))),
        ("NotificationsNearLimit", notifications),
        ("ConnectionsNearLimit", connections),
        ("RollupFailed", rollup("drift", [], complete=False)),
        ("RollupMissing", rollup("integrity", [], days=3)),
        ("RollupMismatches", rollup("integrity", [MISMATCH])),
    ],
)
def test_an_alert_fires_while_there_is_its_fault(
    site: AlertingSite, alert: str, plant: Callable[[AlertingSite], AbstractContextManager[None]]
) -> None:
    wait_for(lambda: alerting(site.service) == set())
    with plant(site):
        wait_for(lambda: alert in alerting(site.service))


def test_alerts_fire_while_the_stores_are_down(own_postgres: Postgres, tmp_path: Path) -> None:
    down = {"PostgresDown", "ZooKeeperUnreachable", "LeaderMissing"}
    with (
        ZooKeeper(tmp_path / "zookeeper", durable=False) as zookeeper,
        Service(tmp_path / "service", connect=zookeeper.hosts, dsn=own_postgres.dsn(SERVICE, "trail")) as service,
    ):
        wait_for(lambda: alerting(service) == set())
        own_postgres.stop()
        zookeeper.stop()
        wait_for(lambda: down <= alerting(service))
