"""The ACLs of what commits create, read back from a real ZooKeeper."""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.settings import SecureAclSettings, UnusableSettingsError
from confplane.store import ZooKeeperAccess
from tests.support.stores import ALICE, BILLING, acl_of, commit, committed, facets, soon, until, write
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from kazoo.security import ACL

    from confplane.store import ZooKeeperStore

    Opener = Callable[..., Awaitable[ZooKeeperStore]]

OWN, BROKERS = "confplane:own-secret", "kafka:brokers-secret"


def digest(credentials: str) -> str:
    """The digest id of a session with these credentials."""
    hashed = base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()  # noqa: S324 - ZooKeeper's
    return f"{credentials.partition(':')[0]}:{hashed}"


def rights(acls: list[ACL]) -> set[tuple[str, str, int]]:
    """An ACL's entries."""
    return {(each.id.scheme, each.id.id, each.perms) for each in acls}


OPEN = {("world", "anyone", 31)}
SENSITIVE = {("digest", digest(BROKERS), 31), ("digest", digest(OWN), 31)}
OTHERS = SENSITIVE | {("world", "anyone", 1)}


@pytest.fixture
def secure() -> ZooKeeperAccess:
    return ZooKeeperAccess(f"digest:{digest(BROKERS)}", OWN)


@pytest.fixture
def as_broker(chroot: str) -> Iterator[KazooClient]:
    """A client with the brokers' identity."""
    client = KazooClient(chroot, auth_data=[("digest", BROKERS)])
    client.start(PATIENCE_S)
    yield client
    client.stop()
    client.close()


async def write_everything(store: ZooKeeperStore) -> uuid.UUID:
    """Commit an entity of every kind, and a pair with its parents in both trees."""
    change_id = uuid.uuid4()
    await committed(
        store,
        write(BILLING, {"producer_byte_rate": "1"}),
        write(BILLING, {"acks": "1"}, tree=Tree.CLIENT_CONFIGS),
        write(Entity.of(broker="0"), {"k": "v"}),
        write(Entity.of(topic="orders"), {"k": "v"}),
        write(Entity.of(client_id="c"), {"producer_byte_rate": "1"}),
        write(Entity.of(ip="10.0.0.1"), {"connection_creation_rate": "1"}),
        change_id=change_id,
    )
    return change_id


def written(store: ZooKeeperStore, change_id: uuid.UUID) -> dict[str, set[tuple[str, str, int]]]:
    """The paths that were made, each with its ACL under the secure setting."""
    sensitive = [
        "/config/users",
        "/config/users/alice",
        "/config/users/alice/clients",
        "/config/users/alice/clients/billing",
        "/config/brokers",
        "/config/brokers/0",
        f"/confplane/commits/{change_id}",
        "/confplane/freeze",
    ]
    others = [
        "/",
        "/config",
        "/config/changes",
        "/config/changes/config_change_0000000000",
        "/config/changes/config_change_0000000004",
        "/config/topics",
        "/config/topics/orders",
        "/config/clients/c",
        "/config/ips/10.0.0.1",
        "/confplane",
        "/confplane/client-configs",
        "/confplane/client-configs/users/alice/clients/billing",
        "/confplane/commits",
        "/confplane/writers",
        f"/confplane/writers/{store.writer()}",
    ]
    return dict.fromkeys(sensitive, SENSITIVE) | dict.fromkeys(others, OTHERS)


async def test_open_is_open(open_store: Opener, raw_zk: KazooClient) -> None:
    store = await open_store(facets=facets(Tree.CLIENT_CONFIGS))
    change_id = await write_everything(store)
    for path in written(store, change_id):
        assert rights(raw_zk.get_acls(path)[0]) == OPEN, path


async def test_secure_names_the_brokers_and_this_service(
    open_store: Opener, chroot: str, secure: ZooKeeperAccess, as_broker: KazooClient
) -> None:
    # Its own chroot below that of the test, so that the chroot's node is made as well.
    store = await open_store(f"{chroot}/kafka", facets=facets(Tree.CLIENT_CONFIGS), access=secure)
    change_id = await write_everything(store)
    for path, acl in written(store, change_id).items():
        below = f"/kafka{path}".rstrip("/")
        assert rights(as_broker.get_acls(below)[0]) == acl, path
    # The brokers go on as if the nodes were theirs.
    as_broker.set("/kafka/config/users/alice", b'{"version":1,"config":{}}')
    as_broker.delete("/kafka/config/changes/config_change_0000000000")
    as_broker.delete("/kafka/config/topics/orders")


