from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError, KafkaCode
from confplane.domain.facets import ClientFacet, FacetName, JsonValue
from tests.support.catalogs import ZOOKEEPER

PLAIN = ClientConfigsFacet(ZOOKEEPER)
CONFIGS: ClientFacet = PLAIN
ALICE = Entity.of(user="alice")
PAIR = Entity.of(user="alice", client_id="billing")


def refusal(key: str, value: JsonValue, facet: ClientFacet = CONFIGS) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        facet.encode(ALICE, key, value, exact=True, pointer="/configs/x")
    assert caught.value.code is KafkaCode.INVALID_REQUEST
    assert caught.value.pointer == "/configs/x"
    assert len(caught.value.detail) < 500
    return caught.value.detail


def test_names() -> None:
    assert CONFIGS.name is FacetName.CLIENT_CONFIGS
    assert CONFIGS.member == "configs"
    assert {kind.value for kind in CONFIGS.entity_types} == {"user", "client-id"}
    assert PLAIN.keys == {"acks", "session.timeout.ms", "heartbeat.interval.ms"}


# ---------------------------------------------------------------- entities


@pytest.mark.parametrize(
    "entity_id", ["user=alice", "user", "user=a,client-id=b", "user,client-id", "user=a,client-id"]
)
def test_entities(entity_id: str) -> None:
    CONFIGS.check_entity(Entity.from_id(entity_id))
    assert CONFIGS.owns(Entity.from_id(entity_id), "acks")
    assert not CONFIGS.owns(Entity.from_id(entity_id), "producer_byte_rate")
    assert not CONFIGS.owns(Entity.from_id(entity_id), "supported.configs")


@pytest.mark.parametrize(
    ("entity", "detail"),
    [
        (Entity.of(client_id="b"), "Invalid empty client config entity: a user is needed"),
        (Entity.of(client_id=None), "Invalid empty client config entity: a user is needed"),
        (Entity.of(ip="10.0.0.1"), "Invalid empty client config entity: a user is needed"),
        (Entity.of(user="a", ip="10.0.0.1"), "Invalid client config entity combination, "),
        (Entity.of(topic="t"), "Unhandled client config entity type: topic"),
        (Entity.of(user="a", broker="0"), "Unhandled client config entity type: broker"),
    ],
    ids=str,
)
def test_other_entities(entity: Entity, detail: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(detail)) as caught:
        CONFIGS.check_entity(entity, pointer="/entity")
    assert caught.value.pointer == "/entity"
    assert not CONFIGS.owns(entity, "acks")


# ---------------------------------------------------------------- keys


def test_dynamic_keys_are_reported() -> None:
    text = refusal("linger.ms", "5")
    assert text.startswith("Invalid configuration key linger.ms: ")
    assert "the setting dynamic_client_configs can add it" in text
    assert "dynamic here are acks, heartbeat.interval.ms, session.timeout.ms" in text


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("nonsense", "nonsense is not a config of Kafka's producer or consumer"),
        ("", "is not a config of Kafka's producer or consumer"),
        ("x" * 100_000, "is not a config of Kafka's producer or consumer"),
        ("producer_byte_rate", "is not a config of Kafka's producer or consumer"),
        ("sasl.jaas.config", "is a secret"),
        ("ssl.keystore.password", "is a secret"),
        ("client.id", "identifies the client"),
        ("group.id", "identifies the client"),
        ("group.instance.id", "identifies the client"),
        ("transactional.id", "identifies the client"),
        ("bootstrap.servers", "identifies the client or its cluster"),
        ("internal.leave.group.on.close", "is internal"),
    ],
)
def test_keys_that_can_t_be_dynamic(key: str, reason: str) -> None:
    text = refusal(key, "hunter2")
    assert reason in text
    assert "hunter2" not in text
    assert "dynamic_client_configs" not in text
    assert f"did you mean {key}?" not in text
    with pytest.raises(ValueError, match=re.escape(reason)):
        ClientConfigsFacet(ZOOKEEPER, extra_keys=frozenset({"linger.ms", key}))


def test_the_suggestion_ends_the_message() -> None:
    assert refusal("ackss", "1").endswith(
        "; dynamic here are acks, heartbeat.interval.ms, session.timeout.ms; did you mean acks?"
    )


