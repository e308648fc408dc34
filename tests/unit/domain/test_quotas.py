import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError, KafkaCode
from confplane.domain.facets import ClientFacet, FacetName, JsonValue
from confplane.domain.numbers import java_double, parse_java_double
from confplane.domain.quotas import QUOTA_KEYS, ClientQuotasFacet, QuotaType

QUOTAS: ClientFacet = ClientQuotasFacet()
ALICE = Entity.of(user="alice")
PAIR = Entity.of(user="alice", client_id=None)
CLIENT = Entity.of(client_id="billing")
IP = Entity.of(ip="10.0.0.1")
KINDS = [ALICE, Entity.of(user=None), PAIR, CLIENT, Entity.of(client_id=None), IP, Entity.of(ip=None)]


def refusal(entity: Entity, key: str, value: JsonValue, *, exact: bool = False) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        QUOTAS.encode(entity, key, value, exact=exact, pointer="/entries/0/ops/0")
    assert caught.value.code is KafkaCode.INVALID_REQUEST
    assert caught.value.pointer == "/entries/0/ops/0"
    assert len(caught.value.detail) < 400
    return caught.value.detail


def test_names() -> None:
    assert QUOTAS.name is FacetName.CLIENT_QUOTAS
    assert QUOTAS.member == "quotas"
    assert {kind.value for kind in QUOTAS.entity_types} == {"user", "client-id", "ip"}


# ---------------------------------------------------------------- entities


@pytest.mark.parametrize("entity", KINDS, ids=str)
def test_entities_with_quotas(entity: Entity) -> None:
    QUOTAS.check_entity(entity)


