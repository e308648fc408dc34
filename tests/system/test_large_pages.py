"""Lists of large entities: a page ends where its rows are large, and its token leads to the rest."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import httpx

from confplane.services.ports.pages import PAGE_BYTES

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.service import Service

ENTITIES = 12
LARGE = 900_000
KEY = "leader.replication.throttled.replicas"


def test_pages_of_large_entities(service: Service, zk: KazooClient) -> None:
    ids = [f"topic=large{number:02}" for number in range(ENTITIES)]
    for topic in ids:
        path = f"/config/topics/{topic.removeprefix('topic=')}"
        zk.create(path, json.dumps({"version": 1, "config": {KEY: "x" * LARGE}}).encode(), makepath=True)
    headers = {"Authorization": f"Bearer {service.token}"}
    service.stop()
    service.start()
    for view in ("default", "full"):
        found: list[str] = []
        pages = 0
        token: str | None = None
        deadline = time.monotonic() + 120
        while not pages or token is not None:
            assert time.monotonic() < deadline
            query = {"view": view, "pageSize": "100", **({} if token is None else {"pageToken": token})}
            answer = httpx.get(
                f"{service.url}/v1/clusters/default/configs", params=query, headers=headers, trust_env=False, timeout=60
            )
            body: dict[str, Any] = answer.json()
            assert answer.status_code == 200, body
            assert len(answer.content) < 1.1 * PAGE_BYTES
            assert body["items"]
            found += [item["id"] for item in body["items"]]
            token = body["nextPageToken"]
            pages += 1
        assert found == ids
        assert pages == ENTITIES * LARGE // PAGE_BYTES + 1
