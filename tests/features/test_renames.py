"""`confplane upgrade-keys` with renames of the test's own, since Kafka 3.9 has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import SecretStr

from confplane.cli import store
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from confplane.domain.definitions import ConfigKind
from confplane.settings import ClusterSettings, PostgresSettings, Settings
from tests.features.test_brokers import ZOOKEEPER_CONTROLLER, register_broker
from tests.support.commands import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database

TABLE = {
    ConfigKind.TOPIC: {"segment.size": "segment.bytes", "retention.time": "retention.ms"},
    ConfigKind.BROKER: {"log.cleaner.count": "log.cleaner.threads", "old.ssl.key.password": "ssl.key.password"},
}
SECRET = "listener.name.external.old.ssl.key.password"
NEW_SECRET = "listener.name.external.ssl.key.password"


@pytest.fixture
def settings(tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database) -> Settings:
    for path in ("/config/brokers", "/config/topics", "/config/changes"):
        raw_zk.ensure_path(path)
    return Settings(
        clusters={"default": ClusterSettings(zookeeper=chroot, session_timeout_ms=4000, notifications_max=10)},
        postgres=PostgresSettings(dsn=SecretStr(migrated.service_dsn)),
        admin_token_file=tmp_path / "token",
    )


def put(zk: KazooClient, path: str, config: dict[str, str]) -> None:
    zk.create(f"/config/{path}", json.dumps({"version": 1, "config": config}).encode())


def stored(zk: KazooClient, path: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zk.get(f"/config/{path}")[0])["config"]
    return found


def trail(database: Database) -> list[dict[str, Any]]:
    with psycopg.connect(database.owner_dsn) as connection:
        found = connection.execute("SELECT to_jsonb(intents) FROM intents ORDER BY change_id").fetchall()
    return [row[0] for row in found]


def test_new_names_get_the_old_values_and_the_old_names_stay(
    settings: Settings, raw_zk: KazooClient, migrated: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    encoded = PasswordEncoder("a-secret", EncoderParameters(iterations=1024)).encode("hidden-1")
    put(raw_zk, "topics/both", {"segment.size": "20000000", "segment.bytes": "30000000"})
    put(raw_zk, "topics/old", {"flush.ms": "5", "segment.size": "20000000", "retention.time": "7"})
    put(raw_zk, "topics/new", {"segment.bytes": "30000000"})
    put(raw_zk, "brokers/<default>", {"log.cleaner.count": "2"})
    put(raw_zk, "brokers/3", {SECRET: encoded, "log.cleaner.threads": "1"})
    before = raw_zk.get("/config/topics/old")[1].version

    assert store.upgrade_keys(settings, "default", apply=False, table=TABLE) == 0
    said = capsys.readouterr()
    assert "topic=old: segment.bytes would be written with the value of segment.size" in said.out
    assert "3 of 3 topics and brokers would be written" in said.out
    assert "Nothing was written; --apply writes" in said.out
    assert raw_zk.get("/config/topics/old")[1].version == before
    assert trail(migrated) == []

    assert store.upgrade_keys(settings, "default", apply=True, table=TABLE) == 0
    said = capsys.readouterr()
    assert f"broker=3: {NEW_SECRET} written with the value of {SECRET}" in said.out
    assert stored(raw_zk, "topics/old") == {
        "flush.ms": "5",
        "segment.size": "20000000",
        "retention.time": "7",
        "retention.ms": "7",
        "segment.bytes": "20000000",
    }
    assert stored(raw_zk, "topics/both") == {"segment.size": "20000000", "segment.bytes": "30000000"}
    assert stored(raw_zk, "brokers/<default>") == {"log.cleaner.count": "2", "log.cleaner.threads": "2"}
    assert stored(raw_zk, "brokers/3") == {SECRET: encoded, "log.cleaner.threads": "1", NEW_SECRET: encoded}
    intents = trail(migrated)
    assert [intent["reason"] for intent in intents] == ["renamed by Kafka"] * 3
    assert encoded not in json.dumps(intents) + said.out + said.err

    assert store.upgrade_keys(settings, "default", apply=True, table=TABLE) == 0
    assert "0 of 0" in capsys.readouterr().out
    assert len(trail(migrated)) == 3


def test_a_run_that_was_cut_short_is_run_again(
    settings: Settings, raw_zk: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    # While brokers are registered there may be ten notifications, so that a run of fifteen is refused on its way.
    register_broker(raw_zk, controller=ZOOKEEPER_CONTROLLER)
    for number in range(15):
        put(raw_zk, f"topics/t{number:02}", {"segment.size": "20000000"})
    assert store.upgrade_keys(settings, "default", apply=True, table=TABLE) == 1
    assert "The work is incomplete. Run the command again: " in capsys.readouterr().err
    done = [number for number in range(15) if "segment.bytes" in stored(raw_zk, f"topics/t{number:02}")]
    assert done == list(range(10))
    for name in raw_zk.get_children("/config/changes"):
        raw_zk.delete(f"/config/changes/{name}")
    assert store.upgrade_keys(settings, "default", apply=True, table=TABLE) == 0
    assert "5 of 5 topics and brokers done" in capsys.readouterr().out
    assert all("segment.bytes" in stored(raw_zk, f"topics/t{number:02}") for number in range(15))


def test_what_can_not_be_renamed_does_not_stop_the_rest(
    settings: Settings, raw_zk: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    put(raw_zk, "topics/bad", {"segment.size": "many"})
    put(raw_zk, "topics/good", {"segment.size": "20000000"})
    raw_zk.create("/config/topics/broken", b"{")
    assert store.upgrade_keys(settings, "default", apply=True, table=TABLE) == 1
    said = capsys.readouterr()
    assert "topic=bad: segment.bytes must be a whole number" in said.err
    assert "topic=broken: The znode /config/topics/broken does not hold JSON" in said.err
    assert "1 of 3 topics and brokers done" in said.out
    assert stored(raw_zk, "topics/bad") == {"segment.size": "many"}
    assert stored(raw_zk, "topics/good")["segment.bytes"] == "20000000"


def test_kafka_3_9_has_renamed_nothing(tmp_path: Path, chroot: str, migrated: Database) -> None:
    said = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn).run_here("upgrade-keys", "--apply")
    assert (said.code, said.out) == (0, "Kafka has not renamed any dynamic config; there is nothing to do\n")
