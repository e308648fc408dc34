"""The owners of keys along the chain of versions of a znode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from confplane.domain.errors import InvalidRequestError
from confplane.domain.ownership import NO_OWNERS, Ownership, OwnershipClaim, OwnershipFilter
from confplane.domain.znode_versions import (
    ABSENT,
    OwnershipStep,
    OwnWrite,
    Point,
    ownership_after,
    ownership_after_all,
)

RED = OwnershipClaim("red", ("a", "b"), {"stage": "test"})
BLUE = OwnershipClaim("blue", ("b",))
OF_RED = Ownership({"a": "red", "b": "red"}, {"red": {"stage": "test"}})


def at(version: int, *keys: str, czxid: int = 5, ownership: Ownership = NO_OWNERS) -> Point:
    return Point(
        present=True,
        czxid=czxid,
        version=version,
        mzxid=czxid + version,
        content=dict.fromkeys(keys, "1"),
        ownership=ownership,
    )


def write(before: Point, after: Point, claim: OwnershipClaim | None = None) -> OwnWrite:
    """A change of this service from one state to another."""
    revision = after.mzxid
    version, czxid = (before.version, before.czxid) if before.present else (None, None)
    left = after.version if after.present else None
    return OwnWrite(revision, 0, 0, version, czxid, left, before.content, after.content, claim=claim)


def test_a_claim_gives_keys_to_its_owner_and_replaces_its_labels() -> None:
    created, changed = at(0, "a", "b"), at(1, "a", "b")
    found = ownership_after(ABSENT, [write(ABSENT, created, RED)], created)
    assert found == OF_RED
    found = ownership_after(replace(created, ownership=found), [write(created, changed, BLUE)], changed)
    assert found == Ownership({"a": "red", "b": "blue"}, {"red": {"stage": "test"}, "blue": {}})
    found = ownership_after(replace(changed, ownership=found), [write(changed, at(2, "a", "b"), RED)], at(2, "a", "b"))
    assert found == OF_RED


start = at(3, "a", "b", ownership=OF_RED)


@pytest.mark.parametrize(
    ("own", "end", "owned"),
    [
        pytest.param([write(start, at(4, "a", "b", "c"))], at(4, "a", "b", "c"), {"a", "b"}, id="a direct write"),
        pytest.param([], at(6, "a", "c"), {"a"}, id="external writes"),
        pytest.param(
            [write(start, at(4, "b")), write(at(4, "b"), at(5, "a", "b"))],
            at(5, "a", "b"),
            {"b"},
            id="a key that was removed and set again",
        ),
        pytest.param([], at(0, "a", "b", czxid=90), set(), id="a znode that was deleted and created again"),
        pytest.param([], replace(ABSENT, czxid=5, mzxid=90), set(), id="a deletion"),
        pytest.param([write(at(5, "a"), at(6, "a", "b"))], at(6, "a", "b"), {"a"}, id="a removal in a gap"),
        pytest.param([write(at(2, "a"), at(3, "a"))], at(3, "a", "b"), {"a", "b"}, id="a change before the state"),
    ],
)
def test_an_owner_keeps_its_keys_as_long_as_they_exist(own: list[OwnWrite], end: Point, owned: set[str]) -> None:
    found = ownership_after(start, own, end)
    assert found.owners == dict.fromkeys(sorted(owned), "red")
    assert found.labels == ({"red": {"stage": "test"}} if owned else {})


def step(*keys: str, claim: OwnershipClaim | None = None, recreated: bool = False) -> OwnershipStep:
    return OwnershipStep(keys, recreated, claim)


@pytest.mark.parametrize(
    ("steps", "owners"),
    [
        pytest.param([], {}, id="no change"),
        pytest.param([step("a", "b", claim=RED), step("a", "b", "c")], {"a": "red", "b": "red"}, id="a direct write"),
        pytest.param([step("a", "b", claim=RED), step("a", "b", claim=BLUE)], {"a": "red", "b": "blue"}, id="claims"),
        pytest.param([step("a", "b", claim=RED), step("a"), step("a", "b")], {"a": "red"}, id="a key set again"),
        pytest.param([step("a", "b", claim=RED), step(), step("a", "b")], {}, id="a deletion"),
        pytest.param([step("a", "b", claim=RED), step("a", "b", recreated=True)], {}, id="recreated externally"),
        pytest.param(
            [step("a", "b", claim=RED), step("b", claim=BLUE, recreated=True)], {"b": "blue"}, id="recreated, claimed"
        ),
    ],
)
def test_the_owners_of_keys_follow_from_all_changes(steps: list[OwnershipStep], owners: dict[str, str]) -> None:
    assert ownership_after_all(steps).owners == owners


def test_a_claim_has_an_effect_unless_its_keys_and_labels_are_those_of_its_owner() -> None:
    assert OF_RED.has(RED)
    assert OF_RED.has(replace(RED, keys=("a",)))
    assert not OF_RED.has(replace(RED, keys=("a", "c")))
    assert not OF_RED.has(replace(RED, labels={}))
    assert not OF_RED.has(BLUE)
    assert NO_OWNERS.has(replace(RED, keys=()))


def test_a_filter_selects_by_the_owner_and_the_label_of_the_same_owner() -> None:
    ownership = Ownership({"a": "red", "b": "blue"}, {"red": {"stage": "test"}, "blue": {}})

    def selects(owner: str | None, label: str | None, *keys: str) -> bool:
        wanted = OwnershipFilter.parse(owner, label)
        assert wanted is not None
        return wanted.selects(ownership, keys)

    assert selects("red", None, "a", "b")
    assert selects(None, "stage=test", "a")
    assert selects("red", "stage=test", "a")
    assert not selects("red", None, "b")
    assert not selects("blue", "stage=test", "a", "b")
    assert not selects(None, "stage=", "a")
    assert OwnershipFilter.parse(None, None) is None
    for owner, label in (("a b", None), ("", None), (None, "stage"), (None, "=a")):
        with pytest.raises(InvalidRequestError):
            OwnershipFilter.parse(owner, label)
