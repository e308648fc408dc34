"""Every kind of row that the trail has, made by what makes it, is as the specification of ``GET /audit`` says."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from uuid_utils.compat import uuid7

from confplane.cli import callers, store, upkeep
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, Mode
from confplane.services.ports.trail import Intent, IntentEntity, Outcome
from tests.audit.rows import fetch
from tests.contract.api import FILE
from tests.support.kafka_double import KafkaDouble
from tests.support.observing import Observing
from tests.support.replicas import Backup, Replica
from tests.support.stores import ALICE, BILLING, kafka_writes, soon
from tests.support.world import World
from tests.unit.client.generate import specification

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.settings import Settings
    from tests.support.servers import Database
    from tests.support.service import Service

QUOTAS, CLIENTS, CONFIGS = FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS, FacetName.CONFIGS
TOPIC, BROKER = Entity.of(topic="orders"), Entity.of(broker="3")
KEYSTORE: Final = "listener.name.external.ssl.keystore.location"
PASSWORD: Final = "listener.name.external.ssl.keystore.password"
RENAMED: Final = {ConfigKind.TOPIC: {"flush.ms": "segment.ms"}}


class Rows:
    """Makes rows on one cluster: our own changes by a replica, all else by what does it in operation."""

    def __init__(self, replica: Replica, zk: KazooClient) -> None:
        self.replica = replica
        self.zk = zk

    async def follows(self) -> None:
        """An import of a Kafka cluster; later changes there, one of them put back; a keystore that is loaded again.

        Then the brokers read ZooKeeper again.
        """
        followed, kafka = Entity.of(user="followed"), KafkaDouble()
        kafka.alter(followed, {"producer_byte_rate": "1"})
        one = Observing(self.replica, kafka)
        await one.import_all()
        kafka.alter(followed, {"producer_byte_rate": "2"})
        await one.poll()
        await one.set_mode("enforce")
        kafka.alter(followed, {"producer_byte_rate": "3"})
        await one.poll()
        for _ in range(2):
            await self._edit(CONFIGS, Entity.of(broker="1"), Op(KEYSTORE, OpType.SET, "/etc/kafka/keystore.jks"))
        self.zk.set("/confplane/target", b"")
        await one.aware()

    async def alters(self) -> None:
        """Changes by the API: each facet, each op, values of each kind, secrets."""
        large = [Op("producer_byte_rate", OpType.SET, 2**63 - 1), Op("request_percentage", OpType.SET, 0.5)]
        await self._edit(QUOTAS, ALICE, *large)
        await self._edit(QUOTAS, ALICE, Op("request_percentage", OpType.DELETE))
        await self._edit(QUOTAS, BILLING, Op("consumer_byte_rate", OpType.SET, 5), mode=Mode.REPLACE)
        await self._edit(QUOTAS, BILLING, mode=Mode.REPLACE)
        await self._edit(CLIENTS, Entity.of(user="caf\u00e9 ="), Op("acks", OpType.SET, "all"), mode=Mode.CREATE)
        listed = "cleanup.policy"
        for kind, value in ((OpType.SET, "compact"), (OpType.APPEND, "delete"), (OpType.SUBTRACT, "compact")):
            await self._edit(CONFIGS, TOPIC, Op(listed, kind, value))
        await self._edit(CONFIGS, TOPIC, Op(listed, OpType.DELETE), Op("flush.ms", OpType.SET, "7"))
        await self._edit(CONFIGS, BROKER, Op(PASSWORD, OpType.SET, "hidden"))
        await self._edit(CONFIGS, Entity.of(broker=None), Op("x.unknown", OpType.SET, "hidden"))
        ops = {QUOTAS: Op("producer_byte_rate", OpType.SET, 9), CLIENTS: Op("acks", OpType.DELETE)}
        result = await self.replica.edit_facets(Entity.of(user="caf\u00e9 ="), ops)
        assert result.change_id is not None, result
        both = [Edit(Entity.of(user=name), (Op("acks", OpType.SET, "1"),)) for name in ("one", "two")]
        await self._done(CLIENTS, both, atomic=True)

    async def ends(self) -> None:
        """A change that was rejected after its intent."""
        intent = self._intent()
        await self.replica.audit.intend([intent])
        refused = Outcome(intent.change_id, 1, intent.cluster, committed=False, error_code=42, error="refused")
        await self.replica.audit.conclude([refused])

    async def opens(self) -> None:
        """A change without an outcome, whose writer is there."""
        await self.replica.audit.intend([self._intent()])

    async def commands(self) -> None:
        """Changes by the commands of operators."""
        self._legacy()
        await self._run(lambda it: store.import_kip5(it, "default", "/brokers/config", apply=True, overwrite=True))
        for change in (store.freeze, store.thaw):
            await self._run(partial(_changed, change=change))
        await self._run(lambda it: store.upgrade_keys(it, "default", apply=True, table=RENAMED))
        await self._run(lambda it: upkeep.rotate_secrets(it, "default", None, None))
        for target in (Tree.CLIENT_CONFIGS, Tree.CONFIG, Tree.CLIENT_CONFIGS):
            await self._run(partial(_moved, to=target))
        kafka_writes(self.zk, "users/ghost", b'{"version":1,"config":{"acks":"0","producer_byte_rate":"5"}}')
        await self._run(lambda it: upkeep.move_layout(it, "default", Tree.CLIENT_CONFIGS, apply=True, discard=True))
        await self._run(lambda it: store.compact(it, "default", older_than_s=0, apply=True))

    async def others(self) -> None:
        """Writes past this service, sound and not, and deletions."""
        odd = "users/%7E%00", "clients/kafka", "topics/-._", "brokers/7"
        for path in odd:
            kafka_writes(self.zk, path, b'{"version":1,"config":{"x.y":"1","SCRAM-SHA-256":"salt=a","x":"2"}}')
        kafka_writes(self.zk, "ips/10.0.0.1", b'{"version":1,"config":{"connection_creation_rate":"1"}}')
        await self.replica.record()
        kafka_writes(self.zk, "topics/-._", b"no json")
        kafka_writes(self.zk, "users/alice", b'{"version":1,"config":{"producer_byte_rate":"NaN","acks":"1"}}')
        self.zk.delete("/config/clients/kafka")
        kafka_writes(self.zk, "clients/other", b"")
        self.replica.recorder.server = "the one before"  # so that all is compared
        await self.replica.record()

    async def lost(self, owner_dsn: str) -> None:
        """A change that Postgres lost and its marker proves."""
        backup = Backup(owner_dsn)
        await self._done(QUOTAS, [Edit(BILLING, (Op("consumer_byte_rate", OpType.SET, 6),))])
        backup.restore()
        self.replica.recorder.server = "the one before"
        await self.replica.record()

    async def _edit(self, facet: FacetName, entity: Entity, *ops: Op, mode: Mode = Mode.ALTER) -> None:
        await self._done(facet, [Edit(entity, ops, mode=mode)])

    async def _done(self, facet: FacetName, edits: list[Edit], **options: bool) -> None:
        collection = self.replica.parts.clusters.get("default").facets[facet]
        caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(60), reason="a reason", ticket="T-1")
        for result in await self.replica.parts.alter.alter(collection, edits, caller, **options):
            assert result.error is None, result
            assert result.change_id is not None, result

    def _intent(self) -> Intent:
        store = self.replica.store
        entity = IntentEntity(
            "user=x", QUOTAS.value, "/config/users/x", None, None, ("k",), (Op("k", OpType.SET, "1").as_json(),), {}, {}
        )
        return Intent(uuid7(), 1, store.name, store.writer(), "User:admin", "", "r", None, None, (entity,))

    def _legacy(self) -> None:
        self.zk.ensure_path("/brokers")
        self.zk.create("/brokers/config", b'{"version":"1","config":{"log.cleaner.threads":"2"}}')

    async def _run(self, command: Callable[[Settings], int]) -> None:
        """Run a command as its process would, on an event loop of its own."""
        assert await asyncio.to_thread(command, self.replica.settings) == 0


def _changed(settings: Settings, change: Callable[..., Coroutine[Any, Any, object]]) -> int:
    async def done() -> int:
        await change(settings, "default", "upgrade", callers.caller("upgrade"))
        return callers.DONE

    return callers.run(done(), "Not done")


def _moved(settings: Settings, *, to: Tree) -> int:
    return upkeep.move_layout(settings, "default", to, apply=True, discard=False)


@pytest.fixture
def encoder(tmp_path: Path) -> dict[str, Any]:
    """Settings of encoder secrets in the middle of a rotation."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"{name}-encoder-secret\n")
    return {"secret_file": str(tmp_path / "new"), "old_secret_file": str(tmp_path / "old"), "iterations": 1024}


