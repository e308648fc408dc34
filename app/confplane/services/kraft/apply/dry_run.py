"""Dry runs before a commit: validates configs with the Kafka cluster, without changing anything.

Dry runs of many clients share requests: while one request is in flight, the next ones are batched. A dry run takes at
most five seconds. A cluster that is away or does not answer in time is not asked for some seconds. Writes commit
without validation in that time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_consistency import POOLS, pool_bounds
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import (
    ConfplaneError,
    InvalidConfigError,
    InvalidRequestError,
    PolicyViolationError,
    UnavailableError,
    UnknownTopicError,
    WriteOutcome,
)
from confplane.domain.facets import Tree
from confplane.services.kraft.apply.apply_queue import queue_name
from confplane.services.kraft.apply.deliveries import find_absent_keys, redact, topic_ids_of
from confplane.services.kraft.pending_entity import PendingEntity, describe_refusals
from confplane.services.ports.applying import (
    NO_STATE,
    AlterApplied,
    Alteration,
    AlterRefused,
    AlterUnknown,
    DryRunResult,
)
from confplane.services.ports.kafka import kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet

    from confplane.services.kraft.apply.deliveries import SecretOpener
    from confplane.services.ports.applying import AlterOutcome, TargetStates, WritableKafkaCluster
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""Maximum number of seconds for a dry run, including the wait for its request."""
BACKOFF_S: Final = 5.0
"""Seconds without dry runs after one without an answer."""
_AT_ONCE: Final = 500
_REFUSED: Final = (
    "The Kafka cluster refused other keys of this entity before, and they stay refused until they are changed: {}"
)
_WAITING: Final = "The Kafka cluster may refuse keys of this entity that wait to be applied: {}. {}"
_UNCHECKED: Final = (
    "It is not known whether {brokers} will accept {keys} at the next start: {reason}. A broker drops all dynamic"
    " defaults if a pool of threads is less than half, or more than double, of the size in its own file"
)
_UNKNOWN_TOPIC: Final = 3
_ERRORS: Final[Mapping[int, type[ConfplaneError]]] = {
    40: InvalidConfigError,
    42: InvalidRequestError,
    44: PolicyViolationError,
}
"""The errors of this service by Kafka's error code."""


@dataclass(eq=False, slots=True)
class _DryRun:
    alteration: Alteration
    outcome: asyncio.Future[AlterOutcome]
    topic_id: str | None = None


