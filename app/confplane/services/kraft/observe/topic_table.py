"""Keeps the table of a cluster's topics equal to the leader's polls, so that reports count topics without configs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain
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
        differences = await _differences(rows.ids, listed.ids)
        if not differences and poll.polled_at - self._polled_at < UNCHANGED:
            self._rows = rows
            return
        version, names = rows.version, list(differences)
        for start in range(0, len(names) or 1, MOST):
            some = {name: differences[name] for name in names[start : start + MOST]}
            there = {name: topic_id for name, topic_id in some.items() if topic_id is not None}
            last = poll if start + MOST >= len(names) else None
            if not await self._topics.write(self._cluster, version, there, list(some.keys() - there.keys()), last):
                return
            version += 1
        self._rows, self._polled_at = TopicRows(version, listed.ids), poll.polled_at


async def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """Return the names with other ids than before, each with its id; None for a name that is gone."""
    found, time_slice = dict[str, str | None](), TimeSlice()
    for name in chain(now, before) if now != before else ():
        if now.get(name) != before.get(name):
            found[name] = now.get(name)
        if time_slice.due:
            await time_slice.pause()
    return found
