"""Values of ``--add-config``: the results are those of the expressions of Kafka's tool, run by Java on the same texts."""

from __future__ import annotations

import pytest

from confplane.cli.remote.configs import pairs
from confplane.domain.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b,c=[d,e ,f],g=[h,i]", {"a": "b", "c": "d,e ,f", "g": "h,i"}),
        ("a=b,c=,d=e", {"a": "b", "c": "", "d": "e"}),
        ("a=[password=1234=abc]", {"a": "password=1234=abc"}),
        ("a=[b", {"a": "b"}),
        ("a=[[b],c]", {"a": "b,c"}),
        ("a=b,", {"a": "b"}),
        (",", {}),
        (" a = b , c = d ", {"a": "b", "c": "d"}),
        ("a=1,a=2", {"a": "2"}),
        ("a=\u00a0b\u00a0", {"a": "\u00a0b\u00a0"}),
    ],
)
def test_texts_that_are_read(text: str, found: dict[str, str]) -> None:
    assert pairs.of_text(text) == found


@pytest.mark.parametrize("text", ["", "a", "a=b=c", "a==", "a,=b", "a=[b,c,d=e", "a=b]", ",a=b", "a=hidden,hidden"])
def test_texts_without_the_form_are_refused_by_the_number_of_the_config(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"config [12] is not of the form key=value") as raised:
        pairs.of_text(text)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("text", ["a;c=b", "ä=b", "a b=c", "a[b]=c"])
def test_keys_with_other_characters_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="a key has the character"):
        pairs.of_text(text)
