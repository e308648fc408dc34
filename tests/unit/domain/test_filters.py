from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import ConfplaneError, InvalidRequestError, UnsupportedVersionError
from confplane.domain.filters import EntityFilter, FilterComponent, MatchType

QUOTA_TYPES = frozenset({EntityType.USER, EntityType.CLIENT_ID, EntityType.IP})
CONFIG_TYPES = frozenset({EntityType.USER, EntityType.CLIENT_ID})

EXACT, DEFAULT, ANY = MatchType.EXACT, MatchType.DEFAULT, MatchType.SPECIFIED


def build(
    *components: tuple[str, MatchType | int | str, str | None],
    strict: bool = False,
    allowed: frozenset[EntityType] = QUOTA_TYPES,
) -> EntityFilter:
    return EntityFilter.build([FilterComponent(*given) for given in components], strict=strict, allowed=allowed)


# ---------------------------------------------------------------- match types


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, EXACT),
        (1, DEFAULT),
        (2, ANY),
        ("exact", EXACT),
        ("Default", DEFAULT),
        ("SPECIFIED", ANY),
        ("any", ANY),
        ("Any", ANY),
        (ANY, ANY),
    ],
)
def test_match_types(value: object, kind: MatchType) -> None:
    assert MatchType.parse(value) is kind


@pytest.mark.parametrize("value", [3, -1, "0", "", "exactly", True, False, None, 1.0, 2**70, [], "x" * 10_000])
def test_unknown_match_types(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="match type") as caught:
        MatchType.parse(value, pointer="/components/0/matchType")
    assert caught.value.pointer == "/components/0/matchType"
    assert len(caught.value.detail) < 300


# ---------------------------------------------------------------- errors, in their order


@pytest.mark.parametrize(
    ("components", "error", "pointer"),
    [
        ([("user", 3, None)], InvalidRequestError, "/components/0/matchType"),
        ([("user", EXACT, None)], InvalidRequestError, "/components/0/match"),
        ([("user", ANY, None), ("user", EXACT, "a")], InvalidRequestError, "/components/1/entityType"),
        ([("", ANY, None)], InvalidRequestError, "/components/0/entityType"),
        ([("topic", ANY, None)], UnsupportedVersionError, "/components/0/entityType"),
        ([("users", ANY, None)], UnsupportedVersionError, "/components/0/entityType"),
        ([("ip", ANY, None), ("user", ANY, None)], InvalidRequestError, "/components"),
        ([("client-id", ANY, None), ("ip", DEFAULT, None)], InvalidRequestError, "/components"),
        # Match types of all components come before the types of any.
        ([("topic", ANY, None), ("user", EXACT, None)], InvalidRequestError, "/components/1/match"),
        ([("", ANY, None), ("user", 7, None)], InvalidRequestError, "/components/1/matchType"),
        # Then the types in the order of the components.
        ([("topic", ANY, None), ("topic", ANY, None)], UnsupportedVersionError, "/components/0/entityType"),
        (
            [("user", ANY, None), ("topic", ANY, None), ("user", ANY, None)],
            UnsupportedVersionError,
            "/components/1/entityType",
        ),
        (
            [("user", ANY, None), ("user", ANY, None), ("topic", ANY, None)],
            InvalidRequestError,
            "/components/1/entityType",
        ),
        # Then the combination.
        (
            [("user", ANY, None), ("ip", ANY, None), ("topic", ANY, None)],
            UnsupportedVersionError,
            "/components/2/entityType",
        ),
    ],
)
def test_errors(components: list[tuple[str, MatchType, str | None]], error: type[ConfplaneError], pointer: str) -> None:
    with pytest.raises(error) as caught:
        build(*components)
    assert type(caught.value) is error
    assert caught.value.pointer == pointer


def test_ip_is_unknown_where_the_facet_has_none() -> None:
    with pytest.raises(UnsupportedVersionError, match="ip can't be described here; known are client-id, user"):
        build(("ip", ANY, None), allowed=CONFIG_TYPES)


def test_combination_text_is_kafka_s() -> None:
    with pytest.raises(InvalidRequestError, match=r"^Invalid entity filter component combination, "):
        build(("ip", ANY, None), ("user", ANY, None))


