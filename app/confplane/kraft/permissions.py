"""Finds out which parts of a cluster a login may describe and alter, by trying.

An alter is tried with no keys, and as ``validateOnly``: the cluster checks the rights, and has nothing to change.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.kraft.pool import ConnectionPartition
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.errors import AnswerError, RightsError, UnreachableError, UnsupportedError
from confplane.services.ports.applying import AlterRetriable, AlterUnknown
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.kraft.client import KraftClient
    from confplane.services.ports.applying import AlterOutcome

_NOBODY: Final = "confplane-check"
"""A name for trying a describe, which is allowed or not regardless of whether anything has that name."""
_KEY: Final = "cleanup.policy"
_AT_ONCE: Final = 500
"""Resources in one alter."""
_TYPES: Final = {
    KraftEntityType.TOPICS: ConfigResourceType.TOPIC,
    KraftEntityType.BROKERS: ConfigResourceType.BROKER,
    KraftEntityType.GROUPS: ConfigResourceType.GROUP,
    KraftEntityType.CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
}
_RIGHTS: Final = {
    KraftEntityType.QUOTAS: "DESCRIBE_CONFIGS on CLUSTER",
    KraftEntityType.TOPICS: "DESCRIBE and DESCRIBE_CONFIGS on TOPIC",
    KraftEntityType.BROKERS: "DESCRIBE_CONFIGS on CLUSTER",
    KraftEntityType.GROUPS: "DESCRIBE_CONFIGS on CLUSTER and on GROUP",
    KraftEntityType.CLIENT_METRICS: "DESCRIBE_CONFIGS on CLUSTER",
}
"""The rights of each entity type in Kafka's terms (``KafkaApis.scala``, ``ConfigHelper.scala``)."""
_ALTER_RIGHTS: Final = {
    KraftEntityType.QUOTAS: "ALTER_CONFIGS on CLUSTER",
    KraftEntityType.TOPICS: "ALTER_CONFIGS on TOPIC",
    KraftEntityType.BROKERS: "ALTER_CONFIGS on CLUSTER",
    KraftEntityType.GROUPS: "ALTER_CONFIGS on GROUP",
    KraftEntityType.CLIENT_METRICS: "ALTER_CONFIGS on CLUSTER",
}
"""The rights that are required by the modes that apply clients' changes (``KafkaApis.scala``)."""


