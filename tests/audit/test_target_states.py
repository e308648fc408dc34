"""The states of deliveries to a Kafka cluster: by key, for how long, and as an earlier release left them."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from confplane.audit import Database, PostgresTargetStates, earlier_states
from confplane.audit import target_state_statements as statements
from confplane.services.ports.applying import (
    NO_STATE,
    AlterApplied,
    AlterRefused,
    AlterRetriable,
    BaseValue,
    Correction,
    Delivery,
    DeliveryOutcome,
    DriftCause,
    DriftRecord,
    RefusedValue,
    TargetState,
)
from confplane.services.ports.kafka import KraftEntityType
from tests.audit.proxy import Proxy
from tests.audit.rows import fetch, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import TextClause

    from tests.support import servers

CLUSTER = "c"
ALICE = "user=alice"
SINCE_MS = 1_763_682_000_123
PUT_BACK = {"rate": BaseValue("9", 6)}
REFUSED = DriftRecord(DriftCause.REFUSED, "1", SINCE_MS, RefusedValue("2", 40, "No"))
EARLIER = """
INSERT INTO target_states (
  cluster, entity_id, sent_mzxid, sent, applied_mzxid, applied_offset, applied, refused_code, refused_text, reapply,
  drift, put_back_at, topic_id, claim, base)
SELECT 'c', 'user=alice', 7, jsonb_build_array(
    jsonb_build_object('key', 'late', 'value', '1', 'at', extract(epoch FROM now()) - 4, 'open', 2),
    jsonb_build_object('key', 'gone', 'value', NULL, 'at', extract(epoch FROM now()) - 3, 'open', 0, 'taken', 30),
    jsonb_build_object('key', 'late', 'value', '2', 'at', extract(epoch FROM now()) - 2, 'open', 0, 'taken', 40),
    jsonb_build_object('key', 'oldest', 'value', '3', 'at', extract(epoch FROM now()) - 1)
  ), 5, 41, '{"late": "2", "gone": null, "contested": "8"}', NULL, NULL, '["again"]',
  '{"contested": {"cause": "contested", "theirs": "9", "since_ms": 1763682000123},
    "extra": {"cause": "extra", "theirs": null, "since_ms": 1763682000123},
    "refused": {"cause": "contested", "theirs": null, "since_ms": 1763682000123, "refused":
      {"value": "x", "code": 40, "text": "No", "absent": true}}}',
  '{"again": [1763682000.5, 1763682001.25]}', 'topic', '00000000-0000-0000-0000-000000000001',
  '{"again": {"value": "4", "offset": 39}}'
