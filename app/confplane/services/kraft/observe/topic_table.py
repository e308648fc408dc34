"""Keeps the table of a cluster's topics equal to the leader's polls, so that reports count topics without configs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confplane.services.cooperative_yielding import TimeSlice
from confplane.services.ports.observed_topics import TopicPoll, TopicRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.kraft.observe.poller import TopicList
    from confplane.services.ports.observed_topics import ObservedTopics

UNCHANGED: Final = timedelta(minutes=1)
"""The age at which the time of an unchanged table is written again."""
MOST: Final = 5_000
"""Differences in one statement, at most."""


class TopicTable:
    """The table of a cluster. Only the leader writes it; the version of the rows refuses a deposed leader's writes."""

    def __init__(self, cluster: str, topics: ObservedTopics) -> None:
        self._cluster = cluster
        self._topics = topics
        self._rows: TopicRows | None = None
        """The rows as this process wrote them last. None if another process may have written since."""
        self._polled_at = datetime.min.replace(tzinfo=UTC)
        """The time of the poll that was written last."""

    async def write(self, listed: TopicList) -> None:
        """Write the differences between the table and a list of all topics. Another process's write ends it early.

        Raises:
            UnavailableError: Postgres is unavailable. The next call continues.
        """
        poll = TopicPoll(datetime.fromtimestamp(listed.at_ms / 1000, UTC), len(listed.ids))
        rows = self._rows or await self._topics.load(self._cluster)
        # Unknown until the responses: a failed write may have been made.
        self._rows = None
        put = await _missing(listed.ids, rows.ids)
        gone = await _missing(rows.ids, listed.ids, by_name=True)
        if not put and not gone and poll.polled_at - self._polled_at < UNCHANGED:
            self._rows = rows
            return
        differences: list[tuple[str, str | None]] = [*put.items(), *((name, None) for name in gone)]
        version = rows.version
        for start in range(0, len(differences) or 1, MOST):
            some = dict(differences[start : start + MOST])
            last = poll if start + MOST >= len(differences) else None
            there = {name: topic_id for name, topic_id in some.items() if topic_id is not None}
            if not await self._topics.write(self._cluster, version, there, list(some.keys() - there.keys()), last):
                return
            version += 1
        self._rows, self._polled_at = TopicRows(version, listed.ids), poll.polled_at


async def _missing(of: Mapping[str, str], other: Mapping[str, str], *, by_name: bool = False) -> dict[str, str]:
    """Return the entries that another map lacks, or has with another id unless only names count."""
    if of == other:
        return {}
    found, time_slice = dict[str, str](), TimeSlice()
    for name, topic_id in of.items():
        if name not in other or (not by_name and other[name] != topic_id):
            found[name] = topic_id
        if time_slice.due:
            await time_slice.pause()
    return found
