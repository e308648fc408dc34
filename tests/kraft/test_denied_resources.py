"""A denied topic or group is listed by name, and hides no other; what was followed of it stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client.errors import ProblemError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.support import servers
from tests.support.commands import Commands
from tests.support.kraft import random_id, unsecured_token
from tests.support.kraft_writer import KraftWriter
from tests.support.service import ServiceInThread
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster

CLUSTER, TOPIC, GROUP = 4, 2, 3
"""Types of resources in ACLs."""
DESCRIBE, DESCRIBE_CONFIGS = 8, 10
"""Operations in ACLs."""
HIDDEN, LATER, SHOWN = (f"{each}-{random_id()}" for each in ("hidden", "later", "shown"))
USER = "User:dora"
RIGHTS = [
    (CLUSTER, "kafka-cluster", DESCRIBE), (CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS),
    (TOPIC, "*", DESCRIBE), (TOPIC, "*", DESCRIBE_CONFIGS), (GROUP, "*", DESCRIBE_CONFIGS),
]  # fmt: skip


def _topic(name: str) -> Resource:
    return Resource(ConfigResourceType.TOPIC, name)


async def _config(client: ConfplaneClient, entity: str) -> dict[str, str]:
    return dict((await client.request("GET", f"configs/{entity}")).body["configs"])


async def _denied(client: ConfplaneClient, area: str) -> set[str]:
    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
    return {each["name"] for each in target["areas"][area]["denied"]["first"]}


@pytest.mark.timeout(600)
async def test_a_denied_topic_or_group_hides_no_other(
    kraft: KraftCluster, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    (node,) = kraft.nodes
    token = tmp_path / "token"
    token.write_text(unsecured_token("dora"))
    sasl = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
    cluster: dict[str, Any] = {"kafka": {"bootstrap": [node.listener("SASL")], "sasl": sasl}}
    chroot, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
    commands = Commands(tmp_path, connect=chroot, dsn=database.service_dsn, cluster=cluster)
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.create_topics(HIDDEN, LATER, SHOWN, configs={"retention.ms": "1000"})
        await writer.configs(
            *(
                (Resource(ConfigResourceType.GROUP, name), {"consumer.session.timeout.ms": "46000"})
                for name in ("denied-group", "shown-group")
            )
        )
        await writer.allow(USER, RIGHTS)
        await writer.allow(
            USER, [(TOPIC, HIDDEN, DESCRIBE_CONFIGS), (GROUP, "denied-group", DESCRIBE_CONFIGS)], deny=True
        )

        async def denied() -> bool:
            return "not described: denied-group" in commands.run_here("target", "check").out

        await until(denied)
        said = commands.run_here("target", "check")
        assert said.code == 1
        (line,) = [each for each in said.out.splitlines() if each.split()[0] == "topics"]
        counts = re.search(rf"read only, (\d+) of (\d+) described: not described: {HIDDEN}; needed: DESCRIBE", line)
        assert counts, line
        described, total = map(int, counts.groups())
        assert total - described == 1
        assert f"Can't be followed: 1 of {total} topics, 1 of " in said.err

        said = commands.run_here("target", "import", "--apply")
        assert said.code == 0, said
        assert f"topic={HIDDEN}: " in said.out
        assert "needed: DESCRIBE_CONFIGS on GROUP" in said.out
        with ServiceInThread(tmp_path / "s", connect=chroot, dsn=database.service_dsn, cluster=cluster) as service:
            async with service.client() as client:
                await _followed(client, writer)
                assert "topics, not permitted: 1" in commands.run_here("target", "status").out
                await _denied_later(client, writer)


async def _followed(client: ConfplaneClient, writer: KraftWriter) -> None:
    """The denied resources are named, and the others are followed."""
    await until_warned(client, "does not permit reads of some of its topics")
    await until_warned(client, "does not permit reads of some of its groups")
    assert await _denied(client, "topics") == {f"topic={HIDDEN}"}
    assert await _denied(client, "groups") == {"group=denied-group"}
    await writer.configs((_topic(SHOWN), {"retention.ms": "2000"}))
    shown = await client.request("GET", f"configs/topic={SHOWN}?consistency=strong")
    assert shown.body["configs"] == {"retention.ms": "2000"}
    assert await _config(client, "group=shown-group") == {"consumer.session.timeout.ms": "46000"}
    with pytest.raises(ProblemError) as caught:
        await client.request("GET", f"configs/topic={HIDDEN}?consistency=strong")
    assert caught.value.status == 503
    assert "needed: DESCRIBE_CONFIGS on TOPIC" in caught.value.body["detail"]


async def _denied_later(client: ConfplaneClient, writer: KraftWriter) -> None:
    """The config of a topic that is denied later stays, even if the cluster no longer lists the topic."""
    rights = [(TOPIC, LATER, each) for each in (DESCRIBE, DESCRIBE_CONFIGS)]
    await writer.allow(USER, rights, deny=True)

    async def denied() -> bool:
        return await _denied(client, "topics") == {f"topic={HIDDEN}", f"topic={LATER}"}

    await until(denied)
    await writer.configs((_topic(LATER), {"retention.ms": "3000"}))
    assert await _config(client, f"topic={LATER}") == {"retention.ms": "1000"}
    for kind, name, operation in rights:
        await writer.end_denial(USER, kind, name, operation)

    async def followed() -> bool:
        return await _config(client, f"topic={LATER}") == {"retention.ms": "3000"}

    await until(followed)

    async def permitted() -> bool:
        return await _denied(client, "topics") == {f"topic={HIDDEN}"}

    await until(permitted)
