"""``confplane layout move`` while two services serve: nothing is lost, missed or written where nobody looks for it."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.client import ProblemError
from confplane.domain.entities import Entity
from tests.support.commands import Commands
from tests.support.processes import program
from tests.support.service import Service, ServiceInThread
from tests.support.stalls import stalled_at
from tests.support.stores import kafka_writes
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.commands import Said
    from tests.support.facets import ConfplaneClient
    from tests.support.servers import Database

LAYOUT: Final = "/confplane/layout"
APART: Final = "/confplane/client-configs"
SCRAM: Final = "salt=a,stored_key=b,server_key=c,iterations=4096"
USERS: Final = 60
STALLED: Final = {"intent": 40, "outcome": 5}
"""The entity whose statement is held up, by step: some entities were moved before, and some not yet."""


class World:
    """Two services, one for each layout by its settings, and the command."""

    def __init__(self, services: list[Service], commands: Commands, zk: KazooClient, owner_dsn: str) -> None:
        self.services = services
        self.commands = commands
        self.zk = zk
        self.owner_dsn = owner_dsn

    def move(self, to: str, *options: str, code: int = 0) -> Said:
        """Run the command."""
        said = self.commands.run_here("layout", "move", "--to", to, *options)
        assert said.code == code, said
        return said

    def node(self, path: str) -> dict[str, str]:
        """The config of a node; empty where there is none."""
        if self.zk.exists(path) is None:
            return {}
        found: dict[str, str] = json.loads(self.zk.get(path)[0] or b"{}").get("config", {})
        return found

    def layout(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.zk.get(LAYOUT)[0])
        return found


@pytest.fixture(scope="module")
def world(
    module_chroot: str, module_database: Database, zk: KazooClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("layout")
    options: dict[str, Any] = {"connect": module_chroot, "dsn": module_database.service_dsn}
    commands = Commands(directory, **options)
    settings = [{"client_configs_layout": name} for name in ("shared", "separate")]
    with (
        ServiceInThread(directory, **options, cluster=settings[0]) as one,
        Service(directory, **options, cluster=settings[1]) as two,
    ):
        yield World([one, two], commands, zk, module_database.owner_dsn)


@pytest_asyncio.fixture
async def clients(world: World) -> AsyncIterator[list[ConfplaneClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(service.client(timeout_s=60)) for service in world.services]


async def in_thread(world: World, to: str, *options: str) -> Said:
    return await asyncio.to_thread(world.move, to, *options)


def entity(index: int) -> Entity:
    """Users, and every third one's client-id."""
    return Entity.of(user=f"u{index:03}", client_id="app") if index % 3 == 2 else Entity.of(user=f"u{index:03}")


def configs(index: int) -> dict[str, str]:
    return {"acks": "1", "session.timeout.ms": str(10_000 + index)}


async def fill(client: ConfplaneClient) -> dict[str, dict[str, str]]:
    """Have client configs of many entities; return all there are."""
    await client.alter("client-configs", [(entity(index), configs(index)) for index in range(USERS)])
    return await every(client)


async def every(client: ConfplaneClient) -> dict[str, dict[str, str]]:
    """All client configs, by a describe of everything."""
    body = (await client.describe("client-configs")).body
    assert not body.get("skipped"), body
    return {
        ",".join(f"{item['entityType']}={item['entityName']}" for item in entry["entity"]): {
            item["key"]: item["value"] for item in entry["values"]
        }
        for entry in body["entries"]
    }


async def warnings_of(client: ConfplaneClient) -> list[str]:
    body = (await client.request("GET", "/readyz")).body
    return [str(text) for text in body["warnings"]]


# The tests go on from where the one before them ended: the layout is one of the whole cluster.


async def test_the_first_write_settles_the_layout_and_later_ones_follow_it(
    world: World, clients: list[ConfplaneClient]
) -> None:
    one, two = clients
    assert world.zk.get(LAYOUT)[0] is None
    # Only client configs do.
    await two.put("client-quotas", entity(0), {"producer_byte_rate": 1})
    assert world.zk.get(LAYOUT)[0] is None
    written = await one.put("client-configs", entity(0), configs(0))
    assert world.layout() == {"version": 1, "layout": "shared"}
    read = await two.get("client-configs", entity(0), min_revision=written.revision)
    assert read.body["configs"] == configs(0)
    await two.put("client-configs", entity(1), configs(1))
    assert world.node("/config/users/u001") == configs(1)
    assert world.zk.exists(APART) is None

    await until_warned(two, "stored in the layout shared, which counts")
    assert not await warnings_of(one)


