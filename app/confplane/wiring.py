"""The composition root: creates, from settings, the parts that the service and the commands on the stores share.

The service itself is created in :mod:`confplane.serving`, so that commands do not load the API, which would take more
than half of the CPU time of their imports.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from confplane import properties
from confplane.audit import (
    Database,
    PostgresAccessStore,
    PostgresAuditLog,
    PostgresObservedTopics,
    PostgresOpenChanges,
    PostgresOwnerships,
    PostgresStorePositions,
    PostgresTargetStates,
)
from confplane.crypto import ConfigFingerprinter, KafkaCipher, KafkaRotator, Keyring
from confplane.domain.broker_keys import is_password, is_sensitive
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.errors import InvalidRequestError, InvalidTopicError, UnavailableError
from confplane.domain.facets import FacetName, Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.redaction import facets_by_tree, redactor
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.kraft_wiring import KraftWiring
from confplane.policy import load_policies
from confplane.security import api_tokens
from confplane.security.token_cache import TokenCache
from confplane.services.access import AccessControl
from confplane.services.access_admin.grants import GrantService
from confplane.services.access_admin.overview import OverviewService
from confplane.services.access_admin.services import AccessServices
from confplane.services.access_admin.tokens import KnownNames, Lifetimes, TokenService
from confplane.services.changes.alter import AlterService
from confplane.services.changes.client_drafts import ClientDrafter
from confplane.services.changes.config_drafts import ConfigDrafter
from confplane.services.changes.entities_change import RuleFactsReader
from confplane.services.changes.entity_drafts import AlterRules, RiskAssessor
from confplane.services.changes.runner import ChangeRunner
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.clusters import Cluster, ClusterRegistry
from confplane.services.kraft.apply.apply_status import ApplyWaiter
from confplane.services.kraft.refresh import refresh_first
from confplane.services.reads.config_describe import ConfigReader
from confplane.services.reads.config_levels import BrokerLevels, ServerProperties
from confplane.services.upkeep.dropping import Dropper
from confplane.services.upkeep.incarnation import IncarnationCheck
from confplane.services.upkeep.rotate import RotateService
from confplane.services.upkeep.throttles import ThrottleWatch
from confplane.store import FacetIndex, ZooKeeperAccess, ZooKeeperStore, ZooKeeperTls, ZooKeeperTreeCopy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from confplane.domain.entities import Entity
    from confplane.domain.facets import Facet
    from confplane.domain.policies import Policies
    from confplane.domain.redaction import Redact
    from confplane.services.changes.entity_drafts import Drafter
    from confplane.services.changes.stored_draft import Fingerprint
    from confplane.services.ports.access import AccessStore
    from confplane.services.ports.store import ClusterStore
    from confplane.settings import (
        ClusterSettings,
        Settings,
    )

_OTHERS = "*"
"""The key in ``server_properties`` for every broker that is not named."""
_DRAIN_S = 10.0
"""Seconds that a shutdown waits for changes between their intent and their outcome."""


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """All parts below the API, built from settings and not started."""

    database: Database
    audit: PostgresAuditLog
    changes: PostgresOpenChanges
    stores: Mapping[str, ZooKeeperStore]
    clusters: ClusterRegistry
    runner: ChangeRunner
    alter: AlterService
    policies: Mapping[str, Policies]
    """The policies of each cluster."""
    kraft_wirings: Mapping[str, KraftWiring]
    """Wirings of the clusters whose settings name the brokers of a Kafka cluster without ZooKeeper."""
    target_states: PostgresTargetStates
    observed_topics: PostgresObservedTopics
    fingerprints: Mapping[str, Fingerprint]
    """The fingerprints of the sensitive configs of each cluster's brokers."""
    incarnation_checks: Mapping[str, IncarnationCheck]
    throttle_watches: Sequence[ThrottleWatch]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the stores, which need not be available. At the end wait for running changes and stop the stores."""
        async with AsyncExitStack() as stack:
            await self.database.start()
            stack.push_async_callback(self.database.close)
            stack.push_async_callback(self.audit.close)
            for kraft in self.kraft_wirings.values():
                stack.push_async_callback(kraft.kafka.close)
            for store in self.stores.values():
                store.start()
                stack.push_async_callback(store.stop)
                dropper = Dropper(store, self.changes)
                dropper.start()
                stack.push_async_callback(dropper.stop)
            for check in self.incarnation_checks.values():
                check.start()
                stack.push_async_callback(check.stop)
            stack.push_async_callback(self.runner.drain, _DRAIN_S)
            yield


def build(settings: Settings, names: Iterable[str] | None = None, *, mirrored: bool = True) -> ServiceParts:
    """Build all clusters of the settings, or the named ones.

    Args:
        settings: The settings.
        names: The clusters; None: all.
        mirrored: Keep copies of the configs in memory.

    Raises:
        UnusableSettingsError: The settings name a policy, or a file of secrets or of properties, that can't be used.
    """
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    audit = PostgresAuditLog(database)
    stores: dict[str, ZooKeeperStore] = {}
    clusters: dict[str, Cluster] = {}
    rules: dict[tuple[str, FacetName], AlterRules] = {}
    policies: dict[str, Policies] = {}
    runner = ChangeRunner(audit)
    target_states = PostgresTargetStates(database)
    observed_topics = PostgresObservedTopics(database)
    kraft_wirings: dict[str, KraftWiring] = {}
    for name in settings.clusters if names is None else names:
        cluster = settings.clusters[name]
        store = stores[name] = _store(name, cluster, mirrored=mirrored)
        if cluster.kafka is not None:
            kraft_wirings[name] = KraftWiring(
                store,
                cluster.kafka,
                runner,
                redaction(cluster, store),
                target_states,
                observed_topics,
                cipher=_cipher(name, cluster),
            )
        waiter = ApplyWaiter(store, target_states)
        clusters[name], drafters, risks = _cluster(name, cluster, store, waiter, kraft_wirings.get(name))
        policies[name] = load_policies(name, cluster)
        rules |= {(name, facet): AlterRules(drafter, risks, policies[name]) for facet, drafter in drafters.items()}
    for name, kraft in kraft_wirings.items():
        key = name, FacetName.CONFIGS
        rules[key] = replace(rules[key], dry_run=kraft.dry_run_validator.validate)
    refreshes = {name: partial(refresh_first, cluster.store, cluster.refresher) for name, cluster in clusters.items()}
    alter = AlterService(runner, rules, refreshes, RuleFactsReader(audit, PostgresOwnerships(database)))
    changes = PostgresOpenChanges(database)
    positions = PostgresStorePositions(database)
    return ServiceParts(
        database,
        audit,
        changes,
        stores,
        ClusterRegistry(clusters),
        runner,
        alter,
        policies,
        kraft_wirings,
        target_states,
        observed_topics,
        {name: _cipher(name, settings.clusters[name]).fingerprint for name in stores},
        {name: IncarnationCheck(store, positions) for name, store in stores.items()},
        [
            ThrottleWatch(store, store, kraft_wirings[name].kafka if name in kraft_wirings else None)
            for name, store in stores.items()
        ],
    )


@asynccontextmanager
async def open_cluster(
    settings: Settings, name: str, *, timeout_s: float = 30.0, mirrored: bool = True
) -> AsyncIterator[ServiceParts]:
    """Open one cluster and the trail for a command, and load its configs if they are ``mirrored``.

    Raises:
        NotFoundError: The settings do not contain this cluster.
        UnusableSettingsError: As :func:`build`.
        UnavailableError: ZooKeeper or Postgres did not respond in time.
    """
    settings.cluster(name)
    parts = build(settings, [name], mirrored=mirrored)
    async with parts.running():
        await parts.audit.check()
        await wait_until_loaded(parts.stores[name], timeout_s)
        yield parts


async def wait_until_loaded(store: ClusterStore, timeout_s: float) -> None:
    """Wait until the configs are loaded. A million entities may take minutes.

    Args:
        store: The cluster, started.
        timeout_s: Seconds without progress after which to give up.

    Raises:
        UnavailableError: ZooKeeper does not respond.
    """
    read = -1
    while True:
        try:
            await store.wait_for(0, time.monotonic() + timeout_s)
        except UnavailableError:
            load = store.status().load
            if load is None or load.read <= read:
                raise
            read = load.read
        else:
            return


def rotation(settings: Settings, name: str, parts: ServiceParts) -> RotateService:
    """Return the service that replaces the encoder secrets of a cluster's brokers.

    Raises:
        UnusableSettingsError: A file with a secret can't be used.
    """
    keyring = Keyring.from_settings(name, settings.clusters[name].password_encoder)
    configs = parts.clusters.get(name).facets[FacetName.CONFIGS]
    return RotateService(parts.alter, configs, KafkaRotator(keyring, encoded=is_password))


def tokens_and_grants(
    settings: Settings, store: AccessStore, control: AccessControl, refresh: Callable[[], Awaitable[None]]
) -> AccessServices:
    """Return the services for tokens and grants."""
    known = KnownNames(settings.clusters, [issuer.prefix for issuer in settings.oidc if issuer.prefix])
    lifetimes = Lifetimes(settings.access.tokens.default_days, settings.access.tokens.longest_days)
    return AccessServices(
        TokenService(store, control, api_tokens.mint, known, lifetimes),
        GrantService(store, settings.clusters),
        OverviewService(store),
        store,
        refresh,
    )


@asynccontextmanager
async def open_access(settings: Settings) -> AsyncIterator[AccessServices]:
    """Open tokens and grants for a command, which does not need a grant.

    Raises:
        UnavailableError: Postgres did not respond in time.
    """
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=2)
    await database.start()
    try:
        store = PostgresAccessStore(database)
        book = TokenCache(store, settings.access.max_age_s)
        await book.refresh()
        yield tokens_and_grants(settings, store, AccessControl(book), book.refresh)
    finally:
        await database.close()


def redaction(cluster: ClusterSettings, store: ClusterStore) -> Redact:
    """Return the redaction of a cluster's znodes."""
    _, client_configs = _client_facets(cluster)
    return redactor(facets_by_tree(client_configs, ConfigsFacet(store.catalog)), store.catalog)


