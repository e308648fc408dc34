"""Every kind of change: the content stored before it, how it is made, and how to check in ZooKeeper that it is applied.

``python -m tests.support.kinds <kind>`` makes one with the seams of :mod:`tests.support.stepping` on, so that it dies
at a step of the protocol. A new kind needs one entry in :data:`KINDS` for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError

from confplane.audit import PostgresTargetStates
from confplane.crypto import KafkaRotator, Keyring
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from confplane.domain.broker_keys import is_password
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import Entity
from confplane.domain.errors import UndecodablePasswordError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import ChangeJob, Draft, Edit, NoChange
from confplane.services.changes.entity_drafts import EntityDraft
from confplane.services.changes.freeze import FreezeService
from confplane.services.kraft.importer import Importer
from confplane.services.kraft.reconcile.follow_writer import FollowParts
from confplane.services.kraft.target_service import TargetService
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.kafka import KraftEntityType
from confplane.services.ports.trail import AuditQuery
from confplane.services.reverts.service import RevertSelection
from confplane.services.upkeep.compact import CompactService
from confplane.services.upkeep.layout import LayoutService
from confplane.services.upkeep.renames import RenameService
from confplane.services.upkeep.rotate import RotateService
from confplane.settings import BrokerEncoderSettings, PasswordEncoderSettings, Settings
from confplane.wiring import open_cluster
from tests.support import stepping
from tests.support.kafka_double import CLUSTER_ID, KafkaDouble
from tests.support.observing import rules_of
from tests.support.reverting import caller_of, reverts_of
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kazoo.client import KazooClient

    from confplane.services.changes.callers import Caller
    from confplane.wiring import ServiceParts

ALICE, BOB = Entity.of(user="alice"), Entity.of(user="bob")
PAIR: Final = Entity.of(user="olga", client_id="x")
RATE: Final = "producer_byte_rate"
PASSWORD: Final = "listener.name.external.ssl.key.password"
FAST: Final = EncoderParameters(iterations=1024)
OLD, NEW = (PasswordEncoder(f"{name}-encoder-secret", FAST) for name in ("old", "new"))
NODE_FREEZE, NODE_LAYOUT = "/confplane/freeze", "/confplane/layout"
ARM_VARIABLE = "CONFPLANE_TEST_ARM"
"""The variable with the text for the step file, which is written immediately before the change under test."""


def secrets_of(directory: Path) -> PasswordEncoderSettings:
    """Settings of a cluster whose brokers' passwords are to be moved from the old secret to the new one."""
    for name in ("old", "new"):
        (directory / f"{name}-secret").write_text(f"{name}-encoder-secret\n")
    return PasswordEncoderSettings(
        secret_file=directory / "new-secret", old_secret_file=directory / "old-secret", iterations=1024
    )


