"""The holds of the event loop by Python's garbage collector: the objects that a collection walks."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from confplane.gc_tuning import imports_frozen, tune_gc

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 20_000


@pytest.fixture
def walked() -> Iterator[list[int]]:
    """The objects in the generations of each collection of the young ones."""
    found: list[int] = []

    def begun(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            found.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(begun)
    yield found
    gc.callbacks.remove(begun)
    gc.set_threshold(*before)


def test_a_collection_of_young_objects_walks_few_however_many_a_request_keeps(walked: list[int]) -> None:
    tune_gc()
    kept = [[number] for number in range(200_000)]
    assert len(kept) == 200_000
    assert walked
    assert max(walked) < _MOST


def test_what_imports_create_is_walked_by_no_collection(walked: list[int]) -> None:
    tune_gc()
    before = gc.get_freeze_count()
    with imports_frozen():
        kept = [[number] for number in range(200_000)]
    assert not walked
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(kept)
