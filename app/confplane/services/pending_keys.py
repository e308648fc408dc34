"""The member ``altered`` of a config znode: the keys that callers altered since the config was last followed.

In the mode ``adopt`` callers write the quotas and configs of a Kafka cluster here first. Their write adds its keys to
the member, in the transaction of the write itself. So every later leader finds what the cluster has not taken yet,
whatever became of the process that wrote. A change that follows the cluster drops the member. The states in Postgres
know which of the keys the cluster has taken (:mod:`confplane.services.ports.applying`).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

PENDING_KEYS: Final = "altered"
TOPIC_ID: Final = "topic_id"
"""The member with the id of the topic whose configs these are."""


@lru_cache(4096)
def pending_keys(extra: bytes | None) -> tuple[str, ...]:
    """Return the keys in a znode's foreign members, in order; a member of another form names none."""
    if extra is None:
        return ()
    match json.loads(extra).get(PENDING_KEYS):
        case [*keys] if all(isinstance(key, str) for key in keys):
            return tuple(keys)
    return ()


def with_pending_keys(extra: bytes | None, keys: Iterable[str], topic_id: str | None = None) -> bytes:
    """Return a znode's foreign members with more altered keys.

    Args:
        extra: The members as they are.
        keys: The keys.
        topic_id: The id of the topic, as the cluster named it before the write; None of other entities, and where the
            cluster did not name it. It is noted where the znode names no topic yet. Beside altered keys without an id
            it is left out, because these may have been written for an earlier topic of the name.
    """
    members = {} if extra is None else json.loads(extra)
    before = pending_keys(extra)
    if topic_id is not None and not before:
        members.setdefault(TOPIC_ID, topic_id)
    members[PENDING_KEYS] = sorted({*before, *keys})
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
