"""Throttles of reassignments, and those that no reassignment uses."""

from __future__ import annotations

import pytest

from confplane.domain.entities import Entity
from confplane.domain.observed import throttles_of, unused_throttles

LEADER, FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATE = "leader.replication.throttled.rate"
ORDERS, PAYMENTS, BROKER = Entity.of(topic="orders"), Entity.of(topic="payments"), Entity.of(broker="1")


@pytest.mark.parametrize(
    ("entity", "keys", "expected"),
    [
        (ORDERS, {LEADER, FOLLOWER, "retention.ms"}, [FOLLOWER, LEADER]),
        (ORDERS, {RATE}, []),
        (BROKER, {RATE, "follower.replication.throttled.rate", LEADER}, ["follower.replication.throttled.rate", RATE]),
        # Moves between disks are not among the reassignments.
        (BROKER, {"replica.alter.log.dirs.io.max.bytes.per.second"}, []),
        # No tool sets it.
        (Entity.of(broker=None), {RATE}, []),
        (Entity.of(group="orders"), {LEADER}, []),
    ],
)
def test_throttles_are_those_that_tools_set_for_a_reassignment(
    entity: Entity, keys: set[str], expected: list[str]
) -> None:
    assert throttles_of(entity, keys) == expected


@pytest.mark.parametrize(
    ("reassigned", "expected"),
    [
        (set(), [(ORDERS, LEADER), (PAYMENTS, LEADER), (PAYMENTS, FOLLOWER), (BROKER, RATE)]),
        ({"orders"}, [(PAYMENTS, LEADER), (PAYMENTS, FOLLOWER)]),
        # It may use the rates of all brokers.
        ({"other"}, [(ORDERS, LEADER), (PAYMENTS, LEADER), (PAYMENTS, FOLLOWER)]),
        ({"orders", "payments"}, []),
    ],
)
def test_throttles_without_a_reassignment_are_unused(reassigned: set[str], expected: list[tuple[Entity, str]]) -> None:
    throttles = {ORDERS: [LEADER], PAYMENTS: [LEADER, FOLLOWER], BROKER: [RATE]}
    assert unused_throttles(throttles, reassigned) == expected
