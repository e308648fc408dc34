"""Describes that are asked again and again: what is kept between them never shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import orjson

from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

ALICE = {"entityType": "user", "matchType": "exact", "match": "alice"}
FILTERS: list[tuple[list[dict[str, Any]], bool]] = [
    ([], False),
    ([ALICE], False),
    ([ALICE], True),
    ([{"entityType": "user", "matchType": "any"}], False),
]


async def results_of_filters(client: ConfplaneClient) -> list[dict[str, dict[str, float]]]:
    """The results of each filter, by the entities' ids."""
    found = []
    for components, strict in FILTERS:
        body = (await client.describe("client-quotas", components, strict=strict)).body
        found.append(
            {
                Entity.from_components((part["entityType"], part["entityName"]) for part in entry["entity"]).id: {
                    item["key"]: item["value"] for item in entry["values"]
                }
                for entry in body["entries"]
            }
        )
    return found


async def test_every_change_is_in_the_next_describe(client: ConfplaneClient) -> None:
    alice, pair = {"producer_byte_rate": 1}, {"request_percentage": 12.5}
    await client.put("client-quotas", "user=alice", alice)
    await client.put("client-quotas", "user=alice,client-id=b", pair)
    both = {"user=alice": alice, "user=alice,client-id=b": pair}
    for _ in range(2):
        assert await results_of_filters(client) == [both, both, {"user=alice": alice}, both]
    await client.put("client-quotas", "user=alice", {"producer_byte_rate": 2})
    both["user=alice"] = {"producer_byte_rate": 2}
    assert await results_of_filters(client) == [both, both, {"user=alice": {"producer_byte_rate": 2}}, both]
    await client.delete("client-quotas", "user=alice")
    left = {"user=alice,client-id=b": pair}
    assert await results_of_filters(client) == [left, left, {}, left]
    await client.put("client-quotas", "user=alice", alice)
    both["user=alice"] = alice
    assert await results_of_filters(client) == [both, both, {"user=alice": alice}, both]


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
