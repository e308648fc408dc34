"""`confplane import kip5` and `confplane export` on real ZooKeeper and Postgres."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from confplane import properties
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from tests.support.commands import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database

LEGACY = "/brokers/config"
DEFAULT = "/config/brokers/<default>"
KEYSTORE = "listener.name.external.ssl.keystore.password"


@pytest.fixture
def commands(tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database) -> Commands:
    for path in ("/config/brokers", "/config/changes"):
        raw_zk.ensure_path(path)
    secret = tmp_path / "secret"
    secret.write_text("encoder-secret\n")
    cluster = {"password_encoder": {"secret_file": str(secret), "iterations": 1024}}
    return Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster=cluster)


def put(zk: KazooClient, path: str, config: dict[str, str]) -> None:
    data = json.dumps({"version": 1, "config": config}).encode()
    zk.ensure_path(path)
    zk.set(path, data)


def stored(zk: KazooClient, path: str) -> dict[str, str] | None:
    if zk.exists(path) is None:
        return None
    found: dict[str, str] = json.loads(zk.get(path)[0])["config"]
    return found


def rows(out: str) -> dict[str, str]:
    """The table: key -> the rest of its line, blanks folded."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines() if line.strip()}


def trail(database: Database) -> list[dict[str, Any]]:
    with psycopg.connect(database.owner_dsn) as connection:
        found = connection.execute("SELECT to_jsonb(intents) FROM intents").fetchall()
    return [row[0] for row in found]


ENTRIES = {
    "message.max.bytes": "200000",
    "log.cleaner.threads": 2,
    "log.preallocate": True,
    "log.retention.ms": "86400000",
    "num.replica.fetchers": "1",
    "broker.id": "5",
    "advertisedHost": "b1",
    "num.partitions": "5",
    "ssl.keystore.password": "hidden-1",
    "delegation.token.master.key": "hidden-2",
    "ssl.protocol": "TLSv1.3",
    "log.dirs.of.old": "hidden-3",
    "min.insync.replicas": "0",
    "background.threads": None,
    "log.cleaner.dedupe.buffer.size": "1048576",
}
FATES = {
    "message.max.bytes": "200000 goes to the cluster default",
    "log.cleaner.threads": "2 goes to the cluster default",
    "log.preallocate": "true is the cluster default already",
    "log.retention.ms": "86400000 not imported: the cluster default is 1000; --overwrite replaces it",
    "num.replica.fetchers": "1 goes to the cluster default",
    "broker.id": "5 must stay in server.properties: it tells one broker from the others",
    "advertisedHost": "b1 must stay in server.properties: it tells one broker from the others",
    "num.partitions": "5 must stay in server.properties: brokers read it when they start",
    "ssl.keystore.password": "(hidden) must stay in server.properties: it is a secret",
    "delegation.token.master.key": "(hidden) must stay in server.properties: it is a secret",
    "ssl.protocol": "TLSv1.3 must stay in server.properties: it can be set for one broker at a time only",
    "log.dirs.of.old": "(hidden) unknown, not imported",
    "min.insync.replicas": "0 refused: min.insync.replicas must be at least 1",
    "background.threads": "(hidden) refused: the value is neither text nor a number",
    "log.cleaner.dedupe.buffer.size": "1048576 refused: ",
}


def test_an_import_is_shown_then_done(commands: Commands, raw_zk: KazooClient, migrated: Database) -> None:
    legacy = json.dumps({"version": "1", "config": ENTRIES}).encode()
    raw_zk.ensure_path(LEGACY)
    raw_zk.set(LEGACY, legacy)
    before = {"log.retention.ms": "1000", "log.preallocate": "TRUE"}
    put(raw_zk, DEFAULT, before)

    shown = commands.run_here("import", "kip5")
    assert shown.code == 1, shown
    assert "--apply writes what goes to the cluster default (3) as one change" in shown.out
    found = rows(shown.out)
    for key, fate in FATES.items():
        assert found[key].startswith(fate), found[key]
    assert stored(raw_zk, DEFAULT) == before
    assert trail(migrated) == []

    done = commands.run_here("import", "kip5", "--apply")
    assert done.code == 1, done
    assert "3 refused" in done.err
    expected = {**before, "log.cleaner.threads": "2", "message.max.bytes": "200000", "num.replica.fetchers": "1"}
    assert stored(raw_zk, DEFAULT) == expected
    assert raw_zk.get(LEGACY)[0] == legacy
    [intent] = trail(migrated)
    assert (intent["reason"], intent["principal"]) == ("import of /brokers/config", "User:olga@cli")
    assert "hidden-" not in shown.out + shown.err + done.out + done.err + json.dumps(intent)

    again = commands.run_here("import", "kip5", "--apply")
    assert "There is nothing to import" in again.out
    assert len(trail(migrated)) == 1

    commands.run_here("import", "kip5", "--apply", "--overwrite")
    assert stored(raw_zk, DEFAULT) == {**expected, "log.retention.ms": "86400000"}


