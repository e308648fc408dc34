"""``confplane compact`` on real stores: what is empty and old goes, with its trail; everything else stays."""

from __future__ import annotations

import json
import os
import secrets
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from confplane.cli.times import seconds
from confplane.domain.entities import Entity
from tests.support import commands
from tests.support.stores import kafka_writes

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support import servers
    from tests.support.commands import Said
    from tests.support.facets import ConfplaneClient

EMPTY = b'{"version":1,"config":{}}'


@pytest.fixture
def compact(module_chroot: str, module_database: servers.Database, tmp_path: Path) -> Any:
    """Runs the command on the module's service's stores."""
    (tmp_path / "token").write_text("t" * 32)
    environment = os.environ | {
        "CONFPLANE_CLUSTERS": json.dumps({"default": {"zookeeper": module_chroot}}),
        "CONFPLANE_POSTGRES__DSN": module_database.service_dsn,
        "CONFPLANE_ADMIN_TOKEN_FILE": str(tmp_path / "token"),
    }

    async def run(*arguments: str) -> Said:
        named = () if "--cluster" in arguments else ("--cluster", "default")
        return commands.run_here("compact", *named, *arguments, environment=environment)

    return run


def name() -> str:
    return f"u{uuid.uuid4().hex[:12]}"


async def emptied(client: ConfplaneClient, entity: Entity) -> None:
    """An entity that had a quota and has none any more."""
    await client.put("client-quotas", entity, {"producer_byte_rate": 1})
    await client.alter("client-quotas", [(entity, {"producer_byte_rate": None})])


async def test_what_is_empty_and_old_goes_with_its_trail(
    client: ConfplaneClient, zk: KazooClient, compact: Any
) -> None:
    user, keeper, other = name(), name(), name()
    pair = Entity.of(user=user, client_id="a")
    await emptied(client, pair)
    await emptied(client, Entity.of(user=keeper, client_id="a"))
    await client.put("client-quotas", Entity.of(user=keeper, client_id="b"), {"producer_byte_rate": 1})
    await emptied(client, Entity.of(user=other, client_id="a"))
    await client.put("client-quotas", Entity.of(user=other), {"producer_byte_rate": 1})
    await emptied(client, Entity.of(client_id=user))
    kafka_writes(zk, f"ips/10.1.{len(user)}.7", EMPTY)
    kafka_writes(zk, f"users/{user}x", b'{"version":1,"config":{},"note":"keep"}')
    kafka_writes(zk, f"users/{user}s", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')
    kafka_writes(zk, f"topics/{user}", EMPTY)

    shown = await compact("--older-than", "0s")
    assert shown.code == 0, shown.err
    assert "Nothing was removed" in shown.out
    assert f"{pair.id} and user={user}: can be removed" in shown.out
    assert zk.exists(f"/config/users/{user}/clients/a")

    unknown = await compact("--cluster", "nowhere", "--apply")
    assert unknown.code == 2, unknown.out + unknown.err
    assert unknown.err.startswith("Not compacted: The settings have no cluster 'nowhere'")

    young = await compact("--apply")
    assert "0 empty znodes removed" in young.out, young.out + young.err

    version = zk.exists(f"/config/users/{user}/clients/a").version
    done = await compact("--older-than", "0s", "--apply")
    assert done.code == 0, done.err
    assert zk.exists(f"/config/users/{user}") is None
    assert zk.exists(f"/config/users/{keeper}/clients/a") is None
    assert zk.exists(f"/config/users/{keeper}/clients/b")
    assert zk.exists(f"/config/users/{other}/clients") is None
    assert zk.exists(f"/config/users/{other}")
    assert zk.exists(f"/config/clients/{user}") is None
    assert zk.exists(f"/config/ips/10.1.{len(user)}.7") is None
    for kept in (f"users/{user}x", f"users/{user}s", f"topics/{user}"):
        assert zk.exists(f"/config/{kept}")

    [removal, *_] = [item async for item in client.items("audit", entity=pair.id)]
    assert removal["outcome"] == "committed"
    assert [(each["id"], each["versionRead"]) for each in removal["entities"]] == [
        (pair.id, version),
        (f"user={user}", 0),
    ]
    assert removal["principal"].endswith("@cli")
    # The service's mirror hears of it, and what is made anew is a node of its own.
    await client.request("GET", "client-quotas", params={"consistency": "strong"})
    await client.put("client-quotas", pair, {"producer_byte_rate": 5})
    assert zk.exists(f"/config/users/{user}/clients/a").version == 0
    assert json.loads(zk.get(f"/config/users/{user}/clients/a")[0])["config"] == {"producer_byte_rate": "5"}
    # Brokers are told of every node that goes.
    told = [zk.get(f"/config/changes/{each}")[0] for each in zk.get_children("/config/changes")]
    for path in (f"users/{user}/clients/a", f"users/{user}", f"clients/{user}"):
        assert json.dumps({"version": 2, "entity_path": path}, separators=(",", ":")).encode() in told


async def test_nothing_goes_from_a_frozen_cluster(client: ConfplaneClient, zk: KazooClient, compact: Any) -> None:
    user = name()
    await emptied(client, Entity.of(user=user))
    before = [item async for item in client.items("audit", entity=f"user={user}")]
    data, _ = zk.get("/confplane/freeze")
    zk.set("/confplane/freeze", b'{"version":1,"reason":"upgrade","principal":"User:olga","since":1}')
    try:
        refused = await compact("--older-than", "0s", "--apply")
        assert refused.code == 1
        assert "frozen" in refused.err
        assert zk.exists(f"/config/users/{user}")
    finally:
        zk.set("/confplane/freeze", data)
    # Like any other change, it is refused before its intent.
    assert [item async for item in client.items("audit", entity=f"user={user}")] == before


async def test_an_age_that_is_none_is_refused(compact: Any) -> None:
    assert (await compact("--older-than", "1w")).code == 2


@pytest.mark.parametrize("age", ["", "1", "h", "-1h", "1w", "1.5h", "1h "])
def test_no_age(age: str) -> None:
    assert seconds(age) is None


def test_ages() -> None:
    assert [seconds(age) for age in ("0s", "90m", "1h", "7d")] == [0, 5_400, 3_600, 604_800]


async def test_a_znode_that_no_index_takes_stops_no_compaction(zk: KazooClient, compact: Any) -> None:
    user, long = name(), f"{name()}{secrets.token_hex(2_000)}"
    for each in (long, user):
        kafka_writes(zk, f"users/{each}", EMPTY)
    said = await compact("--older-than", "0s", "--apply")
    assert "Postgres can't index one of its names" in said.err + said.out
    assert zk.exists(f"/config/users/{long}")
    assert not zk.exists(f"/config/users/{user}")
