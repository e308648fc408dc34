"""YAML with the scalars of JSON: what is read, what is refused and where, and that a dump is read as it was."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.errors import InvalidRequestError
from confplane.strict_yaml import Dumper, read_document, read_items


def read(text: bytes) -> Any:
    document = read_document(io.BytesIO(text), "FILE")
    return None if document is None else document.plain()


@pytest.mark.parametrize(
    "text",
    [
        *("null", "true", "false", "0", "-0", "7", "1.5", "1e6", "1E+3", "-2.5e-3", "12345678901"),
        *("-" + "9" * 308, "0." + "1" * 5000),
    ],
    ids=lambda text: text[:20],
)
def test_a_scalar_without_quotes_is_that_of_json(text: str) -> None:
    assert read(text.encode()) == json.loads(text)
    assert read(f"a: {text}".encode()) == {"a": json.loads(text)}
    assert read(f"'{text}'".encode()) == text


@pytest.mark.parametrize(
    "text",
    ["all", "a b", "10.0.0.1", "1.2.3", "--", "e6", "user=alice", "12ab", "nUll", "y", "0xg", "PLAINTEXT://:9092"],
)
def test_other_words_without_quotes_are_text(text: str) -> None:
    assert read(f"a: {text}".encode()) == {"a": text}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "010",
            "+1",
            "1_000",
            ".5",
            "5.",
            "089",
            "0x1F",
            "0o17",
            "0b11",
            "1:30",
            "1:30:00.5",
            "+1e6",
            ".inf",
            "-.Inf",
        ),
        *(".nan", "yes", "No", "on", "OFF", "True", "FALSE", "Null", "~", "2026-01-31", "2026-01-31T12:00:00Z"),
        *("=", "<<"),
    ],
)
def test_a_word_that_parsers_read_differently_is_refused_and_in_quotes_it_is_text(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(f"a: 1\nb:\n  - {text}".encode())
    assert str(refused.value).startswith("FILE, line 3, column 5: the value is not null, true, false or a number")
    assert text not in str(refused.value).partition(": ")[2]
    with pytest.raises(InvalidRequestError, match="line 1, column 2: a key must be text; put it in quotes"):
        read(f"{{{text}: 1}}".encode())
    assert read(f"'{text}': \"{text}\"".encode()) == {text: text}


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: 1\nb: 2\na: 3", (3, 1), "the key 'a' occurs twice: here and in line 1"),
        ("x: {a: 1, b: 2, 'a': 3}", (1, 17), "the key 'a' occurs twice"),
        ("- a:\n    b: 1\n    b: 1", (3, 5), "the key 'b' occurs twice: here and in line 2"),
        ("a: &x 1", (1, 4), "anchors are not supported"),
        ("a: &x {b: 1}", (1, 4), "anchors are not supported"),
        ("&x a: 1", (1, 1), "anchors are not supported"),
        ("- 1\n- *x", (2, 3), "aliases are not supported"),
        ("a: {<<: {b: 1}}", (1, 5), "a key must be text"),
        ("a: !!str 1", (1, 4), "tags are not supported"),
        ("a: ! 1", (1, 4), "tags are not supported"),
        ("a: !!python/name:os.system x", (1, 4), "tags are not supported"),
        ("!!map {a: 1}", (1, 1), "tags are not supported"),
        ("a: 1\n---\nb: 2", (2, 1), "a second document begins here"),
        ("--- 1\n--- 2", (2, 1), "a second document begins here"),
        ("---\n---\na: 1", (2, 1), "a second document begins here"),
        ("a:\nb: 1", (1, 3), "a value is missing; an empty text is written ''"),
        ("- 1\n-\n- 2", (2, 2), "a value is missing"),
        ("{a: , b: 1}", (1, 5), "a value is missing"),
        ("a: 1e999", (1, 4), "the number is too large"),
        ("a: -1e999", (1, 4), "the number is too large"),
        (f"a: {'9' * 309}", (1, 4), "the number is too large"),
        (f"a: {'9' * 5000}", (1, 4), "the number is too large"),
        ("? [a]\n: b", (1, 3), "a key must be text"),
        ("? {a: b}\n: b", (1, 3), "a key must be text"),
        ("5: a", (1, 1), "a key must be text"),
        ("[" * 60 + "]" * 60, (1, 51), "lists and maps are nested more than 50 deep"),
        ("a: [1", (2, 1), "did not find expected"),
        ("a:\n\tb", (2, 1), "found character that cannot start any token"),
        ("a: 's3cret", (1, 11), "found unexpected end of stream"),
        ("- \u00e4\u00e4: \x01", (1, 7), "control characters are not allowed"),
    ],
)
def test_other_yaml_is_refused_with_its_place(text: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(text.encode())
    assert str(refused.value).startswith(f"FILE, line {place[0]}, column {place[1]}: {reason}")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line"), [(b"\xff", 1), (b"a: 1\nb: \xc3(", 2), (b"- a\n" * 9_000 + b"- \xff", 9_001)]
)
def test_a_file_that_is_not_utf_8_is_refused_with_its_place(text: bytes, line: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^FILE, line {line}, column \d: the file is not UTF-8$"):
        read(text)


@pytest.mark.parametrize("text", [b"", b"# Nothing.\n", b"---\n", b"---\n...\n"])
def test_an_empty_file_has_no_document_and_is_not_a_list(text: bytes) -> None:
    assert read(text) is None
    with pytest.raises(InvalidRequestError, match="FILE, line 1, column 1: the file has no content"):
        list(read_items(io.BytesIO(text), "FILE"))


def test_members_have_the_place_of_their_key_and_items_their_own() -> None:
    items = list(read_items(io.BytesIO(b"- a:\n    b: [1,\n      x]\n-   c\n"), "FILE"))
    inner = items[0].value["a"].value["b"]
    assert [each.place for each in (*items, inner, *inner.value)] == [
        f"FILE, line {line}, column {column}" for line, column in [(1, 3), (4, 5), (2, 5), (2, 9), (3, 7)]
    ]


@pytest.mark.parametrize("text", [b"a: 1", b"text", b"{}"])
def test_a_list_is_required_where_items_are_read(text: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="FILE, line 1, column 1: the file is not a list"):
        list(read_items(io.BytesIO(text), "FILE"))


WORDS = st.sampled_from(["1e6", "0o17", "010", "yes", "~", "", "1_0", "089", "2026-01-31", "+5.", "<<", "a: b", "- a"])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), max_size=8) | WORDS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_dump_is_read_as_it_was(value: Any) -> None:
    found = read(yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False).encode())
    assert found == value
    assert json.dumps(found) == json.dumps(value)
