"""``confplane doctor`` on real stores: nothing on a healthy installation, no writes, and stores that are away."""

from __future__ import annotations

import asyncio
import json
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from tests.audit.rows import fetch, past_the_trigger
from tests.support.commands import run
from tests.support.servers import raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database

PUBLISHED: Final = {
    "confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2,
    "confplane.services.upkeep.incarnation.INTERVAL_S": 0.2,
}
OF_THE_TESTS: Final = {"postgres-not-durable", "postgres"}
"""Findings about the Postgres of the tests, which is made to be fast."""


@pytest.fixture
def service(tmp_path: Path, chroot: str, migrated: Database) -> Iterator[Service]:
    with Service(
        tmp_path / "service",
        connect=chroot,
        dsn=migrated.service_dsn,
        settings={CONSTANTS_VARIABLE: json.dumps(PUBLISHED), "CONFPLANE_HTTP__DRAIN_MS": "2000"},
        module="tests.support.stepping",
    ) as running:
        running.wait_recorded()
        yield running


async def diagnosed(service: Service, *options: str, **more: str) -> tuple[int, dict[str, str]]:
    """Return the exit code, and the command of each finding by its check."""
    said = await asyncio.to_thread(run, ["doctor", "--json", *options], service._environment | more)
    found: list[dict[str, Any]] = json.loads(said.out)["findings"]
    return said.code, {each["check"]: each["command"] for each in found if each["check"] not in OF_THE_TESTS}


async def change(service: Service, chroot: str) -> str:
    """Change a quota, and return the change once ZooKeeper knows it as the newest one of Postgres."""
    async with service.client() as client:
        change_id = (await client.put("client-quotas", "user=a", {"producer_byte_rate": 1})).change_id
        assert change_id is not None
        for raw in raw_client(chroot):
            await until(partial(names, raw, change_id))
    return str(change_id)


def names(raw: KazooClient, change_id: str) -> bool:
    return change_id in raw.get("/confplane/incarnation")[0].decode()


async def test_a_healthy_installation_has_no_findings_and_its_bundle_no_secrets(
    service: Service, chroot: str, migrated: Database, tmp_path: Path
) -> None:
    await change(service, chroot)
    bundle = tmp_path / "bundle.zip"
    assert (await diagnosed(service, "--bundle", str(bundle)))[1] == {}
    assert bundle.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(bundle) as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    assert sorted(texts) == ["facts.json", "findings.json", "settings.json", "versions.json"]
    for secret in (service.token, str(urlsplit(migrated.service_dsn).password)):
        assert not any(secret in text for text in texts.values())
    assert chroot in texts["settings.json"]


STORED: Final = (
    "SELECT to_jsonb(store_positions) FROM store_positions",
    "SELECT to_jsonb(access_version) FROM access_version",
)


def stored(chroot: str, database: Database) -> tuple[Any, ...]:
    """Return what both stores have; of znodes the versions. The node of the session comes and goes."""
    found = {}
    for raw in raw_client(chroot):
        paths = ["/"]
        for path in paths:
            if raw.get(path)[1].ephemeralOwner == 0:
                found[path] = (raw.get(path)[0], raw.get(path)[1].version)
            paths += [f"{path.rstrip('/')}/{name}" for name in raw.get_children(path)]
    return found, [fetch(database.owner_dsn, query) for query in STORED]


async def test_a_diagnosis_writes_to_neither_store_not_even_with_the_address_of_another_zookeeper(
    service: Service, chroot: str, migrated: Database
) -> None:
    change_id = await change(service, chroot)
    await asyncio.to_thread(service.stop)
    wrong = f"{chroot}-wrong"
    clusters = json.dumps({"default": {"zookeeper": wrong}})
    before = stored(chroot, migrated)
    assert (await diagnosed(service))[1] == {"no-process": "confplane serve"}
    assert "store-restored" in (await diagnosed(service, CONFPLANE_CLUSTERS=clusters))[1]
    assert stored(chroot, migrated) == before
    # Nor to a Postgres that was restored, and to stores that no process has used.
    for table in ("intents", "intent_entities", "outcomes", "change_keys"):
        past_the_trigger(migrated.owner_dsn, table, f"DELETE FROM {table} WHERE change_id = '{change_id}'")  # noqa: S608 - an id
    assert "postgres-restored" in (await diagnosed(service))[1]
    assert stored(chroot, migrated) == before
    past_the_trigger(migrated.owner_dsn, "outcomes", "DELETE FROM store_positions")
    await diagnosed(service, CONFPLANE_CLUSTERS=clusters)
    for raw in raw_client(wrong):
        assert raw.exists("/confplane/incarnation") is None
    assert fetch(migrated.owner_dsn, STORED[0]) == []


async def test_stores_that_do_not_answer_are_findings(service: Service, database: Database, tmp_path: Path) -> None:
    policy = tmp_path / "missing"
    clusters = json.dumps({"default": {"zookeeper": "127.0.0.1:1", "session_timeout_ms": 4000}})
    code, found = await diagnosed(service, CONFPLANE_POSTGRES__DSN=database.service_dsn, CONFPLANE_CLUSTERS=clusters)
    assert code == 1
    assert found == {
        "postgres-unavailable": "confplane migrate",
        "zookeeper-unavailable": "echo srvr | nc ZOOKEEPER 2181",
    }
    with_policy = json.dumps({"default": {"zookeeper": "127.0.0.1:1", "policy_file": str(policy)}})
    code, found = await diagnosed(service, CONFPLANE_CLUSTERS=with_policy)
    assert code == 1
    assert found.keys() == {"settings-unusable", "file-unreadable"}
