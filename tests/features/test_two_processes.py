"""Two services on one ZooKeeper and one Postgres."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

WRITERS = 7
CONTESTED = Entity.of(user="contested", client_id="both")


async def test_a_write_through_one_is_described_by_the_other(pair: tuple[Service, Service]) -> None:
    async with pair[0].client() as one, pair[1].client() as two:
        for value in range(1, 51):
            writer, reader = (one, two) if value % 2 else (two, one)
            written = await writer.put("client-quotas", Entity.of(user="pair"), {"producer_byte_rate": value})
            assert written.revision is not None
            read = await reader.get("client-quotas", Entity.of(user="pair"), min_revision=written.revision)
            assert read.body["quotas"] == {"producer_byte_rate": value}
            assert read.revision is not None
            assert read.revision >= written.revision


async def test_a_revision_that_never_was_is_answered_503(pair: tuple[Service, Service]) -> None:
    async with pair[0].client() as client:
        now = (await client.get("client-quotas", Entity.of(user="pair"), strong=True)).revision
        assert now is not None
        with pytest.raises(ProblemError) as caught:
            await client.request(
                "GET", "client-quotas/user=pair", headers={"Confplane-Min-Revision": str(now + 1_000_000)}
            )
        assert caught.value.status == 503
        assert caught.value.retry_after_s is not None


@pytest.mark.parametrize("alters", [150, pytest.param(1_000, marks=pytest.mark.long)])
async def test_contested_writes_are_all_kept_and_the_trail_has_no_break(
    pair: tuple[Service, Service], alters: int
) -> None:
    """Alters of one entity through both services by seven writers, each of which owns one key."""
    keys: list[tuple[str, str, list[Any]]] = [
        ("client-quotas", "producer_byte_rate", list(range(1, 200))),
        ("client-quotas", "consumer_byte_rate", list(range(1, 200))),
        ("client-quotas", "request_percentage", [value / 4 for value in range(1, 200)]),
        ("client-quotas", "controller_mutation_rate", [value / 2 for value in range(1, 200)]),
        ("client-configs", "acks", ["0", "1", "all", "-1"]),
        ("client-configs", "session.timeout.ms", [str(value) for value in range(60_000, 60_200)]),
        ("client-configs", "heartbeat.interval.ms", [str(value) for value in range(1_000, 1_200)]),
    ]
    assert len(keys) == WRITERS
    acknowledged: dict[str, Any] = {}
    revisions: list[int] = []
    numbers = itertools.count()

    async def writer(clients: list[ConfplaneClient], facet: str, key: str, values: list[Any]) -> None:
        for position in itertools.count():
            if next(numbers) >= alters:
                return
            value = values[position % len(values)]
            while True:
                try:
                    answer = await clients[position % 2].alter(facet, [(CONTESTED, {key: value})])
                except ProblemError as error:
                    # Two processes contend: a conflict at the deadline is an honest answer, and nothing was applied.
                    assert error.status == 409, error.body
                    assert error.outcome == "not_applied"
                    continue
                break
            acknowledged[key] = value
            revisions.append(int(answer.body["entries"][0]["revision"]))

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(service.client()) for service in pair]
        await asyncio.gather(*(writer(clients, *key) for key in keys))
        assert len(revisions) >= alters
        for client in clients:
            quotas = await client.get("client-quotas", CONTESTED, strong=True)
            configs = await client.get("client-configs", CONTESTED, strong=True)
            assert quotas.body["quotas"] | configs.body["configs"] == acknowledged
        trail = [item async for item in clients[0].items("audit", entity=CONTESTED.id, outcome="committed")]

    trail.sort(key=lambda item: int(item["revision"]))
    committed = [int(item["revision"]) for item in trail]
    assert len(set(committed)) == len(committed)
    assert set(revisions) <= set(committed)
    # Keys of the other facet are redacted in a row, so the chain is held together per facet, by version throughout.
    versions = [item["entities"][0]["version"] for item in trail]
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    previous: dict[str, dict[str, Any]] = {"client-quotas": {}, "client-configs": {}}
    for item in trail:
        entity = item["entities"][0]
        own = {key for facet, key, _ in keys if facet == entity["facet"]}
        before = {key: value for key, value in entity["before"].items() if key in own}
        assert before == previous[entity["facet"]]
        previous[entity["facet"]] = {key: value for key, value in entity["after"].items() if key in own}
        assert entity["versionRead"] is None or entity["versionRead"] == entity["version"] - 1
