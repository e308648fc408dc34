"""Metadata of a followed znode, stored next to its ``config``: a topic's id, and a position in the metadata log.

``"topic_id":"Q2x..."`` is the id of the topic whose configs these are. ``"followed":[after,until]`` identifies the poll
or record that was written last: the znode has all of the entity's records up to ``after``, and none after ``until``. A
poll counts for the entity only if the broker had reached ``until`` before it. So neither a broker that lags behind nor
an earlier poll of another process restores an older state. For a record, both numbers are its offset. The znode of a
topic that is gone has only ``followed``.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, NamedTuple

from confplane.services.pending_keys import FOLLOWED, PENDING_KEYS, TOPIC_ID


class ZnodeMetadata(NamedTuple):
    """The metadata of one znode."""

    topic_id: str | None = None
    after: int = -1
    """-1: nothing was followed into the znode."""
    until: int = -1


NONE: Final = ZnodeMetadata()


@lru_cache(4096)
def read(extra: bytes | None) -> ZnodeMetadata:
    """Read the metadata from a znode's foreign members. Members of another form are ignored.

    Entities that one poll changed have the same metadata, so the latest results are cached.
    """
    if extra is None:
        return NONE
    given = json.loads(extra)
    topic_id, followed = given.get(TOPIC_ID), given.get(FOLLOWED)
    match followed:
        case [int(after), int(until)]:
            pass
        case _:
            after = until = -1
    return ZnodeMetadata(topic_id if isinstance(topic_id, str) else None, after, until)


@lru_cache(4096)
def merge(extra: bytes | None, metadata: ZnodeMetadata, pending: tuple[str, ...] = ()) -> bytes:
    """Return a znode's foreign members with this metadata and these pending keys. All others are unchanged."""
    own: dict[str, Any] = {} if metadata.topic_id is None else {TOPIC_ID: metadata.topic_id}
    if pending:
        own[PENDING_KEYS] = pending
    own[FOLLOWED] = [metadata.after, metadata.until]
    others = {} if extra is None else json.loads(extra)
    others = {name: value for name, value in others.items() if name not in {TOPIC_ID, FOLLOWED, PENDING_KEYS}}
    return json.dumps({**others, **own}, separators=(",", ":"), ensure_ascii=False).encode()
