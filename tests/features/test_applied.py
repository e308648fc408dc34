"""Applied status over HTTP: reports of running clients, and what is counted of them by each replica."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from confplane.audit import write_behind_buffer
from confplane.audit.applied import SERIAL_LOCK
from confplane.audit.registration_statements import SERIAL_LOCK as REGISTRATIONS_LOCK
from confplane.client import ProblemError
from tests.audit.rows import count, fetch
from tests.bench.load import Load, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.facets import ConfplaneClient
    from tests.support.world import World


_MANY: Final = 100_000


async def report(client: ConfplaneClient, entity: str, instance: str, revision: str, **members: Any) -> dict[str, Any]:
    answer = await client.request(
        "PUT",
        f"client-configs/{entity}/instances/{instance}",
        json={"softwareName": "kafka-python", "softwareVersion": "2.2", "appliedRevision": revision, **members},
    )
    body: dict[str, Any] = answer.body
    return body


async def status(client: ConfplaneClient, entity: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.request("GET", f"client-configs/{entity}/status")).body
    return body


async def test_clients_are_counted_by_revision_and_software_with_what_they_refuse(client: ConfplaneClient) -> None:
    first = str((await client.put("client-configs", "user=counted", {"acks": "1"})).revision)
    second = str((await client.put("client-configs", "user=counted,client-id=b", {"acks": "all"})).revision)
    later = str((await client.put("client-configs", "user=uncounted", {"acks": "1"})).revision)
    assert await report(client, "user=counted", "one", first) == {"forgottenAfterMs": 900_000}
    await report(client, "user=counted,client-id=b", "one", first)
    refused = [{"key": "acks", "reason": "enable.idempotence is set"}]
    await report(client, "user=counted,client-id=b", "two", later, refused=refused)
    await report(client, "user=counted,client-id=b", "three", second, refused=refused)
    await report(client, "user=counted2", "one", first)
    software = {"softwareName": "kafka-python", "softwareVersion": "2.2"}
    assert await status(client, "user=counted,client-id=b") == {
        "id": "user=counted,client-id=b",
        "revision": second,
        "instances": 3,
        "applied": 2,
        "notYetApplied": 1,
        "appliedBy": [
            {**software, "appliedRevision": second, "instances": 2},
            {**software, "appliedRevision": first, "instances": 1},
        ],
        "refused": [{**refused[0], **software, "instances": 2}],
        "omitted": 0,
    }
    of_user = await status(client, "user=counted")
    assert (of_user["instances"], of_user["applied"], of_user["revision"]) == (4, 3, first)
    # A change makes all of the user's clients late, until they say otherwise.
    third = str((await client.put("client-configs", "user=counted", {"acks": "0"})).revision)
    assert (await status(client, "user=counted"))["notYetApplied"] == 4
    await report(client, "user=counted,client-id=b", "one", third)
    assert (await status(client, "user=counted"))["notYetApplied"] == 3
    nobody = await status(client, "user=nobody")
    assert (nobody["revision"], nobody["instances"], nobody["appliedBy"]) == ("0", 0, [])


async def test_lists_are_filtered_by_what_clients_say(client: ConfplaneClient) -> None:
    revisions = {}
    for entity in (
        *("user=list-late", "user=list-late,client-id=a", "user=list-late,client-id=b", "user=list-refuses"),
        *("user=list-latest", "user=list-of-a-pair", "user=list-silent", "user=list-silent-b"),
    ):
        revisions[entity] = str((await client.put("client-configs", entity, {"acks": "1"})).revision)
    await client.put("client-quotas", "user=list-silent", {"consumer_byte_rate": 1})
    now = revisions["user=list-silent-b"]
    await report(client, "user=list-late", "one", now)
    await report(client, "user=list-late,client-id=a", "one", now)
    await report(client, "user=list-late,client-id=b", "one", revisions["user=list-late,client-id=a"])
    refused = [{"key": "acks", "reason": "enable.idempotence is set"}]
    await report(client, "user=list-refuses", "one", now, refused=refused)
    await report(client, "user=list-latest", "one", now)
    await report(client, "user=list-of-a-pair,client-id=undeclared", "one", "1")
    await report(client, "user=list-undeclared", "one", "1")

    async def listed(applied: str, **filters: str) -> list[str]:
        items = [item async for item in client.items("client-configs", applied=applied, **filters)]
        return [item["id"] for item in items if "list-" in item["id"]]

    late = ["user=list-late", "user=list-late,client-id=b", "user=list-of-a-pair", "user=list-refuses"]
    assert await listed("false") == await listed("false", pageSize="1") == late
    assert await listed("true") == ["user=list-late,client-id=a", "user=list-latest"]
    assert await listed("false", user="list-late") == late[:2]
    assert await listed("false", kind="user", key="acks") == [late[0], *late[2:]]
    assert await listed("false", id=late[1]) == late[1:2]
    assert await listed("false", id="user=list-silent") == []
    # A change makes clients late; their next report makes them current.
    changed = await client.put("client-configs", "user=list-latest", {"acks": "1", "session.timeout.ms": "9000"})
    found = [item["id"] async for item in client.items("client-configs", applied="false", user="list-latest")]
    assert found == ["user=list-latest"]
    await report(client, "user=list-latest", "one", str(changed.revision))
    assert await listed("false", user="list-latest") == []


@pytest.mark.parametrize(
    ("entity", "instance", "members", "pointer"),
    [
        ("user", "one", {}, "id"),
        ("user=a,client-id", "one", {}, "id"),
        ("topic=a", "one", {}, None),
        ("user=a", "a b", {}, "instanceId"),
        ("user=a", "x" * 129, {}, "instanceId"),
        ("user=a", "one", {"appliedRevision": "latest"}, "/appliedRevision"),
        ("user=a", "one", {"appliedRevision": "9999999999999999999"}, "/appliedRevision"),
        ("user=a", "one", {"appliedRevision": 5}, "/appliedRevision"),
        ("user=a", "one", {"softwareName": "a\0"}, "/softwareName"),
        ("user=a", "one", {"softwareVersion": ""}, "/softwareVersion"),
        ("user=a", "one", {"refused": [{"key": "acks"}]}, "/refused/0/reason"),
        ("user=a", "one", {"refused": [{"key": "acks", "reason": "\0"}]}, "/refused/0/reason"),
        ("user=a", "one", {"refused": [{"key": "acks", "reason": "r"}] * 33}, "/refused"),
        ("user=a", "one", {"applied": True}, "/applied"),
    ],
)
async def test_what_is_no_report_is_refused_and_counts_nowhere(
    client: ConfplaneClient, entity: str, instance: str, members: dict[str, Any], pointer: str | None
) -> None:
    given = {"appliedRevision": "1", **members}
    with pytest.raises(ProblemError) as caught:
        await report(client, entity, instance, given.pop("appliedRevision"), **given)
    assert caught.value.status == 400
    if pointer is not None:
        assert pointer in [each["pointer"] for each in caught.value.body["errors"]]
    assert (await status(client, "user=a"))["instances"] == 0


async def test_a_report_that_is_only_validated_and_one_with_a_key_count_nowhere(client: ConfplaneClient) -> None:
    body = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": "1"}
    path = "client-configs/user=trial/instances/one"
    await client.request("PUT", path, json=body, params={"validateOnly": "true"})
    with pytest.raises(ProblemError, match="Idempotency-Key"):
        await client.request("PUT", path, json=body, headers={"Idempotency-Key": "k"})
    assert (await status(client, "user=trial"))["instances"] == 0


async def test_external_changes_make_no_report_new(world: World) -> None:
    dsn = world.database.owner_dsn

    def written() -> dict[str, tuple[int, int]]:
        rows = fetch(
            dsn, "SELECT instance_id, version, applied_revision FROM applied_reports WHERE entity_id = 'user=calm'"
        )
        return {instance: (version, revision) for instance, version, revision in rows}

    async with world.service() as service, service.client() as client:
        mine = (await client.put("client-configs", "user=calm", {"acks": "1"})).revision
        await report(client, "user=calm", "one", str(mine))
        await until(lambda: "one" in written())
        before = written()["one"]
        for number in range(3):
            later = (await client.put("client-configs", "user=busy", {"acks": str(number % 2)})).revision
            await report(client, "user=calm", "one", str(later))
        await report(client, "user=calm", "another", str(later))
        await until(lambda: "another" in written())
        assert written()["one"] == before
        assert before[1] == mine == written()["another"][1]
        # One from a replica that is further stays as it is, since a change may come between.
        await report(client, "user=calm", "ahead", str(2**62))
        await until(lambda: written().get("ahead", (0, 0))[1] == 2**62)


@pytest.mark.parametrize(
    "many", [300, pytest.param(_MANY, marks=[pytest.mark.long, pytest.mark.timeout(3600)])], ids="{:,}".format
)
async def test_a_stop_loses_no_report_and_no_registration(world: World, many: int) -> None:
    dsn = world.database.owner_dsn
    software = {"softwareName": "kafka-python", "softwareVersion": "2.2"}
    components = [{"entityType": "user", "matchType": "exact", "match": "app-{entity}"}]
    poll = {
        "components": components,
        "resolveEntity": True,
        "supportedConfigs": ["acks"],
        "clientInformation": software,
    }
    async with world.service() as service, service.client() as client:
        reports = Load(
            service.port,
            "/v1/clusters/default/client-configs/user=app-{entity}/instances/one",
            method="PUT",
            headers={"Authorization": f"Bearer {service.token}"},
            body=json.dumps({**software, "appliedRevision": "1"}),
            connections=20,
            entities=many,
            seconds=many / 5_000,
        )
        polls = replace(
            reports, path="/v1/clusters/default/client-configs:describe", method="POST", body=json.dumps(poll)
        )
        with psycopg.connect(dsn, autocommit=True) as postgres:
            for table, lock, load in (
                ("registrations", REGISTRATIONS_LOCK, polls),
                ("applied_reports", SERIAL_LOCK, reports),
            ):
                postgres.execute("SELECT pg_advisory_lock(%s)", [lock])
                while f"confplane_{table}_pending {many}.0" not in (await client.service.metrics()).body:
                    loaded = await asyncio.to_thread(run, load)
                    assert set(loaded.statuses) == {"200"}
                    load = replace(load, seconds=2 * load.seconds)  # noqa: PLW2901 - as long as some had no turn
                assert count(dsn, table) == 0, "all wait to be written"
        await asyncio.to_thread(service.stop)
        said = re.findall(r"(\d+) (registrations|applied_reports) were not written", service.log.read_text())
        unwritten = Counter({table: int(rows) for rows, table in said})
        for table in ("registrations", "applied_reports"):
            # A statement that is cut off may be done.
            assert many <= count(dsn, table) + unwritten[table] <= many + write_behind_buffer._ROWS_PER_INSERT
        # Where others have the processors, Postgres does not take all of 100,000 in time.
        assert not unwritten or many == _MANY, unwritten
        await asyncio.to_thread(service.start)
        if not unwritten:  # this one's may be among those
            await until(lambda: _counted(client, "user=app-000001", 1))


async def _counted(client: ConfplaneClient, entity: str, instances: int) -> bool:
    return bool((await status(client, entity))["instances"] == instances)
