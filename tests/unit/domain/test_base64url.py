"""Base64url without padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.base64url import decode_base64url, encode_base64url


@given(st.binary(max_size=50))
def test_texts_are_read_back(data: bytes) -> None:
    assert decode_base64url(encode_base64url(data)) == data


def test_the_text_has_neither_padding_nor_characters_of_urls() -> None:
    assert encode_base64url(b"\xfb\xff\xbf>") == "-_-_Pg"


@pytest.mark.parametrize("text", ["Pg==", "Ph", "+/+/Pg", "P", "P g", "Pg\n", "Pé", "\ud800", "Pg=", "!"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="without padding"):
        decode_base64url(text)
