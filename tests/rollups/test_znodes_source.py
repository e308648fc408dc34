"""Spark's reading of ZooKeeper: the znodes that kazoo shows, without secrets, each once, however they are partitioned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.security import make_digest_acl
from pydantic import SecretStr
from pyspark.sql.types import StructType

from confplane.crypto.password_encoder import PasswordEncoder
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import Tree
from confplane.domain.releases import ON_ZOOKEEPER, newest
from confplane.rollups import schemas
from confplane.rollups.origin import Origin
from confplane.rollups.source_binding import bind_values
from confplane.rollups.sources import znodes as source
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.observation_report import ObservationReport
from confplane.settings import ClusterSettings, UnusableSettingsError
from confplane.store import scan
from confplane.store.mirror import loader
from confplane.store.session.session import unavailable
from confplane.store.znodes import encode_target
from tests.support.planted import Planted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ENCODER_SECRET = "the encoder's secret"
SEPARATE = Tree.CLIENT_CONFIGS.value


def entity(config: str) -> bytes:
    return b'{"version":1,"config":' + config.encode() + b"}"


class Cluster:
    """Znodes of every kind, and what their rows are."""

    def __init__(self, zk: KazooClient, connect: str, directory: Path) -> None:
        self.zk = zk
        self.secret = Planted()
        self.rows: dict[str, dict[str, Any]] = {}
        key = directory / "encoder-secret"
        key.write_text(ENCODER_SECRET)
        self.settings = ClusterSettings.model_validate(
            {
                "zookeeper": connect,
                "password_encoder": {"secret_file": str(key)},
                "dynamic_client_configs": ["linger.ms"],
            }
        )
        self.origin = Origin("default", self.settings, SecretStr("postgresql://nobody@127.0.0.1:1/none"))

    def add(self, path: str, data: bytes | None, entity_id: str | None, **more: Any) -> None:
        """Create a node, and note what its row has."""
        acl = more.pop("acl", None)
        self.zk.create(path, data, acl=acl, makepath=True)
        for _ in range(more.pop("writes", 0)):
            self.zk.set(path, data)
        self.note(path, entity_id, **more)

    def note(self, path: str, entity_id: str | None, **more: Any) -> None:
        tree = SEPARATE if path.startswith(SEPARATE) else Tree.CONFIG.value
        given: dict[str, Any] = {
            "tree": tree,
            "path": path,
            "entity_id": entity_id,
            "config": {},
            "fingerprints": {},
            "defect": None,
        }
        self.rows[path] = {**given, "undecodable": False, "forbidden": False, **more}

    def expected(self) -> list[dict[str, Any]]:
        """The rows, with the Stats that kazoo shows."""
        rows = []
        for path, row in self.rows.items():
            stat = None if row["forbidden"] else self.zk.get(path)[1]
            rows.append(
                {
                    **row,
                    "version": -1 if stat is None else stat.version,
                    "czxid": -1 if stat is None else stat.czxid,
                    "mzxid": -1 if stat is None else stat.mzxid,
                    "mtime": EPOCH + timedelta(milliseconds=0 if stat is None else stat.mtime),
                }
            )
        return sorted(rows, key=lambda row: row["path"])


@pytest.fixture
def cluster(raw_zk: KazooClient, chroot: str, tmp_path: Path) -> Cluster:
    """A cluster with one of each."""
    made = Cluster(raw_zk, chroot, tmp_path)
    quota, secret = '{"producer_byte_rate":"1024"}', made.secret
    made.add("/config/users/alice", entity(quota), "user=alice", config={"producer_byte_rate": "1024"}, writes=3)
    made.add(
        "/config/users/alice/clients/billing",
        entity('{"acks":"all","linger.ms":"5","request_percentage":"1.5","x":"y"}'),
        "user=alice,client-id=billing",
        config={"acks": "all", "linger.ms": "5", "request_percentage": "1.5", "x": None},
    )
    made.add("/config/users/alice/clients/<default>", entity("{}"), "user=alice,client-id")
    made.add(
        "/config/users/CN%3Da%20b%2C%C3%A9",
        entity(quota),
        "user=CN~3Da~20b~2C~C3~A9",
        config={"producer_byte_rate": "1024"},
    )
    made.add("/config/users/<default>", entity(quota), "user", config={"producer_byte_rate": "1024"})
    # A parent without data: kazoo makes it.
    made.add("/config/users/bob/clients/c", b"", "user=bob,client-id=c")
    made.note("/config/users/bob", "user=bob")
    scram = f'{{"SCRAM-SHA-512":"salt=x,stored_key={secret("a SCRAM credential")}"}}'
    made.add("/config/users/carol", entity(scram), "user=carol", config={"SCRAM-SHA-512": None})
    made.add("/config/clients/c", entity(quota), "client-id=c", config={"producer_byte_rate": "1024"})
    made.add(
        "/config/ips/10.0.0.1",
        entity('{"connection_creation_rate":"7"}'),
        "ip=10.0.0.1",
        config={"connection_creation_rate": "7"},
    )
    made.add(
        "/config/topics/orders",
        entity(f'{{"retention.ms":"5","unknown":"{secret("what nobody knows")}"}}'),
        "topic=orders",
        config={"retention.ms": "5", "unknown": None},
    )
    password = secret("a password")
    stored = PasswordEncoder(ENCODER_SECRET).encode(password)
    secret.stored(stored)
    made.add(
        "/config/brokers/0",
        entity(f'{{"ssl.key.password":"{stored}","num.io.threads":"9","plug.in":"{secret("of a plug-in")}"}}'),
        "broker=0",
        config={"ssl.key.password": None, "num.io.threads": "9", "plug.in": None},
        fingerprints={"ssl.key.password": ..., "plug.in": ...},
    )
    made.add(
        "/config/brokers/<default>",
        entity(f'{{"ssl.key.password":"{stored}"}}'),
        "broker",
        config={"ssl.key.password": None},
        fingerprints={"ssl.key.password": None},
    )
    made.add(
        "/config/users/broken", secret("no JSON").encode(), "user=broken", undecodable=True, defect="does not hold JSON"
    )
    made.add(
        "/config/users/trailing", entity(quota) + b" x", "user=trailing", config={"producer_byte_rate": "1024"},
        defect="holds more bytes behind its JSON",
    )  # fmt: skip
    made.add("/config/users/a b", entity(f'{{"k":"{secret("of a name that is none")}"}}'), None, config={"k": None})
    made.add(
        "/config/users/nul",
        entity('{"a\\u0000":"1","producer_byte_rate":"1\\u0000"}'),
        "user=nul",
        config={"a\ufffd": None, "producer_byte_rate": None},
    )
    made.add(
        "/config/users/hidden", entity(f'{{"k":"{secret("forbidden")}"}}'), "user=hidden", forbidden=True,
        acl=[make_digest_acl("somebody", "else", all=True)],
    )  # fmt: skip
    made.add(
        f"{SEPARATE}/users/alice",
        entity('{"acks":"1","producer_byte_rate":"2"}'),
        "user=alice",
        config={"acks": "1", "producer_byte_rate": None},
    )
    made.add(
        f"{SEPARATE}/users/<default>/clients/<default>", entity('{"acks":"0"}'), "user,client-id", config={"acks": "0"}
    )
    made.note(f"{SEPARATE}/users/<default>", "user")
    raw_zk.create("/config/users/gone", entity(quota))
    raw_zk.delete("/config/users/gone")
    raw_zk.create("/config/users/again", b"")
    raw_zk.delete("/config/users/again")
    made.add("/config/users/again", entity(quota), "user=again", config={"producer_byte_rate": "1024"})
    return made


def reader_of(
    cluster: Cluster,
    *,
    floor: int = 0,
    parallelism: int = 1,
    columns: Any = None,
    release: str = ON_ZOOKEEPER,
    fingerprinted_as: str | None = None,
) -> Any:
    schema = StructType([schemas.ZNODES[name] for name in columns or schemas.ZNODES.names])
    carried = bind_values(source.ZnodesSource, origin=cluster.origin)
    options = source.znodes_options(floor, parallelism, release, fingerprinted_as or cluster.origin.name)
    return carried(options).reader(schema)


def rows_of(reader: Any) -> Iterator[dict[str, Any]]:
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                yield {
                    name: dict(value) if name in {"config", "fingerprints"} else value for name, value in row.items()
                }


def read_all(reader: Any) -> list[dict[str, Any]]:
    return sorted(rows_of(reader), key=lambda row: row["path"])


def test_the_release_of_an_observed_cluster_determines_which_values_are_reported(
    raw_zk: KazooClient, cluster: Cluster
) -> None:
    scanner = scan.Scanner.of("default", cluster.settings)
    assert scanner.release() == (ON_ZOOKEEPER, True)
    raw_zk.create("/confplane/target", encode_target(Target("5L6g3nShT-eMCtK--X86sw")), makepath=True)
    assert scanner.release() == (newest(), False)
    raw_zk.create("/confplane/observation", ObservationReport(1, "writer", release=ON_ZOOKEEPER).encode())
    assert scanner.release() == (ON_ZOOKEEPER, False)
    raw_zk.set("/confplane/observation", ObservationReport(1, "writer", release="4.1").encode())
    assert scanner.release() == ("4.1", False)
    raw_zk.create("/config/groups/g", entity('{"consumer.session.timeout.ms":"45000"}'), makepath=True)
    told = {
        release: [
            row["config"] for row in read_all(reader_of(cluster, release=release)) if row["entity_id"] == "group=g"
        ]
        for release in (ON_ZOOKEEPER, "4.1")
    }
    assert told == {
        ON_ZOOKEEPER: [{"consumer.session.timeout.ms": None}],
        "4.1": [{"consumer.session.timeout.ms": "45000"}],
    }


def test_rows_are_what_kazoo_shows_but_for_secrets(cluster: Cluster) -> None:
    found = read_all(reader_of(cluster))
    told = {path: row.pop("fingerprints") for row in found for path in [row["path"]]}
    wanted = cluster.expected()
    named = {row["path"]: row.pop("fingerprints") for row in wanted}
    assert found == wanted
    assert {path: dict.fromkeys(each) for path, each in told.items()} == {
        path: dict.fromkeys(each) for path, each in named.items()
    }
    for path, each in named.items():
        for key, fingerprint in each.items():
            assert (told[path][key] is None) == (fingerprint is None), (path, key)
    assert told["/config/brokers/0"]["ssl.key.password"] != told["/config/brokers/0"]["plug.in"]
    assert cluster.secret.found_in(f"{found} {told}") == []


def test_a_fingerprint_outlives_an_encoding_and_not_a_password(cluster: Cluster) -> None:
    def fingerprint(password: str) -> str:
        stored = PasswordEncoder(ENCODER_SECRET).encode(password)
        cluster.zk.set("/config/brokers/0", entity(f'{{"ssl.key.password":"{stored}"}}'))
        columns = ("fingerprints", "path")
        [found] = [row for row in rows_of(reader_of(cluster, columns=columns)) if row["path"] == "/config/brokers/0"]
        return str(found["fingerprints"]["ssl.key.password"])

    assert len(fingerprint("one")) == 16
    assert fingerprint("one") == fingerprint("one") != fingerprint("two")


def test_the_encoders_secret_is_read_only_where_fingerprints_are_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "encoder-secret").unlink()
    columns = [name for name in schemas.ZNODES.names if name != "fingerprints"]
    assert len(read_all(reader_of(cluster, columns=columns))) == len(cluster.rows)
    with pytest.raises(UnusableSettingsError, match=r"clusters\.default\.password_encoder\.secret_file"):
        read_all(reader_of(cluster))


@pytest.mark.parametrize("parallelism", [2, 3, 100])
def test_however_it_is_parted_each_znode_is_read_once(
    cluster: Cluster, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "FEWEST_ENTITIES", 1)
    reader = reader_of(cluster, parallelism=parallelism, columns=("path", "entity_id"))
    assert len(reader.partitions()) == min(
        parallelism, sum("users" not in path or "/clients/" not in path for path in cluster.rows)
    )
    assert [row["path"] for row in read_all(reader)] == sorted(cluster.rows)


def test_parts_are_even() -> None:
    names = {
        (Tree.CONFIG, "users"): [f"u{n}" for n in range(45_000)],
        (Tree.CLIENT_CONFIGS, "users"): ["a", "b"],
        (Tree.CONFIG, "ips"): [],
    }
    parts = source.split_paths(names, 2)
    assert [sum(len(paths) for _, paths in part) for part in parts] == [22_501, 22_501]
    assert [path for part in parts for _, paths in part for path in paths] == [f"users/u{n}" for n in range(45_000)] + [
        "users/a",
        "users/b",
    ]
    assert source.split_paths({}, 8) == [[]]


def test_nothing_is_there_of_an_empty_cluster_and_nothing_is_made(
    raw_zk: KazooClient, chroot: str, tmp_path: Path
) -> None:
    empty = Cluster(raw_zk, chroot, tmp_path)
    assert read_all(reader_of(empty)) == []
    assert raw_zk.get_children("/") == []
    assert raw_zk.get("/")[1].pzxid == raw_zk.get("/")[1].czxid


def test_reading_leaves_the_cluster_as_it_is(cluster: Cluster) -> None:
    def everything(path: str = "/") -> list[tuple[str, int, int]]:
        stat = cluster.zk.exists(path)
        below = [name for name in cluster.zk.get_children(path) if name != "hidden"]
        return [
            (path, stat.mzxid, stat.cversion),
            *(each for name in below for each in everything(f"{path.rstrip('/')}/{name}")),
        ]

    before = everything()
    read_all(reader_of(cluster))
    scan.Scanner.of("default", cluster.settings).revision()
    assert everything() == before


def test_a_revision_is_of_no_earlier_than_it_was_asked_for(cluster: Cluster) -> None:
    scanner = scan.Scanner.of("default", cluster.settings)
    for _ in range(3):
        written = cluster.zk.set("/config/users/alice", b"{}").mzxid
        floor = scanner.revision()
        assert written <= floor < cluster.zk.set("/config/users/alice", b"{}").mzxid


def test_a_lagging_server_is_not_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_CONNECT_SECONDS", 2.0)
    monkeypatch.setattr(scan, "_ATTEMPTS", 1)
    ahead = cluster.zk.exists("/config/users/alice").mzxid + 2**32
    with pytest.raises(UnavailableError, match="not connected"):
        reader_of(cluster, floor=ahead).partitions()


def test_a_list_that_may_not_be_read_is_no_empty_list(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_ATTEMPTS", 1)
    cluster.zk.set_acls("/config/users", [make_digest_acl("somebody", "else", all=True)])
    with pytest.raises(UnavailableError, match="NoAuthError"):
        reader_of(cluster).partitions()


def test_a_lost_connection_is_followed_by_another(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    scanner = scan.Scanner.of("default", cluster.settings)
    wanted = scanner.read(Tree.CONFIG, ["users/alice"])
    real, failures = loader.Walk.run, iter([ConnectionError, None])

    async def run(self: Any) -> None:
        await real(self)
        if next(failures) is not None:
            raise unavailable("cut off")

    monkeypatch.setattr(loader.Walk, "run", run)
    found = scanner.read(Tree.CONFIG, ["users/alice"])
    assert found == wanted
    assert {each.entity_id for each in found} == {"user=alice", "user=alice,client-id", "user=alice,client-id=billing"}
