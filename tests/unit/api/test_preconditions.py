from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from app.api.edge import HEADERS
from app.api.preconditions import etag_field, not_modified, precondition
from app.domain.errors import InvalidRequestError
from app.services.etags import Precondition

OPAQUE = st.text(
    st.characters(
        min_codepoint=0x21, max_codepoint=0xFF, exclude_characters='"\x7f' + "".join(map(chr, range(0x80, 0xA0)))
    )
)
ETAGS = st.lists(OPAQUE.map('"{}"'.format), min_size=1, max_size=5)
BLANKS = st.sampled_from(["", " ", "\t", "  "])


def _request(*headers: tuple[str, str]) -> Request:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "PUT", "path": "/", "query_string": b"", "headers": raw, HEADERS: dict(raw)}
    return Request(scope)


@given(ETAGS, BLANKS, BLANKS)
def test_lists_of_etags_are_read_whatever_the_blanks(etags: list[str], before: str, after: str) -> None:
    text = f"{before},{after}".join(etags)
    assert precondition(_request(("If-Match", text))) == Precondition(if_match=tuple(etags))
    assert etag_field(text, pointer="/etag") == tuple(etags)


@given(ETAGS)
def test_a_header_given_several_times_is_one_list(etags: list[str]) -> None:
    request = _request(*(("If-None-Match", etag) for etag in etags))
    assert precondition(request) == Precondition(if_none_match=tuple(etags))


def test_nothing_demands_nothing() -> None:
    assert precondition(_request()) == Precondition()


@pytest.mark.parametrize("text", ["*", " * "])
def test_any(text: str) -> None:
    assert precondition(_request(("If-Match", text), ("If-None-Match", text))) == Precondition(("*",), ("*",))


@pytest.mark.parametrize(
    "text", ["", " ", "a", '"a', 'a"', '"a""b"', '"a" "b"', '"a", *', "W/a", 'w/"a"', '"a b"', '"\x7f"', "0", "**"]
)
def test_what_is_no_list_of_etags_is_refused(text: str) -> None:
    for header in ("If-Match", "If-None-Match"):
        with pytest.raises(InvalidRequestError) as refused:
            precondition(_request((header, text)))
        assert refused.value.pointer == header
    with pytest.raises(InvalidRequestError) as refused:
        etag_field(text, pointer="/entries/0/etag")
    assert refused.value.pointer == "/entries/0/etag"


def test_weak_etags_never_match_strongly() -> None:
    assert precondition(_request(("If-Match", 'W/"a"'))).if_match == ('W/"a"',)
    assert precondition(_request(("If-None-Match", 'W/"a"'))).if_none_match == ('"a"',)
    assert not_modified('W/"a"', '"a"')


def test_header_and_body_must_agree() -> None:
    assert precondition(_request(("If-Match", '"a"')), body_etag='"a"').if_match == ('"a"',)
    assert precondition(_request(), body_etag="*").if_match == ("*",)
    with pytest.raises(InvalidRequestError) as refused:
        precondition(_request(("If-Match", '"a"')), body_etag='"b"')
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
