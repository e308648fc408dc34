"""The client library against a service, family by family, and the examples of docs/python.md.

The blocking client sends the same requests: tests/unit/client/test_operations.py and test_both.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from confplane.client import (
    AsyncConfplane,
    Change,
    ClientChange,
    DuplicateResourceError,
    InvalidRequestError,
    PreconditionFailedError,
    ResourceNotFoundError,
    UnauthenticatedError,
)
from tests.support.both_clients import items
from tests.support.processes import ROOT
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.service import Service

GUIDE = (ROOT / "docs/python.md").read_text()


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[Any]:
    """A client of the service, whose trail knows every write from now on."""
    service.wait_recorded()
    async with AsyncConfplane(service.url, token=service.token) as made:
        yield made


@pytest.mark.parametrize(
    ("facet", "entity", "first", "second"),
    [
        ("client_quotas", "user=first", {"producer_byte_rate": 1}, {"producer_byte_rate": 2}),
        ("client_configs", "user=first", {"acks": "all"}, {"acks": "1"}),
        ("configs", "topic=first", {"retention.ms": "1"}, {"retention.ms": "2"}),
    ],
)
async def test_resources(client: Any, facet: str, entity: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    family = getattr(client, facet)
    [key] = first
    created = await family.create(entity, first, reason="r")
    assert (created.status, created.body[family.member]) == (201, first)
    with pytest.raises(DuplicateResourceError):
        await family.create(entity, second)
    full = await family.get(entity, min_revision=created.revision, full=True)
    found = await family.get(entity, strong=True)
    assert full.body["status"]["etag"] == found.etag == created.etag
    assert (await family.get.if_none_match(found.etag, entity)).body is None
    put = await family.put(entity, second, if_match=found.etag)
    with pytest.raises(PreconditionFailedError) as raised:
        await family.put(entity, second, if_match=found.etag)
    assert raised.value.etag == put.etag
    effective = await family.effective(entity, min_revision=put.revision)
    assert effective.body["id"] == entity
    assert [each["id"] for each in await items(family.list(entity=entity, page_size=1))] == [entity]
    assert [each["changes"][0]["key"] for each in await items(family.history(entity, page_size=1))] == [key, key]
    difference = await family.diff(entity, before=created.revision)
    assert [(each["before"], each["after"]) for each in difference.body["changes"]] == [(first[key], second[key])]
    await family.revert(entity, created.revision)
    updated = await family.update(entity, lambda values: {**values, **second})
    assert updated.body[family.member] == second
    await family.delete(entity)
    with pytest.raises(ResourceNotFoundError):
        await family.get(entity)


async def test_alters_and_describes(client: Any) -> None:
    user, topic = "user=altered", "topic=altered"
    component = {"entityType": "user", "matchType": "exact", "match": "altered"}
    await client.client_quotas.alter([Change(user, {"producer_byte_rate": 5})], atomic=True)
    [entry] = (await client.client_quotas.describe([component], strict=True)).body["entries"]
    assert entry["values"] == [{"key": "producer_byte_rate", "value": 5}]
    await client.client_configs.alter([Change(user, {"acks": "all"})])
    described = await client.client_configs.describe([component], resolve_entity=True)
    assert described.body["entries"][0]["values"] == [{"key": "acks", "value": "all"}]
    both = await client.clients.alter([ClientChange(user, {"producer_byte_rate": None}, {"acks": None})])
    assert both.body["failed"] == 0
    await client.configs.alter([Change(topic, {"cleanup.policy": "compact", "flush.ms": "7"})])
    appended = {"name": "cleanup.policy", "configOperation": "APPEND", "value": "delete"}
    resource = {"resourceType": "TOPIC", "resourceName": "altered"}
    await client.configs.incremental_alter([{**resource, "configs": [appended]}])
    await client.configs.alter([Change(topic, {"flush.ms": None})])
    [result] = (await client.configs.describe([{**resource, "configurationKeys": ["cleanup.policy"]}])).body["results"]
    assert [each["value"] for each in result["configs"]] == ["compact,delete"]
    await client.configs.delete(topic)


async def test_requests_of_earlier_proposals(client: Any) -> None:
    entity = {"entityType": "topic", "entityName": "earlier"}
    added = [{"configKey": "retention.ms", "configValue": "5"}]
    await client.entity_configs.alter([{**entity, "addedConfigs": added}])
    described = await client.entity_configs.describe([entity])
    assert "retention.ms" in str(described.body)
    await client.entity_configs.alter([{**entity, "deletedConfigs": ["retention.ms"]}])
    await client.global_config.change([{"configKey": "background.threads", "configValue": "12"}])
    assert "background.threads" in str((await client.global_config.get(strong=True)).body)
    await client.global_config.change([{"configKey": "background.threads", "configValue": None}])


async def test_the_trail_and_reverts(client: Any) -> None:
    user = "user=trail"
    changed = await client.client_quotas.put(user, {"producer_byte_rate": 1}, reason="why", ticket="T-1")
    [found] = await items(client.audit.search(entity=user))
    assert (found["changeId"], found["reason"], found["ticket"]) == (changed.change_id, "why", "T-1")
    assert (await client.audit.get(changed.change_id)).body["changeId"] == changed.change_id
    trial = await client.audit.revert({"changeId": changed.change_id}, validate_only=True)
    assert trial.body["failed"] == 0
    await client.audit.revert({"changeId": changed.change_id}, keys=["producer_byte_rate"])
    with pytest.raises(ResourceNotFoundError):
        await client.client_quotas.get(user)


async def test_tokens_and_grants(client: Any, service: Service) -> None:
    principal = "User:librarian"
    made = (await client.tokens.create({"principal": principal})).body
    rotated = (await client.tokens.rotate(made["id"], overlap_s=60)).body
    listed = await items(client.tokens.list(principal=principal, page_size=1))
    assert {each["id"] for each in listed} == {made["id"], rotated["id"]}
    async with AsyncConfplane(service.url, token=rotated["token"]) as own:
        assert (await own.service.whoami()).body["principal"] == principal
        await client.tokens.revoke(rotated["id"])
        assert (await client.tokens.get(rotated["id"])).body["status"] == "revoked"
    body = {"principal": principal, "operation": "DESCRIBE_CONFIGS", "resourceType": "user", "cluster": "default"}
    grant = await client.grants.create(body)
    read = await client.grants.get(grant.body["id"])
    assert (await client.grants.get.if_none_match(read.etag, grant.body["id"])).status == 304
    await client.grants.put(grant.body["id"], {**body, "note": "n"}, if_match=read.etag)
    assert [each["note"] for each in await items(client.grants.list(principal=principal))] == ["n"]
    report = await client.access.get(principal=principal)
    assert report.body["items"]
    [checked] = (await client.access.check([{"operation": "ALTER_CONFIGS", "resourceType": "user"}])).body["results"]
    assert checked["allowed"]
    await client.grants.delete(grant.body["id"])
    assert {each["principal"] for each in await items(client.access.changes(subject=f"grants/{grant.body['id']}"))}
    async with AsyncConfplane(service.url, token="no-such-token") as nobody:
        with pytest.raises(UnauthenticatedError):
            await nobody.service.whoami()


async def test_what_running_clients_say(client: Any) -> None:
    user = "user=running"
    put = await client.client_configs.put(user, {"acks": "all"})
    component = {"entityType": "user", "matchType": "exact", "match": "running"}
    software = {"softwareName": "own", "softwareVersion": "1.0"}
    described = client.client_configs.describe(
        [component], resolve_entity=True, supported_configs=["acks"], client_information=software
    )
    await described
    applied = {**software, "appliedRevision": str(put.revision)}
    assert (await client.client_configs.report(user, "one", applied)).body["forgottenAfterMs"] > 0
    assert (await client.client_configs.status(user)).body["instances"] == 1
    await client.registrations.clear(user)

    async def forgotten() -> bool:
        return not await items(client.registrations.list(entity=user))

    await until(forgotten)


async def test_the_cluster_and_the_service(client: Any) -> None:
    assert "default" in str((await client.clusters.list()).body)
    assert (await client.clusters.get(strong=True)).revision is not None
    frozen = await client.clusters.freeze("audit", validate_only=True)
    assert frozen.status == 200
    with pytest.raises(InvalidRequestError):
        await client.clusters.thaw("")
    definitions = await client.config_definitions.list(entity_type="topic", search="retention.ms")
    assert "retention.ms" in str(definitions.body)
    assert len((await client.rollups.list()).body["items"]) >= 6
    with pytest.raises(ResourceNotFoundError):
        await items(client.rollups.drift({"config_key": "retention.ms"}, filter="entities > 1", order_by="rank desc"))
    assert (await client.service.livez()).status == 200
    assert (await client.service.readyz()).body["status"] in {"ready", "degraded"}
    assert "confplane_" in (await client.service.metrics()).body
    with pytest.raises(ResourceNotFoundError):
        await client.service.protected_resource()


def test_the_examples_of_the_guide_print_what_it_shows(service: Service, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    assert len(examples) == len(shown) > 0
    (tmp_path / ".confplane").mkdir()
    (tmp_path / ".confplane" / "admin-token").write_text(service.token)
    script = "print('#')\n".join(examples).replace("http://127.0.0.1:8080", service.url)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "app")},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("#\n") == shown
