"""Metadata of the config znodes of a Kafka 4 cluster, stored next to their ``config``.

``"altered":["retention.ms"]`` has the pending keys: those that clients altered since the znode last followed Kafka. In
the mode ``adopt`` clients write the quotas and configs of a Kafka cluster to Confplane first. A write adds its keys to
the member in its own transaction. So every later leader finds the changes that the cluster has not accepted yet, even
if the process that wrote them is gone. A change that follows the cluster drops the member. The states in Postgres
record which of the keys the cluster has accepted (:mod:`confplane.services.ports.applying`).

``"topic_id":"Q2x..."`` is the id of the topic whose configs these are. ``"followed":[after,until]`` identifies the poll
or record that was written last: the znode has all of the entity's records up to ``after``, and none after ``until``. A
poll counts for the entity only if the broker had reached ``until`` before it. So neither a broker that lags behind nor
an earlier poll of another process restores an older state. For a record, both numbers are its offset. The znode of a
topic that is gone has only ``followed``.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PENDING_KEYS: Final = "altered"
TOPIC_ID: Final = "topic_id"
FOLLOWED: Final = "followed"


class ZnodeMetadata(NamedTuple):
    """The metadata of one znode."""

    topic_id: str | None = None
    after: int = -1
    """-1: nothing was followed into the znode."""
    until: int = -1
    pending_keys: tuple[str, ...] = ()
    """The pending keys, in order."""


@lru_cache(4096)
def read_metadata(extra: bytes | None) -> ZnodeMetadata:
    """Read the metadata from a znode's foreign members. Members of another form are ignored.

    Entities that one poll changed have the same metadata, so the latest results are cached.
    """
    given = {} if extra is None else json.loads(extra)
    topic_id, after, until, pending = given.get(TOPIC_ID), -1, -1, ()
    match given.get(FOLLOWED):
        case [int(first), int(last)]:
            after, until = first, last
    match given.get(PENDING_KEYS):
        case [*keys] if all(isinstance(key, str) for key in keys):
            pending = tuple(keys)
    return ZnodeMetadata(topic_id if isinstance(topic_id, str) else None, after, until, pending)


@lru_cache(4096)
def write_metadata(extra: bytes | None, metadata: ZnodeMetadata) -> bytes:
    """Return a znode's foreign members with this metadata. All others are unchanged."""
    others = {} if extra is None else json.loads(extra)
    members = {name: value for name, value in others.items() if name not in {TOPIC_ID, FOLLOWED, PENDING_KEYS}}
    if metadata.topic_id is not None:
        members[TOPIC_ID] = metadata.topic_id
    if metadata.pending_keys:
        members[PENDING_KEYS] = metadata.pending_keys
    return _encode({**members, FOLLOWED: [metadata.after, metadata.until]})


def with_pending_keys(extra: bytes | None, keys: Iterable[str], topic_id: str | None = None) -> bytes:
    """Return a znode's foreign members with more pending keys.

    Args:
        extra: The current members.
        keys: The keys to add.
        topic_id: The id of the topic that the cluster returned before the write; None for other entities, or if the
            cluster returned none. It is stored if the znode has no topic id yet. If the znode already has pending keys
            without an id, it is left out, because they may have been written for an earlier topic of the same name.
    """
    members = {} if extra is None else json.loads(extra)
    before = read_metadata(extra).pending_keys
    if topic_id is not None and not before:
        members.setdefault(TOPIC_ID, topic_id)
    return _encode({**members, PENDING_KEYS: sorted({*before, *keys})})


@lru_cache(4096)
def has_foreign_members(extra: bytes | None) -> bool:
    """Return True if a znode has members besides its config that Confplane did not write."""
    return extra is not None and not json.loads(extra).keys() <= {PENDING_KEYS, TOPIC_ID, FOLLOWED}


def _encode(members: dict[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
