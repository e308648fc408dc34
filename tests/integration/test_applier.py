"""Callers write the quotas of a Kafka cluster in the mode ``adopt``: each ends in the cluster, and others' quotas here.

ZooKeeper and Postgres are real, the Kafka cluster is a double that loses requests and answers, and delivers some late.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import NotFoundError, UnavailableError
from confplane.domain.facets import Tree
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.kraft.reconcile import enforce
from confplane.services.kraft.reconcile.drift import DriftSelection
from confplane.services.ports.applying import AlterRefused, AlterRetriable, Delivery
from tests.audit.rows import run
from tests.support.adopting import (
    ADMIN,
    ALICE,
    BOB,
    OTHER,
    PAIR,
    RATE,
    Turmoil,
    alter,
    apply,
    drift,
    equal,
    kinds,
    overtake,
    restore,
    rows,
    shown_drift,
)
from tests.support.alerts import PartAlerts
from tests.support.kafka_double import KafkaDouble, nothing
from tests.support.observing import Observing, caller, znode_metadata
from tests.support.stores import kafka_writes, soon, until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from confplane.domain.changes import Node
    from tests.support.adopting import Opener
    from tests.support.world import World

IP = Entity.of(ip="10.0.0.1")
TREE = Tree.CONFIG


async def test_a_callers_change_is_committed_here_and_then_applied(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048, consumer_byte_rate=None)
    await alter(one, PAIR, producer_byte_rate=7)
    assert kafka.now.configs[ALICE][RATE] == "1024"
    assert znode_metadata(raw_zk.get("/config/users/alice")[0])["altered"] == [OTHER, RATE]
    assert await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "2048", OTHER: None}, PAIR: {RATE: "7"}}]
    equal(one, kafka)
    # Nothing is left to send, and nothing of it is another's.
    await apply(one)
    await one.poll()
    assert len(kafka.requests) == 1
    assert [each.kind for each in await rows(one, ALICE)] == ["change"]
    assert one.queues.report().pending == 0


async def test_a_znode_that_no_index_takes_holds_up_no_other_entity(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    name = secrets.token_hex(2_000)
    kafka_writes(
        raw_zk, f"users/{name}", b'{"version":1,"config":{"%s":"5"},"altered":["%s"]}' % ((RATE.encode(),) * 2)
    )
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    assert kafka.now.configs[ALICE][RATE] == "2048"
    report = one.queues.report()
    assert "Postgres can't index its id" in str(report.held)
    assert report.problem == ""
    await until(lambda: (one.store.applied_revision() or 0) >= node_of(one).mzxid)


async def test_only_the_difference_to_what_was_applied_is_sent(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    await alter(one, ALICE, consumer_byte_rate=5)
    kafka.alter(ALICE, {RATE: "3000"})
    await apply(one)
    assert kafka.requests[1:] == [{ALICE: {OTHER: "5"}}]
    # An external change of a key that was not sent is followed.
    await one.poll()
    assert one.config(ALICE) == {RATE: "3000", OTHER: "5"}
    assert "altered" not in znode_metadata(raw_zk.get("/config/users/alice")[0])
    equal(one, kafka)
    *changes, observed = await rows(one, ALICE)
    assert ([each.kind for each in changes], observed.kind) == (["change", "change"], "observed")
    assert observed.intent.entities[0].before == {RATE: "2048", OTHER: "5"}


async def test_a_value_from_before_external_changes_is_sent_again_whatever_was_applied_since(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    kafka.alter(ALICE, {RATE: "3000"})
    await one.poll()
    await alter(one, ALICE, consumer_byte_rate=5)
    await apply(one)
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    assert kafka.requests[1:] == [{ALICE: {OTHER: "5"}}, {ALICE: {RATE: "2048"}}]
    await one.poll()
    equal(one, kafka)
    assert await kinds(one, ALICE) == ["change", "observed", "change", "change"]


async def test_a_poll_never_undoes_queued_changes(opened: Opener, kafka: KafkaDouble) -> None:
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    kafka.alter(ALICE, {OTHER: "9"})
    await one.poll()
    await two.aware()
    await two.refresher.refresh([ALICE], (), soon())
    assert one.config(ALICE) == {RATE: "2048", OTHER: "1"}
    await apply(one)
    # The other key is adopted behind the own change, though the cluster's answer is the same as in the look above.
    await one.poll()
    assert one.config(ALICE) == {RATE: "2048", OTHER: "9"}
    equal(one, kafka)


async def test_a_lagging_broker_does_not_undo_an_applied_change(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    with kafka.lagging():
        await apply(one)
        await one.poll_once()
        assert one.config(ALICE) == {RATE: "2048", OTHER: "1"}
    await one.poll()
    assert [each.kind for each in await rows(one, ALICE)] == ["change"]
    equal(one, kafka)


@pytest.mark.parametrize("cut", ["before", "after", "late"])
async def test_a_request_without_an_answer_is_sent_again(opened: Opener, kafka: KafkaDouble, cut: str) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    kafka.cut = cut
    await apply(one)
    assert one.queues.report().unknown.first == (("user=alice", "No answer came"),)
    assert {sample.name: sample.value for sample in one.reporter.metrics()}["apply_unknown"] == 1
    await one.poll()
    assert one.config(ALICE) == {RATE: "2048", OTHER: "1"}
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "2048"}}] * 2
    assert one.queues.report().unknown.count == 0
    if kafka.waiting:
        kafka.arrive()
    await one.poll()
    equal(one, kafka)
    assert [each.kind for each in await rows(one, ALICE)] == ["change"]


async def test_a_cluster_that_goes_away_during_a_request_leaves_its_outcome_unknown(
    opened: Opener, kafka: KafkaDouble
) -> None:
    """As where a controller hangs: neither the request is answered, nor the barrier behind it."""
    one = await opened()
    alerts = PartAlerts(one.reporter)
    await alter(one, ALICE, producer_byte_rate=2048)

    async def go() -> None:
        kafka.down = "The controller hangs"

    kafka.cut, kafka.after_request = "after", go
    with pytest.raises(UnavailableError):
        await apply(one)
    assert one.queues.report().unknown.first == (("user=alice", "No answer came"),)
    assert alerts.scrape() == {"KafkaApplyUnknown", "KafkaDrift"}
    one.queues._queues["client-quotas"].pending["user=alice"].since -= 100
    assert alerts.scrape() == {"KafkaApplyUnknown", "KafkaApplyBehind", "KafkaDrift"}
    kafka.down, kafka.after_request = None, nothing
    await apply(one)
    assert one.queues.report().unknown.count == 0
    assert alerts.scrape() == set()
    await one.poll()
    equal(one, kafka)
    assert [each.kind for each in await rows(one, ALICE)] == ["change"]


def node_of(one: Observing) -> Node:
    node = one.store.get(Tree.CONFIG, ALICE.id)
    assert node is not None
    return node


async def apply_status_of(one: Observing) -> str:
    """The apply status of the entity's newest change."""
    found = await ApplyWaiter(one.store, one.states).statuses([node_of(one)])
    return found[ALICE.id].state.value


