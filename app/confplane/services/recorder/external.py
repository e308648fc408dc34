"""The row of an external change, and its id."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from uuid import UUID

from confplane.domain.redaction import storable
from confplane.domain.znode_versions import changed_keys
from confplane.services.ports.trail import EXTERNAL, EXTERNAL_PRINCIPAL

if TYPE_CHECKING:
    from confplane.domain.changes import Node
    from confplane.domain.znode_versions import Gap


def row_of(
    cluster: str, path: str, gap: Gap, node: Node | None, differing: frozenset[str] | None
) -> dict[str, Any] | None:
    """Return the row of a gap; None if it left the content as it was.

    Args:
        cluster: The cluster.
        path: The full path of the znode.
        gap: The external writes.
        node: The znode as it is now.
        differing: The keys that differ, secrets included; None if they are not known.
    """
    before, after = gap.before, gap.after
    keys = changed_keys(before.content, after.content)
    if differing is not None:
        keys = sorted({*keys, *map(storable, differing)})
    elif not keys and before.present and after.present:
        # Hidden values may have been set to the same values again: the row names their keys as written.
        keys = sorted(key for key, value in after.content.items() if value is None)
    defect = None if node is None or node.version != after.version or not after.present else node.defect
    if not keys and defect is None:
        return None
    return {
        "change_id": str(change_id(cluster, path, gap)),
        "path": path,
        "revision": gap.revision,
        "time_ms": gap.time_ms,
        "writes": gap.writes,
        "version_read": before.version if before.present else None,
        "czxid_read": before.czxid if before.present else None,
        "versions": {path: after.version} if after.present else {},
        "keys": keys,
        "before": before.content,
        "after": after.content,
        "reason": None if defect is None else f"The znode {storable(defect)}",
        "kind": EXTERNAL,
        "attempt": 1,
        "principal": EXTERNAL_PRINCIPAL,
        "writer": "",
        "request_id": "",
        "position": 0,
    }


def change_id(cluster: str, path: str, gap: Gap) -> UUID:
    """Return the id of a gap: a UUIDv7 of ZooKeeper's time, with a hash of the gap's end state in the other bits.

    Such an id has its place among all changes, and every finder of the gap gives it the same id.
    """
    end = gap.after if gap.after.present else gap.before
    state = f"{cluster}\n{path}\n{end.czxid}\n{end.version}\n{gap.after.present}"
    hashed = int.from_bytes(hashlib.sha256(state.encode()).digest()[:8])
    # Ordered by zxid within a millisecond.
    return UUID(int=gap.listed_ms << 80 | 0x7 << 76 | (gap.revision & 0xFFF) << 64 | 0b10 << 62 | hashed >> 2)
