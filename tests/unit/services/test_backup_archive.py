"""Archives: what is written is read again, and no change of the file is overlooked."""

from __future__ import annotations

import io
import json
import random
import tarfile
from typing import TYPE_CHECKING, Final, cast
from unittest.mock import ANY

import pytest

from confplane.crypto.archives import MAGIC, DecryptedReader, EncryptedWriter
from confplane.domain.errors import InvalidRequestError
from confplane.services.backup.archive import ArchiveManifest, ArchiveWriter, ClusterSummary, read_archive
from confplane.services.backup.index import ArchiveIndex
from confplane.services.backup.lines import znode_line, znode_of
from confplane.services.backup.verify import verify
from confplane.services.ports.backups import ZnodeCopy, ZnodeWrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

KEY: Final = b"k" * 44
STATES: Final = "tables/entity_states"


def znode(path: str, data: bytes | None = b"{}", *, czxid: int = 1, mzxid: int = 2, version: int = 0) -> ZnodeCopy:
    name = path.removeprefix("/config/users/")
    entity = ("/config", f"user={name}") if name != path and "/" not in name else (None, None)
    return ZnodeCopy(path, True, data, czxid, mzxid, version, *entity)  # noqa: FBT003 - a record


def state(user: str, *, present: str = "true", mzxid: int = 2) -> bytes:
    key = f'"cluster":"payments","tree":"/config","entity_id":"user={user}"'
    return f'{{{key},"present":{present},"czxid":1,"mzxid":{mzxid},"version":0}}'.encode()


def archive(
    series: Mapping[str, Sequence[bytes]], *, complete: bool = True, tables: Sequence[str] = (), lost: int = 0
) -> bytes:
    """Return an archive whose manifest counts some lost lines of each cluster and table too."""
    file = io.BytesIO()
    writer = ArchiveWriter(file, 0)
    for name, lines in series.items():
        written = writer.series(name)
        for line in lines:
            written.add(line)
        written.flush()
    znodes = len(series.get("clusters/payments/znodes", ())) + lost
    clusters = {"payments": ClusterSummary(7, 1_000, 1, znodes, 0, complete)}
    rows = {table: len(series.get(f"tables/{table}", ())) + lost for table in tables}
    writer.finish(ArchiveManifest("2026-11-29T09:00:00.000+00:00", "1", "0032", clusters, rows, writer.members))
    return file.getvalue()


def read(data: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    read_archive(io.BytesIO(data), lambda name, lines: found.setdefault(name, []).extend(lines))
    return found


def test_all_lines_are_read_in_their_order() -> None:
    large = [b'"%s"' % (b"%07d" % number * 100) for number in range(20_000)]
    given = {"tables/intents": large, "tables/tokens": [b"{}"], "moved": [b"1", b"2"]}
    data = archive(given)
    assert read(data) == given
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
    assert names[:3] == [f"tables/intents-{number:06}.ndjson.gz" for number in (1, 2, 3)]
    assert names[-2:] == ["manifest.json", "manifest.json.sha256"]


def test_a_changed_byte_is_noticed_anywhere_except_in_what_tar_ignores() -> None:
    data = archive({"tables/intents": [b'{"a":1}'], "clusters/payments/znodes": [znode_line(znode("/config"))]})
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        contents = [range(each.offset_data, each.offset_data + each.size) for each in tar]
    assert sum(map(len, contents)) > 800
    for position in (position for content in contents for position in content):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(InvalidRequestError):
            read(bytes(changed))


def test_an_archive_that_is_cut_off_is_incomplete() -> None:
    data = archive({"tables/intents": [b'{"a":1}'] * 50})
    end = data.index(b"manifest.json.sha256")
    for length in [0, 1, *range(512, end, 512)]:
        with pytest.raises(InvalidRequestError, match=r"complete archive|incomplete"):
            read(data[:length])


@pytest.mark.parametrize("compressed", [True, False])
def test_a_member_that_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch, *, compressed: bool) -> None:
    line = b"0" * 5_000 if compressed else random.Random(1).randbytes(5_000).hex().encode()  # noqa: S311 - seeded
    data = archive({"tables/intents": [line]})
    monkeypatch.setattr("confplane.services.backup.archive.LARGEST_MEMBER", 4_000)
    with pytest.raises(InvalidRequestError, match=r"tables/intents-000001.ndjson.gz' is too large"):
        read(data)