def tree_copy(name: str, cluster: ClusterSettings) -> ZooKeeperTreeCopy:
    """Return the copy of a cluster's znodes, not connected.

    Raises:
        UnusableSettingsError: A file with a secret can't be used.
    """
    return ZooKeeperTreeCopy(name, cluster.zookeeper, cluster.session_timeout_ms, _access(name, cluster))


def _access(name: str, cluster: ClusterSettings) -> ZooKeeperAccess:
    settings = cluster.zookeeper_tls
    tls = None if settings is None else ZooKeeperTls(f"clusters.{name}.zookeeper_tls", settings)
    return ZooKeeperAccess.from_settings(f"clusters.{name}.zookeeper_acl", cluster.zookeeper_acl, tls)


def _store(name: str, cluster: ClusterSettings, *, mirrored: bool) -> ZooKeeperStore:
    return ZooKeeperStore(
        name,
        connect=cluster.zookeeper,
        session_timeout_ms=cluster.session_timeout_ms,
        max_packet=cluster.max_packet,
        notifications_max=cluster.notifications_max,
        jute_maxbuffer=cluster.jute_maxbuffer,
        access=_access(name, cluster),
        facets={
            facet.name.value: FacetIndex(
                Tree.CONFIG,
                facet.owns,
                _covers(facet),
                Tree.CLIENT_CONFIGS if facet.name is FacetName.CLIENT_CONFIGS else None,
            )
            # An index reads the keys and the entities of a facet, not the definitions of a release.
            for facet in (*_client_facets(cluster), ConfigsFacet(lambda: catalog_of(ON_ZOOKEEPER)))
        },
        layout=None if cluster.layout is None else cluster.layout.tree,
        catalogs=cluster.catalogs(),
        mirrored=mirrored,
    )


