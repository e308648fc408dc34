"""Several errors of one entity: the answer has all of them, and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.client import ProblemError
from tests.support.configs import ALTER, resource

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.facets import ConfplaneClient

BAD: Final[dict[str, tuple[str, str, dict[str, Any], str, list[str]]]] = {
    "quotas and client configs": (
        "POST",
        "clients:alter",
        {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "several"}],
                    "quotas": [{"key": "producer_byte_rate", "value": -1}, {"key": "request_percentage", "value": -1}],
                    "configs": [{"key": "acks", "value": "7"}, {"key": "nonsense", "value": "7"}],
                }
            ]
        },
        "entries",
        [f"/entries/0/{place}" for place in ("quotas/0", "quotas/1", "configs/0", "configs/1")],
    ),
    "a topic": (
        "POST",
        ALTER,
        {"resources": [resource("TOPIC", "several", ("flush.ms", "SET", "soon"), ("nonsense", "SET", "1"))]},
        "responses",
        ["/resources/0/configs/0/value", "/resources/0/configs/1/value"],
    ),
    "a broker": (
        "POST",
        ALTER,
        {"resources": [resource("BROKER", "77", ("broker.id", "SET", "1"), ("message.max.bytes", "SET", "-1"))]},
        "responses",
        ["/resources/0/configs/0/value", "/resources/0/configs/1/value"],
    ),
    "operations": (
        "POST",
        ALTER,
        {"resources": [resource("TOPIC", "several", ("flush.ms", "ADD", "1"), ("retention.ms", 9, "1"))]},
        "responses",
        ["/resources/0/configs/0/configOperation", "/resources/0/configs/1/configOperation"],
    ),
    "a user of KIP-21": (
        "POST",
        "entity-configs:alter",
        {
            "entities": [
                {
                    "entityType": "user",
                    "entityName": "several",
                    "addedConfigs": [
                        {"configKey": "producer_byte_rate", "configValue": "fast"},
                        {"configKey": "nonsense", "configValue": "1"},
                    ],
                    "deletedConfigs": ["more.nonsense"],
                }
            ]
        },
        "entities",
        [f"/entities/0/{place}" for place in ("addedConfigs/0", "addedConfigs/1", "deletedConfigs/0")],
    ),
}


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(("method", "path", "body", "member", "pointers"), BAD.values(), ids=BAD)
async def test_each_fault_of_an_entry_is_answered(
    client: ConfplaneClient,
    zk: KazooClient,
    method: str,
    path: str,
    body: dict[str, Any],
    member: str,
    pointers: list[str],
    *,
    atomic: bool,
) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.request(method, path, json=body | ({"atomic": True} if atomic and member != "entities" else {}))
    problem = caught.value.body
    [result] = problem[member]
    for found in (problem, result):
        assert [each["pointer"] for each in found["errors"]] == pointers
        assert len({each["detail"] for each in found["errors"]}) == len(pointers)
    assert problem["detail"] == result["errorMessage"] == problem["errors"][0]["detail"]
    for node in ("users/several", "topics/several", "brokers/77"):
        assert zk.exists(f"/config/{node}") is None


async def test_each_fault_of_a_put_is_answered(client: ConfplaneClient, zk: KazooClient) -> None:
    with pytest.raises(ProblemError) as caught:
        await client.put("client-quotas", "user=several", {"producer_byte_rate": -1, "nonsense": 1})
    assert [each["pointer"] for each in caught.value.body["errors"]] == [
        "/quotas/producer_byte_rate",
        "/quotas/nonsense",
    ]
    assert zk.exists("/config/users/several") is None
