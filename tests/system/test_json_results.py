"""Commands on the stores with ``--json``: standard output has JSON alone, and so have errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.commands import Commands, run_here

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database
    from tests.support.service import Service

TARGET: Final = {
    "version": 1,
    "kind": "kraft",
    "mode": "observe",
    "cluster_id": "abc",
    "imported": True,
    "paused": False,
}
LEGACY: Final = {"message.max.bytes": "200000", "min.insync.replicas": "0", "broker.id": "5"}


def result(service: Service, line: str, code: int = 0) -> list[dict[str, Any]]:
    """Run a command on the cluster of the service, and return the lines of its output, or of its error."""
    words = [*line.split(), "--cluster", "default", "--json"]
    said = run_here(*words, environment=service._environment | {"LOGNAME": "olga"})
    assert said.code == code, said
    return [json.loads(each) for each in (said.err if code else said.out).splitlines()]


def test_results_are_json(service: Service) -> None:
    [adopted] = result(service, "adopt-store --reason checked")
    assert (adopted["cluster"], adopted["adopted"], adopted["changeId"]) == ("default", False, None)
    assert result(service, "compact --older-than 7d") == []
    assert result(service, "upgrade-keys") == []
    assert result(service, "layout move --to shared") == []
    assert result(service, "secrets rotate --all") == []
    [status] = result(service, "target status")
    assert status == {"cluster": "default", "target": None, "report": None, "warnings": []}
    [report] = result(service, "rollups report --output /dev/null")
    assert report == {"output": "/dev/null", "rollups": [], "pictures": 0}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import kip5", 2),
        ("target check", 2),
        ("target import", 2),
        ("target pause --reason drill", 2),
        ("rollups show quotas", 1),
    ],
)
def test_errors_are_json(service: Service, line: str, code: int) -> None:
    [error] = result(service, line, code)
    assert (error["exitCode"], bool(error["detail"])) == (code, True)


@pytest.fixture
def commands(tmp_path: Path, chroot: str, migrated: Database) -> Commands:
    """Commands on a cluster of their own, which no service serves."""
    return Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)


def put(zk: KazooClient, path: str, content: dict[str, Any]) -> None:
    zk.ensure_path(path)
    zk.set(path, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("action", "text", "is_paused"),
    [
        ("adopt", "accepts changes of topics and applies them to the Kafka cluster abc", False),
        ("enforce", "accepts changes of topics, applies them to the Kafka cluster abc, and reverts", False),
        ("observe", "accepts no changes of topics: it follows the Kafka cluster abc", False),
        ("pause", "no longer follows the Kafka cluster abc", True),
        ("resume", "follows the Kafka cluster abc", False),
    ],
)
def test_a_changed_target_is_one_line(
    commands: Commands, raw_zk: KazooClient, action: str, text: str, *, is_paused: bool
) -> None:
    put(raw_zk, "/confplane/target", TARGET | {"paused": action == "resume"})
    types = [] if action in {"pause", "resume"} else ["--type", "topics"]
    said = commands.run_here("target", action, "--reason", "a drill", *types, "--json")
    assert said.code == 0, said
    [line] = said.out.splitlines()
    result = json.loads(line)
    stored = json.loads(raw_zk.get("/confplane/target")[0])
    assert (result["cluster"], result["target"]["clusterId"], result["target"]["paused"]) == (
        "default",
        "abc",
        is_paused,
    )
    assert (stored["paused"], stored.get("modes", {}).get("topics", "observe")) == (
        is_paused, action if action in {"adopt", "enforce"} else "observe",
    )  # fmt: skip
    assert text in said.err


def test_an_import_is_one_line_that_follows_the_change(commands: Commands, raw_zk: KazooClient) -> None:
    put(raw_zk, "/brokers/config", {"version": 1, "config": LEGACY})
    for options, is_applied in (([], False), (["--apply"], True)):
        said = commands.run_here("import", "kip5", "--json", *options)
        assert said.code == 1, said
        [line] = said.out.splitlines()
        result = json.loads(line)
        assert {each["key"]: each["decision"] for each in result["entries"]} == {
            "message.max.bytes": "import", "min.insync.replicas": "refused", "broker.id": "server.properties",
        }  # fmt: skip
        assert (result["applied"], result["revision"] is not None, result["changeId"] is not None) == 3 * (is_applied,)
        assert (raw_zk.exists("/config/brokers/<default>") is not None) is is_applied
    assert "1 refused" in said.err


def test_an_import_that_is_refused_has_no_result(commands: Commands, raw_zk: KazooClient) -> None:
    put(raw_zk, "/brokers/config", {"version": 1, "config": LEGACY})
    assert commands.run_here("freeze", "--reason", "an upgrade").code == 0
    said = commands.run_here("import", "kip5", "--apply", "--json")
    assert (said.code, said.out) == (1, ""), said
    assert "an upgrade" in json.loads(said.err)["detail"]
    shown = commands.run_here("import", "kip5", "--apply")
    assert (shown.code, "message.max.bytes" in shown.out) == (1, True), "the table is shown before the attempt"
    assert raw_zk.exists("/config/brokers/<default>") is None
