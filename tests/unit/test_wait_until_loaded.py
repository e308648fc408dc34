"""Commands wait for the configs of a cluster for as long as their load makes progress."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from confplane.domain.errors import UnavailableError
from confplane.services.ports.store import MirrorLoad
from confplane.wiring import wait_until_loaded


class Loading:
    """A store whose load has a number of nodes after each wait; None: it has not begun. It ends with the numbers."""

    def __init__(self, *read: int | None) -> None:
        self.read = list(read)
        self._load: MirrorLoad | None = None

    async def wait_for(self, _revision: int, _deadline: float) -> None:
        if not self.read:
            return
        read = self.read.pop(0)
        self._load = None if read is None else MirrorLoad(read, 1_000_000, 0)
        raise UnavailableError("not loaded in time")

    def status(self) -> Any:
        return SimpleNamespace(load=self._load)


@pytest.mark.parametrize("read", [(), (0,), (0, 1, 500_000)])
async def test_a_load_that_makes_progress_is_waited_for(read: tuple[int, ...]) -> None:
    store: Any = Loading(*read)
    await wait_until_loaded(store, 30)
    assert store.read == []


@pytest.mark.parametrize("read", [(None, 1), (0, 0, 1), (0, 7, 7, 8), (5, None, 6)])
async def test_a_load_without_progress_is_given_up(read: tuple[int | None, ...]) -> None:
    store: Any = Loading(*read)
    with pytest.raises(UnavailableError):
        await wait_until_loaded(store, 30)
    assert len(store.read) == 1
