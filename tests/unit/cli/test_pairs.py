"""Values of ``--add-config``: the results are those of the expressions of Kafka's tool, run by Java on the same texts.

Brackets inside values are the exception: Kafka's tool removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.cli.remote.configs import arguments
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b,c=[d,e ,f],g=[h,i]", {"a": "b", "c": "d,e ,f", "g": "h,i"}),
        ("a=b,c=,d=e", {"a": "b", "c": "", "d": "e"}),
        ("a=[password=1234=abc]", {"a": "password=1234=abc"}),
        ("a=ab[cd", {"a": "ab[cd"}),
        ("a=ab[cd,b=c", {"a": "ab[cd", "b": "c"}),
        ("a=x[0]y,b=x[0]", {"a": "x[0]y", "b": "x[0]"}),
        ("a=[[b],c]", {"a": "[b],c"}),
        ("a=[x[0-9]+]", {"a": "x[0-9]+"}),
        ("a=[ b ]", {"a": "b"}),
        ("a=[]", {"a": ""}),
        ("a=b,", {"a": "b"}),
        (",", {}),
        (" a = b , c = d ", {"a": "b", "c": "d"}),
        ("a=\u00a0b\u00a0", {"a": "\u00a0b\u00a0"}),
    ],
)
def test_texts_that_are_read(text: str, found: dict[str, str]) -> None:
    assert arguments.pairs_of_text(text) == found


@pytest.mark.parametrize("text", ["", "a", "a=b=c", "a==", "a,=b", "a=[b,c,d=e", "a=b]", ",a=b", "a=hidden,hidden"])
def test_texts_without_the_form_are_refused_by_the_number_of_the_config(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"config [12] is not of the form key=value") as raised:
        arguments.pairs_of_text(text)
    assert "hidden" not in str(raised.value)
    assert "--add-config-file" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "a=[hidden",
        "a=[hid[den]",
        "a=[hidden]]",
        "a=[hid],[den]",
        "a=hid[,]den",
        "a=hid[den,b=c]d",
        "b=1,a=hid[,]den",
        "a=][hidden",
    ],
)
def test_ambiguous_brackets_are_refused_with_the_option_that_takes_every_value(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="--add-config-file FILE takes every value") as raised:
        arguments.pairs_of_text(text)
    assert "hid" not in str(raised.value)


@pytest.mark.parametrize("text", ["a=1,a=2", "a=1,b=2, a =1", "a=[1,2],a="])
def test_a_key_that_is_given_twice_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"--add-config: config [23] has the key of an earlier one"):
        arguments.pairs_of_text(text)
    (tmp_path / "file").write_text("a=1\n# b\na:2\n")
    with pytest.raises(InvalidRequestError, match=r"--add-config-file: .*: config 2 has the key of an earlier one"):
        arguments.pairs_of_file(str(tmp_path / "file"))


@pytest.mark.parametrize("text", ["a;c=b", "ä=b", "a b=c", "a[b]=c"])
def test_keys_with_other_characters_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="a key has the character"):
        arguments.pairs_of_text(text)
