"""Alters of client quotas and of configs: few large requests, one at a time for each kind.

A broker forwards alters to the controller one after the other. Each takes some 25 ms; a thousand entities in one
request take twice as long. All valid entries of a request become one batch of records. The response also has the errors
of the invalid ones, in any order. If all entries of a request have the same error, the error may be that of the whole
request. The request is then sent again in halves, until the invalid entry is isolated.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from confplane.kraft.wire import errors
from confplane.kraft.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from confplane.kraft.wire.messages.configs import AlterableConfig, AlterConfigsResource
from confplane.kraft.wire.messages.quotas import (
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from confplane.services.ports.applying import AlterApplied, AlterRefused, AlterRetriable, AlterUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from confplane.kraft.views import Resource
    from confplane.kraft.wire.connection import KraftConnection
    from confplane.services.ports.applying import AlterOutcome

MOST_RECORDS: Final = 4_000
"""Records in one request. The controller refuses a request of more than 10,000."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the keys and values in one request. The controller writes all records of a request as one batch of at most 8
MiB, and returns an unknown error for each entry of a larger one."""
_OF_TOPICS: Final = frozenset({errors.UNKNOWN_TOPIC_OR_PARTITION, errors.INVALID_TOPIC_EXCEPTION})
_REFUSALS: Final = _OF_TOPICS | {errors.INVALID_CONFIG, errors.INVALID_REQUEST, errors.POLICY_VIOLATION}
"""Codes of an entry that the controller did not apply and would refuse again."""
_OF_AN_ENTRY: Final = {0} | _OF_TOPICS | errors.RIGHTS | errors.PASSING
"""Error codes that a smaller request would return as well."""

N_contra = TypeVar("N_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)
Name = tuple[tuple[str, str | None], ...]
"""The types and names of a client entity's parts; None means the default."""
QuotaOps = tuple[Name, "Mapping[str, float | None]"]
"""An entity, and its keys with their values; None means a removal."""
ConfigOps = tuple["Resource", "Mapping[str, str | None]"]
"""A resource, and its keys with their values; None means a removal."""


@dataclass(frozen=True, slots=True)
class AlterEntryResult:
    """The result of one entry."""

    code: int
    said: str | None


class AlterRequest(Protocol[N_contra, V_contra]):
    """One request about entries. The results are in their order, with None for an entry that the response omits."""

    async def __call__(
        self,
        connection: KraftConnection,
        entries: Sequence[tuple[N_contra, Mapping[str, V_contra | None]]],
        deadline: float,
        *,
        validate_only: bool,
    ) -> list[AlterEntryResult | None]:
        """Send the request."""


class AlterSender(Generic[N_contra, V_contra]):
    """The alters of one kind to one cluster, or to one of its brokers.

    Args:
        ask: Sends one request of the kind.
        connect: Returns a connection to a broker, by a deadline.
    """

    def __init__(
        self, ask: AlterRequest[N_contra, V_contra], connect: Callable[[float], Awaitable[KraftConnection]]
    ) -> None:
        self._ask = ask
        self._connect = connect
        self._turn = asyncio.Lock()

    async def alter(
        self,
        entries: Sequence[tuple[N_contra, Mapping[str, V_contra | None]]],
        by: Callable[[], float],
        *,
        validate_only: bool = False,
    ) -> list[AlterOutcome]:
        """Alter entities and return the outcomes in the same order. Each entity must be named once.

        Args:
            entries: The entities with their keys.
            by: Returns the deadline of the next request.
            validate_only: The cluster only checks the entries, and changes nothing.

        Raises:
            KraftError: There is no connection, and nothing was sent. Entities of later requests are then retriable.
        """
        outcomes: list[AlterOutcome] = []
        async with self._turn:
            for part in _parts(entries):
                outcomes += await self._alter(
                    part, by, validate_only=validate_only, unsent=AlterRetriable if outcomes else None
                )
        return outcomes

    async def _alter(
        self,
        entries: Sequence[tuple[N_contra, Mapping[str, V_contra | None]]],
        by: Callable[[], float],
        *,
        validate_only: bool,
        unsent: Callable[[str], AlterOutcome] | None,
    ) -> list[AlterOutcome]:
        """Alter entities by one request, or by several if the whole request is refused.

        Args:
            entries: The entities.
            by: As of :meth:`alter`.
            validate_only: As of :meth:`alter`.
            unsent: Creates the outcomes if there is no connection. None if that is an error.
        """
        try:
            connection = await self._connect(by())
        except errors.KraftError as error:
            if unsent is None:
                raise
            return [unsent(str(error))] * len(entries)
        try:
            answers = await self._ask(connection, entries, by(), validate_only=validate_only)
        except errors.UnsupportedError:
            raise
        except errors.KraftError as error:
            # The request may or may not have been sent: a lost reply can't be distinguished from a lost request.
            return [AlterUnknown(str(error))] * len(entries)
        if len(entries) > 1 and _is_refused_whole(answers):
            half = len(entries) // 2
            # After an unexpected error the result of the whole request is unknown.
            behind = AlterRetriable if isinstance(_outcome_of(answers[0]), AlterRefused) else AlterUnknown
            outcomes: list[AlterOutcome] = []
            for some in (entries[:half], entries[half:]):
                outcomes += await self._alter(some, by, validate_only=validate_only, unsent=behind)
            return outcomes
        return [_outcome_of(each) for each in answers]


