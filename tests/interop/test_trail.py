"""Alterations by Kafka's own tools in Confplane's trail, as external changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import BOUND_S, new_topics
from tests.interop.entities import entities, quotas_of
from tests.interop.values import ON_BROKER, ON_TOPIC
from tests.support.broker import BROKER_ID
from tests.support.waiting import until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.interop.admin import Admin
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]


Values = dict[str, str | None]

HIGH: Final = 987_654_321
"""A quota that no test runs into."""


async def recorded(client: ConfplaneClient, entity_id: str, keys: set[str], left: Values) -> dict[str, Any]:
    """Wait until the trail has an external change that names these keys and left these values; return its side of it.

    Tests that ran earlier may have changed the same keys of an entity, the default user among them.
    """
    seen: list[dict[str, Any]] = []

    async def look() -> dict[str, Any] | None:
        seen[:] = [item async for item in client.items("audit", entity=entity_id)]
        for item in seen:
            (part,) = item["entities"]
            after = {key: value for key, value in part["after"].items() if key in keys}
            if item["kind"] == "external" and keys <= set(part["keys"]) and after == left:
                return item
        return None

    found = await until(look, BOUND_S, why=lambda: f"{entity_id}: {left}: {seen}")
    assert (found["outcome"], found["principal"]) == ("committed", "External:unknown")
    (part,) = found["entities"]
    return dict(part)


@pytest.mark.usefixtures("restored")
async def test_all_that_kafkas_tools_alter_is_recorded(client: ConfplaneClient, admin: Admin, zk: KazooClient) -> None:
    await new_topics(client, admin, "noted")
    quotas = entities("noted")
    outcomes = admin.alter_quotas(*((names, dict.fromkeys(quotas_of(names), HIGH).items()) for names in quotas))
    assert {outcome["code"] for outcome in outcomes} == {0}
    wanted = {Entity.from_names(names).id: (Entity.from_names(names).path, set(quotas_of(names))) for names in quotas}
    for kind, name, entity_id, path, values in (
        ("TOPIC", "noted", "topic=noted", "topics/noted", ON_TOPIC),
        ("BROKER", str(BROKER_ID), f"broker={BROKER_ID}", f"brokers/{BROKER_ID}", ON_BROKER),
    ):
        outcome = admin.alter_configs(kind, name, [(key, "SET", value) for key, value in values.items()])
        assert outcome["code"] == 0, outcome
        wanted[entity_id] = (path, set(values))
    stored = {each: json.loads(zk.get(f"/config/{path}")[0])["config"] for each, (path, _) in wanted.items()}
    for entity_id, (_, keys) in wanted.items():
        # Of keys that are nobody's it can't be known whether they are secrets.
        left = {key: None if "custom" in key else stored[entity_id][key] for key in keys}
        part = await recorded(client, entity_id, keys, left)
        assert part["path"] == f"/config/{wanted[entity_id][0]}"
    # What is taken away is recorded with what it was.
    admin.alter_quotas(({"user": "noted"}, [("producer_byte_rate", None)]))
    part = await recorded(client, "user=noted", {"producer_byte_rate"}, {})
    assert part["before"]["producer_byte_rate"] == str(HIGH)


async def test_a_credential_is_recorded_without_its_value(
    client: ConfplaneClient, admin: Admin, zk: KazooClient
) -> None:
    admin.set_scram("credential", "a password")
    part = await recorded(client, "user=credential", {"SCRAM-SHA-256"}, {"SCRAM-SHA-256": None})
    assert (part["before"], part["after"]) == ({}, {"SCRAM-SHA-256": None})
    stored = json.loads(zk.get("/config/users/credential")[0])["config"]["SCRAM-SHA-256"]
    trail = [item async for item in client.items("audit", entity="user=credential")]
    secrets = [part.partition("=")[2] for part in stored.split(",") if not part.startswith("iterations=")]
    assert len(secrets) == 3
    assert not any(secret in json.dumps(trail) for secret in secrets)