class PermissionProbe:
    """Tries the describes of each entity type, and the alters.

    Args:
        client: The cluster.
        timeout_s: Seconds for one request.
    """

    def __init__(self, client: KraftClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def probe(
        self, deadline: float, *, alters: bool = False
    ) -> dict[KraftEntityType, tuple[EntityTypePermission, str]]:
        """Return the permission for each entity type, and a sentence about missing rights.

        Args:
            deadline: On ``time.monotonic()``'s clock.
            alters: Try the alters too. Without this, :attr:`EntityTypePermission.FULL` is never returned.

        Raises:
            UnreachableError: No broker responds.
            KraftLoginError: The login is refused.
            WrongClusterError: A broker belongs to another cluster.
        """
        await self._client.brokers(self._by(deadline))
        tries: dict[KraftEntityType, Callable[[float], Awaitable[str]]] = {
            KraftEntityType.QUOTAS: self._quotas,
            KraftEntityType.TOPICS: self._topics,
            KraftEntityType.BROKERS: self._brokers,
            KraftEntityType.GROUPS: self._groups,
            KraftEntityType.CLIENT_METRICS: self._client_metrics,
        }
        found: dict[KraftEntityType, tuple[EntityTypePermission, str]] = {}
        for entity_type, attempt in tries.items():
            try:
                found[entity_type] = EntityTypePermission.READ_ONLY, await attempt(deadline)
                if alters:
                    found[entity_type] = await self._probe_alters(entity_type, found[entity_type][1], deadline)
            except RightsError as error:
                found[entity_type] = EntityTypePermission.NONE, f"{error}; needed: {_RIGHTS[entity_type]}"
            except (AnswerError, UnsupportedError) as error:
                found[entity_type] = EntityTypePermission.NONE, str(error)
        return found

    async def _probe_alters(
        self, entity_type: KraftEntityType, remark: str, deadline: float
    ) -> tuple[EntityTypePermission, str]:
        """Return the permission for an entity type that may be described, with the remark about its describe."""
        for each in await self._try_alters(entity_type, deadline):
            if isinstance(each, AlterRetriable):
                return (
                    EntityTypePermission.READ_ONLY,
                    f"{each.reason}; needed for callers' changes: {_ALTER_RIGHTS[entity_type]}",
                )
            if isinstance(each, AlterUnknown):
                return EntityTypePermission.READ_ONLY, f"it is not known whether alters are allowed: {each.reason}"
        return EntityTypePermission.FULL, remark

    async def _try_alters(self, entity_type: KraftEntityType, deadline: float) -> list[AlterOutcome]:
        """Alter no key of each entity of a type, or of an entity that does not exist."""
        by = partial(self._by, deadline)
        if entity_type is KraftEntityType.QUOTAS:
            return await self._client.quota_alters.alter([((("user", _NOBODY),), {})], by, validate_only=True)
        if entity_type is KraftEntityType.TOPICS:
            names = list(await self._client.topics(self._by(deadline))) or [_NOBODY]
        elif entity_type is KraftEntityType.BROKERS:
            names = [""]
        else:
            listed = await self._client.list_config_resources({_TYPES[entity_type]}, self._by(deadline))
            names = [*(each.name for each in listed), _NOBODY]
        alters = self._client.config_alters(partition=ConnectionPartition.SHORT)
        resources = [Resource(_TYPES[entity_type], name) for name in dict.fromkeys(names)]
        outcomes: list[AlterOutcome] = []
        for start in range(0, len(resources), _AT_ONCE):
            outcomes += await alters.alter(
                [(each, {}) for each in resources[start : start + _AT_ONCE]], by, validate_only=True
            )
        return outcomes

    def _by(self, deadline: float) -> float:
        return min(deadline, time.monotonic() + self._timeout_s)

    async def _quotas(self, deadline: float) -> str:
        await self._client.describe_quotas_of([("user", _NOBODY)], self._by(deadline))
        return ""

    async def _topics(self, deadline: float) -> str:
        names = list(await self._client.topics(self._by(deadline)))
        await self._describe([Resource(ConfigResourceType.TOPIC, name) for name in names], deadline)
        return "" if names else "no topic is shown: there is none, or DESCRIBE on TOPIC is missing"

    async def _brokers(self, deadline: float) -> str:
        brokers = [str(each.node_id) for each in await self._client.brokers(self._by(deadline))]
        away = await self._describe([Resource(ConfigResourceType.BROKER, name) for name in ("", *brokers)], deadline)
        return f"not reached for their own configs: {', '.join(f'broker {name}' for name in away)}" if away else ""

    async def _groups(self, deadline: float) -> str:
        listed = await self._client.list_config_resources({ConfigResourceType.GROUP}, self._by(deadline))
        await self._describe([*listed, Resource(ConfigResourceType.GROUP, _NOBODY)], deadline)
        return ""

    async def _client_metrics(self, deadline: float) -> str:
        listed = await self._client.list_config_resources({ConfigResourceType.CLIENT_METRICS}, self._by(deadline))
        await self._describe([*listed, Resource(ConfigResourceType.CLIENT_METRICS, _NOBODY)], deadline)
        return ""

    async def _describe(self, resources: Sequence[Resource], deadline: float) -> list[str]:
        """Describe one key of each resource; return the brokers that were not reached.

        Raises:
            KraftError: A resource can't be described for a reason other than its removal.
        """
        away: list[str] = []
        for each in await self._client.describe_configs(resources, deadline, keys=(_KEY,)):
            if each.error is None:
                continue
            if each.resource.type is ConfigResourceType.BROKER and isinstance(each.error, UnreachableError):
                away.append(each.resource.name)
            elif not isinstance(each.error, AnswerError):
                raise each.error
        return away
