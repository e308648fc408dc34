"""Facts about ZooKeeper and kazoo that the write protocol rests on, shown on the real ones.

docs/guarantees.md names for each fact what rests on it, and the test that breaks it on purpose. A new version of either
that behaves otherwise fails here first.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import EventType, KazooState

from confplane.devstack.java import find_java
from confplane.domain.errors import UnavailableError
from confplane.settings import ClusterSettings
from confplane.store.znodes import is_path
from tests.faults.ensemble import Ensemble
from tests.support.stores import opened, soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.proxy import Proxy

PACKET = 1_048_575
"""ZooKeeper's own limit of a request and of an answer, in bytes."""


@contextmanager
def connected(hosts: str, timeout_s: float = 60.0) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=timeout_s)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Far:
    """A plain client of kazoo's at the end of a line that can be cut, and what it says of its state."""

    def __init__(self, zk_proxy: Proxy, chroot: str, timeout_s: float) -> None:
        self.client = KazooClient(zk_proxy.connect(chroot), timeout=timeout_s)
        self.states: list[str] = []
        self.client.add_listener(self.states.append)
        self._zk_proxy = zk_proxy

    def cut(self) -> None:
        """Cut it off, until it is let in again."""
        self._zk_proxy.accepting = False
        self._zk_proxy.cut()

    def let_in(self) -> None:
        self._zk_proxy.accepting = True


@pytest.fixture
async def far(zk_proxy: Proxy, chroot: str) -> AsyncIterator[Callable[..., Awaitable[Far]]]:
    made: list[Far] = []

    async def make(timeout_s: float = 60.0) -> Far:
        made.append(Far(zk_proxy, chroot, timeout_s))
        await asyncio.to_thread(made[-1].client.start, 60)
        return made[-1]

    yield make
    zk_proxy.accepting = True
    zk_proxy.replies.set()
    for each in made:
        await asyncio.to_thread(each.client.stop)
        await asyncio.to_thread(each.client.close)


# ---------------------------------------------------------------- one multi


def test_all_that_a_multi_writes_has_one_zxid_and_one_time_which_no_other_has(raw_zk: KazooClient) -> None:
    raw_zk.create("/set")
    zxids = []
    for name in ("first", "second", "third"):
        multi = raw_zk.transaction()
        multi.create(f"/{name}")
        multi.create(f"/{name}/below")
        multi.set_data("/set", name.encode())
        multi.create("/sequence-", sequence=True)
        sequence = multi.commit()[3]
        stats = [raw_zk.exists(path) for path in (f"/{name}", f"/{name}/below", "/set", sequence)]
        assert {stat.mzxid for stat in stats} == {stats[0].czxid}
        assert {stat.mtime for stat in stats} == {stats[0].ctime}
        assert stats[3].czxid == stats[3].mzxid
        zxids.append(stats[0].czxid)
    assert zxids[0] < zxids[1] < zxids[2]


def test_a_multi_that_fails_writes_nothing_and_its_errors_are_elements_of_its_result(raw_zk: KazooClient) -> None:
    raw_zk.create("/node")
    before = raw_zk.exists("/node")
    multi = raw_zk.transaction()
    multi.set_data("/node", b"new")
    multi.create("/other")
    multi.check("/node", 7)
    multi.delete("/node")
    results = multi.commit()
    assert [type(result) for result in results] == [
        RolledBackError,
        RolledBackError,
        BadVersionError,
        RuntimeInconsistency,
    ]
    assert (raw_zk.exists("/node"), raw_zk.exists("/other")) == (before, None)


def test_only_a_set_returns_its_zxid(chroot: str, raw_zk: KazooClient) -> None:
    """And what the client calls its last zxid is of whatever answer came last."""
    raw_zk.create("/set")
    raw_zk.create("/going")
    multi = raw_zk.transaction()
    multi.create("/made")
    multi.delete("/going")
    multi.check("/made", 0)
    multi.set_data("/set", b"")
    made, gone, checked, stat = multi.commit()
    assert (made, gone, checked) == ("/made", True, True)
    assert stat.mzxid == raw_zk.exists("/made").czxid
    with connected(chroot) as other:
        elsewhere = other.create("/elsewhere", include_data=True)[1].czxid
    raw_zk.sync("/")
    raw_zk.exists("/made")
    assert raw_zk.last_zxid >= elsewhere > stat.mzxid


# ---------------------------------------------------------------- a client that is cut off


