"""Files of ``confplane load``: their reading in pieces, and the reasons for which a file is refused."""

from __future__ import annotations

import io

import pytest

from confplane.cli.remote.load_file import pieces
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName


def test_entities_have_their_lines_values_and_secrets() -> None:
    text = (
        b"---\n# A comment.\n\n- id: user=alice\n  client-quotas: {producer_byte_rate: 1, request_percentage: 0.5}\n"
        b"  # Another.\n\n# One more.\n-\n  id: broker\n  configs:\n    a: ''\n    b: null\n\r\n- id: topic=t\n"
    )
    [piece] = pieces(io.BytesIO(text))
    assert [(each.line, each.entity.id, each.values, each.secrets) for each in piece] == [
        (4, "user=alice", {FacetName.CLIENT_QUOTAS: {"producer_byte_rate": 1, "request_percentage": 0.5}}, 0),
        (9, "broker", {FacetName.CONFIGS: {"a": ""}}, 1),
        (15, "topic=t", {}, 0),
    ]


@pytest.mark.parametrize("text", [b"", b"[]\n", b"# Nothing.\n---\n"])
def test_a_file_may_have_no_entity(text: bytes) -> None:
    assert list(pieces(io.BytesIO(text))) == []


def test_a_piece_has_a_bounded_number_of_entities_and_bytes() -> None:
    stream = io.BytesIO(b"".join(b"- id: user=u%d\n" % number for number in range(1_201)))
    assert [len(piece) for piece in pieces(stream)] == [500, 500, 201]
    assert [len(piece) for piece in pieces(stream, most_bytes=40)][:2] == [3, 3]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b", "line 1: an entity begins with '- '"),
        ("- id: user=a\nb: c", "line 2: an entity begins with '- '"),
        ("[{id: user=a}]", "line 1: an entity begins with '- '"),
        ("- user=a", "line 1: an entity has an id"),
        ("- id: 5", "line 1: an entity has an id"),
        ("- id: user=a b", "line 1: 'user=a b' is not an entity id"),
        ("- id: user=a\n  configs: {a: b}", "line 1: user=a has client-quotas and client-configs"),
        ("- id: topic=a\n  client-quotas: {a: 1}", "line 1: topic=a has configs, each with keys and values"),
        ("- id: topic=a\n  configs: [a]", "line 1: topic=a has configs"),
        ("- id: topic=a\n  configs: {1: a}", "line 1: the key 1 is not text"),
        ("\n- id: topic=a\n  configs: {a: 5}", "line 2: the value of a is not text; put it in quotes"),
        ("- id: user=a\n  client-quotas: {a: '1'}", "line 1: the value of a is not a number"),
        ("- id: user=a\n  client-quotas: {a: null}", "line 1: the value of a is not a number"),
        ("- id: user=a\n  client-quotas: {a: .nan}", "line 1: the value of a is not a number"),
        ("- id: user=a\n  client-quotas: {a: yes}", "line 1: the value of a is not a number"),
        ("\n- id: user=a\n  client-quotas: {a", "line 4: did not find"),
        ("- id: topic=a\n  configs: {a: !!python/name:os.system x}", "line 2: could not determine a constructor"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        list(pieces(io.BytesIO(text.encode())))
    assert str(refused.value).startswith(reason)


def test_a_file_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="line 2: it is not UTF-8"):
        list(pieces(io.BytesIO(b"\n- \xff")))


def test_a_reason_shows_no_value() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        list(pieces(io.BytesIO(b"- id: broker=1\n  configs: {password: 's3cret\n")))
    assert "s3cret" not in str(refused.value)
