"""The table of a cluster's topics: it equals each list, whatever differs and whoever else writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from confplane.audit import Database, PostgresObservedTopics
from confplane.services.kraft.observe import topic_table
from confplane.services.kraft.observe.poller import TopicList
from confplane.services.kraft.observe.topic_table import UNCHANGED, TopicTable
from confplane.services.ports.observed_topics import OUTDATED, TopicPoll

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER = "payments"
NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


def listed(ids: Mapping[str, str], after: timedelta = timedelta()) -> TopicList:
    return TopicList(ids, sorted(ids), 7, round((NOON + after).timestamp() * 1000))


@pytest.fixture
def topics(pool: Database) -> PostgresObservedTopics:
    return PostgresObservedTopics(pool)


@pytest.fixture
def statements_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two differences in a statement, so that a few topics need several."""
    monkeypatch.setattr(topic_table, "MOST", 2)


async def rows(topics: PostgresObservedTopics) -> dict[str, str]:
    return dict((await topics.load(CLUSTER)).ids)


@pytest.mark.usefixtures("statements_of_two")
async def test_the_table_equals_each_list(topics: PostgresObservedTopics) -> None:
    table = TopicTable(CLUSTER, topics)
    lists: list[dict[str, str]] = [
        {},
        {f"t{number}": f"id-{number}" for number in range(5)},
        {"t0": "id-0", "t1": "again", "t4": "id-4", "T4": "other"},
        {"Ä": "id"},
        {},
    ]
    assert await topics.poll(CLUSTER) is None
    for minute, ids in enumerate(lists):
        after = timedelta(minutes=minute)
        await table.write(listed(ids, after))
        assert await rows(topics) == ids
        assert await topics.poll(CLUSTER) == TopicPoll(NOON + after, len(ids))
    assert await topics.load("other") != await topics.load(CLUSTER)


async def test_an_unchanged_list_is_written_once_a_minute(topics: PostgresObservedTopics) -> None:
    table, ids = TopicTable(CLUSTER, topics), {"t": "id"}
    for after in (timedelta(), UNCHANGED - timedelta(seconds=1), UNCHANGED):
        await table.write(listed(ids, after))
    assert (await topics.load(CLUSTER)).version == 2
    assert await topics.poll(CLUSTER) == TopicPoll(NOON + UNCHANGED, 1)


@pytest.mark.usefixtures("statements_of_two")
async def test_another_leader_ends_a_write(topics: PostgresObservedTopics) -> None:
    deposed, leader = TopicTable(CLUSTER, topics), TopicTable(CLUSTER, topics)
    await deposed.write(listed({"t": "id"}))
    await leader.write(listed({"t": "id", "new": "n"}, timedelta(minutes=1)))
    await deposed.write(listed({f"old{number}": "id" for number in range(5)}, timedelta(seconds=30)))
    assert await rows(topics) == {"t": "id", "new": "n"}
    # The next list is compared with the rows as they are.
    await deposed.write(listed({"new": "n"}, timedelta(minutes=2)))
    assert await rows(topics) == {"new": "n"}


@pytest.mark.usefixtures("statements_of_two")
async def test_a_table_without_its_last_differences_keeps_its_time(topics: PostgresObservedTopics) -> None:
    await TopicTable(CLUSTER, topics).write(listed({"t": "id"}))
    version = (await topics.load(CLUSTER)).version
    assert await topics.write(CLUSTER, version, {"a": "1", "b": "2"}, [], None)
    assert await topics.poll(CLUSTER) == TopicPoll(NOON, 1)
    # The process that wrote them ended; the next leader continues.
    await TopicTable(CLUSTER, topics).write(listed({"a": "1", "c": "3"}, timedelta(minutes=1)))
    assert await rows(topics) == {"a": "1", "c": "3"}


async def test_a_large_table_is_read_in_pages(topics: PostgresObservedTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {f"t{number:03}": f"id-{number}" for number in range(21)}
    await TopicTable(CLUSTER, topics).write(listed(ids))
    for page in (1, 7, 20, 21, 22):
        monkeypatch.setattr("confplane.audit.observed_topics.PAGE", page)
        assert await rows(topics) == ids


def test_a_poll_is_outdated_after_an_hour() -> None:
    poll = TopicPoll(NOON, 3)
    assert not poll.is_outdated(NOON + OUTDATED)
    assert poll.is_outdated(NOON + OUTDATED + timedelta(microseconds=1))
