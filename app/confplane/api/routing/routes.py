"""The routes of this API: the only way to a handler, and the only place where its errors become problems."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from confplane.api import problems
from confplane.api.request_context import CLIENT_CLOSED_REQUEST, REQUEST_CONTEXT
from confplane.api.responses import CLUSTER
from confplane.api.routing.binding import Binder
from confplane.api.routing.bounded import bulk_response
from confplane.api.routing.operations import Effect, Handler, validates_only
from confplane.api.routing.preconditions import refuse_conditions
from confplane.api.routing.write_headers import BreakGlass, IdempotencyKey, breakable, idempotent, keyless
from confplane.api.services import REFUSALS
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError
from confplane.services.limits import LimitClass
from confplane.services.ports.cluster_states import ENTITY
from confplane.services.ports.refusals import RefusedAttempt, RefusedEdit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fastapi.params import Depends

    from confplane.api.request_context import RequestContext
    from confplane.api.routing.operations import RouteOperation
    from confplane.services.clusters import Cluster
    from confplane.services.ports.refusals import RefusedAttempts

Responder = Callable[[Request], Coroutine[Any, Any, Response]]
Decorator = Callable[[Handler], Handler]
_PARAMETERS: Final[dict[Effect, Sequence[Any]]] = {
    Effect.CHANGE: (BreakGlass, IdempotencyKey),
    Effect.PROPOSING: (IdempotencyKey,),
}
"""The headers that operations of an effect take in addition to their own parameters."""
_WRAPPED: Final[dict[Effect, Callable[[Handler], Handler]]] = {
    Effect.CHANGE: lambda handler: idempotent(breakable(handler)),
    Effect.PROPOSING: idempotent,
    Effect.CLEARING: keyless,
    Effect.REPORT: keyless,
    Effect.REAPPLYING: keyless,
    Effect.MANAGING: keyless,
}
_RECORDED: Final = frozenset({Effect.CHANGE, Effect.CLEARING, Effect.REAPPLYING})
"""Effects of the operations whose refused attempts are recorded. Those on tokens and grants are security events."""


class StrictRoute(APIRoute):
    """A route to one handler.

    Args:
        method: The HTTP method.
        path: The path, with its parameters in braces.
        handler: The handler.
        operation: The facts of the operation.
        tag: The family of the operation in the specification.
        checks: Dependencies that pass no arguments to the handler.

    Attributes:
        operation: The facts.
        answer: Answers a request, including one that fails.
    """

    answer: Responder

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        operation: RouteOperation,
        *,
        tag: str | None = None,
        checks: Sequence[Depends] = (),
    ) -> None:
        self.operation = operation
        super().__init__(
            path,
            handler,
            methods=[method],
            operation_id=operation.id or to_camel(handler.__name__),
            summary=operation.summary,
            description=operation.description,
            status_code=next(iter(operation.answers), 200),
            response_class=Response,
            responses={status: answer.described() for status, answer in operation.answers.items()},
            tags=[] if tag is None else [tag],
            dependencies=[*_PARAMETERS.get(operation.effect, ()), *checks],
            include_in_schema=operation.listed,
        )

    def takes(self, header: str) -> bool:
        """Return True if a header is a parameter of the operation."""
        return any(
            field.alias == header
            for part in (self.dependant, *self.dependant.dependencies)
            for field in part.header_params
        )

    def get_route_handler(self) -> Responder:
        """Return :attr:`answer`."""
        bind, handler = Binder(self.dependant), _WRAPPED.get(self.operation.effect, _plain)(self.endpoint)
        unconditional = self.operation.effect is Effect.CHANGE and not self.takes("If-Match")
        limit, longest_s = self.operation.limit, self.operation.longest_s
        is_bulk = limit is LimitClass.BULK
        recorded = self.operation.effect in _RECORDED
        operation_id = str(self.operation_id)
        tag = str(self.tags[0]) if self.tags else None

        async def answer(request: Request) -> Response:
            response: Response
            context: RequestContext = request.scope[REQUEST_CONTEXT]
            allowance, arguments = context.allowance, None
            if recorded:
                context.refused = []
            try:
                if allowance is not None and limit is not None:
                    allowance.take(limit)  # before any other work
                if unconditional:
                    refuse_conditions(request)
                arguments = (None if bind.has_body else bind.unsent(request)) or await bind(request)
                context.extend(longest_s)
                response = await (bulk_response(request, handler, arguments) if is_bulk else handler(**arguments))
            except ConfplaneError as error:
                await context.hold(error)
                response = problems.respond(request, error)
            except ClientDisconnect:
                response = Response(status_code=CLIENT_CLOSED_REQUEST)  # no client reads it
            except Exception as error:  # noqa: BLE001 - the last resort, for mistakes of ours
                response = problems.internal(request, error)
            if recorded:
                record_refusals(REFUSALS(request), request, operation_id, tag, arguments)
            if allowance is not None and limit is not None:
                response.raw_headers += allowance.headers(limit)
            return response

        self.answer = answer
        return answer


class Routes:
    """The routes of one family of operations, in the order in which they are matched.

    Args:
        tag: The family's name in the specification. None if the specification lists none of its routes.
    """

    def __init__(self, *, tag: str | None) -> None:
        self._tag = tag
        self._made: list[StrictRoute] = []

    def __iter__(self) -> Iterator[StrictRoute]:
        return iter(self._made)

    def get(self, path: str, operation: RouteOperation, *, checks: Sequence[Depends] = ()) -> Decorator:
        """Return a decorator that makes a route to a handler; the arguments are those of :class:`StrictRoute`."""
        return partial(self._add, "GET", path, operation, checks)

    def post(self, path: str, operation: RouteOperation, *, checks: Sequence[Depends] = ()) -> Decorator:
        """Return a decorator as :meth:`get` does."""
        return partial(self._add, "POST", path, operation, checks)

    def put(self, path: str, operation: RouteOperation, *, checks: Sequence[Depends] = ()) -> Decorator:
        """Return a decorator as :meth:`get` does."""
        return partial(self._add, "PUT", path, operation, checks)

    def delete(self, path: str, operation: RouteOperation, *, checks: Sequence[Depends] = ()) -> Decorator:
        """Return a decorator as :meth:`get` does."""
        return partial(self._add, "DELETE", path, operation, checks)

    def _add(
        self, method: str, path: str, operation: RouteOperation, checks: Sequence[Depends], handler: Handler
    ) -> Handler:
        self._made.append(StrictRoute(method, path, handler, operation, tag=self._tag, checks=checks))
        return handler


def _plain(handler: Handler) -> Handler:
    return handler


def record_refusals(
    log: RefusedAttempts, request: Request, operation: str, tag: str | None, arguments: Mapping[str, Any] | None
) -> None:
    """Record the refused attempts of a request, once its response is made.

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
                    problem=problems.problem_type_of(edit.error).slug,
                    request_id=context.request_id,
                    behalf_of=identity.acts_for,
                    entity_id=edit.entity_id or None,
                    keys=tuple(edit.keys),
                )
            )


def _validates_only(error: ConfplaneError, arguments: Mapping[str, Any] | None) -> bool:
    if arguments is None:
        return isinstance(error, problems.FindingsError) and error.validate_only
    return validates_only(arguments["call"], arguments)


def _entity_id(request: Request, tag: str | None) -> str:
    """Return the entity that the URL of a request names, or an empty text."""
    if tag == "freezes":
        return ENTITY
    try:
        return Entity.from_id(request.path_params.get("id", "")).id
    except ConfplaneError:
        return ""