async def test_every_kind_of_row_is_as_published(
    chroot: str, migrated: Database, raw_zk: KazooClient, tmp_path: Path, encoder: dict[str, Any]
) -> None:
    for kind in ("users", "clients", "ips", "topics", "brokers", "changes"):
        raw_zk.ensure_path(f"/config/{kind}")
    under_old = PasswordEncoder("old-encoder-secret", EncoderParameters(iterations=1024)).encode("hidden")
    raw_zk.create("/config/brokers/9", f'{{"version":1,"config":{{"{PASSWORD}":"{under_old}"}}}}'.encode())
    cluster: dict[str, Any] = {"password_encoder": encoder, "client_configs_layout": "shared"}
    async with World(tmp_path, chroot, migrated, raw_zk) as world:
        replica = await world.replica(**cluster)
        rows = Rows(replica, raw_zk)
        await replica.record()
        await rows.follows()
        await rows.alters()
        await rows.ends()
        await rows.commands()
        await rows.others()
        await rows.lost(migrated.owner_dsn)
        # By this deadline nobody settles the open one meanwhile.
        async with world.service(cluster=cluster, deadline_ms=300_000) as service:
            await rows.opens()
            found = await asyncio.to_thread(_published, service)
    _assert_all_met(found)
    _assert_one_form(migrated.owner_dsn)


