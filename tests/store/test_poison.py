"""Unreadable data that others leave in ZooKeeper, and data that may never be sent there: nothing stops for either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Exists
from kazoo.security import make_acl

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree
from confplane.services.ports.store import SessionState
from tests.support.alerts import PartAlerts
from tests.support.metrics import value_of
from tests.support.stores import ALICE, Late, committed, kafka_writes, mirror_paused, notify, soon, until, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore
    from confplane.store.session.session import Session

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

ONE = b'{"version":1,"config":{"producer_byte_rate":"1"}}'


def entity_path(path: str) -> bytes:
    return b'{"version":2,"entity_path":"%s"}' % path.encode()


POISON = {
    "a lone surrogate": entity_path(r"users/\ud800"),
    "half of a pair in the name of a client": entity_path(r"users/a/clients/\udc00x"),
    "a pair": entity_path(r"users/\ud83d\ude00"),
    "NUL": entity_path(r"users/a\u0000"),
    "NUL in the name of a user with a client": entity_path(r"users/a\u0000/clients/b"),
    "control characters": entity_path(r"users/\u0001\u001f\u007f\u009f"),
    "private use": entity_path(r"users/\ue000"),
    "the end of the plane": entity_path(r"topics/\uffff"),
    "the directory itself": entity_path("users/."),
    "the directory above": entity_path("users/../changes"),
    "two slashes": entity_path("users//a"),
    "a slash at the end": entity_path("users/"),
    "a slash before": entity_path("/users/a"),
    "no name": entity_path("users"),
    "a folder": entity_path("users/a/clients"),
    "below a folder": entity_path("topics/a/b"),
    "nothing": entity_path(""),
    "another kind": entity_path("changes/config_change_0000000000"),
    "empty": b"",
    "no JSON": b"junk",
    "no UTF-8": b"\xff\xfe",
    "nested too deeply": b"[" * 100_000,
    "a number of too many digits": b'{"version":' + b"2" * 10_000 + b',"entity_path":"users/a"}',
    "a text": b'"users/../a"',
    "a list": b"[]",
    "null": b"null",
    "version 0": b'{"version":0,"entity_path":"users/a"}',
    "version 3": b'{"version":3,"entity_path":"users/a"}',
    "a version that is a text": b'{"version":"2","entity_path":"users/a"}',
    "a path that is a number": b'{"version":2,"entity_path":7}',
    "a path that is a list": b'{"version":2,"entity_path":["users/a"]}',
    "no path": b'{"version":2}',
    "version 1, a name that leads elsewhere": b'{"version":1,"entity_type":"topics","entity_name":"../users/a"}',
    "version 1, a surrogate": rb'{"version":1,"entity_type":"clients","entity_name":"\ud800"}',
    "version 1, a type that is a list": b'{"version":1,"entity_type":["topics"],"entity_name":"a"}',
}
"""Notifications that name nothing."""

ODD = {
    "a percent sign alone": entity_path("users/%"),
    "percent and no digits": entity_path("users/%zz"),
    "no UTF-8 in percent": entity_path("users/%ff"),
    "a plus": entity_path("users/a+b"),
    "not encoded": entity_path("users/é b"),
    "long": entity_path("users/" + "x" * 900_000),
    "half of what ZooKeeper takes, not encoded": entity_path("users/" + "é" * 450_000),
    "a broker that is none": entity_path("brokers/x"),
}
"""Notifications of znodes that can be there, and of no entity that Kafka would name so."""


def poison(zk: KazooClient, data: bytes) -> str:
    return str(zk.create("/config/changes/config_change_", data, sequence=True, makepath=True))


async def test_a_notification_that_names_no_entity_stops_nothing(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    writer, mirror = store.writer(), store._follower.mirror
    left = {}
    for number, (name, data) in enumerate((POISON | ODD).items()):
        path = left[name] = poison(raw_zk, data)
        stat = raw_zk.exists(path)
        # Its number and its zxid count as read.
        await store.wait_for(stat.czxid, soon())
        assert await store.catch_up(soon()) >= stat.czxid, name
        await committed(store, write(Entity.of(user=f"ours{number}"), {}))
        after = kafka_writes(raw_zk, f"users/theirs{number}", ONE)
        await store.wait_for(raw_zk.exists(after).czxid, soon())
        assert store.get(Tree.CONFIG, f"user=theirs{number}") is not None, name
        assert (store.writer(), store._follower.mirror, store._follower.trouble) == (writer, mirror, None), name
        [told] = map(str, store.status().warnings)
        named = len(store._follower.anomalies.nameless)
        assert named == len(left.keys() & POISON.keys()), name
    assert left["a lone surrogate"].rpartition("/")[2] in told
    limit = raw_zk.exists(left["a broker that is none"]).ctime + 15 * 60 * 1000
    session = store._session_manager.current
    await store._purger.purge(cast("Session", Late(session, limit)))
    assert raw_zk.exists(left["a broker that is none"]) is not None
    await store._purger.purge(cast("Session", Late(session, limit + 60_000)))
    assert raw_zk.get_children("/config/changes") == []
    await store._purger.purge(session)
    assert store.status().warnings == ()


async def test_they_are_no_longer_named_once_they_are_gone(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    store._follower.anomalies.relist_s = 0.0
    nameless = poison(raw_zk, b"junk")
    raw_zk.create("/config/changes/stray")
    await until(lambda: store._follower.anomalies.strays)
    nameless_too = poison(raw_zk, b"junk")
    await until(lambda: store._follower.anomalies.nameless)
    assert "'stray'" in " ".join(map(str, store.status().warnings))
    assert value_of(store, "stray_notifications") == 1
    await until(lambda: value_of(store, "nameless_notifications") == 2)
    raw_zk.delete("/config/changes/stray")
    raw_zk.delete(nameless_too)
    raw_zk.delete(nameless)
    # The purge would find it as well, a minute later.
    await until(lambda: store.status().warnings == (), seconds=20)


async def test_a_notification_that_may_not_be_read_is_a_gap(store: ZooKeeperStore, raw_zk: KazooClient) -> None:
    raw_zk.create("/config/users/alice", ONE)
    acl = [make_acl("digest", "other:x", all=True)]
    raw_zk.create("/config/changes/config_change_", entity_path("users/alice"), sequence=True, acl=acl)
    await until(lambda: store._follower.loads == 2)
    await store.catch_up(soon())
    assert store.get(Tree.CONFIG, ALICE.id) is not None
    assert store._follower.loads == 2


async def test_znodes_whose_names_can_not_be_decoded_are_named_and_stop_nothing(
    open_store: Opener, raw_zk: KazooClient
) -> None:
    odd = ["users/%", "users/%zz", "users/%ff", "users/a+b", "users/é ñ", "users/%c3", "clients/\ud7ff", "ips/%"]
    odd += ["brokers/x", "topics/a b", "users/alice/clients/%zz", "users/%ff/clients/%ff", f"users/{'é' * 100_000}"]
    for path in odd:
        raw_zk.create(f"/config/{path}", ONE, makepath=True)
    store = await open_store()
    assert set(store._follower.loaded().trees[Tree.CONFIG].nodes) == {"user=alice"}
    assert set(store._follower.loaded().unaddressed) == {f"/config/{path}" for path in odd}
    assert "%zz" in " ".join(map(str, store.status().warnings))
    for path in odd:
        raw_zk.set(f"/config/{path}", ONE)
        last = notify(raw_zk, path)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    for path in reversed(odd):
        raw_zk.delete(f"/config/{path}", recursive=True)
        last = notify(raw_zk, path)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    assert store._follower.loaded().unaddressed == {}
    assert store.status().warnings == ()


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "..", ".", "", "a//b", "\U0001f600", "\x1f"])
async def test_a_path_that_no_znode_can_have_is_never_sent(store: ZooKeeperStore, name: str) -> None:
    session, path = store._session_manager.current, f"/config/users/{name}"
    calls: list[Callable[[], Any]] = [
        lambda: session.get(path),
        lambda: session.exists(path),
        lambda: session.children(path),
        lambda: session.delete(path),
        lambda: session.create(path),
        *(
            lambda operation=operation: session.multi([operation])
            for operation in (
                ("set", path, b"", 0),
                ("check", path, 0),
                ("create", path, b""),
                ("sequence", path, b""),
                ("ephemeral", path, b""),
                ("delete", path),
            )
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="No znode"):
            call()
    await committed(store, write(ALICE, {}))
    assert store._session_manager.current is session


# ---------------------------------------------------------------- kazoo's thread


def kill_thread(store: ZooKeeperStore) -> None:
    """Hand kazoo what it can't encode, past all checks."""
    client = store._session_manager.current._client
    client._call(Exists("/\ud800", None), client.handler.async_result())


