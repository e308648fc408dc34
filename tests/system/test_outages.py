"""ZooKeeper or Postgres away: what goes on, what is refused and how, and that all comes back by itself."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from confplane.audit.migrate import upgrade
from confplane.client import ProblemError
from confplane.devstack.postgres import OWNER, SERVICE, Postgres
from confplane.devstack.zookeeper import ZooKeeper
from confplane.domain.entities import Entity
from tests.support.metrics import scrape
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Entity.of(user="alice")


async def test_zookeeper_away_and_back(tmp_path: Path, own_postgres: Postgres) -> None:
    zookeeper = ZooKeeper(tmp_path / "zookeeper")
    zookeeper.start()
    try:
        dsn = own_postgres.dsn(SERVICE, "trail")
        with Service(tmp_path / "service", connect=zookeeper.hosts, dsn=dsn) as service:
            async with service.client() as client:
                await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
                assert (await client.get("client-quotas", ALICE)).stale_ms is None
                zookeeper.stop()
                deadline = time.monotonic() + 90
                while (read := await client.get("client-quotas", ALICE)).stale_ms is None:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)
                assert read.body["quotas"] == {"producer_byte_rate": 1}
                with pytest.raises(ProblemError) as caught:
                    await client.put("client-quotas", ALICE, {"producer_byte_rate": 2})
                assert caught.value.status == 503
                assert caught.value.retry_after_s is not None
                assert caught.value.outcome == "not_applied"
                ready = await client.request("GET", "/readyz")
                assert ready.body["status"] == "degraded"
                await asyncio.sleep(6)  # past the session's timeout, so that it is lost and not merely suspended
                assert (await client.get("client-quotas", ALICE)).body["quotas"] == {"producer_byte_rate": 1}
                zookeeper.start()
                await until(lambda: client.put("client-quotas", ALICE, {"producer_byte_rate": 3}), refused=ProblemError)
                again = await client.get("client-quotas", ALICE, strong=True)
                assert again.body["quotas"] == {"producer_byte_rate": 3}
                assert again.stale_ms is None
    finally:
        zookeeper.stop()


async def test_postgres_away_and_back(tmp_path: Path, chroot: str, own_postgres: Postgres) -> None:
    dsn = own_postgres.dsn(SERVICE, "trail")
    with Service(tmp_path / "service", connect=chroot, dsn=dsn) as service:
        async with service.client() as client:
            await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
            own_postgres.stop()
            with pytest.raises(ProblemError) as caught:
                await client.put("client-quotas", ALICE, {"producer_byte_rate": 2})
            assert caught.value.status == 503
            assert caught.value.retry_after_s is not None
            assert caught.value.outcome == "not_applied"
            with pytest.raises(ProblemError) as caught:
                await client.put("client-quotas", ALICE, {"producer_byte_rate": 3}, idempotency_key="k")
            # Only Postgres knows whether an earlier request with the key was applied.
            assert (caught.value.status, caught.value.outcome) == (503, "unknown")
            assert caught.value.retry_after_s is not None
            read = await client.get("client-quotas", ALICE, strong=True)
            assert read.body["quotas"] == {"producer_byte_rate": 1}
            assert read.stale_ms is None
            with pytest.raises(ProblemError) as caught:
                await client.request("GET", "audit")
            assert caught.value.status == 503
            assert (await client.request("GET", "/readyz")).body["status"] == "degraded"
            away = await asyncio.to_thread(scrape, service)
            assert (away("postgres_up"), away("ready"), away("warnings")) == (0, 1, 0)
            assert away("postgres_faults_total") >= 4
            own_postgres.start()
            again = {"producer_byte_rate": 3}
            await until(lambda: client.put("client-quotas", ALICE, again, idempotency_key="k"), refused=ProblemError)
            assert (await client.put("client-quotas", ALICE, again, idempotency_key="k")).replayed
            trail = [item async for item in client.items("audit", entity=ALICE.id, outcome="committed")]
            assert [item["entities"][0]["after"]["producer_byte_rate"] for item in trail] == ["3", "1"]
            assert (await asyncio.to_thread(scrape, service))("postgres_up") == 1


async def test_a_revert_without_a_key_is_answered_with_its_outcome_while_postgres_is_away(
    tmp_path: Path, chroot: str, own_postgres: Postgres
) -> None:
    with Service(tmp_path, connect=chroot, dsn=own_postgres.dsn(SERVICE, "trail")) as service:
        async with service.client() as client:
            first = await client.put("client-quotas", ALICE, {"producer_byte_rate": 1})
            second = await client.put("client-quotas", ALICE, {"producer_byte_rate": 2})
            own_postgres.stop()
            bodies = {
                "audit:revert": {"changeId": second.change_id},
                f"client-quotas/{ALICE.id}:revert": {"to": str(first.revision)},
            }
            for path, body in bodies.items():
                with pytest.raises(ProblemError) as caught:
                    await client.request("POST", path, json=body)
                assert (caught.value.status, caught.value.outcome) == (503, "not_applied")
                assert caught.value.retry_after_s
                # An earlier request with the key may have been done.
                with pytest.raises(ProblemError) as caught:
                    await client.request("POST", path, json=body, headers={"Idempotency-Key": "k"})
                assert (caught.value.status, caught.value.outcome) == (503, "unknown")


async def test_a_service_that_starts_before_its_stores(tmp_path: Path) -> None:
    zookeeper = ZooKeeper(tmp_path / "zookeeper")
    postgres = Postgres(tmp_path / "postgres", durable=False)
    with postgres, zookeeper:  # once, for their ports and the schema
        postgres.create_database("trail")
        upgrade(postgres.dsn(OWNER, "trail"), SERVICE)
    service = Service(tmp_path / "service", connect=zookeeper.hosts, dsn=postgres.dsn(SERVICE, "trail"))
    service.start(wait_ready=False)
    try:
        async with service.client() as client:
            end = time.monotonic() + 90
            while True:
                try:
                    await client.request("GET", "/readyz")
                except Exception as error:  # noqa: BLE001 - either not listening yet, or not ready
                    if isinstance(error, ProblemError) and error.status == 503:
                        break
                assert time.monotonic() < end
                await asyncio.sleep(0.1)
            with pytest.raises(ProblemError) as caught:
                await client.get("client-quotas", ALICE)
            assert caught.value.status == 503
            with postgres, zookeeper:
                await until(lambda: client.put("client-quotas", ALICE, {"producer_byte_rate": 1}), refused=ProblemError)
                service.wait_ready()
    finally:
        service.stop()
