"""`confplane freeze` and `thaw` against two services that go on serving meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from confplane.cli.commands import cli as commands
from confplane.client import ProblemError
from confplane.domain.entities import Entity
from tests.support.ports import reserved_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

REASON = "upgrade to 3.9, CHG-1"
ALICE = Entity.of(user="alice")


@pytest_asyncio.fixture
async def clients(pair: tuple[Service, Service]) -> AsyncIterator[list[ConfplaneClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(service.client()) for service in pair]


async def cli(service: Service, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run the command in a thread on the service's own settings; return its exit code and all that it said."""
    known = service._environment | {"LOGNAME": "olga"} | environment
    said = await asyncio.to_thread(CliRunner().invoke, commands, arguments, env=known)
    return said.exit_code, said.output


async def freeze(service: Service, reason: str = REASON) -> int:
    """Freeze, which must succeed; return its revision."""
    return _revision(await cli(service, "freeze", "--cluster", "default", "--reason", reason), "frozen")


async def thaw(service: Service) -> int:
    """Thaw, which must succeed; return its revision."""
    return _revision(await cli(service, "thaw", "--cluster", "default", "--reason", "upgraded"), "thawed")


def _revision(outcome: tuple[int, str], done: str) -> int:
    code, said = outcome
    line = re.fullmatch(rf"Cluster default is {done} as of revision (\d+) \(change [0-9a-f-]{{36}}\)\n", said)
    assert code == 0, said
    assert line, said
    return int(line[1])


def refused(problem: ProblemError) -> None:
    """See that it was the freeze that refused a write."""
    assert (problem.status, problem.outcome) == (409, "not_applied"), problem.body
    assert problem.body["type"] == "/problems/frozen"
    assert f"by User:olga@cli: {REASON}" in problem.body["detail"]
    assert "confplane thaw" in problem.body["detail"]


async def test_writes_are_refused_with_the_reason_and_reads_go_on(
    pair: tuple[Service, Service], clients: list[ConfplaneClient]
) -> None:
    for value, client in enumerate(clients):
        await client.put("client-quotas", ALICE, {"producer_byte_rate": value + 1})
    frozen = await freeze(pair[0])
    for client in clients:
        with pytest.raises(ProblemError) as caught:
            await client.put("client-quotas", ALICE, {"producer_byte_rate": 9})
        refused(caught.value)
        with pytest.raises(ProblemError) as caught:
            await client.delete("client-quotas", ALICE)
        refused(caught.value)
        for validate_only in (False, True):
            with pytest.raises(ProblemError) as caught:
                await client.alter("client-quotas", [(ALICE, {"producer_byte_rate": 9})], validate_only=validate_only)
            refused(caught.value)
        read = await client.get("client-quotas", ALICE, strong=True)
        assert read.body["quotas"] == {"producer_byte_rate": 2}
        # What was so already needs no write.
        await client.put("client-quotas", ALICE, {"producer_byte_rate": 2})
        cluster = await client.request("GET", "/v1/clusters/default")
        assert cluster.body["frozen"] == REASON
        ready = await client.request("GET", "/readyz")
        assert ready.body["clusters"]["default"]["frozen"] == REASON
    code, said = await cli(pair[1], "freeze", "--cluster", "default", "--reason", "another")
    assert code == 1
    assert f"by User:olga@cli: {REASON}" in said
    code, said = await cli(pair[1], "freeze", "--cluster", "default", "--reason", REASON, LOGNAME="otto")
    assert code == 0
    assert "was already frozen for this reason, since" in said
    code, said = await cli(pair[1], "freeze", "--cluster", "default", "--reason", REASON, "--json")
    assert code == 0
    state = json.loads(said)
    assert (state["changeId"], state["before"]) == (None, state["after"])
    assert (state["after"]["principal"], state["after"]["reason"]) == ("User:olga@cli", REASON)
    assert state["after"]["since"].endswith("Z")
    code, said = await cli(pair[1], "freeze", "--cluster", "default", "--reason", "another", "--json")
    assert (code, json.loads(said)["exitCode"]) == (1, 1)
    thawed = await thaw(pair[1])
    for value, client in enumerate(clients):
        await client.put("client-quotas", ALICE, {"producer_byte_rate": value + 10})
        assert (await client.request("GET", "/v1/clusters/default")).body["frozen"] is None
    assert await cli(pair[0], "thaw", "--cluster", "default", "--reason", "upgraded") == (
        0,
        "Cluster default was not frozen; nothing to do\n",
    )
    trail = [item async for item in clients[0].items("audit", entity="cluster")]
    assert [
        (int(item["revision"]), item["principal"], item["reason"], item["outcome"], item["entities"]) for item in trail
    ] == [
        (thawed, "User:olga@cli", "upgraded", "committed", [audited(before=REASON, after=None, version=2)]),
        (frozen, "User:olga@cli", REASON, "committed", [audited(before=None, after=REASON, version=1)]),
    ]
    one = await clients[1].request("GET", f"audit/{trail[0]['changeId']}")
    assert one.body == trail[0]
    assert [item async for item in clients[1].items("audit", key="frozen")] == trail


def audited(*, before: str | None, after: str | None, version: int) -> dict[str, Any]:
    """The row of a freeze or a thaw in the trail."""
    return {
        "id": "cluster",
        "facet": "cluster",
        "path": "/confplane/freeze",
        "versionRead": version - 1,
        "version": version,
        "remade": False,
        "keys": ["frozen"],
        "ops": [{"key": "frozen", "remove": True} if after is None else {"key": "frozen", "value": after}],
        "before": {"frozen": before},
        "after": {"frozen": after},
    }


async def test_without_the_trail_nothing_is_frozen(
    pair: tuple[Service, Service], clients: list[ConfplaneClient]
) -> None:
    nowhere = f"postgresql://confplane:secret-of-the-trail@127.0.0.1:{reserved_port()}/trail"
    code, output = await cli(
        pair[0], "freeze", "--cluster", "default", "--reason", REASON, CONFPLANE_POSTGRES__DSN=nowhere
    )
    assert code == 1
    assert "The freeze failed: Postgres can't be reached" in output
    assert "Traceback" not in output
    assert "secret-of-the-trail" not in output
    await clients[0].put("client-quotas", ALICE, {"producer_byte_rate": 77})
