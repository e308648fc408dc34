from __future__ import annotations

import pytest

from confplane.cli.remote.entities import entity_of, facets_of, facets_of_kind
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("user=alice", Entity.of(user="alice")),
        ("user", Entity.of(user=None)),
        ("user=alice,client-id=billing", Entity.of(user="alice", client_id="billing")),
        ("user,client-id", Entity.of(user=None, client_id=None)),
        ("user=alice,client-id", Entity.of(user="alice", client_id=None)),
        ("user=CN=a b,O=c", Entity.of(user="CN=a b,O=c")),
        ("user=CN=a,O=b,client-id=x y", Entity.of(user="CN=a,O=b", client_id="x y")),
        ("user=a~20b", Entity.of(user="a b")),
        ("user=a~b", Entity.of(user="a~b")),
        ("user=50%", Entity.of(user="50%")),
        ("ip=10.0.0.1", Entity.of(ip="10.0.0.1")),
        ("topic=orders", Entity.of(topic="orders")),
        ("broker=0", Entity.of(broker="0")),
        ("broker", Entity.of(broker=None)),
    ],
)
def test_arguments_are_ids_or_plain_names(text: str, entity: Entity) -> None:
    assert entity_of(text) == entity
    assert entity_of(entity.id) == entity


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("user=<default>", "user"),
        ("user=*", "user"),
        ("user=alice,client-id=<default>", "user=alice,client-id"),
        ("user=<default>,client-id=*", "user,client-id"),
        ("user=~2A", None),
        ("user=default", None),
        ("user", None),
    ],
)
def test_a_name_that_stands_for_the_default_in_other_tools_gets_a_hint(
    capsys: pytest.CaptureFixture[str], text: str, default: str | None
) -> None:
    entity_of(text)
    said = "" if default is None else f"Hint: {text} is not the default entity, which is written {default}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "kind"), [("topic", "topic"), ("topics", "topic"), ("users", "user"), ("alice", None)]
)
def test_a_type_without_a_name_leads_to_the_list(text: str, kind: str | None) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        entity_of(text)
    assert ("get --type" in str(refused.value)) is (kind is not None)
    assert kind is None or f"`confplane get --type {kind}` lists entities." in str(refused.value)


@pytest.mark.parametrize("text", ["alice", "", "users=alice", "user=", "topic=a b", "broker=x", "ip=a,client-id=b"])
def test_arguments_that_no_entity_has(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        entity_of(text)


@pytest.mark.parametrize(
    ("entity", "facets"),
    [
        (Entity.of(user="a"), ["client-quotas", "client-configs"]),
        (Entity.of(user="a", client_id=None), ["client-quotas", "client-configs"]),
        (Entity.of(client_id="a"), ["client-quotas"]),
        (Entity.of(ip=None), ["client-quotas"]),
        (Entity.of(topic="a"), ["configs"]),
        (Entity.of(group="a"), ["configs"]),
    ],
)
def test_the_collections_of_an_entity(entity: Entity, facets: list[str]) -> None:
    assert [each.value for each in facets_of(entity)] == facets
    assert facets_of_kind(",".join(entity.types)) == facets_of(entity)


@pytest.mark.parametrize("kind", ["", "users", "client-id,user", "user,ip"])
def test_kinds_that_no_entity_has(kind: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"Unknown entity type '{kind}'"):
        facets_of_kind(kind)
