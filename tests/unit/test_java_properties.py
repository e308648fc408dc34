"""Java's properties format: what brokers make of a server.properties, and what is written for them."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane import properties
from confplane.properties import PropertiesError

if TYPE_CHECKING:
    from pathlib import Path

SERVER = b"""\
# The file of a broker.
! Another kind of comment.
broker.id=1
log.dirs = /data/a,\\
           /data/b
num.io.threads : 8  \r
num.network.threads\t3
   listeners=PLAINTEXT://:9092\r\n\
path=C:\\\\kafka\\tlogs
a\\ key\\=with\\:marks=x=y:z
empty
caf\xe9=\xe9\\u00e9\\uD83D\\uDE00
num.io.threads=16
#num.io.threads=32
last=\\
"""


def test_a_file_is_read_as_java_reads_it() -> None:
    assert properties.read(SERVER) == {
        "broker.id": "1",
        "log.dirs": "/data/a,/data/b",
        "num.io.threads": "16",
        "num.network.threads": "3",
        "listeners": "PLAINTEXT://:9092",
        "path": "C:\\kafka\tlogs",
        "a key=with:marks": "x=y:z",
        "empty": "",
        "caf\u00e9": "\u00e9\u00e9\U0001f600",
        "last": "",
    }


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"\n\r\n # x\n", {}),
        (b"a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a=  1  ", {"a": "1  "}),
        (b"a=1\\\n\\\n  2\n", {"a": "12"}),
        (b"a=1\\\n# 2\n", {"a": "1# 2"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a\x0c=\x0c1", {"a": "1"}),
        (b"a=\\q\\'\\\"", {"a": "q'\""}),
        # These end no line in Java, whatever Python takes for one; and a file in UTF-8 is read as Latin-1.
        (b"a=1\x85\x0b\x1c2", {"a": "1\x85\x0b\x1c2"}),
        ("a=\u00e9".encode(), {"a": "\u00c3\u00a9"}),
    ],
)
def test_corners(data: bytes, expected: dict[str, str]) -> None:
    assert properties.read(data) == expected


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))))
def test_what_is_written_reads_back(values: dict[str, str]) -> None:
    text = properties.write(values)
    assert text.isascii()
    assert text.count("\n") == len(values)
    assert properties.read(text.encode()) == values
    assert list(properties.read(text.encode())) == list(values)


def test_what_is_written_is_as_java_writes_it() -> None:
    assert properties.write({"a b": " x y ", "p:q": "1=2#!", "\u00e9": "\n\t\\\U0001f600"}) == (
        "a\\ b=\\ x y \np\\:q=1\\=2\\#\\!\n\\u00e9=\\n\\t\\\\\\ud83d\\ude00\n"
    )


@pytest.mark.parametrize("escape", [b"\\u", b"\\u12", b"\\uplan", b"\\u+123"])
def test_a_broken_escape_is_refused_and_not_shown(escape: bytes, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"broker.id=1\nssl.key.password=planted-secret" + escape + b"ted-secret\n")
    with pytest.raises(PropertiesError) as caught:
        properties.read_file(path, "clusters.a.server_properties.1")
    assert str(caught.value) == (
        f"clusters.a.server_properties.1: {path} is not a properties file: it has a \\u that is not followed by four "
        "hexadecimal digits"
    )
    assert caught.value.problems == (str(caught.value),)
    assert caught.value.__context__ is None
    shown = "".join(traceback.format_exception(caught.value))
    assert "planted" not in shown
    assert "ted-secret" not in shown


def test_a_file_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    for path, problem in {
        tmp_path / "none": "can't be read: No such file or directory",
        tmp_path: "can't be read: Is a directory",
    }.items():
        with pytest.raises(PropertiesError) as caught:
            properties.read_file(path, "setting")
        assert str(caught.value) == f"setting: {path} {problem}"


def test_a_file_of_another_kind_is_not_taken_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PropertiesError, match="above 4 MB"):
        properties.read_file(path, "setting")
