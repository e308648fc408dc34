from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.entities import DEFAULT_NODE, Entity, EntityType, check_name, desanitize, sanitize, split_id
from confplane.domain.errors import InvalidEntityIdError, InvalidRequestError, KafkaCode
from tests.unit.domain.strategies import entities, odd_names

# ---------------------------------------------------------------- Kafka's sanitizing

SANITIZED = [
    ("user with spaces", "user%20with%20spaces"),
    (
        "CN=Some characters !@#$%&*()_-+=';:,/~",
        "CN%3DSome%20characters%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E",
    ),
    ("<default>", "%3Cdefault%3E"),
    ("client1?@%", "client1%3F%40%25"),
    ("::1", "%3A%3A1"),
    ("é", "%C3%A9"),
    ("\U0001f600", "%F0%9F%98%80"),
    ("AZaz09._-", "AZaz09._-"),
]


@pytest.mark.parametrize(("name", "element"), SANITIZED)
def test_sanitize(name: str, element: str) -> None:
    assert sanitize(name) == element
    assert desanitize(element) == name


@given(odd_names)
def test_sanitize_round_trip(name: str) -> None:
    element = sanitize(name)
    assert desanitize(element) == name
    assert re.fullmatch(r"(?:[A-Za-z0-9._-]|%[0-9A-F]{2})+", element)
    assert element != DEFAULT_NODE
    assert unquote_plus(element) == name


@pytest.mark.parametrize(
    ("element", "name"), [("a+b", "a b"), ("a%2bb", "a+b"), ("a%2Bb", "a+b"), ("%7e~", "~~"), ("é", "é")]
)
def test_desanitize_is_form_decoding(element: str, name: str) -> None:
    assert desanitize(element) == name


@pytest.mark.parametrize("element", ["%", "a%2", "%zz", "%%41", "%FF", "%C3", "%ED%A0%80"])
def test_desanitize_refuses(element: str) -> None:
    with pytest.raises(ValueError, match=r"%|decode"):
        desanitize(element)


# ---------------------------------------------------------------- names and components


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("", "Empty user not supported"),
        (".", "can't be stored in ZooKeeper"),
        ("..", "can't be stored in ZooKeeper"),
        ("a\0b", "holds a NUL character"),
        ("a\ud800", "holds a lone surrogate"),
    ],
)
def test_names_that_no_znode_can_carry(name: str, detail: str) -> None:
    with pytest.raises(InvalidRequestError, match=detail) as caught:
        Entity.from_components([("client-id", "a"), ("user", name)], pointer="/entity")
    assert caught.value.code is KafkaCode.INVALID_REQUEST
    assert caught.value.pointer == "/entity/1/entityName"
    with pytest.raises(InvalidRequestError, match=detail) as caught:
        Entity.from_names({"client-id": "a", "user": name}, pointer="/entity")
    assert caught.value.pointer == "/entity/user"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("topic", "a/b"),
        ("topic", "a b"),
        ("topic", "x" * 250),
        ("broker", "a"),
        ("broker", "01"),
        ("broker", "-1"),
        ("broker", "0/0"),
        ("broker", "\u0663"),
    ],
)
def test_names_that_no_topic_or_broker_has(kind: str, name: str) -> None:
    rule = "Use at most 249 letters" if kind == "topic" else "Use the broker's id"
    with pytest.raises(InvalidRequestError, match=rf"is not a legal {kind} name\. {rule}"):
        check_name(kind, name)
    with pytest.raises(InvalidEntityIdError):
        Entity.from_id(f"{kind}={sanitize(name).replace('%', '~')}")


