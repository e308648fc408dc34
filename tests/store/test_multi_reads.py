"""Many reads in one request: each is taken for what it is, in its place, within what the connection bears."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    APIError,
    ConnectionLoss,
    MarshallingError,
    NoAuthError,
    NoNodeError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.serialization import Create, Exists
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from confplane.devstack.zookeeper import ZooKeeper
from confplane.domain.changes import Node
from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.store import SessionState
from confplane.store import znodes
from confplane.store.session import reads
from confplane.store.session.asyncio_adapter import Mailbox, Replies
from confplane.store.session.multiread import CHILDREN, DATA, MultiRead
from tests.support.stores import ALICE, committed, kafka_writes, notify, rate, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from confplane.store import ZooKeeperStore
    from tests.support.proxy import Proxy

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ERRORS = {NoNodeError.code: "absent", NoAuthError.code: "forbidden"}
STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
END = struct.pack("!iBi", -1, 1, -1)
UNKNOWN = 9999
"""An opcode that no ZooKeeper knows."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The paths of each MultiRead as it goes out; those of the question whether the server knows it are none."""
    found: list[Sequence[str]] = []
    serialize = MultiRead.serialize

    def noted(request: MultiRead) -> bytes:
        found.append(request._paths)
        return serialize(request)

    monkeypatch.setattr(MultiRead, "serialize", noted)
    return found


def called(zk: KazooClient, request: Any) -> Any:
    """Send a request that kazoo has no method for."""
    result = zk.handler.async_result()
    zk._call(request, result)
    results, _ = result.get(timeout=60)
    return results


def root_of(chroot: str) -> str:
    return f"/{chroot.partition('/')[2]}"


# ---------------------------------------------------------------- the request, and the server


def test_reads_of_one_request_succeed_or_fail_each_by_itself(raw_zk: KazooClient, chroot: str) -> None:
    root = root_of(chroot)
    raw_zk.create("/full", b"data")
    raw_zk.create("/full/below")
    raw_zk.create("/empty", b"")
    raw_zk.create("/closed", b"secret", acl=[make_digest_acl("somebody", "else", all=True)])
    names = ("full", "gone", "closed", "empty", "full/below", "full")
    found = called(raw_zk, MultiRead(DATA, [f"{root}/{name}" for name in names], ERRORS))
    data, stat = raw_zk.get("/full")
    assert found[0] == found[5] == (data, tuple(stat))
    assert found[1:3] == ["absent", "forbidden"]
    assert found[3:5] == [(b"", tuple(raw_zk.exists("/empty"))), (b"", tuple(raw_zk.exists("/full/below")))]
    paths = [f"{root}/full", f"{root}/gone", f"{root}/closed", f"{root}/empty"]
    assert called(raw_zk, MultiRead(CHILDREN, paths, ERRORS)) == [["below"], "absent", "forbidden", []]
    assert called(raw_zk, MultiRead(CHILDREN, (), ERRORS)) == []


def test_a_node_without_data_has_none_and_one_with_empty_data_has_that(raw_zk: KazooClient, chroot: str) -> None:
    paths = [f"{root_of(chroot)}/{name}" for name in ("null", "empty")]
    transaction = raw_zk.transaction()
    transaction.operations = [
        Create(path, data, OPEN_ACL_UNSAFE, 0) for path, data in zip(paths, (None, b""), strict=True)
    ]
    transaction.commit()
    assert [data for data, _ in called(raw_zk, MultiRead(DATA, paths, {}))] == [None, b""]
    assert [raw_zk.get(path)[0] for path in ("/null", "/empty")] == [None, b""]


def test_an_error_that_nothing_stands_for_fails_all_of_them(raw_zk: KazooClient, chroot: str) -> None:
    paths = [f"{root_of(chroot)}/{name}" for name in ("", "gone")]
    with pytest.raises(NoNodeError):
        called(raw_zk, MultiRead(DATA, [paths[0][:-1], paths[1]], {NoAuthError.code: None}))


def test_it_knows_no_other_kinds_of_reads(raw_zk: KazooClient, chroot: str) -> None:
    with pytest.raises(MarshallingError):
        called(raw_zk, MultiRead(Exists.type, [root_of(chroot)], ERRORS))
    assert raw_zk.exists("/") is not None


