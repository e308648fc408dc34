from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.definitions import broker_configs, topic_configs
from app.domain.errors import InvalidConfigError, InvalidRequestError, KafkaCode
from app.domain.incremental import ConfigOp, OpType, apply_incremental, op_type

POLICY = "cleanup.policy"
LEADER = "leader.replication.throttled.replicas"


def alter(stored: dict[str, str], *ops: ConfigOp) -> dict[str, str]:
    return apply_incremental(stored, ops, topic_configs())


def test_set_and_delete() -> None:
    stored = {"retention.ms": "1", "other": "x"}
    assert alter(stored, ConfigOp("retention.ms", OpType.SET, "anything")) == {"retention.ms": "anything", "other": "x"}
    assert alter(stored, ConfigOp("retention.ms", OpType.DELETE, "ignored")) == {"other": "x"}
    assert alter(stored, ConfigOp("absent", OpType.DELETE), ConfigOp("retention.ms", OpType.SET, "")) == {
        "retention.ms": "",
        "other": "x",
    }
    assert stored == {"retention.ms": "1", "other": "x"}


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("delete", "compact", "delete,compact"),
        ("delete", "delete", "delete"),
        (None, "compact", "delete,compact"),  # the definition's default
        ("", "compact", "compact"),
        ("a,b", "c,c,a", "a,b,c,c"),
        ("a", " a", "a, a"),
        ("a", "", "a,"),
        ("a", ",", "a"),
        ("", "", ""),
        ("a,,", "b", "a,b"),
    ],
)
def test_append(old: str | None, value: str, new: str) -> None:
    stored = {} if old is None else {POLICY: old}
    assert alter(stored, ConfigOp(POLICY, OpType.APPEND, value)) == {POLICY: new}


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("a,b,b,c", "b,x", "a,b,c"),
        ("compact", "compact", ""),
        ("compact", "delete", "compact"),
        (None, "delete", ""),
        (None, "compact", "delete"),
        ("", "delete", ""),
        ("a,b", "b,b,a", ""),
        ("a", " a", "a"),
    ],
)
def test_subtract(old: str | None, value: str, new: str) -> None:
    stored = {} if old is None else {POLICY: old}
    assert alter(stored, ConfigOp(POLICY, OpType.SUBTRACT, value)) == {POLICY: new}


def test_lists_without_a_default() -> None:
    assert alter({}, ConfigOp(LEADER, OpType.APPEND, "0:1")) == {LEADER: "0:1"}
    assert apply_incremental({}, [ConfigOp("sasl.enabled.mechanisms", OpType.APPEND, "PLAIN")], broker_configs()) == {
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN"
    }


@pytest.mark.parametrize("kind", [OpType.APPEND, OpType.SUBTRACT])
def test_only_lists(kind: OpType) -> None:
    word = kind.name.lower()
    with pytest.raises(InvalidConfigError, match=f"value {word} is not allowed for config key: retention.ms") as caught:
        alter({}, ConfigOp("retention.ms", kind, "1", pointer="/p"))
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_CONFIG, "/p")
    with pytest.raises(InvalidConfigError, match=r"Unknown config name: no\.such"):
        alter({}, ConfigOp("no.such", kind, "1"))
    with pytest.raises(InvalidConfigError, match="Unknown config name"):
        apply_incremental({}, [ConfigOp("listener.name.x.ssl.enabled.protocols", kind, "a")], broker_configs())


@pytest.mark.parametrize(
    "kinds", [(OpType.SET, OpType.SET), (OpType.DELETE, OpType.SET), (OpType.DELETE, OpType.DELETE)]
)
def test_a_key_twice(kinds: tuple[OpType, OpType]) -> None:
    ops = [ConfigOp("k", kind, "v", pointer=f"/{at}") for at, kind in enumerate(kinds)]
    with pytest.raises(InvalidRequestError, match="duplicate config keys") as caught:
        alter({}, *ops)
    assert caught.value.pointer == "/1"


def test_no_value() -> None:
    ops = [ConfigOp("a", OpType.DELETE), ConfigOp("b", OpType.SET, pointer="/1"), ConfigOp("c", OpType.APPEND)]
    with pytest.raises(InvalidRequestError, match=r"Null value not supported for : b, c$") as caught:
        alter({}, *ops)
    assert caught.value.pointer == "/1"


@pytest.mark.parametrize(("given_as", "kind"), [(0, OpType.SET), (3, OpType.SUBTRACT), ("APPEND", OpType.APPEND)])
def test_names_and_numbers(given_as: int | str, kind: OpType) -> None:
    assert op_type(given_as) is kind


@pytest.mark.parametrize("given_as", [4, -1, "append", "", "x" * 500])
def test_unknown_operations(given_as: int | str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape("SET (0), DELETE (1), APPEND (2), SUBTRACT (3)")) as caught:
        op_type(given_as)
    assert len(str(caught.value)) < 150


def test_as_json() -> None:
    op = ConfigOp("ssl.key.password", OpType.SET, "hush")
    assert op.as_json() == {"key": "ssl.key.password", "op": "SET", "value": "hush"}


@given(st.lists(st.sampled_from("abc"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_append_then_subtract(old: list[str], added: list[str]) -> None:
    """What an append added can be taken away again, and appending twice adds nothing more."""
    joined = ",".join(added)
    once = alter({POLICY: ",".join(old)}, ConfigOp(POLICY, OpType.APPEND, joined))
    assert alter(once, ConfigOp(POLICY, OpType.APPEND, joined)) == once
    new = [element for element in added if element not in old]
    back = alter(once, ConfigOp(POLICY, OpType.SUBTRACT, ",".join(new))) if new else once
    assert sorted(back[POLICY].split(",")) == sorted(old)
