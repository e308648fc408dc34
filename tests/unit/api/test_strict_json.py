from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.api.clients import models
from confplane.api.manifests.models import PlanManifest
from confplane.api.problems import SHOWN, FindingsError
from confplane.api.routing import strict_json
from confplane.api.routing.bodies import validated
from confplane.domain.errors import BodyTooLargeError, InvalidRequestError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, ascii_only=st.booleans())
def test_sound_json_is_read_as_it_is(*, value: Any, ascii_only: bool) -> None:
    assert strict_json.loads(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(
    st.binary(max_size=60)
    | st.text(alphabet='[]{}",:0123456789.eE+-\\untrfalsdNI \0\ud800', max_size=60).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )
)
def test_nothing_else_gets_out_than_a_value_or_a_refusal(body: bytes) -> None:
    try:
        value = strict_json.loads(body)
    except InvalidRequestError:
        return
    # What is let in can be written again as UTF-8, so no later step fails on it.
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a":"\xff"}', "not UTF-8: invalid byte at offset 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":1,"a":1}', "member 'a' twice"),
        (b'[{"b":{"a":1,"\\u0061":2}}]', "member 'a' twice"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"[1e999]", "beyond the range"),
        (b"[-1e999]", "beyond the range"),
        (b"[" + b"9" * 401 + b"]", "401 digits"),
        (b'{"a":["\\u0000"]}', "NUL"),
        (b'{"\\u0000":1}', "NUL"),
        (b'["\\ud800"]', "lone surrogate"),
        (b'["\\udc00\\ud800"]', "lone surrogate"),
        (b'{"\\uDFFF":1}', "lone surrogate"),
        (b"[" * 34 + b"]" * 34, "deeper than 32"),
        (b'{"a":' * 34 + b"1" + b"}" * 34, "deeper than 32"),
        (b"[" * 200_000, "deeper than 32"),
        (b'{"a":' * 200_000, "deeper than 32"),
    ],
)
def test_what_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason.replace("(", r"\(")):
        strict_json.loads(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'["\\ud83d\\ude00"]', ["\U0001f600"]),
        (b'["\\\\u0000"]', ["\\u0000"]),
        (b'["\\\\ud800"]', ["\\ud800"]),
        (b"[" + b"9" * 400 + b"]", [int("9" * 400)]),
        (b"[-0.0, 1E2]", [-0.0, 100.0]),
        (b'{"a":{"a":1}}', {"a": {"a": 1}}),
        (b" \n\t[] ", []),
    ],
)
def test_what_is_let_in(body: bytes, value: Any) -> None:
    assert strict_json.loads(body) == value


def test_the_deepest_that_is_let_in() -> None:
    depth = strict_json.MAX_DEPTH
    assert strict_json.loads(b"[" * depth + b"]" * depth) is not None
    with pytest.raises(InvalidRequestError) as refused:
        strict_json.loads(b"[" * (depth + 1) + b"1" + b"]" * (depth + 1))
    assert refused.value.pointer == "/0" * (depth + 1)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert strict_json.loads(b"[" + b"[]," * 500 + b"{}]")[-1] == {}


def test_the_place_of_a_bad_text_is_named() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        strict_json.loads(b'{"a/b":[1,{"c~":"x\\u0000"}]}')
    assert refused.value.pointer == "/a~1b/1/c~0"


LARGE = {
    "entries": [
        {
            "entity": [{"entityType": "user", "entityName": f"user {number}"}],
            "ops": [{"key": "producer_byte_rate", "value": number}],
        }
        for number in range(5_000)
    ]
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(LARGE),
        json.dumps(LARGE, indent=1),
        '{"a": [], "b": {"c": [1, 2]}, "d": "x", "e": [[[]], {"f": null}]}',
        '{"a": [1, 1, {"b": 1, "b": 2}]}',
        '{"a": [1], "a": [2]}',
        '{"a": [1,]}',
        '{"a": [1 2]}',
        '{"a": [1',
        '{"a": [}',
        '{"a": [1]',
        '{"a": [1]} x',
        '{"a" [1]}',
        "{a: 1}",
        '{"a": [NaN]}',
        '{"a": ["\\ud800"]}',
        '{"a": ["\\u0000"]}',
        '{"\\u0000": []}',
        f'{{"a": [{"[" * 40}{"]" * 40}]}}',
        '{"a": [' + "1" * 500 + "]}",
    ],
    ids=lambda text: text[:40],
)
async def test_a_large_body_is_read_as_any_other(text: str) -> None:
    found: list[Any] = []
    for read in (lambda: strict_json.loads(text.encode()), lambda: strict_json.loads_large(text.encode())):
        try:
            value = read()
            found.append(await value if inspect.isawaitable(value) else value)
        except InvalidRequestError as error:
            found.append((error.detail, error.pointer))
    assert found[0] == found[1]


async def test_a_large_body_is_parsed_and_validated_in_slices() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    value = await strict_json.loads_large(json.dumps(LARGE).encode())
    parsed, turns = turns, 0
    body = await validated(models.AlterClientQuotas, value)
    other.cancel()
    assert body == models.AlterClientQuotas.model_validate(LARGE)
    assert min(parsed, turns) > 2, (parsed, turns)


async def test_what_is_wrong_in_a_large_body_is_reported_with_its_place() -> None:
    entries: list[Any] = [*LARGE["entries"], {"entity": 1}]
    with pytest.raises(FindingsError) as caught:
        await validated(models.AlterClientQuotas, {"entries": entries, "more": 1})
    places = [part["pointer"] for part in caught.value.parts]
    assert places == ["/entries/5000/entity", "/entries/5000/ops", "/more"]
    entries += [{} for _ in range(100)]
    with pytest.raises(FindingsError) as caught:
        await validated(models.AlterClientQuotas, {"entries": entries})
    assert len(caught.value.parts) == SHOWN


async def test_more_entities_than_a_manifest_may_have_are_too_large() -> None:
    entities = [{"id": f"topic=t{number}", "configs": {}} for number in range(PlanManifest.most_entries + 1)]
    with pytest.raises(BodyTooLargeError, match="100001 entities; at most 100000"):
        await validated(PlanManifest, {"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities})


@pytest.mark.parametrize("filler", [b"[],", b"{},", b"0,", b'{"":0},', b'"\\",",'])
async def test_a_body_of_more_items_than_are_taken_is_refused_before_it_is_parsed(filler: bytes) -> None:
    body = b'{"entries":[' + filler * 400_001
    with pytest.raises(BodyTooLargeError, match=rf"at most {strict_json.MAX_ITEMS} are taken"):
        await strict_json.loads_large(body)


@pytest.mark.parametrize(
    "body", [b'{"entries":[[' + b"[]," * 20_000 + b"0]]}", b'{"a":{"b":[' + b"0," * 30_000 + b"0]}}"]
)
async def test_one_entry_of_a_large_body_is_bounded_by_itself(body: bytes) -> None:
    with pytest.raises(BodyTooLargeError, match=rf"^The part /.* at most {strict_json.MAX_PART_ITEMS} are taken"):
        await strict_json.loads_large(body)