def _published(service: Service) -> list[dict[str, Any]]:
    """The trail by HTTP, each page and each row held against the specification."""
    schema = schemathesis.openapi.from_path(FILE)
    search = schema["/v1/clusters/{cluster}/audit"]["GET"]
    one = schema["/v1/clusters/{cluster}/audit/{changeId}"]["GET"]
    found: list[dict[str, Any]] = []
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=f"{service.url}/v1/clusters/default", headers=headers, trust_env=False) as http:
        token: str | None = ""
        while token is not None:
            page = http.get("audit", params={"pageSize": 10, **({"pageToken": token} if token else {})})
            search.validate_response(page)
            found += page.json()["items"]
            token = page.json()["nextPageToken"]
        for row in found:
            got = http.get(f"audit/{row['changeId']}")
            one.validate_response(got)
            # Whoever reads a row can ask for the trail of its entity.
            for entity in row["entities"]:
                search.validate_response(http.get(f"audit?entity={quote(entity['id'], safe='')}"))
    return found


def _assert_all_met(rows: list[dict[str, Any]]) -> None:
    """Every value that the specification lists was in a row: none is listed for nothing, and none went untried."""
    schemas = specification()["components"]["schemas"]
    entities = [entity for row in rows for entity in row["entities"]]
    ops = [op for entity in entities for op in entity["ops"]]
    for name, items in (("AuditedChange", rows), ("AuditedEntity", entities), ("AuditedOp", ops)):
        for member, listed in schemas[name]["properties"].items():
            assert any(member in item for item in items), (name, member)
            if "enum" in listed:
                assert {item[member] for item in items if member in item} == set(listed["enum"]), (name, member)


def _assert_one_form(dsn: str) -> None:
    """Every op on a key is in the same form in the tables, whatever facet it is of and whatever made it."""
    ops = [op for (kept,) in fetch(dsn, "SELECT ops FROM intent_entities") for op in kept if "key" in op]
    assert {op["op"] for op in ops} == {*OpType.__members__, "REENCODE"}
    assert {frozenset(op) - {"secret"} for op in ops} == {frozenset({"key", "op", "value"})}
