"""The sizes of runs: combinations of which the short run has some, each value among them, and the long run the rest."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

FULL_SIZE: Final = pytest.StashKey[bool]()
"""In the configuration: True if tests of full size are run."""


def sampled(*values: Iterable[Any], one_in: int) -> list[Any]:
    """Return every combination of values as an argument of ``parametrize``.

    Args:
        values: The values of each parameter.
        one_in: One of this many combinations is in the short run; the rest are marked as long.
    """
    combinations = itertools.product(*(list(enumerate(each)) for each in values))
    return [
        pytest.param(
            *(value for _, value in chosen),
            marks=() if sum(at for at, _ in chosen) % one_in == 0 else pytest.mark.long,
        )
        for chosen in combinations
    ]
