"""Parts of messages."""

from __future__ import annotations

import pytest

from confplane.domain.texts import first_of


@pytest.mark.parametrize(("count", "text"), [(0, ""), (1, "1"), (3, "1, 2, 3"), (4, "1, 2, 3 and 1 more")])
def test_the_first_names_are_listed_and_the_rest_is_counted(count: int, text: str) -> None:
    assert first_of((str(number) for number in range(1, count + 1)), 3) == text
