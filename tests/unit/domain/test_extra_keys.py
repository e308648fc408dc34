"""Keys that the settings of a cluster declare: what may be declared, and the definitions that result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import ValidationError

from confplane.domain.broker_levels import ConfigLevels, DynamicLevel, describe_broker
from confplane.domain.brokers import check_level
from confplane.domain.client_metrics import check_client_metrics, effective_client_metrics
from confplane.domain.configs import ConfigsFacet, check_release
from confplane.domain.definitions import ConfigKind, Scope
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
