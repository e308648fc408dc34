"""Members of a followed znode beside its ``config``: a topic's id, and the place in the cluster's metadata log.

``"topic_id":"Q2x..."`` is the id of the topic whose configs these are. ``"followed":[after,until]`` says which look or
record was written last: the znode has all of the entity's records up to ``after``, and none behind ``until``. A look
counts for the entity only where the broker had reached ``until`` before it, so that a broker that is behind, or another
process's earlier look, never brings an older state back. Of a record both numbers are its offset. The znode of a topic
that is gone keeps ``followed`` alone.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, NamedTuple

from confplane.services.pending_keys import PENDING_KEYS, TOPIC_ID

FOLLOWED: Final = "followed"


class ZnodeMetadata(NamedTuple):
    """The members of one znode."""

    topic_id: str | None = None
    after: int = -1
    """-1: nothing was followed into the znode."""
    until: int = -1


NONE: Final = ZnodeMetadata()


@lru_cache(4096)
def read(extra: bytes | None) -> ZnodeMetadata:
    """Return the members among a znode's foreign ones; members of another form are none.

    The entities that one look moved have the same members, so the latest results are kept.
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
def merge(extra: bytes | None, metadata: ZnodeMetadata) -> bytes:
    """Return a znode's foreign members with these and without altered keys, all others as they are."""
    own: dict[str, Any] = {} if metadata.topic_id is None else {TOPIC_ID: metadata.topic_id}
    own[FOLLOWED] = [metadata.after, metadata.until]
    others = {} if extra is None else json.loads(extra)
    others = {name: value for name, value in others.items() if name not in {TOPIC_ID, FOLLOWED, PENDING_KEYS}}
    return json.dumps({**others, **own}, separators=(",", ":"), ensure_ascii=False).encode()
