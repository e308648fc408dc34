"""Quotas, topics and brokers as ``kafka-configs.sh`` shows and sets them, compared with Confplane's answers."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import exactly, new_topics, our_alter, our_configs, our_quotas, same_configs, until_equal
from tests.interop.entities import CLIENT_QUOTAS, ODD_NAMES, label, quotas_of
from tests.interop.values import AS_DEFAULT, ON_BROKER, ON_TOPIC
from tests.support.broker import BROKER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop.admin import Admin
    from tests.interop.entities import Names
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

ENTITIES: Final[tuple[Names, ...]] = (
    {"user": "tooled"},
    {"client-id": "tooled"},
    {"user": "tooled", "client-id": None},
    {"user": None, "client-id": "tooled"},
    {"ip": "10.9.8.5"},
    {"user": ODD_NAMES[0], "client-id": ODD_NAMES[4]},
)
_TYPES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}
_CONFIG: Final = re.compile(r"  (\S+?)=(.*) sensitive=(true|false) synonyms=\{(.*)\}")
TOPIC: Final = "tooled"
BROKER: Final = str(BROKER_ID)


def run(admin: Admin, *arguments: str) -> str:
    status, output = admin.config_command(*arguments)
    assert status == 0, output
    return output


def named(names: Names) -> Iterable[str]:
    for kind, name in names.items():
        yield from ("--entity-type", _TYPES[kind])
        yield from ("--entity-default",) if name is None else ("--entity-name", name)


def described_quotas(admin: Admin, names: Names) -> dict[str, float]:
    """The quotas of an entity, as the tool prints them."""
    output = run(admin, "--describe", *named(names))
    lines = [line for line in output.splitlines() if line.startswith("Quota configs for ")]
    if not lines:
        return {}
    (line,) = lines
    pairs = (pair.partition("=") for pair in line.rpartition(" are ")[2].split(", "))
    return {key: float(value) for key, _, value in pairs}


def described_configs(admin: Admin, kind: str, name: str) -> dict[str, list[str]]:
    """All configs of a topic or broker, as the tool prints them."""
    plural = {"TOPIC": "topics", "BROKER": "brokers"}[kind]
    output = run(admin, "--describe", "--all", "--entity-type", plural, "--entity-name", name)
    found = [match.groups() for match in map(_CONFIG.fullmatch, output.splitlines()) if match]
    assert len(found) == len(output.strip().splitlines()) - 1, output
    return {key: rest for key, *rest in found}


def as_described(configs: dict[str, Any]) -> dict[str, list[str]]:
    """Confplane's description in the form of the tool."""

    def text(value: str | None) -> str:
        return "null" if value is None else value

    return {
        key: [
            text(item["value"]),
            str(item["sensitive"]).lower(),
            ", ".join(f"{source}:{name}={text(value)}" for name, value, source in item["synonyms"]),
        ]
        for key, item in configs.items()
    }


@pytest.mark.parametrize("names", ENTITIES, ids=map(label, ENTITIES))
async def test_quotas(client: ConfplaneClient, admin: Admin, names: Names) -> None:
    entity, only = Entity.from_names(names), exactly(names)
    await client.put("client-quotas", entity, quotas_of(names))
    assert await asyncio.to_thread(described_quotas, admin, names) == quotas_of(names)
    # And what it sets.
    values = {"connection_creation_rate": 7.0} if "ip" in names else dict.fromkeys(CLIENT_QUOTAS, 7.0)
    kept, *removed = values
    setting = ",".join(f"{key}=7" for key in values)
    await asyncio.to_thread(run, admin, "--alter", *named(names), "--add-config", setting)

    async def ours() -> dict[str, float]:
        return next(iter((await our_quotas(client, only, strict=True)).values()), {})

    async def theirs() -> dict[str, float]:
        return await asyncio.to_thread(described_quotas, admin, names)

    assert await until_equal(ours, theirs, "ours | theirs") == values
    if removed:
        await asyncio.to_thread(run, admin, "--alter", *named(names), "--delete-config", ",".join(removed))
        assert await until_equal(ours, theirs, "ours | theirs") == {kept: 7.0}


@pytest.mark.usefixtures("restored")
async def test_topics_and_brokers(client: ConfplaneClient, admin: Admin) -> None:
    await new_topics(client, admin, TOPIC)
    await our_alter(client, "TOPIC", TOPIC, *((key, "SET", value) for key, value in ON_TOPIC.items()))
    await our_alter(client, "BROKER", "", *((key, "SET", value) for key, value in AS_DEFAULT.items()))
    # Not those of network threads: a broker that ends one may leave a connection to it unanswered, and the tool makes many.
    own = {key: value for key, value in ON_BROKER.items() if not key.endswith("network.threads")}
    await our_alter(client, "BROKER", BROKER, *((key, "SET", value) for key, value in own.items()))
    for kind, name in (("TOPIC", TOPIC), ("BROKER", BROKER)):
        await same_configs(client, admin, kind, name)
        described = await asyncio.to_thread(described_configs, admin, kind, name)
        assert described == as_described(await our_configs(client, kind, name))
    # And what it sets: the tests of what Kafka's tools set compare that in every field.
    setting = "cleanup.policy=[delete],segment.ms=5000"
    run(admin, "--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", setting)
    await same_configs(client, admin, "TOPIC", TOPIC)
    described = await asyncio.to_thread(described_configs, admin, "TOPIC", TOPIC)
    assert described == as_described(await our_configs(client, "TOPIC", TOPIC))
    assert described["segment.ms"][0] == "5000"
