"""``confplane export`` over the API, and ``confplane load``, on a real service with two clusters."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.cli.remote.selection import EntityReader, EntitySelection
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from tests.support import documents, odd_configs, servers
from tests.support.processes import ROOT, path_with_confplane
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.commands import Said
    from tests.support.service import Service

COPY: Final = "copy"
GUIDE: Final = "guide"


@pytest.fixture(scope="module")
def service_options(
    zookeeper: ZooKeeper, module_chroot: str, copy_chroot: str, zk: KazooClient, copy: KazooClient
) -> dict[str, Any]:
    """A service of three clusters, ``default`` with odd configs."""
    odd_configs.write(zk)
    odd_configs.write_topics(copy)
    clusters = {
        "default": {"zookeeper": module_chroot},
        COPY: {"zookeeper": copy_chroot, "record_external_changes": True},
        GUIDE: {"zookeeper": servers.make_chroot(zookeeper.hosts), "record_external_changes": True},
    }
    return {"settings": {"CONFPLANE_CLUSTERS": json.dumps(clusters)}}


def test_a_yaml_export_loaded_into_an_empty_cluster_gives_equal_znodes(
    run: Callable[..., Said], copy: KazooClient, tmp_path: Path
) -> None:
    file, expected = tmp_path / "all.yaml", odd_configs.exportable()
    assert run("export", "--output", str(file)) == (
        0,
        "",
        f"Exported entities to {file}: {len(expected)}; secrets that it leaves to you: {odd_configs.SECRETS}\n",
    )
    assert "encoded" not in file.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert run("export").out == file.read_text()
    load = ("load", str(file), "--cluster", COPY)
    left_out = f"Secrets left out: {odd_configs.SECRETS}\n"
    dry = run(*load, "--validate-only")
    assert dry.code == 0
    assert {line.partition(" ")[0] for line in dry.err.splitlines()} == {"Warning:"}
    assert dry.out.splitlines()[0].split() == ["ENTITY", "KEY", "BEFORE", "AFTER", "NOTE"]
    assert re.search(rf"\nPlan: [1-9]\d* to create, 0 to update, 0 to delete, 0 unchanged\n{left_out}\Z", dry.out)
    assert odd_configs.stored(copy) == {}
    loaded = run(*load)
    assert loaded.code == 0
    assert re.search(rf"\nChanges applied: [1-9]\d*; `confplane revert --request-id .*\n{left_out}\Z", loaded.out)
    assert odd_configs.stored(copy) == expected
    again = run(*load)
    assert again.code == 0
    assert re.fullmatch(rf"Plan: 0 to create, 0 to update, 0 to delete, [1-9]\d* unchanged\n{left_out}", again.out)


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--type", "topic"], ["topic=a.b_c-d", "topic=orders"]),
        (["--topic", "orders"], ["topic=orders"]),
        (["--type", "topic", "--prefix", "ord"], ["topic=orders"]),
        (["--user", "alice"], ["user=alice", "user=alice,client-id"]),
        (["--user", "alice", "--type", "user"], ["user=alice"]),
        (["--user", "", "--client-id", ""], ["user,client-id"]),
        (["--client-id", "", "--type", "client-id"], ["client-id"]),
        (["--broker", ""], ["broker"]),
        (["--ip", "10.0.0.1"], ["ip=10.0.0.1"]),
        (["--key", "acks"], ["user=alice"]),
        (["--key", "retention.ms"], ["topic=orders"]),
        (["--prefix", "CN=Al", "--type", "client-id"], ["client-id=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9"]),
        (["--user", "nobody"], []),
        (["--group", "g"], []),
    ],
)
def test_filters_select_entities(run: Callable[..., Said], words: list[str], ids: list[str]) -> None:
    said = run("export", *words)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert [line.removeprefix("- id: ") for line in lines if line.startswith("- id: ")] == ids
    assert ("[]" in lines) == (not ids)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "toml"], 2, "'toml' is not one of"),
        (["--type", "user", "--topic", "orders"], 2, "No entity is of the types topic, user at once"),
        (["--type", "user,ip"], 2, "'user,ip' is not one of"),
        (["--settings-file", "confplane.yaml"], 2, "--settings-file"),
        (["--command", "echo"], 2, "only for --format kafka-configs"),
        (["--format", "properties"], 2, "Give --broker N"),
        (["--format", "properties", "--broker", "1"], 2, "Name a cluster of the settings."),
        (["--format", "properties", "--broker", "one", "--cluster", "default"], 2, "not the id of a broker"),
        (["--format", "properties", "--broker", "1", "--topic", "orders"], 2, "no other filter"),
        (["--output", "/nowhere/file"], 1, "Not exported: /nowhere/file can't be written: No such file or directory"),
        (["--cluster", "nowhere"], 1, "nowhere"),
    ],
)
def test_wrong_use_is_named(
    run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = run("export", *words)
    assert found.code == code
    assert "- id" not in found.out
    assert said in " ".join(found.err.replace("\u2502", " ").split())


def test_an_export_of_the_past_has_what_there_was(service: Service, run: Callable[..., Said]) -> None:
    wait_for(lambda: run("export", "--cluster", COPY, "--at", "0s").code == 0, why="the trail knows all writes")

    async def written() -> int | None:
        async with service.client(cluster=COPY) as client:
            first = await client.put("client-quotas", "user=past", {"producer_byte_rate": 1})
            await client.put("client-quotas", "user=past", {"producer_byte_rate": 2})
            return first.revision

    revision = asyncio.run(written())
    words = ("export", "--cluster", COPY, "--user", "past")
    assert "producer_byte_rate: 2\n" in run(*words).out
    assert "producer_byte_rate: 1\n" in run(*words, "--at", str(revision)).out


async def test_entities_that_stay_are_exported_once_while_other_entities_come_and_go(service: Service) -> None:
    staying = [f"user=stay{number}" for number in range(9)]
    async with service.client(cluster=COPY) as client:
        for each in [*staying, "user=stay5a", "user=stay7a"]:
            await client.put("client-quotas", each, {"producer_byte_rate": 1})
            await client.put("client-configs", each, {"acks": "all"})
        found = []
        reader = EntityReader(client, EntitySelection({}, prefix="stay"), page_size=2)
        async for exported in reader.read(*FacetName):
            if exported.id == "user=stay3":
                await client.delete("client-quotas", "user=stay7a")
                await client.delete("client-configs", "user=stay7a")
                for name in ("stay0a", "stay8a"):
                    await client.put("client-quotas", Entity.of(user=name), {"producer_byte_rate": 1})
            found.append(exported)
    assert [exported.id for exported in found] == sorted([*staying, "user=stay5a", "user=stay8a"])
    quotas, configs = {"producer_byte_rate": 1}, {"acks": "all"}
    for exported in found:
        both = {FacetName.CLIENT_QUOTAS: quotas, FacetName.CLIENT_CONFIGS: configs}
        assert exported.facets == ({FacetName.CLIENT_QUOTAS: quotas} if exported.id == "user=stay8a" else both)


def test_a_znode_that_cannot_be_read_is_named_and_fails_the_export(
    run: Callable[..., Said], copy: KazooClient, tmp_path: Path
) -> None:
    file = tmp_path / "users.yaml"
    notification = b'{"version":2,"entity_path":"users/broken"}'
    copy.create("/config/users/broken", b"{", makepath=True)
    copy.create("/config/changes/config_change_", notification, sequence=True, makepath=True)

    def exported() -> Said:
        return run("export", "--cluster", COPY, "--type", "user", "--output", str(file))

    try:
        wait_for(lambda: exported().code == 1)
        left_out = 'Left out: the znode "/config/users/broken": the service can\'t read it'
        assert exported().err.splitlines()[-1] == left_out
        assert file.read_text().splitlines()[-1] == f"# {left_out}"
    finally:
        copy.delete("/config/users/broken")
        copy.create("/config/changes/config_change_", notification, sequence=True)
    wait_for(lambda: exported().code == 0)


def test_a_reader_that_leaves_ends_an_export_quietly(service: Service, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(service.token)
    environment = {"CONFPLANE_URL": service.url, "CONFPLANE_TOKEN_FILE": str(tmp_path / "token")}
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "confplane", "export"],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_load_with_a_refusal_changes_nothing_and_says_where(
    run: Callable[..., Said], copy: KazooClient, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "# A comment.\n\n- id: user=stopped1\n  client-quotas: {producer_byte_rate: 5}\n"
        "- id: user=stopped2\n  client-configs: {acks: sometimes}\n"
        "- {id: topic=orders, configs: {flush.messages: '5'}}\n"
    )
    before = odd_configs.stored(copy)
    said = run("load", str(file), "--cluster", COPY)
    assert said.code == 1
    refusal, end = said.err.splitlines()
    assert refusal.startswith(f"{file}, line 6, column 20: ")
    assert "acks" in refusal
    assert end == "Not all of the file was loaded. Changes applied: 0"
    assert odd_configs.stored(copy) == before
    alone = "- id: user=stopped2\n  client-configs:\n    acks: sometimes\n"
    assert run("load", "-", "--cluster", COPY, given=alone).err.startswith("-, line 3, column 5: ")


def test_a_defect_at_the_end_of_a_file_leaves_the_cluster_as_it_is(
    run: Callable[..., Said], copy: KazooClient, tmp_path: Path
) -> None:
    file, before = tmp_path / "defect.yaml", odd_configs.stored(copy)
    entities = "".join(
        f"- id: user=load3-{number}\n  client-quotas: {{producer_byte_rate: 5}}\n" for number in range(600)
    )
    file.write_text(f"{entities}- id: nothing=1\n")
    said = run("load", str(file), "--cluster", COPY)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"{file}, line 1201, column 3: 'nothing=1' is not an entity id")
    assert odd_configs.stored(copy) == before


@pytest.mark.usefixtures("run")
def test_the_guide_prints_what_it_shows(tmp_path: Path) -> None:
    guide = (ROOT / "docs/export.md").read_text()
    [file], [shown] = documents.blocks(guide, "yaml"), documents.blocks(guide, "text")
    (tmp_path / "alice.yaml").write_text(file)
    environment = os.environ | {"PATH": path_with_confplane(tmp_path / "bin"), "CONFPLANE_CLUSTER": GUIDE}
    exported, loaded = documents.run(documents.blocks(guide), tmp_path, environment)
    assert exported.startswith("# Configs of the cluster guide")
    assert re.sub("(?<=--request-id )[^`]+", "ID", loaded) == shown.strip().replace("PRINTED-ID", "ID")
