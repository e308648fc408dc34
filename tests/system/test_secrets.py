"""Passwords under an old encoder secret, files of brokers, and files of the settings that can't be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from tests.support import commands
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

SECRET: Final = "the-secret"
OLD: Final = "the-secret-before"
KEY: Final = "listener.name.external.ssl.key.password"
KEYSTORE: Final = "listener.name.external.ssl.keystore.password"
FILE_0: Final = """\
# The first broker.
broker.id=0
num.io.threads=12
log.retention.hours = 48
"""
FILE_OTHERS: Final = "num.io.threads=6\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("secrets")
    for name, text in {"secret": SECRET, "old": OLD, "server-0": FILE_0, "server": FILE_OTHERS}.items():
        (found / name).write_text(text)
    return found


@pytest.fixture(scope="module")
def service_options(directory: Path) -> dict[str, Any]:
    encoder = {"secret_file": str(directory / "secret"), "old_secret_file": str(directory / "old")}
    files = {"0": str(directory / "server-0"), "*": str(directory / "server")}
    return {"cluster": {"password_encoder": encoder, "server_properties": files}}


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
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


def effective(http: httpx.Client, broker: int) -> dict[str, tuple[str | None, str]]:
    found = http.get(f"/configs/broker={broker}/effective").json()["configs"]
    return {item["key"]: (item["value"], item["source"]) for item in found}


def test_the_file_of_all_brokers_is_that_of_a_broker_without_one_of_its_own(http: httpx.Client) -> None:
    named, other = effective(http, 0), effective(http, 1)
    assert named["num.io.threads"] == ("12", "STATIC_BROKER_CONFIG")
    assert named["log.retention.hours"] == ("48", "STATIC_BROKER_CONFIG")
    assert other["num.io.threads"] == ("6", "STATIC_BROKER_CONFIG")
    assert other["log.retention.hours"] == ("168", "DEFAULT_CONFIG")


@pytest.mark.parametrize(
    ("setting", "path", "content", "problem"),
    [
        ("server_properties.*", "server.properties", None, "can't be read: No such file or directory"),
        ("password_encoder.secret_file", "secret", b"planted\xff", "is not a text file in UTF-8"),
        ("policy_file", "rules.yaml", None, "can't be read: No such file or directory"),
    ],
)
def test_a_file_that_can_t_be_used_is_named_before_the_service_starts(
    tmp_path: Path, setting: str, path: str, content: bytes | None, problem: str
) -> None:
    file = tmp_path / path
    if content is not None:
        file.write_bytes(content)
    group, _, name = setting.partition(".")
    cluster = {group: {name: str(file)} if name else str(file)}
    service = Service(
        tmp_path / "service", connect="127.0.0.1:1", dsn="postgresql://u:p@127.0.0.1:1/d", cluster=cluster
    )
    said = commands.run(["serve"], service._environment)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        "The settings are not valid:",
        f"  clusters.default.{setting}: {file} {problem}",
    ]
