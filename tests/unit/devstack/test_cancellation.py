"""Cancellation by a signal handler that runs in the very thread that waits."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from confplane.devstack.process import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def timer() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("timer")
def test_a_handler_may_set_it_at_any_moment_of_a_wait() -> None:
    for number in range(40):
        cancellation = Cancellation()

        def handler(*_: Any, flag: Cancellation = cancellation) -> None:
            flag.set()

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * 0.00005)
        assert cancellation.wait(60)
        assert cancellation.is_set()


def test_a_wait_ends() -> None:
    assert not Cancellation().wait(0.01)