async def test_a_call_of_a_client_that_is_cut_off_goes_out_after_its_caller_gave_up(
    far: Callable[..., Awaitable[Far]], raw_zk: KazooClient
) -> None:
    raw_zk.create("/node")
    cut = await far()
    cut.cut()
    await until(lambda: cut.client.state == KazooState.SUSPENDED)
    call = cut.client.set_async("/node", b"late")
    with pytest.raises(KazooTimeoutError):
        await asyncio.to_thread(call.get, timeout=0.5)
    assert raw_zk.get("/node")[0] == b""
    cut.let_in()
    await until(lambda: raw_zk.get("/node")[0] == b"late")


async def test_watches_are_dropped_by_a_cut_and_not_set_again(
    far: Callable[..., Awaitable[Far]], raw_zk: KazooClient
) -> None:
    raw_zk.create("/node")
    cut = await far()
    events: list[Any] = []
    await asyncio.to_thread(cut.client.get, "/node", events.append)
    session = cut.client.client_id
    cut.cut()
    await until(lambda: cut.client.state == KazooState.SUSPENDED)
    cut.let_in()
    await until(lambda: cut.client.state == KazooState.CONNECTED)
    raw_zk.set("/node", b"new")
    # A watch set now is told of the next write, and the old one of neither.
    again: list[Any] = []
    await asyncio.to_thread(cut.client.get, "/node", again.append)
    raw_zk.set("/node", b"newer")
    await until(lambda: again)
    assert cut.client.client_id == session
    assert [event.type for event in events if event.type != EventType.NONE] == []


async def test_while_cut_off_it_never_says_lost_then_opens_another_session_by_itself(
    far: Callable[..., Awaitable[Far]], raw_zk: KazooClient
) -> None:
    """And its lock is acquired all the while, whoever else has it by then."""
    cut = await far(timeout_s=4.0)
    lock = cut.client.Lock("/lock", "the first")
    await asyncio.to_thread(lock.acquire)
    await asyncio.to_thread(cut.client.create, "/mine", b"", ephemeral=True)
    session, before = cut.client.client_id, len(cut.states)
    cut.cut()
    await until(lambda: raw_zk.exists("/mine") is None)
    another = raw_zk.Lock("/lock", "the second")
    assert await asyncio.to_thread(another.acquire, timeout=60)
    assert (lock.is_acquired, another.is_acquired) == (True, True)
    assert cut.states[before:] == [KazooState.SUSPENDED]
    cut.let_in()
    await until(lambda: cut.states[-2:] == [KazooState.LOST, KazooState.CONNECTED])
    assert cut.client.client_id != session
    await asyncio.to_thread(cut.client.create, "/under-the-new-one")
    await asyncio.to_thread(another.release)


async def test_a_request_that_is_too_large_closes_the_connection(
    far: Callable[..., Awaitable[Far]], raw_zk: KazooClient
) -> None:
    raw_zk.create("/node")
    cut = await far()
    session, before = cut.client.client_id, len(cut.states)
    await asyncio.to_thread(cut.client.set, "/node", b"x" * (PACKET - 1_000))
    with pytest.raises(ConnectionLoss):
        await asyncio.to_thread(cut.client.set, "/node", b"x" * PACKET)
    await until(lambda: cut.states[before:] == [KazooState.SUSPENDED, KazooState.CONNECTED])
    assert cut.client.client_id == session
    assert len(raw_zk.get("/node")[0]) == PACKET - 1_000


async def test_with_it_all_replies_are_lost_that_were_on_their_way(
    far: Callable[..., Awaitable[Far]], zk_proxy: Proxy, raw_zk: KazooClient
) -> None:
    raw_zk.create("/node")
    cut = await far()
    zk_proxy.replies.clear()
    calls = [cut.client.create_async(f"/node/{number}") for number in range(200)]
    await until(lambda: len(raw_zk.get_children("/node")) == len(calls))
    calls.append(cut.client.set_async("/node", b"x" * PACKET))

    def suspended() -> bool:
        calls.append(cut.client.exists_async("/node"))  # the line finds by it that its other end is closed
        return KazooState.SUSPENDED in cut.states

    await until(suspended)
    for call in calls[:201]:
        with pytest.raises(ConnectionLoss):
            await asyncio.to_thread(call.get, timeout=60)


# ---------------------------------------------------------------- what others can take


