"""The apply status of changes to a Kafka cluster, as clients see it: revisions, waits of writes and reads, full views.

ZooKeeper and Postgres are real, the Kafka cluster is a double. Its changes are applied by a process of the test, so the
service that callers ask does not lead.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.client.errors import ProblemError
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.kraft.apply.apply_status import ApplyStatus, ApplyWaiter, ChangeApplyState
from confplane.services.ports.applying import AlterRefused, AlterUnknown, Delivery
from tests.support.adopting import apply
from tests.support.kafka_double import KafkaDouble
from tests.support.stores import kafka_writes, soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from kazoo.client import KazooClient

    from confplane.domain.changes import Node
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.store import ClusterStore
    from tests.support.adopting import Opener
    from tests.support.facets import ConfplaneClient
    from tests.support.observing import Observing
    from tests.support.world import World

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
TOPIC, BROKER = Entity.of(topic="t"), Entity.of(broker="1")
RATE = "producer_byte_rate"
WAIT = {"Confplane-Wait-Applied": "60000"}
QUOTAS = FacetName.CLIENT_QUOTAS


@pytest.fixture
def kafka() -> KafkaDouble:
    return KafkaDouble()


@pytest.fixture
async def leader(opened: Opener) -> Observing:
    """The process that applies, a round at a time."""
    return await opened()


async def written(one: Observing, entity: Entity, key: str, value: str | int) -> int:
    """One change by a caller; return its revision."""
    facet = QUOTAS if key == RATE else FacetName.CONFIGS
    [result] = await one.replica.edit(entity, facet, (Op(key, OpType.SET, value),))
    assert result.error is None, result.error
    assert result.revision is not None
    return result.revision


async def wait_applied(one: Observing, revision: int) -> None:
    """Wait until a process knows that nothing waits up to a revision."""
    await until(lambda: (one.store.applied_revision() or 0) >= revision)


@asynccontextmanager
async def applying(one: Observing) -> AsyncIterator[None]:
    """Apply in the background."""

    ended = False

    async def applied() -> bool:
        await one.apply_all()
        return ended

    task = asyncio.create_task(until(applied))
    try:
        yield
    finally:
        ended = True
        await task


async def test_every_process_knows_up_to_which_revision_nothing_waits(
    opened: Opener, leader: Observing, kafka: KafkaDouble
) -> None:
    other = await opened()
    await apply(leader)
    revision = await written(leader, ALICE, RATE, 1)
    await leader.store.catch_up(soon())
    assert (leader.store.applied_revision() or 0) < revision
    kafka.cut = "before"
    await apply(leader)
    assert (leader.store.applied_revision() or 0) < revision
    # Nothing is known of the first change, and so the second does not count, though it is applied.
    await apply(leader)
    await wait_applied(other, revision)
    await wait_applied(leader, revision)
    # A change that is not applied to Kafka is behind nothing.
    [result] = await leader.replica.edit(ALICE, FacetName.CLIENT_CONFIGS, (Op("acks", OpType.SET, "all"),))
    assert result.revision is not None
    await apply(leader)
    await wait_applied(other, result.revision)


async def test_another_leader_does_not_count_what_it_has_not_judged(
    opened: Opener, leader: Observing, kafka: KafkaDouble
) -> None:
    before = await written(leader, ALICE, RATE, 1)
    await apply(leader)
    await wait_applied(leader, before)
    waiting = await written(leader, BOB, RATE, 2)
    other = await opened()
    kafka.cut = "before"
    await apply(other)
    assert before <= (other.store.applied_revision() or 0) < waiting
    await apply(other)
    await wait_applied(other, waiting)


def counted(one: Observing) -> tuple[TargetStates, list[int]]:
    """Return the durable states, and the numbers of entities that were asked for."""
    queries: list[int] = []

    class Counted(type(one.states)):  # type: ignore[misc]  # the class of the states, whatever it is
        async def load(self, cluster: str, entity_ids: Any) -> Any:
            queries.append(len(entity_ids))
            return await super().load(cluster, entity_ids)

    return Counted(one.replica.parts.database), queries


async def test_waits_of_a_process_share_their_queries(opened: Opener, leader: Observing, kafka: KafkaDouble) -> None:
    other = await opened()
    states, queries = counted(other)
    standings = ApplyWaiter(other.store, states)
    kafka.refusals[BOB] = AlterRefused(42, "Invalid quota")
    revisions = {ALICE.id: await written(leader, ALICE, RATE, 1), BOB.id: await written(leader, BOB, RATE, 2)}
    waits = [
        asyncio.create_task(standings.wait({each: revisions[each]}, soon(60))) for each in revisions for _ in range(500)
    ]
    await until(lambda: bool(queries))
    await apply(leader)
    found = [each for wait in waits for each in (await wait).values()]
    assert set(found[:500]) == {ApplyStatus(ChangeApplyState.APPLIED, revisions[ALICE.id])}
    assert set(found[500:]) == {ApplyStatus(ChangeApplyState.REFUSED, None, 42, "Invalid quota")}
    assert len(queries) < 100
    # Without a leader a wait ends as it is.
    revision = await written(leader, ALICE, RATE, 3)
    assert await standings.wait({ALICE.id: revision}, soon(0)) == {ALICE.id: ApplyStatus(ChangeApplyState.PENDING)}


class LaggingStore:
    """A store whose mirror has not heard of the last change."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.is_behind = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, tree: Tree, entity_id: str) -> Node | None:
        return None if self.is_behind else self._store.get(tree, entity_id)

    def freshness(self) -> tuple[int, int | None] | None:
        return (0, None) if self.is_behind else self._store.freshness()


