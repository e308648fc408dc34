"""Exports of manifests over HTTP, on real stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from confplane.domain.access.operations import Operation, PatternType, ResourceType
from confplane.domain.facets import Tree
from tests.support import odd_configs, servers, stores
from tests.support.inside import running_inside
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.devstack.postgres import Postgres
    from tests.support.inside import Inside

YAML: Final = "application/yaml"
MANY: Final = 3_000


@pytest_asyncio.fixture(scope="module")
async def inside(
    module_chroot: str, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """A service on odd configs, and on so many clients that their export is not sent at once."""
    for zk in servers.raw_client(module_chroot):
        odd_configs.write(zk)
        transaction = zk.transaction()
        zk.ensure_path(f"{Tree.CONFIG}/clients")
        for number in range(MANY):
            config = {"version": 1, "config": {"producer_byte_rate": str(number), "consumer_byte_rate": "1"}}
            transaction.create(f"{Tree.CONFIG}/clients/many-{number:0100}", json.dumps(config).encode())
        assert all(isinstance(each, str) for each in transaction.commit())
    directory = tmp_path_factory.mktemp("exports")
    (directory / "encoder").write_text("an encoder secret")
    encoder = {"secret_file": str(directory / "encoder"), "iterations": 1024}
    database = servers.make_migrated(postgres)
    async with running_inside(module_chroot, database, directory, password_encoder=encoder) as running:
        yield running


async def export(inside: Inside, query: str = "", caller: str = "admin", **headers: str) -> Any:
    answer = await inside.send(caller, "GET", f"manifests:export{query}", **headers)
    assert answer.status_code == 200, answer.text
    return answer


async def test_an_export_is_a_manifest_that_changes_nothing(inside: Inside) -> None:
    answer = await export(inside)
    found = answer.json()
    ids = [each["id"] for each in found["entities"]]
    assert len(ids) == len({*ids}) > MANY
    assert ids == sorted(ids)
    assert "content-length" not in answer.headers  # sent while it is made
    [broker] = [each for each in found["entities"] if each["id"] == "broker=3"]
    assert broker["configs"]["listener.name.internal.ssl.keystore.password"] is None
    plan = await inside.send("admin", "POST", "manifests:plan", found)
    assert plan.status_code == 200, plan.text
    summary = plan.json()["summary"]
    assert summary.pop("none") >= len(ids)
    assert set(summary.values()) == {0}


async def test_a_long_plan_is_sent_while_it_is_made(inside: Inside) -> None:
    def document(key: str) -> dict[str, Any]:
        entities = [{"id": f"client-id=long-{number}", "quotas": {key: number + 1}} for number in range(MANY)]
        return {"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities}

    planned = await inside.send("admin", "POST", "manifests:plan", document("producer_byte_rate"))
    refused = await inside.send("admin", "POST", "manifests:plan", document("acks"))
    assert (planned.status_code, refused.status_code) == (200, 400)
    assert refused.headers["content-type"] == "application/problem+json"
    for answer in (planned, refused):
        assert "content-length" not in answer.headers
        changes = answer.json()["changes"]
        assert [each["id"] for each in changes] == [f"client-id=long-{number}" for number in range(MANY)]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("?kind=topic", ["topic=a.b_c-d", "topic=orders"]),
        ("?topic=orders", ["topic=orders"]),
        ("?topic=", []),
        ("?user=alice", ["user=alice", "user=alice,client-id"]),
        ("?kind=broker&key=log.retention.ms", ["broker"]),
        ("?kind=client-id&prefix=many-" + "0" * 99, [f"client-id=many-{number:0100}" for number in range(10)]),
        ("?user=alice&topic=orders", []),
    ],
)
async def test_filters_select_entities(inside: Inside, query: str, ids: list[str]) -> None:
    assert [each["id"] for each in (await export(inside, query)).json()["entities"]] == ids


async def test_an_export_has_the_entities_that_the_caller_may_describe(inside: Inside) -> None:
    await inside.give(
        "User:exporter",
        operation=Operation.DESCRIBE_CONFIGS,
        resource=ResourceType.TOPIC,
        pattern=PatternType.PREFIXED,
        name="ord",
    )
    assert [each["id"] for each in (await export(inside, caller="exporter")).json()["entities"]] == ["topic=orders"]
    nothing = await export(inside, "?kind=user", "exporter", Accept=YAML)
    assert nothing.text.endswith("kind: Configs\nentities: []\n")


async def test_what_can_not_be_read_is_named_and_refused_by_a_plan(inside: Inside, module_chroot: str) -> None:
    path = f"{Tree.CONFIG}/users/broken"
    for zk in servers.raw_client(module_chroot):
        zk.create(path, b"{")
        stores.notify(zk, "users/broken")

    async def found() -> Any:
        return (await export(inside, "?user=broken")).json().get("skipped")

    assert await until(found) == [path]
    document = (await export(inside, "?user=broken")).json()
    refused = await inside.send("admin", "POST", "manifests:plan", document)
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["pointer"] == "/skipped"
    text = (await export(inside, "?user=broken", Accept=YAML)).text
    assert text.endswith(f'entities: []\n# Left out: the znode "{path}": the service can\'t read it\n')