def test_extra_keys() -> None:
    facet = ClientConfigsFacet(ZOOKEEPER, extra_keys=frozenset({"linger.ms", "compression.type", "max.poll.records"}))
    assert facet.owns(PAIR, "linger.ms")
    assert facet.encode(PAIR, "linger.ms", "5", exact=True) == "5"
    assert refusal("linger.ms", "-1", facet) == "linger.ms must be at least 0"
    assert refusal("linger.ms", 5, facet) == 'The value of linger.ms must be a JSON string in quotes, such as "0"'
    assert refusal("compression.type", "rar", facet) == "compression.type must be one of none, gzip, snappy, lz4, zstd"
    assert "compression.type" in refusal("batch.size", "1", facet)


def test_crossed_bounds() -> None:
    with pytest.raises(ValueError, match="above"):
        ClientConfigsFacet(ZOOKEEPER, min_session_timeout_ms=2, max_session_timeout_ms=1)


@pytest.mark.parametrize("value", ["acks", None, 1])
def test_supported_configs_is_elsewhere(value: JsonValue) -> None:
    assert "it is under registrations" in refusal("supported.configs", value)
    with pytest.raises(InvalidRequestError, match="it is under registrations") as caught:
        CONFIGS.check_remove(PAIR, "supported.configs", pointer="/ops/0")
    assert caught.value.pointer == "/ops/0"


