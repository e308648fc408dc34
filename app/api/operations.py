"""The operations of this API: the facts that each declares beside its route.

The route acts on them, and the specification is made from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from app.api.schemas import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

Handler = Callable[..., Awaitable[Response]]


class Effect(Enum):
    """The effect of an operation besides its answer."""

    NOTHING = "nothing"
    CHANGE = "change"
    """A change of configs: it has an id, and is done once for each Idempotency-Key."""
    CLEARING = "clearing"
    """Rows that are no history are hidden; an Idempotency-Key is refused rather than ignored."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer without a problem."""

    model: type[BaseModel] | None = None
    """The form of its JSON; None where it has none."""
    description: str = "Successful Response"
    content: Mapping[str, Any] = field(default_factory=dict)
    """The forms of other media types."""

    @classmethod
    def text(cls, description: str, *media_types: str, model: type[BaseModel] | None = None) -> Answer:
        """Return an answer that may be text of these types."""
        return cls(model, description, {kind: {"schema": {"type": "string"}} for kind in media_types})


@dataclass(frozen=True, slots=True)
class Operation:
    """The facts of one operation."""

    id: str
    """The name in the specification, also used by generated clients."""
    summary: str
    answers: Mapping[int, Answer | type[BaseModel]]
    """The answers by status, first that of a full success; a model alone is the form of a JSON answer."""
    _: KW_ONLY
    effect: Effect
    tagged: bool
    """True where good answers have an ETag. A read with one is answered 304 to a caller that sends it in
    If-None-Match."""
    problems: Sequence[int]
    """Problem statuses of the operation's own work, besides those that follow from the other facts and the
    parameters."""
    problem: type[Problem] = Problem
    """The form of all problems except 401."""
    description: str | None = None
    """The description; None: the handler's docstring."""
    is_open: bool = False
    """True where no token is needed."""
    listed: bool = True
    """True where the specification lists the operation."""

    def described(self) -> dict[int | str, dict[str, Any]]:
        """Return the answers in FastAPI's form."""
        found: dict[int | str, dict[str, Any]] = {}
        for status, given in self.answers.items():
            answer = given if isinstance(given, Answer) else Answer(given)
            parts = {"model": answer.model, "description": answer.description, "content": dict(answer.content)}
            found[status] = {name: part for name, part in parts.items() if part}
        return found