async def test_what_holds_secrets_is_read_by_nobody_else(
    open_store: Opener, raw_zk: KazooClient, secure: ZooKeeperAccess
) -> None:
    writes, change_id = (write(ALICE, {"k": "v"}), write(Entity.of(topic="t"), {"k": "v"})), uuid.uuid4()
    store = await open_store(access=secure)
    await committed(store, *writes, change_id=change_id)
    aborted = uuid.uuid4()
    assert await store.markers.settle(aborted, soon()) is not None
    markers = [f"/confplane/commits/{each}" for each in (change_id, aborted)]
    for path in ("/config/users/alice", "/config/users", "/confplane/freeze", *markers):
        with pytest.raises(NoAuthError):
            raw_zk.get(path)
    other = await open_store(access=secure)
    settled = [await other.markers.settle(each, soon()) for each in (change_id, aborted)]
    assert [marker is not None and marker.committed for marker in settled] == [True, False]
    assert raw_zk.get("/config/topics/t")[0] == b'{"version":1,"config":{"k":"v"}}'
    with pytest.raises(NoAuthError):
        raw_zk.set("/config/topics/t", b"")
    with pytest.raises(NoAuthError):
        raw_zk.create("/config/topics/other")
    with pytest.raises(NoAuthError):
        raw_zk.set("/confplane/freeze", b"")


async def test_another_process_and_a_later_session_have_the_same_rights(
    open_store: Opener, secure: ZooKeeperAccess
) -> None:
    one, other = await open_store(access=secure), await open_store(access=secure)
    await committed(one, write(ALICE, {"k": "1"}))
    await other.catch_up(soon())
    await committed(other, write(ALICE, {"k": "2"}, 0))
    first = one.writer()
    one._session_manager.replace(one._session_manager.current)
    await until(lambda: one.status().connected and one.writer() != first and one._guard.known)
    await committed(one, write(ALICE, {"k": "3"}, 1))
    assert await one.read(Tree.CONFIG, ALICE, soon()) is not None


async def test_nodes_that_are_there_keep_their_acl(
    open_store: Opener, raw_zk: KazooClient, secure: ZooKeeperAccess
) -> None:
    raw_zk.create("/config/users/alice", b'{"version":1,"config":{}}', makepath=True)
    await committed(await open_store(access=secure), write(ALICE, {"k": "v"}, 0))
    assert rights(raw_zk.get_acls("/config/users/alice")[0]) == OPEN


async def test_identity_that_zookeeper_does_not_know_is_reported(open_store: Opener, raw_zk: KazooClient) -> None:
    raw_zk.ensure_path("/confplane/commits")
    store = await open_store()
    store._session_manager.current.access = ZooKeeperAccess("x509:CN=broker", OWN)
    with pytest.raises(UnavailableError, match="InvalidACLError at the config operation") as refusal:
        await commit(store, write(ALICE, {}))
    assert refusal.value.outcome == "not_applied"
    assert raw_zk.exists("/config/users/alice") is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "can't be read: No such file or directory"),
        (b"", "one line of the form"),
        (b"no-colon-hush", "one line of the form"),
        (b"user:", "one line of the form"),
        (b":hush", "one line of the form"),
        (b"user:hush\nmore:hush", "one line of the form"),
        (b"user:hush\xff", "is not a text file in UTF-8"),
    ],
)
def test_credentials_that_cannot_be_used_are_reported_without_them(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "credentials"
    if content is not None:
        path.write_bytes(content)
    settings = SecureAclSettings(identity="sasl:kafka", credentials_file=path)
    with pytest.raises(UnusableSettingsError, match=problem) as refusal:
        ZooKeeperAccess.from_settings("clusters.c.zookeeper_acl", settings)
    assert str(refusal.value).startswith(f"clusters.c.zookeeper_acl.credentials_file: {path} ")
    assert "hush" not in str(refusal.value)
    assert not isinstance(refusal.value.__context__, UnicodeDecodeError)


def test_credentials_may_hold_colons_and_end_in_a_line_break(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("user:pass:word\n")
    access = ZooKeeperAccess.from_settings("s", SecureAclSettings(identity="sasl:kafka", credentials_file=path))
    assert access.auth == [("digest", "user:pass:word")]
    assert "pass:word" not in repr(access)
    assert rights(acl_of(access, "/config/users")) == {("sasl", "kafka", 31), ("auth", "", 31)}
    assert rights(acl_of(access, "/config/brokers-of-old")) == rights(acl_of(access, "/config/users/x"))
    assert rights(acl_of(access, "/config/changes/x")) == {
        ("sasl", "kafka", 31),
        ("auth", "", 31),
        ("world", "anyone", 1),
    }


def test_open_needs_no_credentials() -> None:
    assert ZooKeeperAccess.from_settings("s", "open").auth == []