def _cluster(
    name: str, cluster: ClusterSettings, store: ZooKeeperStore, waiter: ApplyWaiter, kraft: KraftWiring | None
) -> tuple[Cluster, dict[FacetName, Drafter], RiskAssessor]:
    """Return a cluster, the drafters of its facets, and what finds the risks of their drafts."""
    redact = redaction(cluster, store)
    facets = _client_facets(cluster)
    cluster_facets = {
        facet.name: ClusterFacet(
            facet,
            Tree.CONFIG,
            store,
            redact,
            laid_out=facet.name is FacetName.CLIENT_CONFIGS,
            layout_chosen=cluster.layout is not None,
        )
        for facet in facets
    }
    drafters: dict[FacetName, Drafter] = {facet.name: ClientDrafter(facet) for facet in facets}
    cipher = _cipher(name, cluster)
    levels = BrokerLevels(store, _server_properties(name, cluster))
    drafters[FacetName.CONFIGS] = ConfigDrafter(levels, cipher)
    fingerprinter = ConfigFingerprinter(
        cipher,
        sensitive=lambda key: is_sensitive(store.catalog(), key),
        encoded=is_password,
    )
    configs = ClusterFacet(ConfigsFacet(store.catalog), Tree.CONFIG, store, redact, fingerprinter)
    reader = ConfigReader(configs, levels, cipher)
    found = Cluster(
        name,
        store,
        {**cluster_facets, configs.name: configs},
        reader,
        waiter,
        refresher=None if kraft is None else kraft.refresher,
        drift=None if kraft is None else kraft.drift,
    )
    return found, drafters, RiskAssessor(store, levels)


def _cipher(name: str, cluster: ClusterSettings) -> KafkaCipher:
    """Return the cipher of the passwords of a cluster's brokers."""
    return KafkaCipher(Keyring.from_settings(name, cluster.password_encoder))


def _server_properties(name: str, cluster: ClusterSettings) -> ServerProperties:
    files = {
        broker: properties.read_file(path, f"clusters.{name}.server_properties.{broker}")
        for broker, path in cluster.server_properties.items()
    }
    others = files.pop(_OTHERS, None)
    return ServerProperties({int(broker): values for broker, values in files.items()}, others)


def _client_facets(cluster: ClusterSettings) -> tuple[ClientQuotasFacet, ClientConfigsFacet]:
    return ClientQuotasFacet(), ClientConfigsFacet(
        catalog_of(ON_ZOOKEEPER),
        extra_keys=cluster.dynamic_client_configs,
        min_session_timeout_ms=cluster.group_min_session_timeout_ms,
        max_session_timeout_ms=cluster.group_max_session_timeout_ms,
    )


def _covers(facet: Facet) -> Callable[[Entity], bool]:
    def covers(entity: Entity) -> bool:
        try:
            facet.check_entity(entity)
        except (InvalidRequestError, InvalidTopicError):
            return False
        return True

    return covers