class Made:
    """Makes changes through the parts of one process.

    Args:
        parts: Its parts, running.
        caller: The caller of the changes.
        encoder: The brokers' encoder secrets.
        arm: Called immediately before the change under test, if other changes precede it.
    """

    def __init__(
        self,
        parts: ServiceParts,
        caller: Caller,
        encoder: BrokerEncoderSettings,
        arm: Callable[[], None] = lambda: None,
    ) -> None:
        self.parts = parts
        self.caller = caller
        self.arm = arm
        self.store = parts.stores["default"]
        self.cluster = parts.clusters.get("default")
        self._encoder = encoder

    async def edit(self, facet: FacetName, *edits: Edit, atomic: bool = False) -> None:
        collection = self.cluster.facets[facet]
        for result in await self.parts.alter.alter(collection, edits, self.caller, atomic=atomic):
            if result.error is not None:
                raise result.error

    async def alter(self) -> None:
        await self.edit(FacetName.CLIENT_QUOTAS, Edit(ALICE, (Op(RATE, OpType.SET, 1),)))

    async def batch(self) -> None:
        await self.edit(
            FacetName.CLIENT_QUOTAS, *(Edit(each, (Op(RATE, OpType.SET, 1),)) for each in (ALICE, PAIR)), atomic=True
        )

    async def bulk(self) -> None:
        await self.edit(
            FacetName.CLIENT_QUOTAS, *(Edit(each, (Op(RATE, OpType.SET, 1),)) for each in (PAIR, ALICE, BOB))
        )

    async def first_client_configs(self) -> None:
        await self.edit(FacetName.CLIENT_CONFIGS, Edit(ALICE, (Op("acks", OpType.SET, "1"),)))

    async def both_facets(self) -> None:
        """Set a quota and a client config of one user."""
        given = {
            FacetName.CLIENT_QUOTAS: Op(RATE, OpType.SET, 1),
            FacetName.CLIENT_CONFIGS: Op("acks", OpType.SET, "1"),
        }
        entry = {self.cluster.facets[facet]: Edit(ALICE, (op,)) for facet, op in given.items()}
        [result] = await self.parts.alter.alter_entries([entry], self.caller)
        if result.error is not None:
            raise result.error

    async def revert(self) -> None:
        """Revert a request that set the quotas of two entities in one change."""
        selection, set_up = RevertSelection(request_id="reverted"), caller_of(request_id="reverted")
        query = AuditQuery("default", request_id=selection.request_id)
        if not (await self.parts.audit.search(query))[0]:
            await Made(self.parts, set_up, self._encoder).batch()
        self.arm()
        done = await reverts_of(self.parts).changes(self.cluster, selection, self.caller)
        assert [each.result.error for each in done.results] == [None, None]

    async def freeze(self) -> None:
        await FreezeService(self.parts.runner).freeze(self.store, "upgrade", self.caller)

    async def thaw(self) -> None:
        await FreezeService(self.parts.runner).thaw(self.store, "upgraded", self.caller)

    async def compact(self) -> None:
        service = CompactService(self.parts.runner, self.store, self.parts.target_states)
        run = service.run([(Tree.CONFIG, PAIR.id)], self.caller, older_than_s=-60, apply=True)
        assert [result is None or result.error is None async for result in run] == [True]

    async def rotate(self) -> None:
        keyring = Keyring.from_settings("default", PasswordEncoderSettings(**self._encoder.model_dump()))
        rotator = KafkaRotator(keyring, encoded=is_password)
        service = RotateService(self.parts.alter, self.cluster.facets[FacetName.CONFIGS], rotator)
        rotated = await service.rotate(0, self.caller)
        if rotated.error is not None:
            raise rotated.error

    async def rename(self) -> None:
        table = {ConfigKind.BROKER: {"log.cleaner.count": "log.cleaner.threads"}}
        service = RenameService(self.parts.alter, self.cluster, table)
        async for result in service.run(service.lacking(), self.caller, apply=True):
            if result.error is not None:
                raise result.error

    @property
    def layout(self) -> LayoutService:
        return LayoutService(self.parts.runner, self.cluster.facets[FacetName.CLIENT_CONFIGS])

    async def begin_move(self) -> None:
        await self.layout.begin(await self.layout.survey(Tree.CLIENT_CONFIGS, soon()), self.caller)

    async def move(self) -> None:
        survey = await self.layout.survey(Tree.CLIENT_CONFIGS, soon())
        version = await self.layout.begin(survey, self.caller)
        self.arm()
        async for result in self.layout.move(survey, version, self.caller):
            assert result.error is None, result

    async def end_move(self) -> None:
        await self.layout.end(await self.layout.survey(Tree.CLIENT_CONFIGS, soon()), self.caller)

    async def discard(self) -> None:
        """Remove the client configs of the unused tree."""
        survey = await self.layout.survey(Tree.CONFIG, soon())
        async for result in self.layout.move(survey, survey.version, self.caller, discard=True):
            assert result.error is None, result

    async def follow(self, kafka: KafkaDouble) -> None:
        """Import from a cluster, or follow it, depending on the target."""
        runner, redact = self.parts.runner, self.cluster.facets[FacetName.CONFIGS].redact
        states = PostgresTargetStates(self.parts.database)
        following = FollowParts(kafka, self.store, runner, rules_of(kafka, self.store), redact, states)
        importer = Importer(following, self.store, self.target)
        async for progress in importer.run():
            assert progress.written <= len(kafka.log)

    async def take_over(self) -> None:
        """Import the quotas of three entities."""
        kafka = KafkaDouble()
        for entity in (ALICE, BOB, PAIR):
            kafka.alter(entity, {RATE: "1"})
        await self.follow(kafka)

    async def follow_topic(self) -> None:
        """Follow a cluster that recreated a topic: the change under test empties the znode of the old configs."""
        kafka = KafkaDouble()
        kafka.create_topic("t")
        await self.follow(kafka)

    @property
    def target(self) -> TargetService:
        return TargetService(self.parts.runner, self.store, PostgresTargetStates(self.parts.database))

    async def begin_target(self) -> None:
        await self.target.begin(CLUSTER_ID, self.caller)

    async def complete_target(self) -> None:
        await self.target.complete(self.caller)

    async def pause_target(self) -> None:
        await self.target.pause(self.caller)

    async def resume_target(self) -> None:
        await self.target.resume(self.caller)

    async def adopt_target(self) -> None:
        await self.target.set_mode(TargetMode.ADOPT, self.caller)

    async def observe_topics(self) -> None:
        """Give one entity type another mode than the cluster's."""
        await self.target.set_mode(TargetMode.OBSERVE, self.caller, [KraftEntityType.TOPICS])

    async def copy(self) -> None:
        """A kind of change that the service does not have: replace one user's quotas by those of another."""
        quotas, store = self.cluster.facets[FacetName.CLIENT_QUOTAS], self.store

        async def decide(*, again: bool) -> Draft[None] | NoChange[None]:
            del again
            given, node = [await store.read(Tree.CONFIG, each, self.caller.deadline) for each in (ALICE, BOB)]
            draft = EntityDraft.of(quotas, Edit(BOB, ()), node, {} if given is None else given.config, [])
            if not draft.diff:
                return NoChange(None)
            return Draft(None, (draft.write(),), (draft.intent(),))

        await self.parts.runner.run(store, ChangeJob(decide), self.caller)


