from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.changes import Node, apply_ops, difference, encode_ops
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.ops import Op, OpType
from confplane.domain.quotas import ClientQuotasFacet
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from confplane.domain.facets import ClientFacet

QUOTAS: ClientFacet = ClientQuotasFacet()
CONFIGS: ClientFacet = ClientConfigsFacet(ZOOKEEPER)
ALICE = Entity.of(user="alice")

KEYS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
OTHERS = ["SCRAM-SHA-256", "acks", "unknown", "connection_creation_rate"]

stored = st.dictionaries(st.sampled_from(KEYS + OTHERS), st.sampled_from(["1", "2", "3"]))
ops = st.lists(
    st.builds(Op, st.sampled_from(KEYS), st.just(OpType.SET), st.integers(min_value=0, max_value=9))
    | st.sampled_from([*KEYS, "acks", "unknown", "connection_creation_rate"]).map(lambda key: Op(key, OpType.DELETE)),
    max_size=8,
)


@given(config=stored, given_ops=ops, exact=st.booleans())
def test_other_keys_survive_and_the_last_op_counts(
    config: dict[str, str],
    given_ops: list[Op],
    exact: bool,  # noqa: FBT001 - drawn
) -> None:
    before = dict(config)
    after, warnings = apply_ops(QUOTAS, ALICE, config, encode_ops(QUOTAS, ALICE, given_ops, exact=exact))
    assert config == before
    assert {key: value for key, value in after.items() if key in OTHERS} == {
        key: value for key, value in before.items() if key in OTHERS
    }
    last = {op.key: op for op in given_ops}
    for key in KEYS:
        if key not in last:
            assert after.get(key) == before.get(key)
        elif last[key].type is OpType.DELETE:
            assert key not in after
        else:
            assert float(after[key]) == last[key].value
    left = {key for key, op in last.items() if op.type is OpType.DELETE and key in OTHERS and key in before}
    assert len(warnings) == len(left)
    assert all(any(warning.startswith(f"{key} is not a key of client-quotas") for warning in warnings) for key in left)


@given(config=stored, given_ops=ops)
def test_applying_twice_changes_nothing_more(config: dict[str, str], given_ops: list[Op]) -> None:
    encoded = encode_ops(QUOTAS, ALICE, given_ops, exact=True)
    once, _ = apply_ops(QUOTAS, ALICE, config, encoded)
    assert apply_ops(QUOTAS, ALICE, once, encoded)[0] == once


def test_the_two_facets_of_a_znode_leave_each_other_alone() -> None:
    config = {"producer_byte_rate": "1", "acks": "all", "SCRAM-SHA-256": "salt=..."}
    given_ops = [Op("producer_byte_rate", OpType.DELETE), Op("acks", OpType.SET, "0")]
    removal = encode_ops(CONFIGS, ALICE, given_ops, exact=True)
    after, warnings = apply_ops(CONFIGS, ALICE, config, removal)
    assert after == {**config, "acks": "0"}
    assert warnings == ["producer_byte_rate is not a key of client-configs for user=alice; it was left as it is."]


@pytest.mark.parametrize(
    "bad",
    [
        Op("acks", OpType.SET, 1, pointer="/entries/0/ops/1"),
        Op("producer_byte_rate", OpType.SET, None, pointer="/entries/0/ops/1"),
        Op("SCRAM-SHA-512", OpType.DELETE, pointer="/entries/0/ops/1"),
    ],
)
def test_one_bad_op_fails_them_all(bad: Op) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        encode_ops(QUOTAS, ALICE, [Op("producer_byte_rate", OpType.SET, 1), bad], exact=False)
    assert caught.value.pointer == "/entries/0/ops/1"


@given(before=stored, after=stored)
def test_difference_leads_from_before_to_after(before: dict[str, str], after: dict[str, str]) -> None:
    found = difference(before, after)
    assert [one.key for one in found] == sorted({one.key for one in found})
    assert all(one.before != one.after for one in found)
    result = dict(before)
    for one in found:
        assert result.get(one.key) == one.before
        if one.after is None:
            del result[one.key]
        else:
            result[one.key] = one.after
    assert result == after


def test_a_node_s_config_is_a_new_dict_each_time() -> None:
    node = Node("user=a", ("b", "1", "a", "2"), 0, 1, 1, 0)
    assert node.config == {"b": "1", "a": "2"}
    assert list(node.config) == ["b", "a"]
    node.config["c"] = "3"
    assert node.config == {"b": "1", "a": "2"}