async def test_a_change_that_a_process_has_not_heard_of_is_not_undone(leader: Observing) -> None:
    states, queries = counted(leader)
    behind = LaggingStore(leader.store)
    standings = ApplyWaiter(cast("ClusterStore", behind), states)
    revision = await written(leader, ALICE, RATE, 1)
    wait = asyncio.create_task(standings.wait({ALICE.id: revision}, soon(60)))
    await until(lambda: len(queries) > 1)
    assert not wait.done()
    behind.is_behind = False
    await apply(leader)
    assert await wait == {ALICE.id: ApplyStatus(ChangeApplyState.APPLIED, revision)}


async def test_a_refusal_keeps_what_was_applied_before(leader: Observing, kafka: KafkaDouble) -> None:
    first = await written(leader, ALICE, RATE, 1)
    await apply(leader)
    kafka.refusals[ALICE] = AlterRefused(42, "Invalid quota")
    second = await written(leader, ALICE, RATE, 2)
    await apply(leader)
    refused = ApplyStatus(ChangeApplyState.REFUSED, first, 42, "Invalid quota")
    standings = ApplyWaiter(leader.store, leader.states)
    # A wait that wakes up late is told of its own revision.
    assert await standings.wait({ALICE.id: first}, soon(60)) == {ALICE.id: ApplyStatus(ChangeApplyState.APPLIED, first)}
    assert await standings.wait({ALICE.id: second}, soon(60)) == {ALICE.id: refused}
    node = leader.store.get(Tree.CONFIG, ALICE.id)
    assert node is not None
    assert await standings.statuses([node]) == {ALICE.id: refused}


async def test_what_waits_alone_for_a_broker_does_not_hold_the_revision_back(
    leader: Observing, kafka: KafkaDouble
) -> None:
    kafka.away = True
    standings = ApplyWaiter(leader.store, leader.states)
    alone = await written(leader, BROKER, "log.cleaner.threads", "2")
    await apply(leader)
    assert leader.queues.report().held.count == 1
    await wait_applied(leader, alone)
    # The revision is passed, and the change waits all the same.
    assert await standings.wait({BROKER.id: alone}, soon(0)) == {BROKER.id: ApplyStatus(ChangeApplyState.PENDING)}
    kafka.away = False
    await apply(leader)
    assert await standings.wait({BROKER.id: alone}, soon(60)) == {
        BROKER.id: ApplyStatus(ChangeApplyState.APPLIED, alone)
    }


async def test_an_entity_that_is_always_answered_with_an_unknown_error_waits_alone(
    leader: Observing, kafka: KafkaDouble
) -> None:
    poison = AlterUnknown("UNKNOWN_SERVER_ERROR: a policy threw (code -1)", -1)
    kafka.refusals[ALICE] = poison
    standings = ApplyWaiter(leader.store, leader.states)
    alone = await written(leader, ALICE, RATE, 1)
    other = await written(leader, BOB, RATE, 2)
    for _ in range(3):
        await apply(leader)
    report = leader.queues.report()
    assert (report.held.first, report.unknown.count) == (((ALICE.id, poison.reason),), 0)
    # Nobody else waits for it: neither the line of the quotas, nor the revision.
    assert [line.due for line in leader.queues._queues.values()] == [0.0]
    await wait_applied(leader, other)
    assert await standings.wait({BOB.id: other}, soon(60)) == {BOB.id: ApplyStatus(ChangeApplyState.APPLIED, other)}
    assert report.pending == 1
    # It is sent again, and may be lost, before it ends.
    del kafka.refusals[ALICE]
    kafka.cut = "before"
    await apply(leader)
    report = leader.queues.report()
    assert (report.held.count, report.unknown.count) == (0, 1)
    await apply(leader)
    assert await standings.wait({ALICE.id: alone}, soon(60)) == {ALICE.id: ApplyStatus(ChangeApplyState.APPLIED, alone)}
    report = leader.queues.report()
    assert (report.held.count, report.unknown.count, report.pending) == (0, 0, 0)


