"""No secret comes out: they are planted on every way in, everything is asked for, and all that came out is searched.

Searched are answers with their headers, the service's log at debug level, its traces, what commands say, all rows of the trail, and
Confplane's own nodes in ZooKeeper.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import typer
from kazoo.security import make_digest_acl_credential
from psycopg import sql

from confplane.cli.commands import cli
from confplane.crypto.password_encoder import PasswordEncoder
from tests.rollups.lake import exported
from tests.support.collector import collecting, settings_for
from tests.support.commands import Commands, run, run_here
from tests.support.planted import Asker, Evidence, Planted
from tests.support.service import Service
from tests.system.secret_inputs import (
    BASE,
    KEY,
    TRUSTSTORE,
    jaas,
    manage_access,
    plan_and_subscribe,
    seed,
    write_openly,
    write_resources,
    write_rpc,
)
from tests.unit.client.generate import specification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.receiver import Receiver
    from tests.support.servers import Database

pytestmark = pytest.mark.timeout(1800)
"""The setup of the first test plants all secrets and runs all requests and commands; that takes minutes."""
RULES: Final = f"""\
rules:
  - name: no-truststore
    match: {{types: broker}}
    deny_keys: [{TRUSTSTORE}]
  - name: hands-off
    match: {{names: {{broker: "66"}}}}
    protected: true
