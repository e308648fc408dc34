"""Passwords of brokers end to end, and what brokers have in their own files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from tests.catalog.passwords.generate import read
from tests.support import commands
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database

SAMPLE: Final = next(sample for sample in read() if sample.password == "test-password")
"""A password as Kafka's own class stored it."""
SECRET: Final = SAMPLE.encoder.secret
OLD: Final = "the-secret-before"
KEY: Final = "listener.name.external.ssl.key.password"
KEYSTORE: Final = "listener.name.external.ssl.keystore.password"
JAAS: Final = "listener.name.external.scram-sha-512.sasl.jaas.config"
FILE_0: Final = """\
# The first broker.
broker.id=0
num.io.threads=12
log.retention.hours = 48
ssl.keystore.password=secret of the file
"""
FILE_OTHERS: Final = "num.io.threads=6\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("secrets")
    for name, text in {"secret": SECRET, "old": OLD, "server-0": FILE_0, "server": FILE_OTHERS}.items():
        (found / name).write_text(text)
    return found


@pytest.fixture(scope="module")
def cluster(directory: Path) -> dict[str, Any]:
    return {
        "password_encoder": {
            "secret_file": str(directory / "secret"),
            "old_secret_file": str(directory / "old"),
        },
        "server_properties": {"0": str(directory / "server-0"), "*": str(directory / "server")},
    }


@pytest.fixture(scope="module")
def service_options(cluster: dict[str, Any]) -> dict[str, Any]:
    return {"cluster": cluster}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    yield from connected(service)


def connected(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{service.url}/v1/clusters/default",
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
        timeout=60,
    ) as client:
        yield client


def stored(zk: KazooClient, broker: int) -> dict[str, str]:
    found: dict[str, str] = json.loads(zk.get(f"/config/brokers/{broker}")[0])["config"]
    return found


def seed(zk: KazooClient, http: httpx.Client, broker: int, config: dict[str, str]) -> None:
    """Write a broker's node as Kafka's tools do, and wait until the service has it."""
    zk.ensure_path("/config/brokers")
    zk.ensure_path("/config/changes")
    zk.create(f"/config/brokers/{broker}", json.dumps({"version": 1, "config": config}).encode())
    zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/%d"}' % broker, sequence=True)
    assert http.get(f"/configs/broker={broker}", params={"consistency": "strong"}).status_code == 200


def put(http: httpx.Client, broker: int, configs: dict[str, str | None]) -> httpx.Response:
    answer = http.put(f"/configs/broker={broker}", json={"configs": configs})
    assert answer.status_code == 200, answer.text
    return answer


def test_a_password_of_kafka_s_own_is_decoded_for_comparison(http: httpx.Client, zk: KazooClient) -> None:
    seed(zk, http, 10, {KEY: SAMPLE.stored, "log.cleaner.threads": "2"})
    same: dict[str, str | None] = {KEY: SAMPLE.password, "log.cleaner.threads": "2"}
    answer = put(http, 10, same)
    assert "confplane-change-id" not in answer.headers
    assert answer.json()["configs"] == {KEY: None, "log.cleaner.threads": "2"}
    op = {"name": KEY, "configOperation": "SET", "value": SAMPLE.password}
    body = {"resources": [{"resourceType": "BROKER", "resourceName": "10", "configs": [op]}]}
    altered = http.post("/configs:incrementalAlter", json=body)
    assert altered.status_code == 200, altered.text
    assert altered.json()["responses"][0]["diff"] == []
    assert zk.get("/config/brokers/10")[1].version == 0
    # Another value is another thing, under a salt of its own; a null keeps what is stored.
    body["resources"][0]["configs"][0]["value"] = "test-passwort"  # type: ignore[index]
    altered = http.post("/configs:incrementalAlter", json=body)
    assert altered.json()["responses"][0]["diff"] == [{"key": KEY, "before": None, "after": None, "secret": True}]
    changed = stored(zk, 10)[KEY]
    assert PasswordEncoder(SECRET).decode(changed) == "test-passwort"
    put(http, 10, {KEY: None, "log.cleaner.threads": "3"})
    assert stored(zk, 10) == {KEY: changed, "log.cleaner.threads": "3"}


def test_a_password_under_the_old_secret_is_the_same_password(http: httpx.Client, zk: KazooClient) -> None:
    under_old = PasswordEncoder(OLD, EncoderParameters(iterations=1024)).encode("x\u00e9")
    seed(zk, http, 11, {KEY: under_old})
    marks = [http.get("/configs/broker=11", params={"view": "full"}).json()["status"]["fingerprints"]]
    assert "confplane-change-id" not in put(http, 11, {KEY: "x\u00e9"}).headers
    assert stored(zk, 11) == {KEY: under_old}
    put(http, 11, {KEY: "x\u00e9", KEYSTORE: "y"})
    assert stored(zk, 11)[KEY] == under_old
    assert PasswordEncoder(SECRET).decode(stored(zk, 11)[KEYSTORE]) == "y"
    marks.append(http.get("/configs/broker=11", params={"view": "full"}).json()["status"]["fingerprints"])
    assert marks[0][KEY] == marks[1][KEY]
    assert len({marks[1][KEY], marks[1][KEYSTORE]} - {None}) == 2


