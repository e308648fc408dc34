"""Connections that break, sessions that end, servers that come late: nothing is lost, nothing is claimed too much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from confplane.devstack.zookeeper import ZooKeeper
from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.services.ports.store import MirrorState, SessionState
from confplane.services.ports.transactions import TransactionUnknown
from confplane.store import ZooKeeperStore
from confplane.store.mirror import loader
from tests.support.stores import ALICE, committed, kafka_writes, notify, soon, transaction, until, write
from tests.support.waiting import run_ready_tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.proxy import Proxy

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'
TIMEOUT_MS = 2_000


class Patient(ZooKeeper):
    """A server that grants no session shorter than 50 s."""

    least = 50_000

    def _prepare(self) -> None:
        super()._prepare()
        config = self._config.read_text().replace("minSessionTimeout=1000", f"minSessionTimeout={self.least}")
        self._config.write_text(config)


@pytest.fixture
async def distant(zk_proxy: Proxy, chroot: str, open_store: Opener) -> ZooKeeperStore:
    """A store at the end of the breakable line."""
    return await open_store(zk_proxy.connect(chroot), session_timeout_ms=TIMEOUT_MS)


def healthy(store: ZooKeeperStore) -> bool:
    return store.status().connected and store.status().stale_ms is None and store._guard.known


async def test_a_store_that_was_not_started_refuses_and_reports_its_state() -> None:
    store = ZooKeeperStore(
        "default",
        connect="127.0.0.1:1/unused",
        session_timeout_ms=4_000,
        max_packet=900_000,
        notifications_max=1_000,
        jute_maxbuffer=0xFFFFF,
        facets={},
    )
    status = store.status()
    assert (status.session, status.mirror, status.revision) == (SessionState.CONNECTING, MirrorState.LOADING, 0)
    assert [sample.name for sample in store.metrics()]
    assert store.journal.latest == 0
    with pytest.raises(UnavailableError, match="not loaded"):
        store.get(Tree.CONFIG, ALICE.id)
    with pytest.raises(UnavailableError, match="not connected"):
        await store.read(Tree.CONFIG, ALICE, soon())
    await store.stop()


async def test_deadline_before_the_reply_is_unknown_and_the_reply_still_counts(
    distant: ZooKeeperStore, zk_proxy: Proxy
) -> None:
    zk_proxy.replies.clear()
    result = await distant.commit(transaction(distant, write(ALICE, {"acks": "1"})), soon(1))
    assert result == TransactionUnknown()
    assert distant.get(Tree.CONFIG, ALICE.id) is None
    zk_proxy.replies.set()
    await until(lambda: distant.get(Tree.CONFIG, ALICE.id) is not None)


async def test_nothing_is_submitted_while_disconnected(
    distant: ZooKeeperStore, zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    prepared = transaction(distant, write(ALICE, {"acks": "1"}))
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: not distant.status().connected)
    for call in (
        distant.commit(prepared, soon()),
        distant.read(Tree.CONFIG, ALICE, soon()),
        distant.confirm(prepared.writer, [], soon()),
        distant.catch_up(soon()),
    ):
        with pytest.raises(UnavailableError):
            await call
    with pytest.raises(UnavailableError) as refusal:
        distant.writer()
    assert refusal.value.outcome == "not_applied"
    zk_proxy.accepting = True
    await until(lambda: healthy(distant))
    await distant.catch_up(soon())
    assert raw_zk.exists("/config/users/alice") is None


async def test_short_cut_keeps_the_session_and_misses_nothing(
    distant: ZooKeeperStore, zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    writer, mirror = distant.writer(), distant._follower.mirror
    for number in range(3):
        zk_proxy.accepting = False
        zk_proxy.cut()
        await until(lambda: not distant.status().connected)
        assert isinstance(distant.status().stale_ms, int)
        kafka_writes(raw_zk, f"users/u{number}", ONE)
        assert distant.get(Tree.CONFIG, f"user=u{number}") is None
        zk_proxy.accepting = True
        await until(lambda: healthy(distant))
        assert distant.get(Tree.CONFIG, f"user=u{number}") is not None
    assert distant.writer() == writer
    assert distant._follower.mirror is mirror
    last = kafka_writes(raw_zk, "users/after", ONE)
    await until(lambda: distant.get(Tree.CONFIG, "user=after") is not None)
    await distant.wait_for(raw_zk.exists(last).czxid, soon())


async def test_gap_after_a_cut_loads_again(distant: ZooKeeperStore, zk_proxy: Proxy, raw_zk: KazooClient) -> None:
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: not distant.status().connected)
    raw_zk.delete(kafka_writes(raw_zk, "users/alice", ONE))
    zk_proxy.accepting = True
    await until(lambda: healthy(distant))
    assert distant.get(Tree.CONFIG, ALICE.id) is not None


async def test_long_cut_ends_the_session_by_our_own_clock(
    distant: ZooKeeperStore, zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    await committed(distant, write(ALICE, {"acks": "1"}))
    writer, mirror = distant.writer(), distant._follower.mirror
    zk_proxy.accepting = False
    zk_proxy.cut()
    # Reads go on, and say how old they are.
    await until(lambda: (distant.status().stale_ms or 0) > TIMEOUT_MS + 500)
    assert distant.get(Tree.CONFIG, ALICE.id) is not None
    assert distant._session_manager._session is not None
    assert distant._session_manager._session.writer != writer
    kafka_writes(raw_zk, "users/bob", ONE)
    zk_proxy.accepting = True
    await until(lambda: healthy(distant))
    assert distant.writer() != writer
    assert distant._follower.mirror is mirror
    assert distant.get(Tree.CONFIG, "user=bob") is not None
    await until(lambda: raw_zk.get_children("/confplane/writers") == [distant.writer()])
    await committed(distant, write(ALICE, {"acks": "0"}, 0))


async def test_the_timeout_that_counts_is_the_one_that_the_server_grants(chroot: str, open_store: Opener) -> None:
    # The test's server grants a second at least.
    store = await open_store(chroot, session_timeout_ms=500)
    assert store._session_manager.current.timeout_s == 1


async def test_no_longer_timeout_is_asked_for_than_settling_bears(
    chroot: str, open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    # The test's server grants a minute at most.
    store = await open_store(chroot, session_timeout_ms=120_000)
    assert store._session_manager.current.timeout_s == 45
    assert "session_timeout_ms is 120000, and 45000 are asked for" in caplog.text
    caplog.clear()
    await open_store(chroot, session_timeout_ms=45_000)
    assert "asked for" not in caplog.text


async def test_a_server_that_grants_a_longer_timeout_is_not_used(
    tmp_path: Path, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_listener, loop = KazooClient.add_listener, asyncio.get_running_loop()

    def add_slow(client: KazooClient, listener: Callable[[str], None]) -> None:
        def slow(state: str) -> None:  # on kazoo's thread
            listener(state)
            asyncio.run_coroutine_threadsafe(run_ready_tasks(), loop).result()

        add_listener(client, slow)

    monkeypatch.setattr(KazooClient, "add_listener", add_slow)
    server = Patient(tmp_path)
    with server:
        store = await open_store(server.hosts, ready=False)
        await until(lambda: store.status().warnings)
        [warning] = map(str, store.status().warnings)
        assert "grants sessions of 50 s" in warning
        assert "minSessionTimeout" in warning
        assert store.status().session is SessionState.CONNECTING
        with pytest.raises(UnavailableError):
            store.writer()
        with pytest.raises(UnavailableError):
            await store.catch_up(soon())
        # One of its settings was mended.
        server.least = 1_000
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await until(lambda: healthy(store))
        assert store.status().warnings == ()
        await committed(store, write(ALICE, {}))


async def test_the_old_copy_is_whole_and_stale_while_another_is_loaded(
    distant: ZooKeeperStore, zk_proxy: Proxy, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(distant, write(ALICE, {"acks": "1"}))
    load, loaded, go_on = loader.load, asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> None:
        await load(*arguments)
        loaded.set()
        await go_on.wait()

    monkeypatch.setattr(loader, "load", held)
    zk_proxy.accepting = False
    zk_proxy.cut()
    await until(lambda: distant.status().session is SessionState.LOST)
    assert distant.status().mirror is MirrorState.STALE
    await until(lambda: not raw_zk.get_children("/confplane/writers"))
    raw_zk.delete(kafka_writes(raw_zk, "users/bob", ONE))
    raw_zk.delete("/config/users/alice")
    zk_proxy.accepting = True
    async with asyncio.timeout(60):
        await loaded.wait()
    status = distant.status()
    assert (status.session, status.mirror) == (SessionState.CONNECTED, MirrorState.RELOADING)
    assert status.stale_ms is not None
    assert status.load is not None
    assert status.load.read == status.load.listed == len(raw_zk.get_children("/config/users")) == 1
    assert distant.get(Tree.CONFIG, ALICE.id) is not None
    assert distant.get(Tree.CONFIG, "user=bob") is None
    # What is written meanwhile is in the old copy, and in the new one.
    await committed(distant, write(Entity.of(user="carol"), {"acks": "1"}))
    assert distant.get(Tree.CONFIG, "user=carol") is not None
    go_on.set()
    await until(lambda: healthy(distant))
    assert (distant.status().mirror, distant.status().load) == (MirrorState.FRESH, None)
    assert distant.get(Tree.CONFIG, ALICE.id) is None
    assert distant.get(Tree.CONFIG, "user=bob") is not None
    assert distant.get(Tree.CONFIG, "user=carol") is not None


async def test_what_a_replaced_session_brings_late_is_not_applied(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    """Replies of two sessions come in no order: what the earlier one saw may be undone by then, or done."""
    earlier, follower = store._session_manager.current, store._follower
    late: list[Callable[[], None]] = []

    def keep(path: str) -> None:
        def taken(value: Any, error: Exception | None) -> None:
            assert error is None or isinstance(error, NoNodeError)
            late.append(lambda: follower.apply_read(earlier, Tree.CONFIG, path, value))

        earlier.get(f"/config/{path}").then(taken)

    kafka_writes(raw_zk, "users/bob", ONE)
    await store.wait_for(raw_zk.exists("/config/users/bob").mzxid, soon())
    made = await committed(store, write(Entity.of(user="carol"), {"acks": "1"}))
    keep("users/alice")
    keep("users/bob")
    await until(lambda: len(late) == 2)
    store._session_manager.replace(earlier)
    await until(lambda: healthy(store) and store._session_manager.current is not earlier)
    kafka_writes(raw_zk, "users/alice", ONE)
    for name in ("bob", "carol"):
        raw_zk.delete(f"/config/users/{name}")
        last = notify(raw_zk, f"users/{name}")
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    revision, following = follower.revision, follower.next
    # Alice was not there when the earlier session looked, bob and carol were, and carol is one that it made itself.
    for deliver in late:
        deliver()
    follower.apply_commit(earlier, revision + 1_000_000, (following,), [(Tree.CONFIG, made.nodes[0])])
    assert store.get(Tree.CONFIG, ALICE.id) is not None
    assert store.get(Tree.CONFIG, "user=bob") is None
    assert store.get(Tree.CONFIG, "user=carol") is None
    assert follower.revision < revision + 1_000_000
    # The number is still the next to be read.
    notify(raw_zk, "users/bob")
    await until(lambda: follower.next == following + 1)
    await store.catch_up(soon())
    assert follower.revision < revision + 1_000_000


async def test_expired_session_is_replaced(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    writer, session = store.writer(), store._session_manager.current
    session_id, password = session._client.client_id
    # Whoever opens the same session and closes it, ends it for all.
    twin = raw_zk.__class__(raw_zk.hosts[0][0] + f":{raw_zk.hosts[0][1]}", client_id=(session_id, password))
    await asyncio.to_thread(twin.start)
    await asyncio.to_thread(twin.stop)
    twin.close()
    await until(lambda: store.status().connected and store.writer() != writer)
    await until(lambda: healthy(store))
    assert raw_zk.get_children("/confplane/writers") == [store.writer()]
    last = kafka_writes(raw_zk, "users/alice", ONE)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert store.get(Tree.CONFIG, ALICE.id) is not None
    await committed(store, write(Entity.of(user="bob"), {}))


async def test_silent_server_makes_the_mirror_stale(distant: ZooKeeperStore, zk_proxy: Proxy) -> None:
    zk_proxy.replies.clear()
    await until(lambda: distant.status().stale_ms is not None)
    zk_proxy.replies.set()
    await until(lambda: healthy(distant))


async def test_zookeeper_that_comes_late(chroot: str, zk_proxy: Proxy, open_store: Opener) -> None:
    zk_proxy.accepting = False
    store = await open_store(zk_proxy.connect(chroot), ready=False)
    await until(lambda: zk_proxy.refused)
    assert store.status().session is SessionState.CONNECTING
    assert store.status().mirror is MirrorState.LOADING
    for call in (lambda: store.get(Tree.CONFIG, ALICE.id), store.writer):
        with pytest.raises(UnavailableError):
            call()
    with pytest.raises(UnavailableError):
        await store.check_admission([], soon())
    waiting = asyncio.create_task(store.wait_for(1, soon()))
    zk_proxy.accepting = True
    await until(lambda: healthy(store))
    await waiting
    assert store.get(Tree.CONFIG, ALICE.id) is None


async def test_missing_chroot_is_made(chroot: str, open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(f"{chroot}/deep/er")
    await committed(store, write(ALICE, {}))
    assert raw_zk.exists("/deep/er/config/users/alice")
    for path in ("/deep", "/deep/er/config", "/deep/er/config/changes", "/deep/er/config/users"):
        assert raw_zk.get(path)[0] is None


async def test_stop_ends_the_session_at_once(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store()
    assert raw_zk.get_children("/confplane/writers") == [store.writer()]
    await store.stop()
    assert raw_zk.get_children("/confplane/writers") == []
    with pytest.raises(UnavailableError):
        store.writer()


async def test_stop_while_zookeeper_is_away(zk_proxy: Proxy, open_store: Opener) -> None:
    zk_proxy.accepting = False
    store = await open_store(f"127.0.0.1:{zk_proxy.port}", ready=False)
    await store.stop()
    assert not store.status().connected
