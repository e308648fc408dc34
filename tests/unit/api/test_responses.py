"""The headers that tell at which revision an answer was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from confplane.api.responses import consistency_headers


@pytest.mark.parametrize(
    ("freshness", "revision", "headers"),
    [
        ((7, None), None, [(b"confplane-revision", b"7")]),
        ((7, 1_500), None, [(b"confplane-revision", b"7"), (b"confplane-stale-ms", b"1500")]),
        ((7, None), 9, [(b"confplane-revision", b"9")]),
        ((11, None), 9, [(b"confplane-revision", b"11")]),
        # Before the first load: a replayed answer has its write's revision all the same.
        (None, 9, [(b"confplane-revision", b"9")]),
        (None, None, []),
    ],
)
def test_an_answer_has_the_revision_of_its_write_regardless_of_the_mirror(
    freshness: tuple[int, int | None] | None, revision: int | None, headers: list[tuple[bytes, bytes]]
) -> None:
    store: Any = SimpleNamespace(freshness=lambda: freshness, applied_revision=lambda: None, restored=False)
    assert consistency_headers(store, revision) == headers


def test_an_answer_of_a_written_cluster_reports_what_is_applied() -> None:
    store: Any = SimpleNamespace(freshness=lambda: (7, None), applied_revision=lambda: 5, restored=False)
    assert consistency_headers(store) == [(b"confplane-revision", b"7"), (b"confplane-applied-revision", b"5")]
