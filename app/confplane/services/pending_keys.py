"""Pending keys: the keys that clients altered since a config znode last followed Kafka, in its member ``altered``.

In the mode ``adopt`` clients write the quotas and configs of a Kafka cluster to Confplane first. A write adds its keys
to the member in its own transaction. So every later leader finds the changes that the cluster has not accepted yet,
even if the process that wrote them is gone. A change that follows the cluster drops the member. The states in Postgres
record which of the keys the cluster has accepted (:mod:`confplane.services.ports.applying`).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

PENDING_KEYS: Final = "altered"
TOPIC_ID: Final = "topic_id"
"""The name of the member with the id of the topic that the configs belong to."""
FOLLOWED: Final = "followed"
"""The name of the member with the position in the metadata log (:mod:`confplane.services.kraft.znode_metadata`)."""


@lru_cache(4096)
def pending_keys(extra: bytes | None) -> tuple[str, ...]:
    """Return the pending keys in a znode's metadata, in order; empty if the member has another form."""
    if extra is None:
        return ()
    match json.loads(extra).get(PENDING_KEYS):
        case [*keys] if all(isinstance(key, str) for key in keys):
            return tuple(keys)
    return ()


@lru_cache(4096)
def has_foreign_members(extra: bytes | None) -> bool:
    """Return True if a znode has members besides its config that Confplane did not write."""
    return extra is not None and not json.loads(extra).keys() <= {PENDING_KEYS, TOPIC_ID, FOLLOWED}


def with_pending_keys(extra: bytes | None, keys: Iterable[str], topic_id: str | None = None) -> bytes:
    """Return a znode's metadata with more pending keys.

    Args:
        extra: The current metadata.
        keys: The keys to add.
        topic_id: The id of the topic that the cluster returned before the write; None for other entities, or if the
            cluster returned none. It is stored if the znode has no topic id yet. If the znode already has pending keys
            without an id, it is left out, because they may have been written for an earlier topic of the same name.
    """
    members = {} if extra is None else json.loads(extra)
    before = pending_keys(extra)
    if topic_id is not None and not before:
        members.setdefault(TOPIC_ID, topic_id)
    members[PENDING_KEYS] = sorted({*before, *keys})
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
