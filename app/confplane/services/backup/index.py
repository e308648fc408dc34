"""The znodes of an archive in a temporary database on disk: any number of them is compared in bounded memory."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import Tree, full_path
from confplane.services.backup.archive import loads
from confplane.services.backup.lines import znode_of
from confplane.services.ports.backups import ZnodeCopy, ZnodeWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE znodes (
  cluster TEXT, path TEXT, data BLOB, czxid INTEGER, mzxid INTEGER, version INTEGER, entity BOOLEAN,
  PRIMARY KEY (cluster, path)) WITHOUT ROWID;
CREATE TABLE states (
  cluster TEXT, path TEXT, present BOOLEAN, czxid INTEGER, mzxid INTEGER, version INTEGER,
  PRIMARY KEY (cluster, path)) WITHOUT ROWID;
CREATE TABLE moved (
  cluster TEXT, path TEXT, tree TEXT, entity TEXT, PRIMARY KEY (cluster, path)) WITHOUT ROWID;
CREATE TABLE existing (
  cluster TEXT, path TEXT, same BOOLEAN, entity BOOLEAN, filled BOOLEAN, PRIMARY KEY (cluster, path)) WITHOUT ROWID;
"""
_PUT: Final = "INSERT OR REPLACE INTO znodes VALUES (?, ?, ?, ?, ?, ?, ?)"
_UNEXPLAINED: Final = """
SELECT path FROM znodes LEFT JOIN states USING (cluster, path)
WHERE cluster = :cluster AND entity AND NOT EXISTS (
  SELECT 1 FROM moved WHERE moved.cluster = znodes.cluster AND moved.path = znodes.path)
AND (NOT coalesce(states.present, 0)
  OR (states.czxid, states.mzxid, states.version) <> (znodes.czxid, znodes.mzxid, znodes.version))
AND (znodes.mzxid > coalesce(states.mzxid, 0)) = :newer
ORDER BY path
"""
_MISSING: Final = """
SELECT path FROM states WHERE cluster = :cluster AND present
AND NOT EXISTS (SELECT 1 FROM znodes WHERE znodes.cluster = states.cluster AND znodes.path = states.path)
AND NOT EXISTS (SELECT 1 FROM moved WHERE moved.cluster = states.cluster AND moved.path = states.path)
ORDER BY path
"""
_CREATED: Final = """
SELECT 'create', path, data, entity FROM znodes WHERE cluster = :cluster
AND NOT EXISTS (SELECT 1 FROM existing WHERE existing.cluster = znodes.cluster AND existing.path = znodes.path)
ORDER BY path
"""
_CHANGED: Final = """
SELECT 'set', path, data, znodes.entity FROM znodes JOIN existing USING (cluster, path)
WHERE cluster = :cluster AND NOT same
ORDER BY path
"""
# Children before their parents.
_DELETED: Final = """
SELECT 'delete', path, NULL, entity FROM existing WHERE cluster = :cluster
AND NOT EXISTS (SELECT 1 FROM znodes WHERE znodes.cluster = existing.cluster AND znodes.path = existing.path)
ORDER BY path DESC
"""
_PIECE: Final = 500


