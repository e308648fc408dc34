"""Notifications of all times: version 2, version 1, and the bare topic name from before KIP-21."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.facets import Tree
from confplane.store import znodes
from confplane.store.session.session import Session
from tests.support.stores import Late, pass_millisecond, soon, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kazoo.client import KazooClient

    from confplane.store import ZooKeeperStore
    from confplane.store.session.asyncio_adapter import Reply

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

TOPIC = b'{"version":1,"config":{"retention.ms":"%d"}}'
FORMS = {
    "version 2": b'{"version":2,"entity_path":"topics/x"}',
    "version 1": b'{"version":1,"entity_type":"topics","entity_name":"x"}',
    "before KIP-21": b'"x"',
}


def notify(zk: KazooClient, data: bytes) -> int:
    """Leave a notification, and return its revision."""
    path = zk.create("/config/changes/config_change_", data, sequence=True)
    found: int = zk.exists(path).czxid
    return found


def retention(store: ZooKeeperStore) -> str | None:
    node = store.get(Tree.CONFIG, "topic=x")
    return None if node is None else node.config.get("retention.ms")


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
async def test_each_form_leads_to_its_topic(store: ZooKeeperStore, raw_zk: KazooClient, data: bytes) -> None:
    raw_zk.create("/config/topics/x", TOPIC % 1)
    await until(lambda: retention(store) == "1")
    raw_zk.set("/config/topics/x", TOPIC % 2)
    await store.wait_for(notify(raw_zk, data), soon())
    assert retention(store) == "2"


async def test_those_older_than_15_minutes_are_deleted_unread_whatever_their_form(
    open_store: Opener, raw_zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_zk.ensure_path("/config/changes")
    raw_zk.create("/brokers/ids/0", b"{}", makepath=True)
    for data in (*FORMS.values(), b"junk", b""):
        notify(raw_zk, data)
    pass_millisecond(raw_zk)
    read: list[str] = []
    get, read_many = Session.get, Session.read

    def recorded(self: Session, path: str, *more: Any) -> Reply:
        read.append(path)
        return get(self, path, *more)

    def many_recorded(self: Session, kind: int, paths: Sequence[str], *more: Any) -> Reply:
        read.extend(paths)
        return read_many(self, kind, paths, *more)

    monkeypatch.setattr(Session, "get", recorded)
    monkeypatch.setattr(Session, "read", many_recorded)
    store = await open_store()
    young = raw_zk.create("/config/changes/config_change_", FORMS["version 1"], sequence=True)
    await store.catch_up(soon())
    late = Late(store._session_manager.current, raw_zk.exists(young).ctime + 15 * 60 * 1000)
    assert await store._purger.purge(cast("Session", late)) == 5
    assert raw_zk.get_children("/config/changes") == [young.rpartition("/")[2]]
    assert young in read
    assert not {znodes.change_path(number) for number in range(5)} & set(read)
    assert store.status().warnings == ()
