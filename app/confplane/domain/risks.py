"""Risks: consequences of a valid change that are easily overlooked, such as records that a smaller retention deletes.

A risk is a warning of the response. The policy file can refuse changes by it (domain/policy_rules.py). Rules compare
effective values, so the removal of a key counts like the value that takes its place. Values of other entities are
never repeated.
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.entities import Entity, EntityType
from confplane.domain.enums import StrEnum
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.domain.numbers import plain_number, stored_number
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.resolution import quota_levels
from confplane.domain.texts import clipped
from confplane.domain.topics import values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.resolution import ResolutionLevel
    from confplane.domain.topics import TopicValue

MIN_INSYNC: Final = "min.insync.replicas"
_PREFIX: Final = "User:"
_POLICY: Final = "cleanup.policy"
_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "retention.ms": ("retention.ms", "log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "retention.bytes": ("retention.bytes", "log.retention.bytes"),
}
"""The limits by which brokers delete records, each with the keys of topics and brokers that decide it."""
_POLICIES: Final = (_POLICY, "log.cleanup.policy")


class RiskKind(StrEnum):
    """The kinds of risk, as the policy file spells them."""

    SMALLER_RETENTION = "smaller-retention"
    MIN_INSYNC_REPLICAS = "min-insync-replicas"
    DEFAULT_QUOTA = "default-quota"
    USER_PREFIX = "user-prefix"
    LOWER_QUOTA = "lower-quota"


class Risk(NamedTuple):
    """A risk of a change."""

    kind: RiskKind
    key: str
    """A key that the change sets or removes."""
    text: str
    """A sentence without its period."""


@fast_dataclass(frozen=True, slots=True)
class RiskOptions:
    """The options of the rules."""

    internal_principals: frozenset[str] = frozenset()
    """Principals of brokers and of services that the cluster depends on, as ``User:name``."""
    quota_factor: float = 10
    """A quota may be lowered to this fraction of its value."""


@fast_dataclass(frozen=True, slots=True)
class RiskFacts:
    """One change of an entity, with the facts that its risks depend on."""

    entity: Entity
    keys: frozenset[str]
    """The keys that are set or removed."""
    before: Mapping[str, str]
    """The whole map as stored."""
    after: Mapping[str, str]
    stored: Callable[[str], Mapping[str, str]] = field(default=lambda _: {})
    """Returns the map of any other entity by its id."""
    levels: tuple[ConfigLevels, ConfigLevels] | None = None
    """For topics and brokers, the levels of brokers before and after the change."""
    replication_factor: int | None = None
    """Of the topic; None: not known."""


class _Check(NamedTuple):
    kind: RiskKind
    types: frozenset[EntityType]
    keys: frozenset[str]
    find: Callable[[RiskFacts, RiskOptions], Iterator[tuple[str, str]]]
    """Finds risks, each as a key and a sentence."""
    of_defaults: bool = False
    """True if entities without a default have none of its risks."""


def kinds_of(entity: Entity, keys: frozenset[str]) -> frozenset[RiskKind]:
    """Return the kinds of risk that a change of some keys can have."""
    return frozenset([check.kind for check in _checks(entity, keys)])


def find_risks(facts: RiskFacts, options: RiskOptions) -> tuple[Risk, ...]:
    """Return the risks of a change."""
    return tuple(
        [
            Risk(check.kind, key, text)
            for check in _checks(facts.entity, facts.keys)
            for key, text in check.find(facts, options)
        ]
    )


def _checks(entity: Entity, keys: frozenset[str]) -> tuple[_Check, ...]:
    """Return the checks of a change of some keys."""
    checked = keys & _CHECKED_KEYS
    if not checked:
        return ()
    return _checks_of(entity.types, checked, has_default=any(name is None for _, name in entity.components))


@lru_cache(maxsize=1024)
def _checks_of(types: tuple[EntityType, ...], keys: frozenset[str], *, has_default: bool) -> tuple[_Check, ...]:
    return tuple(
        check
        for check in _CHECKS
        if check.types.issuperset(types) and not check.keys.isdisjoint(keys) and (has_default or not check.of_defaults)
    )


# ---------------------------------------------------------------- topics and brokers


def _smaller_retention(facts: RiskFacts, _: RiskOptions) -> Iterator[tuple[str, str]]:
    """Compare the limits of the topic, or for brokers those of topics without configs of their own.

    Brokers delete records by these limits if the cleanup policy has ``delete``
    (core/src/main/scala/kafka/log/UnifiedLog.scala, deleteOldSegments).
    """
    if facts.levels is None:
        return
    of_topic = facts.entity.types == (EntityType.TOPIC,)
    own_before, own_after = (facts.before, facts.after) if of_topic else ({}, {})
    names = (_POLICY, *_LIMITS)
    before, after = values_of(names, own_before, facts.levels[0]), values_of(names, own_after, facts.levels[1])
    whose = clipped(facts.entity.id) if of_topic else "topics without one of their own"
    for name, keys in _LIMITS.items():
        was, becomes = _limit(name, before), _limit(name, after)
        if not becomes < was:
            continue
        key = next(key for key in (*keys, *_POLICIES) if key in facts.keys)
        deciding = [before[name], after[name], *((before[_POLICY], after[_POLICY]) if key in _POLICIES else ())]
        assumed = ", if the brokers' own files leave Kafka's defaults" if any(each.assumed for each in deciding) else ""
        text = (
            f"The {name} of {whose} falls from {_spelled(was)} to {_spelled(becomes)}{assumed}. Brokers delete the"
            " records beyond it at once, and no revert brings them back"
        )
        yield key, text


def _limit(name: str, values: Mapping[str, TopicValue]) -> float:
    """Return a limit by which brokers delete records; infinite if there is none."""
    deletes = "delete" in (values[_POLICY].value or "").replace(" ", "").split(",")
    limit = stored_number(values[name].value or "") if deletes else None
    return math.inf if limit is None or limit < 0 else limit


def _spelled(limit: float) -> str:
    return "unlimited" if limit == math.inf else plain_number(limit)


def _min_insync_replicas(facts: RiskFacts, _: RiskOptions) -> Iterator[tuple[str, str]]:
    """Compare with the replication factor. 1 is the least value, so topics with one replica may have it."""
    factor = facts.replication_factor
    if facts.levels is None or factor is None:
        return
    least = stored_number(values_of([MIN_INSYNC], facts.after, facts.levels[1])[MIN_INSYNC].value or "")
    if least is None or least <= 1 or least < factor:
        return
    effect = "fail while one of its replicas is out of sync" if least == factor else "always fail"
    text = (
        f"{MIN_INSYNC} becomes {plain_number(least)}, and {clipped(facts.entity.id)} has {factor} replicas, so writes"
        f" with acks=all {effect}"
    )
    yield MIN_INSYNC, text


# ---------------------------------------------------------------- quotas


class _Quota(NamedTuple):
    """An effective quota."""

    value: float
    source: str
    """The id of the entity that has it."""


def _effective(levels: Sequence[ResolutionLevel], key: str, facts: RiskFacts, own: Mapping[str, str]) -> _Quota | None:
    """Return the quota that takes effect; None: unlimited, or not a number."""
    for level in levels:
        values = own if level.entity_id == facts.entity.id else facts.stored(level.entity_id)
        if key in values:
            number = stored_number(values[key])
            return None if number is None else _Quota(number, level.entity_id)
    return None


def _default_quota(facts: RiskFacts, options: RiskOptions) -> Iterator[tuple[str, str]]:
    """Find internal principals that a default begins to limit, or limits more.

    The connections between brokers count for the limit of their address like all others
    (core/src/main/scala/kafka/network/SocketServer.scala, ConnectionQuotas).
    """
    entity = facts.entity
    if entity.get(EntityType.USER) is not None:
        return
    for key in sorted(facts.keys & QUOTA_KEYS.keys()):
        if EntityType.IP in entity.types:
            if _is_tighter(_effective(quota_levels(entity), key, facts, facts.before), _own(key, facts)):
                text = (
                    f"{key} of all addresses limits the connections between brokers as well, unless their addresses"
                    " have limits of their own"
                )
                yield key, text
            continue
        limited = [each for each in sorted(options.internal_principals) if _is_limited(each, key, facts)]
        if limited:
            text = (
                f"{key} of {clipped(entity.id)} begins to limit {clipped(', '.join(limited), 300)}. Set quotas of these"
                " users first"
            )
            yield key, text


def _own(key: str, facts: RiskFacts) -> _Quota | None:
    return _effective(quota_levels(facts.entity), key, facts, facts.after)


def _is_limited(principal: str, key: str, facts: RiskFacts) -> bool:
    """Return True if a change of a default lowers the quota of a principal, which has none of its own."""
    user = principal.removeprefix(_PREFIX)
    levels = quota_levels(
        Entity(((EntityType.USER, user), (EntityType.CLIENT_ID, facts.entity.get(EntityType.CLIENT_ID))))
    )
    after = _effective(levels, key, facts, facts.after)
    return (
        after is not None
        and Entity.from_id(after.source).get(EntityType.USER) is None
        and _is_tighter(_effective(levels, key, facts, facts.before), after)
    )


def _is_tighter(before: _Quota | None, after: _Quota | None) -> bool:
    return after is not None and (before is None or after.value < before.value)


def _user_prefix(facts: RiskFacts, _: RiskOptions) -> Iterator[tuple[str, str]]:
    """Find the name of a principal in place of that of a user: brokers look quotas up by the name without its type."""
    user = facts.entity.get(EntityType.USER)
    if user is None or not user.startswith(_PREFIX):
        return
    given = sorted(facts.keys & facts.after.keys() & QUOTA_KEYS.keys())
    if given:
        text = (
            f"Kafka looks up quotas by the name of a user without {_PREFIX!r}, so {given[0]} applies to no client of"
            f" {clipped(user.removeprefix(_PREFIX))}. Leave the prefix out"
        )
        yield given[0], text


def _lower_quota(facts: RiskFacts, options: RiskOptions) -> Iterator[tuple[str, str]]:
    """Compare with the entity's own value before. A first quota below an inherited one is what quotas are for."""
    for key in sorted(facts.keys & facts.before.keys() & QUOTA_KEYS.keys()):
        before = stored_number(facts.before[key])
        after = stored_number(facts.after[key]) if key in facts.after else _inherited(key, facts)
        if before is not None and after is not None and after * options.quota_factor < before:
            text = (
                f"{key} of {clipped(facts.entity.id)} is lowered by more than the factor"
                f" {plain_number(options.quota_factor)}; brokers throttle its clients at once"
            )
            yield key, text