"""
ENTITIES: Final = [
    "topic=orders",
    "broker",
    *(f"broker={number}" for number in (0, 1, 2, 3, 4, 5, 20, 22, 66)),
    *("user=alice", "user=carol", "user=alice,client-id=app", "client-id=app", "ip=10.0.0.1", "user"),
]


HEADERS: Final = {f"OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_{name}": ".*" for name in ("REQUEST", "RESPONSE")}
"""Variables that add headers to traces."""
DESCRIBES: Final[dict[str, list[Any]]] = {
    "client-quotas:describe": [{"components": []}],
    "client-configs:describe": [{"components": []}],
    "configs:describe": [
        {
            "resources": [
                *(
                    {"resourceType": "BROKER", "resourceName": name}
                    for name in ("", "0", "1", "2", "3", "4", "5", "20")
                ),
                {"resourceType": "TOPIC", "resourceName": "orders"},
            ],
            "includeSynonyms": True,
            "includeDocumentation": True,
        }
    ],
    "entity-configs:describe": [
        {
            "entities": [
                *({"entityType": "broker", "entityName": name} for name in (None, "0", "1", "2", "3", "4", "5", "20")),
                {"entityType": "topic", "entityName": "orders"},
                {"entityType": "user", "entityName": "alice"},
                {"entityType": "user", "entityName": "carol"},
            ]
        }
    ],
}


def read(ask: Asker) -> None:
    """Everything that can be asked for."""
    trail = ask("trail", "GET", f"{BASE}/audit", params={"pageSize": "1000"}).json()["items"]
    changes = [item["changeId"] for item in trail]
    revision = next(item["revision"] for item in trail if item["revision"] is not None)
    for path, methods in ask.spec["paths"].items():
        if "get" not in methods:
            continue
        given = methods["get"].get("parameters", [])
        known = {parameter.get("name") or parameter["$ref"].rpartition("/")[2] for parameter in given}
        names = changes if "{changeId}" in path else ENTITIES if "{id}" in path else [""]
        for name in names:
            target = path.replace("{cluster}", "default").replace("{changeId}", name).replace("{id}", name)
            ask("read", "GET", target)
            if "view" in known:
                ask("read, full", "GET", target, params={"view": "full"})
            if "consistency" in known:
                ask("read, strong", "GET", target, params={"consistency": "strong"})
            if "at" in known:
                ask("read, past", "GET", target, params={"at": revision})
            if "from" in known:
                ask("read, past", "GET", target, params={"from": revision})
    reverts(ask, changes, revision)
    drift(ask)
    ask("read as a page", "GET", f"{BASE}/config-definitions", headers={"Accept": "text/html"})
    for path, bodies in DESCRIBES.items():
        for body in bodies:
            ask("describe", "POST", f"{BASE}/{path}", body)


def reverts(ask: Asker, changes: list[str], revision: str) -> None:
    """Revert every change, and every entity, but for the write; then all that was done."""
    for change in changes:
        ask("revert", "POST", f"{BASE}/audit:revert", {"changeId": change, "validateOnly": True, "force": True})
    for name in ENTITIES:
        for facet in ("client-quotas", "client-configs", "configs"):
            ask("revert", "POST", f"{BASE}/{facet}/{name}:revert", {"to": revision, "validateOnly": True})
    ask("reverted", "POST", f"{BASE}/audit:revert", {"principal": "User:admin", "since": "2020-01-01T00:00:00Z"})


def drift(ask: Asker) -> None:
    """Adopt what others changed in a Kafka cluster, and reapply what was changed here."""
    for action in ("adopt", "reapply"):
        ask("drift", "POST", f"{BASE}/drift:{action}", {"entities": [{"id": name} for name in ENTITIES]})


def names_of(group: Any) -> Iterator[str]:
    """List the commands of a group as a person would type them."""
    for name in group.list_commands(None):
        command = group.resolve_command(None, [name])[1]
        inner = names_of(command) if hasattr(command, "list_commands") else [""]
        yield from (f"{name} {each}".strip() for each in inner)


COMMANDS: Final = [
    ["freeze", "--reason", "quiet"],
    ["thaw", "--reason", "quiet"],
    ["export", "--format", "properties", "--broker", "0"],
    ["export", "--format", "properties", "--broker", "4"],
    ["export", "--format", "properties", "--broker", "5"],
    ["import", "kip5"],
    ["import", "kip5", "--apply", "--overwrite"],
    ["upgrade-keys"],
    ["upgrade-keys", "--apply"],
    ["adopt-store", "--reason", "checked"],
    ["compact"],
    ["compact", "--apply"],
    ["layout", "move", "--to", "separate"],
    ["layout", "move", "--to", "separate", "--apply"],
    ["secrets", "rotate", "--all"],
    ["grants", "show", "--principal", "User:app"],
]
SPARK_COMMANDS: Final = [
    ["rollups", "run", "--master", "local[1]", "drift"],
    ["rollups", "export", "--master", "local[1]", "all"],
]
RESULT_COMMANDS: Final = [
    ["rollups", "show", "--json", "drift"],
    ["rollups", "report", "--output", "/dev/stdout"],
]
TARGET_COMMANDS: Final = [
    *(["target", name] for name in ("status", "check", "import")),
    *(["target", name, "--reason", "quiet"] for name in ("adopt", "enforce", "observe", "pause", "resume")),
]
"""Commands on a cluster whose settings name brokers, and the password of a login; nobody answers at the address."""
ABSENT: Final = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"
ACCESS_COMMANDS: Final = [
    ["doctor"],
    ["tokens", "create", "--principal", "User:cli"],
    ["tokens", "list"],
    ["tokens", "rotate", ABSENT],
    ["tokens", "revoke", ABSENT],
    ["tokens", "confirm", "--reason", "checked"],
    ["tokens", "invalidate", "--issued-before", "2026-01-01T00:00:00Z", "--reason", "checked"],
    ["grants", "create", "--principal", "User:cli", "--role", "viewer"],
    ["grants", "list"],
    ["grants", "remove", ABSENT],
]
"""Commands of no cluster."""
ARCHIVE_COMMANDS: Final = {"backup": 0, "verify": 0, "restore": 2}
"""Commands on an archive, and their exit codes while the service runs. An archive has the rows of the tables that are
searched, and znodes as they are stored."""
REMOTE_COMMANDS: Final = [
    *(["tokens", "list"], ["tokens", "rotate", ABSENT], ["tokens", "revoke", ABSENT], ["rollups", "list"]),
    *(["grants", "list"], ["grants", "show", "--principal", "User:app"], ["grants", "remove", ABSENT]),
    ["get", "broker=0"],
    ["drift", "list"],
    ["drift", "adopt", "user=alice", "--reason", "quiet"],
    ["drift", "reapply", "user=alice"],
    ["get", "--type", "broker"],
    ["effective", "broker=0", "--all"],
    ["history", "broker=0"],
    ["diff", "broker=0", "--from", "1"],
    ["audit", "--entity", "broker=0"],
    ["whoami"],
    ["set", "broker=5", "num.io.threads=9", "--validate-only"],
    ["delete", "broker=5", "no.such.key"],
    ["configs", "--describe", "--entity-type", "brokers", "--all"],
    ["configs", "--describe", "--entity-type", "topics", "--entity-name", "orders"],
    ["configs", "--describe", "--entity-type", "users"],
    ["shell"],
    ["export"],
    ["export", "--format", "kafka-configs"],
    ["export", "--format", "terraform"],
    ["load", "/dev/null"],
    ["revert", "--principal", "User:admin", "--since", "1d", "--validate-only"],
    ["revert", "broker=0", "--to", "1d", "--validate-only", "--json"],
    ["plan", "/dev/null"],
    ["diff", "/dev/null"],
    ["apply", "/dev/null", "--yes"],
    ["watch", "nobody"],
    ["set", "broker=5", "num.io.threads=9", "--for", "1h", "--validate-only"],
    ["requests", "list"],
    ["requests", "show", "01900000-0000-7000-8000-000000000000"],
    ["requests", "approve", "01900000-0000-7000-8000-000000000000", "--digest", "0" * 40],
    *(["requests", verb, "01900000-0000-7000-8000-000000000000"] for verb in ("reject", "cancel", "revise", "apply")),
    ["requests", "comment", "01900000-0000-7000-8000-000000000000", "a test"],
    ["requests", "revert", "01900000-0000-7000-8000-000000000000"],
    ["schedules", "list"],
    ["schedules", "end", "01900000-0000-7000-8000-000000000000"],
    ["schedules", "pause", "a test"],
    ["schedules", "resume"],
    ["webhooks", "list"],
    ["webhooks", "put", "w", "--url-file", "/dev/null"],
    ["webhooks", "assign", "w", "--owner", "User:admin"],
    *(["webhooks", name, "w"] for name in ("show", "delete", "resume", "rotate", "test", "deliveries")),
]
"""Commands over the API."""
WITHOUT_CLUSTER: Final = {
    *("dev", "serve", "migrate", "openapi", "clusters", "login", "logout"),
    *("profiles list", "profiles set", "profiles use", "profiles remove", "policy check", "policy test"),
}
"""The service's own log is searched; of configs these know nothing. Profiles have no tokens, policy files no secrets."""


