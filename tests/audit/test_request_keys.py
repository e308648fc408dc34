"""Holders of idempotency keys: intents under a key are written for its holder alone."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from confplane.audit import Database, PostgresAuditLog, PostgresRequestKeys
from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.errors import IdempotencyKeyBusyError
from confplane.services.changes.idempotency import RequestKey
from confplane.services.ports.request_keys import StoredAnswer
from confplane.services.ports.trail import Claim
from tests.audit.rows import committed, count, intent, rejected, run
from tests.support.stalls import stalled
from tests.support.stores import until

if TYPE_CHECKING:
    from confplane.services.ports.request_keys import KeyRow
    from tests.support import servers

ANSWER = StoredAnswer(200, {"etag": '"a"'}, '{"id":"user=Zoë"}', ("ALTER_CONFIGS user=Zo~C3~AB",))


@pytest.fixture
def keys(pool: Database) -> PostgresRequestKeys:
    return PostgresRequestKeys(pool)


def claim(key: str = "k", **overrides: Any) -> Claim:
    holder = uuid.uuid4()
    given: dict[str, Any] = {
        "key": hashlib.sha256(key.encode()).hexdigest(),
        "key_id": holder,
        "holder": holder,
        "fresh": True,
        "body": "b",
        "seconds": 60.0,
        "results": [{"entity": "user=alice"}],
    }
    return Claim(**{**given, **overrides})


async def row_of(keys: PostgresRequestKeys, made: Claim) -> KeyRow:
    row = await keys.find(made.key)
    assert row is not None
    return row


async def test_the_first_intent_makes_the_key_and_more_of_its_holder_follow(
    keys: PostgresRequestKeys, log: PostgresAuditLog
) -> None:
    mine, first, second = claim(), intent(), intent()
    assert await keys.find(mine.key) is None
    await log.intend([first], [mine])
    await log.intend([second], [mine])
    await log.intend([intent(first.change_id, attempt=2)], [mine])
    await log.intend([first], [mine])  # as after a lost reply
    row = await row_of(keys, mine)
    assert (row.id, row.holder, row.body, row.writer, row.in_time, row.answer) == (
        *(mine.key_id, mine.holder, "b", first.writer),
        *(True, None),
    )
    made = await keys.changes(row.id)
    assert [(change.change_id, change.attempt) for change in made] == sorted(
        [(first.change_id, 1), (first.change_id, 2), (second.change_id, 1)]
    )
    assert made[0].results == mine.results


async def test_of_many_at_once_one_gets_the_key_and_the_others_write_nothing(
    migrated: servers.Database, log: PostgresAuditLog
) -> None:
    pool = Database(migrated.service_dsn, 4)
    other = PostgresAuditLog(pool)
    claims = [claim(f"k{number % 5}") for number in range(100)]
    free = [claim(f"free{number}") for number in range(20)]
    found = await asyncio.gather(
        *((log, other)[index % 3 == 0].intend([intent()], [each]) for index, each in enumerate([*claims, *free])),
        return_exceptions=True,
    )
    assert [type(each) for each in found if each is not None] == [IdempotencyKeyBusyError] * 95
    assert found[100:] == [None] * 20
    assert count(migrated.owner_dsn, "intents") == count(migrated.owner_dsn, "request_changes") == 25
    assert count(migrated.owner_dsn, "request_keys") == 25
    assert count(migrated.owner_dsn, "change_keys") == count(migrated.owner_dsn, "intent_entities") == 25
    await other.close()
    await pool.close()


async def test_who_lost_the_key_writes_no_more(keys: PostgresRequestKeys, log: PostgresAuditLog) -> None:
    mine, holder = claim(seconds=0.0), uuid.uuid4()
    await log.intend([intent()], [mine])
    row = await row_of(keys, mine)
    assert not row.in_time
    assert await keys.take_over(row, holder, writer="w-2", seconds=60)
    assert await keys.take_over(row, holder, writer="w-2", seconds=60)  # as after a lost reply
    assert not await keys.take_over(row, uuid.uuid4(), writer="w-3", seconds=60)
    with pytest.raises(IdempotencyKeyBusyError) as refused:
        await log.intend([intent()], [mine])
    assert refused.value.outcome == "not_applied"
    await log.intend([intent()], [claim(key_id=row.id, holder=holder, fresh=False)])
    assert len(await keys.changes(row.id)) == 2
    taken = await row_of(keys, mine)
    assert (taken.holder, taken.writer, taken.in_time) == (holder, "w-2", True)
    for lost in (keys.store(row.id, mine.holder, ANSWER), keys.hand_on(row.id, mine.holder)):
        assert not await lost
    assert not await keys.release(row.id, mine.holder)
    assert await row_of(keys, mine) == taken


async def test_an_intent_and_a_taking_over_at_once_are_one_after_the_other(
    keys: PostgresRequestKeys, log: PostgresAuditLog
) -> None:
    for number in range(50):
        mine, holder = claim(f"race{number}"), uuid.uuid4()
        await log.intend([intent()], [mine])
        row = await row_of(keys, mine)

        async def taker(row: KeyRow = row, holder: uuid.UUID = holder) -> int:
            assert await keys.take_over(row, holder, writer="w-2", seconds=60)
            return len(await keys.changes(row.id))

        written, seen = await asyncio.gather(log.intend([intent()], [mine]), taker(), return_exceptions=True)
        # What the taker has not seen was refused.
        assert seen == (1 if isinstance(written, IdempotencyKeyBusyError) else 2), written
        assert len(await keys.changes(row.id)) == seen


async def test_a_key_is_not_taken_over_during_an_intent_of_its_holder(
    keys: PostgresRequestKeys, log: PostgresAuditLog, migrated: servers.Database
) -> None:
    """Whoever takes it over looks for the changes made under it once, so none may come after that."""
    mine, late = claim(), intent()
    await log.intend([intent()], [mine])
    row = await row_of(keys, mine)
    with stalled(migrated.owner_dsn, "INSERT ON intents", f"NEW.change_id = '{late.change_id}'") as stall:
        writing = asyncio.create_task(log.intend([late], [mine]))
        await until(lambda: stall.reached)
        taking = asyncio.create_task(keys.take_over(row, uuid.uuid4(), writer="w-2", seconds=60))
        await until(lambda: stall.in_the_way or taking.done())
        assert not taking.done()
    await writing
    assert await taking
    assert len(await keys.changes(row.id)) == 2


async def test_a_forgotten_key_is_not_recreated_by_its_new_holder(
    keys: PostgresRequestKeys, log: PostgresAuditLog, migrated: servers.Database
) -> None:
    with pytest.raises(IdempotencyKeyBusyError):
        await log.intend([intent()], [claim(fresh=False)])
    assert count(migrated.owner_dsn, "request_keys") == count(migrated.owner_dsn, "intents") == 0
    assert await keys.find(claim().key) is None


async def test_an_answer_is_kept_as_it_is_and_ends_the_taking_over(
    keys: PostgresRequestKeys, log: PostgresAuditLog
) -> None:
    mine, one, two = claim(), intent(), intent()
    await log.intend([one], [mine])
    await log.intend([two], [mine])
    await log.conclude([committed(one), rejected(two)])
    ended = {change.change_id: change.outcome for change in await keys.changes(mine.key_id)}
    assert ended[one.change_id] == committed(one)
    assert ended[two.change_id] is not None
    assert not ended[two.change_id].committed  # type: ignore[union-attr]  # as above
    for _ in range(2):
        assert await keys.store(mine.key_id, mine.holder, ANSWER)
    row = await row_of(keys, mine)
    assert row.answer == ANSWER
    assert not await keys.take_over(row, uuid.uuid4(), writer="w-2", seconds=60)


async def test_concurrent_requests_share_the_statements_that_look_keys_up_and_store_answers(
    keys: PostgresRequestKeys, log: PostgresAuditLog, statements: list[object]
) -> None:
    """Among many, one that another request took over is refused alone, and known keys are found."""
    claims = [claim(f"k{number}") for number in range(64)]
    taken, late = claims[17], uuid.uuid4()
    assert await asyncio.gather(*(keys.find(each.key) for each in claims)) == [None] * 64
    assert len(statements) == 1
    await asyncio.gather(*(log.intend([intent()], [each]) for each in claims))
    assert await keys.take_over(await row_of(keys, taken), late, writer="w-2", seconds=60)
    statements.clear()
    answers = {each.key_id: replace(ANSWER, body=f'{{"n":{number}}}') for number, each in enumerate(claims)}
    held = await asyncio.gather(*(keys.store(each.key_id, each.holder, answers[each.key_id]) for each in claims))
    assert [each for each, kept in zip(claims, held, strict=True) if not kept] == [taken]
    assert len(statements) == 2  # the second one for the key that was not held
    rows = await asyncio.gather(*(keys.find(each.key) for each in [*claims, claim("new")]))
    assert [row and row.answer for row in rows] == [
        *(None if each is taken else answers[each.key_id] for each in claims),
        None,
    ]


async def test_an_answer_whose_row_is_locked_delays_no_other(
    keys: PostgresRequestKeys, log: PostgresAuditLog, migrated: servers.Database
) -> None:
    mine, other = claim("a"), claim("b")
    for each in (mine, other):
        await log.intend([intent()], [each])
    with psycopg.connect(migrated.owner_dsn) as connection:
        connection.execute("SELECT FROM request_keys WHERE id = %s FOR SHARE", [mine.key_id])
        storing = asyncio.create_task(keys.store(mine.key_id, mine.holder, ANSWER))
        assert await keys.store(other.key_id, other.holder, ANSWER)
        assert not storing.done()
    assert await storing
    assert (await row_of(keys, mine)).answer == ANSWER


async def test_a_large_answer_is_kept_whole(keys: PostgresRequestKeys, log: PostgresAuditLog) -> None:
    mine, large = claim(), replace(ANSWER, body=f'"{"é" * 200_000}"', needs=None)
    await log.intend([intent()], [mine])
    assert await keys.store(mine.key_id, mine.holder, large)
    assert (await row_of(keys, mine)).answer == large


async def test_a_key_is_handed_on_released_and_purged(
    keys: PostgresRequestKeys, log: PostgresAuditLog, migrated: servers.Database
) -> None:
    mine, other, old = claim("a"), claim("b"), claim("c")
    for each in (mine, other, old):
        await log.intend([intent()], [each])
    assert await keys.hand_on(mine.key_id, mine.holder)
    assert not (await row_of(keys, mine)).in_time
    assert await keys.release(other.key_id, other.holder)
    assert await keys.find(other.key) is None
    assert await keys.changes(other.key_id) == []
    run(
        migrated.owner_dsn,
        f"UPDATE request_keys SET recorded_at = now() - interval '25 hours' WHERE id = '{old.key_id}'",  # noqa: S608 - a UUID
    )
    await keys.purge(24 * 3600)
    assert await keys.find(old.key) is None
    assert await keys.changes(old.key_id) == []
    assert (await row_of(keys, mine)).id == mine.key_id
    # The trail has all of it still.
    assert count(migrated.owner_dsn, "intents") == 3


def test_a_request_is_distinguished_by_all_but_the_order_of_its_body() -> None:
    given: dict[str, Any] = {
        "cluster": "c",
        "identity": Identity("User:p", Authentication.TOKEN),
        "method": "PUT",
        "path": "/a",
        "body": {"x": 1, "y": [2]},
    }
    one = RequestKey.of("k", **given)
    assert RequestKey.of("k", **{**given, "body": {"y": [2], "x": 1}}) == one
    assert RequestKey.of("k", **{**given, "body": {"y": [2], "x": 1.5}}).key == one.key
    bodies: list[Any] = [None, {}, {"x": 1}, {"x": "1"}, []]
    digests = {RequestKey.of("k", **{**given, "body": body}).body for body in bodies}
    assert len(digests) == 5
    portal = Identity("User:portal", Authentication.TOKEN)
    others = [
        RequestKey.of("other", **given),
        *(RequestKey.of("k", **{**given, name: "z"}) for name in ("cluster", "method", "path")),
        *(
            RequestKey.of("k", **{**given, "identity": identity})
            for identity in (
                Identity("User:q", Authentication.TOKEN),
                Identity("User:p", Authentication.CERTIFICATE),
                Identity("User:p", Authentication.OIDC, issuer="https://one.test"),
                Identity("User:p", Authentication.OIDC, issuer="https://two.test"),
                portal,
                replace(portal, behalf_of=given["identity"]),
                replace(portal, behalf_of=Identity("User:q", Authentication.TOKEN)),
                Identity(ADMIN, Authentication.ADMIN_TOKEN),
            )
        ),
    ]
    assert len({other.key for other in [one, *others]}) == 1 + len(others)
    assert others[0].body != one.body


def test_a_key_of_the_admin_token_is_that_of_earlier_releases() -> None:
    """Two releases side by side do a request once."""
    admin = Identity(ADMIN, Authentication.ADMIN_TOKEN)
    made = RequestKey.of("k", cluster="c", identity=admin, method="PUT", path="/a", body=None)
    assert made.key == hashlib.sha256(b'["c", "User:admin", "PUT", "/a", "k"]').hexdigest()