@pytest.mark.parametrize(
    ("entity", "detail"),
    [
        (Entity.of(topic="orders"), "Unhandled client quota entity type: topic"),
        (Entity.of(broker="0"), "Unhandled client quota entity type: broker"),
        (Entity.of(user="a", topic="t"), "Unhandled client quota entity type: topic"),
        (Entity.of(user="a", ip="10.0.0.1"), "Invalid quota entity combination, "),
        (Entity.of(client_id="a", ip="10.0.0.1"), "Invalid quota entity combination, "),
        (Entity.of(user="a", client_id="b", ip=None), "Invalid quota entity combination, "),
        (Entity.of(ip="::1"), "is not an IPv4 address: Kafka reads its node back without decoding the colons"),
        (Entity.of(ip="fe80::1%eth0"), "is not an IPv4 address: Kafka reads its node back"),
        (Entity.of(ip="localhost"), "is not an IPv4 address: brokers would resolve a host name"),
        (Entity.of(ip="10.0.0"), "is not an IPv4 address"),
        (Entity.of(ip="10.0.0.01"), "is not an IPv4 address"),
        (Entity.of(ip="10.0.0.1 "), "is not an IPv4 address"),
        (Entity.of(ip="10.0.0.256"), "is not an IPv4 address"),
        (Entity.of(ip="10.0.0.1/24"), "is not an IPv4 address"),
        (Entity.of(ip="\uff11.2.3.4"), "is not an IPv4 address"),
        (Entity.of(ip="9" * 10_000), "is not an IPv4 address"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_entities_without_quotas(entity: Entity, detail: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(detail)) as caught:
        QUOTAS.check_entity(entity, pointer="/entries/0/entity")
    assert caught.value.pointer == "/entries/0/entity"
    assert len(caught.value.detail) < 400


# ---------------------------------------------------------------- keys


def test_keys_by_kind() -> None:
    client_keys = {"consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage"}
    for entity in KINDS:
        owned = {key for key in [*QUOTA_KEYS, "SCRAM-SHA-256", "acks", ""] if QUOTAS.owns(entity, key)}
        assert owned == ({"connection_creation_rate"} if EntityType.IP in entity.types else client_keys)


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (ALICE, "acks"),
        (ALICE, ""),
        (ALICE, "connection_creation_rate"),
        (IP, "producer_byte_rate"),
        (CLIENT, "x" * 9999),
    ],
)
def test_unknown_key(entity: Entity, key: str) -> None:
    assert refusal(entity, key, 1).startswith(f"Invalid configuration key {key[:100]}")


@pytest.mark.parametrize("entity", KINDS, ids=str)
@pytest.mark.parametrize("key", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_is_neither_set_nor_removed(entity: Entity, key: str) -> None:
    for value in (1, "iterations=4096", None):
        assert "kafka-configs.sh" in refusal(entity, key, value)
    with pytest.raises(InvalidRequestError, match="stays; delete it with") as caught:
        QUOTAS.check_remove(entity, key, pointer="/x")
    assert caught.value.pointer == "/x"
    assert not QUOTAS.owns(entity, key)


@pytest.mark.parametrize(
    "key", ["producer_byte_rate", "connection_creation_rate", "acks", "", "scram-sha-256", "nonsense"]
)
def test_removal_is_not_checked(key: str) -> None:
    for entity in KINDS:
        QUOTAS.check_remove(entity, key)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("key", sorted(QUOTA_KEYS))
@pytest.mark.parametrize("value", [True, False, None, "1024", "", "NaN"])
def test_other_kinds_of_json(key: str, value: JsonValue) -> None:
    entity = IP if key == "connection_creation_rate" else ALICE
    assert "must be a JSON number such as 1024" in refusal(entity, key, value)


@pytest.mark.parametrize("key", sorted(QUOTA_KEYS))
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, -1.0, -1e-9, -5e-324, -(10**400)])
def test_not_finite_or_negative(key: str, value: float, exact: bool) -> None:  # noqa: FBT001 - a test parameter
    entity = IP if key == "connection_creation_rate" else ALICE
    assert re.search("must be (a finite number|at least 0)", refusal(entity, key, value, exact=exact))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (50000.0, "50000"),
        (2**53 + 1, "9007199254740993"),
        (2**63 - 1, "9223372036854775807"),
        (1e18, "1000000000000000000"),
    ],
)
def test_long(value: float, stored: str, exact: bool) -> None:  # noqa: FBT001 - a test parameter
    assert QUOTAS.encode(ALICE, "producer_byte_rate", value, exact=exact) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [(1000.0000005, "1000"), (0.9999999, "1"), (1e-7, "0"), (float(2**63), "9223372036854775807")],
)
def test_tolerance_of_alter(value: float, stored: str) -> None:
    assert QUOTAS.encode(ALICE, "consumer_byte_rate", value, exact=False) == stored
    assert "must be" in refusal(ALICE, "consumer_byte_rate", value, exact=True)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("entity", "key", "value", "detail"),
    [
        (ALICE, "producer_byte_rate", 10000.5, "must be a whole number"),
        (ALICE, "producer_byte_rate", 1.00001, "must be a whole number"),
        (ALICE, "producer_byte_rate", 2**63, "must be at most 9223372036854775807"),
        (ALICE, "producer_byte_rate", 9.3e18, "must be at most 9223372036854775807"),
        (ALICE, "producer_byte_rate", 1.7e308, "must be at most 9223372036854775807"),
        pytest.param(ALICE, "producer_byte_rate", 10**5000, "must be at most 9223372036854775807", id="10**5000"),
        (IP, "connection_creation_rate", 3e9, "must be at most 2147483647"),
        (IP, "connection_creation_rate", 2**31, "must be at most 2147483647"),
        (IP, "connection_creation_rate", 2147483647.5, "must be at most 2147483647"),
        (IP, "connection_creation_rate", 0.5, "must be a whole number"),
        (ALICE, "request_percentage", 10**400, "above the largest double"),
    ],
)
def test_out_of_range(entity: Entity, key: str, value: float, detail: str, exact: bool) -> None:  # noqa: FBT001 - a test parameter
    assert detail in refusal(entity, key, value, exact=exact)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (200, "200.0"),
        (12.3, "12.3"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
        (0, "0.0"),
        (-0.0, "0.0"),
        (50000.5, "50000.5"),
        (10**300, "1.0E300"),
    ],
)
def test_double(value: float, stored: str, exact: bool) -> None:  # noqa: FBT001 - a test parameter
    for key in ("request_percentage", "controller_mutation_rate"):
        assert QUOTAS.encode(PAIR, key, value, exact=exact) == stored


def test_connection_rate() -> None:
    assert QUOTAS.encode(IP, "connection_creation_rate", 10, exact=True) == "10"
    assert QUOTAS.encode(IP, "connection_creation_rate", 2147483647, exact=True) == "2147483647"


numbers = (
    st.integers() | st.floats() | st.integers(min_value=0, max_value=2**64) | st.floats(min_value=0, max_value=1e20)
)


