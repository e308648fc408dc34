"""The journal: each change of the mirror once, in order of revision, for each reader or "too old"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.services.ports.journal import ExpiredCursor, JournalPage
from confplane.store.mirror.journal import MirrorJournal
from tests.support.stores import (
    ALICE,
    BILLING,
    committed,
    kafka_writes,
    mirror_paused,
    notify,
    rate,
    soon,
    until,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kazoo.client import KazooClient

    from confplane.services.ports.journal import Cursor, JournalEntry
    from confplane.store import ZooKeeperStore

A, B = "user=a", "user=b"
BOB = Entity.of(user="bob")
RATE = "producer_byte_rate"


def node(entity_id: str, mzxid: int, value: str = "1") -> Node:
    return Node(entity_id, (RATE, value), 0, 1, mzxid, 1)


def begun(revision: int = 10, **bounds: int) -> tuple[MirrorJournal, Cursor]:
    """A journal of a mirror that was loaded, and where its readers begin."""
    journal = MirrorJournal(**bounds)
    assert journal.read(None) is None
    journal.begin(revision)
    began = journal.read(None)
    assert isinstance(began, ExpiredCursor)
    return journal, began.cursor


def page(journal: MirrorJournal, cursor: Cursor, size: int | None = None) -> JournalPage:
    found = journal.read(cursor, size)
    assert isinstance(found, JournalPage)
    return found


def shown(entries: Sequence[JournalEntry]) -> list[tuple[int, str]]:
    return [(entry.revision, entry.entity_id) for entry in entries]


def split(entries: Sequence[JournalEntry]) -> tuple[list[JournalEntry], list[JournalEntry]]:
    """Entries of writes, and those of notifications that came after them."""
    return (
        [entry for entry in entries if entry.after is not entry.before],
        [entry for entry in entries if entry.after is entry.before],
    )


def test_what_is_ahead_of_the_revision_waits_for_it_and_comes_in_order() -> None:
    journal, cursor = begun()
    journal.record(Tree.CONFIG, B, None, node(B, 50))
    journal.record(Tree.CONFIG, A, None, node(A, 45))
    journal.advance(44)
    assert page(journal, cursor).entries == []
    journal.advance(45)
    first = page(journal, cursor)
    assert shown(first.entries) == [(45, A)]
    assert journal.waiting
    journal.advance(60)
    assert shown(page(journal, first.cursor).entries) == [(50, B)]
    assert shown(page(journal, cursor).entries) == [(45, A), (50, B)]
    assert not journal.waiting


def test_a_write_seen_late_waits_for_the_next_revision() -> None:
    journal, cursor = begun()
    journal.advance(60)
    journal.record(Tree.CONFIG, A, None, node(A, 45))
    assert journal.waiting
    assert page(journal, cursor).entries == []
    journal.advance(61)
    assert shown(page(journal, cursor).entries) == [(61, A)]
    assert not journal.waiting


def test_a_node_several_writes_ahead_is_read_no_later_than_the_first_of_them() -> None:
    """Whoever is past a revision was given every write up to there, including one that a newer observation hides."""
    journal, cursor = begun()
    first = node(A, 8)
    journal.record(Tree.CONFIG, A, first, first._replace(version=first.version + 2, mzxid=19))
    journal.advance(15)
    [entry] = page(journal, cursor).entries
    assert (entry.entity_id, entry.revision <= 15) == (A, True)


def test_a_removal_comes_after_the_former_node_and_not_before_its_notification() -> None:
    journal, cursor = begun()
    journal.record(Tree.CONFIG, A, None, node(A, 50))
    journal.record(Tree.CONFIG, A, node(A, 50), None)
    journal.record(Tree.CONFIG, B, node(B, 5), None, 55)
    journal.advance(60)
    assert shown(page(journal, cursor).entries) == [(50, A), (51, A), (55, B)]


def test_the_oldest_entries_go_first_and_readers_that_need_them_get_an_error() -> None:
    journal, cursor = begun(most=80)
    for revision in range(11, 91):
        journal.record(Tree.CONFIG, A, None, node(A, revision))
        journal.advance(revision)
    assert len(page(journal, cursor).entries) == 80
    middle = page(journal, cursor, 40).cursor
    journal.record(Tree.CONFIG, A, None, node(A, 91))
    journal.advance(91)
    assert journal.read(cursor) == ExpiredCursor(page(journal, middle).cursor)
    assert [entry.revision for entry in page(journal, middle).entries] == list(range(51, 92))


def test_large_nodes_count_by_their_bytes() -> None:
    journal, cursor = begun(most_bytes=100_000)
    for revision in range(11, 21):
        journal.record(Tree.CONFIG, A, None, node(A, revision, "x" * 9_500))
        journal.advance(revision)
    third = page(journal, cursor, 3).cursor
    assert len(page(journal, cursor).entries) == 10
    journal.record(Tree.CONFIG, A, None, node(A, 21, "x" * 9_500))
    assert isinstance(journal.read(cursor), ExpiredCursor)
    assert [entry.revision for entry in page(journal, third).entries] == list(range(14, 21))


def test_too_many_that_wait_are_too_old_for_all() -> None:
    journal, cursor = begun(most=80)
    for revision in range(100, 181):
        journal.record(Tree.CONFIG, A, None, node(A, revision))
    found = journal.read(cursor)
    assert isinstance(found, ExpiredCursor)
    journal.advance(200)
    assert page(journal, found.cursor).entries == []
    journal.record(Tree.CONFIG, A, None, node(A, 201))
    journal.advance(201)
    assert shown(page(journal, found.cursor).entries) == [(201, A)]


def test_the_latest_revision_is_that_of_entries_dropped_while_they_waited() -> None:
    """Readers of ``latest`` wait for the mirror's newest node, which these entries were of."""
    journal, _ = begun(most=80)
    for revision in range(100, 181):
        journal.record(Tree.CONFIG, A, None, node(A, revision))
    assert journal.latest == 180
    assert journal.waiting
    journal.advance(180)
    assert journal.latest == 180
    assert not journal.waiting


