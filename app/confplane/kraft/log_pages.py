"""The metadata log as the services know it: pages of changes, created from the records that the controllers wrote.

A record of a topic's removal contains only the topic's id. Names are known from the records of topics, and from a list
of all topics at the beginning. If a name is not known, the page is incomplete, and a poll must follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.base64url import encode_base64url
from confplane.domain.config_resources import RESOURCE_ENTITY_TYPES
from confplane.domain.entities import Entity
from confplane.kraft.entity_converter import spelled
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.messages import ClientQuotaRecord, ConfigRecord, RemoveTopicRecord, TopicRecord
from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.ports.kafka import LogChange, LogPage, Unmanaged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from confplane.kraft.entity_converter import EntityConverter
    from confplane.kraft.metadata_log import LogPart, LogRecord


def kafka_id(given: UUID) -> str:
    """Return an id as Kafka spells it (``Uuid.toString``)."""
    return encode_base64url(given.bytes)


class LogPages:
    """Creates the pages of one iteration over the log.

    Args:
        converter: The conversion of names and values.
        topics: The ids of the cluster's topics by name, as of an offset at the beginning of the log or later.
    """

    def __init__(self, converter: EntityConverter, topics: Mapping[str, str]) -> None:
        self._converter = converter
        self._names = {topic_id: name for name, topic_id in topics.items()}
        # Only for topics whose creation this iteration saw: an id of the list may be that of a later topic with the
        # same name.
        self._ids: dict[str, str] = {}

    async def page(self, part: LogPart) -> LogPage:
        """Return the page of a part of the log."""
        changes: list[LogChange] = []
        incomplete = False
        time_slice = TimeSlice()
        for record in part.records:
            if isinstance(record.message, RemoveTopicRecord) and kafka_id(record.message.topic_id) not in self._names:
                incomplete = True
                continue
            change = self._change(record)
            if change is not None:
                changes.append(change)
            if time_slice.due:
                await time_slice.pause()
        return LogPage(part.after, tuple(changes), part.reset, incomplete)

    def _change(self, record: LogRecord) -> LogChange | None:
        match record.message:
            case TopicRecord() as topic:
                topic_id = kafka_id(topic.topic_id)
                self._names[topic_id], self._ids[topic.name] = topic.name, topic_id
                found = self._converter.entity(Resource(ConfigResourceType.TOPIC, topic.name))
                return _made(record, found, None, "", topic_id)
            case RemoveTopicRecord() as removed:
                topic_id = kafka_id(removed.topic_id)
                name = self._names.pop(topic_id)
                if self._ids.get(name) == topic_id:
                    del self._ids[name]
                found = self._converter.entity(Resource(ConfigResourceType.TOPIC, name))
                return _made(record, found, None, None, topic_id)
            case ConfigRecord() as config if config.resource_type in RESOURCE_ENTITY_TYPES:
                found = self._converter.entity(Resource(ConfigResourceType(config.resource_type), config.resource_name))
                of_topic = config.resource_type == ConfigResourceType.TOPIC
                known = self._ids.get(config.resource_name) if of_topic else None
                return _made(record, found, config.name, config.value, known)
            case ClientQuotaRecord() as quota:
                found = self._converter.quota_entity([(each.entity_type, each.entity_name) for each in quota.entity])
                value = None
                if isinstance(found, Entity) and not quota.remove:
                    value = spelled(found, quota.key, quota.value)
                return _made(record, found, quota.key, value)
        return None


def _made(
    record: LogRecord, found: Entity | Unmanaged, key: str | None, value: str | None, topic_id: str | None = None
) -> LogChange:
    if isinstance(found, Unmanaged):
        return LogChange(record.offset, record.timestamp, None, key, unmanaged=found)
    return LogChange(record.offset, record.timestamp, found, key, value, topic_id)
