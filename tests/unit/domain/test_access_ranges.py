"""Ranges of spellings, held against sets of spellings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.access.operations import PatternType, ResourceType
from confplane.domain.access.ranges import EVERYTHING, LAST, NOTHING, NameRanges, named, spell, whole
from confplane.domain.entities import Entity, EntityType
from tests.unit.domain.strategies import odd_names

LETTERS = "ab"
SPELLINGS = ["", *(first + second for first in LETTERS for second in ("", *LETTERS)), "ba" + LETTERS, "c"]
"""A small world, in which ranges meet often."""
ENDS = sorted({*SPELLINGS, "ab-", "b~", LAST})

pairs = st.tuples(st.sampled_from(ENDS), st.sampled_from(ENDS))
many = st.lists(pairs, max_size=6)


def members(ranges: list[tuple[str, str]]) -> set[str]:
    """The spellings of the small world in any of some ranges."""
    return {each for each in SPELLINGS if any(start <= each < end for start, end in ranges)}


def inside(ranges: NameRanges) -> set[str]:
    """The spellings of the small world that ranges are asked for."""
    return {each for each in SPELLINGS if each in ranges}


@given(many)
def test_a_union_has_the_members_of_all(given_ranges: list[tuple[str, str]]) -> None:
    made = NameRanges.of(given_ranges)
    assert inside(made) == members(given_ranges)
    assert bool(made) == bool(list(made))
    flat = [end for pair in made for end in pair]
    assert flat == sorted(set(flat)), "ordered, disjoint, not even touching, none empty"


@given(many, many)
def test_ranges_are_calculated_with_as_sets(left: list[tuple[str, str]], right: list[tuple[str, str]]) -> None:
    one, other = NameRanges.of(left), NameRanges.of(right)
    assert inside(one | other) == members(left) | members(right)
    assert inside(one & other) == members(left) & members(right)
    assert inside(one - other) == members(left) - members(right)
    assert inside(one.complement()) == set(SPELLINGS) - members(left)
    assert one.complement().complement() == one
    assert (one - other) | (one & other) == one
    assert one & other == other & one


@given(many, many)
def test_ranges_within_others_are_those_that_leave_nothing_over(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    one, other = NameRanges.of(left), NameRanges.of(right)
    assert (one <= other) == (not one - other)
    assert one & other <= one <= one | other
    assert NOTHING <= one <= EVERYTHING


@given(many, st.sampled_from(["", "a", "ab", "b", "c", "zz"]))
def test_the_part_with_a_common_begin(given_ranges: list[tuple[str, str]], begin: str) -> None:
    found = NameRanges.of(given_ranges).within(begin)
    assert inside(found) == {each for each in members(given_ranges) if each.startswith(begin)}


@given(odd_names, st.sampled_from(["user", "client-id", "ip"]))
def test_a_resource_is_spelled_as_its_entity(name: str, kind: str) -> None:
    assert spell(ResourceType(kind), name) == Entity.from_names({kind: name}).id
    assert spell(ResourceType(kind)) == Entity.from_names({kind: None}).id


@given(odd_names, odd_names, st.sampled_from(list(ResourceType)))
def test_a_literal_is_that_name_alone(name: str, other: str, kind: ResourceType) -> None:
    if name == "*":
        return
    start, end = named(kind, PatternType.LITERAL, name)
    for each in (other, name + other, name[:-1], other + name):
        if each:
            assert (start <= spell(kind, each) < end) == (each == name)
    assert not start <= spell(kind) < end


@given(odd_names, odd_names, st.sampled_from(list(ResourceType)))
def test_a_prefix_is_a_begin_of_the_name_itself_not_of_its_escapes(name: str, other: str, kind: ResourceType) -> None:
    start, end = named(kind, PatternType.PREFIXED, name)
    for each in (name, name + other, other, other + name, name[:-1]):
        if each:
            assert (start <= spell(kind, each) < end) == each.startswith(name)
    assert not start <= spell(kind) < end


@given(odd_names, st.sampled_from(list(ResourceType)), st.sampled_from(list(ResourceType)))
def test_every_name_of_a_type_and_no_default(name: str, kind: ResourceType, other: ResourceType) -> None:
    start, end = named(kind, PatternType.LITERAL, "*")
    assert start <= spell(kind, name) < end
    assert not start <= spell(kind) < end
    first, last = whole(kind)
    assert first <= start < end <= last
    assert (first <= spell(other) < last) == (first <= spell(other, name) < last) == (kind is other)


@given(odd_names, st.none() | odd_names)
def test_a_users_range_has_its_pairs(user: str, client: str | None) -> None:
    if user == "*":
        return
    pair = Entity(((EntityType.USER, user), (EntityType.CLIENT_ID, client)))
    of_default = Entity(((EntityType.USER, None), (EntityType.CLIENT_ID, client)))
    for pattern, name in ((PatternType.LITERAL, user), (PatternType.LITERAL, "*"), (PatternType.PREFIXED, user[:1])):
        start, end = named(ResourceType.USER, pattern, name)
        assert start <= pair.id < end
        assert not start <= of_default.id < end
    start, end = whole(ResourceType.USER)
    assert start <= of_default.id < end