def test_a_load_makes_too_old_and_no_entries() -> None:
    journal, cursor = begun(revision=1000)
    journal.record(Tree.CONFIG, A, None, node(A, 1001))
    journal.advance(1001)
    # Restored from a backup: zxids are lower than those seen before.
    journal.begin(500)
    found = journal.read(cursor)
    assert isinstance(found, ExpiredCursor)
    assert found.cursor.revision == 500
    assert page(journal, found.cursor).entries == []


def test_a_page_holds_whole_revisions() -> None:
    journal, cursor = begun()
    for entity_id, revision in ((A, 11), (A, 12), (B, 12), (A, 13)):
        journal.record(Tree.CONFIG, entity_id, None, node(entity_id, revision))
    journal.advance(20)
    first = page(journal, cursor, 2)
    assert shown(first.entries) == [(11, A), (12, A), (12, B)]
    rest = page(journal, first.cursor, 2)
    assert shown(rest.entries) == [(13, A)]
    assert rest.cursor.revision == 20


STEPS = st.lists(st.tuples(st.sampled_from(["ahead", "now", "late", "gone", "advance", "read"]), st.integers(0, 6)))


@given(STEPS, st.integers(3, 12))
def test_a_reader_misses_nothing_and_meets_nothing_twice(steps: list[tuple[str, int]], most: int) -> None:
    journal, cursor = begun(most=most)
    revision = 10
    due: list[str] = []
    read: list[JournalEntry] = []

    def look() -> None:
        nonlocal cursor
        while (found := journal.read(cursor, 3)) is not None:
            cursor = found.cursor
            if isinstance(found, ExpiredCursor):
                # The mirror itself has all that was noted until now; what waits may come as well.
                due.clear()
                read.clear()
            elif not found.entries:
                break
            else:
                read.extend(found.entries)

    for number, (step, by) in enumerate(steps):
        if step == "advance":
            revision += by
            journal.advance(revision)
        elif step == "read":
            look()
        else:
            due.append(f"user={number}")
            mzxid = {"ahead": revision + by + 1, "late": max(1, revision - by)}.get(step, revision + 1)
            given = node(due[-1], mzxid)
            before, after = (given, None) if step == "gone" else (None, given)
            journal.record(Tree.CONFIG, given.id, before, after, revision)
    look()
    journal.advance(revision + 100)
    look()
    met = [entry.entity_id for entry in read]
    assert set(due) <= set(met)
    assert len(set(met)) == len(met)
    assert [entry.revision for entry in read] == sorted(entry.revision for entry in read)


async def read_on(store: ZooKeeperStore, cursor: Cursor) -> JournalPage:
    """Read the journal behind a cursor, once the mirror has all that ZooKeeper has by now."""
    await store.catch_up(soon(60))
    return page_of(store, cursor)


def page_of(store: ZooKeeperStore, cursor: Cursor) -> JournalPage:
    found = store.journal.read(cursor)
    assert isinstance(found, JournalPage)
    return found


def end_of(store: ZooKeeperStore) -> Cursor:
    found = store.journal.read(None)
    assert isinstance(found, ExpiredCursor)
    return found.cursor


