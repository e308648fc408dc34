"""`confplane secrets rotate` on real ZooKeeper and Postgres: whole, resumed, and honest about what it can't do."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from tests.support import commands
from tests.support.processes import ROOT, program
from tests.support.service import Service
from tests.support.stalls import stalled_at
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.commands import Said
    from tests.support.servers import Database

FAST: Final = EncoderParameters(iterations=1024)
OLD, NEW, OTHER = (PasswordEncoder(f"{name}-encoder-secret", FAST) for name in ("old", "new", "other"))
KEYSTORE: Final = "listener.name.external.ssl.keystore.password"
KEY: Final = "listener.name.external.ssl.key.password"
JAAS: Final = "listener.name.external.plain.sasl.jaas.config"
BROKERS: Final = 33
STALLED: Final = 17
ROTATE_ALL: Final = ("-m", "confplane", "secrets", "rotate", "--cluster", "default", "--all")


class Brokers:
    """A cluster's nodes under /config/brokers, and the command that is run on them."""

    def __init__(self, directory: Path, chroot: str, zk: KazooClient, dsn: str) -> None:
        self.zk = zk
        self.directory = directory
        zk.ensure_path("/config/brokers")
        zk.ensure_path("/config/changes")
        files = {name: directory / f"{name}-secret" for name in ("old", "new", "other")}
        for name, path in files.items():
            path.write_text(f"{name}-encoder-secret\n")
        encoder = {"secret_file": str(files["new"]), "old_secret_file": str(files["old"]), "iterations": 1024}
        self.files = files
        self.encoder: dict[str, Any] = encoder
        self.chroot = chroot
        self.dsn = dsn

    def put(self, broker: int, config: Mapping[str, str]) -> None:
        data = json.dumps({"version": 1, "config": config}).encode()
        path = f"/config/brokers/{broker}"
        if self.zk.exists(path):
            self.zk.set(path, data)
        else:
            self.zk.create(path, data)

    def get(self, broker: int) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.zk.get(f"/config/brokers/{broker}")[0])["config"]
        return found

    def version(self, broker: int) -> int:
        found: int = self.zk.get(f"/config/brokers/{broker}")[1].version
        return found

    def environment(self) -> dict[str, str]:
        cluster = {"password_encoder": self.encoder}
        service = Service(self.directory / "settings", connect=self.chroot, dsn=self.dsn, cluster=cluster)
        return service._environment | {"LOGNAME": "olga"}

    def rotate(self, *options: str) -> Said:
        """Run it; return its exit code, its output and its errors."""
        named = () if "--cluster" in options else ("--cluster", "default")
        return commands.run_here("secrets", "rotate", *named, *options, environment=self.environment())


@pytest.fixture
def owner(migrated: Database) -> str:
    return migrated.owner_dsn


@pytest.fixture
def brokers(tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database, owner: str) -> Brokers:
    del owner  # the tables
    return Brokers(tmp_path, chroot, raw_zk, migrated.service_dsn)


def changes_of(owner_dsn: str, zk: KazooClient) -> dict[str, list[str]]:
    """Return, by entity, the changes that were applied: those with an outcome that says so, or with a marker."""
    markers = {
        change
        for change in zk.get_children("/confplane/commits")
        if "attempt" in json.loads(zk.get(f"/confplane/commits/{change}")[0])  # one that says otherwise stops a change
    }
    found: dict[str, list[str]] = {}
    with psycopg.connect(owner_dsn) as connection:
        for change, entity, committed in connection.execute(
            "SELECT DISTINCT e.change_id::text, e.entity_id, coalesce(o.committed, false) "
            "FROM intent_entities e LEFT JOIN outcomes o USING (change_id)"
        ):
            if committed or change in markers:
                found.setdefault(entity, []).append(change)
    return found