async def test_a_znode_that_can_not_be_read_waits_alone_with_the_reason(
    leader: Observing, kafka: KafkaDouble, raw_zk: KazooClient
) -> None:
    alone = await written(leader, ALICE, RATE, 1)
    kafka.cut = "before"
    await apply(leader)
    kafka_writes(raw_zk, "users/alice", b"nonsense")
    await apply(leader)
    assert leader.queues.report().held.first == ((ALICE.id, "The znode can't be read: it does not hold JSON"),)
    await wait_applied(leader, alone)
    assert len(kafka.requests) == 1
    # Mended, it is compared with the cluster as any znode that others wrote.
    kafka_writes(raw_zk, "users/alice", b'{"version":1,"config":{}}')
    await apply(leader)
    assert leader.queues.report().held.count == 0


async def test_what_was_sent_before_a_restore_waits_with_the_reason(leader: Observing) -> None:
    revision = await written(leader, ALICE, RATE, 1)
    newer = Delivery(ALICE.id, revision + 1_000_000, {RATE: "2"})
    await leader.states.begin("default", [newer])
    await apply(leader)
    [line] = [each for each in leader.queues._queues.values() if each.pending]
    # The mirror may follow in a moment: until then it is looked at a few times a second, and nothing is listed.
    assert (leader.queues.report().held.count, line.is_ready) == (0, False)
    line.mirror_lag_s = 0.0
    await apply(leader)
    [(entity_id, reason)] = leader.queues.report().held.first
    assert entity_id == ALICE.id
    assert reason.endswith("End the mode and begin it again")


async def test_a_change_of_a_topic_that_went_is_no_applied_one(leader: Observing, kafka: KafkaDouble) -> None:
    kafka.create_topic("t")
    kafka.alter(TOPIC, {"segment.ms": "100"})
    await leader.poll()
    standings = ApplyWaiter(leader.store, leader.states)
    revision = await written(leader, TOPIC, "retention.ms", "5")
    kafka.delete_topic("t")
    wait = asyncio.create_task(standings.wait({TOPIC.id: revision}, soon(60)))
    await apply(leader)
    await leader.poll()
    [standing] = (await wait).values()
    assert (standing.state, standing.revision, standing.code) == (ChangeApplyState.REFUSED, None, None)
    assert standing.message is not None


def shown(state: str, revision: str | None, code: int | None = None, message: str | None = None) -> dict[str, Any]:
    """The apply status of an entity as clients see it."""
    return {"state": state, "revision": revision, "code": code, "message": message, "refusedKeys": []}


@pytest.fixture
async def client(world: World, leader: Observing) -> AsyncIterator[ConfplaneClient]:
    """A client of a service that does not lead."""
    await apply(leader)
    async with world.service(cluster={"client_configs_layout": "separate"}) as service, service.client() as made:
        yield made


