"""The reference cycles that requests leave behind: nothing but Python's garbage collector frees them.

The collector runs seldom (``confplane.gc_tuning``), so cycles hold memory until a collection that blocks the event loop.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, Final

from confplane.api.app import FAMILIES
from tests.support import servers
from tests.support.inside import running_inside
from tests.support.published import publish_all
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest
    from starlette.types import ASGIApp, Message

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper

REQUESTS: Final = (10, 100)
"""Requests of a measurement, and of a second one, which is made only if the first finds half an object per request.

What runs in the background leaves some objects as well, and fewer than 50 while 100 requests are sent.
"""
IDS: Final = {"client-quotas": "user=alice", "client-configs": "user=alice", "configs": "broker=0"}
FUTURE: Final = "9999-01-01T00:00:00Z"
PAST: Final = "2020-01-01T00:00:00Z"
QUERIES: Final = {
    "searchAudit": [
        "",
        "entity=user%3Dalice",
        "key=acks",
        "principal=User:admin",
        "requestId=unknown",
        "outcome=open",
        "outcome=committed",
        "outcome=rejected",
        f"since={PAST}&until={FUTURE}",
    ],
    "searchAccessAudit": ["", f"principal=User:alice&since={PAST}"],
    "getAccess": ["resource=user:alice&operation=DESCRIBE_CONFIGS"],
    "getRollupDrift": ["", "configKey=acks", "filter=unreadable", "orderBy=entities"],
    **{f"get{noun}": ["", f"at={FUTURE}"] for noun in ("ClientQuotas", "ClientConfigs", "Configs")},
    **{f"list{noun}": ["", f"at={FUTURE}"] for noun in ("ClientQuotas", "ClientConfigs", "Configs")},
    **{f"diff{noun}": [f"from={PAST}", f"from={FUTURE}"] for noun in ("ClientQuotas", "ClientConfigs", "Configs")},
}
"""The queries of operations that have several kinds of work, or a required parameter."""
REFUSED: Final = ("protected-resource", "rollups/{name}", "filter=unreadable", f"diff?from={PAST}")
"""Parts of the requests that are refused; all others are answered with a status of 200."""


async def answer(app: ASGIApp, token: str, path: str, query: str, *, leaves: bool = False) -> int:
    """Send a request without a client library, which would leave objects as well, and return the status.

    A client that leaves closes the connection once it has sent the request.
    """
    statuses = []
    body: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    gone = asyncio.Event()

    async def receive() -> Message:
        if not body and leaves:
            await asyncio.sleep(0)  # the work begins
            return {"type": "http.disconnect"}
        if not body:
            await gone.wait()
        return body.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"inside"), (b"authorization", b"Bearer " + token.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("inside", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return int(statuses[0])


async def left_behind(app: ASGIApp, token: str, path: str, query: str, *, leaves: bool = False) -> int:
    """Return the number of unreachable objects after the requests, or 0 if these did not leave them."""
    await answer(app, token, path, query, leaves=leaves)  # fills the caches
    found = 0
    for requests in REQUESTS:
        gc.collect()
        gc.disable()
        try:
            for _ in range(requests):
                await answer(app, token, path, query, leaves=leaves)
            found = gc.collect()
        finally:
            gc.enable()
        if found <= requests // 2:
            return 0
    return found


async def test_requests_leave_no_cycles(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database, chroot = servers.make_migrated(postgres), servers.make_chroot(zookeeper.hosts)
    publish_all(database.service_dsn)
    async with running_inside(chroot, database, tmp_path_factory.mktemp("inside")) as inside:
        await inside.send("admin", "PUT", "client-quotas/user=alice", {"quotas": {"producer_byte_rate": 1}})
        await inside.send("admin", "PUT", "client-configs/user=alice", {"configs": {"acks": "all"}})
        await inside.send("admin", "PUT", "configs/broker=0", {"configs": {"log.cleaner.threads": "1"}})
        changes = (await inside.send("admin", "GET", "audit")).json()["items"]

        async def past_known() -> bool:
            return (await inside.send("admin", "GET", f"configs?at={FUTURE}")).status_code == 200

        await until(past_known)
        token = (await inside.send("admin", "POST", "/v1/tokens", {"principal": "User:alice"})).json()
        grant = await inside.give("User:reader", operation="DESCRIBE_CONFIGS", resource="user", name="alice")
        reader = (await inside.send("admin", "POST", "/v1/tokens", {"principal": "User:reader"})).json()
        named = {
            "cluster": "default",
            "tokenId": token["id"],
            "grantId": str(grant.grant.id),
            "changeId": changes[-1]["changeId"],
        }
        found: dict[tuple[str, str, str], int] = {}
        # Only what the requests create is walked by the collections.
        gc.collect()
        gc.freeze()
        for route in (route for family in FAMILIES for route in family if "GET" in (route.methods or ())):
            path = route.path_format
            named["id"] = next((IDS[facet] for facet in IDS if f"/{facet}/" in path), "")
            for name, value in named.items():
                path = path.replace(f"{{{name}}}", value)
            for query in QUERIES.get(str(route.operation_id), [""]):
                found["admin", path, query] = await left_behind(inside.app, inside.admin_token, path, query)
                if "audit" in path:
                    found["reader", path, query] = await left_behind(inside.app, reader["token"], path, query)
        base = "/v1/clusters/default"
        for path, query in (
            (f"{base}/audit", ""),
            (f"{base}/audit", "result=refused"),
            (f"{base}/client-quotas", f"at={PAST}"),
            (f"{base}/client-quotas/user=alice/history", ""),
        ):
            assert await answer(inside.app, inside.admin_token, path, query, leaves=True) == 499
            found["gone", path, query] = await left_behind(inside.app, inside.admin_token, path, query, leaves=True)
        assert {request: count for request, count in found.items() if count} == {}
