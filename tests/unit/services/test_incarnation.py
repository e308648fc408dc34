"""Decisions on whether a store was restored."""

from __future__ import annotations

from typing import Any

import pytest

from confplane.services.ports.cluster_states import Incarnation
from confplane.services.ports.incarnation import KnownPosition, StorePosition, TrailState
from confplane.services.upkeep.incarnation import restored

SAME = Incarnation(2, "a")


def known(**other: Any) -> KnownPosition:
    return KnownPosition(**{"number": 2, "id": "a", "cversion": 100, "pzxid": 1_000, "rejected": None, **other})


def found(incarnation: Incarnation | None = SAME, *, cversion: int = 100, pzxid: int = 1_000) -> StorePosition:
    return StorePosition(incarnation, 0, cversion, pzxid, revision=2_000, time_ms=1, connection=1)


def trail(position: KnownPosition | None, last_commit: int = 0) -> TrailState:
    return TrailState(position, last_commit, None, 1)


@pytest.mark.parametrize(
    ("state", "store"),
    [
        (trail(None), found(None)),
        (trail(None), found()),
        (trail(None, last_commit=1_000), found()),
        (trail(known()), found()),
        (trail(known()), found(cversion=101, pzxid=1_001)),
        (trail(known(), last_commit=1_000), found(cversion=5_000, pzxid=2**40)),
        # The counter is a signed number of 32 bits, which wraps.
        (trail(known(cversion=2**31 - 1)), found(cversion=-(2**31))),
        (trail(known(cversion=-1)), found(cversion=5)),
    ],
)
def test_a_store_that_went_on_is_the_same(state: TrailState, store: StorePosition) -> None:
    assert restored(state, store) is None


@pytest.mark.parametrize(
    ("state", "store", "reason"),
    [
        (trail(known()), found(None), "is missing"),
        (trail(known()), found(Incarnation(1, "a")), "of incarnation 1, and the trail is of another one, 2"),
        (trail(known()), found(Incarnation(2, "b")), "of incarnation 2, and the trail is of another one, 2"),
        (trail(known()), found(cversion=99), "fewer commits"),
        # After an election every zxid is higher than before.
        (trail(known()), found(cversion=99, pzxid=2**40), "fewer commits"),
        (trail(known(cversion=-(2**31))), found(cversion=2**31 - 1), "fewer commits"),
        (trail(known()), found(cversion=200, pzxid=999), "last commit is at revision 999, and one at revision 1000"),
        # Up to a minute of commits is known by the trail alone.
        (trail(known(), last_commit=1_001), found(cversion=101), "and one at revision 1001"),
        (trail(None, last_commit=1_001), found(None), "and one at revision 1001"),
        (trail(known(rejected="because")), found(cversion=10**6, pzxid=2**40), "because"),
    ],
)
def test_a_store_that_went_back_was_restored(state: TrailState, store: StorePosition, reason: str) -> None:
    assert reason in (restored(state, store) or "")
