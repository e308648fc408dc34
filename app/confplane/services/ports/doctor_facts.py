"""Facts about an installation, as ``confplane doctor`` collects them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

OPEN_S: Final = 120
"""Seconds after which a change without an outcome is a finding."""
EXPIRING_DAYS: Final = 14
"""Days before its expiry from which a token that is in use is a finding."""


@dataclass(frozen=True, slots=True)
class TrailFacts:
    """The trail of one cluster, and the other rows about it."""

    open_changes: int = 0
    """Changes that have had no outcome for two minutes."""
    recorded_age_s: float | None = None
    """Seconds since a process last confirmed that external changes are recorded; None: they never were."""
    overdue: int = 0
    """Temporary changes that should have ended a minute ago."""
    paused_s: float | None = None
    """Seconds since the ends of temporary changes were paused; None: they are not paused."""
    parked_webhooks: Sequence[str] = ()
    webhooks: int = 0
    failed_rollups: Sequence[str] = ()
    integrity_age_s: float | None = None
    """Seconds since the last complete run of the rollup ``integrity``; None: it was never run."""
    refused: int = 0
    """Entities whose changes the Kafka cluster refused."""


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """Postgres, read by the role of the service."""

    fault: str | None = None
    """The reason why nothing could be read."""
    warnings: Sequence[str] = ()
    """The warnings of ``/readyz`` about Postgres."""
    version: int = 170_000
    """``server_version_num``."""
    wal_level: str = "replica"
    fsync: bool = True
    full_page_writes: bool = True
    standby: bool = False
    """True if the server is in recovery."""
    inactive_slots: Sequence[str] = ()
    """Replication slots that nobody reads."""
    clock_ahead_s: float = 0.0
    expiring_tokens: Sequence[str] = ()
    """Ids of tokens that were used within 30 days, and expire within 14 days."""
    tokens_rejected: bool = False
    trails: Mapping[str, TrailFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """The Kafka cluster without ZooKeeper that a cluster follows."""

    fault: str | None = None
    cluster_id: str | None = None
    """The id of the cluster that the brokers of the settings belong to."""
    permissions: Mapping[KraftEntityType, tuple[EntityTypePermission, str]] = field(default_factory=dict)
    barrier: str | None = None
    """The reason why there is no barrier; None if there is one."""
    metadata_log: str | None = None
    """The reason why the metadata log can't be followed; None if it can, or need not be."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster's ZooKeeper, and its Kafka cluster."""

    name: str
    fault: str | None = None
    """The reason why nothing could be read."""
    warnings: Sequence[str] = ()
    """The warnings of ``/readyz`` about the cluster."""
    restored: str | None = None
    """The reason why the store is taken for a restored one."""
    lost_changes: str | None = None
    """The warning that Postgres lacks changes which ZooKeeper knows."""
    processes: int = 1
    frozen: str | None = None
    """The reason of a freeze; None: the cluster is not frozen."""
    old_markers: int = 0
    """Markers of changes that are more than ten minutes old."""
    stray_markers: int = 0
    """Nodes next to the markers that are not markers."""
    notifications: int = 0
    brokers_registered: bool = False
    missing_rights: Sequence[str] = ()
    """Operations of changes that ZooKeeper does not permit."""
    is_old: bool = False
    """True if the server is older than ZooKeeper 3.6."""
    target: Target | None = None
    reported: Sequence[str] = ()
    """The warnings of the leader's report on the Kafka cluster, except those that other facts have."""
    kafka: KafkaFacts | None = None


@dataclass(frozen=True, slots=True)
class ClusterChoices:
    """The settings of a cluster that contradict others."""

    zookeeper: str = ""
    session_timeout_ms: int = 18_000
    notifications_max: int = 20_000
    record_external_changes: bool = True
    follows_kafka: bool = False


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that the settings name."""

    setting: str
    path: str
    problem: str | None = None
    writable_by_others: bool = False
    expires_in_days: float | None = None
    """Days until the first of its certificates expires; None: it has none."""


@dataclass(frozen=True, slots=True)
class SettingsFacts:
    """The settings, without secrets."""

    problems: Sequence[str] = ()
    """Reasons why a process does not start."""
    pool_size: int = 8
    drain_ms: int = 2_000
    limits_enabled: bool = True
    webhooks_key: bool = False
    insecure_webhooks: bool = False
    clusters: Mapping[str, ClusterChoices] = field(default_factory=dict)
    files: Sequence[FileFacts] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    settings: SettingsFacts
    postgres: PostgresFacts
    clusters: Sequence[ClusterFacts]
