"""Decisions before a commit, compared with a real Kafka 4: both refuse the same alters, but for the listed ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kraft.decisions.both_sides import run_both_sides
from tests.kraft.decisions.cases import Cases
from tests.kraft.decisions.differences import ROWS

if TYPE_CHECKING:
    from tests.kraft.decisions.both_sides import Result
    from tests.kraft.decisions.cases import Case
    from tests.support.kraft import KraftCluster
    from tests.support.servers import Database

PAGE = Path(__file__).parents[3] / "docs" / "kafka-compatibility.md"
SHORT = 300
LONG = 5_000
SEED = 1
"""Of the short run; the long runs have those after it."""


def test_the_differences_are_the_rows_of_the_page() -> None:
    part = PAGE.read_text().partition("## Decisions before the commit")[2].partition("\n## ")[0]
    rows = [line.removeprefix("| ").partition(" |")[0] for line in part.splitlines() if line.startswith("| ")]
    assert sorted(row for row in rows if row != "alter") == sorted(ROWS)


def test_cases_come_from_their_seed_alone() -> None:
    assert _first(1) == _first(1)
    assert _first(1) != _first(2)
    assert {case.kind for case in _first(SEED)} == {0, 2, 4, 16, 32}


def _first(seed: int) -> list[Case]:
    cases = Cases(seed)
    return [cases.next() for _ in range(200)]


async def test_decisions_match_those_of_the_cluster(
    kraft: KraftCluster, kraft_class_path: str, chroot: str, migrated: Database, tmp_path: Path
) -> None:
    async with run_both_sides(kraft, kraft_class_path, chroot, migrated, tmp_path) as sides:
        _expect(SEED, await sides.compare(SEED, SHORT))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [SEED + 1, SEED + 2, SEED + 3])
async def test_decisions_on_many_cases_match_those_of_the_cluster(
    kraft: KraftCluster, kraft_class_path: str, chroot: str, migrated: Database, tmp_path: Path, seed: int
) -> None:
    async with run_both_sides(kraft, kraft_class_path, chroot, migrated, tmp_path) as sides:
        result = await sides.compare(seed, LONG)
    _expect(seed, result)
    if seed == SEED + 1:
        # Some are so rare that another seed may not have them.
        assert not ROWS - result.met.keys()


def _expect(seed: int, result: Result) -> None:
    rows = "\n".join(f"  {count:6} {row}" for row, count in sorted(result.met.items()))
    sys.stdout.write(f"seed {seed}: {result.cases} cases, {result.refused} refused by the cluster\n{rows}\n")
    assert not result.unexplained, "Kafka | Confplane | its own rules\n" + "\n".join(result.unexplained)
    assert result.cases // 10 < result.refused < result.cases