def test_one_that_no_secret_opens_is_left_out_and_can_be_set_again(http: httpx.Client, zk: KazooClient) -> None:
    foreign = PasswordEncoder("nobody knows", EncoderParameters(iterations=1024)).encode("x")
    seed(zk, http, 12, {KEY: foreign, "log.cleaner.threads": "2"})
    found = http.get("/configs/broker=12/effective").json()
    assert any(KEY in warning for warning in found["warnings"])
    put(http, 12, {KEY: "new", "log.cleaner.threads": "2"})
    assert PasswordEncoder(SECRET).decode(stored(zk, 12)[KEY]) == "new"
    found = http.get("/configs/broker=12/effective").json()
    assert not any(KEY in warning for warning in found["warnings"])


def effective(http: httpx.Client, broker: int) -> dict[str, tuple[str | None, str]]:
    found = http.get(f"/configs/broker={broker}/effective").json()["configs"]
    return {item["key"]: (item["value"], item["source"]) for item in found}


def test_what_brokers_have_in_their_own_files_is_a_level(http: httpx.Client) -> None:
    named, other = effective(http, 0), effective(http, 1)
    assert named["num.io.threads"] == ("12", "STATIC_BROKER_CONFIG")
    assert named["log.retention.hours"] == ("48", "STATIC_BROKER_CONFIG")
    assert named["ssl.keystore.password"] == (None, "STATIC_BROKER_CONFIG")
    assert other["num.io.threads"] == ("6", "STATIC_BROKER_CONFIG")
    assert other["log.retention.hours"] == ("168", "DEFAULT_CONFIG")
    # And counts when a change is judged: twice what the broker runs with, and no more.
    refused = http.put("/configs/broker=1", json={"configs": {"num.io.threads": "13"}})
    assert (refused.status_code, refused.json()["kafkaErrorCode"]) == (400, 42)
    assert http.put("/configs/broker=1", json={"configs": {"num.io.threads": "12"}}).status_code == 200
    assert effective(http, 1)["num.io.threads"] == ("12", "DYNAMIC_BROKER_CONFIG")


def test_without_a_secret_sensitive_keys_are_refused_and_the_rest_works(
    tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: Database
) -> None:
    raw_zk.ensure_path("/config/brokers")
    raw_zk.create("/config/brokers/1", json.dumps({"version": 1, "config": {KEY: SAMPLE.stored}}).encode())
    with Service(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        for http in connected(service):
            body = {"configs": {"log.cleaner.threads": "2", KEY: "planted"}}
            refused = http.put("/configs/broker=1", json=body)
            problem = refused.json()
            assert (refused.status_code, problem["kafkaErrorCode"]) == (422, 40)
            assert "clusters.default.password_encoder.secret_file" in problem["detail"]
            assert problem["errors"][0]["pointer"] == f"/configs/{KEY}"
            put(http, 1, {"log.cleaner.threads": "2", KEY: None})
            assert stored(raw_zk, 1) == {"log.cleaner.threads": "2", KEY: SAMPLE.stored}
            full = http.get("/configs/broker=1", params={"view": "full"}).json()
            assert full["status"]["fingerprints"] == {KEY: None}
            assert http.delete("/configs/broker=1").status_code == 200


@pytest.mark.parametrize("command", [["serve"], ["secrets", "rotate", "--cluster", "default", "--all"]])
@pytest.mark.parametrize(
    ("setting", "path", "content", "problem"),
    [
        ("server_properties.*", "server.properties", None, "can't be read: No such file or directory"),
        (
            "server_properties.3",
            "server.properties",
            b"ssl.key.password=planted\\uplanted",
            "is not a properties file: it has a \\u that is not followed by four hexadecimal digits",
        ),
        ("password_encoder.secret_file", "secret", None, "can't be read: No such file or directory"),
        (
            "password_encoder.secret_file",
            "secret",
            b"planted\nplanted",
            "has several lines; it must hold the secret alone",
        ),
        ("password_encoder.secret_file", "secret", b"planted\xff", "is not a text file in UTF-8"),
        ("policy_file", "rules.yaml", None, "can't be read: No such file or directory"),
    ],
)
def test_a_file_that_can_t_be_used_stops_every_command_with_one_line(
    tmp_path: Path, command: list[str], setting: str, path: str, content: bytes | None, problem: str
) -> None:
    file = tmp_path / path
    if content is not None:
        file.write_bytes(content)
    group, _, name = setting.partition(".")
    cluster = {group: {name: str(file)} if name else str(file)}
    service = Service(
        tmp_path / "service", connect="127.0.0.1:1", dsn="postgresql://u:p@127.0.0.1:1/d", cluster=cluster
    )
    said = commands.run(command, service._environment)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        "The settings are not valid:",
        f"  clusters.default.{setting}: {file} {problem}",
    ]