async def test_there_and_back(world: World, clients: list[ConfplaneClient]) -> None:
    one, two = clients
    all_of_them = await fill(one)
    kafka_writes(world.zk, "users/u000", json.dumps(
        {"version": 1, "config": {**configs(0), "producer_byte_rate": "1", "SCRAM-SHA-256": SCRAM}, "note": "keep"}
    ).encode())  # fmt: skip
    shown = world.move("separate")
    assert "u059,client-id=app: would be moved" in shown.out
    assert f"{USERS} entities would be moved. Nothing was written" in shown.out
    assert world.layout() == {"version": 1, "layout": "shared"}

    before = world.zk.get_children("/config/changes")
    said = world.move("separate", "--apply")
    assert f"{USERS} entities moved. The layout is separate from now on" in said.out
    assert world.layout() == {"version": 1, "layout": "separate"}
    assert json.loads(world.zk.get("/config/users/u000")[0]) == {
        "version": 1, "config": {"producer_byte_rate": "1", "SCRAM-SHA-256": SCRAM}, "note": "keep"
    }  # fmt: skip
    for index in range(USERS):
        assert world.node(f"{APART}/{entity(index).path}") == configs(index)
        assert not world.node(f"/config/{entity(index).path}").keys() & {"acks", "session.timeout.ms"}
    # Each is told once.
    told = [
        world.zk.get(f"/config/changes/{name}")[0]
        for name in set(world.zk.get_children("/config/changes")) - set(before)
    ]
    paths = [json.loads(data)["entity_path"] for data in told]
    assert sorted(paths) == sorted(entity(index).path for index in range(USERS))

    # Neither service was restarted, whatever its settings say.
    for client in clients:
        await client.get("client-configs", entity(0), strong=True)
        assert await every(client) == all_of_them
    await one.put("client-configs", entity(0), {"acks": "0"})
    assert world.node(f"{APART}/users/u000") == {"acks": "0"}
    assert (await two.get("client-configs", entity(0), strong=True)).body["configs"] == {"acks": "0"}
    await two.put("client-configs", entity(0), configs(0))
    assert "Nothing to do" in world.move("separate", "--apply").out

    trail = [item async for item in one.items("audit", entity="user=u000")]
    [moved] = [item for item in trail if len(item["entities"]) == 2]
    assert (moved["outcome"], moved["principal"], moved["reason"]) == (
        "committed",
        "User:olga@cli",
        "confplane layout move --to separate",
    )
    by_path = {item["path"]: item for item in moved["entities"]}
    left, came = by_path["/config/users/u000"], by_path[f"{APART}/users/u000"]
    assert left["before"] == {**configs(0), "producer_byte_rate": "1", "SCRAM-SHA-256": None}
    assert left["after"] == {"producer_byte_rate": "1", "SCRAM-SHA-256": None}
    assert (came["before"], came["after"], came["versionRead"], came["version"]) == ({}, configs(0), None, 0)
    states = [item async for item in one.items("audit", key="client_configs_layout")]
    assert [list(item["entities"][0]["after"].values()) for item in reversed(states)] == [
        ["separate, being moved from shared"],
        ["separate"],
    ]

    world.move("shared", "--apply")
    assert world.layout() == {"version": 1, "layout": "shared"}
    for client in clients:
        await client.get("client-configs", entity(0), strong=True)
        assert await every(client) == all_of_them
    assert not [path for path in map(entity, range(USERS)) if world.node(f"{APART}/{path.path}")]
    assert world.node("/config/users/u000")["SCRAM-SHA-256"] == SCRAM


