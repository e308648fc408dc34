from __future__ import annotations

import pytest

from confplane.domain.errors import InvalidRequestError
from confplane.domain.global_config import LOCAL_ONLY, ImportDecision, check_shared, decide, parse_legacy
from tests.support.catalogs import ZOOKEEPER


def test_every_local_key_is_named_with_the_pointer_of_the_first() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_shared([("message.max.bytes", "/0"), ("port", "/1"), ("listeners", "/2")])
    assert caught.value.detail.startswith("Not a global config: port, listeners; ")
    assert caught.value.pointer == "/1"
    check_shared([("message.max.bytes", None), ("Port", None)])


def test_the_local_keys_are_those_of_the_kip_in_both_spellings() -> None:
    assert len(LOCAL_ONLY) == 11
    assert {"broker.id", "listeners", "advertised.listeners", "brokerId", "advertisedPort"} <= LOCAL_ONLY


@pytest.mark.parametrize(
    ("data", "config"),
    [
        (b'{"version":"1","config":{"a":"1"}}', {"a": "1"}),
        (b'{"version":1,"config":{}}', {}),
        (b' {"config" : {"a":12345678901234567890, "b":0.10, "c":true, "d":1e3}} ', {"a": "12345678901234567890", "b": "0.10", "c": "true", "d": "1e3"}),
        (b'{"config":{"a":null,"b":[1],"c":{},"d":"\\ud800"}}', {"a": None, "b": None, "c": None, "d": None}),
        (b'{"config":{"a":"1","a":"2"},"more":1}', {"a": "2"}),
    ],
)  # fmt: skip
def test_the_old_znode_is_read_leniently(data: bytes, config: dict[str, str | None]) -> None:
    assert parse_legacy(data) == config


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"{", b"1", b'"config"', b"{}", b'{"config":[]}', b'{"version":2,"config":{}}', b'{"version":"1.0","config":{}}', b'{"version":null,"config":{}}', b'{"config":{"a":NaN}}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_such_znode_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(does not hold|holds|has) ") as caught:
        parse_legacy(data)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def one(
    key: str, value: str | None, stored: dict[str, str] | None = None, *, overwrite: bool = False
) -> ImportDecision:
    [entry] = decide(ZOOKEEPER, {key: value}, stored or {}, overwrite=overwrite)
    assert entry.key == key
    assert entry.value in {value, None}
    return entry.decision


@pytest.mark.parametrize(
    ("key", "value", "fate"),
    [
        ("message.max.bytes", "1000", ImportDecision.IMPORT),
        ("listener.name.a.max.connections", "10", ImportDecision.IMPORT),
        ("leader.replication.throttled.rate", "10", ImportDecision.IMPORT),
        ("message.max.bytes", "x", ImportDecision.REFUSED),
        ("message.max.bytes", None, ImportDecision.REFUSED),
        ("message.max.bytes", "${file:a:b}", ImportDecision.REFUSED),
        ("listener.name.a.max.connections", "0", ImportDecision.REFUSED),
        ("port", None, ImportDecision.STAYS),
        ("log.dirs", "/data/a", ImportDecision.STAYS),
        ("zookeeper.connect", "zk:1", ImportDecision.STAYS),
        ("ssl.keystore.type", "JKS", ImportDecision.STAYS),
        ("listener.name.a.ssl.keystore.type", "JKS", ImportDecision.STAYS),
        ("principal.builder.class", "a.B", ImportDecision.STAYS),
        ("password.encoder.secret", "s", ImportDecision.STAYS),
        ("custom.ssl.key.password", "s", ImportDecision.STAYS),
        ("no.such.key", "1", ImportDecision.UNKNOWN),
        ("listener.name.a.no.such.key", "1", ImportDecision.UNKNOWN),
        ("", "1", ImportDecision.UNKNOWN),
    ],
)
def test_fates(key: str, value: str | None, fate: ImportDecision) -> None:
    assert one(key, value) is fate
    assert one(key, value, overwrite=True) is fate


def test_what_is_set_already() -> None:
    stored = {"log.preallocate": "true", "message.max.bytes": "1000"}
    assert one("log.preallocate", " TRUE", stored) is ImportDecision.SAME
    assert one("message.max.bytes", "1001", stored) is ImportDecision.KEPT
    assert one("message.max.bytes", "1001", stored, overwrite=True) is ImportDecision.IMPORT
    assert one("message.max.bytes", "x", stored, overwrite=True) is ImportDecision.REFUSED


def test_references_are_left_to_brokers_that_can_resolve_them() -> None:
    assert one("message.max.bytes", "${file:a:b}", {"config.providers": "file"}) is ImportDecision.IMPORT


@pytest.mark.parametrize(
    "key", ["password.encoder.secret", "ssl.key.password", "no.such.key", "custom.sasl.jaas.config"]
)
def test_what_may_be_a_secret_is_not_shown(key: str) -> None:
    [entry] = decide(ZOOKEEPER, {key: "hidden"}, {})
    assert entry.value is None
    assert "hidden" not in (entry.reason or "")


def test_entries_come_by_key() -> None:
    assert [entry.key for entry in decide(ZOOKEEPER, {"b": "1", "a": "1"}, {"c": "1"})] == ["a", "b"]