@given(key=st.sampled_from(sorted(QUOTA_KEYS)), value=numbers, exact=st.booleans())
@example(key="producer_byte_rate", value=2**63 - 1, exact=True)
@example(key="producer_byte_rate", value=2.0**63, exact=False)
def test_what_is_stored_reads_back_and_is_what_was_meant(key: str, value: float, exact: bool) -> None:  # noqa: FBT001 - drawn
    entity = IP if key == "connection_creation_rate" else CLIENT
    try:
        stored = QUOTAS.encode(entity, key, value, exact=exact)
    except InvalidRequestError:
        return
    answered = QUOTAS.decode(CLIENT, key, stored)
    assert isinstance(answered, int | float)
    if exact and QUOTA_KEYS[key].integral:
        assert answered == value
    elif QUOTA_KEYS[key].integral:
        assert abs(float(answered) - value) <= 1e-6
    else:
        assert answered == float(value) or float(answered) == float(value)
    assert QUOTAS.encode(entity, key, answered, exact=True) == stored
    if QUOTA_KEYS[key].type is QuotaType.DOUBLE:
        assert stored == java_double(parse_java_double(stored))
    else:
        assert re.fullmatch("0|[1-9][0-9]*", stored)
    assert QUOTAS.check_whole(entity, {key: stored}, inherited={}, pointers={}) == []


@given(value=st.floats(min_value=0, max_value=1e18))
def test_alter_accepts_what_lies_within_kafka_s_tolerance(value: float) -> None:
    accepted = abs(float(math.trunc(value + 1e-6)) - value) <= 1e-6
    try:
        stored = QUOTAS.encode(ALICE, "producer_byte_rate", value, exact=False)
    except InvalidRequestError:
        assert not accepted
    else:
        assert accepted
        assert int(stored) == math.trunc(value + 1e-6)


# ---------------------------------------------------------------- what is stored


@pytest.mark.parametrize(
    ("key", "stored", "value"),
    [
        ("producer_byte_rate", "9223372036854775807", 9223372036854775807),
        ("producer_byte_rate", "0001024", 1024),
        ("producer_byte_rate", "+5", 5),
        ("producer_byte_rate", "-5", -5),
        ("producer_byte_rate", "1024.0", 1024),
        ("producer_byte_rate", "1e3", 1000),
        ("producer_byte_rate", " 7 ", 7),
        ("producer_byte_rate", "0.5", 0.5),
        ("connection_creation_rate", "10", 10),
        ("request_percentage", "200.0", 200),
        ("request_percentage", "1.0E7", 10_000_000),
        ("request_percentage", "1e7", 10_000_000),
        ("request_percentage", "12.30", 12.3),
        ("request_percentage", "5d", 5),
        ("request_percentage", "0x1p-1", 0.5),
        ("request_percentage", "1.0E23", 10**23),
        ("request_percentage", "-0.0", 0),
    ],
)
def test_decode(key: str, stored: str, value: float) -> None:
    answered = QUOTAS.decode(CLIENT, key, stored)
    assert answered == value
    assert type(answered) is type(value)


@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage", "connection_creation_rate"])
@pytest.mark.parametrize(
    "stored", ["", "abc", "inf", "1_000", "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "\u0663"]
)
def test_decode_refuses_what_json_can_t_carry(key: str, stored: str) -> None:
    with pytest.raises(ValueError, match="number") as caught:
        QUOTAS.decode(CLIENT, key, stored)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("key", "stored", "readable"),
    [
        ("producer_byte_rate", "1024", True),
        ("producer_byte_rate", "-1", True),
        ("producer_byte_rate", "1024.0", False),
        ("producer_byte_rate", " 1024", False),
        ("producer_byte_rate", "9223372036854775808", False),
        ("connection_creation_rate", "2147483648", False),
        ("request_percentage", "1e7", True),
        ("request_percentage", "NaN", True),
        ("request_percentage", "inf", False),
        ("SCRAM-SHA-256", "salt=...", True),
    ],
)
def test_stored_values_that_brokers_can_t_read_are_reported(key: str, stored: str, readable: bool) -> None:  # noqa: FBT001 - a test parameter
    warnings = QUOTAS.check_whole(ALICE, {key: stored}, inherited={}, pointers={})
    assert len(warnings) == (0 if readable else 1)
    assert readable or key in warnings[0]


def test_documented_keys() -> None:
    assert {name: key.type.value for name, key in QUOTA_KEYS.items()} == {
        "consumer_byte_rate": "LONG",
        "producer_byte_rate": "LONG",
        "request_percentage": "DOUBLE",
        "controller_mutation_rate": "DOUBLE",
        "connection_creation_rate": "INT",
    }