class ArchiveIndex:
    """The znodes and the states of entities of one archive, and the existing znodes of a restore's clusters."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="confplane-")
        self._database = sqlite3.connect(Path(self._directory.name) / "index", isolation_level=None)
        self._database.executescript(_SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._directory.cleanup()

    def add(self, series: str, lines: Sequence[bytes]) -> None:
        """Add lines of a series of the archive; most tables are ignored.

        Raises:
            InvalidRequestError: A line is not valid.
        """
        match series.split("/"):
            case ["clusters", cluster, "znodes" | "changed"]:
                # A znode may have been deleted and created again during a backup: its last line counts.
                copies = {copy.path: copy for copy in (znode_of(loads(line)) for line in lines)}.values()
                absent = [(cluster, each.path) for each in copies if not each.present]
                self._database.executemany(_PUT, (_row(cluster, each) for each in copies if each.present))
                self._database.executemany("DELETE FROM znodes WHERE cluster = ? AND path = ?", absent)
            case ["tables", "entity_states"]:
                states = [loads(line) for line in lines]
                self._database.executemany(
                    "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?)", (_state(each) for each in states)
                )
            case ["moved"]:
                keys = [loads(line) for line in lines]
                rows = ((*_key(each), each["tree"], each["entity_id"]) for each in keys)
                self._database.executemany("INSERT OR REPLACE INTO moved VALUES (?, ?, ?, ?)", rows)

    def unexplained(self, cluster: str) -> Iterator[str]:
        """Yield the paths of entities whose state in the trail is another one, and not an earlier one."""
        return self._unexplained(cluster, newer=False)

    def unrecorded(self, cluster: str) -> Iterator[str]:
        """Yield the paths of entities whose state in the trail is an earlier one, or missing."""
        return self._unexplained(cluster, newer=True)

    def _unexplained(self, cluster: str, *, newer: bool) -> Iterator[str]:
        return (path for (path,) in self._database.execute(_UNEXPLAINED, {"cluster": cluster, "newer": newer}))

    def missing(self, cluster: str) -> Iterator[str]:
        """Yield the paths of entities that exist according to the trail, and have no znode."""
        return (path for (path,) in self._database.execute(_MISSING, {"cluster": cluster}))

    def moved(self, cluster: str) -> Iterator[tuple[str, str]]:
        """Yield tree and entity of the states that a later change moved."""
        yield from self._database.execute("SELECT tree, entity FROM moved WHERE cluster = ?", [cluster])

    def count(self, cluster: str) -> int:
        """Return the number of znodes of a cluster."""
        [[found]] = self._database.execute("SELECT count(*) FROM znodes WHERE cluster = ?", [cluster])
        return int(found)

    # -- restores

    def forget_existing(self, cluster: str) -> None:
        """Remove the existing znodes of a cluster, before they are read again."""
        self._database.execute("DELETE FROM existing WHERE cluster = ?", [cluster])

    def add_existing(self, cluster: str, copies: Sequence[ZnodeCopy]) -> None:
        """Add znodes that exist in the cluster of a restore."""
        for copy in copies:
            found = self._database.execute(
                "SELECT data IS ? FROM znodes WHERE cluster = ? AND path = ?", [copy.data, cluster, copy.path]
            ).fetchone()
            self._database.execute(
                "INSERT OR REPLACE INTO existing VALUES (?, ?, ?, ?, ?)",
                [cluster, copy.path, bool(found and found[0]), copy.entity_id is not None, bool(copy.data)],
            )

    def plan(self, cluster: str) -> dict[str, int]:
        """Return the number of znodes that a restore creates, changes and deletes."""
        queries = {"create": _CREATED, "change": _CHANGED, "delete": _DELETED}
        return {
            name: self._database.execute(f"SELECT count(*) FROM ({query})", {"cluster": cluster}).fetchone()[0]  # noqa: S608 - constants
            for name, query in queries.items()
        }

    def replaces(self, cluster: str) -> bool:
        """Return True if a restore replaces or deletes content. Empty znodes of the service have none."""
        query = "SELECT EXISTS (SELECT 1 FROM existing WHERE cluster = ? AND NOT same AND (entity OR filled))"
        return bool(self._database.execute(query, [cluster]).fetchone()[0])

    def writes(self, cluster: str) -> Iterator[list[ZnodeWrite]]:
        """Yield the writes of a restore, some at a time, in an order in which all of them are possible."""
        for query in (_DELETED, _CREATED, _CHANGED):
            cursor = self._database.execute(query, {"cluster": cluster})
            while rows := cursor.fetchmany(_PIECE):
                yield [ZnodeWrite(action, path, data, bool(entity)) for action, path, data, entity in rows]


def _row(cluster: str, copy: ZnodeCopy) -> tuple[Any, ...]:
    entity = copy.entity_id is not None
    return cluster, copy.path, copy.data, copy.czxid, copy.mzxid, copy.version, entity


def _key(line: Any) -> tuple[str, str]:
    try:
        return str(line["cluster"]), full_path(Tree(line["tree"]), Entity.from_id(line["entity_id"]))
    except (KeyError, TypeError, ValueError, ConfplaneError):
        raise InvalidRequestError("The archive has a line that is not the state of an entity.") from None


def _state(line: Any) -> tuple[Any, ...]:
    try:
        return *_key(line), bool(line["present"]), int(line["czxid"]), int(line["mzxid"]), int(line["version"])
    except (KeyError, TypeError, ValueError):
        raise InvalidRequestError("The archive has a line that is not the state of an entity.") from None