@pytest.mark.parametrize("step", ["intent", "outcome"])
def test_killed_in_the_middle_and_run_again_it_ends_complete(brokers: Brokers, owner: str, step: str) -> None:
    plain = {broker: {KEYSTORE: f"keystore-{broker}", JAAS: f"jaas \u00e9 {broker}"} for broker in range(BROKERS)}
    for broker, passwords in plain.items():
        config = {"log.cleaner.threads": "2"} | {key: OLD.encode(value) for key, value in passwords.items()}
        brokers.put(broker, config)
    with stalled_at(owner, step, f"broker={STALLED}", f"/config/brokers/{STALLED}") as statement:
        with program(ROTATE_ALL, environment=brokers.environment()) as command:
            command.read_until(f"broker {STALLED - 1}: 2 keys encoded again (change ")
            statement.wait_for(command, 120)
            command.process.send_signal(signal.SIGKILL)
            assert command.wait() == -signal.SIGKILL
        before = {broker: brokers.version(broker) for broker in range(BROKERS)}
        touched = STALLED + (step == "outcome")
        assert before == {broker: int(broker < touched) for broker in range(BROKERS)}

    code, said, _ = brokers.rotate("--all")
    assert code == 0
    left = BROKERS - touched
    assert (
        f"Done: 33 brokers, {2 * left} keys encoded again, {2 * touched} already encoded with the current secret"
        in said
    )
    assert said.count("nothing to do\n") == touched
    for broker, passwords in plain.items():
        config = brokers.get(broker)
        assert list(config) == ["log.cleaner.threads", KEYSTORE, JAAS]
        assert config["log.cleaner.threads"] == "2"
        assert {key: NEW.decode(config[key]) for key in passwords} == passwords
        assert brokers.version(broker) == 1
    applied = changes_of(owner, brokers.zk)
    assert set(applied) == {f"broker={broker}" for broker in range(BROKERS)}
    assert all(len(changes) == 1 for changes in applied.values())
    # A third time there is nothing left, and nothing is written.
    assert brokers.rotate("--all")[0] == 0
    assert changes_of(owner, brokers.zk) == applied


@pytest.mark.parametrize(
    ("number", "ignores_sigint", "code"),
    [
        pytest.param(signal.SIGTERM, True, 143, id="SIGTERM with SIGINT ignored"),
        pytest.param(signal.SIGTERM, False, 143, id="SIGTERM", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, False, 130, id="Ctrl-C", marks=pytest.mark.long),
    ],
)
def test_stopped_by_a_signal_it_reports_what_was_done(
    brokers: Brokers, owner: str, number: signal.Signals, *, ignores_sigint: bool, code: int
) -> None:
    for broker in (1, 2, 3):
        brokers.put(broker, {KEY: OLD.encode("x")})
    with (
        stalled_at(owner, "intent", "broker=2", "/config/brokers/2") as statement,
        program(ROTATE_ALL, environment=brokers.environment(), ignores_sigint=ignores_sigint) as command,
    ):
        statement.wait_for(command, 120)
        command.process.send_signal(number)
        assert command.wait() == code
    assert "Done: 1 broker, 1 key encoded again" in command.output
    assert "Stopped, because you stopped it. Run the command again for the remaining brokers" in command.output
    assert [brokers.version(broker) for broker in (1, 2, 3)] == [1, 0, 0]
    assert brokers.rotate("--all").code == 0
    assert [NEW.decode(brokers.get(broker)[KEY]) for broker in (1, 2, 3)] == ["x"] * 3


def test_the_trail_and_the_notification(brokers: Brokers, owner: str) -> None:
    brokers.put(4, {KEY: OLD.encode("planted"), KEYSTORE: NEW.encode("planted"), "num.io.threads": "8"})
    code, said, errors = brokers.rotate("--broker", "4")
    assert (code, errors) == (0, "")
    line = re.match(r"broker 4: 1 key encoded again \(change ([0-9a-f-]{36})\)\nDone: 1 broker, 1 key encoded", said)
    assert line
    with psycopg.connect(owner) as connection:
        [(change, principal, reason, keys, ops, stored, after, committed)] = connection.execute(
            "SELECT i.change_id::text, principal, reason, keys, ops, before, after, committed FROM intents i"
            " JOIN intent_entities USING (change_id) JOIN outcomes USING (change_id)"
        )
    assert change == line[1]
    assert (principal, reason, committed) == ("User:olga@cli", "confplane secrets rotate", True)
    assert keys == [KEY]
    assert ops == [{"key": KEY, "op": "REENCODE", "value": None, "secret": True}]
    assert stored == after == {KEY: None, KEYSTORE: None, "num.io.threads": "8"}
    [notification] = brokers.zk.get_children("/config/changes")
    assert json.loads(brokers.zk.get(f"/config/changes/{notification}")[0])["entity_path"] == "brokers/4"