async def test_own_commits_ahead_of_older_notifications_wait_for_them(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    cursor = end_of(store)
    async with mirror_paused(store):
        kafka_writes(raw_zk, "users/bob", rate(1))
        own = await committed(store, write(ALICE, {RATE: "2"}))
        kafka_writes(raw_zk, "users/carol", rate(3))
        later = await committed(store, write(ALICE, {RATE: "4"}, 0))
        # The mirror has it, and older ones are to come.
        assert store.get(Tree.CONFIG, ALICE.id) is not None
        assert store.get(Tree.CONFIG, BOB.id) is None
        assert page_of(store, cursor).entries == []
    found = await read_on(store, cursor)
    revisions = [entry.revision for entry in found.entries]
    assert revisions == sorted(revisions)
    written, notified = split(found.entries)
    assert [entry.entity_id for entry in written] == ["user=bob", ALICE.id, "user=carol", ALICE.id]
    assert (written[1].revision, written[3].revision) == (own.revision, later.revision)
    assert [entry.before for entry in written] == [None, None, None, written[1].after]
    # External writes are notified apart, and our own are not.
    assert [entry.entity_id for entry in notified] == ["user=bob", "user=carol"]
    assert found.cursor.revision >= later.revision


async def test_several_versions_may_be_one_entry(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    kafka_writes(raw_zk, "users/bob", rate(1))
    await store.catch_up(soon(60))
    cursor = end_of(store)
    async with mirror_paused(store):
        for value in (2, 3, 4):
            kafka_writes(raw_zk, "users/bob", rate(value))
    [entry], [notified] = split((await read_on(store, cursor)).entries)
    assert entry.before is not None
    assert entry.after is not None
    assert notified.after is entry.after
    assert notified.revision > entry.after.mzxid
    assert (entry.before.version, entry.after.version) == (0, 3)
    # It can be read no later than the first of the three writes, each of which was followed by its notification.
    assert cursor.revision < entry.revision <= entry.after.mzxid - 4


async def test_unobserved_changes_are_an_entry_without_nodes(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    cursor = end_of(store)
    async with mirror_paused(store):
        kafka_writes(raw_zk, "users/bob", rate(1))
        raw_zk.delete("/config/users/bob")
        notified = raw_zk.exists(notify(raw_zk, "users/bob"))
    [entry] = (await read_on(store, cursor)).entries
    assert (entry.entity_id, entry.before, entry.after) == ("user=bob", None, None)
    assert notified is not None
    assert entry.revision == notified.czxid


async def test_a_recursive_delete_is_an_entry_for_each_node(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(ALICE, {RATE: "1"}), write(BILLING, {RATE: "2"}))
    await store.catch_up(soon(60))
    cursor = end_of(store)
    raw_zk.delete("/config/users/alice", recursive=True)
    notify(raw_zk, "users/alice/clients/billing")
    found = await read_on(store, cursor)
    assert {entry.entity_id for entry in found.entries} == {ALICE.id, BILLING.id}
    assert all(entry.before is not None and entry.after is None for entry in found.entries)
    assert found.cursor.revision >= max(entry.revision for entry in found.entries)


async def test_what_nobody_is_notified_of_comes_without_anything_else(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    raw_zk.ensure_path("/config/topics")
    await store.catch_up(soon(60))
    cursor = end_of(store)
    raw_zk.create("/config/topics/orders", rate(1))
    found: list[JournalEntry] = []

    def there() -> bool:
        found[:] = page_of(store, cursor).entries
        return bool(found)

    await until(there)
    assert [entry.entity_id for entry in found] == ["topic=orders"]


async def test_a_load_makes_every_cursor_too_old(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    await committed(store, write(ALICE, {RATE: "1"}))
    cursor = end_of(store)
    loads = store._follower.loads
    raw_zk.delete("/config/changes", recursive=True)
    await until(lambda: store._follower.loads > loads and store.status().stale_ms is None)
    found = store.journal.read(cursor)
    assert isinstance(found, ExpiredCursor)
    assert page_of(store, found.cursor).entries == []


async def test_readers_at_different_places_meet_the_same_entries(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    start = quick = end_of(store)
    met: list[JournalEntry] = []
    for number in range(30):
        kafka_writes(raw_zk, f"users/u{number % 7}", rate(number))
        await committed(store, write(Entity.of(user=f"own{number}"), {RATE: "1"}))
        found = page_of(store, quick)
        met += found.entries
        quick = found.cursor
    met += (await read_on(store, quick)).entries
    assert met == list(page_of(store, start).entries)
    assert len([entry for entry in met if entry.entity_id.startswith("user=own")]) == 30


async def test_a_reader_waits_until_the_journal_is_ahead_of_it() -> None:
    journal = MirrorJournal()
    loaded = asyncio.create_task(journal.wait(None))
    await asyncio.sleep(0)
    assert not loaded.done()
    journal.begin(40)
    await loaded
    began = journal.read(None)
    assert isinstance(began, ExpiredCursor)
    waiting = [asyncio.create_task(journal.wait(began.cursor)) for _ in range(2)]
    await asyncio.sleep(0)
    journal.advance(40)
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    journal.advance(41)
    await asyncio.gather(*waiting)
    await journal.wait(began.cursor)