def java_lists(zookeeper: ZooKeeper, path: str, *options: str) -> tuple[int, str]:
    """List a node as a broker would, with the Java client; return how many it listed, and what it said of errors."""
    jars = Path(pyspark.__file__).parent / "jars"
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", *options, "-cp", f"{jars}/*"]
    command += ["org.apache.zookeeper.ZooKeeperMain", "-server", zookeeper.hosts, "-timeout", "60000"]
    command += ["-waitforconnection", "ls", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.count("config_change_"), done.stderr


def test_a_java_client_lists_as_many_notifications_as_may_be_and_not_many_more(
    chroot: str, zookeeper: ZooKeeper
) -> None:
    most = next(rule.le for rule in ClusterSettings.model_fields["notifications_max"].metadata if hasattr(rule, "le"))
    more = PACKET // len("0000config_change_0000000000") + 1
    changes = "/config/changes"
    path = f"/{chroot.partition('/')[2]}{changes}"
    with connected(chroot) as zk:
        zk.ensure_path(changes)

        def grow(number: int) -> None:
            for start in range(len(zk.get_children(changes)), number, 1_000):
                multi = zk.transaction()
                for _ in range(start, min(start + 1_000, number)):
                    multi.create(f"{changes}/config_change_", sequence=True)
                assert [made for made in multi.commit() if isinstance(made, Exception)] == []

        grow(most)
        listed, said = java_lists(zookeeper, path)
        assert listed == most, said
        grow(more)
        listed, said = java_lists(zookeeper, path)
        assert listed == 0
        assert "ConnectionLoss" in said
        # It is the size of the answer.
        listed, said = java_lists(zookeeper, path, f"-Djute.maxbuffer={2 * PACKET}")
        assert listed == more, said
        assert len(zk.get_children(changes)) == more, "kazoo has no such limit"


def test_which_characters_no_path_can_have(raw_zk: KazooClient) -> None:
    bounds = [0x00, 0x01, 0x1F, 0x20, 0x7E, 0x7F, 0x9F, 0xA0, 0xD7FF, 0xE000, 0xF8FF, 0xF900, 0xFFEF, 0xFFF0, 0xFFFF]
    for code in [*bounds, 0x10000, 0x1F600, 0x10FFFF]:
        path = f"/a{chr(code)}b"
        if is_path(path):
            assert raw_zk.exists(raw_zk.create(path)) is not None
        else:
            with pytest.raises(BadArgumentsError):
                raw_zk.create(path)
            with pytest.raises(NoNodeError):
                raw_zk.get(path)
    # So it is not answered like any absent node.
    with pytest.raises(BadArgumentsError):
        raw_zk.exists("/a\0b")
    with pytest.raises(UnicodeEncodeError):
        Exists("/\ud800", None).serialize()
    assert not is_path("/\ud800")


def test_a_node_that_was_recreated_starts_again_at_version_0(raw_zk: KazooClient) -> None:
    """As `/controller` does where KRaft takes over by a delete and a create in one multi."""
    raw_zk.create("/controller")
    raw_zk.create("/controller_epoch", b"1")
    before = raw_zk.exists("/controller")
    multi = raw_zk.transaction()
    multi.delete("/controller")
    multi.create("/controller")
    multi.set_data("/controller_epoch", b"2")
    assert not [result for result in multi.commit() if isinstance(result, Exception)]
    after = raw_zk.exists("/controller")
    assert (before.version, after.version) == (0, 0)
    assert after.czxid > before.czxid
    assert raw_zk.exists("/controller_epoch").version == 1


async def test_a_sync_needs_no_quorum_and_a_write_does(tmp_path: Path) -> None:
    """So a strong read is a write: it is refused where a sync would have answered with what may be past."""
    ensemble = Ensemble(tmp_path, sync_limit=600)
    await asyncio.to_thread(ensemble.start)
    try:
        leader = await asyncio.to_thread(ensemble.leader)
        assert leader is not None
        host = ensemble.members[leader].hosts
        followers = [member.pid for index, member in enumerate(ensemble.members) if index != leader]
        with connected(host) as reader, connected(host) as writer:
            writer.create("/node")
            store = await opened(host, session_timeout_ms=60_000)
            try:
                for follower in followers:
                    os.kill(follower, signal.SIGSTOP)
                # A busy machine stops a process some time after the signal.
                await until(lambda: all(psutil.Process(each).status() == psutil.STATUS_STOPPED for each in followers))
                try:
                    reader.sync("/node")
                    assert reader.get("/node")[0] == b""
                    written = writer.set_async("/node", b"new")
                    with pytest.raises(UnavailableError):
                        await store.catch_up(soon(1))
                    assert not written.ready()
                finally:
                    for follower in followers:
                        os.kill(follower, signal.SIGCONT)
                await store.catch_up(soon(60))
                await until(written.ready)
            finally:
                await store.stop()
    finally:
        await asyncio.to_thread(ensemble.stop)
