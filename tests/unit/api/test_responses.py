"""The headers that tell at which revision an answer was made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from confplane.api.responses import consistency_headers, written_revision
from confplane.domain.errors import PreconditionFailedError
from confplane.services.changes.edits import Edit, EditResult
from tests.support.stores import ALICE


@pytest.mark.parametrize(
    ("freshness", "revision", "headers"),
    [
        ((7, None), None, [(b"confplane-revision", b"7")]),
        ((7, 1_500), None, [(b"confplane-revision", b"7"), (b"confplane-stale-ms", b"1500")]),
        ((7, None), 9, [(b"confplane-revision", b"9")]),
        # A later change of another writer is not in the body of a write.
        ((11, None), 9, [(b"confplane-revision", b"9")]),
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


@pytest.mark.parametrize(
    ("freshness", "written", "found"),
    [
        ((11, None), [("a", 7), ("b", 9)], 9),
        ((11, None), [(None, None), ("b", 9)], 11),
        # The entity was not changed; its last change was an earlier one.
        ((11, None), [(None, 5)], 11),
        ((8, None), [("a", 9), (None, 5)], 9),
        # The entity was read from ZooKeeper, which was ahead of the mirror.
        ((8, None), [(None, 9)], 9),
        ((11, None), [], 11),
        (None, [("a", 9), (None, None)], 9),
        (None, [(None, 5)], 5),
    ],
)
def test_a_write_has_the_revision_of_its_latest_change_or_that_of_what_it_left(
    freshness: tuple[int, int | None] | None, written: list[tuple[str | None, int | None]], found: int | None
) -> None:
    store: Any = SimpleNamespace(freshness=lambda: freshness)
    results = [EditResult(Edit(ALICE, ()), change_id=change_id, revision=revision) for change_id, revision in written]
    assert written_revision(store, results) == found


@pytest.mark.parametrize(
    ("mirror", "refused", "written", "found"),
    [
        (11, [9], [], 9),
        (8, [9], [], 9),
        (8, [9, 10], [], 10),
        (8, [10], [9], 10),
        (8, [9], [10], 10),
        # Refused before anything was read, or the session was replaced before ZooKeeper confirmed it.
        (8, [None], [], 8),
        (11, [9, None], [], 11),
    ],
)
def test_a_refusal_has_the_revision_of_the_state_that_it_rests_on(
    mirror: int, refused: list[int | None], written: list[int], found: int
) -> None:
    store: Any = SimpleNamespace(freshness=lambda: (mirror, None))
    results = [EditResult(Edit(ALICE, ()), change_id="a", revision=revision) for revision in written]
    for revision in refused:
        error = PreconditionFailedError("another ETag", etag=None)
        error.revision = revision
        results.append(EditResult(Edit(ALICE, ()), error))
    assert written_revision(store, results) == found
