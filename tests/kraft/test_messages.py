"""The generated messages beside their definitions in Kafka's jars, and beside kio, another implementation."""

from __future__ import annotations

import io
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from kio.serial import entity_reader, entity_writer

from app.kraft.wire import messages
from tests.catalog.kafka_jars import ToolError
from tests.kraft.generate import FOLDER, generate
from tests.kraft.samples import ALL, kio_type, leaves, sample

if TYPE_CHECKING:
    from app.kraft.wire.codec import Message

SAMPLES = 12


@pytest.mark.interop
def test_the_files_are_what_kafkas_definitions_say() -> None:
    try:
        generated = generate()
    except ToolError as error:
        if os.environ.get("CONFPLANE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(f"the messages can't be generated here: {error}")
    assert {path.name: path.read_text() for path in FOLDER.glob("*.py")} == generated


def ours(name: str, kind: str) -> type[Message]:
    found: type[Message] = getattr(messages, f"{name}{kind.capitalize()}")
    return found


def encoded(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


@pytest.mark.parametrize(("name", "kind", "version"), ALL)
async def test_bytes_are_those_of_kio(name: str, kind: str, version: int) -> None:
    message, theirs = ours(name, kind), kio_type(name, kind, version)
    chooser = random.Random(f"{name} {kind} {version}")  # noqa: S311 - seeded
    for _ in range(SAMPLES):
        value = sample(theirs, chooser)
        data = encoded(value)
        decoded = message.decode(data, version)
        assert decoded.encode(version) == data
        assert entity_reader(theirs)(decoded.encode(version), 0)[0] == value
        assert message.decode(b"before" + data, version, at=6) == decoded
        assert await message.decode_in_slices(data, version) == decoded
        if version == message.VERSIONS[-1]:  # all fields are there, in the same order
            assert leaves(decoded) == leaves(value)
