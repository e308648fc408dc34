"""Bodies of describes that come again and again: what is kept of them never shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import orjson

if TYPE_CHECKING:
    from tests.support.service import Service

ALICE = {"entityType": "user", "matchType": "exact", "match": "alice"}


def test_bodies_that_come_again(service: Service) -> None:
    url = f"{service.url}/v1/clusters/default/client-quotas:describe"
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
    sound = orjson.dumps({"components": [{**ALICE, "match": "nobody"}]})
    with httpx.Client(headers=headers, trust_env=False) as client:
        for _ in range(2):
            assert client.post(url, content=sound).json()["entries"] == []
            assert client.post(url, content=sound + b" " * 2000).json()["entries"] == []
            missing = client.post(url, content=b'{"components":[{"entityType":"user"}]}')
            assert (missing.status_code, missing.json()["errors"][0]["pointer"]) == (400, "/components/0/matchType")
            unknown = client.post(url, content=b'{"components":[{"entityType":"user","matchType":"near"}]}')
            assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (400, "/components/0/matchType")
            assert client.post(url, content=b'{"components":').status_code == 400
            assert client.post(url, content=b"").status_code == 400
            # The same bytes mean nothing to the other facet.
            ip = b'{"components":[{"entityType":"ip","matchType":"any"}]}'
            assert client.post(url, content=ip).status_code == 200
            assert client.post(url.replace("quotas", "configs"), content=ip).status_code == 400
