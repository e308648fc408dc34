"""The standing of entities in the Kafka cluster to which callers' changes are applied, as answers show it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from confplane.api.context import while_valid
from confplane.api.incoming import INCOMING
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.services.kraft.standing import FACETS, PENDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.api.context import Call
    from confplane.api.incoming import Incoming
    from confplane.domain.changes import Node
    from confplane.services.changes.edits import EditResult
    from confplane.services.collections import Collection
    from confplane.services.kraft.standing import Standing, Standings


async def of(call: Call, collection: Collection, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
    """Return the member ``applied`` of nodes by entity id; none where nothing is applied, or without Postgres."""
    standings = _standings(call)
    if not standings.applies or collection.name not in FACETS:
        return {}
    try:
        return _members(await standings.of(nodes))
    except UnavailableError:
        return {}  # a read goes on without Postgres


async def waited(call: Call, written: Iterable[tuple[Collection, EditResult]]) -> dict[str, dict[str, Any]]:
    """Wait for the application of a write's results, if its request asks for that.

    The write is committed, so nothing ends with an error: a caller with too many waits, or whose credential ends
    meanwhile, is answered at once.

    Returns:
        The member ``applied`` by entity id, of the results that are applied to a Kafka cluster.
    """
    standings = _standings(call)
    if call.wait_applied_s is None or not standings.applies:
        return {}
    revisions = {
        result.edit.entity.id: result.revision
        for collection, result in written
        if collection.name in FACETS and result.revision is not None and result.node is not None
    }
    if not revisions:
        return {}
    incoming: Incoming = call.request.scope[INCOMING]
    deadline = min(time.monotonic() + call.wait_applied_s, incoming.deadline)
    try:
        with nullcontext() if incoming.allowance is None else incoming.allowance.wait():
            return _members(await while_valid(call.access, standings.wait(revisions, deadline)))
    except ConfplaneError:
        return _members(dict.fromkeys(revisions, PENDING))


def _standings(call: Call) -> Standings:
    return call.services.standings[call.cluster.name]


def _members(standings: dict[str, Standing]) -> dict[str, dict[str, Any]]:
    return {entity_id: {"applied": _data(each)} for entity_id, each in standings.items()}


def _data(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state.value,
        "revision": None if standing.revision is None else str(standing.revision),
        "code": standing.code,
        "message": standing.message,
    }