def lines_with(secret: str) -> list[list[str]]:
    """Return commands with a secret on the line."""
    unsound = f"ssl.keystore.password={secret},{secret}={secret}={secret},{secret}"
    altering = ["configs", "--alter", "--broker", "5", "--add-config"]
    return [
        [*altering, unsound],
        [*altering, f"{KEY}={secret}", secret],
        [*altering, f"no.such.key={secret}"],
        ["set", "broker=5", f"{KEY}={secret}", "--validate-only"],
        ["set", "broker=5", secret],
    ]


def tree(zk: KazooClient, path: str) -> str:
    """Return the data of a node and of all below it."""
    data = (zk.get(path)[0] or b"").decode("latin-1")
    return "\n".join([f"{path} {data}", *(tree(zk, f"{path.rstrip('/')}/{child}") for child in zk.get_children(path))])


def settings_of(directory: Path, planted: Planted) -> dict[str, Any]:
    """Write the files that a cluster's settings name, and return the settings."""
    secrets = [f"{key}={planted('file')}" for key in ("ssl.keystore.password", "file.custom", KEY)]
    files = {
        "current": planted("encoder secret"),
        "old": planted("old encoder secret"),
        "server": "\n".join([*secrets, f"sasl.jaas.config={jaas(planted('file'))}", "num.io.threads=8"]),
        "rules": RULES,
        "zookeeper": f"confplane:{planted('ZooKeeper')}",
        "webhooks-key": planted("key of webhooks") * 3,
    }
    for name, content in files.items():
        (directory / name).write_text(content)
    encoder = {"secret_file": str(directory / "old"), "iterations": 1024}
    return {
        "password_encoder": {"brokers": {str(number): encoder for number in (0, 1, 3, 4, 5, 20, 22, 66)}},
        "server_properties": {"*": str(directory / "server")},
        "policy_file": str(directory / "rules"),
        "zookeeper_acl": {
            "identity": f"digest:{make_digest_acl_credential('kafka', planted('identity of the brokers'))}",
            "credentials_file": str(directory / "zookeeper"),
        },
    }