@pytest.mark.parametrize("version", [b'"version":"1",', b'"version":1,', b""])
def test_a_clean_import_ends_well(commands: Commands, raw_zk: KazooClient, version: bytes) -> None:
    raw_zk.ensure_path("/elsewhere/config")
    raw_zk.set("/elsewhere/config", b"{" + version + b'"config":{"log.roll.ms":"[bold]"}}')
    refused = commands.run_here("import", "kip5", "--path", "/elsewhere/config", "--apply")
    assert (refused.code, stored(raw_zk, DEFAULT)) == (1, None)
    assert "[bold]" in refused.out
    raw_zk.set("/elsewhere/config", b"{" + version + b'"config":{"log.roll.ms":"1000","port":9092}}')
    done = commands.run_here("import", "kip5", "--path", "/elsewhere/config", "--apply")
    assert (done.code, done.err) == (0, "")
    assert stored(raw_zk, DEFAULT) == {"log.roll.ms": "1000"}


def test_what_can_not_be_read_is_reported_with_its_path(commands: Commands, raw_zk: KazooClient) -> None:
    raw_zk.ensure_path(LEGACY)
    raw_zk.set(LEGACY, b'{"version":"1","config":"hidden-1"}')
    said = commands.run_here("import", "kip5", "--apply")
    assert said.code == 1
    assert said.err.startswith(f"Not imported: The znode {LEGACY} ")
    assert "hidden" not in said.err


def test_nothing_to_read(commands: Commands, raw_zk: KazooClient) -> None:
    said = commands.run_here("import", "kip5")
    assert (said.code, said.out) == (2, "")
    assert "has no znode /brokers/config" in said.err
    assert commands.run_here("import", "kip5", "--path", "brokers/config").code == 2
    assert commands.run_here("import", "kip5", "--path", "/brokers/../config").code == 2
    raw_zk.ensure_path(LEGACY)
    raw_zk.set(LEGACY, b'{"config":{}}')
    assert commands.run_here("import", "kip5").out == "There is nothing to import\n"


def test_an_export_reads_back_as_the_effective_configs(commands: Commands, raw_zk: KazooClient, tmp_path: Path) -> None:
    encoder = PasswordEncoder("encoder-secret", EncoderParameters(iterations=1024))
    other = PasswordEncoder("another-secret", EncoderParameters(iterations=1024))
    put(
        raw_zk,
        DEFAULT,
        {
            "log.retention.ms": "1000",
            "message.max.bytes": "2000000",
            "num.partitions": "9",
            "max.connections.per.ip.overrides": "a:1,b:2",
            "leader.replication.throttled.rate": "7",
        },
    )
    put(
        raw_zk,
        "/config/brokers/3",
        {
            "log.retention.ms": "2000",
            "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1@$0](.*@Ünï)s/@.*//\\,DEFAULT",
            "ssl.keystore.type": "JKS",
            KEYSTORE: encoder.encode("hidden-1"),
            "listener.name.external.ssl.key.password": other.encode("hidden-2"),
            "my.plugin.key": "hidden-3",
        },
    )
    put(raw_zk, "/config/brokers/4", {"background.threads": "12"})
    said = commands.run_here("export", "--broker", "3", "--format", "properties")
    assert said.code == 0, said
    assert "4 configs; 2 secrets to be set by hand, 4 left out" in said.err
    assert properties.read(said.out.encode()) == {
        "log.retention.ms": "2000",
        "message.max.bytes": "2000000",
        "max.connections.per.ip.overrides": "a:1,b:2",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1@$0](.*@Ünï)s/@.*//\\,DEFAULT",
    }
    assert "hidden" not in said.out + said.err
    lines = said.out.splitlines()
    assert lines[lines.index("log.retention.ms=2000") - 1] == "# DYNAMIC_BROKER_CONFIG"
    assert lines[lines.index("message.max.bytes=2000000") - 1] == "# DYNAMIC_DEFAULT_BROKER_CONFIG"
    for key, why in {
        KEYSTORE: "a secret",
        "my.plugin.key": "a secret, or a custom config that may be one",
        "listener.name.external.ssl.key.password": "brokers leave it out: none of the encoder secrets",
        "num.partitions": "brokers leave it out: it is not dynamic",
        "ssl.keystore.type": "brokers leave it out: it is dynamic only with a listener's prefix",
        "leader.replication.throttled.rate": "server.properties has no form of it: 7",
    }.items():
        [place] = [number for number, line in enumerate(lines) if line.startswith(f"# {key}=")]
        assert why in lines[place - 1]
    file, before = tmp_path / "3.properties", tmp_path / "before"
    file.write_text("before")
    before.hardlink_to(file)
    written = commands.run_here("export", "--format", "properties", "--broker", "3", "--output", str(file))
    assert (written.code, written.out) == (0, "")
    assert (file.read_text(), before.read_text()) == (said.out, "before")  # replaced, not overwritten in place
    assert (
        properties.read(commands.run_here("export", "--format", "properties", "--broker", "4").out.encode())[
            "background.threads"
        ]
        == "12"
    )
    failed = commands.run_here(
        "export", "--format", "properties", "--broker", "3", "--output", str(tmp_path / "no" / "file")
    )
    assert (failed.code, failed.err) == (
        1,
        f"Not exported: {tmp_path}/no/file can't be written: No such file or directory\n",
    )


def test_a_broken_level_is_not_exported(commands: Commands, raw_zk: KazooClient) -> None:
    put(raw_zk, "/config/brokers/3", {"log.retention.ms": "2000"})
    raw_zk.create(DEFAULT, b"{")
    said = commands.run_here("export", "--format", "properties", "--broker", "3")
    assert (said.code, said.out) == (1, "")
    assert DEFAULT in said.err