def _inherited(key: str, facts: RiskFacts) -> float | None:
    """Return the quota that takes effect in place of a removed one."""
    levels = quota_levels(facts.entity)
    own = [level.entity_id for level in levels].index(facts.entity.id)
    found = _effective(levels[own + 1 :], key, facts, facts.after)
    return None if found is None else found.value


_TOPIC: Final = frozenset({EntityType.TOPIC})
_QUOTAS: Final = frozenset({EntityType.USER, EntityType.CLIENT_ID, EntityType.IP})
_RETENTION: Final = frozenset([*_POLICIES, *(key for keys in _LIMITS.values() for key in keys)])
_QUOTA_NAMES: Final = frozenset(QUOTA_KEYS)
_CHECKS: Final = (
    _Check(RiskKind.SMALLER_RETENTION, _TOPIC | {EntityType.BROKER}, _RETENTION, _smaller_retention),
    _Check(RiskKind.MIN_INSYNC_REPLICAS, _TOPIC, frozenset({MIN_INSYNC}), _min_insync_replicas),
    _Check(RiskKind.DEFAULT_QUOTA, _QUOTAS, _QUOTA_NAMES, _default_quota, of_defaults=True),
    _Check(RiskKind.USER_PREFIX, _QUOTAS - {EntityType.IP}, _QUOTA_NAMES, _user_prefix),
    _Check(RiskKind.LOWER_QUOTA, _QUOTAS, _QUOTA_NAMES, _lower_quota),
)
_CHECKED_KEYS: Final = frozenset().union(*(check.keys for check in _CHECKS))