async def send_quota_alters(
    connection: KraftConnection, entries: Sequence[QuotaOps], deadline: float, *, validate_only: bool
) -> list[AlterEntryResult | None]:
    """Send one AlterClientQuotas request; see :class:`AlterRequest`."""
    request = AlterClientQuotasRequest(
        tuple(
            AlterClientQuotasRequestEntryData(
                tuple(AlterClientQuotasRequestEntityData(kind, part) for kind, part in name),
                tuple(OpData(key, 0.0 if value is None else value, value is None) for key, value in ops.items()),
            )
            for name, ops in entries
        ),
        validate_only,
    )
    answer = await connection.call(request, AlterClientQuotasResponse, deadline)
    # Results are matched by entity, because their order is that of a hash map.
    found = {frozenset((part.entity_type, part.entity_name) for part in each.entity): each for each in answer.entries}
    given = [found.get(frozenset(name)) for name, _ in entries]
    return [None if each is None else AlterEntryResult(each.error_code, each.error_message) for each in given]


class _Op(IntEnum):
    """Kafka's numbers of operations on a config (``AlterConfigOp.OpType``)."""

    SET = 0
    DELETE = 1


async def send_config_alters(
    connection: KraftConnection, entries: Sequence[ConfigOps], deadline: float, *, validate_only: bool
) -> list[AlterEntryResult | None]:
    """Send one IncrementalAlterConfigs request; see :class:`AlterRequest`."""
    request = IncrementalAlterConfigsRequest(
        tuple(
            AlterConfigsResource(
                int(resource.type),
                resource.name,
                tuple(
                    AlterableConfig(key, int(_Op.DELETE if value is None else _Op.SET), value)
                    for key, value in ops.items()
                ),
            )
            for resource, ops in entries
        ),
        validate_only,
    )
    answer = await connection.call(request, IncrementalAlterConfigsResponse, deadline)
    found = {(each.resource_type, each.resource_name): each for each in answer.responses}
    given = [found.get((int(resource.type), resource.name)) for resource, _ in entries]
    return [None if each is None else AlterEntryResult(each.error_code, each.error_message) for each in given]


def _is_refused_whole(answers: Iterable[AlterEntryResult | None]) -> bool:
    """Return True if all entries have the same error: the request as a whole may be the cause."""
    codes = {None if each is None else each.code for each in answers}
    return len(codes) == 1 and codes.isdisjoint(_OF_AN_ENTRY | {None})


def _outcome_of(answer: AlterEntryResult | None) -> AlterOutcome:
    """Return the outcome of an entry. None means that the response omitted it."""
    if answer is None:
        return AlterUnknown("The answer of the broker left the entity out")
    code, said = answer.code, answer.said
    if code == 0:
        return AlterApplied()
    if code in errors.RIGHTS:
        return AlterRetriable(str(errors.RightsError("The alter", code, said)))
    if code in _REFUSALS:
        return AlterRefused(code, said or errors.name_of(code))
    name = errors.NAMES.get(code, "An error that this release does not know")
    text = f"{name}: {said}" if said else name
    return AlterUnknown(text) if code in errors.PASSING else AlterUnknown(f"{text} (code {code})", code)


_E = TypeVar("_E", bound=tuple[object, "Mapping[str, object]"])


def _parts(entries: Sequence[_E]) -> Iterator[Sequence[_E]]:
    """Split entities into requests of at most :data:`MOST_RECORDS` and :data:`MOST_BYTES`; one alone may be larger."""
    part: list[_E] = []
    records = size = 0
    for each in entries:
        own = sum(len(f"{key}{value}".encode()) for key, value in each[1].items())
        if part and (records + len(each[1]) > MOST_RECORDS or size + own > MOST_BYTES):
            yield part
            part, records, size = [], 0, 0
        part.append(each)
        records += len(each[1])
        size += own
    if part:
        yield part