def test_what_it_can_t_do_it_says_and_does_the_rest(brokers: Brokers) -> None:
    brokers.put(1, {KEY: OTHER.encode("x"), KEYSTORE: OLD.encode("one"), "odd\n\x1b[2J.ssl.key.password": "in clear"})
    brokers.put(2, {"log.cleaner.threads": "2"})
    brokers.zk.create("/config/brokers/3", b"junk")
    brokers.put(4, {KEY: OLD.encode("four")})
    brokers.put(5, {KEY: OLD.encode("five")})
    brokers.put(6, {KEY: OTHER.encode("six")})
    # Five is still on the old secret, without an older one; six comes from a secret of its own.
    brokers.encoder["brokers"] = {
        "5": {"secret_file": str(brokers.files["other"])},
        "6": {"old_secret_file": str(brokers.files["other"])},
    }
    code, said, errors = brokers.rotate("--all")
    assert code == 1
    odd = r"'odd\n\x1b[2J.ssl.key.password'"
    assert re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", said).splitlines() == [
        f"broker 1: 1 key encoded again (change …), 2 keys undecodable: {KEY}, {odd}",
        "broker 2: nothing to do",
        "broker 3: not done. The znode /config/brokers/3 does not hold JSON; it is left as it is until a person mends it",
        "broker 4: 1 key encoded again (change …)",
        f"broker 5: 1 key undecodable: {KEY}",
        "broker 6: 1 key encoded again (change …)",
        "Done: 5 brokers, 3 keys encoded again, 0 already encoded with the current secret, 3 undecodable",
    ]
    assert errors.splitlines() == [
        "No secret decodes these values, so brokers ignore them. Set them again:",
        f"  broker 1: {KEY}, {odd}",
        f"  broker 5: {KEY}",
        "No old secret is known for 5: name its file in password_encoder.old_secret_file or --old-secret-file, if they are under that",
        "Not done: 3",
    ]
    assert brokers.zk.get("/config/brokers/3")[0] == b"junk"
    assert NEW.decode(brokers.get(1)[KEYSTORE]) == "one"
    assert OTHER.decode(brokers.get(1)[KEY]) == "x"
    assert (brokers.version(2), brokers.version(5)) == (0, 0)
    # The option goes before the settings, for brokers with settings of their own too.
    code, said, _ = brokers.rotate("--broker", "5", "--old-secret-file", str(brokers.files["old"]))
    assert code == 0
    assert OTHER.decode(brokers.get(5)[KEY]) == "five"
    code, said, _ = brokers.rotate("--broker", "77")
    assert code == 0
    assert said.splitlines() == [
        "Broker 77 has no configs of its own in ZooKeeper",
        "broker 77: nothing to do",
        "Done: 1 broker, 0 keys encoded again, 0 already encoded with the current secret, 0 undecodable",
    ]


def test_without_a_secret_it_says_which_setting_to_set(brokers: Brokers) -> None:
    brokers.put(1, {KEY: OLD.encode("x")})
    brokers.put(2, {"log.cleaner.threads": "2"})
    brokers.encoder.clear()
    code, said, _ = brokers.rotate("--all", "--old-secret-file", str(brokers.files["old"]))
    assert code == 1
    assert "broker 1: not done. Broker 1 has no password encoder secret here" in said
    assert "clusters.default.password_encoder.secret_file" in said
    assert "broker 2: nothing to do" in said
    assert brokers.version(1) == 0


def test_a_frozen_cluster_stops_it_and_a_thaw_lets_it_go_on(brokers: Brokers) -> None:
    for broker in (1, 2):
        brokers.put(broker, {KEY: OLD.encode("x")})
    for word in ("freeze", "thaw"):
        done = commands.run_here(
            word, "--cluster", "default", "--reason", "quiet, please", environment=brokers.environment()
        )
        assert done.code == 0, done.err
        code, said, errors = brokers.rotate("--all")
        if word == "freeze":
            assert code == 1
            assert "broker 1: not done." in said
            assert "quiet, please" in said
            assert "broker 2" not in said
            assert "Run the command again" in errors
            assert brokers.version(1) == 0
    assert code == 0
    assert NEW.decode(brokers.get(2)[KEY]) == "x"


def test_a_terminal_gets_a_bar_and_lines_for_problems_alone(brokers: Brokers) -> None:
    brokers.put(1, {KEY: OLD.encode("x")})
    brokers.put(2, {KEY: OTHER.encode("x")})
    brokers.put(3, {KEY: OLD.encode("x")})
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "confplane", "secrets", "rotate", "--cluster", "default", "--all"],
        cwd=ROOT,
        env=brokers.environment() | {"TERM": "xterm", "COLUMNS": "300"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(mine, 65536):
            said += chunk
    except OSError:
        pass  # how a terminal ends whose other side is closed
    finally:
        os.close(mine)
    assert process.wait(PATIENCE_S) == 1
    text = said.decode()
    assert "3/3" in text
    assert "broker 1" not in text
    assert f"broker 2: 1 key undecodable: {KEY}" in text
    assert "Done: 3 brokers, 2 keys encoded again" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Give either --broker N or --all"),
        (["--broker", "1", "--all"], "Give either --broker N or --all"),
        (["--broker", "-1"], "--broker"),
        (["--all", "--old-secret-file", "/nowhere/secret"], "does not exist"),
    ],
)
def test_options_that_make_no_sense(brokers: Brokers, options: list[str], words: str) -> None:
    code, said, errors = brokers.rotate(*options)
    assert (code, said) == (2, "")
    assert words in " ".join(errors.replace("│", " ").split())