async def test_a_server_answers_what_it_does_not_know_and_closes_the_connection(
    raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what came behind gets no reply. So servers before 3.6 do with a MultiRead."""
    monkeypatch.setattr(MultiRead, "type", UNKNOWN)
    session = raw_zk.client_id
    calls = [raw_zk.handler.async_result() for _ in range(2)]
    # Both are queued before the connection sends the first, whatever the pace of the threads.
    raw_zk._queue.append((MultiRead(DATA, (), ERRORS), calls[0]))
    raw_zk._call(Exists("/", None), calls[1])
    with pytest.raises(UnimplementedError):
        await asyncio.to_thread(calls[0].get, timeout=60)
    with pytest.raises(ConnectionLoss):
        await asyncio.to_thread(calls[1].get, timeout=60)
    await asyncio.to_thread(raw_zk.retry, raw_zk.exists, "/")
    assert raw_zk.client_id == session


def data_result(data: bytes) -> bytes:
    return struct.pack("!iBii", DATA, 0, 0, len(data)) + data + STAT


def error_result(code: int) -> bytes:
    return struct.pack("!iBii", -1, 0, code, code)


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ([data_result(b"a")], (MarshallingError, struct.error)),
        ([data_result(b"a"), data_result(b"b"), data_result(b"c")], MarshallingError),
        ([data_result(b"a"), struct.pack("!iBii", CHILDREN, 0, 0, 0)], MarshallingError),
        ([data_result(b"a"), data_result(b"b")[:-1]], (MarshallingError, struct.error)),
        ([data_result(b"a"), error_result(-8)], None),
        ([data_result(b"a"), error_result(-118)], ZookeeperError),
        ([data_result(b"a"), error_result(-100)], APIError),
        ([data_result(b"a"), error_result(-31337)], ZookeeperError),
    ],
    ids=["too few", "too many", "another kind", "cut off", "bad arguments", "session moved", "API error", "unheard of"],
)
def test_what_is_no_reply_to_these_reads_is_taken_for_none(results: list[bytes], error: Any) -> None:
    request = MultiRead(DATA, ["/a", "/b"], ERRORS)
    whole = b"header" + b"".join([data_result(b"a"), error_result(NoNodeError.code)]) + END
    assert request.deserialize(whole, 6) == ([(b"a", struct.unpack("!qqqqiiiqiiq", STAT)), "absent"], len(whole))
    with pytest.raises(error or ZookeeperError):
        request.deserialize(b"header" + b"".join(results) + END, 6)


# ---------------------------------------------------------------- whether the server knows it


async def test_a_server_is_asked_before_all_else_on_each_connection(
    open_store: Opener, zk_proxy: Proxy, chroot: str, asked: list[Sequence[str]], raw_zk: KazooClient
) -> None:
    raw_zk.create("/config/users/alice", rate("1"), makepath=True)
    store = await open_store(zk_proxy.connect(chroot))
    assert store._session_manager.current.multi_reads
    assert asked[0] == ()
    assert [f"{root_of(chroot)}/config/users/alice"] in asked
    for _ in range(2):
        del asked[:]
        zk_proxy.cut()
        await until(lambda: asked)
        await until(lambda: store.status().connected and store.status().stale_ms is None)
        assert asked.count(()) == 1
        assert asked[0] == ()


async def test_a_server_that_does_not_know_it_is_asked_once_and_read_one_by_one(
    open_store: Opener,
    zk_proxy: Proxy,
    chroot: str,
    asked: list[Sequence[str]],
    raw_zk: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(MultiRead, "type", UNKNOWN)
    nodes = populate(raw_zk)
    store = await open_store(zk_proxy.connect(chroot))
    assert not store._session_manager.current.multi_reads
    assert mirrored(store) == nodes
    # Nobody saw the connection that broke.
    assert "disconnected" not in caplog.text
    assert dict(store._session_manager.entered) == {SessionState.CONNECTED: 1}
    writer = store.writer()
    zk_proxy.cut()
    await until(lambda: not store.status().connected)
    await until(lambda: store.status().connected and store.status().stale_ms is None)
    await committed(store, write(ALICE, {"acks": "1"}, raw_zk.exists("/config/users/alice").version))
    assert store.writer() == writer
    assert asked == [()]


async def test_a_server_that_ends_connections_without_a_word_is_asked_a_few_times(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def ends(_request: MultiRead) -> bytes:
        nonlocal tries
        tries += 1
        raise ConnectionDropped("by the test")

    monkeypatch.setattr(MultiRead, "serialize", ends)
    nodes = populate(raw_zk)
    store = await open_store()
    assert tries == 3
    assert mirrored(store) == nodes


async def test_after_one_lost_answer_it_is_asked_again(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    serialize, failures = MultiRead.serialize, iter([ConnectionDropped("by the test")])

    def once(request: MultiRead) -> bytes:
        for failure in failures:
            raise failure
        return serialize(request)

    monkeypatch.setattr(MultiRead, "serialize", once)
    populate(raw_zk)
    store = await open_store()
    assert store._session_manager.current.multi_reads
    assert dict(store._session_manager.entered) == {SessionState.CONNECTED: 1}


# ---------------------------------------------------------------- what is taken of it


def populate(zk: KazooClient) -> dict[str, str | None]:
    """Create nodes of all sorts; return the value of each entity that can be read."""
    nodes: dict[str, str | None] = {}
    closed = [make_digest_acl("somebody", "else", all=True)]

    def add(path: str, value: str | None, acl: Any = None) -> None:
        zk.create(f"/config/{path}", b"" if value is None else rate(value), acl=acl, makepath=True)
        if acl is None:
            nodes[Entity.from_path(path).id] = value

    add("users/alice", "0")
    for number in range(300):
        add(f"users/u{number:03d}", str(number))
        if not number % 3:
            add(f"users/u{number:03d}/clients/c", f"{number}1")
            add(f"users/u{number:03d}/clients/<default>", None)
        if not number % 10:
            add(f"clients/c{number}", f"{number}2")
            add(f"users/closed{number}", "3", closed)
    # What is below a node that can't be read may be read.
    zk.set_acls("/config/users/u003", closed)
    del nodes["user=u003"]
    return nodes


def mirrored(store: ZooKeeperStore) -> dict[str, str | None]:
    """The content of a mirror."""
    return {
        entity_id: node.config.get("producer_byte_rate")
        for entity_id, node in store._follower.loaded().trees[Tree.CONFIG].nodes.items()
    }


async def test_everything_is_loaded_as_it_is(
    open_store: Opener, raw_zk: KazooClient, asked: list[Sequence[str]]
) -> None:
    nodes = populate(raw_zk)
    store = await open_store()
    assert mirrored(store) == nodes
    forbidden = {f"/config/users/closed{number}" for number in range(0, 300, 10)} | {"/config/users/u003"}
    assert set(store._follower.loaded().forbidden) == forbidden
    assert max(map(len, asked)) > 50


async def test_few_reads_of_a_load_wait_for_their_turn(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of a million nodes would otherwise hold the paths of all of them."""
    waiting: list[int] = []
    request = reads.ReadQueue.request

    def measured(queue: reads.ReadQueue, paths: Iterable[str]) -> None:
        request(queue, paths)
        waiting.append(len(queue.waiting))

    monkeypatch.setattr(reads.ReadQueue, "request", measured)
    creation = raw_zk.transaction()
    raw_zk.ensure_path("/config/users")
    for number in range(1_500):
        creation.create(f"/config/users/u{number}", rate("1"))
    creation.commit()
    store = await open_store()
    assert len(mirrored(store)) == 1_500
    # Less than one full request, and the names that are made into paths at a time.
    assert max(waiting) < 600


async def test_an_absence_among_many_replies_does_not_remove_what_a_later_one_has(
    open_store: Opener, zk_proxy: Proxy, chroot: str, raw_zk: KazooClient
) -> None:
    """A commit creates a node whose absence is among many replies right before its own."""
    store = await open_store(zk_proxy.connect(chroot))
    for number in range(300):
        raw_zk.create(f"/config/users/u{number:03d}", rate(str(number)))
    session, follower = store._session_manager.current, store._follower

    def taken(paths: Sequence[str], values: Sequence[Any]) -> None:
        for path, value in zip(paths, values, strict=True):
            follower.apply_read(session, Tree.CONFIG, path.removeprefix("/config/"), value)

    many = reads.ReadWindow(session)
    zk_proxy.replies.clear()
    paths = [f"/config/users/u{number:03d}" for number in range(300)]
    many.data(taken, size := reads.SizeEstimate()).request([*paths, "/config/users/alice"])
    size.record(1_000, 100_000)
    reading = asyncio.create_task(many.done())
    writing = asyncio.create_task(committed(store, write(ALICE, {"acks": "1"})))
    await until(lambda: raw_zk.exists("/config/users/alice"))
    zk_proxy.replies.set()
    await reading
    await writing
    assert len(store._follower.loaded().trees[Tree.CONFIG].nodes) == 301


async def test_a_topic_created_after_the_list_of_topics_is_not_removed(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is looked at a while after it came."""
    topic, session = Entity.of(topic="orders"), store._session_manager.current
    children = session.children

    async def then_commit(path: str, watch: Any = None) -> Any:
        value = await children(path, watch)
        if path == znodes.TOPIC_CONFIGS:
            await committed(store, write(topic, {"retention.ms": "1"}))
        return value

    monkeypatch.setattr(session, "children", then_commit)
    await store._follower._follow_topics(session)
    assert store.get(Tree.CONFIG, topic.id) is not None


async def test_reads_that_nobody_waits_for_any_more_do_not_go_out(
    open_store: Opener, zk_proxy: Proxy, chroot: str
) -> None:
    store = await open_store(zk_proxy.connect(chroot))
    many = reads.ReadWindow(store._session_manager.current)
    taken: list[str] = []
    many.data(lambda paths, _: taken.extend(paths)).request([f"/config/users/u{number}" for number in range(1_000)])
    zk_proxy.replies.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await many.done()
    zk_proxy.replies.set()
    await until(lambda: taken)
    await store.catch_up(soon())
    assert len(taken) == 8
    with pytest.raises(TimeoutError):
        await many.done()


async def test_notifications_of_many_are_followed_in_few_requests(
    open_store: Opener, raw_zk: KazooClient, asked: list[Sequence[str]]
) -> None:
    store = await open_store()
    del asked[:]
    for number in range(200):
        raw_zk.create(f"/config/users/u{number:03d}/clients/c", rate(str(number)), makepath=True)
    multi = raw_zk.transaction()
    for number in range(200):
        path = f"users/u{number:03d}/clients/c"
        multi.create(
            "/config/changes/config_change_", b'{"version":2,"entity_path":"%s"}' % path.encode(), sequence=True
        )
    multi.commit()
    await store.catch_up(soon())
    assert mirrored(store) == {
        **{f"user=u{number:03d}": None for number in range(200)},
        **{f"user=u{number:03d},client-id=c": str(number) for number in range(200)},
    }
    assert len(asked) < 60


@pytest.mark.parametrize("known", [True, False], ids=["MultiRead", "none"])
async def test_many_nodes_are_read_after_all_writes_each_with_its_own_error(
    open_store: Opener,
    raw_zk: KazooClient,
    asked: list[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    known: bool,
) -> None:
    if not known:
        monkeypatch.setattr(MultiRead, "type", UNKNOWN)
    store = await open_store()
    nodes = populate(raw_zk)
    entities = [Entity.from_id(entity_id) for entity_id in [*nodes, "user=gone", "user=closed0", "ip=10.0.0.1"]]
    del asked[:]
    *found, gone, closed, none = await store.read_many(Tree.CONFIG, entities, soon())
    values = {node.id: node.config.get("producer_byte_rate") for node in found if isinstance(node, Node)}
    assert list(values.items()) == list(nodes.items())
    assert gone is none is None
    assert isinstance(closed, UnavailableError)
    assert "NoAuthError" in closed.detail
    # Requests double in size, from eight reads on.
    assert len(asked) in (range(1, 20) if known else [0])
    # The mirror has the nodes as well, though nobody was notified.
    assert mirrored(store) == nodes
    assert await store.read_many(Tree.CONFIG, [], soon()) == []


async def test_the_markers_of_many_commits_are_read_in_few_requests(
    store: ZooKeeperStore, asked: list[Sequence[str]]
) -> None:
    for number in range(40):
        await committed(store, write(Entity.of(user=f"u{number}"), {"acks": "1"}))
    change_ids, _ = await store.markers.found(soon())
    del asked[:]
    found = await store.markers.commits([*change_ids, *change_ids[:1]], soon())
    assert {marker.change_id for marker in found} == set(change_ids)
    assert len(found) == len(change_ids) == 40
    assert len(asked) < 10


# ---------------------------------------------------------------- how much is asked for


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The number of reads of each MultiRead, and the bytes of its reply."""
    found: list[tuple[int, int]] = []
    deserialize = MultiRead.deserialize

    def noted(request: MultiRead, buffer: bytes, offset: int) -> Any:
        found.append((len(request._paths), len(buffer)))
        return deserialize(request, buffer, offset)

    monkeypatch.setattr(MultiRead, "deserialize", noted)
    return found


def large(zk: KazooClient, count: int, size: int) -> None:
    """Create topics with one large value each."""
    zk.ensure_path("/config/topics")
    # A ping waits behind what is under way, and a session of a busy machine would end behind all of it.
    for first in range(0, count, 20):
        under_way = [
            zk.create_async(
                f"/config/topics/t{number:04d}", b'{"version":1,"config":{"x":"%s"}}' % (b"%d" % (number % 10) * size)
            )
            for number in range(first, min(first + 20, count))
        ]
        for each in under_way:
            each.get(timeout=600)


@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.long)])
async def test_large_nodes_are_read_one_by_one_once_they_are_met(
    tmp_path: Path, open_store: Opener, replies: list[tuple[int, int]], count: int
) -> None:
    size = 900_000
    with ZooKeeper(tmp_path, durable=False, max_heap=f"{256 + count * 2}m") as server:
        client = KazooClient(server.hosts)
        client.start(timeout=60)
        large(client, count, size)
        client.stop()
        client.close()
        store = await open_store(server.hosts, session_timeout_ms=30_000)
        nodes = store._follower.loaded().trees[Tree.CONFIG].nodes.values()
        assert len(nodes) == count
        assert all(len(node.config["x"]) == size for node in nodes)
    assert max(read for read, taken in replies if taken > size) <= 8
    assert sum(read > 1 for read, taken in replies if taken > size) <= 2


