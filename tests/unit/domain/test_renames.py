from __future__ import annotations

from confplane.domain.broker_keys import is_password
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import Entity
from confplane.domain.renames import RenamedConfig, missing, renames
from tests.support.catalogs import ZOOKEEPER

TABLE = {
    ConfigKind.TOPIC: {"old": "new", "older": "newer"},
    ConfigKind.BROKER: {"old": "new", "old.sasl.jaas.config": "sasl.jaas.config"},
}
TOPIC, BROKER, DEFAULT = Entity.of(topic="t"), Entity.of(broker="1"), Entity.of(broker=None)


def test_only_what_lacks_its_new_name() -> None:
    config = {"older": "2", "old": "1", "newer": "3", "x": "4"}
    assert missing(ZOOKEEPER, TOPIC, config, TABLE) == [RenamedConfig("old", "new", "1", secret=False)]
    assert missing(ZOOKEEPER, BROKER, config, TABLE) == [RenamedConfig("old", "new", "1", secret=False)]
    assert missing(ZOOKEEPER, DEFAULT, {"new": "1"}, TABLE) == []
    assert missing(ZOOKEEPER, TOPIC, {"old": "1"}, {ConfigKind.BROKER: {"old": "new"}}) == []


def test_forms_with_a_listener_are_renamed_with_their_base() -> None:
    config = {"listener.name.a.old": "1", "listener.name.b.old": "2", "listener.name.b.new": "3"}
    assert missing(ZOOKEEPER, BROKER, config, TABLE) == [
        RenamedConfig("listener.name.a.old", "listener.name.a.new", "1", secret=False)
    ]
    assert missing(ZOOKEEPER, TOPIC, config, TABLE) == []


def test_secrets_are_distinguished() -> None:
    [found] = missing(ZOOKEEPER, BROKER, {"old.sasl.jaas.config": "e"}, TABLE)
    assert found.secret


def test_the_catalogs_table_names_configs_that_there_are() -> None:
    assert set(renames()) == {ConfigKind.TOPIC, ConfigKind.BROKER}
    for kind, names in renames().items():
        for old, new in names.items():
            assert new in ZOOKEEPER.of(kind)
            assert ZOOKEEPER.of(kind)[new].dynamic
            assert is_password(old) == is_password(new), "a secret stays one, or ciphertext would be taken for a value"
