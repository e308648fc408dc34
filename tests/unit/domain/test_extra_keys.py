"""Keys that the settings of a cluster declare: what may be declared, and the definitions that result."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import ValidationError

from confplane.domain.broker_keys import definition_of
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, describe_broker
from confplane.domain.brokers import check_level
from confplane.domain.client_metrics import check_client_metrics, effective_client_metrics
from confplane.domain.configs import ConfigsFacet, check_release
from confplane.domain.definitions import ConfigKind, ConfigType, Scope
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.groups import check_group
from confplane.domain.observed import Observation
from confplane.domain.topics import check_topic, describe_topic, effective_topic
from confplane.kraft_wiring import rules_of
from confplane.settings import ClusterSettings
from tests.support.catalogs import NEWEST, ZOOKEEPER

if TYPE_CHECKING:
    from confplane.domain.extra_keys import Catalogs

COPIES: Final = {"key": "acme.copies", "entity_types": ["topic", "broker", "group", "client-metrics"], "type": "int"}
TOKEN: Final = {**COPIES, "key": "acme.token", "type": "string", "sensitive": True}


def settings(*keys: dict[str, Any]) -> ClusterSettings:
    return ClusterSettings.model_validate({"zookeeper": "zk:2181", "extra_keys": keys})


def catalogs(*keys: dict[str, Any]) -> Catalogs:
    return settings(*keys).catalogs()


CATALOG: Final = catalogs(COPIES, TOKEN).of("4.4")
FACET: Final = ConfigsFacet(lambda: CATALOG)
LEVELS: Final = ConfigLevels(CATALOG)
TOPIC, BROKER = Entity.of(topic="t"), Entity.of(broker="1")


@pytest.mark.parametrize(
    ("wrong", "place", "rule"),
    [
        ({"key": "retention.ms", "entity_types": ["topic"]}, "extra_keys.0", "retention.ms is a topic config of Kafka"),
        ({"key": "num.io.threads", "entity_types": ["topic", "broker"]}, "extra_keys.0", "is a broker config of Kafka"),
        ({"key": "message.format.version"}, "extra_keys.0", "is a topic config of Kafka 3.9"),
        ({"key": "listener.name.x.acme"}, "extra_keys.0", "declare the key without it"),
        ({"key": "acme.ssl.keystore.password"}, "extra_keys.0", "is a secret"),
        ({"key": "a b"}, "extra_keys.0.key", "pattern"),
        ({"key": "*"}, "extra_keys.0.key", "pattern"),
        ({"key": "acme*"}, "extra_keys.0.key", "pattern"),
        ({"key": "log.*", "entity_types": ["broker"]}, "extra_keys.0", "log.* has a broker config of Kafka below it"),
        ({"key": "message.format.*"}, "extra_keys.0", "message.format.* has a topic config of Kafka below it"),
        ({"key": "listener.name.*", "entity_types": ["broker"]}, "extra_keys.0", "has a listener's prefix"),
        ({"type": "float"}, "extra_keys.0.type", "'boolean'"),
        ({"entity_types": []}, "extra_keys.0.entity_types", "at least 1"),
        ({"entity_types": ["user"]}, "extra_keys.0.entity_types.0", "'topic'"),
        ({"entity_types": ["topic", "topic"]}, "extra_keys.0", "a type twice"),
        ({"entity_type": "topic"}, "extra_keys.0.entity_type", "not permitted"),
    ],
)
def test_a_wrong_declaration_is_refused_by_the_name_of_its_setting(
    wrong: dict[str, Any], place: str, rule: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        settings({**COPIES, **wrong})
    errors = {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}
    assert rule in errors[place]


def test_a_key_is_declared_once_for_an_entity_type() -> None:
    topic, broker = {**COPIES, "entity_types": ["topic"]}, {**COPIES, "entity_types": ["broker"], "type": "string"}
    assert len(settings(topic, broker).extra_keys) == 2
    with pytest.raises(ValidationError, match=r"acme\.copies is declared twice for the entity type topic") as caught:
        settings(topic, COPIES)
    assert caught.value.errors()[0]["loc"] == ("extra_keys",)


def test_catalogs_have_the_declared_keys_of_the_types_that_the_release_has() -> None:
    found = catalogs(COPIES)
    new, old = found.of("4.4"), found.of("3.9")
    assert found.of("4.4-IV2") is new is not NEWEST
    assert new.topic.keys() - NEWEST.topic.keys() == {"acme.copies"}
    assert (new.topic["acme.copies"].scope, new.broker["acme.copies"].scope) == (Scope.PER_TOPIC, Scope.CLUSTER_WIDE)
    assert old.of(ConfigKind.GROUP) == {}
    with pytest.raises(InvalidRequestError):
        check_release(old, Entity.of(group="g"))
    assert catalogs().of("3.9") is ZOOKEEPER


@pytest.mark.parametrize("value", ["3", " 3 "])
def test_a_valid_value_is_accepted_without_a_warning(value: str) -> None:
    given = {"acme.copies": value, "acme.token": "hush"}
    assert check_topic(given, levels=LEVELS) == []
    assert check_group(given, levels=LEVELS) == []
    assert check_level(CATALOG, given, level=DynamicLevel.BROKER) == []
    assert (
        check_level(CATALOG, {f"listener.name.x.{key}": each for key, each in given.items()}, level=DynamicLevel.BROKER)
        == []
    )
    assert check_client_metrics(CATALOG, given) == []


@pytest.mark.parametrize("of", ["topic", "group", "broker", "client-metrics"])
def test_an_invalid_value_is_refused(of: str) -> None:
    given = {"acme.copies": "many"}
    with pytest.raises(ConfplaneError, match=r"acme\.copies must be a whole number"):
        {
            "topic": lambda: check_topic(given, levels=LEVELS),
            "group": lambda: check_group(given, levels=LEVELS),
            "broker": lambda: check_level(CATALOG, given, level=DynamicLevel.BROKER),
            "client-metrics": lambda: check_client_metrics(CATALOG, given),
        }[of]()


def test_a_declared_key_is_shown_where_it_is_set() -> None:
    own = {"acme.copies": " 3", "acme.token": "hush"}
    shown = {each.name: (each.value, each.sensitive) for each in describe_topic(own, LEVELS)}
    assert {key: shown[key] for key in own} == {"acme.copies": ("3", False), "acme.token": (None, True)}
    of_broker = {each.name: each.value for each in describe_broker(ConfigLevels(CATALOG, broker=own))}
    assert {key: of_broker[key] for key in own} == {"acme.copies": "3", "acme.token": None}
    secret = effective_client_metrics(CATALOG, "acme.token", own)
    assert (secret.value, secret.sensitive, secret.synonyms[0].value) == (None, True, None)
    # What the cluster uses instead of a value that is not set is unknown.
    assert not {each.name for each in describe_topic({}, LEVELS)} & own.keys()
    assert not {each.name for each in describe_broker(LEVELS)} & own.keys()
    assert effective_topic("acme.copies", {}, LEVELS).value is None


PREFIXES: Final = catalogs(
    {**COPIES, "key": "acme.*"},
    {**TOKEN, "key": "acme.audit.*"},
    {**COPIES, "key": "acme.audit.level", "type": "double"},
).of("4.4")


@pytest.mark.parametrize(
    ("key", "of_type", "sensitive"),
    [
        ("acme.copies", ConfigType.INT, False),
        ("acme.a.b-c_d", ConfigType.INT, False),
        ("acme.auditor", ConfigType.INT, False),
        ("acme.audit.token", ConfigType.STRING, True),
        ("acme.audit.level", ConfigType.DOUBLE, False),
        ("acme.audit.level.low", ConfigType.STRING, True),
    ],
)
def test_a_prefix_declares_all_keys_below_it_except_those_with_a_declaration_of_their_own(
    key: str, of_type: ConfigType, *, sensitive: bool
) -> None:
    for kind in (ConfigKind.TOPIC, ConfigKind.BROKER, ConfigKind.GROUP, ConfigKind.CLIENT_METRICS):
        found = PREFIXES.of(kind)[key]
        assert (found.name, found.type, found.sensitive, found.extra) == (key, of_type, sensitive, True)
        assert key in PREFIXES.of(kind)
    of_listener = definition_of(PREFIXES, f"listener.name.external.{key}")
    assert of_listener is not None
    assert (of_listener.name, of_listener.type) == (key, of_type)
    assert ConfigsFacet(lambda: PREFIXES).is_secret(TOPIC, key) is sensitive


@pytest.mark.parametrize("key", ["acme", "acme.", "acme.*", "acme.a b", "acme.é", "acmes.copies", "x.acme.copies"])
def test_a_prefix_declares_no_other_keys(key: str) -> None:
    assert key not in PREFIXES.topic
    with pytest.raises(ConfplaneError, match="Unknown topic config name"):
        check_topic({key: "3"}, levels=ConfigLevels(PREFIXES))


def test_keys_below_a_prefix_are_validated_shown_and_compared_like_others() -> None:
    levels = ConfigLevels(PREFIXES)
    assert check_topic({"acme.copies": "3"}, levels=levels) == []
    with pytest.raises(ConfplaneError, match=r"acme\.copies must be a whole number"):
        check_topic({"acme.copies": "many"}, levels=levels)
    shown = {each.name: each.value for each in describe_topic({"acme.copies": " 3", "acme.audit.token": "h"}, levels)}
    assert (shown["acme.copies"], shown["acme.audit.token"]) == ("3", None)
    # Only keys that are set are shown, and only names that Kafka or the settings give are listed.
    assert not [each for each in describe_topic({}, levels) if each.name.startswith("acme")]
    assert PREFIXES.topic.keys() - NEWEST.topic.keys() == {"acme.audit.level"}
    assert len(PREFIXES.topic) == len(NEWEST.topic) + 1
    after = rules_of(lambda: PREFIXES).reconcile(
        TOPIC, {"acme.copies": "03"}, Observation({"acme.copies": "3"}, frozenset())
    )
    assert after == {"acme.copies": "03"}


def test_keys_of_brokers_below_a_prefix_with_the_end_of_a_password_are_secrets() -> None:
    key = "acme.ssl.keystore.password"
    assert (PREFIXES.broker[key].sensitive, PREFIXES.topic[key].sensitive) == (True, False)
    assert ConfigsFacet(lambda: PREFIXES).is_secret(BROKER, key)


def test_a_release_without_a_kind_of_entities_has_no_prefix_of_it() -> None:
    old = catalogs({**COPIES, "key": "acme.*"}).of("3.9")
    assert old.of(ConfigKind.GROUP) == {}
    assert {kind for kind, _ in old.prefixes} == {ConfigKind.TOPIC, ConfigKind.BROKER}


def test_catalogs_can_be_sent_to_other_processes() -> None:
    made = catalogs({**COPIES, "key": "acme.*"}, TOKEN)
    made.of("4.4")
    loaded = pickle.loads(pickle.dumps(made)).of("4.4")  # noqa: S301 - of this test
    assert (loaded.topic["acme.copies"].type, loaded.topic["acme.token"].sensitive) == (ConfigType.INT, True)


def test_only_sensitive_keys_are_secrets() -> None:
    for entity in (TOPIC, BROKER, Entity.of(group="g"), Entity.of(client_metrics="m")):
        secrets = {key: FACET.is_secret(entity, key) for key in ("acme.copies", "acme.token", "acme.other")}
        assert secrets == {"acme.copies": False, "acme.token": True, "acme.other": True}


def test_values_of_declared_keys_are_compared_as_their_type_is_parsed() -> None:
    rules = rules_of(lambda: CATALOG)
    stored = {"acme.copies": "03", "acme.token": "hush"}
    # A cluster that shows the value, in another spelling and with another value.
    for value, expected in (("3", "03"), ("4", "4")):
        after = rules.reconcile(TOPIC, stored, Observation({"acme.copies": value}, frozenset({"acme.token"})))
        assert after == {**stored, "acme.copies": expected}
    # One that hides it, and one that has it no more.
    hidden = Observation({}, frozenset(stored))
    assert rules.reconcile(TOPIC, stored, hidden) == stored
    assert rules.reconcile(TOPIC, stored, Observation({}, frozenset())) == {"acme.token": "hush"}
    assert rules.uncompared(TOPIC, hidden) == {
        "acme.copies": "The cluster does not show the value of a key that Kafka does not define",
        "acme.token": "The cluster does not show the value of a password",
    }
