"""A Kafka 4 cluster observed end to end: the commands, the API, strong reads, outages, and nothing written."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.client.errors import ProblemError
from confplane.connection_settings import KafkaSettings
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft_wiring import rules_of
from confplane.services.ports.cluster_states import Target
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType
from confplane.store.znodes import TARGET, encode_target
from tests.audit.rows import run
from tests.kraft.records import offsets
from tests.support import servers
from tests.support.catalogs import NEWEST
from tests.support.commands import Commands
from tests.support.kraft import PASSWORDS, kraft_cluster, random_id
from tests.support.kraft_writer import KraftWriter
from tests.support.ports import reserved_port
from tests.support.service import ServiceInThread
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.service import Service

CLUSTER, TOPIC, GROUP = 4, 2, 3
"""Types of resources in ACLs."""
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 8, 10, 11
"""Operations in ACLs."""


def settings_of(kraft: KraftCluster, **more: Any) -> dict[str, Any]:
    return {"kafka": {"bootstrap": kraft.bootstrap, **more}}


@pytest.fixture(scope="module")
def commands(
    kraft: KraftCluster, module_chroot: str, module_database: servers.Database, tmp_path_factory: pytest.TempPathFactory
) -> Commands:
    """Commands on that cluster."""
    directory = tmp_path_factory.mktemp("commands")
    return Commands(directory, connect=module_chroot, dsn=module_database.service_dsn, cluster=settings_of(kraft))


async def test_an_import_by_commands_writes_nothing_to_the_cluster(kraft: KraftCluster, commands: Commands) -> None:
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.quotas(
            ({"user": "target-alice"}, {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}),
            ({"user": "target-alice", "client-id": None}, {"consumer_byte_rate": 2e9}),
        )
        await writer.create_topics("target-orders", configs={"cleanup.policy": "delete,compact"})
        await writer.configs(
            (Resource(ConfigResourceType.BROKER, ""), {"log.retention.ms": "604800000"}),
            (Resource(ConfigResourceType.GROUP, ".."), {"consumer.session.timeout.ms": "46000"}),
        )
    before = await offsets(kraft)

    said = commands.run_here("target", "status")
    assert (said.code, said.out.strip()) == (0, "Cluster default has no target: its brokers read ZooKeeper")
    said = commands.run_here("target", "check")
    assert said.code == 0, said
    assert f"Kafka cluster {kraft.cluster_id}, release 4.4 (metadata.version 4.4-IV2), brokers 1" in said.out
    assert [line.split()[0] for line in said.out.splitlines() if line.split()[1:2] in (["full"], ["full,"])] == [
        area.value for area in KraftEntityType
    ]
    assert "barrier         yes" in said.out
    assert "topic table     none yet" in said.out
    assert "target          none yet" in said.out

    said = commands.run_here("target", "import")
    assert said.code == 0, said
    assert "Nothing was written; --apply writes" in said.out
    assert "..: " in said.out
    assert (
        commands.run_here("target", "status").out.strip() == "Cluster default has no target: its brokers read ZooKeeper"
    )

    said = commands.run_here("target", "import", "--apply")
    assert said.code == 0, said
    assert f"Cluster default follows the Kafka cluster {kraft.cluster_id} from now on" in said.out
    assert "Nothing to do" in commands.run_here("target", "import", "--apply").out
    said = commands.run_here("target", "status")
    assert f"Cluster default: observe cluster {kraft.cluster_id} (imported)" in said.out
    assert "groups, not storable in ZooKeeper: " in said.out

    assert await offsets(kraft) == before


@pytest.fixture(scope="module")
def service_options(kraft: KraftCluster, commands: Commands) -> dict[str, Any]:
    """The service observes the cluster."""
    assert commands.run_here("target", "import", "--apply").code == 0
    return {"cluster": settings_of(kraft)}


@pytest.mark.parametrize(("age", "outdated"), [("30 min", False), ("61 min", True)])
def test_the_check_says_that_the_list_of_topics_is_outdated(
    kraft: KraftCluster, chroot: str, migrated: servers.Database, tmp_path: Path, *, age: str, outdated: bool
) -> None:
    commands = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster=settings_of(kraft))
    run(migrated.owner_dsn, f"INSERT INTO topic_polls VALUES ('default', 1, now() - interval '{age}', 7)")  # noqa: S608 - constants
    found = commands.run_here("target", "check").out
    assert "topic table     7 topics, listed " in found
    assert ("outdated, it is more than an hour old" in found) == outdated


async def cluster_of(client: ConfplaneClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.request("GET", "/v1/clusters/default")).body
    return found


async def test_the_api_shows_the_target_and_its_freshness(kraft: KraftCluster, service: Service) -> None:
    async with KraftWriter(kraft.bootstrap[0]) as writer, service.client() as client:
        await writer.quotas(({"user": "target-forms"}, {"producer_byte_rate": 1000.0}))

        async def fresh() -> dict[str, Any] | None:
            target = (await cluster_of(client))["target"]
            areas = target["areas"] or {}
            polled = areas and all(each["observedAt"] for each in areas.values())
            return target if polled and target["topics"] is not None else None

        target = await until(fresh)
        assert target["topics"]["count"] >= target["areas"]["topics"]["entities"]
        assert not target["topics"]["outdated"]
        assert {key: target[key] for key in ("kind", "mode", "clusterId", "imported", "paused", "release")} == {
            "kind": "kraft",
            "mode": "observe",
            "clusterId": kraft.cluster_id,
            "imported": True,
            "paused": False,
            "release": "4.4",
        }
        assert target["problem"] is None
        assert {each["permission"] for each in target["areas"].values()} == {"read-only"}
        assert ".." in {each["name"] for each in target["areas"]["groups"]["unmanaged"]["first"]}

        async def followed() -> dict[str, Any] | None:
            answer = await client.request("GET", "client-quotas?user=target-forms&view=full")
            items: list[dict[str, Any]] = answer.body["items"]
            return items[0] if items else None

        resource = await until(followed)
        assert resource["quotas"] == {"producer_byte_rate": 1000}
        assert resource["status"]["observedAt"] >= resource["status"]["updatedAt"][:10]
        async with httpx.AsyncClient(trust_env=False) as plain:
            metrics = (await plain.get(f"{service.url}/metrics")).text
        assert 'confplane_observation_age_seconds{area="client-quotas",cluster="default"}' in metrics


async def test_a_strong_read_shows_an_outside_change_at_once(kraft: KraftCluster, service: Service) -> None:
    async with KraftWriter(kraft.bootstrap[0]) as writer, service.client() as client:
        for rate in range(1, 6):
            await writer.quotas(({"user": "target-strong"}, {"producer_byte_rate": float(rate)}))
            answer = await client.request("GET", "client-quotas/user=target-strong?consistency=strong&view=full")
            assert answer.body["quotas"] == {"producer_byte_rate": rate}
        await writer.quotas(({"user": "target-strong"}, {"producer_byte_rate": 6.0}))
        answer = await client.request("GET", "client-quotas/user=target-strong/effective?consistency=strong")
        assert [each["value"] for each in answer.body["quotas"]] == [6]
        await writer.create_topics("target-new", configs={"retention.ms": "1000"})
        answer = await client.request("GET", "configs?consistency=strong&topic=target-new")
        assert [each["configs"] for each in answer.body["items"]] == [{"retention.ms": "1000"}]
        await writer.quotas(({"user": "target-listed"}, {"producer_byte_rate": 7.0}))
        body = {"components": [{"entityType": "user", "matchType": 0, "match": "target-listed"}], "strict": True}
        answer = await client.request("POST", "client-quotas:describe?consistency=strong", json=body)
        assert [each["values"] for each in answer.body["entries"]] == [[{"key": "producer_byte_rate", "value": 7}]]
        await writer.delete_topics("target-new")
        answer = await client.request("GET", "configs?consistency=strong&topic=target-new")
        assert answer.body["items"] == []


async def test_callers_write_client_configs_only(service: Service) -> None:
    async with service.client() as client:
        with pytest.raises(ProblemError) as caught:
            await client.request("PUT", "client-quotas/user=x", json={"quotas": {"producer_byte_rate": 1}})
        assert (caught.value.status, caught.value.body["type"]) == (409, "/problems/observed")
        answer = await client.request("PUT", "client-configs/user=x?view=full", json={"configs": {"acks": "all"}})
        assert "observedAt" not in answer.body["status"]


async def test_pause_and_resume(kraft: KraftCluster, commands: Commands, service: Service) -> None:
    async with KraftWriter(kraft.bootstrap[0]) as writer, service.client() as client:
        path = "client-quotas?user=target-paused"
        said = commands.run_here("target", "pause", "--reason", "a drill")
        assert said.code == 0, said
        await until_warned(client, "is paused")
        assert (await cluster_of(client))["target"]["paused"]
        await writer.quotas(({"user": "target-paused"}, {"producer_byte_rate": 5.0}))
        # Nothing is observed, so nothing is polled: the read is that of the mirror.
        assert (await client.request("GET", f"{path}&consistency=strong")).body["items"] == []
        assert commands.run_here("target", "resume", "--reason", "it is over").code == 0

        async def followed() -> Any:
            return (await client.request("GET", path)).body["items"]

        assert (await until(followed))[0]["quotas"] == {"producer_byte_rate": 5}
        trail = (await client.request("GET", "audit?entity=user=target-paused")).body["items"]
        assert [(each["kind"], each["principal"], each["outcome"]) for each in trail] == [
            ("observed", "External:unknown", "committed")
        ]


async def test_missing_rights_turn_off_their_parts_alone(
    kraft: KraftCluster, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    # Alice's rights are this test's alone; bob's are another one's.
    (node,) = kraft.nodes
    password = tmp_path / "password"
    password.write_text(PASSWORDS["alice"] + "\n")
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "alice", "password_file": str(password)}
    settings = KafkaSettings.model_validate({"bootstrap": [node.listener("SASL")], "sasl": sasl})
    cluster = Cluster("test", settings, rules_of(lambda: NEWEST), lambda: None)

    async def permitted() -> dict[KraftEntityType, EntityTypePermission]:
        found = await cluster.permissions(time.monotonic() + 30)
        return {area: granted.permission for area, granted in found.items()}

    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics("target-rights")
        found = await cluster.permissions(time.monotonic() + 30)
        assert {area for area, each in found.items() if each.permission is EntityTypePermission.NONE} == {
            KraftEntityType.QUOTAS,
            KraftEntityType.BROKERS,
            KraftEntityType.GROUPS,
            KraftEntityType.CLIENT_METRICS,
        }
        assert found[KraftEntityType.QUOTAS][1].endswith("needed: DESCRIBE_CONFIGS on CLUSTER")
        assert "DESCRIBE on TOPIC is missing" in found[KraftEntityType.TOPICS][1]

        await writer.allow("User:alice", [(TOPIC, "target-rights", DESCRIBE)])
        await until(lambda: _topics_refused(cluster))
        await writer.allow("User:alice", [(CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS)])

        async def all_but_groups() -> bool:
            return (await permitted())[KraftEntityType.CLIENT_METRICS] is EntityTypePermission.READ_ONLY

        await until(all_but_groups)
        expected = {
            **dict.fromkeys(KraftEntityType, EntityTypePermission.READ_ONLY),
            KraftEntityType.GROUPS: EntityTypePermission.NONE,
        }
        assert await permitted() == {**expected, KraftEntityType.TOPICS: EntityTypePermission.NONE}
        # Without the right to describe the quorum, a poll waits until the broker has heard of changes.
        assert "DescribeQuorum is not permitted" in (await cluster.unproven(time.monotonic() + 30) or "")
        began = time.monotonic()
        offset = await cluster.barrier(began + 30)
        assert offset > 0
        assert time.monotonic() - began >= 1.0

        cluster_settings = {"kafka": {"bootstrap": [node.listener("SASL")], "sasl": sasl}}
        chroot, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
        partial = Commands(tmp_path, connect=chroot, dsn=database.service_dsn, cluster=cluster_settings)
        said = partial.run_here("target", "check")
        assert said.code == 1
        assert "Can't be followed: topics, groups. Everything else can" in said.err
        assert "barrier         no: " in said.out
        assert "would wait: client-quotas, topics, brokers, groups, client-metrics" in said.out
        assert "needed for callers' changes: ALTER_CONFIGS on CLUSTER" in said.out
        said = partial.run_here("target", "import", "--apply")
        assert said.code == 0, said
        assert "groups          not permitted, left out: " in said.out
        with ServiceInThread(
            tmp_path / "s", connect=chroot, dsn=database.service_dsn, cluster=cluster_settings
        ) as service:
            async with service.client() as client:
                await until_warned(client, "does not permit reads of its groups")
                await writer.quotas(({"user": "target-rights"}, {"producer_byte_rate": 3.0}))
                path = "client-quotas/user=target-rights?consistency=strong"
                assert (await client.request("GET", path)).body["quotas"] == {"producer_byte_rate": 3}
                await altered_without_a_right(client, writer, partial)
        assert PASSWORDS["alice"] not in said.out + said.err + service.tail()
    await cluster.close()


async def altered_without_a_right(client: ConfplaneClient, writer: KraftWriter, commands: Commands) -> None:
    """Alter quotas with the right to, and a topic without; then with the right."""
    topic = "configs/topic=target-rights"
    topics = [(TOPIC, "target-rights", each) for each in (DESCRIBE_CONFIGS, ALTER_CONFIGS)]
    await writer.allow("User:alice", [(CLUSTER, "kafka-cluster", ALTER_CONFIGS), topics[0]])

    async def checked() -> bool:
        return "would wait: topics, groups" in commands.run_here("target", "check").out

    await until(checked)
    said = commands.run_here("target", "adopt", "--reason", "a test")
    assert said.code == 0, said
    body = {"quotas": {"producer_byte_rate": 4}}

    async def applied(path: str, body: dict[str, Any]) -> str:
        answer = await client.request("PUT", path, json=body, headers={"Confplane-Wait-Applied": "1000"})
        return str(answer.body["applied"]["state"])

    # Refused until the process knows the mode.
    await until(lambda: _taken(client, "client-quotas/user=target-rights", body))
    await until(lambda: _is(applied("client-quotas/user=target-rights", body), "applied"))
    ops = [{"name": "retention.ms", "configOperation": "SET", "value": "7000"}]
    resource = {"resourceType": "TOPIC", "resourceName": "target-rights", "configs": ops}
    written = await client.request("POST", "configs:incrementalAlter", json={"resources": [resource]})
    assert any("was not asked" in each for each in written.body["responses"][0]["warnings"])
    await until_warned(client, "some changes are blocked and will be retried one at a time")
    await writer.allow("User:alice", topics[1:])
    await until(lambda: _is(applied(topic, {"configs": {"retention.ms": "7000"}}), "applied"))


async def _is(answer: Awaitable[str], wanted: str) -> bool:
    return await answer == wanted


async def _taken(client: ConfplaneClient, path: str, body: dict[str, Any]) -> bool:
    try:
        await client.request("PUT", path, json=body)
    except ProblemError as problem:
        assert problem.body["type"] == "/problems/observed", problem
        return False
    return True


async def _topics_refused(cluster: Cluster) -> bool:
    granted = (await cluster.permissions(time.monotonic() + 30))[KraftEntityType.TOPICS]
    return granted.permission is EntityTypePermission.NONE and "DESCRIBE_CONFIGS on TOPIC" in granted.reason


async def test_another_cluster_is_never_followed(
    kraft: KraftCluster, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    chroot, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
    theirs = Target(random_id(), imported=True)
    commands = Commands(tmp_path / "commands", connect=chroot, dsn=database.service_dsn, cluster=settings_of(kraft))
    with ServiceInThread(tmp_path, connect=chroot, dsn=database.service_dsn, cluster=settings_of(kraft)) as service:
        for raw in servers.raw_client(chroot):
            _set_target(raw, theirs)
        async with service.client() as client:
            await until_warned(client, f"belongs to the cluster {kraft.cluster_id}")
            said = commands.run_here("target", "check")
            assert said.code == 1
            assert f"belong to the cluster {kraft.cluster_id}, and {theirs.cluster_id} is followed" in said.err
            assert theirs.cluster_id in json.dumps((await client.request("GET", "/readyz")).body)
            assert (await client.request("GET", "client-quotas")).body["items"] == []
            with pytest.raises(ProblemError) as caught:
                await client.request("GET", "client-quotas?consistency=strong")
            assert caught.value.status == 503
            # The right cluster again: the observation goes on by itself.
            for raw in servers.raw_client(chroot):
                _set_target(raw, replace(theirs, cluster_id=kraft.cluster_id))

            async def followed() -> bool:
                return bool((await client.request("GET", "client-quotas")).body["items"])

            await until(followed)


def test_the_check_needs_no_zookeeper(kraft: KraftCluster, postgres: Postgres, tmp_path: Path) -> None:
    database = servers.make_migrated(postgres)
    connect = f"127.0.0.1:{reserved_port()}/none"
    commands = Commands(tmp_path, connect=connect, dsn=database.service_dsn, cluster=settings_of(kraft))
    said = commands.run_here("target", "check")
    assert said.code == 0, said
    assert "target          not known: " in said.out


def _set_target(raw: KazooClient, target: Target) -> None:
    raw.set(TARGET, encode_target(target))


async def test_a_cluster_that_is_away_at_the_start_and_later(
    zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path, kraft_class_path: str
) -> None:
    chroot, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
    with kraft_cluster(tmp_path / "kafka", kraft_class_path) as kraft:
        (node,) = kraft.nodes
        own = settings_of(kraft)
        commands = Commands(tmp_path, connect=chroot, dsn=database.service_dsn, cluster=own)
        async with KraftWriter(kraft.bootstrap[0]) as writer:
            await writer.quotas(({"user": "early"}, {"producer_byte_rate": 1.0}))
        assert commands.run_here("target", "import", "--apply").code == 0
        node.kill()
        said = commands.run_here("target", "check")
        assert said.code == 1
        assert "Not checked: " in said.err
        with ServiceInThread(tmp_path / "s", connect=chroot, dsn=database.service_dsn, cluster=own) as service:
            async with service.client() as client:
                await until_warned(client, "is not observed now")
                path = "client-quotas/user=early"
                assert (await client.request("GET", path)).body["quotas"] == {"producer_byte_rate": 1}
                with pytest.raises(ProblemError) as caught:
                    await client.request("GET", f"{path}?consistency=strong")
                assert caught.value.status == 503
                node.start()
                async with KraftWriter(kraft.bootstrap[0]) as writer:
                    await writer.quotas(({"user": "late"}, {"producer_byte_rate": 2.0}))

                async def followed() -> bool:
                    items = (await client.request("GET", "client-quotas")).body["items"]
                    return [each["id"] for each in items] == ["user=early", "user=late"]

                await until(followed)

                async def well() -> bool:
                    return not (await client.request("GET", "/readyz")).body["warnings"]

                await until(well)
