"""Questions to a Kafka cluster before a commit: would it take some configs? Nothing is changed by them.

Questions of many callers share requests: while one is under way, others gather. A question waits five seconds at most,
whatever hangs. A cluster that is away, or does not answer in time, is not asked for some seconds; writes commit then
without its word.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

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
from confplane.services.kraft import topics
from confplane.services.kraft.line import line_of
from confplane.services.kraft.secrets import without
from confplane.services.ports.applying import Alteration, Applied, Asked, Refused, Unknown
from confplane.services.ports.kafka import area_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from confplane.services.kraft.secrets import Secrets
    from confplane.services.ports.applying import AlteredCluster, End
    from confplane.services.ports.store import ClusterStore

logger = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""Seconds for a question, those before its request included."""
QUIET_S: Final = 5.0
"""Seconds without questions after one without an answer."""
_AT_ONCE: Final = 500
_UNKNOWN_TOPIC: Final = 3
_ERRORS: Final[Mapping[int, type[ConfplaneError]]] = {
    40: InvalidConfigError,
    42: InvalidRequestError,
    44: PolicyViolationError,
}
"""The errors of this service by Kafka's numbers."""


@dataclass(eq=False, slots=True)
class _Question:
    alteration: Alteration
    end: asyncio.Future[End]
    topic_id: str | None = None


class Asking:
    """Asks one cluster.

    Args:
        cluster: The Kafka cluster.
        store: The cluster's store.
        secrets: Opens passwords.
    """

    def __init__(self, cluster: AlteredCluster, store: ClusterStore, secrets: Secrets) -> None:
        self._cluster = cluster
        self._store = store
        self._secrets = secrets
        self._waiting: defaultdict[str, list[_Question]] = defaultdict(list)
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._quiet: dict[str, tuple[float, str]] = {}

    async def ask(self, entity: Entity, config: Mapping[str, str], keys: Collection[str], pointer: str | None) -> Asked:
        """Ask whether the cluster would take the new values of some keys.

        Args:
            entity: A topic, broker, group or subscription to client metrics.
            config: The stored map as it would be; a key that is not in it would be removed.
            keys: The altered keys.
            pointer: A JSON pointer to the entity in the request.

        Returns:
            A warning where the cluster could not be asked; none where it would take the values, or where callers write
            none of its configs. With it comes the id of the topic, for which no request waits.

        Raises:
            UnknownTopicError: The cluster has no such topic.
            InvalidConfigError, InvalidRequestError, PolicyViolationError: The cluster would refuse the values; the text
                is Kafka's.
        """
        target = self._store.target()
        if target is None or not target.applies_to(area_of(entity)):
            return Asked()
        name, began = line_of(entity), time.monotonic()
        if (reason := self._reason(name)) is not None:
            return _not_asked(reason)
        try:
            secrets = await self._secrets.of(entity, config, keys)
        except ConfplaneError as error:
            return _not_asked(error.detail)
        values = {key: secrets[key].plain if key in secrets else config.get(key) for key in sorted(keys)}
        question = _Question(Alteration(entity, values), asyncio.get_running_loop().create_future())
        self._waiting[name].append(question)
        if name not in self._asking:
            self._asking[name] = asyncio.create_task(self._work(name), name=f"asking-{self._store.name}-{name}")
        # The request has a deadline of its own; it begins later, and a connection may hang ahead of it.
        await asyncio.wait({question.end}, timeout=began + ANSWER_S - time.monotonic())
        if not question.end.done():
            question.end.cancel()
            return _not_asked(self._be_quiet(name, f"No answer came within {ANSWER_S:.0f} seconds"))
        end = question.end.result()
        if isinstance(end, Applied):
            return Asked(topic_id=question.topic_id)
        if not isinstance(end, Refused):
            return replace(_not_asked(without(end.reason, secrets.values())), topic_id=question.topic_id)
        raise _refusal(end.code, without(end.text, secrets.values()), entity, pointer)

    def _reason(self, name: str) -> str | None:
        """Return the reason why a line is not asked now; None where it is."""
        until, reason = self._quiet.get(name, (0.0, ""))
        return reason if time.monotonic() < until else None

    def _be_quiet(self, name: str, reason: str) -> str:
        self._quiet[name] = time.monotonic() + QUIET_S, reason
        return reason

    async def _work(self, name: str) -> None:
        """Send requests until nobody waits."""
        try:
            while waiting := [each for each in self._waiting.pop(name, []) if not each.end.done()]:
                if (reason := self._reason(name)) is not None:
                    # Who came amid a request without an answer waits no longer than it.
                    for question in waiting:
                        question.end.set_result(Unknown(reason))
                    continue
                # An entity is named once in a request.
                asked: dict[Entity, _Question] = {}
                for question in waiting[:_AT_ONCE]:
                    asked.setdefault(question.alteration.entity, question)
                self._waiting[name] += [each for each in waiting if asked.get(each.alteration.entity) is not each]
                await self._request(name, list(asked.values()))
        finally:
            del self._asking[name]

    async def _request(self, name: str, asked: list[_Question]) -> None:
        alterations = [each.alteration for each in asked]
        deadline = time.monotonic() + ANSWER_S
        ids = asyncio.create_task(self._topic_ids(alterations, deadline))
        ends: list[End]
        try:
            ends = await self._cluster.alter_configs(alterations, deadline, validate_only=True)
        except UnavailableError as error:
            ends = [Unknown(error.detail)] * len(asked)
        except Exception:
            logger.exception("Cluster %s: a question failed", self._store.name)
            ends = [Unknown("The question failed; the log has the error")] * len(asked)
        reasons = [end.reason for end in ends if isinstance(end, Unknown) and end.code is None]
        if len(reasons) == len(ends):
            self._be_quiet(name, reasons[0])
        topic_ids = await ids
        for question, end in zip(asked, ends, strict=True):
            question.topic_id = topic_ids.get(question.alteration.entity.id)
            if not question.end.done():
                question.end.set_result(end)

    async def _topic_ids(self, alterations: Sequence[Alteration], deadline: float) -> Mapping[str, str | None]:
        """Return the ids of the topics by entity id, beside the question; none where the cluster does not show them."""
        try:
            return await topics.ids_of(self._cluster, [each.entity for each in alterations], deadline)
        except UnavailableError:
            return {}
        except Exception:
            logger.exception("Cluster %s: a question for the ids of topics failed", self._store.name)
            return {}


def _not_asked(reason: str) -> Asked:
    return Asked(f"The Kafka cluster was not asked whether it takes the change: {reason}")


def _refusal(code: int, text: str, entity: Entity, pointer: str | None) -> ConfplaneError:
    said = f"The Kafka cluster would refuse this (code {code}): {text}"
    topic = entity.get(EntityType.TOPIC)
    if code == _UNKNOWN_TOPIC and topic is not None:
        return UnknownTopicError(said, topics=frozenset({topic}), pointer=pointer, outcome=WriteOutcome.NOT_APPLIED)
    return _ERRORS.get(code, InvalidRequestError)(said, pointer=pointer, outcome=WriteOutcome.NOT_APPLIED)
