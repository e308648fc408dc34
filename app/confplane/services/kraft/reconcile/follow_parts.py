"""The parts that compare a Kafka cluster with its znodes, and write the differences.

The observer, the import and refreshes each have their own parts, which count their own changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.services.kraft.decisions import ClusterDecisions
from confplane.services.kraft.observe.poller import Poller
from confplane.services.kraft.reconcile.follow_drafts import FollowDrafts
from confplane.services.kraft.reconcile.follow_writer import FollowWriter

if TYPE_CHECKING:
    from confplane.domain.observed import ObservedRules
    from confplane.domain.redaction import Redact
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.kafka import KafkaCluster
    from confplane.services.ports.store import ClusterStore


class FollowParts:
    """The parts for one cluster.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store, started before the first poll.
        runner: Runs the changes.
        rules: The rules of the cluster's configs.
        redact: The redaction of znodes for the trail.
        states: The delivery states of entities in the Kafka cluster.

    Attributes:
        cluster: The Kafka cluster.
        decisions: Compares entities with the mirror, and decides on those that differ.
        drafts: Drafts each change.
        writer: Writes the changes.
        poller: Polls the cluster.
        states: The delivery states.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        store: ClusterStore,
        runner: ChangeRunner,
        rules: ObservedRules,
        redact: Redact,
        states: TargetStates,
    ) -> None:
        self.cluster = cluster
        self.states = states
        self.decisions = ClusterDecisions(store, rules)
        self.drafts = FollowDrafts(store, rules, redact, self.decisions)
        self.writer = FollowWriter(runner, store, self.drafts, states)
        self.poller = Poller(cluster, store, rules, self.decisions)
