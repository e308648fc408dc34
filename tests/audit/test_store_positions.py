"""The positions of stores: a rejected store stays rejected until its state is accepted, however far it continues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from confplane.audit.store_positions import PostgresStorePositions
from confplane.services.ports.cluster_states import Incarnation
from confplane.services.ports.incarnation import KnownPosition, StorePosition

if TYPE_CHECKING:
    from confplane.audit import Database

CLUSTER = "payments"
FIRST, SECOND = Incarnation(1, "a"), Incarnation(2, "b")
POSITION = StorePosition(FIRST, 0, cversion=5, pzxid=100, revision=101, time_ms=1, connection=1)
LATER = replace(POSITION, cversion=6, pzxid=200)


@pytest.fixture
def positions(pool: Database) -> PostgresStorePositions:
    return PostgresStorePositions(pool)


async def known(positions: PostgresStorePositions) -> KnownPosition | None:
    return (await positions.read(CLUSTER)).store


async def test_a_rejection_stays_until_another_incarnation_is_adopted(positions: PostgresStorePositions) -> None:
    await positions.save(CLUSTER, FIRST, POSITION)
    saved = await known(positions)
    assert saved == KnownPosition(1, "a", 5, 100, None)
    await positions.reject(CLUSTER, saved, "fewer commits")
    await positions.reject(CLUSTER, saved, "another reason")
    assert await known(positions) == replace(saved, rejected="fewer commits")
    await positions.save(CLUSTER, FIRST, LATER)
    assert await known(positions) == KnownPosition(1, "a", 6, 200, "fewer commits")
    await positions.adopt(CLUSTER, SECOND, POSITION)
    adopted = KnownPosition(2, "b", 5, 100, None)
    assert await known(positions) == adopted
    # A process that read the position before the adoption neither rejects it nor replaces it.
    await positions.reject(CLUSTER, saved, "fewer commits")
    await positions.save(CLUSTER, FIRST, LATER)
    assert await known(positions) == adopted


async def test_a_store_without_a_known_position_is_rejected_once(positions: PostgresStorePositions) -> None:
    await positions.reject(CLUSTER, None, "fewer commits")
    await positions.reject(CLUSTER, None, "another reason")
    assert await known(positions) == KnownPosition(1, "", 0, 0, "fewer commits")
