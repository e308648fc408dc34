"""Short ways to open a store, to write through it, and to write to ZooKeeper directly."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import int_struct, read_acl

from confplane.domain.entities import Entity
from confplane.domain.facets import Tree, full_path
from confplane.services.ports.trail import Intent
from confplane.services.ports.transactions import (
    CommitResult,
    Committed,
    EntityWrite,
    Guarded,
    Transaction,
    Write,
)
from confplane.store import FacetIndex, ZooKeeperStore
from confplane.store.session.session import acl_of as bytes_of_acl
from tests.support import waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from kazoo.client import KazooClient
    from kazoo.security import ACL

    from confplane.store.session.access import ZooKeeperAccess
    from confplane.store.session.session import Session

QUOTA_KEYS = {"producer_byte_rate", "consumer_byte_rate", "request_percentage"}
CONFIG_KEYS = {"acks", "session.timeout.ms"}


def facets(tree: Tree = Tree.CONFIG) -> dict[str, FacetIndex]:
    """The two facets of client entities; ``tree`` is the tree of client configs."""
    return {
        "client-quotas": FacetIndex(
            Tree.CONFIG,
            owns=lambda entity, key: entity.types[0].plural in {"users", "clients"} and key in QUOTA_KEYS,
            covers=lambda entity: entity.types[0].plural in {"users", "clients"},
        ),
        "client-configs": FacetIndex(
            tree,
            owns=lambda entity, key: entity.types[0].plural == "users" and key in CONFIG_KEYS,
            covers=lambda entity: entity.types[0].plural == "users",
        ),
    }


def soon(seconds: float = 30.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


until = waiting.until
"""Alias for tests of the stores."""


def acl_of(access: ZooKeeperAccess, path: str) -> list[ACL]:
    """The ACL of a new node, read from the bytes of a request."""
    data, found = bytes_of_acl(access.acls, path), []
    (count,), offset = int_struct.unpack_from(data), int_struct.size
    for _ in range(count):
        acl, offset = read_acl(data, offset)
        found.append(acl._replace(id=acl.id._replace(id=acl.id.id or "")))  # an empty name is sent as null
    assert offset == len(data)
    return found


def write(entity: Entity, config: dict[str, str], expected: int | None = None, **more: Any) -> EntityWrite:
    """A write to the tree that Kafka reads."""
    tree = more.pop("tree", Tree.CONFIG)
    return EntityWrite(full_path(tree, entity), tree, entity, expected, config, **more)


def intent(
    writer: str, change_id: UUID, *, attempt: int = 1, principal: str = "User:test", request_id: str = "request-1"
) -> Intent:
    """The intent of a change as far as its transaction needs it."""
    return Intent(change_id, attempt, "default", writer, principal, "127.0.0.1", request_id, None, None, ())


def transaction(store: ZooKeeperStore, *writes: Write, **more: Any) -> Transaction:
    """A first attempt under the current session."""
    writer = more.get("writer") or store.writer()
    given = {name: more[name] for name in ("attempt", "principal") if name in more}
    change = intent(writer, more.get("change_id") or uuid.uuid4(), **given)
    return Transaction(writer, (change,), (writes,), guarded=more.get("guarded", Guarded.CALLER))


async def commit(store: ZooKeeperStore, *writes: Write, **more: Any) -> CommitResult:
    """Commit writes as one transaction."""
    return await store.commit(transaction(store, *writes, **more), soon())


async def committed(store: ZooKeeperStore, *writes: Write, **more: Any) -> Committed:
    """Commit writes, which must succeed."""
    result = await commit(store, *writes, **more)
    assert isinstance(result, Committed), result
    return result


def content(**config: str) -> bytes:
    """The content of an entity's znode."""
    pairs = ",".join(f'"{key}":"{value}"' for key, value in config.items())
    return f'{{"version":1,"config":{{{pairs}}}}}'.encode()


def rate(value: int | str) -> bytes:
    """The content of a znode with this producer rate."""
    return content(producer_byte_rate=str(value))


def kafka_writes(zk: KazooClient, path: str, data: bytes) -> str:
    """Write an entity like a broker does: the node, then the notification. Returns the notification's path."""
    if zk.exists(f"/config/{path}"):
        zk.set(f"/config/{path}", data)
    else:
        zk.create(f"/config/{path}", data, makepath=True)
    return notify(zk, path)


def notify(zk: KazooClient, path: str) -> str:
    """Write a notification like a broker does."""
    data = b'{"version":2,"entity_path":"' + path.encode() + b'"}'
    return str(zk.create("/config/changes/config_change_", data, sequence=True, makepath=True))


def pass_millisecond(zk: KazooClient) -> None:
    """Let ZooKeeper's clock, which has milliseconds, pass the time of every node that there is."""
    zk.ensure_path("/clock")
    now = zk.set("/clock", b"").mtime
    waiting.wait_for(lambda: zk.set("/clock", b"").mtime > now, pause_s=0.001)


def skip_notification(zk: KazooClient) -> None:
    """Use up the number of a notification, so that mirrors load again."""
    multi = zk.transaction()
    multi.create("/config/changes/stray")
    multi.delete("/config/changes/stray")
    multi.commit()


@contextlib.asynccontextmanager
async def mirror_paused(store: ZooKeeperStore) -> AsyncIterator[None]:
    """Pause the mirror: it reads nothing within the block. The store's own commits continue."""
    follower: Any = store._follower
    run_once, held, going_on = follower.run_once, asyncio.Event(), asyncio.Event()

    async def later(session: Session) -> None:
        held.set()
        await going_on.wait()
        await run_once(session)

    follower.run_once = later
    async with asyncio.timeout(60):
        await held.wait()
    try:
        yield
    finally:
        follower.run_once = run_once
        going_on.set()


async def opened(connect: str, **more: Any) -> ZooKeeperStore:
    """Start a store and wait until it follows."""
    ready = more.pop("ready", True)
    store = ZooKeeperStore(
        "default",
        connect=connect,
        session_timeout_ms=more.pop("session_timeout_ms", 4_000),
        max_packet=more.pop("max_packet", 900_000),
        notifications_max=more.pop("notifications_max", 1_000),
        jute_maxbuffer=more.pop("jute_maxbuffer", 0xFFFFF),
        facets=more.pop("facets", None) or facets(),
        **more,
    )
    store.start()
    if ready:
        await until(lambda: store.status().loaded and store.status().stale_ms is None and store._guard.known)
    return store


class Late:
    """A session whose clock shows another time."""

    def __init__(self, session: Session, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def touch(self) -> Any:
        stat = await self._session.touch()
        return stat._replace(mtime=self._now_ms)


ALICE = Entity.of(user="alice")
BILLING = Entity.of(user="alice", client_id="billing")