async def test_a_write_waits_and_says_what_became_of_each_entity(
    client: ConfplaneClient, leader: Observing, kafka: KafkaDouble
) -> None:
    kafka.refusals[BOB] = AlterRefused(42, "Invalid quota")

    def entry(name: str, **more: Any) -> dict[str, Any]:
        return {"entity": [{"entityType": "user", "entityName": name}], **more}

    ops = [{"key": RATE, "value": 1024}]
    body = {"entries": [entry("alice", ops=ops), entry("bob", ops=ops), entry("", ops=ops)]}
    async with applying(leader):
        answer = await client.request("POST", "client-quotas:alter", json=body, headers=WAIT)
        assert answer.status == 207
        alice, bob, wrong = answer.body["entries"]
        assert alice["applied"] == shown("applied", alice["revision"])
        assert bob["applied"] == shown("refused", None, 42, "Invalid quota")
        assert "applied" not in wrong
        # Nothing is changed, and nothing waits.
        again = (
            await client.request("POST", "client-quotas:alter", json={"entries": body["entries"][:2]}, headers=WAIT)
        ).body
        assert [each["applied"]["state"] for each in again["entries"]] == ["applied", "refused"]
        assert [each["changeId"] for each in again["entries"]] == [None, None]
        # Of both facets the client configs are applied nowhere.
        both = {
            "entries": [entry("alice", quotas=[{"key": RATE, "value": 5}], configs=[{"key": "acks", "value": "all"}])]
        }
        answer = await client.request("POST", "clients:alter", json=both, headers=WAIT)
        assert answer.body["entries"][0]["applied"]["state"] == "applied"
        configs = {"entries": [entry("alice", ops=[{"key": "acks", "value": "1"}])]}
        answer = await client.request("POST", "client-configs:alter", json=configs, headers=WAIT)
        assert "applied" not in answer.body["entries"][0]
        answer = await client.request("PUT", "client-quotas/user=alice", json={"quotas": {RATE: 9}}, headers=WAIT)
        assert answer.body["applied"]["state"] == "applied"
        # An answer can be sent back.
        sent = await client.request("PUT", "client-quotas/user=alice?view=full", json=answer.body, headers=WAIT)
        assert sent.body["status"]["applied"] == answer.body["applied"]
        # This process names no brokers, so it can't look at the entities of a condition.
        change = {"changeId": sent.change_id or answer.change_id, "force": True}
        answer = await client.request("POST", "audit:revert", json=change, headers=WAIT)
        [reverted] = answer.body["results"]
        assert reverted["applied"]["revision"] == reverted["revision"]
        answer = await client.request("DELETE", "client-quotas/user=alice", headers=WAIT)
        assert answer.body["applied"]["state"] == "applied"
        # The durable state of the entity may be seen a moment before the leader's word.
        taken = int(answer.body["applied"]["revision"])

        async def heard() -> bool:
            return ((await client.request("GET", "client-quotas")).applied_revision or 0) >= taken

        await until(heard)


async def test_a_write_that_nobody_applies_is_pending_and_committed(client: ConfplaneClient, leader: Observing) -> None:
    body = {"quotas": {RATE: 1024}}
    path = "client-quotas/user=alice"
    answer = await client.request("PUT", path, json=body, headers={"Confplane-Wait-Applied": "0"})
    assert answer.status == 200
    assert answer.body == {
        "id": "user=alice",
        "quotas": {RATE: 1024},
        "applied": shown("pending", None),
    }
    full = (await client.request("GET", f"{path}?view=full")).body
    assert full["status"]["applied"]["state"] == "pending"
    repeated = (await client.request("PUT", f"{path}?view=full", json=body)).body
    assert repeated["status"]["applied"] == full["status"]["applied"]
    assert "applied" not in (await client.request("GET", path)).body
    # A read waits no longer than it is told to, and shows what is committed.
    read = await client.request("GET", path, headers={"Confplane-Wait-Applied": "1"})
    assert (read.applied_revision or 0) < (read.revision or 0)
    validated = await client.request("PUT", f"{path}?validateOnly=true", json={"quotas": {RATE: 7}}, headers=WAIT)
    assert "applied" not in validated.body
    await apply(leader)
    read = await client.request("GET", f"{path}?view=full", headers=WAIT)
    assert read.body["status"]["applied"] == shown("applied", read.body["status"]["revision"])
    assert (read.applied_revision or 0) >= int(read.body["status"]["revision"])
    items = (await client.request("GET", "client-quotas?view=full")).body["items"]
    assert [each["status"]["applied"]["state"] for each in items] == ["applied"]


async def test_a_wait_of_a_bad_length_is_refused_ahead_of_the_write(client: ConfplaneClient) -> None:
    for value in ("", "-1", "1.5", "60001", "999999", "soon"):
        headers = {"Confplane-Wait-Applied": value}
        calls: list[Coroutine[Any, Any, Any]] = [
            client.request("PUT", "client-quotas/user=bad", json={"quotas": {RATE: 1}}, headers=headers),
            client.request("GET", "client-quotas", headers=headers),
        ]
        for call in calls:
            with pytest.raises(ProblemError) as caught:
                await call
            assert (caught.value.status, caught.value.body["errors"][0]["pointer"]) == (400, "Confplane-Wait-Applied")
            assert "milliseconds from 0 to 60000" in caught.value.body["detail"]
    assert (await client.request("GET", "client-quotas")).body["items"] == []