def test_match_counts_for_exact_only() -> None:
    assert build(("user", DEFAULT, "alice")).matches(Entity.of(user=None))
    assert build(("user", ANY, "alice")).matches(Entity.of(user="bob"))


# ---------------------------------------------------------------- results

UNIVERSE = {
    entity.id
    for entity in [
        *(Entity.of(user=user) for user in ("a", "b", None)),
        *(Entity.of(client_id=client) for client in ("c", "d", None)),
        *(Entity.of(user=user, client_id=client) for user in ("a", "b", None) for client in ("c", "d", None)),
        *(Entity.of(ip=address) for address in ("10.0.0.1", None)),
    ]
}
A_PAIRS = {"user=a,client-id=c", "user=a,client-id=d", "user=a,client-id"}
IPS = {"ip=10.0.0.1", "ip"}


@pytest.mark.parametrize(
    ("components", "strict", "result"),
    [
        ([("user", EXACT, "a")], True, {"user=a"}),
        ([("user", EXACT, "a")], False, {"user=a", *A_PAIRS}),
        ([("user", DEFAULT, None)], False, {"user", "user,client-id=c", "user,client-id=d", "user,client-id"}),
        ([("user", ANY, None)], True, {"user=a", "user=b", "user"}),
        ([("client-id", EXACT, "c")], True, {"client-id=c"}),
        (
            [("client-id", EXACT, "c")],
            False,
            {"client-id=c", "user=a,client-id=c", "user=b,client-id=c", "user,client-id=c"},
        ),
        ([("user", EXACT, "a"), ("client-id", EXACT, "c")], True, {"user=a,client-id=c"}),
        ([("client-id", EXACT, "c"), ("user", EXACT, "a")], False, {"user=a,client-id=c"}),
        (
            [("user", ANY, None), ("client-id", DEFAULT, None)],
            False,
            {"user=a,client-id", "user=b,client-id", "user,client-id"},
        ),
        ([("user", EXACT, "a"), ("client-id", ANY, None)], True, A_PAIRS),
        ([("user", EXACT, "a"), ("client-id", ANY, None)], False, A_PAIRS),
        ([("ip", ANY, None)], True, IPS),
        ([("ip", ANY, None)], False, IPS),
        ([("ip", DEFAULT, None)], False, {"ip"}),
        ([("ip", EXACT, "10.0.0.1")], False, {"ip=10.0.0.1"}),
        ([("ip", EXACT, "10.0.0.2")], False, set()),
        ([("user", EXACT, "")], True, set()),
        ([("user", EXACT, "")], False, set()),
        ([("user", EXACT, "<default>")], False, set()),
        ([], False, UNIVERSE),
        ([], True, set()),
    ],
)
def test_results(components: list[tuple[str, MatchType, str | None]], strict: bool, result: set[str]) -> None:  # noqa: FBT001 - a test parameter
    built = build(*components, strict=strict)
    assert {entity_id for entity_id in UNIVERSE if built.matches(Entity.from_id(entity_id))} == result


def test_entities_of_other_spaces_never_match() -> None:
    assert not build().matches(Entity.of(topic="orders"))
    assert not build(allowed=CONFIG_TYPES).matches(Entity.of(ip="10.0.0.1"))


# ---------------------------------------------------------------- against a reference

name = st.sampled_from(["a", "ab", "b", "<default>", "a,client-id", "é"])
bad_name = st.sampled_from(["", ".", "..", "\0"])


@st.composite
def filters(draw: st.DrawFn) -> tuple[dict[str, tuple[MatchType, str | None]], bool]:
    kinds = draw(
        st.sampled_from([(), ("user",), ("client-id",), ("user", "client-id"), ("client-id", "user"), ("ip",)])
    )
    components: dict[str, tuple[MatchType, str | None]] = {}
    for kind in kinds:
        match_type = draw(st.sampled_from(MatchType))
        components[kind] = match_type, draw(name | bad_name) if match_type is EXACT else None
    return components, draw(st.booleans())


@st.composite
def some_entity(draw: st.DrawFn) -> dict[str, str | None]:
    kinds = draw(st.sampled_from([("user",), ("client-id",), ("user", "client-id"), ("ip",)]))
    return {kind: draw(st.none() | name) for kind in kinds}


