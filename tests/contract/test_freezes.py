"""Freezing and thawing over HTTP: who may, what the answers and the trail have, and repeated requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest_asyncio

from confplane.domain.access.operations import Operation, ResourceType
from tests.support.inside import running_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    import pytest

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.inside import Inside

BASE = "/v1/clusters/default"


@pytest_asyncio.fixture(scope="module")
async def inside(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service where ``olga`` may freeze the cluster, and ``team`` may alter its configs."""
    async with running_on(zookeeper, postgres, tmp_path_factory) as running:
        await running.give("User:olga", operation=Operation.FREEZE, resource=ResourceType.CLUSTER, cluster="default")
        await running.give("User:team", operation=Operation.ALTER_CONFIGS, resource=ResourceType.CLUSTER)
        yield running


async def post(inside: Inside, verb: str, principal: str = "olga", query: str = "", **more: Any) -> httpx.Response:
    body = {"reason": more.pop("reason", "upgrade"), **more.pop("body", {})}
    return await inside.send(principal, "POST", f"{BASE}:{verb}{query}", body, **more)


def done(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert answer.status_code == 200, answer.text
    return body


async def put(inside: Inside) -> int:
    return (await inside.send("team", "PUT", "client-configs/user=alice", {"configs": {"acks": "all"}})).status_code


async def test_a_freeze_and_a_thaw(inside: Inside) -> None:
    answer = await post(inside, "freeze")
    frozen = done(answer)
    assert frozen["before"] is None
    assert (frozen["after"]["reason"], frozen["after"]["principal"]) == ("upgrade", "User:olga")
    assert frozen["after"]["since"].endswith("Z")
    assert answer.headers["confplane-change-id"] == frozen["changeId"]
    # Who sends the revision back waits for nothing: a freeze is no config that a mirror shows.
    seen = {"Confplane_Min_Revision": answer.headers["confplane-revision"]}
    assert (await inside.send("admin", "GET", "client-quotas", **seen)).status_code == 200
    assert int(frozen["revision"]) > 0
    assert await put(inside) == 409
    again = done(await post(inside, "freeze"))
    assert (again["changeId"], again["after"]) == (None, frozen["after"])
    other = await post(inside, "freeze", reason="another")
    assert (other.status_code, other.json()["kafkaErrorCode"]) == (409, 92)
    assert "by User:olga: upgrade" in other.json()["detail"]

    thawed = done(await post(inside, "thaw", reason="done"))
    assert (thawed["before"], thawed["after"]) == (frozen["after"], None)
    assert await put(inside) == 200
    trail = (await inside.send("admin", "GET", "audit?entity=cluster")).json()["items"]
    assert [(item["principal"], item["reason"], item["changeId"]) for item in trail] == [
        ("User:olga", "done", thawed["changeId"]),
        ("User:olga", "upgrade", frozen["changeId"]),
    ]
    assert done(await post(inside, "thaw"))["changeId"] is None


async def test_the_grant_is_needed(inside: Inside) -> None:
    for verb in ("freeze", "thaw"):
        for query in ("", "?validateOnly=true"):
            refused = await post(inside, verb, "team", query)
            assert (refused.status_code, refused.json()["kafkaErrorCode"]) == (403, 31)
            assert "FREEZE" in refused.json()["detail"]
    assert await put(inside) == 200


async def test_a_validated_freeze_writes_nothing(inside: Inside) -> None:
    for query, body in (("?validateOnly=true", {}), ("", {"validateOnly": True})):
        validated = done(await post(inside, "freeze", query=query, body=body))
        assert (validated["changeId"], validated["after"]["reason"]) == (None, "upgrade")
        assert await put(inside) == 200


async def test_a_request_that_is_sent_again_freezes_nothing_again(inside: Inside) -> None:
    frozen = await post(inside, "freeze", Idempotency_Key="f")
    done(await post(inside, "thaw", Idempotency_Key="t"))
    replayed = await post(inside, "freeze", Idempotency_Key="f")
    assert (replayed.json(), replayed.headers["idempotency-replayed"]) == (frozen.json(), "true")
    assert await put(inside) == 200
    other = await post(inside, "freeze", reason="another", Idempotency_Key="f")
    assert other.status_code == 422


async def test_requests_that_are_wrong(inside: Inside) -> None:
    for body in ({}, {"reason": ""}, {"reason": 1}, {"reason": "x", "until": "tomorrow"}):
        answer = await inside.send("olga", "POST", f"{BASE}:freeze", body)
        assert answer.status_code == 400, body
        assert answer.json()["errors"][0]["pointer"] in {"/reason", "/until"}
    for path, status in ((f"{BASE}:melt", 405), ("/v1/clusters/none:freeze", 404), ("/v1/clusters/:freeze", 405)):
        assert (await inside.send("olga", "POST", path, {"reason": "x"})).status_code == status, path
    assert (await inside.send("olga", "GET", f"{BASE}:freeze")).status_code == 404
    for path in (f"{BASE}:freeze/client-quotas", f"{BASE}:/client-quotas", f"{BASE}:x/client-quotas/user=alice"):
        assert (await inside.send("admin", "GET", path)).status_code == 404, path
    altered = await inside.send("admin", "POST", f"{BASE}:x/client-quotas:alter", {"entries": []})
    assert altered.status_code == 404
    conditional = await post(inside, "freeze", If_Match='"a"')
    assert conditional.status_code == 400
