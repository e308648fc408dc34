"""The generated messages beside their definitions in Kafka's jars, and beside kio, another implementation."""

from __future__ import annotations

import asyncio
import io
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from kio.serial import entity_reader, entity_writer

from confplane.kraft.wire import messages, quotas
from confplane.kraft.wire.message import run, run_in_slices
from confplane.kraft.wire.messages.quotas import (
    DescribeClientQuotasResponseEntityData,
    DescribeClientQuotasResponseEntryData,
    ValueData,
)
from tests.catalog.kafka_jars import ToolError
from tests.kraft.generate import FOLDER, generate
from tests.kraft.samples import ALL, kio_type, leaves, sample

if TYPE_CHECKING:
    from confplane.kraft.wire.message import Message

SAMPLES = 12


@pytest.mark.interop
def test_the_files_are_what_kafkas_definitions_say() -> None:
    try:
        generated = generate()
    except ToolError as error:
        if os.environ.get("CONFPLANE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(f"the messages can't be generated here: {error}")
    assert {path: path.read_text() for path in FOLDER.glob("*.py")} == generated


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
        assert await run_in_slices(message.steps(data, version, 0)) == decoded
        if version == message.VERSIONS[-1]:  # all fields are there, in the same order
            assert leaves(decoded) == leaves(value)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_in_one_pass_are_those_of_the_message(version: int) -> None:
    theirs = kio_type("DescribeClientQuotas", "response", version)
    chooser = random.Random(version)  # noqa: S311 - seeded
    for _ in range(200):
        data = encoded(sample(theirs, chooser))
        message = messages.DescribeClientQuotasResponse.decode(b"12345" + data, version, 5)
        answer = run(quotas.steps(b"12345" + data, version, 5))
        assert (answer.error_code, answer.error_message) == (message.error_code, message.error_message)
        assert [(each.entity, each.values) for each in answer.entries] == [
            (
                tuple((part.entity_type, part.entity_name) for part in each.entity),
                {value.key: value.value for value in each.values},
            )
            for each in message.entries or ()
        ]


async def test_large_answers_yield_to_other_tasks() -> None:
    entry = DescribeClientQuotasResponseEntryData(
        (DescribeClientQuotasResponseEntityData("user", "u" * 20),), (ValueData("producer_byte_rate", 1.5),)
    )
    data = messages.DescribeClientQuotasResponse(entries=(entry,) * 20_000).encode(1)
    turns, done = 0, asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    answer = await run_in_slices(quotas.steps(data, 1, 0))
    done.set()
    await task
    assert len(answer.entries) == 20_000
    assert turns > 5
