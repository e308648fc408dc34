"""What the documents name is there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
COMPATIBILITY: Final = (ROOT / "docs/kafka-compatibility.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in COMPATIBILITY.partition("## Differences\n")[2].splitlines()
    if line.startswith("| ")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_row_of_the_compatibility_page_is_pinned(row: list[str]) -> None:
    pins = row[-1]
    if pins not in {"-", "pinned by"}:
        assert [name for name in pins.split(", ") if not (ROOT / f"tests/{name}.py").is_file()] == []


def test_most_rows_are_pinned() -> None:
    headers = [row for row in ROWS if row[-1] == "pinned by"]
    unpinned = [row[0] for row in ROWS if row[-1] == "-"]
    assert len(headers) == 8
    assert len(unpinned) <= 5, unpinned
