"""The arguments of a handler, found in a request by the parameters that the handler declares to FastAPI.

FastAPI reads the declarations, describes them in the specification, and validates each value sent. FastAPI's own
injection costs several times as much as the response to a poll. Here nearly all of the work is done once for each
route, and a request pays for the parameters that it sends.

A handler takes ``request``, texts of the path, optional single values of the query and of headers, one body, and
dependencies. A dependency takes the same, except a body and further dependencies. Dependencies that return a value are
plain functions, whose first parameters are the request and at most one text of the path. Dependencies that only check
their own parameters are coroutine functions. They are called only if one of these parameters is sent. A parameter that
is not sent takes the default of its function.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

from confplane.api.problems import FindingsError
from confplane.api.request_context import REQUEST_CONTEXT
from confplane.api.routing.bodies import BodyReader
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi.dependencies.models import Dependant
    from pydantic.fields import FieldInfo
    from starlette.requests import Request
    from starlette.types import Scope

    from confplane.api.models import RequestModel


_MOST_NEEDED: Final = 2
"""The most parameters of a dependency that every request has: the request and a text of the path."""


class Binder:
    """Finds the arguments of one handler.

    Args:
        dependant: FastAPI's reading of the handler's signature.

    Attributes:
        has_body: True if the handler takes a body.
    """

    def __init__(self, dependant: Dependant) -> None:
        self._handler = _InjectedCallable(dependant)
        dependencies = [_InjectedCallable(dependency) for dependency in dependant.dependencies]
        self._values = {part.name: part for part in dependencies if part.name is not None}
        self._checks = [part for part in dependencies if part.name is None]
        parts = (self._handler, *dependencies)
        self._queries = frozenset(name for part in parts for name in part.queries)
        self._shared_headers = frozenset(name for part in dependencies for name in part.headers)
        self._bodies = {
            field.name: BodyReader(cast("type[RequestModel]", field.field_info.annotation))
            for field in dependant.body_params
        }
        self.has_body = bool(self._bodies)
        self._constants = {name: part.call() for name, part in self._values.items() if not part.needs_request}
        for part in self._values.values():
            if part.needs_request:
                part.check_order()
        self._variables = [(name, part.call, part.text) for name, part in self._values.items() if part.needs_request]

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Return the arguments of a request for which :meth:`unsent` returned None, or whose handler takes a body.

        Parameters are validated first, then the checks wait, then the dependencies are called, then the body is read.

        Raises:
            InvalidRequestError: A query parameter is unknown, is given twice, or is not text.
            FindingsError: A parameter or the body is not valid for the handler.
            ConfplaneError: As the dependencies and :class:`BodyReader`.
        """
        arguments = (self.unsent(request) if self.has_body else None) or await self._sent(request)
        for name, read in self._bodies.items():
            arguments[name] = await read(request)
        return arguments

    def unsent(self, request: Request) -> dict[str, Any] | None:
        """Return the arguments, without the body, of a request without query and without headers of dependencies.

        Returns None for any other request.

        Raises:
            FindingsError: A header is not valid for the handler.
            ConfplaneError: As the dependencies.
        """
        scope = request.scope
        headers = scope[REQUEST_CONTEXT].headers
        if scope["query_string"] or not self._shared_headers.isdisjoint(headers):
            return None
        arguments = self._handler.unsent(request)
        if not self._handler.headers.keys().isdisjoint(headers):
            findings: list[Any] = []
            self._handler.add_headers(request, arguments, findings)
            if findings:
                raise FindingsError(findings)
        arguments.update(self._constants)
        for name, call, text in self._variables:
            arguments[name] = call(request) if text is None else call(request, scope["path_params"][text])
        return arguments

    async def _sent(self, request: Request) -> dict[str, Any]:
        """Return the arguments, without the body, of a request that has parameters."""
        query, headers = self._query(request.scope["query_string"]), request.scope[REQUEST_CONTEXT].headers
        findings: list[Any] = []
        arguments = self._handler.sent(request, query, findings)
        checks = [(part, part.sent(request, query, findings)) for part in self._checks if part.is_sent(query, headers)]
        values = {
            name: part.sent(request, query, findings)
            for name, part in self._values.items()
            if part.is_sent(query, headers)
        }
        if findings:
            raise FindingsError(findings)
        for part, given in checks:
            await part.call(**given)
        for name, part in self._values.items():
            if name in values:
                arguments[name] = part.call(**values[name])
            elif name in self._constants:
                arguments[name] = self._constants[name]
            else:
                arguments[name] = part.unsent_value(request)
        return arguments

    def _query(self, text: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        if not text:
            return found
        for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
            if name not in self._queries:
                raise InvalidRequestError(
                    f"Unknown query parameter {name[:100]!a}; there are: {', '.join(sorted(self._queries))}",
                    pointer=name[:100],
                )
            if name in found:
                raise InvalidRequestError(f"The query parameter {name} is given twice", pointer=name)
            if "\0" in value or "\ufffd" in value:
                raise InvalidRequestError(f"The query parameter {name} is not UTF-8 text without NUL", pointer=name)
            found[name] = value
        return found


class _InjectedCallable:
    """A handler or one of its dependencies, with the parameters that it takes itself."""

    def __init__(self, dependant: Dependant) -> None:
        self.call: Any = dependant.call
        self.name: Any = dependant.name
        self.queries = {field.alias: field for field in dependant.query_params}
        self.headers = {field.alias.lower().encode(): field for field in dependant.header_params}
        self._plain = {header for header, field in self.headers.items() if _is_any_text(field.field_info)}
        self._path = [(field.name, field.alias) for field in dependant.path_params]
        self._request = dependant.request_param_name
        self.needs_request = bool(self._request or self._path)
        self.text = self._path[0][1] if self._path else None
        """The text of the path that a dependency takes."""
        self._needed = [self._request, *(name for name, _ in self._path)]

    def check_order(self) -> None:
        """Check that the values that every request has are the first parameters of a dependency.

        Raises:
            TypeError: They are not, or they are more than the request and one text of the path.
        """
        order = [*signature(self.call).parameters][: len(self._needed)]
        if order != self._needed or len(order) > _MOST_NEEDED:
            raise TypeError(f"{self.call} must take the request, then at most one text of the path, then the rest")

    def is_sent(self, query: Mapping[str, str], headers: Mapping[bytes, bytes]) -> bool:
        """Return True if a request has one of the optional parameters."""
        return not (self.queries.keys().isdisjoint(query) and self.headers.keys().isdisjoint(headers))

    def unsent_value(self, request: Request) -> Any:
        """Return the value of a dependency of whose optional parameters none is sent."""
        text = self.text
        return self.call(request) if text is None else self.call(request, request.scope["path_params"][text])

    def unsent(self, request: Request) -> dict[str, Any]:
        """Return the values of the parameters that every request has, by their names in Python."""
        found: dict[str, Any] = {} if self._request is None else {self._request: request}
        for name, alias in self._path:
            found[name] = request.scope["path_params"][alias]
        return found

    def sent(self, request: Request, query: Mapping[str, str], findings: list[Any]) -> dict[str, Any]:
        """Return the values of the parameters that a request has, and add their faults to the findings."""
        found = self.unsent(request)
        if query:
            for alias, field in self.queries.items():
                if alias in query:
                    found[field.name], wrong = field.validate(query[alias], loc=("query", alias))
                    findings += wrong
        self.add_headers(request, found, findings)
        return found

    def add_headers(self, request: Request, found: dict[str, Any], findings: list[Any]) -> None:
        """Add the values of the headers that a request has, and their faults to the findings."""
        headers = request.scope[REQUEST_CONTEXT].headers
        for header, field in self.headers.items():
            if header in headers:
                text = _header(request.scope, header)
                if header in self._plain:
                    found[field.name] = text
                else:
                    found[field.name], wrong = field.validate(text, loc=("header", field.alias))
                    findings += wrong


def _is_any_text(field: FieldInfo) -> bool:
    """Return True if a parameter accepts any text, so that it needs no validation."""
    return field.annotation == str | None and not field.metadata


def _header(scope: Scope, name: bytes) -> str:
    """Return the value of a header, UTF-8 or else Latin-1; several lines are joined into one list (RFC 9110)."""
    headers = scope[REQUEST_CONTEXT].headers
    if len(headers) == len(scope["headers"]):
        value: bytes = headers[name]  # no header is repeated
    else:
        value = b", ".join([value for each, value in scope["headers"] if each == name])
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
