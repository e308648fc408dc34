"""Configs set through Confplane, as Kafka describes them and as the running broker takes them."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import (
    BOUND_S,
    exactly,
    new_topics,
    our_alter,
    our_alter_code,
    our_quotas,
    same_configs,
    their_quotas,
    until_equal,
)
from tests.interop.entities import entities, label, quotas_of
from tests.interop.values import AS_DEFAULT, ON_BROKER, ON_TOPIC
from tests.support.broker import BROKER_ID, make_keystore
from tests.support.catalogs import ZOOKEEPER
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.interop.admin import Admin
    from tests.interop.entities import Names
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

BROKER = str(BROKER_ID)
WRITTEN = entities("written")
EXPLAINED_ERRORS = (
    # What the broker says of a request that it refuses.
    "validation of configProps {num.io.threads=7} for ConfigResource(type=BROKER, name='0') failed",
    # It is stopped while it applies what it was just notified of, and applies it when it starts.
    "java.lang.InterruptedException",
)


# ---------------------------------------------------------------- quotas


@pytest.mark.parametrize("names", WRITTEN, ids=map(label, WRITTEN))
async def test_quotas(client: ConfplaneClient, admin: Admin, broker: Broker, names: Names) -> None:
    entity, only, wanted = Entity.from_names(names), exactly(names), quotas_of(names)
    await client.put("client-quotas", entity, wanted)
    assert list((await their_quotas(admin, only, strict=True)).values()) == [wanted]
    # Not only stored: the broker heard of it.
    heard = f"Processing override for entityPath: {entity.path} with config: "
    await until(lambda: heard in broker.said(), why=heard)
    # One key changes, one goes.
    changed, *others = wanted
    await client.alter("client-quotas", [(entity, {changed: 4096, **dict.fromkeys(others[:1])})])
    left = {changed: 4096.0} | {key: wanted[key] for key in others[1:]}
    assert list((await their_quotas(admin, only, strict=True)).values()) == [left]


@pytest.mark.parametrize("strict", [False, True])
async def test_every_filter_finds_the_same(client: ConfplaneClient, admin: Admin, *, strict: bool) -> None:
    await client.alter("client-quotas", [(Entity.from_names(names), quotas_of(names)) for names in WRITTEN])
    filters = [[], *map(exactly, WRITTEN)]
    filters += [[{"entityType": kind, "matchType": "any"}] for kind in ("user", "client-id", "ip")]
    for user in ("any", "default"):
        filters += [
            [{"entityType": "user", "matchType": user}, {"entityType": "client-id", "matchType": client_id}]
            for client_id in ("any", "default")
        ]
    for components in filters:
        found = await until_equal(
            lambda: our_quotas(client, components, strict=strict),  # noqa: B023 - called in this round
            lambda: their_quotas(admin, components, strict=strict),  # noqa: B023
            f"{components}, ours | theirs",
        )
        assert found or (strict and not components)


async def test_removed_quotas(client: ConfplaneClient, admin: Admin) -> None:
    removed = [names for names in WRITTEN if "written" in names.values() or None in names.values()]
    for names in removed:
        await client.put("client-quotas", Entity.from_names(names), quotas_of(names))
        await client.delete("client-quotas", Entity.from_names(names))
        assert await their_quotas(admin, exactly(names), strict=True) == {}


# ---------------------------------------------------------------- topics


async def test_topic_configs(client: ConfplaneClient, admin: Admin) -> None:
    await new_topics(client, admin, "written")
    assert set(ON_TOPIC) == set(ZOOKEEPER.topic)
    before = await same_configs(client, admin, "TOPIC", "written")
    assert not any(item["source"] == "DYNAMIC_TOPIC_CONFIG" for item in before.values())
    await our_alter(client, "TOPIC", "written", *((key, "SET", value) for key, value in ON_TOPIC.items()))
    after = await same_configs(client, admin, "TOPIC", "written")
    assert {key: item["source"] for key, item in after.items()} == dict.fromkeys(ON_TOPIC, "DYNAMIC_TOPIC_CONFIG")
    await client.put("configs", "topic=written", {"cleanup.policy": "delete"})
    await our_alter(client, "TOPIC", "written", ("cleanup.policy", "APPEND", "compact"))
    await our_alter(client, "TOPIC", "written", ("leader.replication.throttled.replicas", "SET", "0:0,0:1"))
    await our_alter(client, "TOPIC", "written", ("leader.replication.throttled.replicas", "SUBTRACT", "0:0"))
    found = await same_configs(client, admin, "TOPIC", "written")
    assert found["cleanup.policy"]["value"] == "delete,compact"
    assert found["leader.replication.throttled.replicas"]["value"] == "0:1"
    await client.delete("configs", "topic=written")
    assert await same_configs(client, admin, "TOPIC", "written") == before


async def test_a_topic_created_by_kafka_is_known_and_a_deleted_one_is_not(
    client: ConfplaneClient, admin: Admin
) -> None:
    assert await code_of_topic_alter(client, "comes") == 3
    admin.create_topics("comes")
    await until_code(client, "comes", 0)
    await same_configs(client, admin, "TOPIC", "comes")
    admin.delete_topic("comes")
    await until_code(client, "comes", 3)


async def code_of_topic_alter(client: ConfplaneClient, name: str) -> int:
    code, _ = await our_alter_code(client, "TOPIC", name, [("retention.ms", "SET", "1000")])
    return code


async def until_code(client: ConfplaneClient, name: str, wanted: int) -> None:
    async def code() -> int:
        return await code_of_topic_alter(client, name)

    async def expected() -> int:
        return wanted

    await until_equal(code, expected, f"the error code for topic {name}")


# ---------------------------------------------------------------- brokers


@pytest.mark.usefixtures("restored")
async def test_dynamic_broker_configs_at_both_levels(client: ConfplaneClient, admin: Admin) -> None:
    await new_topics(client, admin, "levels")
    before = await same_configs(client, admin, "BROKER", BROKER)
    await our_alter(client, "BROKER", "", *((key, "SET", value) for key, value in AS_DEFAULT.items()))
    default = await same_configs(client, admin, "BROKER", "")
    assert set(default) == set(AS_DEFAULT)
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert {found[key]["source"] for key in AS_DEFAULT} == {"DYNAMIC_DEFAULT_BROKER_CONFIG"}
    await our_alter(client, "BROKER", BROKER, *((key, "SET", value) for key, value in ON_BROKER.items()))
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert {found[key]["source"] for key in ON_BROKER} == {"DYNAMIC_BROKER_CONFIG"}
    # What brokers have is what their topics fall back on.
    topic = await same_configs(client, admin, "TOPIC", "levels")
    assert topic["compression.type"]["source"] == "DYNAMIC_BROKER_CONFIG"
    assert topic["max.message.bytes"]["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    for name in ("", BROKER):
        entity = "broker" if not name else f"broker={name}"
        await client.delete("configs", entity)
        await same_configs(client, admin, "BROKER", name)
    assert await same_configs(client, admin, "BROKER", BROKER) == before


@pytest.mark.usefixtures("restored")
async def test_retention_of_a_topic_at_all_levels(client: ConfplaneClient, admin: Admin) -> None:
    await new_topics(client, admin, "retained")

    async def retention() -> tuple[str, str, list[list[str]]]:
        shown = (await same_configs(client, admin, "TOPIC", "retained"))["retention.ms"]
        return shown["value"], shown["source"], shown["synonyms"]

    # The file has hours, whose name never leads.
    assert await retention() == ("172800000", "DEFAULT_CONFIG", [])
    file = [["log.retention.hours", "48", "STATIC_BROKER_CONFIG"], ["log.retention.hours", "168", "DEFAULT_CONFIG"]]
    await our_alter(client, "BROKER", "", ("log.retention.ms", "SET", "3000"))
    default = [["log.retention.ms", "3000", "DYNAMIC_DEFAULT_BROKER_CONFIG"], *file]
    assert await retention() == ("3000", "DYNAMIC_DEFAULT_BROKER_CONFIG", default)
    await our_alter(client, "BROKER", BROKER, ("log.retention.ms", "SET", "2000"))
    own = [["log.retention.ms", "2000", "DYNAMIC_BROKER_CONFIG"], *default]
    assert await retention() == ("2000", "DYNAMIC_BROKER_CONFIG", own)
    await our_alter(client, "TOPIC", "retained", ("retention.ms", "SET", "1000"))
    topic = [["retention.ms", "1000", "DYNAMIC_TOPIC_CONFIG"], *own]
    assert await retention() == ("1000", "DYNAMIC_TOPIC_CONFIG", topic)
    await our_alter(client, "TOPIC", "retained", ("retention.ms", "DELETE", None))
    await our_alter(client, "BROKER", BROKER, ("log.retention.ms", "DELETE", None))
    assert await retention() == ("3000", "DYNAMIC_DEFAULT_BROKER_CONFIG", default)


@pytest.mark.usefixtures("restored")
async def test_threads_take_effect_without_a_restart(client: ConfplaneClient, admin: Admin, broker: Broker) -> None:
    for name, old, new in ((BROKER, 2, 4), ("", 2, 3)):
        await our_alter(client, "BROKER", BROKER, ("num.io.threads", "DELETE", None))
        await our_alter(client, "BROKER", name, ("num.io.threads", "SET", str(new)))
        resized = f"Resizing request handler thread pool size from {old} to {new}"
        await until(lambda: resized in broker.said(), why=resized)  # noqa: B023 - awaited in this round
        found = await same_configs(client, admin, "BROKER", BROKER)
        assert found["num.io.threads"]["value"] == str(new)
    code, answer = await our_alter_code(client, "BROKER", BROKER, [("num.io.threads", "SET", "7")])
    assert code == 42, answer
    assert admin.alter_configs("BROKER", BROKER, [("num.io.threads", "SET", "7")])["code"] == 42


@pytest.mark.usefixtures("restored")
async def test_the_log_cleaner_takes_a_new_limit(client: ConfplaneClient, admin: Admin, broker: Broker) -> None:
    await our_alter(client, "BROKER", "", ("log.cleaner.io.max.bytes.per.second", "SET", "1.25E6"))
    taken = "Updating logCleanerIoMaxBytesPerSecond: 1250000.0"
    await until(lambda: taken in broker.said(), why=taken)
    await same_configs(client, admin, "BROKER", BROKER)


@pytest.mark.usefixtures("restored")
async def test_a_keystore_whose_password_we_encoded_is_opened(
    client: ConfplaneClient, admin: Admin, broker: Broker
) -> None:
    address = broker.listener("SSL")

    async def certificate() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, address, timeout=60)

    async def first() -> str:
        return from_file

    from_file = await certificate()
    second = await give_second_keystore(client, broker)
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert set(second) <= set(found)
    for key in [key for key in second if key.endswith("password")]:
        assert (found[key]["value"], found[key]["sensitive"]) == (None, True)
        assert found[key]["source"] == "DYNAMIC_BROKER_CONFIG"
    deadline = asyncio.get_running_loop().time() + BOUND_S
    while await certificate() == from_file:
        assert asyncio.get_running_loop().time() < deadline, "the broker still has the certificate of its file"
        await asyncio.sleep(0.1)
    await client.delete("configs", "broker=0")
    await until_equal(certificate, first, "the certificate")


async def give_second_keystore(client: ConfplaneClient, broker: Broker) -> list[str]:
    """Give the SSL listener another keystore under another password; returns the keys that were set."""
    prefix = "listener.name.ssl.ssl"
    password = "pass, word: {=%x\\y}"
    store = broker.data_dir / "second.p12"
    if not store.exists():
        make_keystore(store, password=password)
    values = {
        f"{prefix}.keystore.location": str(store),
        f"{prefix}.keystore.password": password,
        f"{prefix}.key.password": password,
    }
    await our_alter(client, "BROKER", BROKER, *((key, "SET", value) for key, value in values.items()))
    return list(values)


# ---------------------------------------------------------------- all of it


@pytest.mark.usefixtures("restored")
async def test_the_broker_starts_with_all_that_we_write(client: ConfplaneClient, admin: Admin, broker: Broker) -> None:
    await new_topics(client, admin, "started")
    await client.alter("client-quotas", [(Entity.from_names(names), quotas_of(names)) for names in WRITTEN])
    await our_alter(client, "TOPIC", "started", *((key, "SET", value) for key, value in ON_TOPIC.items()))
    await our_alter(client, "BROKER", "", *((key, "SET", value) for key, value in AS_DEFAULT.items()))
    await our_alter(client, "BROKER", BROKER, *((key, "SET", value) for key, value in ON_BROKER.items()))
    await give_second_keystore(client, broker)
    broker.stop()
    broker.start()
    await asyncio.to_thread(admin.until_known, "started")
    for kind, name in (("BROKER", BROKER), ("BROKER", ""), ("TOPIC", "started")):
        await same_configs(client, admin, kind, name)
    await until_equal(lambda: our_quotas(client), lambda: their_quotas(admin), "ours | theirs")
    # The listener opened its keystore as it started.
    assert await asyncio.to_thread(ssl.get_server_certificate, broker.listener("SSL"), timeout=60)