async def test_a_thread_that_ends_is_reported_and_its_session_replaced(
    store: ZooKeeperStore, raw_zk: KazooClient
) -> None:
    writer = store.writer()
    lost = store._session_manager.entered[SessionState.LOST]
    alerts = PartAlerts(store)
    kill_thread(store)
    await until(lambda: store._session_manager.entered[SessionState.LOST] > lost)
    await until(lambda: store.status().connected and store.writer() != writer)
    [told] = map(str, store.status().warnings)
    assert "UnicodeEncodeError" in told
    assert "ud800" not in told
    assert "SessionFailures" in alerts.scrape()
    last = kafka_writes(raw_zk, "users/alice", ONE)
    await store.wait_for(raw_zk.exists(last).czxid, soon())
    await committed(store, write(ALICE, {}, 0))


async def test_a_thread_that_ends_before_it_was_ever_connected_is_noticed(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, begun = SequentialThreadingHandler.create_connection, []

    def broken(self: SequentialThreadingHandler, *arguments: Any, **options: Any) -> Any:
        begun.append(1)
        if len(begun) < 3:
            raise RuntimeError("planted")
        return connect(self, *arguments, **options)

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", broken)
    store = await open_store()
    assert store._session_manager.failures == 2
    assert "RuntimeError" in " ".join(map(str, store.status().warnings))
    await committed(store, write(ALICE, {}))


async def test_a_session_that_can_not_even_be_begun_is_begun_again(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, begun = ConnectionHandler.start, []

    def broken(self: ConnectionHandler) -> None:
        begun.append(1)
        if len(begun) < 3:
            raise OSError(24, "Too many open files")
        start(self)

    monkeypatch.setattr(ConnectionHandler, "start", broken)
    store = await open_store()
    assert store._session_manager.failures == 2
    await committed(store, write(ALICE, {}))


async def test_a_reply_that_can_not_be_read_is_an_error_of_its_call_alone(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "planted")

    session = store._session_manager.current
    async with mirror_paused(store):
        monkeypatch.setattr(Exists, "deserialize", broken)
        reply = session.exists("/config")
        with pytest.raises(Exception, match="planted") as caught:
            await reply
        monkeypatch.undo()
    assert type(caught.value).__name__ == "MarshallingError"
    assert (await session.exists("/config")) is not None
    assert store._session_manager.current is session
