"""Reports of readiness: the state of each cluster is that of the moment, while a check of Postgres is shared."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import UnavailableError
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.store import MirrorState, SessionState, StoreStatus
from confplane.services.upkeep.readiness import Readiness
from tests.support.alerts import PartAlerts

if TYPE_CHECKING:
    from confplane.services.upkeep.readiness import ReadinessState


class Stores:
    """A cluster with a state of any kind, and a Postgres that answers when it is let."""

    def __init__(self) -> None:
        self.frozen: OperatorWarning | None = None
        self.mirror = MirrorState.FRESH
        self.fault: str | None = None
        self.checks = 0
        self.tokens_read = self.connection_checked = True
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    def status(self) -> StoreStatus:
        return StoreStatus(
            session=SessionState.CONNECTED, session_ms=1, mirror=self.mirror, revision=7, stale_ms=None,
            brokers_registered=False, notifications=0, checked=self.connection_checked, frozen=self.frozen, warnings=(OperatorWarning("of the cluster"),),
        )  # fmt: skip

    async def check(self) -> list[OperatorWarning]:
        self.checks += 1
        self.asked.set()
        await self.answers.wait()
        if self.fault is not None:
            raise UnavailableError(self.fault)
        return [OperatorWarning("of Postgres")]


@pytest.fixture
async def stores() -> Stores:
    return Stores()


def make_readiness(stores: Stores, **options: Any) -> Readiness:
    clusters: Any = [SimpleNamespace(name="default", store=stores)]
    audit: Any = stores
    return Readiness(clusters, audit, tokens_read=lambda: stores.tokens_read, **options)


@pytest.fixture
async def readiness(stores: Stores) -> Readiness:
    return make_readiness(stores)


def frozen(report: ReadinessState) -> str | None:
    notice = report.clusters["default"].frozen
    return None if notice is None else notice.text(named=True)


async def test_a_cluster_has_its_state_of_the_moment_though_postgres_was_asked_before(
    stores: Stores, readiness: Readiness
) -> None:
    alerts = PartAlerts(readiness)
    assert "Warnings" not in alerts.scrape()
    assert frozen(await readiness.report()) is None
    assert alerts.scrape() == {"Warnings"}
    stores.frozen = OperatorWarning("an upgrade")
    assert frozen(await readiness.report()) == "an upgrade"
    assert stores.checks == 1


async def test_a_cluster_may_change_while_postgres_is_asked(stores: Stores, readiness: Readiness) -> None:
    stores.answers.clear()
    both = [asyncio.create_task(readiness.report()) for _ in range(2)]
    await stores.asked.wait()
    stores.frozen = OperatorWarning("an upgrade")
    stores.answers.set()
    assert [frozen(each) for each in await asyncio.gather(*both)] == ["an upgrade"] * 2
    assert stores.checks == 1


async def test_it_is_ready_from_the_first_time_on_at_which_all_stores_were_there(stores: Stores) -> None:
    readiness = make_readiness(stores, kept_s=0)

    async def state() -> tuple[bool, bool, str | None]:
        report = await readiness.report()
        return report.ready, report.degraded, report.postgres

    stores.mirror = MirrorState.LOADING
    assert await state() == (False, True, None)
    stores.mirror, stores.fault = MirrorState.FRESH, "Postgres is away"
    assert await state() == (False, True, "Postgres is away")
    stores.fault, stores.tokens_read = None, False
    assert await state() == (False, False, None)
    stores.tokens_read, stores.connection_checked = True, False
    assert await state() == (False, False, None)
    stores.connection_checked = True
    assert await state() == (True, False, None)
    stores.connection_checked = False
    assert await state() == (True, False, None)
    stores.fault = "Postgres is away"
    assert await state() == (True, True, "Postgres is away")
    readiness.stopping = True
    assert await state() == (False, True, "Postgres is away")
    texts = [notice.text(named=True) for notice in (await readiness.report()).warnings]
    assert texts == ["default: of the cluster"]
