"""The sizes of thread pools fit to each broker's own file; a broker whose file is not known is named."""

from __future__ import annotations

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.services.kraft.apply.dry_run import check_restart
from tests.support.kafka_double import KafkaDouble

DEFAULT, BROKER = Entity.of(broker=None), Entity.of(broker="1")


async def _check(kafka: KafkaDouble, entity: Entity, values: dict[str, str | None]) -> str | None:
    return await check_restart(kafka, entity, values, 0.0)


@pytest.mark.parametrize("key", ["background.threads", "log.cleaner.threads", "remote.log.reader.threads"])
@pytest.mark.parametrize(
    ("value", "fits"), [("1", False), ("2", True), ("4", True), ("8", True), ("9", False), ("x", True), (None, True)]
)
async def test_a_size_is_between_half_and_double_of_the_file(key: str, value: str | None, *, fits: bool) -> None:
    kafka = KafkaDouble()
    kafka.static = {key: "4"}
    if fits:
        assert await _check(kafka, DEFAULT, {key: value}) is None
        return
    with pytest.raises(
        InvalidRequestError, match=f"{key} can be between 2 and 8 on broker 1, half and double of the 4"
    ):
        await _check(kafka, BROKER, {key: value})


async def test_other_keys_and_entities_ask_nothing() -> None:
    kafka = KafkaDouble()
    kafka.down = "No broker answers"
    assert await _check(kafka, DEFAULT, {"log.retention.ms": "5", "background.threads": None}) is None
    assert await _check(kafka, Entity.of(topic="t"), {"background.threads": "5"}) is None


async def test_a_broker_whose_file_is_not_known_is_a_warning() -> None:
    kafka = KafkaDouble()
    kafka.away = True
    warning = await _check(kafka, DEFAULT, {"background.threads": "5"})
    assert "whether broker 1 will accept background.threads at the next start: it does not answer" in (warning or "")
    kafka.down = "No broker answers"
    warning = await _check(kafka, DEFAULT, {"background.threads": "5"})
    assert "whether each broker will accept" in (warning or "")
