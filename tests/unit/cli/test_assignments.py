"""Keys and values of ``confplane set``."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from confplane.cli.remote.change_commands import values_of
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path


def test_values_stand_in_words_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("two\nlines\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("asked for\r\nthe rest\n"))
    words = ["a=1", "b=x=y,z", "c=", "d=@@text", f"e=@{tmp_path / 'secret'}", "f", "g=@-"]
    assert values_of(words) == {
        "a": "1",
        "b": "x=y,z",
        "c": "",
        "d": "@text",
        "e": "two\nlines",
        "f": "asked for",
        "g": "the rest",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["=geheim"], "Argument 1 after the entity is not of the form KEY=VALUE"),
        (["a=1", "ge heim"], "Argument 2"),
        (["a=geheim", "a=geheim"], "a is given twice"),
        (["a=@-", "b=@-"], "a and b are both to come from standard input; use KEY=@FILE for one of them"),
        (["a=@/nowhere/file"], "a: the file /nowhere/file can't be read: No such file"),
        (["a=@{binary}"], "is not text"),
        (["geheim"], "Argument 1 after the entity is not KEY=VALUE. Write KEY= for an empty value."),
    ],
)
def test_refusals_name_the_argument_and_no_value(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(InvalidRequestError, match=said) as raised:
        values_of([word.format(binary=tmp_path / "binary") for word in words])
    assert "heim" not in str(raised.value)
