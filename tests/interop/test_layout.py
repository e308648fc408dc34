"""Client configs beside the quotas and apart from them, on the running broker: what its tools can do, and what stays."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import exactly, our_quotas, their_quotas, until_equal
from tests.support.commands import Commands
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.interop.admin import Admin
    from tests.interop.entities import Names
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

EXPLAINED_ERRORS = (
    # What the broker says of requests that it refuses: those of the page's row on the layout `shared`.
    "[Admin Manager on Broker 0]: Error processing ",
    "Error encountered while updating ",
)
USER: Final = "laid out"
CONFIGS: Final = {"acks": "all", "session.timeout.ms": "30000"}


async def test_credentials_and_quotas_survive_a_move_and_both_layouts(
    tmp_path: Path,
    client: ConfplaneClient,
    admin: Admin,
    broker: Broker,
    service: Service,
    kafka_chroot: str,
    zk: KazooClient,
) -> None:
    host, port = broker.listener("SASL_PLAINTEXT")
    dsn = service._environment["CONFPLANE_POSTGRES__DSN"]
    cluster = {"client_configs_layout": "separate"}
    commands = Commands(tmp_path, connect=kafka_chroot, dsn=dsn, cluster=cluster)
    names: Names = {"user": USER}
    entity, pair = Entity.of(user=USER), Entity.of(user=USER, client_id="app")
    path = f"/config/{entity.path}"

    async def logs_in() -> None:
        await until(lambda: admin.login(f"{host}:{port}", USER, "pw")["code"] == 0, why="a login")

    async def run(*arguments: str) -> str:
        said = await asyncio.to_thread(commands.run_here, *arguments)
        assert said.code == 0, said
        return said.out

    async def alters(rate: int) -> int:
        (outcome,) = await asyncio.to_thread(admin.alter_quotas, (names, [("producer_byte_rate", rate)]))
        return int(outcome["code"])

    async def same_quotas(rate: int) -> None:
        found = await until_equal(
            lambda: our_quotas(client, exactly(names), strict=True),
            lambda: their_quotas(admin, exactly(names), strict=True),
            "ours | theirs",
        )
        assert list(found.values()) == [{"producer_byte_rate": rate}]

    admin.set_scram(USER, "pw")
    credential = json.loads(zk.get(path)[0])["config"]["SCRAM-SHA-256"]
    await client.put("client-quotas", entity, {"producer_byte_rate": 1_000_000})
    for each in (entity, pair):
        await client.put("client-configs", each, CONFIGS)
    await logs_in()

    assert "user=laid~20out" in await run("layout", "move", "--to", "shared", "--apply")
    assert json.loads(zk.get(path)[0])["config"] == {
        "SCRAM-SHA-256": credential, "producer_byte_rate": "1000000", **CONFIGS
    }  # fmt: skip
    await logs_in()
    await same_quotas(1_000_000)
    # They read past keys that they don't know, and refuse to alter what has some.
    assert await alters(2_000_000) == -1
    status, output = admin.config_command(
        "--alter", "--entity-type", "users", "--entity-name", USER, "--add-config", "SCRAM-SHA-512=[password=x]"
    )
    assert status == 1, output
    assert json.loads(zk.get(path)[0])["config"].keys() == {"SCRAM-SHA-256", "producer_byte_rate", *CONFIGS}
    # What we write of each leaves the rest.
    await client.put("client-configs", entity, {"acks": "0"})
    await client.put("client-quotas", entity, {"producer_byte_rate": 3_000_000})
    await client.delete("client-configs", pair)
    assert json.loads(zk.get(path)[0])["config"] == {
        "SCRAM-SHA-256": credential, "producer_byte_rate": "3000000", "acks": "0"
    }  # fmt: skip
    await same_quotas(3_000_000)
    await logs_in()

    await run("layout", "move", "--to", "separate", "--apply")
    await run("compact", "--older-than", "0s", "--apply")
    assert json.loads(zk.get(path)[0])["config"] == {"SCRAM-SHA-256": credential, "producer_byte_rate": "3000000"}
    assert zk.exists(f"/config/{pair.path}") is None
    answer = await client.get("client-configs", entity, strong=True)
    assert answer.body["configs"] == {"acks": "0"}
    assert await alters(4_000_000) == 0
    await same_quotas(4_000_000)
    await logs_in()
    # A user without quotas keeps its credential through all of it.
    await client.delete("client-quotas", entity)
    await run("compact", "--older-than", "0s", "--apply")
    assert json.loads(zk.get(path)[0])["config"] == {"SCRAM-SHA-256": credential}
    await logs_in()
    await client.delete("client-configs", entity)
