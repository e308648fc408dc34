"""The rows of a backup: those as of a revision, and the same rows after they are written to another database."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.audit import (
    Database,
    PostgresAuditLog,
    PostgresOwnerships,
    PostgresTableSnapshot,
    PostgresTableWriter,
)
from confplane.audit.backup_tables import KEPT
from confplane.domain.errors import UnavailableError
from confplane.services.ports.backups import TrailCut
from tests.audit.rows import change_id, fetch, intent, past_the_trigger, run

if TYPE_CHECKING:
    from uuid import UUID

    from tests.support.servers import Database as Lent

NOW_MS: Final = int(time.time() * 1000)
BEFORE, AFTER, OPEN, OTHER = (change_id(NOW_MS, number) for number in range(4))
REQUEST: Final = "00000000-0000-0000-0000-0000000000aa"
REVERT: Final = "00000000-0000-0000-0000-0000000000bb"
CUTS: Final = {"payments": TrailCut(10, 1)}


@pytest.fixture
async def filled(migrated: Lent) -> Lent:
    """A database with a change before the cut, one after it, an open one, and one of another cluster."""
    database = Database(migrated.service_dsn, pool_size=1)
    log = PostgresAuditLog(database)
    intents = [intent(each) for each in (BEFORE, AFTER, OPEN)]
    await log.intend([*intents, intent(OTHER, cluster="other")])
    await log.close()
    await database.close()
    outcome = "INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions) VALUES "
    rows = [(BEFORE, "payments", 10), (AFTER, "payments", 11), (OTHER, "other", 99)]
    values = ", ".join(f"('{each}', 1, '{cluster}', true, {at}, now(), '{{}}')" for each, cluster, at in rows)
    run(migrated.owner_dsn, outcome + values)
    run(
        migrated.owner_dsn,
        "INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content) VALUES"
        """ ('payments', '/config', 'user=a', true, 10, 0, 10, '{"k\\\\n": "ü\\"\\\\\\\\"}'),"""
        " ('payments', '/config', 'user=b', true, 10, 1, 11, '{}'), ('other', '/config', 'user=b', true, 1, 1, 99, '{}')",
    )
    run(
        migrated.owner_dsn,
        f"INSERT INTO schedules (change_id, cluster, revert_at, state, end_id, kept, ended_at) VALUES ("  # noqa: S608 - ids
        f"'{BEFORE}', 'payments', now(), 'ended', '{AFTER}', '[[\"user=a\", \"k\"]]', now())",
    )
    for number, each in enumerate((BEFORE, AFTER)):
        key = f"00000000-0000-0000-0000-00000000000{number}"
        run(
            migrated.owner_dsn,
            f"INSERT INTO request_keys (key, id, holder, cluster, body, writer, until) VALUES ("  # noqa: S608 - ids
            f"'{number}', '{key}', '{key}', 'payments', '', '', now());"
            " INSERT INTO request_changes (key_id, change_id, attempt, results) VALUES"
            f" ('{key}', '{each}', 1, '[]')",
        )
    run(
        migrated.owner_dsn,
        "INSERT INTO change_requests (id, cluster, state, version, revision, entity_ids, created_at, content) VALUES ("  # noqa: S608 - ids
        f"'{REQUEST}', 'payments', 'applied', 3, 1, '{{user=alice}}', now(),"
        f""" '{{"change_id": "{AFTER}", "application": null, "approvals": ["one"]}}');"""
        f" INSERT INTO change_request_revisions VALUES ('{REQUEST}', 1, 'digest', '{{}}');"
        " INSERT INTO change_request_events (id, request_id, action, revision, state, at) VALUES"
        f" (gen_random_uuid(), '{REQUEST}', 'approve', 1, 'approved', now()),"
        f" (gen_random_uuid(), '{REQUEST}', 'finish', 1, 'applied', now())",
    )
    run(
        migrated.owner_dsn,
        "INSERT INTO registrations (event, cluster, principal, request_id) VALUES ('cleared', 'payments', 'p', 'r');"
        " INSERT INTO tokens (id, digest, principal, groups, created_at, created_by, expires_at, version) VALUES"
        " (gen_random_uuid(), '\\x00ff', 'User:a', '{g,\"h \\\" i\"}', now(), 'User:b', 'infinity', 1)",
    )
    return migrated


async def copied(database: Lent, cuts: dict[str, TrailCut]) -> dict[str, list[Any]]:
    """Return the rows of each table, sorted: Postgres promises no order."""
    async with PostgresTableSnapshot.open(database.service_dsn) as snapshot:
        left_out = [each for name in cuts for each in await snapshot.open_changes(name)]
        return {
            table: [json.loads(line) for line in sorted([each async for each in snapshot.rows(table, cuts, left_out)])]
            for table in KEPT
        }


async def test_changes_after_the_cut_are_left_out_of_all_tables(filled: Lent) -> None:
    rows = await copied(filled, CUTS)
    kept = {str(BEFORE), str(OTHER)}
    for table in ("intents", "intent_entities", "change_keys", "outcomes"):
        assert {row["change_id"] for row in rows[table]} == kept, table
    states = [(row["cluster"], row["entity_id"], row["content"]) for row in rows["entity_states"]]
    assert sorted(states) == [
        ("other", "user=b", {}),
        ("payments", "user=a", {"k\\n": 'ü"\\\\'}),
        # It was written after the cut, and its content was not changed: no row is left out.
        ("payments", "user=b", {}),
    ]
    # A temporary change that ended after the cut goes on, and a request of a change after it is done again.
    [schedule] = rows["schedules"]
    assert (schedule["state"], schedule["end_id"], schedule["kept"], schedule["ended_at"]) == ("active", None, [], None)
    assert [row["key"] for row in rows["request_keys"]] == ["0"]
    assert [row["change_id"] for row in rows["request_changes"]] == [str(BEFORE)]


async def test_a_request_that_a_later_change_applied_keeps_its_approvals_and_awaits_its_application(
    filled: Lent,
) -> None:
    rows = await copied(filled, CUTS)
    [request] = rows["change_requests"]
    assert (request["state"], request["version"], request["content"]) == (
        "approved",
        3,
        {"change_id": None, "application": None, "error": None, "approvals": ["one"]},
    )
    assert [row["digest"] for row in rows["change_request_revisions"]] == ["digest"]
    assert [row["action"] for row in rows["change_request_events"]] == ["approve"]
    [request] = (await copied(filled, {}))["change_requests"]
    assert (request["state"], request["content"]["change_id"]) == ("applied", str(AFTER))


@pytest.mark.parametrize(
    ("state", "apply_at", "change", "attempt", "kept"),
    [
        ("open", "NULL", None, None, "open"),
        ("applied", "NULL", BEFORE, BEFORE, "applied"),
        ("applied", "NULL", None, None, "applied"),
        ("applied", "now()", AFTER, AFTER, "scheduled"),
        ("applying", "NULL", None, None, "approved"),
        ("applying", "now()", None, None, "scheduled"),
        ("applying", "NULL", None, AFTER, "approved"),
        ("applying", "NULL", None, OPEN, "approved"),
        # The leader finds the change, and finishes the request.
        ("applying", "NULL", None, BEFORE, "applying"),
    ],
)
async def test_the_state_of_a_request_follows_the_changes_that_are_kept(
    filled: Lent, state: str, apply_at: str, change: UUID | None, attempt: UUID | None, *, kept: str
) -> None:
    content = json.dumps({"change_id": None if change is None else str(change), "application": {"writer": "w"}})
    run(
        filled.owner_dsn,
        f"UPDATE change_requests SET state = '{state}', apply_at = {apply_at}, content = '{content}'",  # noqa: S608 - literals
    )
    if attempt is not None:
        update = f"UPDATE intents SET applies = '{REQUEST}' WHERE change_id = '{attempt}'"  # noqa: S608 - ids
        past_the_trigger(filled.owner_dsn, "intents", update)
    [request] = (await copied(filled, CUTS))["change_requests"]
    assert request["state"] == kept
    assert (request["content"]["application"] is None) == (kept != state)


async def test_a_request_that_a_later_change_reverted_is_being_reverted(filled: Lent) -> None:
    given = {"change_id": str(BEFORE), "revert_state": "reverted", "reverted_by": str(REVERT)}
    later = json.dumps({"change_id": str(AFTER), "application": None})
    run(
        filled.owner_dsn,
        f"UPDATE change_requests SET content = '{json.dumps(given)}';"  # noqa: S608 - literals
        " INSERT INTO change_requests (id, cluster, state, version, revision, entity_ids, created_at, content) VALUES"
        f" ('{REVERT}', 'payments', 'applied', 3, 1, '{{user=alice}}', now(), '{later}');"
        " INSERT INTO change_request_events (id, request_id, action, revision, state, at) VALUES"
        f" (gen_random_uuid(), '{REQUEST}', 'revert', 1, 'applied', now()),"
        f" (gen_random_uuid(), '{REQUEST}', 'finish-revert', 1, 'applied', now())",
    )
    rows = await copied(filled, CUTS)
    found = {row["id"]: row for row in rows["change_requests"]}
    assert {each: row["state"] for each, row in found.items()} == {str(REQUEST): "applied", str(REVERT): "approved"}
    assert found[str(REQUEST)]["content"] == {**given, "revert_state": "reverting"}
    assert sorted(row["action"] for row in rows["change_request_events"]) == ["approve", "finish", "revert"]
    # Without its change, it is not reverted either.
    run(
        filled.owner_dsn,
        f"UPDATE change_requests SET content = content || '{later}' WHERE id = '{REQUEST}'",  # noqa: S608 - literals
    )
    rows = await copied(filled, CUTS)
    [request] = [row for row in rows["change_requests"] if row["id"] == str(REQUEST)]
    given_back = {"change_id": None, "application": None, "error": None}
    assert (request["state"], request["content"]) == ("approved", given_back)
    assert [row["action"] for row in rows["change_request_events"]] == ["approve"]


@pytest.mark.parametrize(
    ("change", "shown", "state", "content", "actions"),
    [
        # All of its changes are left out.
        (AFTER, "partly-applied", "approved", {"change_id": None, "error": None}, ["approve"]),
        # Some of them are.
        (
            BEFORE,
            None,
            "applied",
            {
                "change_id": str(BEFORE),
                "shown_state": "partly-applied",
                "error": "Only a part was applied when the backup was made",
            },
            ["approve", "finish-partly"],
        ),
    ],
)
async def test_a_manifest_is_applied_as_far_as_its_changes_are_kept(
    filled: Lent, change: UUID, shown: str | None, *, state: str, content: dict[str, Any], actions: list[str]
) -> None:
    for each in (BEFORE, AFTER)[change == AFTER :]:
        update = f"UPDATE intents SET applies = '{REQUEST}' WHERE change_id = '{each}'"  # noqa: S608 - ids
        past_the_trigger(filled.owner_dsn, "intents", update)
    given = json.dumps({"change_id": str(change), "shown_state": shown, "error": None if shown is None else "refused"})
    run(
        filled.owner_dsn,
        f"UPDATE change_requests SET content = '{given}';"  # noqa: S608 - literals
        " INSERT INTO change_request_events (id, request_id, action, revision, state, at) VALUES"
        f" (gen_random_uuid(), '{REQUEST}', 'finish-partly', 1, 'applied', now())",
    )
    rows = await copied(filled, CUTS)
    [request] = rows["change_requests"]
    assert (request["state"], request["content"]) == (state, {**content, "application": None} if shown else content)
    assert sorted(row["action"] for row in rows["change_request_events"]) == actions


async def test_states_after_the_cut_are_listed(filled: Lent) -> None:
    async with PostgresTableSnapshot.open(filled.service_dsn) as snapshot:
        moved = [json.loads(line) async for line in snapshot.moved(CUTS)]
        assert moved == [{"cluster": "payments", "tree": "/config", "entity_id": "user=b"}]
        assert await snapshot.open_changes("payments") == [OPEN]


async def test_a_state_after_the_cut_is_replaced_by_the_one_before_the_first_change_that_is_left_out(
    migrated: Lent,
) -> None:
    dsn = migrated.owner_dsn
    given = {"version_read": 3, "czxid_read": 5, "before": {"k": "1"}}
    for number, (user, revision, more) in enumerate(
        [
            ("changed", 14, {**given, "before": {"k": "2"}}),
            ("changed", 12, given),
            ("changed", 10, {**given, "before": {}}),
            ("deleted", 12, given),
            ("created", 12, {}),
            ("early", 10, given),
        ]
    ):
        changed(dsn, number, {}, revision, user=user, **more)
    run(
        dsn,
        "INSERT INTO entity_states (cluster, tree, entity_id, present, czxid, version, mzxid, content, owners) VALUES"
        """ ('payments', '/config', 'user=changed', true, 5, 9, 14, '{"k": "3"}', '{"k": "red"}'),"""
        " ('payments', '/confplane/client-configs', 'user=changed', true, 6, 1, 14, '{}', NULL),"
        " ('payments', '/config', 'user=deleted', false, 5, -1, 12, '{}', NULL),"
        " ('payments', '/config', 'user=created', true, 12, 0, 12, '{}', NULL),"
        """ ('payments', '/config', 'user=early', true, 5, 4, 10, '{"k": "4"}', '{"k": "red"}')""",
    )
    names = ("tree", "entity_id", "present", "czxid", "version", "mzxid", "content", "owners")
    rows = (await copied(migrated, CUTS))["entity_states"]
    assert sorted(tuple(row[name] for name in names) for row in rows) == [
        ("/config", "user=changed", True, 5, 3, 10, {"k": "1"}, None),
        ("/config", "user=deleted", True, 5, 3, 10, {"k": "1"}, None),
        ("/config", "user=early", True, 5, 4, 10, {"k": "4"}, {"k": "red"}),
        ("/confplane/client-configs", "user=changed", True, 6, 1, 14, {}, None),
    ]


async def test_rows_are_the_same_after_they_were_written_again(filled: Lent) -> None:
    before = await copied(filled, {})
    triggers = fetch(
        filled.owner_dsn, "SELECT tgname, tgrelid::regclass::text, tgenabled FROM pg_trigger ORDER BY 1, 2"
    )
    async with PostgresTableWriter.open(filled.owner_dsn) as writer:
        assert (await writer.counts())["intents"] == 4
        await writer.clear()
        for table, rows in before.items():
            await writer.insert(table, [json.dumps(row).encode() for row in rows])
        await writer.commit({"payments": "restored"}, confirm_tokens=True)
    after = await copied(filled, {})
    [position] = after.pop("store_positions")
    assert (position["cluster"], position["rejected"]) == ("payments", "restored")
    assert after.pop("access_version") != before.pop("access_version")
    del before["store_positions"]
    assert after == before
    # The trail is append-only again, and further rows get new ids.
    assert triggers == fetch(
        filled.owner_dsn, "SELECT tgname, tgrelid::regclass::text, tgenabled FROM pg_trigger ORDER BY 1, 2"
    )
    run(
        filled.service_dsn,
        "INSERT INTO registrations (event, cluster, principal, request_id) VALUES ('cleared', 'payments', 'p', 'r')",
    )
    assert len(fetch(filled.owner_dsn, "SELECT DISTINCT id FROM registrations")) == 2


async def test_nothing_is_written_before_the_commit(filled: Lent) -> None:
    before = await copied(filled, {})
    async with PostgresTableWriter.open(filled.owner_dsn) as writer:
        await writer.clear()
    assert await copied(filled, {}) == before


async def test_the_role_of_the_service_can_not_restore(filled: Lent) -> None:
    async with PostgresTableWriter.open(filled.service_dsn) as writer:
        with pytest.raises(UnavailableError, match=r"postgres\.migration_dsn"):
            await writer.clear()


async def test_each_cluster_is_rejected_even_if_it_has_no_position(filled: Lent) -> None:
    async with PostgresTableWriter.open(filled.owner_dsn) as writer:
        await writer.reject({"payments": "half", "it's": "half"})
        await writer.reject({"payments": "again"})
        assert await writer.rejected() == {"it's": "half", "payments": "again"}


RED: Final = {"owner": "red", "keys": ["a", "b"], "labels": {"team": "x"}}
BLUE: Final = {"owner": "blue", "keys": ["b"], "labels": {}}


def changed(dsn: str, number: int, after: dict[str, str], revision: int, **given: Any) -> None:
    """A committed change of a user in the trail."""
    id_ = change_id(NOW_MS, number)
    values = {"writes": "NULL", "version": revision - 20, "claim": "NULL", "kind": "change", "incarnation": 1}
    values |= {"user": "c", "version_read": "NULL", "czxid_read": "NULL", "before": {}, **given}
    claim = values["claim"] if values["claim"] == "NULL" else f"'{json.dumps(values['claim'])}'"
    path = f"/config/users/{values['user']}"
    run(
        dsn,
        "INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, kind, writes)"  # noqa: S608 - literals
        f" VALUES ('{id_}', 1, 'payments', 'p', 'w', 's', 'r', '{values['kind']}', {values['writes']});"
        " INSERT INTO intent_entities (change_id, attempt, position, cluster, entity_id, facet, path, version_read,"
        " czxid_read, keys, ops, before, after, claim) VALUES"
        f" ('{id_}', 1, 0, 'payments', 'user={values['user']}', 'f', '{path}', {values['version_read']},"
        f" {values['czxid_read']}, '{{}}', '[]', '{json.dumps(values['before'])}', '{json.dumps(after)}', {claim});"
        " INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions, incarnation) VALUES"
        f" ('{id_}', 1, 'payments', true, {revision}, now(), '{{\"{path}\": {values['version']}}}',"
        f" {values['incarnation']})",
    )


@pytest.mark.parametrize(
    ("last", "owners"),
    [
        ({"after": {"b": "2"}, "revision": 23}, {"b": "blue"}),
        ({"after": {"a": "1", "b": "2"}, "revision": 23, "kind": "external", "writes": 1}, {"a": "red", "b": "blue"}),
        ({"after": {"a": "1", "b": "2"}, "revision": 23, "kind": "external", "writes": 2, "version": 0}, {}),
        # The adoption of a store, whose revisions begin again.
        (
            {"after": {"b": "2"}, "revision": 3, "kind": "external", "writes": 1, "version": 0, "incarnation": 2},
            {"b": "blue"},
        ),
        ({"after": {}, "revision": 23, "kind": "recovered"}, {"a": "red", "b": "blue"}),
    ],
)
async def test_the_owners_of_an_entity_without_a_state_follow_from_its_changes(
    migrated: Lent, last: dict[str, Any], owners: dict[str, str]
) -> None:
    dsn = migrated.owner_dsn
    # Not in the order of their ids.
    changed(dsn, 12, {"a": "1", "b": "1"}, 21, claim=RED)
    changed(dsn, 11, {"a": "1", "b": "2"}, 22, claim=BLUE)
    changed(dsn, 10, **last)
    database = Database(migrated.service_dsn, pool_size=1)
    found = await PostgresOwnerships(database).derived("payments", [("/config", "user=c"), ("/config", "user=d")])
    await database.close()
    assert found["/config", "user=c"].owners == owners
    assert found["/config", "user=d"].owners == {}
