"""The port of the table of topics: the topics of each Kafka cluster without ZooKeeper, with or without configs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

OUTDATED: Final = timedelta(hours=1)
"""The age above which the table is outdated: reports based on it say so."""


@dataclass(frozen=True, slots=True)
class TopicPoll:
    """The poll that the table is from."""

    polled_at: datetime
    """The time of the poll, aware."""
    topics: int
    """The number of topics."""

    def is_outdated(self, now: datetime) -> bool:
        """Return True if the table is outdated at a time."""
        return now - self.polled_at > OUTDATED

    def as_json(self, now: datetime) -> dict[str, Any]:
        """Return the poll as answers have it at a time."""
        return {"count": self.topics, "polledAt": rfc3339(self.polled_at), "outdated": self.is_outdated(now)}


@dataclass(frozen=True, slots=True)
class TopicRows:
    """All rows of a cluster."""

    version: int
    """The number of writes so far."""
    ids: Mapping[str, str]
    """Name -> id."""


class ObservedTopics(Protocol):
    """The table of topics. Every call raises ``UnavailableError`` if Postgres is unavailable."""

    async def poll(self, cluster: str) -> TopicPoll | None:
        """Return the last poll of a cluster's topics; None if no poll was ever written."""

    async def load(self, cluster: str) -> TopicRows:
        """Return all rows of a cluster, which are read in pages."""

    async def write(
        self, cluster: str, version: int, put: Mapping[str, str], gone: Sequence[str], poll: TopicPoll | None
    ) -> bool:
        """Write some differences in one statement.

        Args:
            cluster: The cluster.
            version: The version of the rows that the differences are from.
            put: Name -> id of topics that are new or were recreated.
            gone: The names of topics that are gone.
            poll: The poll, if the table equals it after these differences, otherwise None.

        Returns:
            False if another process has written since that version. Nothing was written in that case.
        """
