"""``confplane doctor`` on a Kafka 4 cluster: it finds each planted fault with its remedy, and nothing else of Kafka."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.services.ports.cluster_states import Target, TargetMode
from confplane.store.znodes import TARGET, encode_target
from tests.support.commands import Commands
from tests.support.kraft import random_id, unsecured_token
from tests.support.kraft_writer import KraftWriter
from tests.support.ports import reserved_port
from tests.support.servers import make_chroot, raw_client
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.kraft import KraftCluster
    from tests.support.servers import Database

TOPIC, GROUP, CLUSTER = 2, 3, 4
"""Types of resources in ACLs."""
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 8, 10, 11
"""Operations in ACLs."""
USER: Final = "User:doctor"
RIGHTS: Final = [
    *((CLUSTER, "kafka-cluster", operation) for operation in (DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    *((TOPIC, "*", operation) for operation in (DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    *((GROUP, "*", operation) for operation in (DESCRIBE_CONFIGS, ALTER_CONFIGS)),
]
ADOPTED: Final[dict[str, Any]] = {"mode": TargetMode.ADOPT, "imported": True}


@dataclass
class Site:
    """An installation whose clients write to a Kafka cluster, with a login that has all rights that this needs."""

    kraft: KraftCluster
    zk: KazooClient
    environment: dict[str, str]

    def diagnose(self, **more: str) -> list[dict[str, str]]:
        """Return the findings about Kafka."""
        answer = CliRunner().invoke(cli, ["doctor", "--json"], env=self.environment | more, catch_exceptions=False)
        findings: list[dict[str, str]] = json.loads(answer.stdout)["findings"]
        return [each for each in findings if each["check"].startswith("kafka")]

    def wait_until_healthy(self) -> None:
        """Wait until there are no findings: brokers learn of rights with a delay."""
        wait_for(lambda: self.diagnose() == [], why=lambda: str(self.diagnose()))

    def set_target(self, target: Target) -> None:
        self.zk.set(TARGET, encode_target(target))

    def with_kafka(self, **options: Any) -> dict[str, str]:
        """Return the variable of the environment with other options of Kafka."""
        clusters = json.loads(self.environment["CONFPLANE_CLUSTERS"])
        clusters["default"]["kafka"] |= options
        return {"CONFPLANE_CLUSTERS": json.dumps(clusters)}


@pytest.fixture(scope="module")
def site(
    kraft: KraftCluster, module_chroot: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("doctor")
    token = directory / "token"
    token.write_text(unsecured_token("doctor"))
    sasl = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
    kafka = {"bootstrap": [kraft.nodes[0].listener("SASL")], "sasl": sasl}
    commands = Commands(directory, connect=module_chroot, dsn=module_database.service_dsn, cluster={"kafka": kafka})

    async def prepare() -> None:
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.create_topics(f"doctor-{random_id()}")
            await writer.allow(USER, RIGHTS)

    asyncio.run(prepare())
    for zk in raw_client(module_chroot):
        zk.ensure_path(TARGET)
        made = Site(kraft, zk, commands.environment)
        made.set_target(Target(kraft.cluster_id, **ADOPTED))
        made.wait_until_healthy()
        yield made


class Fault(NamedTuple):
    """A fault, and all findings that it has: the check, its severity, its object and a part of its command."""

    plant: Callable[[Site], AbstractContextManager[dict[str, str]]]
    """Makes the fault, yields more variables of the environment, and takes the fault back."""
    expected: list[tuple[str, str, str, str]]


def denied(kind: int, operation: int) -> Callable[[Site], AbstractContextManager[dict[str, str]]]:
    name = "kafka-cluster" if kind == CLUSTER else "*"

    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        async def deny() -> None:
            async with KraftWriter(site.kraft.bootstrap[0]) as writer:
                await writer.allow(USER, [(kind, name, operation)], deny=True)

        async def permit() -> None:
            async with KraftWriter(site.kraft.bootstrap[0]) as writer:
                await writer.end_denial(USER, kind, name, operation)

        asyncio.run(deny())
        try:
            yield {}
        finally:
            asyncio.run(permit())

    return planted


def target(**members: Any) -> Callable[[Site], AbstractContextManager[dict[str, str]]]:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        site.set_target(Target(**{"cluster_id": site.kraft.cluster_id, **ADOPTED, **members}))
        try:
            yield {}
        finally:
            site.set_target(Target(site.kraft.cluster_id, **ADOPTED))

    return planted


@contextmanager
def away(site: Site) -> Iterator[dict[str, str]]:
    yield site.with_kafka(bootstrap=[f"127.0.0.1:{reserved_port()}"], request_timeout_ms=2000)


@contextmanager
def without_login(site: Site) -> Iterator[dict[str, str]]:
    """Name a listener of a controller that does not accept this kind of login."""
    yield site.with_kafka(controllers=[site.kraft.nodes[0].controller])


def right(name: str, options: str) -> tuple[str, str, str, str]:
    return "kafka-right", "error", f"of {name} can't be", options


FAULTS: Final = {
    "away": Fault(away, [("kafka-unavailable", "error", "", "confplane target check --cluster default")]),
    "of another cluster": Fault(
        target(cluster_id="another"), [("kafka-other", "error", "another is followed", "KAFKA__BOOTSTRAP")]
    ),
    "paused": Fault(target(paused=True), [("kafka-paused", "warning", "paused", "confplane target resume")]),
    "topics can't be altered": Fault(
        denied(TOPIC, ALTER_CONFIGS), [right("topics", "--operation AlterConfigs --topic '*'")]
    ),
    "groups can't be altered": Fault(
        denied(GROUP, ALTER_CONFIGS), [right("groups", "--operation AlterConfigs --group '*'")]
    ),
    "nothing else can be altered": Fault(
        denied(CLUSTER, ALTER_CONFIGS),
        [right(name, "--operation AlterConfigs --cluster") for name in ("brokers", "client-metrics", "client-quotas")],
    ),
    "topics can't be described": Fault(
        denied(TOPIC, DESCRIBE_CONFIGS),
        [right("topics", "--operation Describe --operation DescribeConfigs --topic '*'")],
    ),
    "nothing else can be described": Fault(
        denied(CLUSTER, DESCRIBE_CONFIGS),
        [
            right("brokers", "--operation DescribeConfigs --cluster"),
            right("client-metrics", "--operation DescribeConfigs --cluster"),
            right("client-quotas", "--operation DescribeConfigs --cluster"),
            right("groups", "--operation DescribeConfigs --cluster --group '*'"),
        ],
    ),
    "no barrier": Fault(
        denied(CLUSTER, DESCRIBE), [("kafka-barrier", "warning", "no barrier", "--operation Describe --cluster")]
    ),
    "no log": Fault(without_login, [("kafka-log", "warning", "metadata log", "confplane target check")]),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_found(site: Site, fault: Fault) -> None:
    with fault.plant(site) as given:
        found: list[dict[str, str]] = []

        def is_found() -> bool:
            found[:] = sorted(site.diagnose(**given), key=lambda finding: finding["text"])
            return len(found) == len(fault.expected)

        wait_for(is_found, why=lambda: str(found))
    for each, (check, severity, text, command) in zip(found, fault.expected, strict=True):
        assert (each["check"], each["severity"]) == (check, severity)
        assert text in each["text"]
        assert command in each["command"]
    site.wait_until_healthy()


def test_two_clusters_that_write_to_one_kafka_cluster_are_found(site: Site, zookeeper: ZooKeeper) -> None:
    other = make_chroot(zookeeper.hosts)
    for zk in raw_client(other):
        zk.create(TARGET, encode_target(Target(site.kraft.cluster_id, **ADOPTED)), makepath=True)
    clusters = json.loads(site.environment["CONFPLANE_CLUSTERS"])
    clusters["other"] = {**clusters["default"], "zookeeper": other}
    [found] = site.diagnose(CONFPLANE_CLUSTERS=json.dumps(clusters))
    assert (found["check"], found["severity"]) == ("kafka-shared", "error")
    assert "confplane target observe --cluster other" in found["command"]
