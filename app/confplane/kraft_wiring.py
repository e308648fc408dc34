"""The wiring of all parts that observe and alter one KRaft cluster."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from confplane.domain.configs import ConfigsFacet
from confplane.domain.observed import ObservedRules
from confplane.domain.quotas import ClientQuotasFacet
from confplane.kraft.cluster import KraftCluster
from confplane.services.kraft.apply.deliveries import SecretOpener
from confplane.services.kraft.apply.dry_run import DryRunValidator
from confplane.services.kraft.importer import Importer
from confplane.services.kraft.loops import ReconcileLoops
from confplane.services.kraft.observe.entity_types import PollSettings
from confplane.services.kraft.reconcile.drift import DriftService
from confplane.services.kraft.reconcile.follow_writer import FollowParts
from confplane.services.kraft.refresh import Refresher
from confplane.services.kraft.target_service import TargetService
from confplane.services.metrics import of_cluster
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confplane.connection_settings import KafkaSettings
    from confplane.domain.definitions import Catalog
    from confplane.domain.redaction import Redact
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.metrics import Sample
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.crypto import Cipher
    from confplane.services.ports.observed_topics import ObservedTopics
    from confplane.store import ZooKeeperStore


def rules_of(
    catalog: Callable[[], Catalog], keeps_eligible_replicas: Callable[[], bool] = lambda: True
) -> ObservedRules:
    """Return the rules of a cluster with these definitions, which keeps eligible leader replicas by default."""
    return ObservedRules(ClientQuotasFacet(), ConfigsFacet(catalog), catalog, keeps_eligible_replicas)


def max_ages_of(settings: KafkaSettings) -> dict[KraftEntityType, float]:
    """Return the greatest age in seconds of the last complete poll of each entity type."""
    return {each: getattr(settings.max_age_s, each.value.replace("-", "_")) for each in KraftEntityType}


class KraftWiring:
    """The parts of one cluster, made when they are needed.

    Raises:
        UnusableSettingsError: A file of the settings can't be used.
    """

    def __init__(
        self,
        store: ZooKeeperStore,
        settings: KafkaSettings,
        runner: ChangeRunner,
        redact: Redact,
        states: TargetStates,
        topics: ObservedTopics,
        *,
        cipher: Cipher,
    ) -> None:
        # The cluster's own answer applies until the leader's report has it.
        rules = rules_of(lambda: store.catalog(self.kafka.release or None), lambda: self.kafka.keeps_eligible_replicas)

        def expected() -> str | None:
            target = store.target()
            return None if target is None else target.cluster_id

        self.kafka: KraftCluster = KraftCluster(f"clusters.{store.name}.kafka", settings, rules, expected)
        self.target = TargetService(runner, store, states)
        self._store = store
        self._runner = runner
        self._rules = rules
        self._redact = redact
        self._states = states
        self._topics = topics
        self._secrets = SecretOpener(rules, cipher)
        self._poll_settings = PollSettings(max_ages_of(settings), follows_log=bool(settings.controllers))

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics of the connections to the Kafka cluster."""
        return of_cluster(self._store.name, self.kafka.metrics())

    @cached_property
    def dry_run_validator(self) -> DryRunValidator:
        """The validator that asks the cluster before a commit."""
        return DryRunValidator(self.kafka, self._store, self._states, self._secrets)

    @cached_property
    def loops(self) -> ReconcileLoops:
        """The loops, not started."""
        return ReconcileLoops(
            self._store, self._parts, self._topics, secrets=self._secrets, settings=self._poll_settings
        )

    @cached_property
    def refresher(self) -> Refresher:
        """The refresher for reads with ``consistency=strong``, and for conditional writes."""
        return Refresher(self._parts, self._store)

    @cached_property
    def importer(self) -> Importer:
        """The importer."""
        return Importer(self._parts, self._store, self.target)

    @cached_property
    def drift(self) -> DriftService:
        """The drift service."""
        return DriftService(self._parts, self._store)

    @cached_property
    def _parts(self) -> FollowParts:
        return FollowParts(self.kafka, self._store, self._runner, self._rules, self._redact, self._states)