"""


@pytest.fixture
async def states(migrated: servers.Database) -> AsyncIterator[PostgresTargetStates]:
    database = Database(migrated.service_dsn, 8)
    yield PostgresTargetStates(database)
    await database.close()


async def load(states: PostgresTargetStates) -> TargetState:
    return (await states.load(CLUSTER, [ALICE]))[ALICE]


async def deliver(
    states: PostgresTargetStates, mzxid: int, values: dict[str, str | None], outcome: Any = None, offset: int = 10
) -> Delivery:
    """Begin a delivery, and end it if there is an outcome."""
    made = Delivery(ALICE, mzxid, values)
    assert await states.begin(CLUSTER, [made]) == {ALICE}
    if outcome is not None:
        await states.end(CLUSTER, [DeliveryOutcome(made, outcome, offset)])
    return made


async def test_everything_that_an_earlier_release_stored_is_read_and_moved(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    run(migrated.owner_dsn, EARLIER)
    before = await load(states)
    assert await states.drifting_entities(CLUSTER) == [ALICE]
    assert await states.move_earlier(CLUSTER) == 1
    assert (
        await load(states)
        == before
        == TargetState(
            sent_mzxid=7,
            applied_mzxid=5,
            applied_offset=41,
            applied={"late": "2", "gone": None, "contested": "8"},
            sent=frozenset({"late", "gone", "oldest"}),
            uncertain={"late": ("1",), "oldest": ("3",)},
            refused=None,
            reapply=frozenset({"again"}),
            drift={
                "contested": DriftRecord(DriftCause.CONTESTED, "9", SINCE_MS),
                "extra": DriftRecord(DriftCause.EXTRA, None, SINCE_MS),
                "refused": DriftRecord(DriftCause.REFUSED, None, SINCE_MS, RefusedValue("x", 40, "No", absent=True)),
            },
            put_back_at={"again": [1763682000.5, 1763682001.25]},
            topic_id="topic",
            base={"again": BaseValue("4", 39)},
            taken_at={"gone": 30, "late": 40},
            under_way=True,
            absent=frozenset({"refused"}),
        )
    )
    # A value counts as often as it was sent without an outcome.
    unknown = "SELECT key, count(*) FROM deliveries WHERE outcome IS NULL GROUP BY key ORDER BY key"
    assert fetch(migrated.owner_dsn, unknown) == [("late", 2), ("oldest", 1)]
    assert fetch(migrated.owner_dsn, "SELECT count(*) FROM target_states") == [(0,)]
    assert await states.move_earlier(CLUSTER) == 0


async def test_a_state_without_any_delivery_is_moved(states: PostgresTargetStates, migrated: servers.Database) -> None:
    # Such as that of an entity that another tool changed before this service did, or that has no znode.
    run(
        migrated.owner_dsn,
        EARLIER.replace("'user=alice', 7, ", "'user=alice', 0, ").replace("), 5, 41, ", "), 0, 41, "),
    )
    before = await load(states)
    assert await states.move_earlier(CLUSTER) == 1
    assert await load(states) == before
    assert before.base == {"again": BaseValue("4", 39)}


@pytest.mark.parametrize("step", range(len(earlier_states.MOVE)))
async def test_an_interrupted_move_loses_nothing(
    states: PostgresTargetStates, migrated: servers.Database, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(migrated.owner_dsn, EARLIER)
    whole = earlier_states.MOVE
    monkeypatch.setattr(earlier_states, "MOVE", [*whole[:step], text("SELECT 1 / 0"), *whole[step + 1 :]])
    with pytest.raises(Exception, match="division by zero"):
        await states.move_earlier(CLUSTER)
    monkeypatch.setattr(earlier_states, "MOVE", whole)
    assert fetch(migrated.owner_dsn, "SELECT count(*) FROM applied_entities") == [(0,)]
    assert await states.move_earlier(CLUSTER) == 1
    assert (await load(states)).uncertain == {"late": ("1",), "oldest": ("3",)}


async def test_a_row_that_an_earlier_release_writes_after_the_move_takes_nothing_away(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    await deliver(states, 9, {"late": "7", "again": "8", "rate": "5"}, AlterApplied(), 50)
    await deliver(states, 10, {"rate": "6"})
    before = await load(states)
    run(migrated.owner_dsn, EARLIER)
    unmoved = await load(states)
    assert await states.move_earlier(CLUSTER) == 1
    assert unmoved == before
    assert await load(states) == replace(before, uncertain={"late": ("1",), "oldest": ("3",), "rate": ("6",)})


async def test_two_leaders_move_a_state_once(states: PostgresTargetStates, migrated: servers.Database) -> None:
    run(migrated.owner_dsn, EARLIER)
    assert sum(await asyncio.gather(*(states.move_earlier(CLUSTER) for _ in range(4)))) == 1
    unknown = "SELECT count(*) FROM deliveries WHERE outcome IS NULL"
    assert fetch(migrated.owner_dsn, unknown) == [(3,)]


async def test_a_mode_that_begins_forgets_all_except_the_values_that_may_arrive(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    run(migrated.owner_dsn, EARLIER)
    await states.forget(CLUSTER, [KraftEntityType.QUOTAS], {})
    await states.move_earlier(CLUSTER)
    await deliver(states, 20, {"rate": "5"})
    await states.forget(CLUSTER, [KraftEntityType.QUOTAS], {})
    state = await load(states)
    assert (state.sent_mzxid, state.applied_mzxid, state.applied_offset, state.applied) == (0, 0, -1, {})
    assert (state.reapply, state.drift, state.base, state.put_back_at) == (frozenset(), {}, {}, {})
    assert state.uncertain == {"late": ("1",), "oldest": ("3",), "rate": ("5",)}


@pytest.mark.parametrize(
    ("revision", "last", "left", "kept"),
    [
        pytest.param(1, None, {}, True, id="unchanged"),
        pytest.param(1, None, {"other": DriftRecord(DriftCause.CONTESTED, "9", SINCE_MS)}, True, id="contested"),
        pytest.param(2, None, {}, False, id="changed"),
        pytest.param(None, None, {}, False, id="followed"),
        pytest.param(2, AlterRefused(42, "No"), {}, False, id="refused"),
        pytest.param(2, AlterRetriable("away"), {}, False, id="not-sent"),
        pytest.param(2, AlterApplied(), {"other": REFUSED}, False, id="partly-refused"),
    ],
)
async def test_what_the_cluster_has_taken_of_an_unchanged_entity_outlasts_the_mode(
    states: PostgresTargetStates, revision: int | None, last: Any, left: dict[str, DriftRecord], *, kept: bool
) -> None:
    await deliver(states, 1, {"rate": "1", "other": "1"}, AlterApplied(), 5)
    if last is not None:
        made = Delivery(ALICE, 2, {"other": "2"})
        await states.begin(CLUSTER, [made])
        await states.end(CLUSTER, [DeliveryOutcome(made, last, 6, left)])
    elif left:
        assert await states.correct(CLUSTER, [Correction(ALICE, 1, 6, {}, left, {"other": [1.5]}, None)])
    revisions = {} if revision is None else {ALICE: revision}
    for _ in range(2):  # at the end and at the begin
        await states.forget(CLUSTER, [KraftEntityType.QUOTAS], revisions)
    found = await load(states)
    assert (found != NO_STATE) is kept
    if kept:
        assert found.is_settled(1)
        assert found.applied == {"rate": "1", "other": "1"}
        assert (found.drift, found.put_back_at, found.taken_at) == ({}, {}, {"rate": 5, "other": 5})


async def test_the_end_of_a_mode_locks_entities_in_the_order_of_deliveries(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    later = "user=bob"
    for entity_id in (later, ALICE):  # the order of the rows in the table
        await states.begin(CLUSTER, [Delivery(entity_id, 7, {"key": "1"}, None)])
    lock = "SELECT FROM applied_entities WHERE entity_id = %s FOR UPDATE NOWAIT"
    waiting = """
SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"""

    async def waits() -> bool:
        return bool(fetch(migrated.owner_dsn, waiting))

    async with await psycopg.AsyncConnection.connect(migrated.owner_dsn) as delivery:
        await delivery.execute(lock, [ALICE])
        forgets = asyncio.create_task(states.forget(CLUSTER, [KraftEntityType.QUOTAS], {}))
        await until(waits)
        await delivery.execute(lock, [later])
    await forgets


async def test_a_key_to_put_back_does_not_outlast_the_mode(states: PostgresTargetStates) -> None:
    await deliver(states, 1, {"rate": "1"}, AlterApplied(), 5)
    assert await states.correct(CLUSTER, [Correction(ALICE, 1, 6, PUT_BACK, {}, {}, None)])
    await states.forget(CLUSTER, [KraftEntityType.QUOTAS], {ALICE: 1})
    assert await load(states) == NO_STATE


@pytest.mark.parametrize(
    ("outcome", "recorded", "applied", "uncertain"),
    [
        (AlterApplied(), "applied", {"rate": "2"}, {}),
        (AlterRefused(42, "No"), "refused", {"rate": "1"}, {}),
        (AlterRetriable("away"), "not-sent", {"rate": "1"}, {}),
        (None, None, {"rate": "1"}, {"rate": ("2",)}),
    ],
)
async def test_a_delivery_is_stored_with_its_outcome(
    states: PostgresTargetStates,
    migrated: servers.Database,
    outcome: Any,
    recorded: str | None,
    applied: dict[str, str],
    uncertain: dict[str, tuple[str]],
) -> None:
    await deliver(states, 1, {"rate": "1"}, AlterApplied(), 10)
    await deliver(states, 2, {"rate": "2"}, outcome, 11)
    state = await load(states)
    assert (state.applied, state.uncertain) == (applied, uncertain)
    # What was taken is known unless the later value may arrive.
    assert state.taken_at == ({} if outcome is None else {"rate": 11 if applied == {"rate": "2"} else 10})
    found = fetch(migrated.owner_dsn, "SELECT mzxid, value, outcome FROM deliveries ORDER BY mzxid")
    assert found == [(1, "1", "applied"), (2, "2", recorded)]


async def test_the_outcome_of_a_delivery_that_another_followed_stays_unknown(states: PostgresTargetStates) -> None:
    first = await deliver(states, 1, {"rate": "1"})
    await deliver(states, 2, {"rate": "2"}, AlterApplied())
    await states.end(CLUSTER, [DeliveryOutcome(first, AlterApplied(), 12)])
    state = await load(states)
    assert (state.applied, state.uncertain, state.applied_mzxid) == ({"rate": "2"}, {"rate": ("1",)}, 2)


async def test_a_repeated_statement_counts_once(states: PostgresTargetStates, migrated: servers.Database) -> None:
    made = Delivery(ALICE, 1, {"rate": "1"})
    for _ in range(2):
        assert await states.begin(CLUSTER, [made]) == {ALICE}
    assert fetch(migrated.owner_dsn, "SELECT count(*) FROM deliveries") == [(1,)]
    end = DeliveryOutcome(made, AlterApplied(), 5)
    for each in (end, replace(end, offset=9)):
        await states.end(CLUSTER, [each])
    assert (await load(states)).applied_offset == 5


async def test_each_stale_write_is_one_delivery(states: PostgresTargetStates) -> None:
    for mzxid in (1, 2):
        await deliver(states, mzxid, {"rate": "1"})
    await deliver(states, 3, {"rate": "3"}, AlterApplied(), 5)
    correction = Correction(ALICE, 3, 6, PUT_BACK, {}, {}, None, late={"rate": "1"})
    for left in ({"rate": ("1",)}, {}):
        assert await states.correct(CLUSTER, [correction]) == {ALICE}
        state = await load(states)
        assert (state.uncertain, state.reapply) == (left, frozenset({"rate"}))
        # It is decided once until the values were sent again.
        assert await states.correct(CLUSTER, [correction]) == set()
        await deliver(states, 3, {"rate": "3"}, AlterApplied(), 6)


async def test_deliveries_are_kept_for_30_days_and_those_of_a_refusal_as_long_as_it_lasts(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    await deliver(states, 1, {"rate": "1"}, AlterApplied())
    await deliver(states, 2, {"rate": "2"}, AlterRefused(42, "No"))
    await states.expire(CLUSTER)
    sent = "SELECT value FROM deliveries ORDER BY value"
    assert fetch(migrated.owner_dsn, sent) == [("1",), ("2",)]
    run(migrated.owner_dsn, "UPDATE deliveries SET sent_at = sent_at - interval '31 days'")
    await states.expire(CLUSTER)
    assert fetch(migrated.owner_dsn, sent) == [("2",)]
    await deliver(states, 3, {"rate": "3"}, AlterApplied())
    await states.expire(CLUSTER)
    assert fetch(migrated.owner_dsn, sent) == [("3",)]


async def test_a_value_arrives_within_a_day(states: PostgresTargetStates, migrated: servers.Database) -> None:
    await deliver(states, 1, {"rate": "1"})
    run(migrated.owner_dsn, "UPDATE deliveries SET sent_at = sent_at - interval '1 day'")
    assert (await load(states)).uncertain == {}


async def test_a_key_that_no_index_takes_is_stored_like_any_other(states: PostgresTargetStates) -> None:
    # Random, because Postgres compresses texts.
    long = [secrets.token_hex(4_000) for _ in range(3)]
    bob = Delivery("user=bob", 1, {"rate": "1"})
    made = Delivery(ALICE, 1, {long[0]: "1", long[1]: "2"})
    for _ in range(2):
        assert await states.begin(CLUSTER, [made, bob]) == {ALICE, "user=bob"}
    assert (await load(states)).uncertain == {long[0]: ("1",), long[1]: ("2",)}
    await states.end(CLUSTER, [DeliveryOutcome(each, AlterApplied(), 5) for each in (made, bob)])
    drift = {long[2]: DriftRecord(DriftCause.EXTRA, "3", SINCE_MS)}
    put_back = {long[0]: BaseValue("3", 6)}
    assert await states.correct(CLUSTER, [Correction(ALICE, 1, 6, put_back, drift, {}, None)]) == {ALICE}
    await states.reapply(CLUSTER, {ALICE: [long[1]]})
    state = await load(states)
    assert (state.applied, state.reapply) == ({long[0]: "1", long[1]: "2"}, frozenset(long[:2]))
    assert state.drift == drift


async def test_a_transaction_that_fails_leaves_nothing_and_the_connection_is_used_again(
    migrated: servers.Database,
) -> None:
    database = Database(migrated.service_dsn, 1)
    states = PostgresTargetStates(database)
    # Such an id is refused earlier; no index takes it.
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        await states.begin(CLUSTER, [Delivery(each, 1, {"rate": "1"}) for each in (ALICE, secrets.token_hex(4_000))])
    corrections = [Correction(each, 1, 6, PUT_BACK, {}, {}, None) for each in (ALICE, secrets.token_hex(4_000))]
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        await states.correct(CLUSTER, corrections)
    assert await load(states) == NO_STATE
    with pytest.raises(psycopg.errors.DivisionByZero):
        await database.atomically(lambda pipeline: pipeline.send(text("SELECT 1 / 0")))
    await deliver(states, 1, {"rate": "1"}, AlterApplied())
    assert (await load(states)).applied == {"rate": "1"}
    await database.close()


async def test_a_key_to_put_back_stays_so_until_the_cluster_takes_it(states: PostgresTargetStates) -> None:
    await deliver(states, 1, {"rate": "1", "other": "1"}, AlterApplied(), 5)
    put_back = Correction(ALICE, 1, 6, PUT_BACK, {}, {"rate": [1763682000.5]}, None)
    assert await states.correct(CLUSTER, [put_back]) == {ALICE}
    # A client changes another key, and the delivery of both gets no answer.
    await deliver(states, 2, {"rate": "1", "other": "2"})
    state = await load(states)
    assert (state.reapply, state.put_back_at) == (frozenset({"rate"}), {})
    await deliver(states, 2, {"rate": "1", "other": "2"}, AlterApplied(), 7)
    assert (await load(states)).reapply == frozenset()


@pytest.mark.parametrize(
    ("outcome", "kept"), [(None, statements.MOST_UNKNOWN), (AlterRetriable("away"), 1)], ids=["unknown", "not-sent"]
)
async def test_the_retries_of_an_outage_take_up_limited_room(
    states: PostgresTargetStates, migrated: servers.Database, outcome: Any, kept: int
) -> None:
    await deliver(states, 1, {"rate": "1"}, AlterApplied())
    for _ in range(statements.MOST_UNKNOWN + 5):
        await deliver(states, 2, {"rate": "2"}, outcome)
    sent = "SELECT value, count(*) FROM deliveries GROUP BY value ORDER BY value"
    assert fetch(migrated.owner_dsn, sent) == [("1", 1), ("2", kept)]
    assert (await load(states)).sent == {"rate"}
    await deliver(states, 2, {"rate": "2"}, AlterApplied())
    assert (await load(states)).applied == {"rate": "2"}


async def test_the_past_deliveries_of_a_revision_are_not_read(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    await deliver(states, 1, {"rate": "1"}, AlterApplied())
    past = "SELECT 'c', 'user=alice', 1, gen_random_uuid(), 'rate', '1', 'applied' FROM generate_series(1, 10000)"
    run(migrated.owner_dsn, f"INSERT INTO deliveries (cluster, entity_id, mzxid, id, key, value, outcome) {past}")
    query = str(statements.LOAD.compile(dialect=PGDialect_psycopg())).encode()  # type: ignore[no-untyped-call]
    with psycopg.connect(migrated.service_dsn) as connection:
        found = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + query, {"cluster": CLUSTER, "ids": [ALICE]})
        plan = json.dumps(found.fetchone())
    assert max(float(each) for each in re.findall(r'"Actual Rows": ([0-9.]+)', plan)) == 1
    # An open revision has its keys once.
    run(migrated.owner_dsn, "UPDATE applied_entities SET applied_mzxid = 0")
    assert (await load(states)).sent == {"rate"}


async def test_an_earlier_release_between_two_periods_of_this_one_leaves_nothing_stale(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    await deliver(states, 3, {"first": "1", "refused": "1"}, AlterApplied(), 20)
    await deliver(states, 4, {"first": "2"})
    drift = {"refused": DriftRecord(DriftCause.CONTESTED, "9", SINCE_MS)}
    await deliver(states, 5, {"refused": "2"}, AlterApplied(), 21)
    put_back = {"first": BaseValue("3", 22)}
    assert await states.correct(CLUSTER, [Correction(ALICE, 5, 22, put_back, drift, {"first": [1.5]}, None)])
    # The mode ends, and the earlier release begins it.
    await states.forget(CLUSTER, list(KraftEntityType), {ALICE: 5})
    assert await states.drifting_entities(CLUSTER) == await states.undelivered(CLUSTER) == []
    run(migrated.owner_dsn, EARLIER)
    for moved in (0, 1):
        state = await load(states)
        assert (state.sent_mzxid, state.applied_mzxid, state.applied_offset, state.under_way) == (7, 5, 41, True)
        assert state.applied == {"late": "2", "gone": None, "contested": "8"}
        assert (set(state.drift), set(state.reapply)) == ({"contested", "extra", "refused"}, {"again"})
        assert state.put_back_at.keys() == state.base.keys() == {"again"}
        # What may arrive may do so whichever release sent it.
        assert state.uncertain == {"first": ("2",), "late": ("1",), "oldest": ("3",)}
        assert await states.move_earlier(CLUSTER) == 1 - moved


@pytest.mark.parametrize("statement", [statements.LOAD, statements.BEGIN, statements.END], ids=["load", "begin", "end"])
async def test_a_delivery_reads_its_own_rows_only_and_is_planned_once(
    migrated: servers.Database, statement: TextClause
) -> None:
    for table, columns, values in (
        ("applied_entities", "", ""),
        ("applied_keys", ", key, state", ", 'k', 'resend'"),
        ("deliveries", ", key, mzxid, id", ", 'k', 1, gen_random_uuid()"),
    ):
        entities = f"SELECT 'c', 'user=' || number{values} FROM generate_series(1, 20000) AS number"  # noqa: S608 - constants
        run(migrated.owner_dsn, f"INSERT INTO {table} (cluster, entity_id{columns}) {entities}")
    run(migrated.owner_dsn, "ANALYZE")
    row = {"entity_id": "user=1", "mzxid": 1, "id": str(uuid4()), "values": {"k": "1"}, "outcome": "applied"}
    given = {"cluster": CLUSTER, "ids": ["user=1"], "rows": json.dumps([row])}
    sent = str(statement.compile(dialect=PGDialect_psycopg())).encode()  # type: ignore[no-untyped-call]
    with psycopg.connect(migrated.service_dsn) as connection:
        for _ in range(12):
            connection.execute(sent, given, prepare=True)
        # It is planned as often as Postgres does that with any statement.
        planned = connection.execute("SELECT custom_plans, generic_plans FROM pg_prepared_statements", prepare=False)
        assert planned.fetchall() == [(5, 7)]
        connection.execute("SET plan_cache_mode = force_generic_plan")
        plan = str(connection.execute(b"EXPLAIN " + sent, given).fetchall())
    assert "Index Cond: ((cluster = 'c'::text) AND (entity_id = ANY" in plan
    assert "Index Cond: (cluster = 'c'::text)'" not in plan
    assert not re.search("Seq Scan on (applied_entities|applied_keys|deliveries)", plan)


async def test_a_delivery_of_many_entities_does_not_compare_each_with_all(
    states: PostgresTargetStates, migrated: servers.Database
) -> None:
    ids = [f"user={number}" for number in range(200)]
    deliveries = [Delivery(each, 1, {"rate": "1"}, None) for each in ids]
    await states.begin(CLUSTER, deliveries)
    await states.end(CLUSTER, [DeliveryOutcome(each, AlterApplied(), 1) for each in deliveries])
    deliveries = [Delivery(each, 2, {"rate": "2"}, None) for each in ids]
    row = {"values": {"rate": "2"}, "outcome": "applied"}
    plans: dict[str, str] = {}
    with psycopg.connect(migrated.service_dsn) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.commit()
        for name in ("LOAD", "BEGIN", "END"):
            if name == "END":
                await states.begin(CLUSTER, deliveries)
            rows = [row | {"entity_id": each.entity_id, "mzxid": 2, "id": str(each.id)} for each in deliveries]
            sent = str(getattr(statements, name).compile(dialect=PGDialect_psycopg())).encode()  # type: ignore[no-untyped-call]
            given = {"cluster": CLUSTER, "ids": ids, "rows": json.dumps(rows)}
            found = connection.execute(b"EXPLAIN (ANALYZE, TIMING OFF) " + sent, given, prepare=True).fetchall()
            connection.rollback()
            plans[name] = "\n".join(line for (line,) in found)
    compared = {
        name: sum(map(int, re.findall(r"Rows Removed by Join Filter: (\d+)", plan))) for name, plan in plans.items()
    }
    assert all(f"rows={len(ids)}" in plan for plan in plans.values())
    assert compared == {"LOAD": 0, "BEGIN": 0, "END": 0}


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_statement_that_is_planned_once_survives_a_migration_and_poolers(
    migrated: servers.Database, *, pooled: bool
) -> None:
    async with Proxy(migrated.service_dsn).running() as proxy:
        proxy.pooler = pooled
        database = Database(proxy.dsn, 1)
        states = PostgresTargetStates(database)
        await deliver(states, 1, {"rate": "1"}, AlterApplied())
        assert (await load(states)).applied == {"rate": "1"}
        for table in ("applied_entities", "applied_keys", "deliveries"):
            run(migrated.owner_dsn, f"ALTER TABLE {table} ADD COLUMN later text")
        await deliver(states, 2, {"rate": "2"}, AlterApplied())
        assert (await load(states)).applied == {"rate": "2"}
        # Searches on the same connection are planned each time.
        assert await states.undelivered(CLUSTER) == []
        prepared = await database.scalars(text("SELECT count(*) FROM pg_prepared_statements"))
        assert prepared == [0 if pooled else 3]
        await database.close()
