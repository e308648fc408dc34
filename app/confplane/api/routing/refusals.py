"""Records the refused attempts of a request, once its response is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.api.problems import FindingsError, problem_type_of
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.responses import CLUSTER
from confplane.api.routing.operations import Effect, validates_only
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError
from confplane.services.ports.cluster_states import ENTITY
from confplane.services.ports.refusals import RefusedAttempt, RefusedEdit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from confplane.api.request_context import RequestContext
    from confplane.services.clusters import Cluster
    from confplane.services.ports.refusals import RefusedAttempts

RECORDED: Final = frozenset({Effect.CHANGE, Effect.CLEARING, Effect.REAPPLYING})
"""Effects of the operations whose refused attempts are recorded. Those on tokens and grants are security events."""


def record(
    log: RefusedAttempts, request: Request, operation: str, tag: str | None, arguments: Mapping[str, Any] | None
) -> None:
    """Record what was refused.

    Args:
        log: Takes the attempts.
        request: The request. Its context has the refused edits, and the error of the response.
        operation: The id of the operation.
        tag: The family of the operation.
        arguments: The handler's arguments. None if they are not valid.
    """
    context: RequestContext = request.scope[REQUEST_CONTEXT]
    refused, error = context.refused or [], context.error
    # The frames in an error's traceback have the context: a cycle of references.
    context.refused, context.error = None, None
    cluster: Cluster | None = request.scope.get(CLUSTER)
    if context.access is None or cluster is None or cluster.name != request.path_params["cluster"]:
        return
    if not refused and error is not None and not _validates_only(error, arguments):
        refused = [RefusedEdit(_entity_id(request, tag), (), error)]
    identity = context.access.identity
    for edit in refused:
        if edit.error.is_refusal and not edit.error.in_trail:
            log.record(
                RefusedAttempt(
                    cluster=cluster.name,
                    principal=identity.principal,
                    operation=operation,
                    error_code=int(edit.error.code),
                    problem=problem_type_of(edit.error).slug,
                    request_id=context.request_id,
                    behalf_of=identity.acts_for,
                    entity_id=edit.entity_id or None,
                    keys=tuple(edit.keys),
                )
            )


def _validates_only(error: ConfplaneError, arguments: Mapping[str, Any] | None) -> bool:
    if arguments is None:
        return isinstance(error, FindingsError) and error.validate_only
    return validates_only(arguments["call"], arguments)


def _entity_id(request: Request, tag: str | None) -> str:
    """Return the entity that the URL of a request names, or an empty text."""
    if tag == "freezes":
        return ENTITY
    try:
        return Entity.from_id(request.path_params.get("id", "")).id
    except ConfplaneError:
        return ""