async def test_a_slow_connection_bears_a_load_of_large_nodes(
    open_store: Opener, zk_proxy: Proxy, chroot: str, raw_zk: KazooClient
) -> None:
    """Ten megabits a second: a reply of a tenth of these nodes would take as long as the session lasts unheard."""
    await asyncio.to_thread(large, raw_zk, 100, 150_000)
    store = await open_store(zk_proxy.connect(chroot), session_timeout_ms=4_000)
    writer = store.writer()
    zk_proxy.bytes_per_s = 10e6 / 8
    loads = store._follower.loads
    raw_zk.delete(kafka_writes(raw_zk, "users/alice", rate("1")))
    notify(raw_zk, "users/bob")
    await until(lambda: store._follower.loads > loads and store.status().stale_ms is None)
    assert store.writer() == writer
    assert len(mirrored(store)) == 101
    assert store._follower.loads == loads + 1


async def test_a_slow_connection_bears_a_load_of_many_small_nodes(
    open_store: Opener, zk_proxy: Proxy, chroot: str, raw_zk: KazooClient, asked: list[Sequence[str]]
) -> None:
    raw_zk.ensure_path("/config/users")
    for first in range(0, 10_000, 1_000):
        multi = raw_zk.transaction()
        for number in range(first, first + 1_000):
            multi.create(f"/config/users/u{number:05d}", rate(str(number)))
        multi.commit()
    zk_proxy.bytes_per_s = 10e6 / 8
    store = await open_store(zk_proxy.connect(chroot), session_timeout_ms=4_000)
    assert mirrored(store) == {f"user=u{number:05d}": str(number) for number in range(10_000)}
    assert dict(store._session_manager.entered) == {SessionState.CONNECTED: 1}
    assert max(map(len, asked)) == 500


@pytest.mark.parametrize(("sizes", "slices"), [([10] * 500, 8), ([8_000] * 64, 8), ([300_000] * 3, 3), ([], 0)])
async def test_a_reply_reaches_the_loop_in_slices_of_few_results_and_few_bytes(sizes: list[int], slices: int) -> None:
    found: list[list[Any]] = []
    results = [(bytes([number % 256]) * size, ()) for number, size in enumerate(sizes)]
    replies = Replies(Mailbox(asyncio.get_running_loop()), found.append)
    replies.set((results, sum(sizes) + 4))
    assert await replies == sum(sizes) + 4
    assert [result for some in found for result in some] == results
    assert len(found) == slices


async def test_long_paths_make_small_requests(
    open_store: Opener, raw_zk: KazooClient, asked: list[Sequence[str]]
) -> None:
    names = [f"{number:03d}{'x' * 900}" for number in range(400)]
    for name in names:
        raw_zk.create(f"/config/users/{name}", rate("1"), makepath=True)
    store = await open_store()
    assert mirrored(store) == {f"user={name}": "1" for name in names}
    assert max(sum(map(len, paths)) for paths in asked) < 2**17