def stored(zk: KazooClient, path: str) -> Any:
    """The content of a znode. Returns None if the znode does not exist or is empty."""
    try:
        data, _ = zk.get(path)
    except NoNodeError:
        return None
    return json.loads(data) if data else None


def config(zk: KazooClient, path: str) -> dict[str, str]:
    """The config that a znode holds."""
    found: dict[str, str] = (stored(zk, path) or {"config": {}})["config"]
    return found


def opens(encoder: PasswordEncoder, encoded: str) -> bool:
    """Return True if a password was encoded under this encoder's secret."""
    try:
        return encoder.decode(encoded) == "hush"
    except UndecodablePasswordError:
        return False


@dataclass(frozen=True)
class Kind:
    """A kind of change."""

    make: Callable[[Made], Awaitable[None]]
    applied: Callable[[KazooClient], bool]
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The znodes that external writers stored: path -> content, which the metadata of a config's znode is added to."""
    armed_late: bool = False
    """True if :meth:`Made.arm` marks the change under test."""
    changes: int = 1
    """The number of its changes, all in one transaction."""


NODE_TARGET: Final = "/confplane/target"
_TARGET: Final = {"version": 1, "kind": "kraft", "mode": "observe", "cluster_id": CLUSTER_ID, "paused": False}
_LAID_OUT: Final = {"/config/users/alice": {"acks": "1"}}