@pytest.mark.parametrize(
    ("components", "detail"),
    [
        ([], "Invalid empty client quota entity"),
        ([("", "a")], "Unhandled client quota entity type: "),
        ([("users", "a")], "Unhandled client quota entity type: users"),
        ([("USER", "a")], "Unhandled client quota entity type: USER"),
        ([("user", "a"), ("logger", "b")], "Unhandled client quota entity type: logger"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("ip", "")], "Empty ip not supported"),
        # In the order of the components.
        ([("user", ""), ("logger", "b")], "Empty user not supported"),
        ([("logger", "b"), ("user", "")], "Unhandled client quota entity type: logger"),
    ],
)
def test_components_refused(components: list[tuple[str, str | None]], detail: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Entity.from_components(components)
    assert caught.value.detail == detail


def test_long_types_are_cut_in_errors() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Entity.from_components([("x" * 10_000, "a")])
    assert len(caught.value.detail) < 200


def test_components_are_ordered_and_the_last_name_counts() -> None:
    entity = Entity.from_components([("client-id", "c"), ("user", "a"), ("user", None)])
    assert entity.components == ((EntityType.USER, None), (EntityType.CLIENT_ID, "c"))
    assert entity == Entity.of(user=None, client_id="c")
    assert entity.as_dict() == {"user": None, "client-id": "c"}
    assert (entity.get(EntityType.CLIENT_ID), entity.get(EntityType.USER), entity.get(EntityType.IP)) == (
        "c",
        None,
        None,
    )


# ---------------------------------------------------------------- paths

SPELLINGS = [
    (Entity.of(user="alice"), "user=alice", "users/alice"),
    (Entity.of(user=None), "user", "users/<default>"),
    (Entity.of(user="<default>"), "user=~3Cdefault~3E", "users/%3Cdefault%3E"),
    (Entity.of(user="alice", client_id="billing"), "user=alice,client-id=billing", "users/alice/clients/billing"),
    (Entity.of(user="alice", client_id=None), "user=alice,client-id", "users/alice/clients/<default>"),
    (Entity.of(user=None, client_id=None), "user,client-id", "users/<default>/clients/<default>"),
    (Entity.of(client_id="billing"), "client-id=billing", "clients/billing"),
    (Entity.of(ip="10.0.0.1"), "ip=10.0.0.1", "ips/10.0.0.1"),
    (Entity.of(ip=None), "ip", "ips/<default>"),
    (Entity.of(topic="orders"), "topic=orders", "topics/orders"),
    (Entity.of(broker="0"), "broker=0", "brokers/0"),
    (Entity.of(broker=None), "broker", "brokers/<default>"),
    (Entity.of(user="CN=a b"), "user=CN~3Da~20b", "users/CN%3Da%20b"),
    (
        Entity.of(user="CN=Alice, O=Acme/x y*é"),
        "user=CN~3DAlice~2C~20O~3DAcme~2Fx~20y~2A~C3~A9",
        "users/CN%3DAlice%2C%20O%3DAcme%2Fx%20y%2A%C3%A9",
    ),
    (Entity.of(group="billing"), "group=billing", "groups/billing"),
    (Entity.of(group="a/b c"), "group=a~2Fb~20c", "groups/a%2Fb%20c"),
    (Entity.of(group="\x01\N{SNOWMAN}"), "group=~01~E2~98~83", "groups/%01%E2%98%83"),
    (Entity.of(client_metrics="a,b"), "client-metrics=a~2Cb", "client-metrics/a%2Cb"),
]


@pytest.mark.parametrize(("entity", "entity_id", "path"), SPELLINGS, ids=[row[1] for row in SPELLINGS])
def test_spellings(entity: Entity, entity_id: str, path: str) -> None:
    assert (entity.id, str(entity), entity.path) == (entity_id, entity_id, path)
    assert Entity.from_id(entity_id) == entity
    assert Entity.from_path(path) == entity


@given(entities())
def test_path_round_trip(entity: Entity) -> None:
    assert Entity.from_path(entity.path) == entity


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "users",
        "users/",
        "/users/a",
        "users//clients/c",
        "users/a/clients",
        "users/a/clients/",
        "users/a/clients/c/d",
        "users/a/ips/c",
        "clients/a/users/b",
        "group/a",
        "loggers/a",
        "users/%zz",
        "users/%FF",
        "users/a/clients/%",
    ],
)
def test_paths_of_nothing(path: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Entity.from_path(path)


# ---------------------------------------------------------------- ids: one spelling each


@given(entities())
def test_id_round_trip(entity: Entity) -> None:
    assert Entity.from_id(entity.id) == entity
    assert re.fullmatch(r"[A-Za-z0-9._~,=-]+", entity.id)
    assert split_id(entity.id) == tuple((kind.value, name) for kind, name in entity.components)
    encoded = entity.id.replace("=", "%3D").replace(",", "%2C")
    assert Entity.from_id(encoded) == entity


def test_long_ids_are_parsed_too() -> None:
    entity = Entity.of(user="x" * 5000)
    assert Entity.from_id(entity.id) == entity


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(entities()).id
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        at = draw(st.integers(min_value=0, max_value=len(text)))
        length = draw(st.integers(min_value=0, max_value=min(4, len(text) - at)))
        old = text[at : at + length]
        new = draw(
            st.sampled_from(
                [
                    "",
                    old.lower(),
                    old.upper(),
                    old * 2,
                    old.replace("~", "%"),
                    old.replace("=", "%3D"),
                    old.replace(",", "%2c"),
                    "".join(f"%{byte:02X}" for byte in old.encode(errors="replace")),
                    "".join(f"~{byte:02x}" for byte in old.encode(errors="replace")),
                    "".join(f"~{byte:02X}" for byte in old.encode(errors="replace")),
                    f"{old},",
                    f"={old}",
                    ",client-id",
                    "user=",
                    "+",
                    " ",
                    "~",
                    "%",
                    "é",
                    "\ud800",
                ]
            )
        )
        text = text[:at] + new + text[at + length :]
    return text


@given(mutated())
def test_any_other_spelling_is_refused_with_the_right_one(raw: str) -> None:
    try:
        entity = Entity.from_id(raw)
    except InvalidEntityIdError as error:
        if error.canonical_id is not None:
            assert error.canonical_id != raw
            assert Entity.from_id(error.canonical_id).id == error.canonical_id
    else:
        assert raw in {entity.id, entity.id.replace("=", "%3D").replace(",", "%2C")}


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("user=~61lice", "user=alice"),
        ("user=a~2fb", "user=a~2Fb"),
        ("user=a~20b~", None),
        ("user=CN=a~20b", None),
        ("user=~bob", "user=~7Ebob"),
        ("user=CN=a", "user=CN~3Da"),
        ("user=CN%3Da", "user=CN~3Da"),
        ("user%3DCN%3Da", "user=CN~3Da"),
        ("user=a%20b", "user=a~20b"),
        ("user=a%2Cclient-id", "user=a~2Cclient-id"),
        ("user=a%2Fb", "user=a~2Fb"),
        ("user=%3Cdefault%3E", "user=~3Cdefault~3E"),
        ("user=<default>", "user=~3Cdefault~3E"),
        ("user%3dalice", "user=alice"),
        ("%75ser", "user"),
        ("user=a+b", "user=a~2Bb"),
        ("user=é", "user=~C3~A9"),
        ("client-id=c,user=a", "user=a,client-id=c"),
        ("client-id%3Dc%2Cuser%3Da", "user=a,client-id=c"),
        ("user=50%25", "user=50~25"),
        ("user=", None),
        ("user=.", None),
        ("user=~2E~2E", None),
        ("user=~00", None),
        ("user=~FF", None),
        ("user=%FF", None),
        ("user=a,user=b", None),
        ("user=a,ip=10.0.0.1", None),
        ("user=a,client-id=b,ip", None),
        ("users=a", None),
        ("", None),
        (",", None),
        ("=a", None),
        ("topic=a,broker=1", None),
        ("topic=a~2Fb", None),
    ],
)
def test_other_spellings(raw: str, canonical: str | None) -> None:
    with pytest.raises(InvalidEntityIdError) as caught:
        Entity.from_id(raw)
    assert caught.value.canonical_id == canonical
    assert canonical is None or canonical in caught.value.detail
    assert caught.value.code is KafkaCode.INVALID_REQUEST


@given(entities())
def test_percent_encoding_everything_names_the_right_id(entity: Entity) -> None:
    raw = "".join(f"%{byte:02X}" for byte in entity.id.encode())
    with pytest.raises(InvalidEntityIdError) as caught:
        Entity.from_id(raw)
    assert caught.value.canonical_id == entity.id


@given(odd_names)
def test_plain_names_in_urls_are_refused_with_the_right_id_or_are_ids(name: str) -> None:
    """The form that people try first: the name, percent-encoded by their URL library."""
    raw = f"user={quote(name, safe='')}"
    expected = Entity.of(user=name).id
    try:
        assert Entity.from_id(raw).id == raw
    except InvalidEntityIdError as error:
        escaped = re.search(r"~[0-9A-Fa-f]{2}", name)  # such a name reads as an escaped one, or leaves a doubt
        assert escaped or error.canonical_id == expected