def rotated(directory: Path, cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the settings under a new encoder secret."""
    files = {"secret_file": str(directory / "current"), "old_secret_file": str(directory / "old"), "iterations": 1024}
    return {**cluster, "password_encoder": {"brokers": {str(number): files for number in (0, 1, 4, 20)}}}


def observing(password_file: Path, cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a Kafka cluster that nobody answers for."""
    login = {"mechanism": "SCRAM-SHA-512", "username": "confplane", "password_file": str(password_file)}
    kafka = {"bootstrap": ["127.0.0.1:9"], "sasl": login}
    # Without the identity a command would wait half a minute for nodes that it may not read.
    return {"kafka": kafka, "zookeeper_acl": cluster["zookeeper_acl"]}


def said_by(commands: Commands, all_arguments: list[list[str]]) -> dict[str, str]:
    """Run commands one after another, and return what each says."""
    found = {}
    for arguments in all_arguments:
        said = commands.run(*arguments)
        found[f"confplane {' '.join(arguments)}"] = f"{said.code}\n{said.out}\n{said.err}"
    return found


def said_on_archives(commands: Commands, file: Path) -> dict[str, str]:
    """Write an archive and check it, and return what the commands say."""
    options = {"restore": ["--reason", "checked"]}
    said = {name: run([name, str(file), *options.get(name, [])], commands.environment) for name in ARCHIVE_COMMANDS}
    assert {name: each.code for name, each in said.items()} == ARCHIVE_COMMANDS, said
    return {f"confplane {name}": f"{each.out}\n{each.err}" for name, each in said.items()}


def said_on_spark(commands: Commands, lake: Path) -> dict[str, str]:
    """Run a rollup and export the history, and return what the commands say, and what others read in the lake."""
    run_rollup, export = SPARK_COMMANDS
    said = commands.run_sequentially(run_rollup, [*export, "--output", str(lake)])
    assert said.code == 0, said
    exports = {f"export of {name}": repr(exported(lake, name, "default")) for name in ("trail", "znodes")}
    return {"commands on Spark": f"{said.out}\n{said.err}", **exports}


def dumped(dsn: str) -> Iterator[tuple[str, str]]:
    """Return every table with all its rows."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            query = sql.SQL("SELECT to_jsonb(t)::text FROM {} t").format(sql.Identifier(table))
            yield table, "\n".join(row for (row,) in connection.execute(query).fetchall())


def collected(receiver: Receiver) -> str:
    """Return all that a collector got."""
    return "".join(each.body.decode("latin-1") for each in receiver.requests)


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with collecting() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def evidence(
    tmp_path_factory: pytest.TempPathFactory,
    module_chroot: str,
    module_database: Database,
    zk: KazooClient,
    collector: Receiver,
) -> Evidence:
    planted = Planted()
    evidence = Evidence(planted)
    directory: Path = tmp_path_factory.mktemp("leaks")
    seed(zk, planted)
    cluster = settings_of(directory, planted)
    zk.add_auth("digest", (directory / "zookeeper").read_text())
    for dsn in (module_database.service_dsn, module_database.owner_dsn):
        planted.texts[f"password of {urlsplit(dsn).username}"] = unquote(urlsplit(dsn).password or "")
    where: dict[str, Any] = {"connect": module_chroot, "dsn": module_database.service_dsn}
    debug = {"CONFPLANE_LOG_LEVEL": "debug", "CONFPLANE_WEBHOOKS__KEY_FILE": str(directory / "webhooks-key")}
    service = Service(directory, **where, cluster=cluster, settings=settings_for(collector, **debug, **HEADERS))
    planted.texts["admin token"] = service.token

    def stored(number: int) -> dict[str, str]:
        found: dict[str, str] = json.loads(zk.get(f"/config/brokers/{number}")[0])["config"]
        for value in found.values():
            if "encryptedPassword:" in value:
                planted.stored(value)
        return found

    with service:
        ask = Asker(service, evidence)
        write_resources(ask, planted)
        write_rpc(ask, planted)
        plan_and_subscribe(ask, planted)
        write_openly(ask)
        manage_access(ask)
        evidence.stored = {number: stored(number) for number in (0, 1, 4, 20)}
        # Under a new secret, while the service goes on with the old one, as an operator may get it wrong.
        commands = Commands(directory, **where, cluster=rotated(directory, cluster))
        commands.environment.update(debug)
        evidence.said |= said_by(commands, COMMANDS)
        evidence.said |= said_on_archives(commands, directory / "backup.tar") | said_on_spark(
            commands, directory / "lake"
        )
        evidence.said |= said_by(commands, RESULT_COMMANDS)
        (directory / "login").write_text(planted("login"))
        observed = Commands(directory, **where, cluster=observing(directory / "login", cluster))
        observed.environment.update(debug)
        evidence.said |= said_by(observed, TARGET_COMMANDS)
        for arguments in ACCESS_COMMANDS:
            said = run(arguments, commands.environment)
            if "create" in arguments and "tokens" in arguments:
                planted.texts["token of the command"] = said.out.strip()
                said = said._replace(out="")
            evidence.said[f"confplane {' '.join(arguments)}"] = f"{said.code}\n{said.out}\n{said.err}"
        (directory / "token").write_text(service.token)
        remote = commands.environment | {
            "CONFPLANE_URL": service.url,
            "CONFPLANE_TOKEN_FILE": str(directory / "token"),
        }
        secret = planted("command line")
        for arguments in [*REMOTE_COMMANDS, *lines_with(secret)]:
            said = run_here(*arguments, environment=remote)
            evidence.said[f"confplane {' '.join(arguments[:3]).replace(secret, '')} {len(evidence.said)}"] = (
                f"{said.code}\n{said.out}\n{said.err}"
            )
        for number in (0, 1, 4, 20):
            stored(number)
        read(ask)
        for number in (0, 1, 20):
            ask("gone", "DELETE", f"{BASE}/configs/broker={number}")
        ask("trail", "GET", f"{BASE}/audit", params={"pageSize": "1000"})
        ask.close()
    evidence.said |= {"the log": service.log.read_text(), "the traces": collected(collector)}
    evidence.said |= {f"table {table}": rows for table, rows in dumped(module_database.owner_dsn)}
    evidence.said |= {path: tree(zk, path) for path in ("/confplane", "/config/changes")}
    return evidence


def test_nothing_that_was_planted_came_out(evidence: Evidence) -> None:
    found = {
        where: f"{leaks} in {text[:3000]}"
        for where, text in evidence.said.items()
        if (leaks := evidence.planted.found_in(text))
    }
    assert found == {}


def test_the_search_covers_every_place(evidence: Evidence) -> None:
    """Values that are no secret are found: in an answer, the trail, the log, the tables and a command's output."""
    assert "visible-reason" in evidence.said["table intents"]
    assert KEY in evidence.said["table intent_entities"]
    assert all(KEY in evidence.said[f"export of {name}"] for name in ("trail", "znodes"))
    assert KEY in evidence.said["table request_changes"]
    assert KEY in evidence.said["table request_keys"]
    assert "visible-note" in evidence.said["table tokens"]
    assert "visible-note" in evidence.said["table access_changes"]
    assert "REENCODE" in evidence.said["table intent_entities"]
    assert any(KEY in text for where, text in evidence.said.items() if "read, full" in where)
    assert KEY in evidence.said["confplane export --format properties --broker 0"]
    assert KEY in evidence.said["confplane rollups show --json drift"]
    assert KEY in evidence.said["table rollup_rows"]
    assert any(KEY in text for where, text in evidence.said.items() if "/rollups/drift" in where)
    assert "default" in evidence.said["the log"]
    assert "confplane.change_ids" in evidence.said["the traces"]
    assert "brokers/0" in evidence.said["/config/changes"]
    probe = "Bearer " + evidence.planted.texts["admin token"]
    assert evidence.planted.found_in(f"x{probe}y")
    assert evidence.planted.found_in(base64.b64encode(evidence.planted.texts["admin token"].encode()).decode())


def test_what_was_to_be_stored_was_stored(evidence: Evidence) -> None:
    texts = evidence.planted.texts
    encoder = PasswordEncoder(next(text for way, text in texts.items() if way.endswith(" old encoder secret")))
    plain = {encoder.decode(evidence.stored[number][KEY]) for number in (0, 4, 20)}
    assert plain == {text for way, text in texts.items() if way.endswith((" PUT, full", " mended", " created"))}
    report = re.search(
        r"Done: (\d+) brokers, (\d+) keys encoded again", evidence.said["confplane secrets rotate --all"]
    )
    assert report
    assert int(report[2]) >= 5


def test_what_was_to_be_refused_was_refused(evidence: Evidence) -> None:
    taken = {way for way, status in evidence.statuses.items() if status < 300}
    assert taken >= {
        "proposed",
        "put",
        "put, full",
        "put, validateOnly",
        "created",
        "SET",
        "SET again",
        "SET, dry",
        "mended",
        "seen",
        "KIP-21",
    }
    refused = {
        *(
            "put, stale",
            "beside a bad value",
            "a list",
            "an object",
            "jaas without an end",
            "jaas of two",
            "jaas of no flag",
        ),
        *("jaas of no module", "jaas in upper case", "refused by a rule", "protected", "a lone surrogate", "too large"),
        *("cut body", "twice", "no object", "unknown member", "wrong token", "junk node", "APPEND", "no operation"),
        *(
            "a key twice",
            "a number",
            "of all",
            "unknown to topics",
            "stored without a secret",
            f"KIP-5, {KEY}",
            "created otherwise",
        ),
        *("client-quotas, put", "client-configs, put", "client-quotas, alter", "client-configs, alter"),
        *("clients, alter of quotas", "clients, alter of configs"),
    }
    assert refused & taken == set()
    assert refused <= set(evidence.statuses)
    assert all(400 <= evidence.statuses[way] < 500 for way in refused)


def test_every_operation_and_every_command_was_tried(evidence: Evidence) -> None:
    operations = {
        found["operationId"]
        for methods in specification()["paths"].values()
        for found in methods.values()
        if "operationId" in found
    }
    assert operations - evidence.operations == set()
    here = [*COMMANDS, *SPARK_COMMANDS, *RESULT_COMMANDS, *TARGET_COMMANDS]
    tried = {" ".join(arguments).partition(" --")[0] for arguments in here}
    tried |= {" ".join(arguments[:2]) for arguments in ACCESS_COMMANDS}
    tried |= {*ARCHIVE_COMMANDS}
    names = set(names_of(typer.main.get_command(cli)))
    tried |= {name for name in names for each in REMOTE_COMMANDS if name.split() == each[: len(name.split())]}
    assert names - WITHOUT_CLUSTER == tried
