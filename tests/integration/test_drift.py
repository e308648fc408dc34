"""Drift: what differs between a Kafka cluster and what callers wrote here, with both values, causes and authors.

ZooKeeper and Postgres are real, the Kafka cluster is a double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.access.ranges import NameRanges
from confplane.domain.approvals import Approval
from confplane.domain.entities import Entity
from confplane.domain.errors import ForbiddenError, InvalidRequestError, PolicyViolationError, UnavailableError
from confplane.services.kraft.reconcile.drift import DriftSelection, KeyDriftState
from confplane.services.ports.applying import AlterRefused
from tests.support.adopting import (
    ADMIN,
    ALICE,
    BOB,
    OTHER,
    PAIR,
    RATE,
    adopt_drift,
    alter,
    apply,
    drift,
    opener,
    restore,
    rows,
    shown_drift,
)
from tests.support.alerts import PartAlerts
from tests.support.observing import caller
from tests.support.people import person
from tests.support.stores import soon

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.services.kraft.reconcile.drift import EntityDrift
    from tests.support.adopting import Opener
    from tests.support.kafka_double import KafkaDouble
    from tests.support.observing import Observing
    from tests.support.world import World


async def test_what_waits_is_listed_with_both_values_and_its_author(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    assert await drift(one) == []
    await alter(one, ALICE, producer_byte_rate=2048)
    await alter(one, BOB, producer_byte_rate=3)
    found = await drift(one)
    assert shown_drift(found) == {
        "user=alice": {RATE: ("pending", "2048", "1024", "User:admin")},
        "user=bob": {RATE: ("pending", "3", None, "User:admin")},
    }
    assert all(key.since_ms is not None and each.observed_at is not None for each in found for key in each.keys)
    await apply(one)
    assert await drift(one) == []
    # What others change besides is followed, and is no drift.
    kafka.alter(ALICE, {OTHER: "7"})
    assert await drift(one) == []


async def test_drift_is_listed_while_the_cluster_is_away_or_paused(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    kafka.down = "No broker answers"
    (found,) = await drift(one)
    assert (found.observed_at, found.keys[0].theirs) == (None, None)
    assert shown_drift([found]) == {"user=alice": {RATE: ("pending", "2048", None, "User:admin")}}
    # A paused cluster is not even asked.
    kafka.down = None
    await one.targets.pause(caller())
    await one.aware()
    asked = kafka.calls.total()
    (found,) = await drift(one)
    assert (found.observed_at, kafka.calls.total()) == (None, asked)


async def test_what_was_refused_is_listed_with_kafkas_words(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refusals[ALICE] = AlterRefused(42, "Invalid quota")
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    # The entity is not followed until somebody changes it.
    kafka.alter(ALICE, {"request_percentage": "5"})
    await one.poll()
    assert gauges(one) == {"apply_contested": 0, "apply_extra": 0, "apply_drift": 1}
    (found,) = await drift(one)
    assert found.refused == AlterRefused(42, "Invalid quota")
    assert shown_drift([found]) == {
        "user=alice": {
            RATE: ("refused", "2048", "1024", "User:admin"),
            "request_percentage": ("pending", None, "5", "External:unknown"),
        }
    }
    kafka.refusals.clear()
    await alter(one, ALICE, producer_byte_rate=1024)
    assert {key.state for each in await drift(one) for key in each.keys} <= {KeyDriftState.PENDING, KeyDriftState.EXTRA}


async def test_what_was_sent_without_an_answer_is_listed(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    kafka.cut = "before"
    await apply(one)
    assert shown_drift(await drift(one)) == {"user=alice": {RATE: ("pending", "2048", "1024", "User:admin")}}


async def test_pages_follow_each_other_and_show_what_the_caller_may_describe(opened: Opener) -> None:
    one = await opened()
    for entity in (ALICE, BOB, PAIR):
        await alter(one, entity, producer_byte_rate=9)
    ids, after = [], None
    while True:
        page, after = await one.drift.page(ADMIN, page_size=1, after=after, deadline=soon())
        ids += [each.entity.id for each in page]
        if after is None:
            break
    assert ids == ["user=alice", "user=alice,client-id=x", "user=bob"]
    for wanted, found in ((ALICE, ["user=alice"]), (Entity.of(user="nobody"), [])):
        page, after = await one.drift.page(ADMIN, page_size=9, after=None, deadline=soon(), only=wanted)
        assert ([each.entity.id for each in page], after) == (found, None)

    class Some:
        unlimited = False

        def allowed(self, *_: Any) -> NameRanges:
            return NameRanges.of([("user=b", "user=c")])

    some: Any = Some()
    page, after = await one.drift.page(some, page_size=1, after=None, deadline=soon())
    assert ([each.entity.id for each in page], after) == (["user=bob"], None)
    page, after = await one.drift.page(some, page_size=1, after=None, deadline=soon(), only=ALICE)
    assert (page, after) == ([], None)


async def test_an_observed_cluster_has_no_drift(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened("observe")
    kafka.alter(ALICE, {RATE: "5"})
    assert await drift(one) == []


async def contest(one: Observing, kafka: KafkaDouble) -> None:
    """Have a key of alice contested, at the value 99."""
    for value in (5, 6, 7, 99):
        kafka.alter(ALICE, {RATE: str(value)})
        await restore(one)


@pytest.fixture
async def enforced(opened: Opener) -> Observing:
    """A process that enforces."""
    return await opened("enforce")


def gauges(one: Observing) -> dict[str, Any]:
    """The leader's gauges of what differs."""
    found = {each.name: each.value for each in one.reporter.metrics()}
    return {name: found[name] for name in ("apply_contested", "apply_extra", "apply_drift")}


