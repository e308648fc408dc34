"""Temporary changes over the API: they end by themselves, and show no hidden entity."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from tests.support.facets import ConfplaneClient
from tests.support.waiting import until
from tests.support.world import RECORDING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.support.service import Service
    from tests.support.world import World

RATE: Final = "producer_byte_rate"
ALICE: Final = Entity.of(user="alice")


HOUR_S: Final = 3_600
SOON: Final = {
    **RECORDING,
    "confplane.services.schedules.service.SHORTEST_S": -HOUR_S,
    "confplane.services.schedules.scheduler.INTERVAL_S": 0.2,
}
"""Constants of a service that accepts ends in the past, and ends due changes at once."""


async def test_a_change_ends_by_itself_and_each_answer_shows_it(world: World) -> None:
    async with world.service(constants=SOON) as service, service.client() as client:
        await client.put("client-quotas", ALICE, {RATE: 1})
        begun = await client.put("client-quotas", ALICE, {RATE: 2}, revert_at=datetime.now(UTC).isoformat())
        [schedule] = await until(partial(_ended, client))
        [end] = [each async for each in client.items("audit", outcome="committed") if each["ends"] is not None]
        assert (schedule["changeId"], schedule["state"], schedule["kept"]) == (begun.change_id, "ended", [])
        assert (end["changeId"], end["ends"], end["reverts"]) == (
            schedule["endChangeId"],
            begun.change_id,
            [begun.change_id],
        )
        assert (await client.get("client-quotas", ALICE, strong=True)).body["quotas"] == {RATE: 1}


async def test_a_caller_sees_and_ends_the_temporary_changes_of_its_entities(service: Service) -> None:
    seen, both = Entity.of(user="seen"), [Entity.of(user="seen"), Entity.of(user="unseen")]
    async with service.client() as admin:
        own = await admin.put("client-quotas", seen, {RATE: 1}, expires_in=HOUR_S)
        joint = await admin.alter("client-quotas", [(each, {RATE: 2}) for each in both], atomic=True, expires_in=HOUR_S)
        assert len([each async for each in admin.items("schedules")]) == 2
    token = await _granted(service, "User:seer", "DESCRIBE_CONFIGS", "seen")
    async with ConfplaneClient(service.url, token=token) as client:
        assert [each["changeId"] async for each in client.items("schedules")] == [own.change_id]
        assert await _status(client.schedules.end(str(own.change_id))) == 403
        assert await _status(client.schedules.end(str(joint.change_id))) == 404
        assert await _status(client.schedules.pause("not allowed")) == 403
    token = await _granted(service, "User:writer", "ALTER_CONFIGS", "seen", "unseen")
    async with ConfplaneClient(service.url, token=token) as client:
        assert (await client.schedules.end(str(own.change_id))).body["state"] == "ended"
        ended = await client.schedules.end(str(joint.change_id))
        assert (ended.body["state"], ended.change_id) == ("ended", ended.body["endChangeId"])
        await client.put("client-quotas", both[1], {RATE: 3})
        again = await client.schedules.end(str(joint.change_id))
        # Its revision is that of the end, also on a process that has loaded nothing yet.
        assert (again.body, again.revision) == (ended.body, ended.revision)
        assert await _status(client.get("client-quotas", seen)) == 404


async def _status(call: Awaitable[Any]) -> int:
    """The status of a refusal."""
    with pytest.raises(ProblemError) as caught:
        await call
    return caught.value.status


async def _granted(service: Service, principal: str, operation: str, *names: str) -> str:
    """A token of a principal with an operation on users."""
    headers = {"Authorization": f"Bearer {service.token}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False, timeout=60) as admin:
        for name in names:
            grant = {"principal": principal, "operation": operation, "resourceType": "user", "name": name}
            assert (await admin.post("/v1/grants", json=grant)).status_code == 201
        token: str = (await admin.post("/v1/tokens", json={"principal": principal})).json()["token"]

    async def accepted() -> bool:
        own = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=service.url, headers=own, trust_env=False, timeout=60) as client:
            return (await client.get("/v1/clusters/default/schedules")).status_code == 200

    await until(accepted)
    return token


async def _ended(client: ConfplaneClient) -> list[dict[str, Any]]:
    """Return the schedules that have ended."""
    return [each async for each in client.items("schedules", ended="true")]