@pytest.mark.parametrize("number", [0, 1])
def test_a_removed_member_is_noticed(number: int) -> None:
    data = archive({"tables/intents": [b"{}"], "tables/tokens": [b"{}"]})
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
    begin, end = members[number].offset, members[number + 1].offset
    with pytest.raises(InvalidRequestError, match="is missing"):
        read(data[:begin] + data[end:])


def test_a_later_format_is_refused_by_its_name() -> None:
    manifest = ArchiveManifest("", "", "", {}, {}).dumps().replace(b'"version": 1', b'"version": 2')
    with pytest.raises(InvalidRequestError, match="'confplane-backup' 2, and this release reads confplane-backup 1"):
        ArchiveManifest.loads(manifest)


@pytest.mark.parametrize("data", [None, b"", b"{}", b"\xff\x00", '{"a":"ü\u2028"}'.encode(), b'"\n"'])
def test_a_znode_is_read_as_it_was_written(data: bytes | None) -> None:
    copy = znode("/config/users/a", data)
    line = znode_line(copy)
    assert b"\n" not in line
    assert znode_of(json.loads(line)) == copy


# -- encryption


def encrypted(data: bytes) -> bytes:
    file = io.BytesIO()
    writer = EncryptedWriter(file, KEY)
    for start in range(0, len(data), 10_000):
        writer.write(data[start : start + 10_000])
    writer.close()
    return file.getvalue()


