"""The operations of this API: the facts that each declares with its route.

The route acts on them, and the specification is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from confplane.api.models import Problem
from confplane.services.limits import LimitClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from confplane.api.dependencies import ServiceCall

Handler = Callable[..., Coroutine[Any, Any, Response]]


class Effect(Enum):
    """The effect of an operation apart from its response."""

    NOTHING = "nothing"
    CHANGE = "change"
    """A change of configs: it has an id, and is executed once for each Idempotency-Key."""
    CLEARING = "clearing"
    """Hides rows that are not part of the history; an Idempotency-Key is refused rather than ignored."""
    REPORT = "report"
    """A client's report about itself, kept for a limited time; an Idempotency-Key is refused rather than ignored."""
    REAPPLYING = "reapplying"
    """Values are sent to a Kafka cluster again, and no config changes; an Idempotency-Key is refused rather than
    ignored."""
    PROPOSING = "proposing"
    """A new change request, also one that reverts another: it is made once for each Idempotency-Key."""
    MANAGING = "managing"
    """A change of tokens, grants or webhooks; an Idempotency-Key is refused rather than ignored."""


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """The description of one successful response."""

    model: type[BaseModel] | None = None
    """The model of its JSON. None if the response has no JSON."""
    description: str = "Successful Response"
    content: Mapping[str, Any] = field(default_factory=dict)
    """The forms of other media types."""
    headers: Sequence[str] = ()
    """Names of headers of its own, in addition to those that follow from the operation."""

    def described(self) -> dict[str, Any]:
        """Return the description in FastAPI's form."""
        parts = {"model": self.model, "description": self.description, "content": dict(self.content)}
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def text(cls, description: str, *media_types: str, model: type[BaseModel] | None = None) -> ResponseSpec:
        """Return a response that may be text of these types."""
        return cls(model, description, {kind: {"schema": {"type": "string"}} for kind in media_types})


@dataclass(frozen=True)
class RouteOperation:
    """The facts of one operation."""

    summary: str
    answer: type[BaseModel] | Mapping[int, ResponseSpec | type[BaseModel]]
    """The form of a JSON answer with status 200; or responses by status, with that of full success first."""
    _: KW_ONLY
    effect: Effect
    limit: LimitClass | None
    """The class of the caller's limit that a request counts against. None only for open operations."""
    tagged: bool = False
    """Successful responses have an ETag. A tagged read accepts If-None-Match, and may return 304."""
    problems: Sequence[int] = ()
    """Statuses of the operation's own work, in addition to those that follow from its effect and its parameters."""
    problem: type[Problem] = Problem
    """The form of all problems except 401."""
    id: str | None = None
    """Name in the specification and in generated clients. None for the handler's name in camel case."""
    description: str | None = None
    """Description of the operation. None for the handler's docstring."""
    longest_s: float | None = None
    """Seconds that the work may take once the body is there. None for the deadline of all requests."""
    is_open: bool = False
    """No token is needed."""
    listed: bool = True
    """The operation is part of the specification."""

    @property
    def answers(self) -> dict[int, ResponseSpec]:
        """The answers by status."""
        given = self.answer if isinstance(self.answer, Mapping) else {200: self.answer}
        return {
            status: each if isinstance(each, ResponseSpec) else ResponseSpec(each) for status, each in given.items()
        }


def validates_only(call: ServiceCall, arguments: Mapping[str, Any]) -> bool:
    """Return True if a request is only validated: by its parameter, or by its body among a handler's arguments."""
    return call.validate_only or getattr(arguments.get("body"), "validate_only", False)


read = partial(RouteOperation, effect=Effect.NOTHING)
"""Makes the facts of an operation that only reads."""
change = partial(RouteOperation, effect=Effect.CHANGE, limit=LimitClass.WRITE)
"""Makes the facts of an operation that changes configs."""
manage = partial(RouteOperation, effect=Effect.MANAGING, limit=LimitClass.ADMIN)
"""Makes the facts of an operation that changes tokens, grants or webhooks."""

propose = partial(RouteOperation, effect=Effect.PROPOSING, limit=LimitClass.ADMIN)
"""Makes the facts of an operation that makes a change request."""


def partly(model: type[BaseModel], failed: str) -> dict[int, ResponseSpec]:
    """Return the responses of an operation on several things: 200, and 207 if some failed."""
    return {200: ResponseSpec(model), 207: ResponseSpec(model, failed)}
