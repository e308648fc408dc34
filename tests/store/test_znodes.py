"""Payloads: what is written is Kafka's to the byte, what is read is read as leniently as Kafka reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.store import znodes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def node(content: znodes.Content) -> Node:
    return Node("user=a", content.items, 0, 1, 1, 1, content.defect, content.extra)


def test_written_entity_is_kafkas() -> None:
    assert znodes.encode_entity({}) == b'{"version":1,"config":{}}'
    assert (
        znodes.encode_entity({"producer_byte_rate": "1024", "acks": "-1"})
        == b'{"version":1,"config":{"producer_byte_rate":"1024","acks":"-1"}}'
    )


def test_written_escapes_are_jacksons() -> None:
    written = znodes.encode_entity({"k": "\"\\/<>&'\b\t\n\f\r\x00\x1f\x7fé\u2028\U0001f600\\u001f"})
    assert written == (
        rb'{"version":1,"config":{"k":"\"\\/<>&'
        rb"'\b\t\n\f\r\u0000\u001F" + b"\x7f\xc3\xa9\xe2\x80\xa8" + rb"\uD83D\uDE00\\u001f"
        rb'"}}'
    )


@given(st.dictionaries(TEXT, TEXT))
def test_entities_come_back_as_written(config: dict[str, str]) -> None:
    data = znodes.encode_entity(config)
    content = znodes.decode_entity(data)
    assert node(content).config == config
    assert content.defect is None
    assert content.extra is None
    assert json.loads(data) == {"version": 1, "config": config}


@pytest.mark.parametrize(
    ("data", "config"),
    [
        (None, {}),
        (b"", {}),
        (b'{"config":{"a":"1"}}', {"a": "1"}),
        (b'{"version":"x","config":{"a":"1"}}', {"a": "1"}),
        (b'{"version":7,"config":{"a":"1","a":"2"}}', {"a": "2"}),
        (b' {"config" : { "a" : "\\u00e9" } } \n', {"a": "é"}),
        (b'{"version":' + b"9" * 5000 + b',"config":{}}', {}),
    ],
)
def test_lenient_forms_are_read(data: bytes | None, config: dict[str, str]) -> None:
    content = znodes.decode_entity(data)
    assert node(content).config == config
    assert content.defect is None


@pytest.mark.parametrize(
    ("data", "defect"),
    [
        (b"x", "does not hold JSON"),
        (b"  ", "does not hold JSON"),
        (b"\xff\xfe", "does not hold JSON"),
        (b'{"config":{"a":NaN}}', "does not hold JSON"),
        (b"[" * 100_000, "does not hold JSON"),
        (b"[]", "holds JSON that is not an object"),
        (b"1 {}", "holds JSON that is not an object"),
        (b"{}", "has no object under 'config'"),
        (b'{"config":[]}', "has no object under 'config'"),
        (b'{"config":{"a":1}}', "holds a value under 'a' that is not a JSON string"),
        (b'{"config":{"a":"1","b":null}}', "holds a value under 'b' that is not a JSON string"),
        (b'{"config":{"a":true}} x', "holds a value under 'a' that is not a JSON string"),
        (b'{"config":{"a":"\\ud800"}}', "holds a lone surrogate"),
    ],
)
def test_what_cannot_be_read_has_a_defect(data: bytes, defect: str) -> None:
    content = znodes.decode_entity(data)
    assert content == znodes.Content((), defect)
    assert not znodes.readable(node(content))


def test_bytes_after_the_json_are_readable_but_not_sound() -> None:
    content = znodes.decode_entity(b'{"version":1,"config":{"a":"1"}}}')
    assert content.items == ("a", "1")
    assert content.defect == "holds more bytes behind its JSON"
    assert znodes.readable(node(content))


def test_foreign_members_survive_as_they_stand() -> None:
    data = b'{"owner" : {"x":[1.0E7,"\\u00e9]"]}, "version":2,"config":{"a":"1"} ,"n":12345678901234567890123 }'
    content = znodes.decode_entity(data)
    assert content.defect is None
    assert content.extra == b'{"owner":{"x":[1.0E7,"\\u00e9]"]},"n":12345678901234567890123}'
    written = znodes.encode_entity({"a": "2"}, content.extra)
    assert written == (b'{"version":1,"config":{"a":"2"},"owner":{"x":[1.0E7,"\\u00e9]"]},"n":12345678901234567890123}')
    assert znodes.decode_entity(written).extra == content.extra


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"version":2,"entity_path":"users/a/clients/b"}', "users/a/clients/b"),
        (b'{"version":2,"entity_path":"brokers/<default>"}', "brokers/<default>"),
        (b'{"entity_path":"ips/1.2.3.4","version":2,"x":1} junk', "ips/1.2.3.4"),
        (b'{"version":1,"entity_type":"topics","entity_name":"t"}', "topics/t"),
        (b'{"version":1,"entity_type":"clients","entity_name":"c"}', "clients/c"),
        (b'{"version":1,"entity_type":"users","entity_name":"c"}', None),
        (b'{"version":1,"entity_type":"topics"}', None),
        (b'{"version":1,"entity_type":["topics"],"entity_name":"t"}', None),
        (b'{"version":3,"entity_path":"users/a"}', None),
        (b'{"version":"2","entity_path":"users/a"}', None),
        (b'{"version":2,"entity_path":"nodes/a"}', None),
        (b'{"version":2}', None),
        (b'"orders"', "topics/orders"),
        *((form, None) for form in (b'"a/b"', b'""', b'".."', b'"x', b'"' + b"x" * 250 + b'"', b'["x"]')),
        *((form, None) for form in (b"orders", b"x y", b"12", b"null")),
        (b"[]", None),
        (b"", None),
        (None, None),
        (b"\xff", None),
    ],
)
def test_notifications_of_all_versions(data: bytes | None, path: str | None) -> None:
    assert znodes.decode_notification(data) == path


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name not in {".", ".."}))
def test_notification_and_path_lead_back_to_the_entity(name: str) -> None:
    name = name.replace("\0", "0")
    entity = Entity.of(user=name, client_id=name)
    data = znodes.encode_notification(entity.path)
    assert data == b'{"version":2,"entity_path":"' + entity.path.encode() + b'"}'
    assert znodes.decode_notification(data) == entity.path
    assert znodes.entity_id(entity.path) == entity.id


@pytest.mark.parametrize(
    ("path", "entity_id"),
    [
        ("users/<default>", "user"),
        ("users/%3Cdefault%3E", "user=~3Cdefault~3E"),
        ("users/a/clients/<default>", "user=a,client-id"),
        ("users/a%2Ab", "user=a~2Ab"),
        ("users/a%2ab", None),
        ("users/%41", None),
        ("users/a+b", None),
        ("users/%", None),
        ("users/%00", None),
        ("users/a/groups/b", None),
        ("users", None),
        ("topics/orders", "topic=orders"),
        ("topics/a b", None),
        ("brokers/0", "broker=0"),
        ("brokers/<default>", "broker"),
        ("brokers/x", None),
        ("changes/config_change_1", None),
    ],
)
def test_a_node_has_an_id_only_under_its_one_spelling(path: str, entity_id: str | None) -> None:
    assert znodes.entity_id(path) == entity_id


def test_parents_that_may_be_missing() -> None:
    pair = Entity.of(user="a", client_id="b")
    assert znodes.parents_of(Tree.CONFIG, Entity.of(user="a")) == []
    assert znodes.parents_of(Tree.CONFIG, pair) == ["/config/users/a", "/config/users/a/clients"]
    assert znodes.parents_of(Tree.CLIENT_CONFIGS, pair) == [
        "/confplane/client-configs",
        "/confplane/client-configs/users",
        "/confplane/client-configs/users/a",
        "/confplane/client-configs/users/a/clients",
    ]


def test_sequence_numbers() -> None:
    assert znodes.change_path(42) == "/config/changes/config_change_0000000042"
    assert znodes.sequence_of("config_change_0000000042") == 42
    assert znodes.sequence_of("config_change_42") is None
    assert znodes.sequence_of("aconfig_change_0000000042") is None
    assert znodes.next_sequence(45, 9) == 27
    # ZooKeeper's 32 bits wrapped: 2**30 + 5 creations, 7 children left.
    assert znodes.next_sequence(2 * (2**30 + 5) - 7 - 2**32, 7) == 2**30 + 5


@pytest.mark.parametrize(
    ("data", "kraft"),
    [
        (b'{"version":1,"brokerid":0,"timestamp":"1"}', False),
        (b'{"version":2,"brokerid":0,"timestamp":"1","kraftControllerEpoch":-1}', False),
        (b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}', True),
        (b"junk", True),
        (b"[]", True),
        (None, True),
    ],
)
def test_whose_controller_it_is(data: bytes | None, *, kraft: bool) -> None:
    assert znodes.kraft_controller(data) is kraft
