"""``confplane export --format kafka-configs``, played into a cluster by Kafka's own tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.cli.remote.export_forms import export, form_of
from confplane.cli.remote.selection import EntitySelection
from confplane.domain.entities import Entity
from confplane.domain.facets import Tree, full_path
from tests.interop.entities import CLIENT_QUOTAS, IP_QUOTAS
from tests.interop.values import AS_DEFAULT, ON_TOPIC
from tests.support.broker import BROKER_ID
from tests.support.odd_configs import NAMES
from tests.support.scripts import calls

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.interop.admin import Admin
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

TOPIC: Final = "exported"
_QUOTAS: Final = {**CLIENT_QUOTAS, "controller_mutation_rate": 0.0001, "producer_byte_rate": 2**63 - 1}
QUOTAS: Final[dict[Entity, dict[str, float]]] = {
    Entity.of(ip="10.9.8.3"): IP_QUOTAS,
    Entity.of(user="exported"): _QUOTAS,
    Entity.of(user="exported", client_id=None): {"request_percentage": 12345.6},
    **{Entity.of(user=name, client_id=f"exported{name}"): {"consumer_byte_rate": 5} for name in NAMES},
    **{Entity.of(client_id=f"exported{name}"): {"consumer_byte_rate": 6} for name in NAMES},
    **{Entity.of(user=name): {"consumer_byte_rate": 7} for name in NAMES},
}
CONFIGS: Final[dict[Entity, dict[str, str]]] = {
    Entity.of(topic=TOPIC): {**ON_TOPIC, "message.timestamp.difference.max.ms": "5"},
    Entity.of(broker=None): {key: value for key, value in AS_DEFAULT.items() if "custom" not in key},
    Entity.of(broker=str(BROKER_ID)): {"message.max.bytes": " 1500000", "log.cleanup.policy": "delete,compact"},
}


def stored(zk: KazooClient) -> dict[str, Any]:
    """The configs of all entities here, as the znodes have them."""
    return {
        entity.id: json.loads(zk.get(full_path(Tree.CONFIG, entity))[0])["config"] for entity in (*QUOTAS, *CONFIGS)
    }


@pytest.mark.usefixtures("restored")
async def test_commands_of_an_export_give_equal_znodes(
    client: ConfplaneClient, admin: Admin, zk: KazooClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Kafka's tool has no client configs, so an export with those of other tests would not be complete.
    for item in [item async for item in client.items("client-configs")]:
        await client.delete("client-configs", item["id"])
    admin.create_topics(TOPIC)
    for entity, quotas in QUOTAS.items():
        await client.put("client-quotas", entity, quotas)
    for entity, configs in CONFIGS.items():
        await client.put("configs", entity, configs)
    before = stored(zk)
    script = tmp_path / "all.sh"
    form = form_of("kafka-configs", None)
    assert await export(client, form, EntitySelection({}), script) == 0, capsys.readouterr().err
    for entity in QUOTAS:
        await client.delete("client-quotas", entity)
    for entity in CONFIGS:
        await client.delete("configs", entity)
    assert not any(stored(zk).values())
    # Its start takes seconds, so a Java process that runs is given the words.
    commands = calls(script, "kafka-configs.sh", tmp_path, BOOTSTRAP="b:9092")
    assert len(commands) >= len(before)
    for server, address, *words in commands:
        assert (server, address) == ("--bootstrap-server", "b:9092")
        status, output = admin.config_command(*words)
        assert status == 0, f"{words}: {output}"
    assert stored(zk) == before