class DryRunValidator:
    """Validates configs with one cluster."""

    def __init__(
        self, cluster: WritableKafkaCluster, store: ClusterStore, states: TargetStates, secrets: SecretOpener
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._states = states
        self._secrets = secrets
        self._waiting: defaultdict[str, list[_DryRun]] = defaultdict(list)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._backoff: dict[str, tuple[float, str]] = {}

    async def validate(
        self, entity: Entity, config: Mapping[str, str], keys: Collection[str], pointer: str | None
    ) -> DryRunResult:
        """Validate the new values of some keys with the cluster, together with the keys that wait to be sent.

        Args:
            entity: A topic, broker, group or subscription to client metrics.
            config: The new stored map; a key that is not in it would be removed.
            keys: The altered keys.
            pointer: A JSON pointer to the entity in the request.

        Returns:
            A result with a warning if the cluster could not be asked, and one if it refused other keys before. An
            entity type that is observed has none. The result has the id of the topic, if the cluster shows it.

        Raises:
            UnknownTopicError: The cluster has no such topic.
            InvalidConfigError, InvalidRequestError, PolicyViolationError: The cluster would refuse the values; the
                message is Kafka's.
        """
        target = self._store.target()
        if target is None or not target.applies_to(kraft_type_of(entity)):
            return DryRunResult()
        pending = PendingEntity(self._store.get(Tree.CONFIG, entity.id), NO_STATE)
        if pending.pending_keys:
            states = await self._states.load(self._store.name, [entity.id])
            pending = pending._replace(state=states[entity.id])
        waiting = pending.unsettled_keys.difference(pending.refused_keys, keys) if pending.is_due else set()
        removed = {*keys, *waiting}.intersection(pending.pending_keys) - config.keys()
        found = await find_absent_keys(self._states, self._store.name, {entity.id: (pending.state, removed)})
        absent = found.get(entity.id, set())
        refused = {key: each for key, each in pending.all_refused_keys.items() if key not in {*keys, *absent}}
        warnings = [_REFUSED.format(describe_refusals(refused))] if refused else []
        if not keys:
            return DryRunResult(tuple(warnings))
        try:
            result = await self._ask_without(absent, entity, config, {*keys, *waiting}, pointer)
        except ConfplaneError as error:
            if not waiting - absent:
                raise
            # The queue sends the keys that the cluster accepts without those that it refuses.
            result = await self._ask_without(absent, entity, config, set(keys), pointer)
            warnings.append(_WAITING.format(", ".join(sorted(waiting - absent)), error.detail))
        return replace(result, warnings=(*result.warnings, *warnings))

    async def _ask_without(
        self,
        absent: AbstractSet[str],
        entity: Entity,
        config: Mapping[str, str],
        keys: AbstractSet[str],
        pointer: str | None,
    ) -> DryRunResult:
        """Ask about keys, and again without absent keys if the cluster refuses them: they count as removed anyway."""
        try:
            return await self._ask(entity, config, keys, pointer)
        except ConfplaneError:
            others = keys - absent
            if others == keys:
                raise
            return await self._ask(entity, config, others, pointer) if others else DryRunResult()

    async def _ask(
        self, entity: Entity, config: Mapping[str, str], keys: Collection[str], pointer: str | None
    ) -> DryRunResult:
        name, began = queue_name(entity), time.monotonic()
        if (reason := self._backoff_reason(name)) is not None:
            return _not_validated(reason)
        try:
            secrets = await self._secrets.of(entity, config, keys)
        except ConfplaneError as error:
            return _not_validated(error.detail)
        values = {key: secrets[key].plain if key in secrets else config.get(key) for key in sorted(keys)}
        request = _DryRun(Alteration(entity, values), asyncio.get_running_loop().create_future())
        self._waiting[name].append(request)
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._work(name), name=f"dry-run-{self._store.name}-{name}")
        # The request has its own deadline, which begins later: a connection may hang before it.
        await asyncio.wait({request.outcome}, timeout=began + ANSWER_S - time.monotonic())
        if not request.outcome.done():
            request.outcome.cancel()
            return _not_validated(self._back_off(name, f"No answer came within {ANSWER_S:.0f} seconds"))
        outcome = request.outcome.result()
        if isinstance(outcome, AlterApplied):
            warning = await check_restart(self._cluster, entity, values, began + ANSWER_S, pointer=pointer)
            return DryRunResult(() if warning is None else (warning,), request.topic_id)
        if not isinstance(outcome, AlterRefused):
            return replace(_not_validated(redact(outcome.reason, secrets.values())), topic_id=request.topic_id)
        raise _refusal(outcome.code, redact(outcome.text, secrets.values()), entity, pointer)

    def _backoff_reason(self, name: str) -> str | None:
        """Return the reason why a queue's dry runs are suspended; None if they are not."""
        until, reason = self._backoff.get(name, (0.0, ""))
        return reason if time.monotonic() < until else None

    def _back_off(self, name: str, reason: str) -> str:
        self._backoff[name] = time.monotonic() + BACKOFF_S, reason
        return reason

    async def _work(self, name: str) -> None:
        """Send requests until no dry run is waiting."""
        try:
            while waiting := [each for each in self._waiting.pop(name, []) if not each.outcome.done()]:
                if (reason := self._backoff_reason(name)) is not None:
                    # Dry runs that arrived during a request without an answer wait no longer than it.
                    for request in waiting:
                        request.outcome.set_result(AlterUnknown(reason))
                    continue
                # A request has each entity at most once.
                requests: dict[Entity, _DryRun] = {}
                for request in waiting[:_AT_ONCE]:
                    requests.setdefault(request.alteration.entity, request)
                self._waiting[name] += [each for each in waiting if requests.get(each.alteration.entity) is not each]
                await self._request(name, list(requests.values()))
        finally:
            del self._tasks[name]

    async def _request(self, name: str, requests: list[_DryRun]) -> None:
        alterations = [each.alteration for each in requests]
        deadline = time.monotonic() + ANSWER_S
        outcomes, topic_ids = await asyncio.gather(
            self._cluster.alter_configs(alterations, deadline, validate_only=True),
            topic_ids_of(self._cluster, [each.entity for each in alterations], deadline),
            return_exceptions=True,
        )
        for error in (outcomes, topic_ids):
            if isinstance(error, BaseException) and not isinstance(error, UnavailableError):
                logger.error("Cluster %s: a question failed", self._store.name, exc_info=error)
        if isinstance(outcomes, BaseException):
            failed = "The question failed; the log has the error"
            reason = outcomes.detail if isinstance(outcomes, UnavailableError) else failed
            outcomes = [AlterUnknown(reason)] * len(requests)
        reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, AlterUnknown) and outcome.code is None]
        if len(reasons) == len(outcomes):
            self._back_off(name, reasons[0])
        for request, outcome in zip(requests, outcomes, strict=True):
            # None also if the cluster hides the topic, or does not show the ids in time.
            request.topic_id = (
                None if isinstance(topic_ids, BaseException) else topic_ids.get(request.alteration.entity.id)
            )
            if not request.outcome.done():
                request.outcome.set_result(outcome)