KINDS: Final = {
    "alter": Kind(Made.alter, lambda zk: config(zk, "/config/users/alice") == {RATE: "1"}),
    "batch": Kind(
        Made.batch,
        lambda zk: [config(zk, f"/config/{each.path}") for each in (ALICE, PAIR)] == [{RATE: "1"}, {RATE: "1"}],
    ),
    "bulk": Kind(
        Made.bulk,
        lambda zk: [config(zk, f"/config/{each.path}") for each in (ALICE, BOB, PAIR)] == 3 * [{RATE: "1"}],
        changes=3,
    ),
    "first client configs": Kind(
        Made.first_client_configs,
        lambda zk: config(zk, "/config/users/alice") == {"acks": "1"} and stored(zk, NODE_LAYOUT) is not None,
    ),
    "both facets in one znode": Kind(
        Made.both_facets, lambda zk: config(zk, "/config/users/alice") == {RATE: "1", "acks": "1"}
    ),
    "both facets in two znodes": Kind(
        Made.both_facets,
        lambda zk: (
            [config(zk, path) for path in ("/config/users/alice", "/confplane/client-configs/users/alice")]
            == [{RATE: "1"}, {"acks": "1"}]
        ),
        {NODE_LAYOUT: {"version": 1, "layout": "separate"}},
    ),
    "revert": Kind(
        Made.revert,
        lambda zk: [config(zk, f"/config/{each.path}") for each in (ALICE, PAIR)] == [{RATE: "7"}, {}],
        {"/config/users/alice": {RATE: "7"}},
        armed_late=True,
    ),
    "freeze": Kind(Made.freeze, lambda zk: stored(zk, NODE_FREEZE) is not None),
    "thaw": Kind(
        Made.thaw,
        lambda zk: stored(zk, NODE_FREEZE) is None,
        {NODE_FREEZE: {"version": 1, "reason": "upgrade", "principal": "User:olga", "since": 1}},
    ),
    "compaction": Kind(Made.compact, lambda zk: not zk.exists("/config/users/olga"), {f"/config/{PAIR.path}": {}}),
    "rotation": Kind(
        Made.rotate,
        lambda zk: opens(NEW, config(zk, "/config/brokers/0")[PASSWORD]),
        {"/config/brokers/0": {PASSWORD: OLD.encode("hush")}},
    ),
    "rename": Kind(
        Made.rename,
        lambda zk: config(zk, "/config/brokers/0").get("log.cleaner.threads") == "2",
        {"/config/brokers/0": {"log.cleaner.count": "2"}},
    ),
    "beginning of a move": Kind(Made.begin_move, lambda zk: "from" in (stored(zk, NODE_LAYOUT) or {}), _LAID_OUT),
    "move of an entity": Kind(
        Made.move,
        lambda zk: config(zk, "/confplane/client-configs/users/alice") == {"acks": "1"},
        _LAID_OUT,
        armed_late=True,
    ),
    "end of a move": Kind(
        Made.end_move,
        lambda zk: stored(zk, NODE_LAYOUT) == {"version": 1, "layout": "separate"},
        {NODE_LAYOUT: {"version": 1, "layout": "separate", "from": "shared"}},
    ),
    "discarding of client configs": Kind(
        Made.discard,
        lambda zk: config(zk, "/confplane/client-configs/users/alice") == {},
        {NODE_LAYOUT: {"version": 1, "layout": "shared"}, "/confplane/client-configs/users/alice": {"acks": "1"}},
    ),
    "target": Kind(Made.begin_target, lambda zk: stored(zk, NODE_TARGET) is not None),
    "completion of an import": Kind(
        Made.complete_target,
        lambda zk: stored(zk, NODE_TARGET)["imported"] is True,
        {NODE_TARGET: {**_TARGET, "imported": False}},
    ),
    "pause": Kind(
        Made.pause_target,
        lambda zk: stored(zk, NODE_TARGET)["paused"] is True,
        {NODE_TARGET: {**_TARGET, "imported": True}},
    ),
    "end of a pause": Kind(
        Made.resume_target,
        lambda zk: stored(zk, NODE_TARGET)["paused"] is False,
        {NODE_TARGET: {**_TARGET, "imported": True, "paused": True}},
    ),
    "adoption": Kind(
        Made.adopt_target,
        lambda zk: stored(zk, NODE_TARGET)["mode"] == "adopt",
        {NODE_TARGET: {**_TARGET, "imported": True}},
    ),
    "mode of an entity type": Kind(
        Made.observe_topics,
        lambda zk: stored(zk, NODE_TARGET).get("modes") == {KraftEntityType.TOPICS: "observe"},
        {NODE_TARGET: {**_TARGET, "mode": "adopt", "imported": True}},
    ),
    "import": Kind(
        Made.take_over,
        lambda zk: [config(zk, f"/config/{each.path}") for each in (ALICE, BOB, PAIR)] == 3 * [{RATE: "1"}],
        {NODE_TARGET: {**_TARGET, "imported": False}},
    ),
    "following of a topic made anew": Kind(
        Made.follow_topic,
        lambda zk: config(zk, "/config/topics/t") == {},
        {NODE_TARGET: {**_TARGET, "imported": True}, "/config/topics/t": {"retention.ms": "5"}},
    ),
    "copy": Kind(
        Made.copy,
        lambda zk: config(zk, "/config/users/bob") == {RATE: "7"},
        {"/config/users/alice": {RATE: "7"}, "/config/users/bob": {RATE: "8", "consumer_byte_rate": "9"}},
    ),
}


def _members(path: str) -> dict[str, str]:
    """The metadata of a znode: the id of the topic that it belongs to."""
    return {"topic_id": "another"} if path.startswith("/config/topics/") else {}


def store_before(kind: Kind, zk: KazooClient) -> None:
    """Store the content that precedes a change of this kind."""
    for path, content in kind.before.items():
        whole = (
            content
            if path in {NODE_FREEZE, NODE_LAYOUT, NODE_TARGET}
            else {"version": 1, "config": content, **_members(path)}
        )
        zk.create(path, json.dumps(whole).encode(), makepath=True)


async def _make(kind: Kind, arms: Sequence[Callable[[], None]]) -> None:
    from confplane.cli import callers  # noqa: PLC0415 - the command line is loaded for its caller alone

    settings = Settings()
    encoder = settings.clusters["default"].password_encoder
    assert encoder is not None
    async with open_cluster(settings, "default") as parts:
        first, late = arms
        first()
        await kind.make(Made(parts, callers.caller("a kind of change"), encoder, late))


def main() -> None:
    """Make a change of the kind that the command line names; it dies at the step that the environment names."""
    kind = KINDS[sys.argv[1]]
    stepping.put_on()
    file, wanted = Path(os.environ[stepping.STEP_FILE_VARIABLE]), os.environ[ARM_VARIABLE]

    def arm() -> None:
        file.write_text(wanted)

    def leave() -> None:
        """Do nothing."""

    asyncio.run(_make(kind, (leave, arm) if kind.armed_late else (arm, leave)))


if __name__ == "__main__":
    main()