def reference(components: dict[str, tuple[MatchType, str | None]], strict: bool, entity: dict[str, str | None]) -> bool:  # noqa: FBT001 - as drawn
    """KIP-546's two spaces, each searched only when the filter lets it be."""
    is_ip = set(entity) == {"ip"}
    if is_ip:
        searched = "user" not in components and "client-id" not in components
        searched = searched and ("ip" in components or (not components and not strict))
    else:
        searched = "ip" not in components and not (strict and not components)
    if not searched:
        return False
    matches = []
    for kind in ["ip"] if is_ip else ["user", "client-id"]:
        if kind not in components:
            matches.append(not (strict and kind in entity))
        elif kind not in entity:
            matches.append(False)
        elif components[kind][0] == EXACT:
            matches.append(entity[kind] is not None and entity[kind] == components[kind][1])
        elif components[kind][0] == DEFAULT:
            matches.append(entity[kind] is None)
        else:
            matches.append(True)
    return all(matches)


@given(given=filters(), entity=some_entity())
def test_filter_equals_reference(
    given: tuple[dict[str, tuple[MatchType, str | None]], bool], entity: dict[str, str | None]
) -> None:
    components, strict = given
    built = build(*((kind, how, match) for kind, (how, match) in components.items()), strict=strict)
    assert built.matches(Entity.from_components(entity.items())) == reference(components, strict, entity)


@given(given=filters(), entity=some_entity())
def test_hints_never_lose_a_match(
    given: tuple[dict[str, tuple[MatchType, str | None]], bool], entity: dict[str, str | None]
) -> None:
    components, strict = given
    built = build(*((kind, how, match) for kind, (how, match) in components.items()), strict=strict)
    candidate = Entity.from_components(entity.items())
    if not built.matches(candidate):
        return
    assert not built.impossible
    assert built.exact_entity in {None, candidate}
    if built.user_prefix is not None:
        assert candidate.id + "," == built.user_prefix or candidate.id.startswith(built.user_prefix)
    if built.client_id is not None:
        assert (candidate.get(EntityType.CLIENT_ID),) == built.client_id
        assert EntityType.CLIENT_ID in candidate.types


@given(given=filters())
def test_exact_entity_matches_itself(given: tuple[dict[str, tuple[MatchType, str | None]], bool]) -> None:
    components, strict = given
    built = build(*((kind, how, match) for kind, (how, match) in components.items()), strict=strict)
    assert built.exact_entity is None or built.matches(built.exact_entity)


@pytest.mark.parametrize(
    ("components", "strict", "hints"),
    [
        ([("user", EXACT, "a")], True, ("user=a", "user=a,", None, False)),
        ([("user", EXACT, "a b")], False, (None, "user=a~20b,", None, False)),
        ([("user", DEFAULT, None)], True, ("user", "user,", None, False)),
        ([("user", ANY, None)], True, (None, None, None, False)),
        ([("client-id", EXACT, "c")], True, ("client-id=c", None, ("c",), False)),
        ([("client-id", DEFAULT, None)], False, (None, None, (None,), False)),
        ([("client-id", DEFAULT, None), ("user", EXACT, "a")], False, ("user=a,client-id", "user=a,", (None,), False)),
        ([("user", EXACT, "a"), ("client-id", ANY, None)], False, (None, "user=a,", None, False)),
        ([("ip", EXACT, "1.2.3.4")], False, ("ip=1.2.3.4", None, None, False)),
        ([("ip", ANY, None)], True, (None, None, None, False)),
        ([("user", EXACT, "")], True, (None, None, None, True)),
        ([("user", ANY, None), ("client-id", EXACT, "..")], False, (None, None, None, True)),
        ([], True, (None, None, None, True)),
        ([], False, (None, None, None, False)),
    ],
)
def test_hints(
    components: list[tuple[str, MatchType, str | None]],
    strict: bool,  # noqa: FBT001 - a test parameter
    hints: tuple[str | None, str | None, tuple[str | None] | None, bool],
) -> None:
    built = build(*components, strict=strict)
    exact = built.exact_entity.id if built.exact_entity else None
    assert (exact, built.user_prefix, built.client_id, built.impossible) == hints
