"""The list of the tables of a backup has each table once."""

from __future__ import annotations

from pathlib import Path

from confplane.audit.backup_tables import KEPT, REBUILT, SOURCES
from confplane.audit.tables import metadata

DOCUMENT = Path(__file__).parents[2] / "docs/backup.md"


def test_each_table_is_kept_or_rebuilt() -> None:
    assert sorted([*KEPT, *REBUILT]) == sorted(metadata.tables)
    assert SOURCES.keys() <= KEPT.keys()


def test_the_document_names_each_table() -> None:
    text = DOCUMENT.read_text()
    for title, tables in (("### Tables that are kept", KEPT), ("### Tables that are rebuilt", REBUILT)):
        section = text.partition(title)[2].partition("\n#")[0]
        assert [name for name in tables if f"`{name}`" not in section] == []
