"""Rules that ask for approvals, against every way to change configs.

The list of these ways comes from the routes: an operation without a row fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.api.app import FAMILIES
from confplane.api.routing.operations import Effect
from tests.support.entry_points import ALL, EXEMPT, ROWS, THIRD, filled, ruled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.entry_points import Sent
    from tests.support.inside import Inside


def test_every_operation_that_changes_configs_has_a_row() -> None:
    changing = {
        str(route.operation_id)
        for family in FAMILIES
        for route in family
        if route.operation.effect is Effect.CHANGE or route.path.endswith(":apply")
    }
    assert changing == ROWS.keys() | EXEMPT.keys()


@pytest_asyncio.fixture(scope="module")
async def inside(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service whose rule asks everybody except the admin for an approval."""
    async with ruled(zookeeper, postgres, tmp_path_factory) as (running, _):
        yield running


async def newest(inside: Inside) -> Any:
    return (await inside.send("admin", "GET", "audit?pageSize=1")).json()["items"][0]


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_a_write_without_approval_is_refused(inside: Inside, name: str, row: Sent) -> None:
    del name
    before = await newest(inside)
    method, path, body = await filled(inside, row)
    answer = await inside.send("writer", method, path, body)
    needs_approval(answer)
    assert await newest(inside) == before


@pytest.mark.parametrize(("name", "row"), ALL)
async def test_a_trial_says_that_approval_is_needed(inside: Inside, name: str, row: Sent) -> None:
    method, path, body = await filled(inside, row)
    answer = await inside.send("writer", method, f"{path}?validateOnly=true&view=full", body)
    assert answer.status_code < 300, answer.text
    if name not in {"alterEntityConfigs", "changeGlobalConfig"} and answer.content:
        assert "needs approval: rule 'two-people' asks for an approval of Group:leads" in answer.text


async def test_an_end_of_a_temporary_change_needs_no_approval(inside: Inside) -> None:
    begun = await inside.send("admin", "PUT", "client-quotas/user=temporary?expiresIn=3600", THIRD["client-quotas"])
    ended = await inside.send("writer", "POST", f"schedules/{begun.headers['confplane-change-id']}:end")
    assert (ended.status_code, ended.json()["state"]) == (200, "ended"), ended.text


def needs_approval(answer: httpx.Response) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.json()["kafkaErrorCode"] == 44
    assert "rule 'two-people' asks for an approval of Group:leads" in answer.text
    assert "/v1/clusters/default/change-requests" in answer.text
