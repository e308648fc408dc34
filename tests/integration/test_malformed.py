"""Refusals over HTTP: the status, Kafka's error code and the JSON pointer of each; and nothing has changed.

The table is ``malformed.txt``: a row for each rule and route. All values that a rule refuses are in the tables of the
unit tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from tests.support import servers
    from tests.support.service import Service

TABLE: Final = Path(__file__).with_name("malformed.txt")
PLANTED: Final = "planted"
"""The text in each secret of the table, so that none can be overlooked in an answer."""
BASE: Final = "/v1/clusters/default/"
ENTITY: Final = b'{"version":1,"config":%s}'
STORED: Final = {
    "/config/users/stored": ENTITY
    % b'{"producer_byte_rate":"1024","acks":"-1","session.timeout.ms":"10000","heartbeat.interval.ms":"3000",'
    b'"SCRAM-SHA-512":"salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"}',
    "/config/users/stored/clients/app": ENTITY % b'{"acks":"1"}',
    "/config/users/broken": b"junk",
    "/config/topics/orders": ENTITY % b'{"retention.ms":"86400000","min.compaction.lag.ms":"100"}',
    "/config/topics/broken": b"junk",
    "/config/brokers/0": ENTITY % b'{"background.threads":"4","log.preallocate":"true"}',
    "/config/brokers/9": b"junk",
    "/brokers/topics/orders": b"{}",
    "/brokers/topics/payments": b"{}",
    "/brokers/topics/broken": b"{}",
}


@dataclass(frozen=True)
class Row:
    """One line of the table: a request, and how it is refused."""

    name: str
    method: str
    path: str
    body: str
    status: int
    code: int
    pointer: str | None
    words: str


def rows() -> list[Row]:
    """Read the table."""
    found: list[Row] = []
    method = path = body = ""
    for line in TABLE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.split(" ")[0] in {"GET", "POST", "PUT", "DELETE"}:
            method, path, body = [*line.split(" ", 2), ""][:3]
            continue
        what, given, numbers, pointer, words = (part.strip() for part in line.split("|"))
        status, code = map(int, numbers.split())
        target = path.replace("…", given)
        row = Row(
            f"{method} {path.replace('…', '')}: {what}",
            method,
            target,
            body.replace("…", given) if "…" not in path else body,
            status,
            code,
            None if pointer == "-" else pointer,
            "" if words == "-" else words,
        )
        found.append(row)
    return found


ROWS: Final = rows()


@pytest.fixture(scope="module")
def stored(zk: KazooClient) -> None:
    """Store the znodes that exist before the first request."""
    zk.ensure_path("/config/changes")
    for path, data in STORED.items():
        zk.ensure_path(path)
        zk.set(path, data)


@pytest.fixture(scope="module")
def service_options(stored: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A service that knows all brokers' files, and the secret of one."""
    del stored  # what it loads when it starts
    directory = tmp_path_factory.mktemp("service")
    properties, secret = directory / "server.properties", directory / "secret"
    properties.write_text("")
    secret.write_text("encoder-secret")
    cluster = {
        "server_properties": {"*": str(properties)},
        "password_encoder": {"brokers": {"0": {"secret_file": str(secret)}}},
    }
    return {"cluster": cluster}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    """One connection that is kept."""
    with httpx.Client(
        headers={"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"},
        trust_env=False,
        timeout=60,
    ) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def _nothing_changes(
    service: Service, http: httpx.Client, zk: KazooClient, module_database: servers.Database
) -> Iterator[None]:
    """Compare all that is stored before the first request and after the last; none of them began a change either."""
    principal = http.get(f"{service.url}/v1/whoami").json()["principal"]
    before = snapshot(zk)
    assert set(STORED) - set(before) == {path for path in STORED if path.startswith("/brokers/")}
    yield
    assert snapshot(zk) == before
    assert intents(module_database, principal) == 0


def snapshot(zk: KazooClient) -> dict[str, tuple[bytes | None, int]]:
    """Read every znode that a request could change, with its version."""
    found: dict[str, tuple[bytes | None, int]] = {}
    waiting = [path for path in ("/config", "/confplane/client-configs") if zk.exists(path)]
    while waiting:
        path = waiting.pop()
        data, stat = zk.get(path)
        found[path] = data, stat.version
        waiting += [f"{path}/{child}" for child in zk.get_children(path)]
    return found


def intents(database: servers.Database, principal: str) -> int:
    """Count the changes that someone began."""
    with psycopg.connect(database.owner_dsn) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM intents WHERE principal = %s", [principal]).fetchall()
    return int(count)


def test_the_table_is_long_and_names_each_case_once() -> None:
    assert len(ROWS) >= 200
    names = [row.name + row.body for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_refused(service: Service, http: httpx.Client, row: Row) -> None:
    answer = http.request(row.method, f"{service.url}{BASE}{row.path}", content=row.body.encode())
    body = answer.json()
    pointers = [item["pointer"] for item in body["errors"]]
    got = (answer.status_code, body["kafkaErrorCode"], pointers[0] if pointers else None)
    assert got == (row.status, row.code, row.pointer), body["detail"]
    assert row.words in body["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["status"] == row.status
    assert PLANTED not in answer.text
    for pointer in pointers:
        assert not pointer.startswith("/") or points_into(json.loads(row.body), pointer)


def points_into(sent: Any, pointer: str) -> bool:
    """Say whether a JSON pointer leads to something in a body, or to a member that is missing in it."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    for place, step in enumerate(steps):
        if isinstance(sent, list):
            sent = sent[int(step)]
        elif step in sent:
            sent = sent[step]
        else:
            return place == len(steps) - 1
    return True
