"""The archive of a backup: a tar file of JSON lines, written and read without seeks (docs/backup.md).

A *series* of lines, such as the rows of one table, is one or several members, each compressed by gzip. The manifest is
the last but one member, as it has the checksums of all others; the last one is its own checksum.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMAT: Final = "confplane-backup"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.json.sha256"
_PART_BYTES: Final = 2**20
"""Bytes of a member before compression, about: a longer line has a member of its own."""
_LEVEL: Final = 4
LARGEST_MEMBER: Final = 2**26
"""Maximum bytes of a member, compressed and not: far above a part with the largest znode or row."""


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """The copy of one cluster's znodes."""

    revision: int
    """All copies are as of this revision."""
    time_ms: int
    incarnation: int
    znodes: int
    unreadable: int
    """Znodes that the backup could not read."""
    trail_complete: bool
    """True if the trail has all external changes up to the revision."""


@dataclass(frozen=True, slots=True)
class MemberSummary:
    """A member of an archive."""

    sha256: str
    size: int
    lines: int


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """The content of an archive."""

    created_at: str
    release: str
    schema: str
    """The revision of the schema of Postgres."""
    clusters: dict[str, ClusterSummary]
    tables: dict[str, int]
    """The number of rows of each table."""
    members: dict[str, MemberSummary] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """Return the manifest as JSON."""
        given = {
            "format": FORMAT,
            "version": VERSION,
            "createdAt": self.created_at,
            "release": self.release,
            "schema": self.schema,
            "clusters": {
                name: {
                    "revision": each.revision,
                    "timeMs": each.time_ms,
                    "incarnation": each.incarnation,
                    "znodes": each.znodes,
                    "unreadable": each.unreadable,
                    "trailComplete": each.trail_complete,
                }
                for name, each in self.clusters.items()
            },
            "tables": self.tables,
            "members": {
                name: {"sha256": each.sha256, "bytes": each.size, "lines": each.lines}
                for name, each in self.members.items()
            },
        }
        return json.dumps(given, indent=1).encode() + b"\n"

    @classmethod
    def loads(cls, data: bytes) -> ArchiveManifest:
        """Return the manifest of some JSON.

        Raises:
            InvalidRequestError: The JSON is not a manifest, or one of a later format.
        """
        try:
            given = json.loads(data)
            if (given["format"], given["version"]) != (FORMAT, VERSION):
                raise InvalidRequestError(
                    f"The archive has the format {given['format']!a} {given['version']!a}, and this release reads"
                    f" {FORMAT} {VERSION}."
                )
            return cls(
                given["createdAt"],
                given["release"],
                given["schema"],
                {
                    name: ClusterSummary(
                        each["revision"],
                        each["timeMs"],
                        each["incarnation"],
                        each["znodes"],
                        each["unreadable"],
                        each["trailComplete"],
                    )
                    for name, each in given["clusters"].items()
                },
                given["tables"],
                {
                    name: MemberSummary(each["sha256"], each["bytes"], each["lines"])
                    for name, each in given["members"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidRequestError("The manifest of the archive is not valid.") from None


class ArchiveWriter:
    """Writes an archive.

    Args:
        file: The file, which need not be seekable.
        time_s: The time of all members.
    """

    def __init__(self, file: IO[bytes], time_s: int) -> None:
        self._file = file
        self._time_s = time_s
        self.members: dict[str, MemberSummary] = {}

    def series(self, name: str) -> SeriesWriter:
        """Begin a series of lines."""
        return SeriesWriter(self, name)

    def add(self, name: str, data: bytes, lines: int) -> None:
        """Add a member."""
        self._write(name, data)
        self.members[name] = MemberSummary(hashlib.sha256(data).hexdigest(), len(data), lines)

    def finish(self, manifest: ArchiveManifest) -> None:
        """Add the manifest, and end the archive."""
        data = manifest.dumps()
        self._write(MANIFEST, data)
        self._write(CHECKSUM, _checksum(data))
        self._file.write(bytes(2 * tarfile.BLOCKSIZE))

    def _write(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(data), self._time_s, 0o600
        # A TarFile would keep each member, and write an end even after a failure.
        self._file.write(member.tobuf(tarfile.PAX_FORMAT))
        self._file.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))


class SeriesWriter:
    """Writes the lines of one series. Made by :meth:`ArchiveWriter.series`."""

    def __init__(self, archive: ArchiveWriter, name: str) -> None:
        self._archive = archive
        self._name = name
        self._waiting: list[bytes] = []
        self._size = 0
        self._parts = 0
        self.lines = 0

    def add(self, line: bytes) -> None:
        """Add a line without its end."""
        self._waiting.append(line)
        self._size += len(line)
        self.lines += 1
        if self._size >= _PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the lines so far as a member."""
        if not self._waiting:
            return
        self._parts += 1
        data = gzip.compress(b"\n".join(self._waiting) + b"\n", _LEVEL, mtime=0)
        self._archive.add(f"{self._name}-{self._parts:06}.ndjson.gz", data, len(self._waiting))
        self._waiting.clear()
        self._size = 0


def read_archive(file: IO[bytes], take: Callable[[str, list[bytes]], None]) -> ArchiveManifest:
    """Read an archive, and check the checksums of all members.

    Args:
        file: The file, which need not be seekable.
        take: Called with the name of a series and some of its lines, before all checksums are known to be right.

    Raises:
        InvalidRequestError: The file is not a complete archive, or was changed.
    """
    found: dict[str, MemberSummary] = {}
    manifest = checksum = b""
    for name, data in _members(file):
        if name == MANIFEST:
            manifest = data
        elif name == CHECKSUM:
            checksum = data
        else:
            lines = _lines(name, data)
            found[name] = MemberSummary(hashlib.sha256(data).hexdigest(), len(data), len(lines))
            take(name.rpartition("-")[0], lines)
    if not manifest or not checksum:
        raise InvalidRequestError("The archive is incomplete: its manifest is missing.")
    if checksum != _checksum(manifest):
        raise InvalidRequestError("The archive was changed: the manifest does not have its checksum.")
    read = ArchiveManifest.loads(manifest)
    for name in sorted(read.members.keys() | found.keys()):
        if read.members.get(name) != found.get(name):
            state = "is missing" if name not in found else "was added" if name not in read.members else "was changed"
            raise InvalidRequestError(f"The archive was changed: its member {name} {state}.")
    return read


def _members(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    try:
        tar: Any
        with tarfile.open(fileobj=file, mode="r|") as tar:
            while (member := tar.next()) is not None:
                if member.size > LARGEST_MEMBER:
                    raise InvalidRequestError(f"The archive's member {member.name!a} is too large.")
                content = tar.extractfile(member)
                yield member.name, b"" if content is None else content.read()
                tar.members.clear()
    except tarfile.TarError as error:
        raise InvalidRequestError(f"The file is not a complete archive: {error}.") from None


def _lines(name: str, data: bytes) -> list[bytes]:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(LARGEST_MEMBER + 1)
        if len(text) > LARGEST_MEMBER:
            raise InvalidRequestError(f"The archive's member {name!a} is too large.")
        return text.splitlines()
    except (OSError, EOFError, zlib.error):
        raise InvalidRequestError(f"The archive was changed: its member {name} can't be decompressed.") from None


def _checksum(manifest: bytes) -> bytes:
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


def loads(line: bytes) -> Any:
    """Return the object of a line.

    Raises:
        InvalidRequestError: The line is not JSON.
    """
    try:
        return json.loads(line)
    except ValueError:
        raise InvalidRequestError("The archive has a line that is not JSON.") from None
