"""The text of API tokens."""

from __future__ import annotations

import hashlib
import re
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.security import api_tokens
from tests.support.credentials import parse


def test_a_token_has_a_prefix_a_body_and_a_checksum_and_is_known_again_by_its_digest() -> None:
    text = api_tokens.make()
    assert re.fullmatch(r"confplane_[0-9A-Za-z]{49}", text)
    assert parse(text.encode()) == api_tokens.digest(text) == hashlib.sha256(text.encode()).digest()


def test_tokens_differ_in_all_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {api_tokens.make() for _ in range(1_000)}
    assert len(texts) == 1_000
    made = []
    for number in (0, 1, 2**255, 2**256 - 1):
        monkeypatch.setattr(secrets, "token_bytes", lambda size, number=number: number.to_bytes(size))
        made.append(api_tokens.make())
    assert len(set(made)) == 4
    assert all(parse(text.encode()) for text in made)


def test_a_known_token() -> None:
    # The checksum stays as it is: scanners of others know it.
    text = "confplane_" + "0" * 43
    assert api_tokens._checksum(text.encode()) == "1GB6IJ"
    assert parse((text + "1GB6IJ").encode()) is not None


@given(place=st.integers(0, 58), letter=st.sampled_from("09AZaz_~ \x00"))
def test_a_mistyped_token_is_none(place: int, letter: str) -> None:
    text = api_tokens.make()
    other = text[:place] + letter + text[place + 1 :]
    assert (parse(other.encode()) is None) == (other != text)


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_other_texts_are_none(text: bytes) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("change", [str.lower, str.strip, lambda text: text + "\n", lambda text: text[:-1]])
def test_other_spellings_are_none(change: object) -> None:
    text = api_tokens.make()
    assert callable(change)
    spelled = change(text)
    assert (parse(spelled.encode()) is None) == (spelled != text)