@pytest.mark.parametrize("refused", [False, True], ids=["applied", "refused"])
async def test_a_change_that_the_journal_shows_during_a_delivery_is_sent_after_it(
    opened: Opener, kafka: KafkaDouble, *, refused: bool
) -> None:
    one = await opened()
    await one.poll()
    await alter(one, ALICE, producer_byte_rate=2048)
    if refused:
        kafka.refusals[ALICE] = AlterRefused(42, "No")

    async def change_again() -> None:
        kafka.after_request = nothing
        await alter(one, ALICE, consumer_byte_rate=5)
        await one.store.catch_up(soon())
        # The next round of the applier reads the journal while the request is under way.
        await one.round.apply()

    kafka.after_request = change_again
    first = node_of(one).mzxid
    await apply(one)
    kafka.refusals.clear()
    # The end of the first change is known to all, and the frontier does not pass the second.
    await until(lambda: one.store.applied_revision() == first)
    # No look has it sent.
    await apply(one)
    assert kafka.now.configs[ALICE][OTHER] == "5"
    assert len(kafka.requests) == 2
    await until(lambda: (one.store.applied_revision() or 0) >= node_of(one).mzxid)
    equal(one, kafka)


async def test_a_delivery_publishes_the_watermark_at_its_end(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await one.poll()
    await alter(one, ALICE, producer_byte_rate=2048)
    await one.store.catch_up(soon())
    revision = node_of(one).mzxid
    assert (one.store.applied_revision() or 0) < revision
    # No other round follows.
    await one.round.apply()
    await until(lambda: (one.store.applied_revision() or 0) >= revision)
    equal(one, kafka)


async def test_a_new_term_waits_for_the_deliveries_of_the_term_before(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)

    async def lead_again() -> None:
        kafka.after_request = nothing
        leadership = cast("Any", one.store.leadership)
        leadership.held = False
        began.append(await one.round.apply())
        leadership.held = True
        await one.queues.collect()
        began.append(bool(one.queues.due()))

    began: list[bool] = []
    kafka.after_request = lead_again
    await apply(one)
    assert began == [False, False]
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "2048"}}]
    assert await apply_status_of(one) == "applied"


