"""Configs set by Kafka's own tools, as Confplane describes them and as its own writes preserve them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from tests.interop.compare import (
    exactly,
    new_topics,
    our_alter_code,
    our_quotas,
    same_configs,
    their_quotas,
    until_equal,
)
from tests.interop.entities import entities, label, quotas_of
from tests.interop.values import AS_DEFAULT, ON_BROKER, ON_TOPIC
from tests.support.broker import BROKER_ID
from tests.support.waiting import until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.interop.admin import Admin
    from tests.interop.compare import Quotas
    from tests.interop.entities import Names
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

BROKER = str(BROKER_ID)
ALTERED = entities("altered")
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="%s";'


# ---------------------------------------------------------------- quotas


@pytest.mark.parametrize("names", ALTERED, ids=map(label, ALTERED))
async def test_quotas(client: ConfplaneClient, admin: Admin, names: Names) -> None:
    only, quotas = exactly(names), quotas_of(names)
    # Rounded by the client's doubles, so not all that an entity can have here.
    quotas = {key: min(value, 2.0**53) for key, value in quotas.items()}
    changed, *others = quotas
    for ops in (quotas, {changed: 4096, **dict.fromkeys(others)}, {changed: None}):
        (outcome,) = admin.alter_quotas((names, ops.items()))
        assert outcome["code"] == 0, outcome

        async def expected(ops: dict[str, float | None] = ops) -> Quotas:  # type: ignore[assignment]
            left = {key: value for key, value in ops.items() if value is not None}
            assert left == next(iter((await their_quotas(admin, only, strict=True)).values()), {})
            return {tuple(sorted(names.items(), key=lambda item: item[0])): left} if left else {}

        await until_equal(lambda: our_quotas(client, only, strict=True), expected, f"{names}, ours | expected")


async def test_all_quotas_at_once(client: ConfplaneClient, admin: Admin) -> None:
    outcomes = admin.alter_quotas(*((names, quotas_of(names).items()) for names in ALTERED))
    assert {outcome["code"] for outcome in outcomes} == {0}
    found = await until_equal(lambda: our_quotas(client), lambda: their_quotas(admin), "ours | theirs")
    assert len(found) >= len(ALTERED)
    admin.alter_quotas(*((names, dict.fromkeys(quotas_of(names)).items()) for names in ALTERED))
    left = await until_equal(lambda: our_quotas(client), lambda: their_quotas(admin), "ours | theirs")
    assert len(left) == len(found) - len(ALTERED)


# ---------------------------------------------------------------- topics and brokers


async def test_topic_configs(client: ConfplaneClient, admin: Admin) -> None:
    await new_topics(client, admin, "altered")
    before = await same_configs(client, admin, "TOPIC", "altered")
    for ops in (
        [(key, "SET", value) for key, value in ON_TOPIC.items()],
        [("cleanup.policy", "SUBTRACT", "compact"), ("retention.ms", "DELETE", "")],
        [("follower.replication.throttled.replicas", "SET", "0:0"), ("segment.bytes", "SET", " 2097152 ")],
        [("follower.replication.throttled.replicas", "APPEND", "0:1,1:0")],
    ):
        outcome = admin.alter_configs("TOPIC", "altered", ops)
        assert outcome["code"] == 0, outcome
        after = await same_configs(client, admin, "TOPIC", "altered")
        assert after != before
        before = after


@pytest.mark.usefixtures("restored")
async def test_dynamic_broker_configs(client: ConfplaneClient, admin: Admin) -> None:
    for name, values in (("", AS_DEFAULT), (BROKER, ON_BROKER)):
        outcome = admin.alter_configs("BROKER", name, [(key, "SET", value) for key, value in values.items()])
        assert outcome["code"] == 0, outcome
        found = await same_configs(client, admin, "BROKER", name)
        assert set(values) <= set(found)
    await new_topics(client, admin, "altered-levels")
    await same_configs(client, admin, "TOPIC", "altered-levels")
    for name, values in (("", AS_DEFAULT), (BROKER, ON_BROKER)):
        outcome = admin.alter_configs("BROKER", name, [(key, "DELETE", "") for key in values])
        assert outcome["code"] == 0, outcome
        await same_configs(client, admin, "BROKER", name)


@pytest.mark.usefixtures("restored")
async def test_passwords_that_the_broker_encoded(client: ConfplaneClient, admin: Admin) -> None:
    password = LOGIN % "w\u00f6rd, 'x': \U0001f511"
    outcome = admin.alter_configs("BROKER", BROKER, [(JAAS, "SET", password), ("log.retention.ms", "SET", "5000000")])
    assert outcome["code"] == 0, outcome
    # Without a warning: the secret in the settings opens it.
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert (found[JAAS]["source"], found[JAAS]["value"]) == ("DYNAMIC_BROKER_CONFIG", None)
    # The same password is no change, so it was decoded to what was given; another one is.
    for text, changes in ((password, False), (LOGIN % "another", True)):
        code, answer = await our_alter_code(client, "BROKER", BROKER, [(JAAS, "SET", text)])
        assert code == 0, answer
        assert (answer["changeId"] is not None) == changes
    # Kafka decodes all of a level to encode it anew, and would lose what it can't.
    outcome = admin.alter_configs("BROKER", BROKER, [("log.retention.ms", "DELETE", "")])
    assert outcome["code"] == 0, outcome
    found = await same_configs(client, admin, "BROKER", BROKER)
    assert found[JAAS]["source"] == "DYNAMIC_BROKER_CONFIG"
    code, answer = await our_alter_code(client, "BROKER", BROKER, [(JAAS, "SET", LOGIN % "another")])
    assert (code, answer["changeId"]) == (0, None)
    await client.delete("configs", "broker=0")
    await same_configs(client, admin, "BROKER", BROKER)


# ---------------------------------------------------------------- users


async def test_scram_credentials_survive_all_our_writes(client: ConfplaneClient, admin: Admin, broker: Broker) -> None:
    host, port = broker.listener("SASL_PLAINTEXT")
    address = f"{host}:{port}"
    names: Names = {"user": "o'scram, =x"}
    entity = Entity.from_names(names)
    admin.set_scram("o'scram, =x", "first")
    admin.set_scram("o'scram, =x", "second", "SCRAM-SHA-512")

    def still_there() -> None:
        assert sorted(admin.scram()["o'scram, =x"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]

    async def logs_in() -> None:
        for password, mechanism in (("first", "SCRAM-SHA-256"), ("second", "SCRAM-SHA-512")):
            # The broker takes a credential, and drops one, once it hears of the node.
            await until(
                lambda: admin.login(address, "o'scram, =x", password, mechanism)["code"] == 0,  # noqa: B023
                why=f"a login with {mechanism}",
            )

    still_there()
    await logs_in()
    heard = f"Processing override for entityPath: {entity.path} with config: "
    writes = broker.said().count(heard)
    for quotas in ({"producer_byte_rate": 1024}, {"consumer_byte_rate": 2048, "request_percentage": 50.5}):
        await client.put("client-quotas", entity, quotas)
        still_there()
    await client.alter("client-quotas", [(entity, {"consumer_byte_rate": None, "controller_mutation_rate": 1})])
    still_there()
    await client.put("client-configs", entity, {"acks": "-1"})
    await client.delete("client-configs", entity)
    still_there()
    await client.delete("client-quotas", entity)
    still_there()

    # Four of these writes are on the node that has the credentials.
    await until(lambda: broker.said().count(heard) >= writes + 4, why="the broker hears of each")
    await logs_in()
    assert admin.login(address, "o'scram, =x", "wrong")["code"] == 58
    # And the other way: what Kafka does to credentials leaves our quotas.
    await client.put("client-quotas", entity, {"producer_byte_rate": 1024})
    admin.set_scram("o'scram, =x", None)
    assert await their_quotas(admin, exactly(names)) == await our_quotas(client, exactly(names))
    assert admin.scram()["o'scram, =x"] == ["SCRAM-SHA-512"]


async def test_kafka_goes_on_altering_entities_that_have_client_configs(
    client: ConfplaneClient, admin: Admin, zk: KazooClient
) -> None:
    user, pair = {"user": "mixed"}, {"user": "mixed", "client-id": "app"}
    configs = {"acks": "all", "session.timeout.ms": "30000"}
    for names in (user, pair):
        await client.put("client-configs", Entity.from_names(names), configs)
    assert zk.exists("/config/users/mixed") is None
    who = ["--entity-type", "users", "--entity-name", "mixed"]
    for setting in ("producer_byte_rate=5000", "SCRAM-SHA-256=[password=pw]"):
        status, output = admin.config_command("--alter", *who, "--add-config", setting)
        assert status == 0, output
    client_id = ["--entity-type", "clients", "--entity-name", "app"]
    status, output = admin.config_command("--alter", *who, *client_id, "--add-config", "request_percentage=25")
    assert status == 0, output
    (outcome,) = admin.alter_quotas((pair, [("consumer_byte_rate", 77)]))
    assert outcome["code"] == 0, outcome
    found = await until_equal(
        lambda: our_quotas(client, exactly(user)), lambda: their_quotas(admin, exactly(user)), "ours | theirs"
    )
    assert sorted(map(len, found)) == [1, 2]
    assert set(json.loads(zk.get("/config/users/mixed")[0])["config"]) == {"producer_byte_rate", "SCRAM-SHA-256"}
    # Removing the last quota makes Kafka delete nodes; client configs are elsewhere.
    admin.alter_quotas((pair, [("consumer_byte_rate", None), ("request_percentage", None)]))
    for names in (user, pair):
        answer = await client.get("client-configs", Entity.from_names(names), strong=True)
        assert answer.body["configs"] == configs
