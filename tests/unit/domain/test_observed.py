"""The comparison of a tree with an observed cluster: nothing differs for its spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import ConfigType, ConfigValueError, canonical, catalog_of, parse
from confplane.domain.entities import Entity
from confplane.domain.observed import Observation, ObservedRules
from confplane.domain.quotas import QUOTA_KEYS, ClientQuotasFacet

if TYPE_CHECKING:
    from confplane.domain.definitions import ConfigDef

CATALOG: Final = catalog_of("4.4")
RULES: Final = ObservedRules(ClientQuotasFacet(), ConfigsFacet(lambda: CATALOG), lambda: CATALOG, lambda: True)
ALICE, IP = Entity.of(user="alice"), Entity.of(ip="10.0.0.1")
TOPIC, BROKER = Entity.of(topic="t"), Entity.of(broker="1")
DEFINITIONS: Final = [
    (entity, definition)
    for entity, catalog in ((TOPIC, CATALOG.topic), (BROKER, CATALOG.broker))
    for definition in catalog.values()
    if RULES.governs(entity, definition.name)
]


def observation(*hidden: str, **config: str) -> Observation:
    return Observation(config, frozenset(hidden))


@st.composite
def spelled(draw: st.DrawFn) -> tuple[Entity, ConfigDef, str]:
    """A config with a value that brokers take, in any spelling that they take."""
    entity, definition = draw(st.sampled_from(DEFINITIONS))
    number = draw(st.integers(-1, 2**31 - 1))
    match definition.type:
        case ConfigType.BOOLEAN:
            text = draw(st.sampled_from(["true", "TRUE", "False", "false"]))
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            text = draw(st.sampled_from([str(number), f"{'-' if number < 0 else '+'}000{abs(number)}"]))
        case ConfigType.DOUBLE:
            text = draw(st.sampled_from([f"{number}", f"{number}.0", f"{number}e0", f"0{abs(number)}.50"]))
        case ConfigType.LIST:
            words = draw(st.lists(st.sampled_from(["delete", "compact", "a:b", "1:2"]), max_size=3))
            text = draw(st.sampled_from([",", " , ", ",\t"])).join(words)
        case _:
            text = draw(st.sampled_from([definition.default or "x", "x.y"]))
    blanks = "" if definition.dynamic_only else draw(st.sampled_from(["", " ", "\t"]))
    return entity, definition, f"{blanks}{text}{blanks}"


@given(spelled())
def test_any_accepted_spelling_observed_twice_is_no_difference(given: tuple[Entity, ConfigDef, str]) -> None:
    entity, definition, text = given
    try:
        parse(definition, text)
    except ConfigValueError:
        return
    # A describe answers the canonical form, whatever was set; the log has what was set.
    for stored, seen in ((text, canonical(definition, text)), (canonical(definition, text), text)):
        before = {definition.name: stored, "foreign": "x"}
        assert RULES.reconcile(entity, before, observation(**{definition.name: seen})) == before
        taken = RULES.reconcile(entity, {}, observation(**{definition.name: seen}))
        assert (
            RULES.reconcile(entity, taken, observation(**{definition.name: seen})) == taken == {definition.name: seen}
        )


@pytest.mark.parametrize(
    ("key", "stored", "seen"),
    [
        ("producer_byte_rate", "1024", "1024.0"),
        ("producer_byte_rate", "0001024", "1024"),
        ("producer_byte_rate", str(2**53 + 1), str(2**53)),
        ("request_percentage", "12.50", "12.5"),
        ("request_percentage", "NaN", "NaN"),
        ("request_percentage", "1e2", "100.0"),
    ],
)
def test_quotas_are_the_same_where_their_doubles_are(key: str, stored: str, seen: str) -> None:
    assert RULES.reconcile(ALICE, {key: stored}, observation(**{key: seen})) == {key: stored}


@pytest.mark.parametrize(
    ("entity", "key", "stored", "seen"),
    [
        (ALICE, "producer_byte_rate", "1024", "1025"),
        (ALICE, "producer_byte_rate", "many", "1025"),
        (TOPIC, "cleanup.policy", "delete,compact", "compact,delete"),
        (TOPIC, "cleanup.policy", "delete", ""),
        (TOPIC, "retention.ms", "1", "2"),
        (BROKER, "log.cleaner.io.buffer.load.factor", "0.9", "0.8"),
    ],
)
def test_another_value_is_taken_as_the_cluster_spells_it(entity: Entity, key: str, stored: str, seen: str) -> None:
    assert RULES.reconcile(entity, {key: stored}, observation(**{key: seen})) == {key: seen}


def test_foreign_keys_stay_and_governed_keys_go_with_the_clusters() -> None:
    stored = {"SCRAM-SHA-256": "salt=x", "acks": "all", "producer_byte_rate": "1", "consumer_byte_rate": "2"}
    assert RULES.reconcile(ALICE, stored, observation(consumer_byte_rate="2", acks="0")) == {
        "SCRAM-SHA-256": "salt=x", "acks": "all", "consumer_byte_rate": "2"
    }  # fmt: skip
    # A quota of another kind of entity is none of this one's.
    assert RULES.reconcile(ALICE, {}, observation(connection_creation_rate="2")) == {}
    assert RULES.reconcile(IP, {}, observation(connection_creation_rate="2")) == {"connection_creation_rate": "2"}


def test_passwords_references_and_unknown_keys_are_listed_and_not_followed() -> None:
    stored = {"ssl.key.password": "encoded", "ssl.keystore.location": "${file:/a:b}", "num.io.threads": "8"}
    seen = Observation(
        {"ssl.keystore.location": "/resolved", "num.io.threads": "8", "acme.x": "?"}, frozenset({"ssl.key.password"})
    )
    assert RULES.reconcile(BROKER, stored, seen) == stored
    assert RULES.reconcile(BROKER, stored, observation()) == {"ssl.key.password": "encoded"}
    found = RULES.uncompared(BROKER, Observation({**seen.config, "ssl.keystore.location": "${file:/a:b}"}, seen.hidden))
    assert found.keys() == {"ssl.key.password", "ssl.keystore.location", "acme.x"}
    assert RULES.uncompared(TOPIC, observation(**{"retention.ms": "1"})) == {}


def test_a_hidden_key_without_a_definition_is_no_password() -> None:
    hidden = Observation({}, frozenset({"message.format.version"}))
    assert (
        "Kafka refuses every alter of the topic that leaves the key"
        in RULES.uncompared(TOPIC, hidden)["message.format.version"]
    )
    own = RULES.uncompared(BROKER, Observation({}, frozenset({"acme.key", "ssl.keystore.password"})))
    assert own == {
        "acme.key": "No catalog has this key, and the cluster does not show its value",
        "ssl.keystore.password": "The cluster does not show the value of a password",
    }


@pytest.mark.parametrize(
    ("components", "reason"),
    [
        ([("user", "..")], "can't be stored in ZooKeeper"),
        ([("user", "a\0b")], "NUL"),
        ([("user", "x" * 5000)], "may take 2000"),
        ([("ip", "::1")], "not an IPv4 address"),
        ([("ip", "10.0.0.1"), ("user", "a")], "an ip stands alone"),
        ([("topic", "a/b")], "not a legal topic name"),
        ([("broker", "one")], "not a legal broker name"),
    ],
)
def test_names_without_a_place_in_zookeeper_have_a_reason(components: list[Any], reason: str) -> None:
    found = RULES.entity_of(components)
    assert isinstance(found, str)
    assert reason in found


def test_the_clusters_own_names_are_entities() -> None:
    assert RULES.entity_of([("client-id", None), ("user", "CN=a b")]) == Entity.of(user="CN=a b", client_id=None)
    assert RULES.entity_of([("broker", None)]) == Entity.of(broker=None)
    assert set(QUOTA_KEYS) == {key for key in QUOTA_KEYS if RULES.governs(ALICE, key) or RULES.governs(IP, key)}


@pytest.mark.parametrize(
    "components",
    [[("user", "x" * 1_996)], [("group", "\u00e9" * 340)], [("user", "x" * 1_000), ("client-id", "x" * 990)]],
)
def test_an_entity_whose_id_no_index_takes_is_unmanaged(components: list[tuple[str, str | None]]) -> None:
    assert "2000 at most" in str(RULES.entity_of(components))
