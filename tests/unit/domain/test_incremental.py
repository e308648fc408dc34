from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.errors import InvalidConfigError, InvalidRequestError, KafkaCode
from confplane.domain.incremental import apply_incremental, check_ops, without_repetitions
from confplane.domain.ops import Op, OpType
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from confplane.domain.facets import JsonValue

POLICY = "cleanup.policy"
LEADER = "leader.replication.throttled.replicas"


def alter(stored: dict[str, str], *ops: Op) -> dict[str, str]:
    return apply_incremental(stored, ops, ZOOKEEPER.topic)


def test_set_and_delete() -> None:
    stored = {"retention.ms": "1", "other": "x"}
    assert alter(stored, Op("retention.ms", OpType.SET, "anything")) == {"retention.ms": "anything", "other": "x"}
    assert alter(stored, Op("retention.ms", OpType.DELETE, "ignored")) == {"other": "x"}
    assert alter(stored, Op("absent", OpType.DELETE), Op("retention.ms", OpType.SET, "")) == {
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
    assert alter(stored, Op(POLICY, OpType.APPEND, value)) == {POLICY: new}


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
    assert alter(stored, Op(POLICY, OpType.SUBTRACT, value)) == {POLICY: new}


def test_lists_without_a_default() -> None:
    assert alter({}, Op(LEADER, OpType.APPEND, "0:1")) == {LEADER: "0:1"}
    assert apply_incremental({}, [Op("sasl.enabled.mechanisms", OpType.APPEND, "PLAIN")], ZOOKEEPER.broker) == {
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN"
    }


@pytest.mark.parametrize("kind", [OpType.APPEND, OpType.SUBTRACT])
def test_only_lists(kind: OpType) -> None:
    word = kind.name.lower()
    with pytest.raises(InvalidConfigError, match=f"value {word} is not allowed for config key: retention.ms") as caught:
        alter({}, Op("retention.ms", kind, "1", pointer="/p"))
    assert (caught.value.code, caught.value.pointer) == (KafkaCode.INVALID_CONFIG, "/p")
    with pytest.raises(InvalidConfigError, match=r"Unknown config name: no\.such"):
        alter({}, Op("no.such", kind, "1"))
    with pytest.raises(InvalidConfigError, match="Unknown config name"):
        apply_incremental({}, [Op("listener.name.x.ssl.enabled.protocols", kind, "a")], ZOOKEEPER.broker)


@pytest.mark.parametrize(
    "kinds", [(OpType.SET, OpType.SET), (OpType.DELETE, OpType.SET), (OpType.DELETE, OpType.DELETE)]
)
def test_a_key_twice(kinds: tuple[OpType, OpType]) -> None:
    ops = [Op("k", kind, "v", pointer=f"/{at}") for at, kind in enumerate(kinds)]
    with pytest.raises(InvalidRequestError, match="duplicate config keys") as caught:
        alter({}, *ops)
    assert caught.value.pointer == "/1"


def test_keys_differ_in_case() -> None:
    given = [Op("My.Key", OpType.SET, "a"), Op("my.key", OpType.SET, "b")]
    check_ops(given)
    with pytest.raises(InvalidRequestError, match=r"My\.Key is named twice"):
        check_ops([*given, given[0]])


def test_no_value() -> None:
    ops = [Op("a", OpType.DELETE), Op("b", OpType.SET, pointer="/1"), Op("c", OpType.APPEND)]
    with pytest.raises(InvalidRequestError, match=r"Null value not supported for : b, c$") as caught:
        alter({}, *ops)
    assert caught.value.pointer == "/1"


@pytest.mark.parametrize("kind", [OpType.SET, OpType.APPEND, OpType.SUBTRACT])
@pytest.mark.parametrize("value", [1, 1.5, True])
def test_a_value_that_is_no_string(kind: OpType, value: JsonValue) -> None:
    ops = [Op("a", OpType.DELETE, 1), Op(POLICY, kind, value, "/1")]
    with pytest.raises(InvalidRequestError, match=r"value of cleanup\.policy must be a JSON string") as caught:
        check_ops(ops)
    assert caught.value.pointer == "/1"


@given(st.lists(st.sampled_from("abc"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_append_then_subtract(old: list[str], added: list[str]) -> None:
    """A subtraction takes away the items of an append, and the same append twice adds nothing more."""
    joined = ",".join(added)
    once = alter({POLICY: ",".join(old)}, Op(POLICY, OpType.APPEND, joined))
    assert alter(once, Op(POLICY, OpType.APPEND, joined)) == once
    new = [element for element in added if element not in old]
    back = alter(once, Op(POLICY, OpType.SUBTRACT, ",".join(new))) if new else once
    assert sorted(back[POLICY].split(",")) == sorted(old)


@pytest.mark.parametrize(
    ("key", "value", "stored", "repeated"),
    [
        (POLICY, "delete,delete", "delete", "delete"),
        (POLICY, " delete , compact,delete ", "delete,compact", "delete"),
        (LEADER, "0:1,1:1,0:1,1:1,2:1", "0:1,1:1,2:1", "0:1, 1:1"),
    ],
)
def test_repeated_elements_of_a_list_are_left_out_with_a_warning(
    key: str, value: str, stored: str, repeated: str
) -> None:
    ops = [Op(key, OpType.SET, value), Op("segment.ms", OpType.SET, "1,1"), Op("gone", OpType.DELETE)]
    after = {key: value, "segment.ms": "1,1", "untouched": "a,a"}
    found, warnings = without_repetitions(after, ops, ZOOKEEPER.topic.get)
    assert found == {**after, key: stored}
    assert warnings == [f"{key} is stored without repeated elements: {repeated}"]


@pytest.mark.parametrize("value", ["", "delete", "delete , compact", "*", "${file:/a,a:b}"])
def test_other_lists_stay_as_they_are_written(value: str) -> None:
    assert without_repetitions({POLICY: value}, [Op(POLICY, OpType.SET, value)], ZOOKEEPER.topic.get) == (
        {POLICY: value},
        [],
    )
