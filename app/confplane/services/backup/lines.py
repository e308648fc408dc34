"""The lines of an archive that this service makes itself: znodes, and outcomes of changes that were open."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from confplane.domain.errors import InvalidRequestError
from confplane.services.ports.backups import ZnodeCopy

if TYPE_CHECKING:
    from confplane.services.ports.store import Marker


def znode_line(copy: ZnodeCopy) -> bytes:
    """Return the line of a znode: its data as text if they are UTF-8, and as base64 otherwise."""
    if not copy.present:
        return orjson.dumps({"path": copy.path, "absent": True})
    line: dict[str, Any] = {"path": copy.path}
    try:
        line["data"] = None if copy.data is None else copy.data.decode()
    except UnicodeDecodeError:
        line["base64"] = base64.b64encode(copy.data or b"").decode()
    line |= {"czxid": copy.czxid, "mzxid": copy.mzxid, "version": copy.version}
    if copy.entity_id is not None:
        line |= {"tree": copy.tree, "entity": copy.entity_id}
    return orjson.dumps(line)


def znode_of(line: Any) -> ZnodeCopy:
    """Return the znode of a line.

    Raises:
        InvalidRequestError: The line is not of a znode.
    """
    try:
        path = str(line["path"])
        if line.get("absent"):
            return ZnodeCopy(path, False, None, 0, 0, 0, None, None)  # noqa: FBT003 - a record
        text = line.get("data")
        data = base64.b64decode(line["base64"]) if "base64" in line else None if text is None else str(text).encode()
        numbers = int(line["czxid"]), int(line["mzxid"]), int(line["version"])
        return ZnodeCopy(path, True, data, *numbers, line.get("tree"), line.get("entity"))  # noqa: FBT003 - a record
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        raise InvalidRequestError("The archive has a line that is not of a znode.") from None


def outcome_line(marker: Marker, cluster: str, incarnation: int) -> bytes:
    """Return the row of an outcome that the trail does not have yet, as a process would write it."""
    time = datetime.fromtimestamp((marker.time_ms or 0) / 1000, UTC)
    return orjson.dumps(
        {
            "change_id": str(marker.change_id),
            "attempt": 1 if marker.attempt is None else marker.attempt,
            "cluster": cluster,
            "committed": True,
            "revision": marker.revision,
            "time": time,
            "versions": marker.versions,
            "error_code": None,
            "error": None,
            "recorded_at": time,
            "remade": None,
            "incarnation": incarnation,
        }
    )
