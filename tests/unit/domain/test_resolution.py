from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.entities import Entity
from confplane.domain.resolution import client_config_levels, quota_levels, resolve_client_configs, resolve_quotas

EIGHT = [
    "user=u,client-id=c",
    "user=u,client-id",
    "user=u",
    "user,client-id=c",
    "user,client-id",
    "user",
    "client-id=c",
    "client-id",
]


@pytest.mark.parametrize(
    ("entity_id", "levels"),
    [
        ("user=u,client-id=c", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("user=u", [2, 3, 5, 6, 8]),
        ("user=u,client-id", [2, 3, 5, 6, 8]),
        ("client-id=c", [4, 5, 6, 7, 8]),
        ("user,client-id=c", [4, 5, 6, 7, 8]),
        ("user", [5, 6, 8]),
        ("client-id", [5, 6, 8]),
        ("user,client-id", [5, 6, 8]),
    ],
)
def test_quota_levels(entity_id: str, levels: list[int]) -> None:
    found = quota_levels(Entity.from_id(entity_id))
    assert [(level.level, level.entity_id) for level in found] == [(number, EIGHT[number - 1]) for number in levels]
    assert all(level.reason.startswith(f"Level {level.level} of 8: ") for level in found)
    shares = {"client-id" in level.entity_id and "user" in level.entity_id: level.shared_by for level in found}
    assert len({level.shared_by for level in found if level.level in {1, 2, 4, 5}}) <= 1
    assert len({level.shared_by for level in found if level.level in {3, 6}}) <= 1
    assert len({level.shared_by for level in found if level.level in {7, 8}}) <= 1
    assert shares[True] == "all connections of this user with this client-id"


def test_names_are_escaped_in_level_ids() -> None:
    assert (
        quota_levels(Entity.of(user="<default>", client_id="a b"))[0].entity_id == "user=~3Cdefault~3E,client-id=a~20b"
    )


def test_ip_levels() -> None:
    assert [(level.level, level.entity_id) for level in quota_levels(Entity.of(ip="10.0.0.1"))] == [
        (1, "ip=10.0.0.1"),
        (2, "ip"),
    ]
    assert [(level.level, level.entity_id) for level in quota_levels(Entity.of(ip=None))] == [(2, "ip")]


@pytest.mark.parametrize(
    "entity", [Entity.of(topic="t"), Entity.of(broker="0"), Entity.of(user="a", ip="1.2.3.4")], ids=str
)
def test_other_types_have_no_levels(entity: Entity) -> None:
    assert quota_levels(entity) == ()
    assert client_config_levels(entity) == ()
    assert resolve_quotas([], {"user=a": {"producer_byte_rate": "1"}}) == {}


configs = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage", "SCRAM-SHA-256", "acks", "connection_creation_rate"]),
    st.sampled_from(["1", "2", "3"]),
    max_size=4,
)


@given(stored=st.dictionaries(st.sampled_from([*EIGHT, "user=other", "ip"]), configs))
def test_each_key_is_resolved_by_itself(stored: dict[str, dict[str, str]]) -> None:
    resolved = resolve_quotas(quota_levels(Entity.of(user="u", client_id="c")), stored)
    assert list(resolved) == sorted(resolved)
    for key in ("producer_byte_rate", "request_percentage"):
        setting = [entity_id for entity_id in EIGHT if key in stored.get(entity_id, {})]
        if not setting:
            assert key not in resolved
            continue
        found = resolved[key]
        assert found.value == stored[setting[0]][key]
        assert found.source.entity_id == setting[0]
        assert [(s.level.entity_id, s.value) for s in found.synonyms] == [(one, stored[one][key]) for one in setting]
    assert resolved.keys() <= {"producer_byte_rate", "request_percentage"}


def test_ip_rate() -> None:
    stored = {"ip": {"connection_creation_rate": "5", "producer_byte_rate": "1"}, "ip=10.0.0.1": {}}
    resolved = resolve_quotas(quota_levels(Entity.of(ip="10.0.0.1")), stored)
    assert {key: (found.value, found.source.entity_id) for key, found in resolved.items()} == {
        "connection_creation_rate": ("5", "ip")
    }


@pytest.mark.parametrize(
    ("entity_id", "levels"),
    [
        ("user=u,client-id=c", [(1, "user=u,client-id=c"), (2, "user=u")]),
        ("user=u,client-id", [(2, "user=u")]),
        ("user=u", [(2, "user=u")]),
        ("user", []),
        ("user,client-id=c", []),
        ("client-id=c", []),
        ("ip=10.0.0.1", []),
    ],
)
def test_client_config_levels(entity_id: str, levels: list[tuple[int, str]]) -> None:
    found = client_config_levels(Entity.from_id(entity_id))
    assert [(level.level, level.entity_id) for level in found] == levels
    assert all(level.reason.startswith(f"Level {level.level} of 2: ") for level in found)


def test_client_configs_of_the_pair_lie_over_the_user_s() -> None:
    """KIP-649's own example."""
    stored = {
        "user=alice": {"acks": "-1", "session.timeout.ms": "20000"},
        "user=alice,client-id=clientid-override": {"session.timeout.ms": "30000"},
        "user": {"heartbeat.interval.ms": "1000"},
        "user=alice,client-id": {"acks": "0"},
    }
    entity = Entity.of(user="alice", client_id="clientid-override")
    resolved = resolve_client_configs(client_config_levels(entity), stored)
    assert {key: [value for _, value in found.synonyms] for key, found in resolved.items()} == {
        "acks": ["-1"],
        "session.timeout.ms": ["30000", "20000"],
    }
    assert resolved["session.timeout.ms"].source.entity_id == entity.id
