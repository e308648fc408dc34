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
from confplane.services.ports.kafka import EntityTypePermission, GrantedPermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.kraft.alters import ConfigOps
    from confplane.kraft.client import KraftClient
    from confplane.services.ports.applying import AlterOutcome

_NOBODY: Final = "confplane-check"
"""A name for trying a describe, which is allowed or not regardless of whether anything has that name."""
_KEY: Final = "cleanup.policy"
_NAMED: Final = 3
"""Denied resources that are named, at most."""
_AT_ONCE: Final = 500
"""Resources in one alter."""
_TYPES: Final = {
    KraftEntityType.TOPICS: ConfigResourceType.TOPIC,
    KraftEntityType.BROKERS: ConfigResourceType.BROKER,
    KraftEntityType.GROUPS: ConfigResourceType.GROUP,
    KraftEntityType.CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
}
OWN_RIGHTS: Final = frozenset({ConfigResourceType.TOPIC, ConfigResourceType.GROUP})
"""The types of resources that have rights of their own. Those of all other types are rights on the cluster."""
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

    async def probe(self, deadline: float, *, alters: bool = False) -> dict[KraftEntityType, GrantedPermission]:
        """Return the permission for each entity type.

        Args:
            deadline: On ``time.monotonic()``'s clock.
            alters: Try the alters too. Without this, :attr:`EntityTypePermission.FULL` is never returned.

        Raises:
            UnreachableError: No broker responds.
            KraftLoginError: The login is refused.
            WrongClusterError: A broker belongs to another cluster.
        """
        await self._client.brokers(self._by(deadline))
        found: dict[KraftEntityType, GrantedPermission] = {}
        for entity_type in KraftEntityType:
            try:
                found[entity_type] = await self._probe(entity_type, deadline, alters=alters)
            except RightsError as error:
                found[entity_type] = GrantedPermission(
                    EntityTypePermission.NONE, f"{error}; needed: {_RIGHTS[entity_type]}"
                )
            except (AnswerError, UnsupportedError) as error:
                found[entity_type] = GrantedPermission(EntityTypePermission.NONE, str(error))
        return found

    async def _probe(self, entity_type: KraftEntityType, deadline: float, *, alters: bool) -> GrantedPermission:
        names = await self._names(entity_type, deadline)
        if entity_type is KraftEntityType.QUOTAS:
            await self._client.describe_quotas_of([("user", _NOBODY)], self._by(deadline))
            granted = GrantedPermission(EntityTypePermission.READ_ONLY)
        elif names:
            granted = await self._describe(entity_type, names, deadline)
        elif entity_type is KraftEntityType.TOPICS:
            nothing = "no topic is shown: there is none, or DESCRIBE on TOPIC is missing"
            granted = GrantedPermission(EntityTypePermission.READ_ONLY, nothing)
        else:
            granted = (await self._describe(entity_type, [_NOBODY], deadline))._replace(described=0, listed=0)
        if not alters:
            return granted
        for each in await self._alter(entity_type, names, deadline):
            if isinstance(each, AlterRetriable):
                missing = f"{each.reason}; needed for callers' changes: {_ALTER_RIGHTS[entity_type]}"
                return granted._replace(reason=_joined(granted.reason, missing))
            if isinstance(each, AlterUnknown):
                unknown = f"it is not known whether alters are allowed: {each.reason}"
                return granted._replace(reason=_joined(granted.reason, unknown))
        return granted._replace(permission=EntityTypePermission.FULL)

    async def _names(self, entity_type: KraftEntityType, deadline: float) -> list[str]:
        """Return the names of the resources of a type; client quotas have none."""
        match entity_type:
            case KraftEntityType.QUOTAS:
                return []
            case KraftEntityType.TOPICS:
                return list(await self._client.topics(self._by(deadline)))
            case KraftEntityType.BROKERS:
                return ["", *(str(each.node_id) for each in await self._client.brokers(self._by(deadline)))]
        listed = await self._client.list_config_resources({_TYPES[entity_type]}, self._by(deadline))
        return [each.name for each in listed]

    async def _alter(self, entity_type: KraftEntityType, names: Sequence[str], deadline: float) -> list[AlterOutcome]:
        """Alter no key of each entity of a type, or of an entity that does not exist."""
        by = partial(self._by, deadline)
        if entity_type is KraftEntityType.QUOTAS:
            return await self._client.quota_alters.alter([((("user", _NOBODY),), {})], by, validate_only=True)
        if entity_type is KraftEntityType.BROKERS:
            names = [""]
        elif entity_type is not KraftEntityType.TOPICS or not names:
            names = [*names, _NOBODY]
        alters = self._client.config_alters(partition=ConnectionPartition.SHORT)
        entries: list[ConfigOps] = [(Resource(_TYPES[entity_type], name), {}) for name in dict.fromkeys(names)]
        outcomes: list[AlterOutcome] = []
        for start in range(0, len(entries), _AT_ONCE):
            outcomes += await alters.alter(entries[start : start + _AT_ONCE], by, validate_only=True)
        return outcomes

    def _by(self, deadline: float) -> float:
        return min(deadline, time.monotonic() + self._timeout_s)

    async def _describe(self, entity_type: KraftEntityType, names: Sequence[str], deadline: float) -> GrantedPermission:
        """Describe one key of each resource.

        Raises:
            RightsError: No resource may be described.
            KraftError: A resource can't be described for a reason other than its removal, or a missing right of its
                own.
        """
        away: list[str] = []
        denied: dict[str, RightsError] = {}
        resources = [Resource(_TYPES[entity_type], name) for name in names]
        for each in await self._client.describe_configs(resources, deadline, keys=(_KEY,)):
            if each.error is None:
                continue
            if each.resource.type is ConfigResourceType.BROKER and isinstance(each.error, UnreachableError):
                away.append(each.resource.name)
            elif each.resource.type in OWN_RIGHTS and isinstance(each.error, RightsError):
                denied[each.resource.name] = each.error
            elif not isinstance(each.error, AnswerError):
                raise each.error
        if len(denied) == len(names):
            raise next(iter(denied.values()))
        reasons = []
        if away:
            reasons.append(f"not reached for their own configs: {', '.join(f'broker {name}' for name in away)}")
        if denied:
            more = f" and {len(denied) - _NAMED} more" if len(denied) > _NAMED else ""
            reasons.append(f"not described: {', '.join(sorted(denied)[:_NAMED])}{more}; needed: {_RIGHTS[entity_type]}")
        missing = len(away) + len(denied)
        return GrantedPermission(EntityTypePermission.READ_ONLY, _joined(*reasons), len(names) - missing, len(names))


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))
