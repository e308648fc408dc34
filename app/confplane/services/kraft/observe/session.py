"""Checks a cluster before its polls: it is the target, its release is not older, and what it permits."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.services.ports.kafka import OtherClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.kafka import ClusterIdentity, GrantedPermission, KafkaCluster, KraftEntityType

IDENTITY_S: Final = 10.0
PERMISSIONS_S: Final = 60.0
_TIMEOUT_S: Final = 30.0


class ClusterSession:
    """The checks of one cluster. The results are valid for some seconds.

    Attributes:
        identity: The identity by the last check; None if it must be checked.
        release: The release that the cluster may not fall below.
        clock: The clock of the checks.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.clock: Callable[[], float] = time.monotonic
        self.begin_term()

    def begin_term(self) -> None:
        """Check everything before the next poll."""
        self.reset()
        self._permissions_due = 0.0

    def reset(self) -> None:
        """Forget the identity, and accept any release."""
        self.identity: ClusterIdentity | None = None
        self.release = ""
        self.expire()

    def expire(self) -> None:
        """Check the identity again before the next poll."""
        self._identity_due = 0.0

    @property
    def keeps_eligible_replicas(self) -> bool | None:
        """True if the cluster keeps eligible leader replicas (KIP-966); None before the first check of a term."""
        return None if self.identity is None else self._cluster.keeps_eligible_replicas

    async def check(self, target: Target) -> None:
        """Check the cluster's identity.

        Raises:
            OtherClusterError: The brokers belong to another cluster.
            UnavailableError: The cluster is unavailable, or was downgraded.
        """
        now = self.clock()
        if self.identity is not None and now < self._identity_due:
            return
        identity = await self._cluster.identity(now + _TIMEOUT_S)
        if identity.cluster_id != target.cluster_id:
            raise OtherClusterError(
                f"The brokers belong to the cluster {identity.cluster_id}, and {target.cluster_id} is observed: nothing"
                " is followed. Set the addresses in clusters.<name>.kafka to those of the observed cluster"
            )
        if _number(identity.release) < _number(self.release):
            raise UnavailableError(
                f"The cluster has brokers of release {identity.release}, and had {self.release} before: nothing is"
                " followed, because an older release may not show all configs. It goes on once all brokers are of"
                f" {self.release} again; `confplane target pause` and then `resume` accept the older release"
            )
        self.identity, self.release = identity, identity.release
        self._identity_due = now + IDENTITY_S

    async def permissions(self) -> Mapping[KraftEntityType, GrantedPermission]:
        """Return the permissions, or an empty map if they were read a moment ago."""
        now = self.clock()
        if now < self._permissions_due:
            return {}
        permissions = await self._cluster.permissions(now + _TIMEOUT_S)
        self._permissions_due = now + PERMISSIONS_S
        return permissions


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", release)))
