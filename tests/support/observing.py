"""A replica that imports from a Kafka cluster and observes it, round by round."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from confplane import kraft_wiring, wiring
from confplane.audit import PostgresObservedTopics, PostgresTargetStates
from confplane.connection_settings import KafkaSettings
from confplane.crypto import KafkaCipher, Keyring
from confplane.domain.errors import UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.services.changes.callers import Caller
from confplane.services.kraft.apply.deliveries import SecretOpener
from confplane.services.kraft.apply.dry_run import DryRunValidator
from confplane.services.kraft.importer import Importer
from confplane.services.kraft.loops import ReconcileLoops
from confplane.services.kraft.observe.entity_types import PollSettings
from confplane.services.kraft.reconcile.drift import DriftService
from confplane.services.kraft.reconcile.follow_writer import FollowParts
from confplane.services.kraft.refresh import Refresher, refresh_first
from confplane.services.kraft.target_service import TargetService
from confplane.services.ports.cluster_states import Target, TargetMode
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import Collection

    from confplane.domain.entities import Entity
    from confplane.domain.observed import ObservedRules
    from confplane.services.ports.applying import WritableKafkaCluster
    from confplane.services.ports.kafka import KafkaCluster, KraftEntityType
    from confplane.services.ports.store import ClusterStore
    from confplane.services.ports.trail import AuditRecord
    from tests.support.kafka_double import KafkaDouble
    from tests.support.replicas import Replica
    from tests.support.world import World


def caller() -> Caller:
    """A person with a deadline."""
    return Caller.operator("User:olga", "127.0.0.1", "target", soon(60))


def rules_of(kafka: KafkaCluster, store: ClusterStore) -> ObservedRules:
    """The rules of a cluster's configs, with the definitions of a store."""
    double = cast("KafkaDouble", kafka)
    return kraft_wiring.rules_of(lambda: store.catalog("4.4"), lambda: double.keeps_eligible_replicas)


class Observing:
    """The parts that follow a Kafka cluster, of one replica."""

    def __init__(self, replica: Replica, kafka: WritableKafkaCluster, *, log: bool = False) -> None:
        self.replica, self.store, self.kafka = replica, replica.store, kafka
        redact = wiring.redaction(replica.settings.clusters["default"], replica.store)
        store, runner = replica.store, replica.parts.runner
        states = PostgresTargetStates(replica.parts.database)

        parts = FollowParts(kafka, store, runner, rules_of(kafka, store), redact, states)
        self.targets = TargetService(runner, store, states)
        self.states = states
        cipher = KafkaCipher(Keyring.from_settings("default", replica.settings.clusters["default"].password_encoder))
        secrets = SecretOpener(rules_of(kafka, store), cipher)
        asking = DryRunValidator(kafka, store, states, secrets)
        rules, configs = replica.parts.alter.rules, ("default", FacetName.CONFIGS)
        replica.parts.alter.rules = {**rules, configs: replace(rules[configs], dry_run=asking.validate)}
        self.topics = PostgresObservedTopics(replica.parts.database)
        polls = PollSettings(kraft_wiring.max_ages_of(KafkaSettings(bootstrap=("localhost:9092",))), follows_log=log)
        loops = ReconcileLoops(store, parts, self.topics, secrets=secrets, settings=polls)
        self.loops, self.observer, self.applier = loops, loops.observer, loops.applier
        self.round, self.polls, self.queues, self.reporter = loops.round, loops.polls, loops.queues, loops.reporter
        self.importer = Importer(parts, store, self.targets)
        self.refresher = Refresher(parts, store)
        replica.parts.alter.refreshes = {"default": partial(refresh_first, store, self.refresher)}
        self.drift = DriftService(parts, store)

    async def import_all(self) -> int:
        """Import everything; return the number of entities written."""
        identity = await self.kafka.identity(soon())
        await self.targets.begin(identity.cluster_id, caller())
        before = written = self.importer.written
        async for progress in self.importer.run():
            written = progress.written
        await self.importer.end(identity, caller())
        await self.aware()
        return written - before

    async def aware(self) -> None:
        """Wait until this process's target is that of ZooKeeper."""
        target = (await self.store.read_state(Target, soon())).value
        await until(lambda: self.store.target() == target)

    async def set_mode(self, mode: str, entity_types: Collection[KraftEntityType] = ()) -> None:
        """Set the mode of some entity types, or of all, and wait until this process knows it."""
        await self.targets.set_mode(TargetMode(mode), caller(), entity_types)
        await self.aware()

    async def poll(self) -> None:
        """Poll everything once, whether due or not."""
        await self.store.catch_up(soon())
        for state in self.polls.entity_types.values():
            state.due = 0.0
        await self.round.observe()
        while any(state.polls.total for state in self.polls.entity_types.values()):
            for state in self.polls.entity_types.values():
                state.due = 0.0 if state.polls.total else time.monotonic() + 60
            await self.round.observe()

    async def apply_all(self) -> bool:
        """Deliver everything that is queued, and wait for the outcomes; return whether changes are applied now."""
        for queue in self.queues._queues.values():
            queue.due = 0.0
            for each in queue.pending.values():
                each.due = 0.0
        applies = await self.round.apply()
        await asyncio.gather(*self.queues._in_flight.values())
        if applies:
            for queue in self.queues._queues.values():
                if queue.problem:
                    raise UnavailableError(queue.problem)
            await self.queues.publish_watermark(soon(60))
        return applies

    async def poll_once(self) -> None:
        """Make the polls that are due in one round."""
        for state in self.polls.entity_types.values():
            state.due = 0.0
        await self.round.observe()

    async def reached(self) -> None:
        """Wait until the observer has followed the log of the double to its end."""
        log, double = self.polls.log, cast("KafkaDouble", self.kafka)
        assert log is not None
        await until(lambda: log.following and (log.offset or 0) >= double.now.offset)

    async def followed(self, **filters: Any) -> list[AuditRecord]:
        """The changes that follow the cluster, in the order of their revisions."""
        return [each for each in await self.replica.trail(**filters) if each.kind in {"import", "observed"}]

    def config(self, entity: Entity) -> dict[str, str] | None:
        """The config in ZooKeeper; None without a znode."""
        node = self.store.get(Tree.CONFIG, entity.id)
        return None if node is None else node.config


async def following(world: World, kafka: KafkaDouble, *, imported: bool = True) -> Observing:
    """Open a process that follows the log, and wait until it does.

    Args:
        world: The services and stores.
        kafka: The cluster.
        imported: Import the cluster first.
    """
    one = Observing(await world.replica(client_configs_layout="separate"), kafka, log=True)
    if imported:
        await one.import_all()
    one.observer.start()
    await one.reached()
    return one


def znode_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a znode: its members except the version and the config."""
    return {name: value for name, value in json.loads(data).items() if name not in {"version", "config"}}
