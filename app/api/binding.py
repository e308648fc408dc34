"""The arguments of a handler, found in a request by what the handler declares to FastAPI.

FastAPI reads the declarations, describes them in the specification, and validates each value that is sent. Its own
injection costs several times as much as the answer to a poll. Here nearly all of the work is done once for each route:
a request without a query takes the defaults as they are.

A handler takes its dependencies and these parameters of its own: ``request``, texts of the path, optional single values
of the query and of headers, and one body. Its dependencies take the same, but for the body, and no dependencies.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl

from app.api.bodies import BodyReader
from app.api.edge import HEADERS
from app.api.problems import FindingsError
from app.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi.dependencies.models import Dependant
    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.types import Scope

_NOTHING: Final[Mapping[str, str]] = {}


class Binder:
    """Finds the arguments of one handler.

    Args:
        dependant: What FastAPI read in the handler's signature.
    """

    def __init__(self, dependant: Dependant) -> None:
        self._own = _Part(dependant)
        self._dependencies = tuple(_Part(dependency) for dependency in dependant.dependencies)
        self._names = frozenset(name for part in (self._own, *self._dependencies) for name in part.query)
        self._bodies: dict[str, BodyReader] = {
            field.name: BodyReader(cast("type[BaseModel]", field.field_info.annotation))
            for field in dependant.body_params
        }

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Return the arguments.

        Parameters are read first, then the dependencies are called in their order, then the body is read.

        Raises:
            InvalidRequestError: A query parameter is unknown, is given twice, or is no text.
            FindingsError: A parameter or the body is not what the handler takes.
            ConfplaneError: As the dependencies and :class:`BodyReader`.
        """
        text: bytes = request.scope["query_string"]
        query = self._query(text) if text else _NOTHING
        findings: list[Any] = []
        arguments = self._own.values(request, query, findings)
        values = [part.values(request, query, findings) for part in self._dependencies]
        if findings:
            raise FindingsError(findings)
        for part, given in zip(self._dependencies, values, strict=True):
            made = part.call(**given)
            if part.waits:
                made = await made
            if part.name is not None:
                arguments[part.name] = made
        for name, read in self._bodies.items():
            arguments[name] = await read(request)
        return arguments

    def _query(self, text: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
            if name not in self._names:
                raise InvalidRequestError(
                    f"Unknown query parameter {name[:100]!a}; there are: {', '.join(sorted(self._names))}",
                    pointer=name[:100],
                )
            if name in found:
                raise InvalidRequestError(f"The query parameter {name} is given twice", pointer=name)
            if "\0" in value or "\ufffd" in value:
                raise InvalidRequestError(f"The query parameter {name} is not UTF-8 text without NUL", pointer=name)
            found[name] = value
        return found


class _Part:
    """A handler or one of its dependencies, with the parameters that it takes itself."""

    def __init__(self, dependant: Dependant) -> None:
        self.call: Any = dependant.call
        self.name = dependant.name
        self.waits = inspect.iscoroutinefunction(self.call)
        self.query = {field.alias: field for field in dependant.query_params}
        self._headers = {field.alias.lower().encode(): field for field in dependant.header_params}
        self._path = tuple((field.name, field.alias) for field in dependant.path_params)
        self._request = dependant.request_param_name
        self._defaults = {field.name: field.default for field in (*self.query.values(), *self._headers.values())}

    def values(self, request: Request, query: Mapping[str, str], findings: list[Any]) -> dict[str, Any]:
        """Return the values of the parameters by their names in Python, and add what is wrong to the findings."""
        found = self._defaults.copy()
        if self._request is not None:
            found[self._request] = request
        for name, alias in self._path:
            found[name] = request.scope["path_params"][alias]
        if query:
            for alias in self.query.keys() & query.keys():
                field = self.query[alias]
                found[field.name], wrong = field.validate(query[alias], loc=("query", alias))
                findings += wrong
        for header, field in self._headers.items():
            if header in request.scope[HEADERS]:
                found[field.name], wrong = field.validate(_header(request.scope, header), loc=("header", field.alias))
                findings += wrong
        return found


def _header(scope: Scope, name: bytes) -> str:
    """Return the value of a header: of several lines one list, as RFC 9110 has it."""
    return b", ".join([value for each, value in scope["headers"] if each == name]).decode("latin-1")