@pytest.mark.parametrize("back", [False, True], ids=["another key", "back to the value on its way"])
async def test_the_appliers_own_rounds_end_every_change(opened: Opener, kafka: KafkaDouble, *, back: bool) -> None:
    one = await opened()
    await one.poll()
    under_way, answered = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        kafka.after_request = nothing
        under_way.set()
        await answered.wait()

    kafka.after_request = wait
    one.applier.start()
    try:
        await alter(one, ALICE, producer_byte_rate=2048)
        await under_way.wait()
        if back:
            await alter(one, ALICE, producer_byte_rate=4096)
            await alter(one, ALICE, producer_byte_rate=2048)
        else:
            await alter(one, ALICE, consumer_byte_rate=5)
        newest = node_of(one).mzxid
        # The applier's rounds have read the journal meanwhile.
        await until(lambda: (one.queues._collected or 0) >= newest)
        answered.set()
        await until(lambda: (one.store.applied_revision() or 0) >= newest)
        assert await apply_status_of(one) == "applied"
        equal(one, kafka)
    finally:
        await one.applier.stop()


async def test_a_late_duplicate_is_neither_adopted_nor_anothers(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await overtake(one, kafka)
    assert kafka.now.configs[ALICE][RATE] == "2"
    kafka.arrive()
    kafka.alter(ALICE, {OTHER: "77"})
    assert kafka.now.configs[ALICE][RATE] == "1"
    await one.poll()
    # The other's key is adopted, the late one is sent anew.
    assert one.config(ALICE) == {RATE: "2", OTHER: "77"}
    await apply(one)
    assert kafka.requests[-1] == {ALICE: {RATE: "2"}}
    await one.poll()
    equal(one, kafka)
    observed = [each for each in await rows(one, ALICE) if each.kind == "observed"]
    assert [each.intent.entities[0].keys for each in observed] == [(OTHER,)]
    assert {sample.name: sample.value for sample in one.reporter.metrics()}["applied_late"] == 1


async def test_a_stale_duplicate_between_two_equal_polls_is_repaired(opened: Opener, kafka: KafkaDouble) -> None:
    """The cluster's answer is that of the look before, although a newer value was applied in between."""
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    kafka.cut = "late"
    await apply(one)
    await apply(one)
    await one.poll()
    equal(one, kafka)
    await alter(one, ALICE, producer_byte_rate=2)
    await apply(one)
    kafka.arrive()
    assert kafka.now.configs[ALICE][RATE] == "1"
    await restore(one)
    equal(one, kafka)
    assert kafka.now.configs[ALICE][RATE] == "2"


async def test_a_stale_in_flight_write_replaced_externally_is_not_an_external_change(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    kafka.cut = "late"
    await apply(one)
    # Sent again, it is applied; others replace it.
    await apply(one)
    kafka.alter(ALICE, {RATE: "9"})
    await one.poll()
    assert one.config(ALICE) == {RATE: "9", OTHER: "1"}
    kafka.arrive()
    assert kafka.now.configs[ALICE][RATE] == "1"
    await one.poll_once()
    # The present value stays, and is sent, though it was never sent before; until then it is listed.
    assert shown_drift(await drift(one)) == {ALICE.id: {RATE: ("pending", "9", "1", "External:unknown")}}
    await restore(one)
    assert kafka.now.configs[ALICE] == one.config(ALICE) == {RATE: "9", OTHER: "1"}
    assert await kinds(one, ALICE) == ["change", "observed"]
    assert late(one) == 1


@pytest.mark.parametrize("word", ["adopt", "enforce"])
async def test_external_writes_of_replaced_values_are_followed(opened: Opener, kafka: KafkaDouble, word: str) -> None:
    """Everything that was sent has an end, so no value can be late."""
    one = await opened()
    await one.set_mode(word)
    for rate in (1000, 2000):
        await alter(one, ALICE, producer_byte_rate=rate)
        await apply(one)
    for _ in range(5):
        kafka.alter(ALICE, {RATE: "1000"})
        await restore(one)
    if word == "adopt":
        equal(one, kafka)
        assert await kinds(one, ALICE) == ["change", "change", "observed"]
    else:
        assert [key.state for each in await drift(one) for key in each.keys] == ["contested"]
        assert await kinds(one, ALICE) == ["put-back"] * enforce.TIMES + ["change"] * 2
    assert late(one) == 0


async def test_each_delivery_without_an_outcome_counts_for_one_stale_in_flight_write(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=1000)
    for _ in range(2):
        kafka.cut = "before"
        await apply(one)
    await apply(one)
    await alter(one, ALICE, producer_byte_rate=2000)
    await apply(one)
    for _ in range(2):
        kafka.alter(ALICE, {RATE: "1000"})
        # Several looks at one late value are one.
        await one.poll_once()
        await one.poll()
        await restore(one)
        assert kafka.now.configs[ALICE][RATE] == "2000"
    assert (late(one), await kinds(one, ALICE)) == (2, ["change"] * 2)
    kafka.alter(ALICE, {RATE: "1000"})
    await restore(one)
    assert await kinds(one, ALICE) == ["change", "change", "observed"]
    equal(one, kafka)


# The states of an earlier release, whose values have times, and no numbers of deliveries.
EARLIER_STATES = """
INSERT INTO target_states (cluster, entity_id, sent_mzxid, sent, applied_mzxid, applied_offset, applied)
SELECT cluster, entity_id, sent_mzxid, (
  SELECT jsonb_agg(jsonb_build_object('key', key, 'value', value, 'at', extract(epoch FROM sent_at)) ORDER BY sent_at)
  FROM deliveries WHERE deliveries.entity_id = applied_entities.entity_id
), applied_mzxid, applied_offset, (
  SELECT jsonb_object_agg(key, value) FROM applied_keys WHERE applied_keys.entity_id = applied_entities.entity_id
) FROM applied_entities;
DELETE FROM applied_entities; DELETE FROM applied_keys; DELETE FROM deliveries
"""


async def test_the_states_of_an_earlier_release_are_moved_once_its_processes_have_stopped(
    opened: Opener, kafka: KafkaDouble, world: World, raw_zk: KazooClient
) -> None:
    one = await opened()
    for rate in (1000, 2000):
        await alter(one, ALICE, producer_byte_rate=rate)
        await apply(one)
    run(world.database.owner_dsn, EARLIER_STATES)
    target = json.loads(raw_zk.get("/confplane/target")[0])
    raw_zk.create("/confplane/writers/earlier", ephemeral=True)
    raw_zk.set("/confplane/target", json.dumps({**target, "version": 1}).encode())
    await one.aware()
    await alter(one, ALICE, producer_byte_rate=3000)
    # The other process applies it, or this one once that process is gone.
    assert not await apply(one)
    assert not await one.round.observe()
    assert len(kafka.requests) == 2
    # Until then this one reads the states, shows external changes, and decides on none of them.
    kafka.alter(ALICE, {RATE: "9"})
    kafka.alter(BOB, {RATE: "8"})
    await one.refresher.refresh([ALICE, BOB], (), soon())
    assert (one.config(BOB) or {}).get(RATE) == "8"
    assert (await one.states.load("default", [ALICE.id]))[ALICE.id].applied[RATE] == "2000"
    assert await kinds(one, ALICE) == ["change"] * 3
    with pytest.raises(UnavailableError, match="earlier release"):
        await one.drift.reapply([DriftSelection(ALICE, None)], ADMIN, validate_only=False)
    raw_zk.delete("/confplane/writers/earlier")
    await apply(one)
    await one.aware()
    assert json.loads(raw_zk.get("/confplane/target")[0]) == target
    assert kafka.requests[2:] == [{ALICE: {RATE: "3000"}}]
    # Each value that it sent may be late once.
    for _ in range(2):
        kafka.alter(ALICE, {RATE: "1000"})
        await restore(one)
    equal(one, kafka)
    found = await kinds(one, ALICE)
    assert (late(one), [each for each in found if each != "put-back"]) == (1, [*["change"] * 3, "observed"])


@pytest.mark.parametrize("reason", ["away", "frozen", "held"])
async def test_what_never_went_out_is_never_late(
    opened: Opener, kafka: KafkaDouble, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    freezes = FreezeService(one.replica.parts.runner)
    await alter(one, ALICE, producer_byte_rate=1000)

    async def ask(*_: Any) -> Any:
        match reason:
            case "away":
                raise UnavailableError("No broker answers")
            case "held":
                return [AlterRetriable("The right is missing")]
        raise AssertionError

    begin = one.states.begin

    async def frozen(*given: Any) -> set[str]:
        found = await begin(*given)
        await freezes.freeze(one.store, "a drill", caller())
        return found

    if reason == "frozen":
        monkeypatch.setattr(one.states, "begin", frozen)
    else:
        monkeypatch.setattr(kafka, "alter_quotas", ask)
    with pytest.raises(UnavailableError) if reason == "away" else contextlib.nullcontext():
        await apply(one)
    monkeypatch.undo()
    if reason == "frozen":
        await freezes.thaw(one.store, "over", caller())
    for rate in (1000, 2000):
        await alter(one, ALICE, producer_byte_rate=rate)
        await apply(one)
    assert (await one.states.load("default", [ALICE.id]))[ALICE.id].uncertain == {}
    kafka.alter(ALICE, {RATE: "1000"})
    await one.poll()
    equal(one, kafka)
    assert (await kinds(one, ALICE))[-1] == "observed"


async def test_a_stale_in_flight_write_that_the_cluster_refuses_to_lose_is_not_an_external_change(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await overtake(one, kafka)
    kafka.arrive()
    kafka.refusals[ALICE] = AlterRefused(44, "A policy forbids it")
    await restore(one)
    await restore(one)
    assert await kinds(one, ALICE) == ["change", "change"]
    assert shown_drift(await drift(one))[ALICE.id][RATE][:3] == ("refused", "2", "1")
    kafka.refusals.clear()
    await one.states.reapply("default", {ALICE.id: [RATE]})
    await restore(one)
    equal(one, kafka)


def late(one: Observing) -> Any:
    """The late values that a process has put back."""
    return {sample.name: sample.value for sample in one.reporter.metrics()}["applied_late"]


async def test_a_value_from_before_an_unknown_outcome_is_also_sent_after_a_refusal(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    await apply(one)
    await alter(one, ALICE, producer_byte_rate=2)
    kafka.cut = "late"
    await apply(one)
    kafka.refusals[ALICE] = AlterRefused(42, "Invalid quota")
    await alter(one, ALICE, producer_byte_rate=3)
    await apply(one)
    kafka.refusals.clear()
    kafka.arrive()
    await alter(one, ALICE, producer_byte_rate=1)
    await apply(one)
    assert kafka.now.configs[ALICE][RATE] == "1"
    await one.poll()
    equal(one, kafka)


async def test_a_repetition_without_an_end_is_ended_by_the_next_leader(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await overtake(one, kafka)
    # Another's change leaves a znode without altered keys.
    kafka.alter(ALICE, {OTHER: "77"})
    await one.poll()
    kafka.arrive()
    await one.poll()
    kafka.cut = "before"
    await apply(one)
    assert kafka.now.configs[ALICE] == {RATE: "1", OTHER: "77"}
    two = await opened()
    await apply(two)
    await two.poll()
    assert two.config(ALICE) == {RATE: "2", OTHER: "77"}
    await apply(two)
    await two.poll()
    equal(two, kafka)
    assert [each.kind for each in await rows(two, ALICE)] == ["change", "change", "observed"]


async def test_a_poll_before_a_newer_value_shows_no_stale_write(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    for rate in (1, 2):
        await alter(one, ALICE, producer_byte_rate=rate)
        await apply(one)
    with kafka.lagging():
        await alter(one, ALICE, producer_byte_rate=3)
        await apply(one)
        await one.poll_once()
    await one.poll()
    await apply(one)
    assert len(kafka.requests) == 3
    equal(one, kafka)


async def test_what_the_cluster_refuses_is_listed_until_it_is_changed(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    alerts = PartAlerts(one.reporter)
    kafka.refusals[ALICE] = AlterRefused(42, "Invalid quota")
    await alter(one, ALICE, producer_byte_rate=2048)
    await alter(one, BOB, producer_byte_rate=3)
    assert alerts.scrape() == set()
    await apply(one)
    assert kafka.now.configs[BOB] == {RATE: "3"}
    assert one.queues.report().refused.first == (("user=alice", "Invalid quota (code 42)"),)
    assert alerts.scrape() == {"KafkaApplyRefused", "KafkaDrift"}
    refusals = {sample.labels: sample.value for sample in one.reporter.metrics() if sample.name == "applied_refusals"}
    assert refusals == {("default", "42"): 1}
    await apply(one)
    await one.poll()
    assert len(kafka.requests) == 1
    assert one.config(ALICE) == {RATE: "2048", OTHER: "1"}
    # Another leader lists it too, and sends nothing.
    two = await opened()
    await apply(two)
    assert (two.queues.report().refused.count, len(kafka.requests)) == (1, 1)
    kafka.refusals.clear()
    await alter(one, ALICE, producer_byte_rate=1000)
    await apply(one)
    assert one.queues.report().refused.count == 0
    await one.poll()
    equal(one, kafka)


async def test_a_cluster_that_is_away_gets_everything_later(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    kafka.down = "No broker answers"
    await alter(one, ALICE, producer_byte_rate=2048)
    await alter(one, ALICE, producer_byte_rate=4096)
    with pytest.raises(UnavailableError):
        await apply(one)
    kafka.down = None
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "4096"}}]
    await one.poll()
    equal(one, kafka)


@pytest.mark.parametrize("end", ["waits", "refused"])
async def test_what_a_poll_left_for_a_callers_change_is_placed_after_the_previous_poll(
    opened: Opener, kafka: KafkaDouble, end: str
) -> None:
    one = await opened()
    await one.poll()
    kafka.create_topic("between")
    await alter(one, ALICE, producer_byte_rate=2048)
    kafka.alter(ALICE, {OTHER: "7"})
    written = kafka.now.offset
    if end == "refused":
        kafka.refusals[ALICE] = AlterRefused(44, "no")
        await apply(one)
        await one.poll()
    kafka.create_topic("behind")
    # The cluster's answer about quotas is the same again.
    await one.poll_once()
    await one.poll_once()
    kafka.refusals.clear()
    await alter(one, ALICE, producer_byte_rate=4096)
    await apply(one)
    await one.poll()
    equal(one, kafka)
    *changes, row = await rows(one, ALICE)
    assert ([each.kind for each in changes], row.kind) == (["change", "change"], "observed")
    observed = row.intent.observed
    assert observed is not None
    assert observed.after is not None
    assert observed.after < written <= observed.until


async def overtake_leader(two: Observing, kafka: KafkaDouble, *, external: bool) -> None:
    """Another leader sends a newer value; or it sends the same value, and follows an external change of it."""
    if external:
        await apply(two)
        kafka.alter(ALICE, {RATE: "9"})
        await two.poll()
        assert two.config(ALICE) == {RATE: "9", OTHER: "1"}
    else:
        await alter(two, ALICE, producer_byte_rate=2)
        await apply(two)


@pytest.mark.parametrize("external", [False, True])
async def test_a_leader_that_wakes_up_before_its_delivery_begins_sends_nothing(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch, *, external: bool
) -> None:
    """A pause between the read of the znode and the durable delivery id."""
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    begin = one.states.begin

    async def paused(*given: Any) -> set[str]:
        await overtake_leader(two, kafka, external=external)
        return await begin(*given)

    monkeypatch.setattr(one.states, "begin", paused)
    await apply(one)
    monkeypatch.undo()
    assert kafka.requests == [{ALICE: {RATE: "1" if external else "2"}}]
    await restore(one)
    equal(one, kafka)
    assert await kinds(one, ALICE) == ["change", "observed" if external else "change"]


@pytest.mark.parametrize("external", [False, True])
async def test_a_leader_that_wakes_up_after_its_delivery_began_is_repaired(
    opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch, *, external: bool
) -> None:
    one, two = await opened(), await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    send = kafka.alter_quotas

    async def paused(*given: Any) -> Any:
        monkeypatch.setattr(kafka, "alter_quotas", send)
        await overtake_leader(two, kafka, external=external)
        return await send(*given)

    monkeypatch.setattr(kafka, "alter_quotas", paused)
    await apply(one)
    assert kafka.now.configs[ALICE][RATE] == "1"
    await restore(two)
    equal(two, kafka)
    assert two.config(ALICE) == {RATE: "9" if external else "2", OTHER: "1"}
    assert await kinds(two, ALICE) == ["change", "observed" if external else "change"]


async def test_nothing_is_sent_while_frozen_or_paused(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    freezes = FreezeService(one.replica.parts.runner)
    await freezes.freeze(one.store, "a drill", caller())
    assert not await apply(one)
    await freezes.thaw(one.store, "over", caller())
    await one.targets.pause(caller())
    await one.aware()
    assert not await apply(one)
    assert kafka.requests == []
    # Writes are taken all the same, and applied afterwards.
    await alter(one, BOB, producer_byte_rate=3)
    await one.targets.resume(caller())
    await one.aware()
    await apply(one)
    await one.poll()
    equal(one, kafka)


@pytest.mark.parametrize("word", ["pause", "observe", "freeze"])
async def test_a_mode_change_after_a_delivery_began_holds_it_back(
    word: str, opened: Opener, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=2048)
    begin, freezes = one.states.begin, FreezeService(one.replica.parts.runner)

    async def changed(*given: Any) -> set[str]:
        monkeypatch.undo()
        found = await begin(*given)
        match word:
            case "pause":
                await one.targets.pause(caller())
            case "observe":
                await one.set_mode("observe")
            case _:
                await freezes.freeze(one.store, "a drill", caller())
        return found

    monkeypatch.setattr(one.states, "begin", changed)
    await apply(one)
    assert kafka.requests == []
    await freezes.thaw(one.store, "over", caller())
    await one.targets.resume(caller())
    await one.set_mode("adopt")
    await apply(one)
    await one.poll()
    equal(one, kafka)
    assert kafka.now.configs[ALICE][RATE] == "2048"


async def test_states_of_another_ensemble_are_forgotten_with_a_new_begin(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await one.states.begin("default", [Delivery(ALICE.id, 2**62, {RATE: "9"})])
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    # Somebody seems to know a newer revision.
    assert (kafka.requests, one.queues.report().pending) == ([], 1)
    await one.set_mode("observe")
    # The delivery without an outcome may arrive.
    assert (await one.states.load("default", [ALICE.id]))[ALICE.id].sent_mzxid == 0
    await one.set_mode("adopt")
    await alter(one, ALICE, producer_byte_rate=4096)
    await apply(one)
    assert kafka.requests == [{ALICE: {RATE: "4096"}}]
    # A begin that is no new one forgets nothing.
    await one.set_mode("adopt")
    assert (await one.states.load("default", [ALICE.id]))[ALICE.id].applied == {RATE: "4096"}


async def test_a_stale_in_flight_write_of_an_earlier_period_of_the_mode_is_not_an_external_change(
    opened: Opener, kafka: KafkaDouble
) -> None:
    one = await opened()
    await alter(one, ALICE, producer_byte_rate=1)
    kafka.cut = "late"
    await apply(one)
    await one.set_mode("observe")
    await one.poll()
    await one.set_mode("adopt")
    await alter(one, ALICE, producer_byte_rate=4096)
    await apply(one)
    kafka.arrive()
    await restore(one)
    equal(one, kafka)
    assert one.config(ALICE) == {RATE: "4096", OTHER: "1"}
    # The first change was undone with the end of the mode.
    assert await kinds(one, ALICE) == ["change", "observed", "change"]
    assert late(one) == 1
    # Nothing else is known of the time before.
    state = (await one.states.load("default", [ALICE.id]))[ALICE.id]
    assert state.applied == {RATE: "4096"}


async def test_a_mode_needs_a_complete_import(world: World, kafka: KafkaDouble) -> None:
    one = Observing(await world.replica(client_configs_layout="separate"), kafka)
    with pytest.raises(NotFoundError):
        await one.set_mode("adopt")
    await one.targets.begin((await kafka.identity(soon())).cluster_id, caller())
    with pytest.raises(NotFoundError, match="not complete"):
        await one.set_mode("adopt")


async def test_an_import_is_refused_while_callers_write(opened: Opener) -> None:
    one = await opened()
    assert any("mode adopt" in each for each in (await one.importer.survey(soon())).blockers)


async def test_external_writes_to_zookeeper_are_reverted(
    opened: Opener, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    one = await opened()
    await one.poll()
    await alter(one, BOB, producer_byte_rate=3)
    await apply(one)
    await one.poll()
    kafka_writes(raw_zk, "users/alice", b'{"version":1,"config":{"producer_byte_rate":"666"}}')
    # With its members, and without them.
    kept = raw_zk.get("/config/users/bob")[0].replace(b'"3"', b'"3","consumer_byte_rate":"666"')
    assert b"altered" in kept
    kafka_writes(raw_zk, "users/bob", kept)
    await apply(one)
    await one.poll()
    await apply(one)
    await one.poll()
    assert (one.config(ALICE), one.config(BOB)) == ({RATE: "1024", OTHER: "1"}, {RATE: "3"})
    equal(one, kafka)


async def test_the_log_does_not_bring_our_own_writes_as_anothers(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened(log=True)
    one.observer.start()
    await one.reached()
    await alter(one, ALICE, producer_byte_rate=2048)
    await apply(one)
    kafka.alter(BOB, {RATE: "5"})
    await one.reached()
    await until(lambda: one.config(BOB) == {RATE: "5"})
    assert [each.kind for each in await rows(one, ALICE)] == ["change"]


async def in_turmoil(opened: Opener, kafka: KafkaDouble, seed: int, steps: int) -> None:
    """Expect cluster and tree to be equal behind so many steps, and rows of others with values of others."""
    kafka.create_topic("t")
    turmoil = Turmoil([await opened(), await opened()], kafka, seed)
    for number in range(steps):
        await turmoil.step(number)
    await turmoil.end()
    for one in turmoil.sides:
        equal(one, kafka)
    assert {kind for kind, _, _ in await turmoil.theirs()} <= {"observed", "put-back"}


@pytest.mark.parametrize("seed", range(1, 3))
async def test_cluster_and_tree_are_equal_at_the_end(opened: Opener, kafka: KafkaDouble, seed: int) -> None:
    await in_turmoil(opened, kafka, seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 164))
async def test_cluster_and_tree_are_equal_after_many_steps(opened: Opener, kafka: KafkaDouble, seed: int) -> None:
    await in_turmoil(opened, kafka, seed, 400)


async def test_many_changes_are_one_request(opened: Opener, kafka: KafkaDouble) -> None:
    one = await opened()
    await asyncio.gather(*(alter(one, Entity.of(user=f"u{at}"), producer_byte_rate=at + 1) for at in range(50)))
    await apply(one)
    assert len(kafka.requests) == 1
    assert len(kafka.requests[0]) == 50
    equal(one, kafka)