@pytest.mark.parametrize("key", ["acks", "linger.ms", "nonsense", "", "producer_byte_rate"])
def test_other_removals_are_not_checked(key: str) -> None:
    CONFIGS.check_remove(PAIR, key)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("acks", value) for value in ("all", "-1", "0", "1")),
        *(("session.timeout.ms", value) for value in ("6000", "1800000", "30000", " 30000", "+30000")),
        *(("heartbeat.interval.ms", value) for value in ("1", "3000", "2147483647")),
    ],
)
def test_values_are_kept_as_given(key: str, value: str) -> None:
    for exact in (True, False):
        assert CONFIGS.encode(PAIR, key, value, exact=exact) == value
    assert CONFIGS.decode(PAIR, key, value) == value


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        *(
            ("acks", value, "acks must be one of all, -1, 0, 1")
            for value in ("ALL", "2", "", " all", "all\n", "01", "+1")
        ),
        ("session.timeout.ms", "5999", "at least 6000 and at most 1800000"),
        ("session.timeout.ms", "1800001", "at least 6000 and at most 1800000"),
        ("session.timeout.ms", "-1", "at least 6000 and at most 1800000"),
        ("session.timeout.ms", "30000.0", "must be a whole number (INT)"),
        ("session.timeout.ms", "30s", "must be a whole number (INT)"),
        ("session.timeout.ms", "", "must be a whole number (INT)"),
        ("session.timeout.ms", "\u0666\u0660\u0660\u0660", "must be a whole number (INT)"),
        ("session.timeout.ms", "9" * 10_000, "at most 2147483647"),
        ("heartbeat.interval.ms", "0", "heartbeat.interval.ms must be at least 1"),
        ("heartbeat.interval.ms", "-1", "heartbeat.interval.ms must be at least 1"),
        ("heartbeat.interval.ms", "2147483648", "at most 2147483647"),
        ("heartbeat.interval.ms", "1e3", "must be a whole number (INT)"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_values_refused(key: str, value: str, rule: str) -> None:
    assert rule in refusal(key, value)


@pytest.mark.parametrize("value", [30000, 30000.5, True, None, 10**5000], ids=["int", "float", "bool", "null", "huge"])
def test_other_kinds_of_json(value: JsonValue) -> None:
    assert refusal("session.timeout.ms", value).endswith('must be a JSON string in quotes, such as "30000"')
    assert refusal("acks", value).endswith('must be a JSON string in quotes, such as "all"')


def test_bounds_are_the_cluster_s() -> None:
    facet = ClientConfigsFacet(ZOOKEEPER, min_session_timeout_ms=100, max_session_timeout_ms=200)
    assert facet.encode(ALICE, "session.timeout.ms", "100", exact=True) == "100"
    assert "at least 100 and at most 200" in refusal("session.timeout.ms", "6000", facet)


@given(key=st.sampled_from(sorted(PLAIN.keys)), value=st.text() | st.integers().map(str))
def test_any_text_is_kept_or_refused(key: str, value: str) -> None:
    try:
        assert CONFIGS.encode(PAIR, key, value, exact=True) == value
    except InvalidRequestError as error:
        assert error.detail.startswith(key)
    else:
        assert CONFIGS.check_whole(PAIR, {key: value}, inherited={}, pointers={}) == []


# ---------------------------------------------------------------- the whole

HEARTBEAT, SESSION = "heartbeat.interval.ms", "session.timeout.ms"


@pytest.mark.parametrize(
    ("after", "inherited"),
    [
        ({HEARTBEAT: "3000", SESSION: "30000"}, {}),
        ({HEARTBEAT: "30000"}, {}),
        ({SESSION: "6000"}, {}),
        ({HEARTBEAT: "29999"}, {SESSION: "30000"}),
        ({HEARTBEAT: "3000", SESSION: "6000"}, {HEARTBEAT: "9000", SESSION: "6000"}),
        ({}, {}),
    ],
)
def test_heartbeat_below_session(after: dict[str, str], inherited: dict[str, str]) -> None:
    assert CONFIGS.check_whole(PAIR, after, inherited=inherited, pointers={}) == []


@pytest.mark.parametrize(
    ("after", "inherited", "detail"),
    [
        ({HEARTBEAT: "30000", SESSION: "30000"}, {}, "(30000) must be below session.timeout.ms (30000)"),
        ({HEARTBEAT: "30000"}, {SESSION: "6000"}, "must be below session.timeout.ms (6000, inherited from the user)"),
        ({SESSION: "6000"}, {HEARTBEAT: "7000"}, "(7000, inherited from the user) must be below"),
        ({HEARTBEAT: " 7000 ", SESSION: "+6000"}, {SESSION: "30000"}, "(7000) must be below session.timeout.ms (6000)"),
    ],
)
def test_heartbeat_not_below_session(after: dict[str, str], inherited: dict[str, str], detail: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(detail)) as caught:
        CONFIGS.check_whole(PAIR, after, inherited=inherited, pointers={HEARTBEAT: "/ops/1", SESSION: "/ops/0"})
    assert caught.value.pointer == "/ops/1"
    with pytest.raises(InvalidRequestError) as caught:
        CONFIGS.check_whole(PAIR, after, inherited=inherited, pointers={SESSION: "/ops/0"})
    assert caught.value.pointer == "/ops/0"


def test_an_existing_contradiction_does_not_stop_a_write() -> None:
    inherited = {HEARTBEAT: "9000", SESSION: "6000"}
    [warning] = CONFIGS.check_whole(PAIR, {"acks": "1"}, inherited=inherited, pointers={})
    assert "must be below" in warning


def test_existing_values_that_don_t_parse_do_not_stop_a_write() -> None:
    warnings = CONFIGS.check_whole(
        PAIR, {HEARTBEAT: "soon", "acks": "2", "other": "x"}, inherited={SESSION: "6000"}, pointers={}
    )
    assert len(warnings) == 2
    assert "acks must be one of" in warnings[0]
    assert "heartbeat.interval.ms must be a whole number" in warnings[1]


@pytest.mark.parametrize(
    ("entity_id", "told"),
    [
        ("user=alice", None),
        ("user=alice,client-id=b", None),
        ("user", "the default user for"),
        ("user=alice,client-id", "the default client-id for"),
        ("user,client-id=b", "the default user for"),
        ("user,client-id", "the default user and the default client-id for"),
    ],
)
def test_defaults_are_warned_of(entity_id: str, told: str | None) -> None:
    entity = Entity.from_id(entity_id)
    warnings = PLAIN.remarks(entity)
    assert CONFIGS.check_whole(entity, {"acks": "1"}, inherited={}, pointers={}) == warnings
    assert len(warnings) == (0 if told is None else 1)
    assert told is None or told in warnings[0]


def test_every_public_config_can_be_added_or_says_why_not() -> None:
    for name in ZOOKEEPER.producer.keys() | ZOOKEEPER.consumer.keys():
        try:
            facet = ClientConfigsFacet(ZOOKEEPER, extra_keys=frozenset({name}))
        except ValueError as error:
            assert name in str(error)
        else:
            assert 'such as "' in refusal(name, None, facet)
            for definition in ZOOKEEPER.find(name):
                if definition.default and name not in {"session.timeout.ms", "acks"}:
                    assert facet.encode(ALICE, name, definition.default, exact=True) == definition.default
