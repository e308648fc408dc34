"""What the operations of this API are: the facts that each declares beside its route.

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
    """What an operation does besides answering."""

    NOTHING = "nothing"
    CHANGE = "change"
    """A change of configs: it has an id, and is done once for each Idempotency-Key."""
    CLEARING = "clearing"
    """Rows that are no history are hidden; an Idempotency-Key is refused rather than ignored."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is no problem."""

    model: type[BaseModel] | None = None
    """The form of its JSON; None where it has none."""
    description: str = "Successful Response"
    content: Mapping[str, Any] = field(default_factory=dict)
    """Forms of other media types."""

    @classmethod
    def text(cls, description: str, *media_types: str, model: type[BaseModel] | None = None) -> Answer:
        """Return an answer that may be text of these types."""
        return cls(model, description, {kind: {"schema": {"type": "string"}} for kind in media_types})


@dataclass(frozen=True, slots=True)
class Operation:
    """The facts of one operation."""

    id: str
    """Its name in the specification, which generated clients have too."""
    summary: str
    answers: Mapping[int, Answer | type[BaseModel]]
    """By status, first that of a full success; a model alone is the form of a JSON answer."""
    _: KW_ONLY
    effect: Effect
    tagged: bool
    """Whether good answers have an ETag. A read that has one is answered 304 to whoever sends it in If-None-Match."""
    problems: Sequence[int]
    """Statuses that its own work may end in, besides those that follow from the other facts and from the parameters."""
    problem: type[Problem] = Problem
    """The form of problems, but for 401."""
    description: str | None = None
    """None: the handler's docstring."""
    is_open: bool = False
    """Whether no token is needed."""
    listed: bool = True
    """Whether the specification has it."""

    def described(self) -> dict[int | str, dict[str, Any]]:
        """Return the answers as FastAPI takes them."""
        found: dict[int | str, dict[str, Any]] = {}
        for status, given in self.answers.items():
            answer = given if isinstance(given, Answer) else Answer(given)
            parts = {"model": answer.model, "description": answer.description, "content": dict(answer.content)}
            found[status] = {name: part for name, part in parts.items() if part}
        return found
