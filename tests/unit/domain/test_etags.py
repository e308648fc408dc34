from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from confplane.api import formats
from confplane.domain.errors import PreconditionFailedError, WriteOutcome
from confplane.domain.etags import Precondition, etag_of


def contents(letters: str) -> st.SearchStrategy[dict[str, object]]:
    """The possible contents of an entity with keys of these letters."""
    values = st.text(max_size=6) | st.integers() | st.floats(0, 1e9)
    return st.dictionaries(st.text(letters, min_size=1, max_size=4), values, max_size=4).map(
        lambda content: dict(sorted(content.items()))
    )


CONTENT = contents("abc._=\n'\"")
PLAIN = contents("abc._'\"")


@given(PLAIN, PLAIN)
def test_contents_and_etags_are_equal_together(one: dict[str, str], other: dict[str, str]) -> None:
    # Numbers that are equal are shown alike, but come from one decoder, which never gives 1 and 1.0 for one thing.
    assume(repr(one) == repr(other) or one != other)
    assert (etag_of(one) == etag_of(other)) is (one == other)


@given(CONTENT)
def test_an_etag_is_one_and_stays(content: dict[str, str]) -> None:
    etag = etag_of(content)
    if not content:
        assert etag is None
        return
    assert etag is not None
    assert re.fullmatch(formats.ETAG, etag)
    assert etag == etag_of(dict(content))


def test_an_etag_that_clients_hold_keeps_its_meaning() -> None:
    """A change of this value makes every client's If-Match fail once after an upgrade: say so in the changelog."""
    assert etag_of({"producer_byte_rate": 1024}) == '"dbafb26b15c6c9bf4c5337e6"'


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "etag", "holds"),
    [
        (None, None, None, True),
        (None, None, '"a"', True),
        (('"a"',), None, '"a"', True),
        (('"b"', '"a"'), None, '"a"', True),
        (('"b"',), None, '"a"', False),
        (('W/"a"',), None, '"a"', False),
        (("*",), None, '"a"', True),
        (("*",), None, None, False),
        (('"a"',), None, None, False),
        (None, ("*",), None, True),
        (None, ("*",), '"a"', False),
        (None, ('"a"',), '"a"', False),
        (None, ('"b"',), '"a"', True),
        (None, ('"a"',), None, True),
        (('"a"',), ('"b"',), '"a"', True),
        (('"a"',), ('"a"',), '"a"', False),
    ],
)
def test_preconditions(
    if_match: tuple[str, ...] | None, if_none_match: tuple[str, ...] | None, etag: str | None, *, holds: bool
) -> None:
    precondition = Precondition(if_match, if_none_match, pointer="/entries/3/etag")
    if holds:
        precondition.check(etag)
        return
    with pytest.raises(PreconditionFailedError) as failed:
        precondition.check(etag)
    assert failed.value.etag == etag
    assert failed.value.outcome is WriteOutcome.NOT_APPLIED
    matches = if_match is None or etag in if_match
    assert failed.value.pointer == ("If-None-Match" if matches else "/entries/3/etag")