def decrypted(data: bytes, key: bytes = KEY) -> bytes:
    file = io.BytesIO(data)
    assert file.read(len(MAGIC)) == MAGIC
    return io.BufferedReader(DecryptedReader(cast("IO[bytes]", file), key)).read()


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_an_encrypted_file_is_decrypted_with_its_key_alone(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    sealed = encrypted(data)
    assert decrypted(sealed) == data
    assert sealed != encrypted(data)
    with pytest.raises(InvalidRequestError, match="another one"):
        decrypted(sealed, b"x" * 44)


def test_chunks_can_not_be_cut_off_exchanged_or_repeated() -> None:
    chunk = 65_536 + 16
    sealed = encrypted(bytes(3 * 65_536))
    head, body = sealed[: len(MAGIC) + 32], sealed[len(MAGIC) + 32 :]
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    assert [len(piece) for piece in pieces] == [chunk, chunk, chunk, 16]
    for order in ([0, 1, 2], [0, 1], [1, 0, 2, 3], [0, 0, 1, 2, 3], [0, 2, 3], [], [3]):
        with pytest.raises(InvalidRequestError, match="changed or cut off"):
            decrypted(head + b"".join(pieces[number] for number in order))


# -- agreement


def problems(series: Mapping[str, Sequence[bytes]], *, complete: bool = True) -> tuple[list[str], list[str]]:
    with ArchiveIndex() as index:
        found = verify(
            io.BytesIO(archive(series, complete=complete, tables=["entity_states"])), index, ["entity_states"]
        )
        return found.problems, found.warnings


ZNODES: Final = "clusters/payments/znodes"
CHANGED: Final = "clusters/payments/changed"


@pytest.mark.parametrize(
    ("series", "problem"),
    [
        ({ZNODES: [znode_line(znode("/config/users/a"))], STATES: [state("a")]}, None),
        ({ZNODES: [znode_line(znode("/config/users/a"))], STATES: [state("a", mzxid=3)]}, "does not explain"),
        ({ZNODES: [znode_line(znode("/config/users/a"))], STATES: [state("a", present="false")]}, "does not explain"),
        ({ZNODES: [znode_line(znode("/config"))], STATES: [state("a", present="false")]}, None),
        (
            {
                ZNODES: [znode_line(znode("/config/users/a"))],
                CHANGED: [znode_line(znode("/config/users/a", b"new", mzxid=3))],
                STATES: [state("a", mzxid=3)],
            },
            None,
        ),
        (
            {
                ZNODES: [znode_line(znode("/config/users/a"))],
                CHANGED: [
                    b'{"path":"/config/users/a","absent":true}',
                    znode_line(znode("/config/users/a", b"again", mzxid=3)),
                ],
                STATES: [state("a", mzxid=3)],
            },
            None,
        ),
        (
            {
                ZNODES: [znode_line(znode("/config/users/a")), znode_line(znode("/config/users/b"))],
                STATES: [state("a"), state("b", mzxid=1), state("c")],
                "moved": [
                    b'{"cluster":"payments","tree":"/config","entity_id":"user=b"}',
                    b'{"cluster":"payments","tree":"/config","entity_id":"user=c"}',
                ],
            },
            None,
        ),
    ],
)
def test_both_stores_agree_about_each_entity(series: dict[str, list[bytes]], problem: str | None) -> None:
    found, warnings = problems(series)
    assert warnings == []
    assert (problem in " ".join(found)) if problem else found == []
    # A trail that is not complete may differ.
    assert problems(series, complete=False) == ([], [ANY, *found])


@pytest.mark.parametrize(
    "lines",
    [
        [znode_line(znode("/config"))],
        [znode_line(znode("/config/users/a")), b'{"path":"/config/users/a","absent":true}'],
    ],
)
def test_deletions_that_the_trail_does_not_have_yet_are_no_problem(lines: list[bytes]) -> None:
    """A tool may delete a znode without a notification: the recorder finds that later."""
    found, warnings = problems({ZNODES: lines[:1], CHANGED: lines[1:], STATES: [state("a")]})
    assert (found, len(warnings)) == ([], 1)
    assert "does not have the deletions of /config/users/a. A restore records them" in warnings[0]


@pytest.mark.parametrize("states", [[state("b", present="false")], [state("a", mzxid=1)]], ids=["created", "changed"])
def test_writes_that_the_trail_does_not_have_yet_are_no_problem(states: list[bytes]) -> None:
    """Kafka's tools write a znode first, and then the notification by which all processes learn of it."""
    found, warnings = problems({ZNODES: [znode_line(znode("/config/users/a"))], STATES: states})
    assert (found, len(warnings)) == ([], 1)
    assert "does not have the last writes of /config/users/a. A restore records them" in warnings[0]


def test_a_table_of_this_release_that_the_archive_lacks_is_a_problem() -> None:
    with ArchiveIndex() as index:
        found = verify(io.BytesIO(archive({})), index, ["tokens"])
    assert found.problems == ["The table tokens is missing."]


def test_fewer_znodes_and_rows_than_the_manifest_counts_are_problems() -> None:
    file = archive({ZNODES: [znode_line(znode("/config"))], STATES: []}, tables=["entity_states"], lost=2)
    with ArchiveIndex() as index:
        found = verify(io.BytesIO(file), index, ["entity_states"])
    assert found.problems == [
        "The table entity_states has 0 rows instead of 2.",
        "Cluster payments has 1 znodes instead of 3.",
    ]


@pytest.mark.parametrize("series", ["tables/pg_authid", "tables/alembic_version", "clusters/other/znodes", "other"])
def test_a_series_that_no_archive_has_is_a_problem(series: str) -> None:
    line = znode_line(znode("/config"))
    with ArchiveIndex() as index:
        found = verify(io.BytesIO(archive({series: [line]}, tables=["tokens"])), index, ["tokens"])
    assert found.problems == [f"The series '{series}' is unknown."]


# -- the plan of a restore


def test_a_restore_creates_parents_first_and_deletes_children_first() -> None:
    wanted = ["/config", "/config/users", "/config/users/a", "/config/users/a/clients", "/config/users/same"]
    existing = ["/config", "/config/users", "/config/users/gone", "/config/users/gone/clients", "/config/users/same"]
    with ArchiveIndex() as index:
        index.add(ZNODES, [znode_line(znode(path)) for path in wanted])
        index.add_existing("payments", [znode(path, b"{}") for path in existing if path != "/config"])
        index.add_existing("payments", [znode("/config", b"other")])
        assert index.plan("payments") == {"create": 2, "change": 1, "delete": 2}
        assert [write for some in index.writes("payments") for write in some] == [
            ZnodeWrite("delete", "/config/users/gone/clients", None, entity=False),
            ZnodeWrite("delete", "/config/users/gone", None, entity=True),
            ZnodeWrite("create", "/config/users/a", b"{}", entity=True),
            ZnodeWrite("create", "/config/users/a/clients", b"{}", entity=False),
            ZnodeWrite("set", "/config", b"{}", entity=False),
        ]