@pytest.mark.parametrize(
    ("step", "to", "then", "number"),
    [
        ("intent", "separate", "separate", signal.SIGKILL),
        pytest.param("outcome", "shared", "separate", signal.SIGKILL, marks=pytest.mark.long),
        ("outcome", "shared", "shared", signal.SIGKILL),
        ("intent", "separate", "separate", signal.SIGTERM),
        pytest.param("outcome", "shared", "shared", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
async def test_killed_in_the_middle_it_goes_on_or_back(
    world: World, clients: list[ConfplaneClient], step: str, to: str, then: str, number: signal.Signals
) -> None:
    """SIGTERM stops the command also if it ignores SIGINT."""
    all_of_them = await fill(clients[0])
    arguments = ["-m", "confplane", "layout", "move", "--cluster", "default", "--to", to, "--apply"]
    held_up = entity(STALLED[step])
    with (
        stalled_at(world.owner_dsn, step, held_up.id, f"/config/{held_up.path}") as statement,
        program(
            arguments,
            environment=world.commands.environment,
            ignores_sigint=number == signal.SIGTERM,
        ) as command,
    ):
        await asyncio.to_thread(statement.wait_for, command, 120)
        command.process.send_signal(number)
        code = 128 + signal.SIGTERM if number == signal.SIGTERM else -signal.SIGKILL
        assert await asyncio.to_thread(command.wait) == code
    assert world.layout()["from"] == ("shared" if to == "separate" else "separate")
    # Some are here, some there.
    moved = sum(bool(world.node(f"{APART}/{entity(index).path}")) for index in range(USERS))
    assert 0 < moved < USERS
    for client in clients:
        assert await every(client) == all_of_them
        effective = await client.effective("client-configs", entity(STALLED[step]))
        assert {item["key"]: item["value"] for item in effective.body["configs"]} == configs(STALLED[step])
        listed = [item async for item in client.items("client-configs", user=f"u{STALLED[step]:03}")]
        assert [item["configs"] for item in listed] == [configs(STALLED[step])]
        with pytest.raises(ProblemError) as caught:
            await client.put("client-configs", entity(0), {"acks": "0"})
        assert (caught.value.status, caught.value.body["type"]) == (409, "/problems/layout-moving")
        assert f"confplane layout move --cluster default --to {to} --apply" in caught.value.body["detail"]
        assert caught.value.outcome == "not_applied"
        await client.put("client-quotas", entity(0), {"producer_byte_rate": 9})
        await until_warned(client, "being moved")

    if step == "intent":
        # Somebody writes where it was moved from: what was moved counts.
        kafka_writes(world.zk, entity(0).path, b'{"version":1,"config":{"acks":"0","producer_byte_rate":"9"}}')
    said = await in_thread(world, then, "--apply")
    assert f"The layout is {then} from now on" in said.out
    assert world.layout() == {"version": 1, "layout": then}
    kept, left = ("/config", APART) if then == "shared" else (APART, "/config")
    for index in range(USERS):
        assert configs(index).items() <= world.node(f"{kept}/{entity(index).path}").items()
        assert not world.node(f"{left}/{entity(index).path}").keys() & configs(index).keys()
    for client in clients:
        await client.put("client-configs", entity(0), configs(0))
        assert await every(client) == all_of_them

    # Whoever leads settles what the killed one left open.
    async def settled() -> bool:
        return not [item async for item in clients[0].items("audit", outcome="open")]

    await until(settled)


class Traffic:
    """Readers and writers through both services, for as long as something else goes on."""

    def __init__(self, clients: list[ConfplaneClient], wanted: dict[str, dict[str, str]]) -> None:
        self.clients = clients
        self.wanted = wanted
        self.going = True
        self.reads = [0, 0]
        self.refused = 0
        self.written: dict[int, str] = {}
        """The last that was answered as applied."""
        self.tasks = [asyncio.create_task(work(which)) for work in (self.read, self.write) for which in (0, 1)]

    async def read(self, which: int) -> None:
        client = self.clients[which]
        while self.going:
            assert (await every(client)).items() >= self.wanted.items()
            index = self.reads[which] % USERS
            assert (await client.get("client-configs", entity(index))).body["configs"] == configs(index)
            self.reads[which] += 1

    async def write(self, which: int) -> None:
        """Change a user of its own, and quotas of those that are moved."""
        client, value = self.clients[which], 10_000
        while self.going:
            value += 1
            await client.put("client-quotas", entity(value % USERS), {"producer_byte_rate": value})
            try:
                await client.put("client-configs", Entity.of(user=f"w{which}"), {"session.timeout.ms": str(value)})
            except ProblemError as problem:
                assert problem.body["type"] == "/problems/layout-moving", problem.body
                self.refused += 1
            else:
                self.written[which] = str(value)

    async def more_reads(self) -> None:
        """Wait for reads by both that began from now on."""
        before = list(self.reads)
        while min(now - then for now, then in zip(self.reads, before, strict=True)) < 2:
            await asyncio.sleep(0.02)
            for task in self.tasks:
                if task.done():
                    task.result()

    async def end(self) -> None:
        self.going = False
        await asyncio.gather(*self.tasks)


async def test_reads_find_everything_and_writes_survive_while_it_moves(
    world: World, clients: list[ConfplaneClient]
) -> None:
    traffic = Traffic(clients, await fill(clients[0]))
    for to in ("separate", "shared", "separate"):
        await traffic.more_reads()
        await in_thread(world, to, "--apply")
    await traffic.more_reads()
    await traffic.end()
    assert set(traffic.written) == {0, 1}
    for which, value in traffic.written.items():
        # None was applied where nobody looks.
        assert world.node(f"{APART}/users/w{which}") == {"session.timeout.ms": value}
        assert not world.node(f"/config/users/w{which}")
        for client in clients:
            answer = await client.get("client-configs", Entity.of(user=f"w{which}"), strong=True)
            assert answer.body["configs"] == {"session.timeout.ms": value}
    for index in range(USERS):
        assert world.node(f"{APART}/{entity(index).path}") == configs(index)
    for which in traffic.written:
        await clients[which].delete("client-configs", Entity.of(user=f"w{which}"))


def test_what_nobody_reads_stands_in_the_way_until_it_is_discarded(world: World) -> None:
    world.move("separate", "--apply")
    kafka_writes(world.zk, "users/ghost", b'{"version":1,"config":{"acks":"0","producer_byte_rate":"5"}}')
    assert "not in use, for example user=ghost" in world.move("separate").err
    for options in ((), ("--apply",)):
        refused = world.move("shared", *options, code=1)
        assert "shared has others already, which nobody reads, of user=ghost" in refused.err
    assert world.layout() == {"version": 1, "layout": "separate"}
    assert (
        world.move("shared", "--discard", "--apply", code=2).err
        == "Not moved: --discard removes client configs from the layout that is not in use: give --to separate.\n"
    )
    assert "user=ghost: would be discarded from shared" in world.move("separate", "--discard").out
    assert world.node("/config/users/ghost")["acks"] == "0"
    assert "Client configs of 1 entity would be discarded" in world.move("separate", "--discard").out
    assert "Client configs of 1 entity discarded" in world.move("separate", "--discard", "--apply").out
    assert world.move("separate", "--discard", "--apply").out.endswith("Nothing to do\n")
    assert world.node("/config/users/ghost") == {"producer_byte_rate": "5"}


def test_what_can_not_be_read_or_written_stands_in_the_way(world: World) -> None:
    kafka_writes(world.zk, "users/broken", b"no JSON")
    try:
        refused = world.move("shared", "--apply", code=1)
        assert "The znode /config/users/broken can't be read or written, so what it has can't be moved" in refused.err
        assert world.layout() == {"version": 1, "layout": "separate"}
    finally:
        kafka_writes(world.zk, "users/broken", b'{"version":1,"config":{}}')


def test_a_frozen_cluster_stays_as_it_is(world: World) -> None:
    data, _ = world.zk.get("/confplane/freeze")
    world.zk.set("/confplane/freeze", b'{"version":1,"reason":"upgrade","principal":"User:olga","since":1}')
    try:
        assert "frozen" in world.move("shared", "--apply", code=1).err
        assert world.layout() == {"version": 1, "layout": "separate"}
    finally:
        world.zk.set("/confplane/freeze", data)


async def test_a_layout_that_can_not_be_read_refuses_writes_of_client_configs(
    world: World, clients: list[ConfplaneClient]
) -> None:
    await clients[0].put("client-configs", entity(0), configs(0))
    data, _ = world.zk.get(LAYOUT)
    world.zk.set(LAYOUT, b'{"version":2,"layout":"elsewhere"}')
    try:
        for client in clients:
            with pytest.raises(ProblemError) as caught:
                await client.put("client-configs", entity(0), {"acks": "0"})
            assert caught.value.body["type"] == "/problems/corrupt-znode"
            assert caught.value.body["path"] == LAYOUT
            await client.put("client-quotas", entity(0), {"producer_byte_rate": 3})
            assert (await client.get("client-configs", entity(0), strong=True)).body["configs"] == configs(0)
        assert LAYOUT in world.move("shared", "--apply", code=1).err
    finally:
        world.zk.set(LAYOUT, data)
    for client in clients:
        await client.get("client-configs", entity(0), strong=True)  # it knows by then
        await client.put("client-configs", entity(0), configs(0))


def test_the_settings_layout_is_stored_where_none_was(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database, world: World
) -> None:
    del world  # its tables
    commands = Commands(
        tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster={"client_configs_layout": "separate"}
    )
    assert commands.run_here("layout", "move", "--to", "separate", "--apply").code == 0
    assert json.loads(raw_zk.get(LAYOUT)[0]) == {"version": 1, "layout": "separate"}
