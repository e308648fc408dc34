"""Tokens and grants in Postgres: one transaction with their history, in the order of their versions."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from confplane.audit import Database, PostgresAccessStore
from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import CredentialNarrowing
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.errors import UnavailableError
from confplane.services.ports.access import AccessChange, AccessQuery, StoredGrant, Token
from tests.audit.rows import count, fetch, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support import servers

NOW = datetime.now(UTC).replace(microsecond=123456)
LATER = NOW + timedelta(days=30)


@pytest.fixture
def store(pool: Database) -> PostgresAccessStore:
    return PostgresAccessStore(pool)


def token(principal: str = "User:alice", **more: Any) -> Token:
    return Token(uuid7(), principal, NOW, **{"created_by": "User:admin", "expires_at": LATER, **more})


def digest_of(made: Token) -> bytes:
    return hashlib.sha256(made.id.bytes).digest()


def change(kind: str = "token-created", subject: str = "tokens/1", **more: Any) -> AccessChange:
    return AccessChange(uuid7(), kind, "User:admin", "127.0.0.1", subject, request_id="r", **more)


def grant(principal: str = "User:alice", **more: Any) -> StoredGrant:
    given = {"operation": Operation.ALTER_CONFIGS, "resource": ResourceType.USER, "name": "alice", **more}
    return StoredGrant(Grant(uuid7(), principal, **given), NOW, "User:admin", "a note")


async def added(store: PostgresAccessStore, made: Token) -> Token:
    await store.create_token(made, digest_of(made), change())
    return made


WHOLE = token(
    "User:Zoë\u2028",
    groups=frozenset({"Group:b", "Group:a"}),
    owner="team payments",
    note="'; DROP TABLE tokens; --",
    narrowing=CredentialNarrowing(
        read_only=True, clusters=frozenset({"payments"}), operations=frozenset({Operation.DESCRIBE_CONFIGS})
    ),
)


REPORTER = CredentialNarrowing(operations=frozenset({Operation.REPORT}))


@pytest.mark.parametrize("made", [token(), WHOLE, token(narrowing=CredentialNarrowing()), token(narrowing=REPORTER)])
async def test_a_token_is_read_as_it_was_written(store: PostgresAccessStore, made: Token) -> None:
    made = replace(made, id=uuid7())
    await added(store, made)
    assert await store.find_token(made.id) == made
    loaded = await store.load(None)
    assert loaded is not None
    assert loaded.tokens == {digest_of(made): made}
    assert loaded.whole
    assert (await store.list_tokens(principal=made.principal, page_size=10, after=None))[0] == [made]
    assert (await store.list_tokens(principal="User:other", page_size=10, after=None))[0] == []


GRANTS = [
    grant(),
    grant(operation=None, role=Role.OPERATOR, resource=None, name="*"),
    grant(operation=Operation.REPORT),
    grant("Group:payments", permission=Permission.DENY, cluster="payments", pattern=PatternType.PREFIXED, name="pay%_"),
]


@pytest.mark.parametrize("made", GRANTS)
async def test_a_grant_is_read_as_it_was_written(store: PostgresAccessStore, made: StoredGrant) -> None:
    created = await store.create_grant(made, change("grant-created"))
    assert created == replace(made, revision=created.revision)
    assert await store.find_grant(made.grant.id) == created
    loaded = await store.load(None)
    assert loaded is not None
    assert loaded.grants == [created]
    assert (await store.list_grants(principal=None, cluster=None, page_size=10, after=None))[0] == [created]


async def test_the_same_grant_twice_is_one_also_at_once(store: PostgresAccessStore, migrated: servers.Database) -> None:
    grants = [replace(made, grant=replace(made.grant, id=uuid7())) for made in GRANTS for _ in range(5)]
    created = await asyncio.gather(*(store.create_grant(made, change("grant-created")) for made in grants))
    assert len({made.grant.id for made in created}) == len(GRANTS) == count(migrated.owner_dsn, "grants")
    assert count(migrated.owner_dsn, "access_changes") == len(GRANTS)


async def test_a_grant_is_replaced_and_removed_at_its_revision_alone(store: PostgresAccessStore) -> None:
    first = await store.create_grant(grant(), change("grant-created"))
    wider = replace(first, grant=replace(first.grant, name="*"))
    assert await store.replace_grant(replace(wider, revision=first.revision + 100), change("grant-replaced")) is None
    second = await store.replace_grant(wider, change("grant-replaced"))
    assert second is not None
    assert second.grant == wider.grant
    assert second.revision > first.revision
    assert await store.replace_grant(wider, change("grant-replaced")) is None
    assert not await store.remove_grant(first.grant.id, first.revision, change("grant-removed"))
    assert await store.remove_grant(first.grant.id, second.revision, change("grant-removed"))
    assert not await store.remove_grant(first.grant.id, second.revision, change("grant-removed"))
    assert await store.find_grant(first.grant.id) is None
    history, _ = await store.search(AccessQuery())
    assert [row.kind for row in history] == ["grant-removed", "grant-replaced", "grant-created"]
    assert await store.create_grant(grant(), change("grant-created")) is not None


async def test_statements_sent_twice_are_done_once(store: PostgresAccessStore, migrated: servers.Database) -> None:
    made, successor = token(), token()
    for each in (change(), change("token-rotated"), change("grant-created"), change("grant-replaced")):
        for _ in range(2):
            match each.kind:
                case "token-created":
                    await store.create_token(made, digest_of(made), each)
                case "token-rotated":
                    assert await store.rotate_token(made.id, NOW + timedelta(days=1), successor, b"2", each)
                case "grant-created":
                    first = await store.create_grant(GRANTS[0], each)
                case _:
                    wider = replace(first, grant=replace(first.grant, name="*"))
                    replaced = await store.replace_grant(wider, each)
                    assert replaced is not None
                    assert replaced.grant.name == "*"
    assert count(migrated.owner_dsn, "access_changes") == 4
    assert count(migrated.owner_dsn, "tokens") == 2


async def test_a_rotation_ends_the_old_token_early_and_never_late(store: PostgresAccessStore) -> None:
    made = await added(store, token())
    successor = token(replaces=made.id)
    until = NOW + timedelta(hours=1)
    assert await store.rotate_token(made.id, until, successor, digest_of(successor), change("token-rotated"))
    assert (await store.find_token(made.id)) == replace(made, expires_at=until)
    assert await store.find_token(successor.id) == successor
    third = token()
    assert await store.rotate_token(made.id, LATER, third, digest_of(third), change("token-rotated"))
    assert (await store.find_token(made.id)) == replace(made, expires_at=until)


async def test_the_names_behind_a_token_are_found_behind_any_number_of_rotations(
    store: PostgresAccessStore, migrated: servers.Database
) -> None:
    creator = await added(store, token("User:ops", owner="team", created_by="User:boss"))
    first = await added(store, token("User:robot", created_by="User:alice", created_with=creator.id))
    rotated = """
        INSERT INTO tokens (id, digest, principal, groups, created_at, created_by, expires_at, replaces, version)
        SELECT
          CAST(md5(CAST(n AS text)) AS uuid), sha256(CAST(CAST(n AS text) AS bytea)), 'User:robot', '{}', now(),
          'User:robot', now() + interval '1 day',
          CASE n WHEN 1 THEN CAST(%s AS uuid) ELSE CAST(md5(CAST(n - 1 AS text)) AS uuid) END, 1
        FROM generate_series(1, 3000) AS n
    """
    with psycopg.connect(migrated.owner_dsn) as connection:
        connection.execute(rotated, [first.id])
    last = UUID(hashlib.md5(b"3000", usedforsecurity=False).hexdigest())
    assert await store.names_behind(last) == {"User:robot", "User:alice", "User:boss", "team"}
    assert await store.names_behind(creator.id) == {"User:boss", "team"}
    assert await store.names_behind(uuid7()) == frozenset()


@pytest.mark.parametrize("by_rotation", [False, True])
async def test_nothing_is_created_with_a_token_whose_revocation_is_under_way(
    store: PostgresAccessStore,
    migrated: servers.Database,
    by_rotation: bool,  # noqa: FBT001 - a column
) -> None:
    creator, other = await added(store, token()), await added(store, token())
    child = token(created_with=creator.id)
    assert await store.create_token(token(created_with=creator.id), b"1", change())
    with psycopg.connect(migrated.owner_dsn) as revocation:
        revocation.execute("UPDATE tokens SET revoked_at = now() WHERE id = %s", [creator.id])
        creation = asyncio.ensure_future(
            store.rotate_token(other.id, LATER, child, digest_of(child), change("token-rotated"))
            if by_rotation
            else store.create_token(child, digest_of(child), change())
        )
        await until(lambda: creation.done() or waits_for_a_lock(migrated))
        revocation.commit()
    assert await creation is False
    assert await store.find_token(other.id) == other
    assert len(await store.created_with(creator.id)) == 1


_INSERT: Final = """
INSERT INTO tokens (id, digest, principal, groups, created_at, created_by, expires_at, version)
VALUES (%s, '1', 'User:late', '{}', %s, 'User:admin', %s, 1)
"""


async def test_tokens_whose_creation_is_under_way_are_invalidated(
    store: PostgresAccessStore, migrated: servers.Database
) -> None:
    made = token()
    with psycopg.connect(migrated.owner_dsn) as creation:
        creation.execute("UPDATE access_version SET version = version + 1")
        creation.execute(_INSERT, [made.id, NOW, LATER])
        invalidation = asyncio.ensure_future(
            store.invalidate_tokens(NOW + timedelta(seconds=1), change("tokens-invalidated"))
        )
        await until(lambda: invalidation.done() or waits_for_a_lock(migrated))
        creation.commit()
    assert await invalidation == 1
    found = await store.find_token(made.id)
    assert found is not None
    assert found.revoked_at is not None


async def test_no_token_of_before_an_invalidation_is_created_after_it(
    store: PostgresAccessStore, migrated: servers.Database
) -> None:
    before, made = NOW + timedelta(seconds=1), token()
    row = """
        INSERT INTO access_changes (id, kind, principal, source, subject, after)
        VALUES (%s, 'tokens-invalidated', 'User:admin', '127.0.0.1', 'tokens', jsonb_build_object('issuedBefore', %s::text))
    """
    with psycopg.connect(migrated.owner_dsn) as invalidation:
        invalidation.execute("UPDATE access_version SET version = version + 1")
        invalidation.execute(row, [uuid7(), before.isoformat()])
        creation = asyncio.ensure_future(store.create_token(made, digest_of(made), change()))
        await until(lambda: creation.done() or waits_for_a_lock(migrated))
        invalidation.commit()
    assert await creation is False
    assert not await store.create_token(made, digest_of(made), change())
    later = replace(token(), created_at=before)
    assert await store.create_token(later, digest_of(later), change())


def waits_for_a_lock(database: servers.Database) -> bool:
    waiting = """
        SELECT pid FROM pg_locks WHERE NOT granted
          AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())
    """
    return bool(fetch(database.owner_dsn, waiting))


async def test_no_token_follows_on_one_that_ended(store: PostgresAccessStore) -> None:
    revoked, expired = await added(store, token()), await added(store, token(expires_at=NOW - timedelta(hours=1)))
    assert await store.revoke_token(revoked.id, change("token-revoked")) is not None
    assert await store.revoke_token(uuid7(), change("token-revoked")) is None
    for each in (revoked, expired):
        successor = token()
        assert not await store.rotate_token(each.id, LATER, successor, digest_of(successor), change("token-rotated"))
        assert await store.find_token(successor.id) is None
    first = await store.find_token(revoked.id)
    assert await store.revoke_token(revoked.id, change("token-revoked")) == first
    assert [row.kind for row in (await store.search(AccessQuery(kind="token-revoked")))[0]] == ["token-revoked"]


async def test_what_changed_since_a_version_is_loaded_and_nothing_else(store: PostgresAccessStore) -> None:
    old = await added(store, token())
    kept = await store.create_grant(grant(name="kept"), change())
    gone = await store.create_grant(grant(name="gone"), change())
    first = await store.load(None)
    assert first is not None
    assert (len(first.tokens), len(first.grants), first.removed) == (1, 2, frozenset())
    assert await store.load(first.version) is None
    await store.revoke_token(old.id, change())
    await store.remove_grant(gone.grant.id, gone.revision, change())
    then = await store.load(first.version)
    assert then is not None
    assert not then.whole
    assert [each.revoked_at is not None for each in then.tokens.values()] == [True]
    assert (then.grants, then.removed) == ([], frozenset({gone.grant.id}))
    whole = await store.load(None)
    assert whole is not None
    assert (whole.tokens, whole.grants, whole.removed) == ({}, [kept], frozenset())


async def test_a_version_that_went_back_loads_everything(
    store: PostgresAccessStore, migrated: servers.Database
) -> None:
    made = await store.create_grant(grant(), change())
    run(migrated.owner_dsn, "UPDATE access_version SET version = 1")
    loaded = await store.load(made.revision + 10)
    assert loaded is not None
    assert (loaded.whole, loaded.version, loaded.grants) == (True, 1, [made])


async def test_a_reader_that_saw_a_version_saw_every_change_up_to_it(store: PostgresAccessStore) -> None:
    """Writers at once, and a reader that only ever asks for what is new, ends with all of it."""
    names = [f"n{number}" for number in range(60)]
    seen: dict[str, int] = {}
    version: int | None = None
    writers = asyncio.gather(*(store.create_grant(grant(name=name), change()) for name in names))
    while len(seen) < len(names):
        done = writers.done()
        loaded = await store.load(version)
        if loaded is not None:
            version = loaded.version
            seen |= {made.grant.name: made.revision for made in loaded.grants}
        assert not done or len(seen) == len(names), set(names) - set(seen)
    assert sorted(seen.values()) == sorted({made.revision for made in await writers})


async def test_the_last_use_only_rises_and_changes_no_version(store: PostgresAccessStore) -> None:
    made = await added(store, token())
    loaded = await store.load(None)
    assert loaded is not None
    for at in (NOW, NOW - timedelta(hours=1)):
        await store.record_use({made.id: at, uuid7(): at})
    assert (await store.find_token(made.id)) == replace(made, last_used_at=NOW)
    assert await store.load(loaded.version) is None


async def test_the_history_is_searched_newest_first_by_pages(store: PostgresAccessStore) -> None:
    rows = [change("denied", f"DESCRIBE_CONFIGS topic {number % 2}", count=number + 1) for number in range(7)]
    await store.add_events(rows)
    await store.add_events(rows)
    found: list[AccessChange] = []
    cursor = None
    while True:
        page, cursor = await store.search(AccessQuery(subject="DESCRIBE_CONFIGS topic 1", page_size=2, before=cursor))
        found += page
        if cursor is None:
            break
    assert [replace(row, recorded_at=None) for row in found] == [rows[5], rows[3], rows[1]]
    at = found[0].recorded_at
    assert at is not None
    assert len((await store.search(AccessQuery(since=at)))[0]) == 7
    assert (await store.search(AccessQuery(until=at)))[0] == []


async def test_a_change_that_waits_for_another_too_long_is_refused_and_reads_go_on(
    store: PostgresAccessStore, migrated: servers.Database
) -> None:
    with psycopg.connect(migrated.owner_dsn) as other:
        other.execute("UPDATE access_version SET version = version")
        with pytest.raises(UnavailableError):
            await added(store, token())
        assert await store.load(None) is not None
    await added(store, token())
    assert count(migrated.owner_dsn, "tokens") == 1
