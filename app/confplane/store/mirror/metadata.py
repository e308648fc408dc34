"""The topics of the cluster: the children of ``/brokers/topics``.

Brokers create and delete a topic without a config notification. For reads a child watch follows the names, and nothing
else, so that a list of 100,000 costs one reply. Writes ask ZooKeeper itself: a topic may have been created a moment
ago, and configs of an absent topic would apply to the next topic of that name.

Source: kafka.server.ZkAdminManager, which refuses configs of topics that are not in its metadata; KafkaZkClient.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kazoo.exceptions import NoAuthError, NoNodeError, ZookeeperError

from confplane.store import znodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from confplane.store.session.session import Session, Watcher


class TopicMetadata:
    """The names of a cluster's topics, kept up to date by a watch.

    Attributes:
        names: The names; None where there is no ``/brokers/topics``, or it may not be listed.
        stale: True if the names must be listed again.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.names: frozenset[str] | None = None
        self.stale = True
        self._wake = wake
        self._watch: Watcher | None = None

    def begin(self, session: Session) -> None:
        """Follow on this session, a new one."""
        self._watch = session.watcher(self.mark_stale)

    def mark_stale(self) -> None:
        """Request another list of the names."""
        self.stale = True
        self._wake()

    async def follow(self, session: Session) -> None:
        """List the names and leave a watch.

        Raises:
            ZookeeperError: The call failed and must be repeated.
            UnavailableError: The connection went down.
        """
        self.stale = False
        try:
            names, _ = await session.children(znodes.BROKER_TOPICS, self._watch)
            self.names = frozenset(names)
        except NoNodeError:
            # A child watch needs the node; this watch reports the node's creation.
            if await session.exists(znodes.BROKER_TOPICS, self._watch) is not None:
                self.mark_stale()
            self.names = None
        except NoAuthError:
            self.names = None
        except ZookeeperError:
            self.stale = True
            raise


def replication_factor(content: bytes | None) -> int | None:
    """Return the least number of replicas of the partitions in a topic's znode; None if it can't be read.

    Replicas that a reassignment is about to remove do not count (kafka.zk.TopicZNode).
    """
    try:
        found = json.loads(content or b"")
        leaving = found.get("removing_replicas", {})
        partitions = found["partitions"].items()
        return min((len(set(replicas) - set(leaving.get(number, ()))) for number, replicas in partitions), default=None)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def requested_reassignments(content: bytes | None) -> frozenset[str]:
    """Return the topics of reassignments that were not begun through a broker (kafka.zk.ReassignPartitionsZNode)."""
    try:
        return frozenset(each["topic"] for each in json.loads(content or b"")["partitions"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def is_reassigned(content: bytes | None) -> bool:
    """Return True if a topic's znode shows a reassignment in progress (kafka.zk.TopicZNode)."""
    try:
        found = json.loads(content or b"")
        return any(found.get(member) for member in ("adding_replicas", "removing_replicas"))
    except (ValueError, AttributeError):
        return False


async def unknown_topics(session: Session, topics: Collection[str]) -> list[str]:
    """Return the topics that the cluster does not have; none where there are no metadata.

    Raises:
        ZookeeperError: A call failed; NoNodeError when the session's writer is gone.
        UnavailableError: The connection is down.
    """
    absent = await _absent(session, topics)
    if absent:
        # A server may be behind, but never behind a write of its own session.
        await session.touch()
        absent = await _absent(session, absent)
    return absent


async def _absent(session: Session, topics: Collection[str]) -> list[str]:
    parent = session.exists(znodes.BROKER_TOPICS)
    replies = [session.exists(znodes.topic_path(topic)) for topic in topics]
    if await parent is None:
        return []
    return [topic for topic, reply in zip(topics, replies, strict=True) if await reply is None]
