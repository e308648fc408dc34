"""Pages of the metadata log: the ids of topics beside the records of their configs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from confplane.domain.entities import Entity
from confplane.kraft.entity_converter import EntityConverter
from confplane.kraft.log_pages import LogPages, kafka_id
from confplane.kraft.metadata_log import LogPart, LogRecord
from confplane.kraft.wire.messages import ConfigRecord, RemoveTopicRecord, TopicRecord
from confplane.kraft_wiring import rules_of
from confplane.services.ports.kafka import LogPage
from tests.support.catalogs import NEWEST

if TYPE_CHECKING:
    from confplane.kraft.wire.message import Message

SIGHTS = EntityConverter(rules_of(lambda: NEWEST))
EARLIER, LATER = UUID(int=1), UUID(int=2)
TOPIC, GROUP = 2, 32
"""Types of resources."""


def part(*messages: Message) -> LogPart:
    records = tuple(LogRecord(offset, 1_000 + offset, each) for offset, each in enumerate(messages))
    return LogPart(records, len(records) - 1)


def config(value: str | None = "1", kind: int = TOPIC) -> ConfigRecord:
    return ConfigRecord(kind, "t", "retention.ms", value)


async def test_configs_of_a_topic_have_the_id_of_the_topic_that_was_made() -> None:
    pages = LogPages(SIGHTS, {})
    page = await pages.page(part(TopicRecord("t", EARLIER), config(), config("2", kind=GROUP)))
    made, own, group = page.changes
    assert (made.key, made.topic_id) == (None, kafka_id(EARLIER))
    assert (own.entity, own.key, own.topic_id) == (Entity.of(topic="t"), "retention.ms", kafka_id(EARLIER))
    assert (group.entity, group.topic_id) == (Entity.of(group="t"), None)
    page = await pages.page(part(RemoveTopicRecord(EARLIER), TopicRecord("t", LATER), config()))
    assert [each.topic_id for each in page.changes] == [kafka_id(EARLIER), kafka_id(LATER), kafka_id(LATER)]


async def test_a_part_that_a_snapshot_replaced_is_a_page_without_changes() -> None:
    assert await LogPages(SIGHTS, {}).page(LogPart((), 41, reset=True)) == LogPage(41, reset=True)


async def test_an_id_of_the_list_of_topics_may_be_that_of_a_later_topic() -> None:
    pages = LogPages(SIGHTS, {"t": kafka_id(LATER)})
    page = await pages.page(part(config(), TopicRecord("t", LATER), config()))
    assert [each.topic_id for each in page.changes] == [None, kafka_id(LATER), kafka_id(LATER)]


async def test_a_topic_of_an_unknown_name_asks_for_a_poll_after_the_other_changes() -> None:
    page = await LogPages(SIGHTS, {}).page(
        part(config(kind=GROUP), RemoveTopicRecord(EARLIER), config("2", kind=GROUP))
    )
    assert ([each.value for each in page.changes], page.reset, page.incomplete) == (["1", "2"], False, True)
