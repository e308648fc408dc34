from __future__ import annotations

import re

import pytest

from confplane.domain.errors import InvalidRequestError
from confplane.domain.ops import Op, OpType, op_type


@pytest.mark.parametrize(("given_as", "kind"), [(0, OpType.SET), (3, OpType.SUBTRACT), ("APPEND", OpType.APPEND)])
def test_names_and_numbers(given_as: int | str, kind: OpType) -> None:
    assert op_type(given_as) is kind


@pytest.mark.parametrize("given_as", [4, -1, "append", "", "x" * 500])
def test_unknown_operations(given_as: int | str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape("SET (0), DELETE (1), APPEND (2), SUBTRACT (3)")) as caught:
        op_type(given_as)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("kind", OpType)
def test_the_trail_has_one_form(kind: OpType) -> None:
    assert Op("acks", kind, "0", "/x").as_json() == {"key": "acks", "op": kind.name, "value": "0"}
    assert Op("acks", kind).as_json() == {"key": "acks", "op": kind.name, "value": None}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, float(2**63)),
        (-(2**63) - 1, -float(2**63)),
        (0.5, 0.5),
        (True, True),
    ],
)
def test_integers_beyond_64_bits_are_kept_as_doubles(value: float, kept: float) -> None:
    found = Op("request_percentage", OpType.SET, value).as_json()["value"]
    assert (type(found), found) == (type(kept), kept)