async def test_what_is_left_alone_is_listed(enforced: Observing, kafka: KafkaDouble) -> None:
    alerts = PartAlerts(enforced.reporter)
    assert alerts.scrape() == set()
    kafka.alter(BOB, {RATE: "3"})
    await contest(enforced, kafka)
    expected = {
        "user=alice": {RATE: ("contested", "1024", "99", "External:unknown")},
        "user=bob": {RATE: ("extra", None, "3", "External:unknown")},
    }
    found = await drift(enforced)
    assert shown_drift(found) == expected
    assert gauges(enforced) == {"apply_contested": 1, "apply_extra": 1, "apply_drift": 2}
    assert alerts.scrape() == {"KafkaContested", "KafkaDrift"}
    assert all(key.since_ms is not None for each in found for key in each.keys)
    kafka.down = "No broker answers"
    assert shown_drift(await drift(enforced)) == expected


def ages(found: list[EntityDrift]) -> dict[tuple[str, str], int | None]:
    """The time from which on each key differs."""
    return {(each.entity.id, key.key): key.since_ms for each in found for key in each.keys}


async def test_drift_is_as_old_as_its_cause_and_not_as_the_last_poll(enforced: Observing, kafka: KafkaDouble) -> None:
    kafka.alter(BOB, {RATE: "3"})
    await contest(enforced, kafka)
    found = await drift(enforced)
    kafka.alter(ALICE, {RATE: "100"})
    kafka.alter(BOB, {RATE: "4"})
    await restore(enforced)
    later = await drift(enforced)
    assert [key.theirs for each in later for key in each.keys] == ["100", "4"]
    assert ages(later) == ages(found)


async def test_a_pending_key_is_as_old_as_its_own_newest_change(opened: Opener) -> None:
    one = await opened()
    for values in ({RATE: 2048}, {RATE: 4096}, {OTHER: 2}):
        await alter(one, ALICE, values)
    _, rate_at, other_at = [each.outcome.time_ms for each in await rows(one, ALICE) if each.outcome is not None]
    assert ages(await drift(one)) == {(ALICE.id, RATE): rate_at, (ALICE.id, OTHER): other_at}


async def test_adopted_values_are_ours_by_a_change_of_the_caller(enforced: Observing, kafka: KafkaDouble) -> None:
    one = enforced
    kafka.alter(BOB, {RATE: "3"})
    await contest(one, kafka)
    results = await adopt_drift(
        one, DriftSelection(ALICE, None), DriftSelection(BOB, frozenset([RATE])), DriftSelection(PAIR, None)
    )
    assert [each.error for each in results] == [None] * 3
    assert (one.config(ALICE), one.config(BOB)) == ({RATE: "99", OTHER: "1"}, {RATE: "3"})
    assert [(each.kind, each.intent.principal) for each in (await rows(one, BOB))] == [("change", "User:olga")]
    await apply(one)
    await restore(one)
    assert await drift(one) == []
    # They are enforced from now on.
    kafka.alter(ALICE, {RATE: "8"})
    kafka.alter(BOB, {RATE: None})
    await restore(one)
    assert kafka.now.configs == {ALICE: {RATE: "99", OTHER: "1"}, BOB: {RATE: "3"}}