def _not_validated(reason: str) -> DryRunResult:
    return DryRunResult((f"The Kafka cluster was not asked whether it takes the change: {reason}",))


def _refusal(code: int, text: str, entity: Entity, pointer: str | None) -> ConfplaneError:
    said = f"The Kafka cluster would refuse this (code {code}): {text}"
    topic = entity.get(EntityType.TOPIC)
    if code == _UNKNOWN_TOPIC and topic is not None:
        return UnknownTopicError(said, topics=frozenset({topic}), pointer=pointer, outcome=WriteOutcome.NOT_APPLIED)
    return _ERRORS.get(code, InvalidRequestError)(said, pointer=pointer, outcome=WriteOutcome.NOT_APPLIED)


async def check_restart(
    cluster: WritableKafkaCluster,
    entity: Entity,
    values: Mapping[str, str | None],
    deadline: float,
    *,
    pointer: str | None = None,
) -> str | None:
    """Check the sizes of brokers' thread pools as the brokers' next start will do, against the values in their files.

    A broker resizes a pool to between half and double of its size. At its start the size is that of its own file, so a
    dynamic value that was reached in several steps does not fit any more: the broker then drops all of its dynamic
    defaults, and refuses later alters of its own configs.

    Source: core/src/main/scala/kafka/server/DynamicBrokerConfig.scala (``DynamicThreadPool``,
    ``DynamicRemoteLogConfig``, ``updateDefaultConfig``).

    Returns:
        A warning if the file of a broker is not known, else None.

    Raises:
        InvalidRequestError: A broker would drop its dynamic configs at its next start.
    """
    sizes = {key: value for key, value in values.items() if value is not None and key in POOLS}
    if entity.types[0] is not EntityType.BROKER or not sizes:
        return None
    name = entity.components[0][1]
    try:
        files = await cluster.static_values(sizes.keys(), None if name is None else int(name), deadline)
    except UnavailableError as error:
        return _UNCHECKED.format(brokers="each broker", keys=", ".join(sorted(sizes)), reason=error.detail)
    for broker, static in sorted(files.items()):
        for key in sorted(sizes.keys() & (static or {}).keys()):
            size = (static or {})[key]
            bounds = pool_bounds(size, sizes[key])
            if bounds is not None:
                raise InvalidRequestError(
                    f"Invalid dynamic configuration: {key} can be between {bounds[0]} and {bounds[1]} on broker"
                    f" {broker}, half and double of the {size} of its own file or Kafka's default. It would drop all"
                    " dynamic defaults at its next start otherwise. Change its file first, and restart it",
                    pointer=pointer,
                    outcome=WriteOutcome.NOT_APPLIED,
                )
    away = sorted(broker for broker, static in files.items() if static is None)
    if not away:
        return None
    listed = ", ".join(f"broker {broker}" for broker in away)
    return _UNCHECKED.format(brokers=listed, keys=", ".join(sorted(sizes)), reason="it does not answer")
