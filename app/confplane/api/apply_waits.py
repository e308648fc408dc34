"""Waits for the application of changes to a Kafka cluster, and their apply status in responses."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from confplane.api.dependencies import while_valid
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.domain.errors import ConfplaneError, UnavailableError
from confplane.services.kraft.apply.apply_status import FACETS, PENDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.api.dependencies import Call
    from confplane.api.request_context import RequestContext
    from confplane.domain.changes import Node
    from confplane.services.changes.edits import EditResult
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.kraft.apply.apply_status import ApplyStatus


async def read_status(call: Call, cluster_facet: ClusterFacet, nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
    """Return the member ``applied`` of nodes by entity id. Empty if nothing is applied or Postgres is unavailable."""
    waiter = call.cluster.apply_waiter
    if not waiter.applies or cluster_facet.name not in FACETS:
        return {}
    try:
        return _members(await waiter.statuses(nodes))
    except UnavailableError:
        return {}  # a read continues without Postgres


async def wait_for_status(call: Call, written: Iterable[tuple[ClusterFacet, EditResult]]) -> dict[str, dict[str, Any]]:
    """Wait until the results of a write are applied, if the request asks for it.

    The write is already committed, so this never fails: a caller that has too many waits, or whose credential expires
    during the wait, gets its response immediately.

    Returns:
        The member ``applied`` by entity id, of the results that are applied to a Kafka cluster.
    """
    waiter = call.cluster.apply_waiter
    if call.wait_applied_s is None or not waiter.applies:
        return {}
    revisions = {
        result.edit.entity.id: result.revision
        for cluster_facet, result in written
        if cluster_facet.name in FACETS and result.revision is not None and result.node is not None
    }
    if not revisions:
        return {}
    context: RequestContext = call.request.scope[REQUEST_CONTEXT]
    deadline = min(time.monotonic() + call.wait_applied_s, context.deadline)
    try:
        with nullcontext() if context.allowance is None else context.allowance.wait():
            return _members(await while_valid(call.access, waiter.wait(revisions, deadline)))
    except ConfplaneError:
        return _members(dict.fromkeys(revisions, PENDING))


def _members(statuses: dict[str, ApplyStatus]) -> dict[str, dict[str, Any]]:
    return {entity_id: {"applied": status_json(each)} for entity_id, each in statuses.items()}


def status_json(status: ApplyStatus) -> dict[str, Any]:
    """Return an apply status as JSON has it."""
    return {
        "state": status.state.value,
        "revision": None if status.revision is None else str(status.revision),
        "code": status.code,
        "message": status.message,
        "refusedKeys": [
            {"key": key, "code": each.code, "message": each.text} for key, each in sorted(status.refused_keys.items())
        ],
    }