async def test_adopting_needs_the_approvals_of_the_rules(world: World, kafka: KafkaDouble, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("rules: [{name: two-people, approvals: {count: 1}}]")
    async with opener(world, kafka, policy_file=tmp_path / "policy.yaml") as opened:
        one = await opened("enforce")
        await alter(one, ALICE, {RATE: 10})
        await apply(one)
        await contest(one, kafka)
        [result] = await adopt_drift(one, DriftSelection(ALICE, None), by=person("User:bob"))
        assert isinstance(result.error, PolicyViolationError)
        assert "needs approval" in result.error.detail
        approvals = (Approval("User:eve", entities=frozenset({ALICE.id})),)
        [result] = await adopt_drift(one, DriftSelection(ALICE, None), by=person("User:bob", approvals=approvals))
        assert result.error is None


async def test_nothing_is_adopted_from_a_lagging_broker(opened: Opener, kafka: KafkaDouble) -> None:
    """The broker shows the value from before our own applied change, which is not what the cluster has now."""
    one = await opened()
    with kafka.lagging():
        await alter(one, ALICE, {RATE: 2048})
        await apply(one)
        one.drift.poll_s, usual_s = 0.1, one.drift.poll_s
        with pytest.raises(UnavailableError):
            await adopt_drift(one, DriftSelection(ALICE, None))
    one.drift.poll_s = usual_s
    [result] = await adopt_drift(one, DriftSelection(ALICE, None))
    assert (result.error, result.change_id) == (None, None)
    assert one.config(ALICE) == {RATE: "2048", OTHER: "1"}


async def test_an_external_change_that_waits_to_be_followed_is_pending(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, {OTHER: 2})
    kafka.alter(ALICE, {"request_percentage": "50"})
    assert shown_drift(await drift(one)) == {
        "user=alice": {
            OTHER: ("pending", "2", "1", "User:admin"),
            "request_percentage": ("pending", None, "50", "External:unknown"),
        }
    }


async def test_nothing_is_adopted_from_a_cluster_that_is_away(enforced: Observing, kafka: KafkaDouble) -> None:
    kafka.down = "No broker answers"
    with pytest.raises(UnavailableError):
        await adopt_drift(enforced, DriftSelection(ALICE, None))


async def test_nothing_is_adopted_from_a_broker_that_is_away(opened: Opener, kafka: KafkaDouble) -> None:
    one, broker = await opened(), Entity.of(broker="1")
    kafka.alter(broker, {"log.cleaner.threads": "3"})
    await one.poll()
    await alter(one, broker, {"log.cleaner.threads": "2"})
    present, kafka.brokers = kafka.brokers, ()
    with pytest.raises(UnavailableError, match="broker=1"):
        await adopt_drift(one, DriftSelection(broker, None))
    kafka.brokers = present
    assert [each.error for each in await adopt_drift(one, DriftSelection(broker, None))] == [None]
    assert one.config(broker) == {"log.cleaner.threads": "3"}


async def test_a_contested_key_is_reapplied(enforced: Observing, kafka: KafkaDouble) -> None:
    one = enforced
    kafka.alter(ALICE, {"request_percentage": "5"})
    await contest(one, kafka)
    chosen = [DriftSelection(ALICE, None)]
    assert await one.drift.reapply(chosen, ADMIN, validate_only=True) == {"user=alice": [RATE]}
    await restore(one)
    assert kafka.now.configs[ALICE][RATE] == "99"
    assert await one.drift.reapply([DriftSelection(ALICE, frozenset([OTHER]))], ADMIN, validate_only=False) == {}
    assert await one.drift.reapply(chosen, ADMIN, validate_only=False) == {"user=alice": [RATE]}
    await apply(one)
    await restore(one)
    # What was never set here stays.
    assert kafka.now.configs[ALICE] == {RATE: "1024", OTHER: "1", "request_percentage": "5"}
    assert {key.state for each in await drift(one) for key in each.keys} == {KeyDriftState.EXTRA}


async def test_what_was_refused_is_sent_again(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.refusals[ALICE] = AlterRefused(44, "A policy forbids it")
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    kafka.refusals.clear()
    await apply(one)
    assert kafka.now.configs[ALICE][RATE] == "1024"
    assert await one.drift.reapply([DriftSelection(ALICE, None)], ADMIN, validate_only=False) == {"user=alice": [RATE]}
    await apply(one)
    await one.poll()
    assert kafka.now.configs[ALICE][RATE] == "2048"
    assert await drift(one) == []


async def test_nobody_reapplies_without_the_grant(enforced: Observing, kafka: KafkaDouble) -> None:
    await contest(enforced, kafka)

    class Nobody:
        def require(self, *_: Any, **more: Any) -> None:
            raise ForbiddenError("No grant", pointer=more["pointer"])

    nobody: Any = Nobody()
    with pytest.raises(ForbiddenError):
        await enforced.drift.reapply([DriftSelection(ALICE, None)], nobody, validate_only=False)
    await restore(enforced)
    assert kafka.now.configs[ALICE][RATE] == "99"


async def test_a_value_that_can_not_be_written_is_refused_alone(enforced: Observing, kafka: KafkaDouble) -> None:
    """Kafka 4.0 takes NaN as a quota."""
    kafka.alter(ALICE, {OTHER: "NaN"})
    kafka.alter(BOB, {RATE: "3"})
    refused, adopted = await adopt_drift(enforced, DriftSelection(ALICE, None), DriftSelection(BOB, None))
    assert isinstance(refused.error, InvalidRequestError)
    assert OTHER in refused.error.detail
    assert (adopted.error, enforced.config(BOB)) == (None, {RATE: "3"})
