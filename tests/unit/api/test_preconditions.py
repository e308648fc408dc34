from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.api.routing.preconditions import ConditionalHeaders, etag_field, not_modified
from confplane.domain.errors import InvalidRequestError
from confplane.domain.etags import Precondition

OPAQUE = st.text(
    st.characters(
        min_codepoint=0x21, max_codepoint=0xFF, exclude_characters='"\x7f' + "".join(map(chr, range(0x80, 0xA0)))
    )
)
ETAGS = st.lists(OPAQUE.map('"{}"'.format), min_size=1, max_size=5)
BLANKS = st.sampled_from(["", " ", "\t", "  "])


@given(ETAGS, BLANKS, BLANKS)
def test_lists_of_etags_are_read_whatever_the_blanks(etags: list[str], before: str, after: str) -> None:
    text = f"{before},{after}".join(etags)
    assert ConditionalHeaders(if_match=text).precondition() == Precondition(if_match=tuple(etags))
    assert etag_field(text, pointer="/etag") == tuple(etags)


def test_nothing_demands_nothing() -> None:
    assert ConditionalHeaders().precondition() == Precondition()


@pytest.mark.parametrize("text", ["*", " * "])
def test_any(text: str) -> None:
    assert ConditionalHeaders(text, text).precondition() == Precondition(("*",), ("*",))


@pytest.mark.parametrize(
    "text", ["", " ", "a", '"a', 'a"', '"a""b"', '"a" "b"', '"a", *', "W/a", 'w/"a"', '"a b"', '"\x7f"', "0", "**"]
)
def test_what_is_no_list_of_etags_is_refused(text: str) -> None:
    for header, conditions in (
        ("If-Match", ConditionalHeaders(text, None)),
        ("If-None-Match", ConditionalHeaders(None, text)),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            conditions.precondition()
        assert refused.value.pointer == header
    with pytest.raises(InvalidRequestError) as refused:
        etag_field(text, pointer="/entries/0/etag")
    assert refused.value.pointer == "/entries/0/etag"


def test_weak_etags_never_match_strongly() -> None:
    assert ConditionalHeaders(if_match='W/"a"').precondition().if_match == ('W/"a"',)
    assert ConditionalHeaders(if_none_match='W/"a"').precondition().if_none_match == ('"a"',)
    assert not_modified('W/"a"', '"a"')


def test_header_and_body_must_agree() -> None:
    assert ConditionalHeaders(if_match='"a"').precondition(body_etag='"a"').if_match == ('"a"',)
    assert ConditionalHeaders().precondition(body_etag="*").if_match == ("*",)
    with pytest.raises(InvalidRequestError) as refused:
        ConditionalHeaders(if_match='"a"').precondition(body_etag='"b"')
    assert refused.value.pointer == "/etag"


@pytest.mark.parametrize(
    ("given_etags", "expected"),
    [(None, False), ("*", True), ('"a"', True), ('"b"', False), ('"b", "a"', True), ('"A"', False)],
)
def test_not_modified(given_etags: str | None, *, expected: bool) -> None:
    assert not_modified(given_etags, '"a"') is expected


def test_not_modified_refuses_what_is_no_list() -> None:
    with pytest.raises(InvalidRequestError):
        not_modified("a", '"a"')
