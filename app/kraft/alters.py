"""Alters of client quotas: few large requests, one at a time.

A broker forwards alters to the controller one after the other, each of which takes some 25 ms; a thousand entities in
one request take twice as long. All good entries of a request are one batch of records, and the bad ones are answered
beside them, in any order. A request that is refused whole is sent again in halves, until the bad entry stands alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from app.kraft.wire import errors
from app.kraft.wire.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from app.kraft.wire.messages.alter_client_quotas_request import EntityData, EntryData, OpData
from app.services.ports.applying import Applied, Refused, Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from app.kraft.wire.connection import Connection
    from app.kraft.wire.messages.alter_client_quotas_response import EntryData as Answered
    from app.services.ports.applying import End

MOST_RECORDS: Final = 4_000
"""Records in one request. The controller refuses a request of more than 10,000."""
_REFUSALS: Final = frozenset({errors.INVALID_CONFIG, errors.INVALID_REQUEST, errors.POLICY_VIOLATION})
"""Codes of a request, or of an entry, that the controller did not apply and would refuse again."""

Name = tuple[tuple[str, str | None], ...]
"""The types and names of an entity's parts; None names the default."""
_Key = frozenset[tuple[str, "str | None"]]
QuotaOps = tuple[Name, "Mapping[str, float | None]"]
"""An entity, and its keys with their values; None is a removal."""


class QuotaAlters:
    """The alters of one cluster.

    Args:
        connect: Returns a connection to a broker, by a deadline.
    """

    def __init__(self, connect: Callable[[float], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._turn = asyncio.Lock()

    async def alter(self, entities: Sequence[QuotaOps], by: Callable[[], float]) -> list[End]:
        """Alter entities, each of which is named once; return the ends in the same order.

        Args:
            entities: The entities.
            by: Returns the deadline of the next request.

        Raises:
            RightsError: The right to ALTER_CONFIGS of the CLUSTER is missing; nothing was altered by that request.
            KraftError: There is no connection; nothing was sent from there on.
        """
        ends: list[End] = []
        async with self._turn:
            for part in _parts(entities):
                ends += await self._alter(part, by)
        return ends

    async def _alter(self, entities: Sequence[QuotaOps], by: Callable[[], float]) -> list[End]:
        connection = await self._connect(by())
        try:
            found = await _ask(connection, entities, by())
        except errors.UnsupportedError:
            raise
        except errors.KraftError as error:
            # It was sent, or it was not: a lost reply can't be told from a lost request.
            return [Unknown(str(error))] * len(entities)
        if len(entities) > 1 and _is_refused_whole(found):
            half = len(entities) // 2
            return [*await self._alter(entities[:half], by), *await self._alter(entities[half:], by)]
        return [_end(found.get(_key(name))) for name, _ in entities]


async def _ask(connection: Connection, entities: Sequence[QuotaOps], deadline: float) -> Mapping[_Key, Answered]:
    """Send one request; return the answers by entity, because their order is that of a hash map."""
    request = AlterClientQuotasRequest(
        tuple(
            EntryData(
                tuple(EntityData(kind, part) for kind, part in name),
                tuple(OpData(key, 0.0 if value is None else value, value is None) for key, value in ops.items()),
            )
            for name, ops in entities
        )
    )
    answer = await connection.call(request, AlterClientQuotasResponse, deadline)
    return {_key((part.entity_type, part.entity_name) for part in each.entity): each for each in answer.entries}


def _key(name: Iterable[tuple[str, str | None]]) -> _Key:
    return frozenset(name)


def _is_refused_whole(found: Mapping[_Key, Answered]) -> bool:
    """Say whether each entry is answered with the same refusal: the request as a whole may be at fault."""
    codes = {each.error_code for each in found.values()}
    return len(codes) == 1 and codes <= _REFUSALS


def _end(answered: Answered | None) -> End:
    """Return the end of an entry; None: the answer left it out.

    Raises:
        RightsError: A right is missing.
    """
    if answered is None:
        return Unknown("The answer of the broker left the entity out")
    code, said = answered.error_code, answered.error_message
    if code in errors.RIGHTS:
        raise errors.RightsError("AlterClientQuotas", code, said)
    if code == 0:
        return Applied()
    if code in _REFUSALS:
        return Refused(code, said or errors.name_of(code))
    return Unknown(f"{errors.name_of(code)}: {said}" if said else errors.name_of(code))


def _parts(entities: Sequence[QuotaOps]) -> Iterator[Sequence[QuotaOps]]:
    """Cut entities into requests of :data:`MOST_RECORDS` at most."""
    part: list[QuotaOps] = []
    records = 0
    for each in entities:
        if part and records + len(each[1]) > MOST_RECORDS:
            yield part
            part, records = [], 0
        part.append(each)
        records += len(each[1])
    if part:
        yield part
