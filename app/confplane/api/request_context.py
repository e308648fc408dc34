"""A request as the edge found it, for all parts behind the edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.access import Access
    from confplane.services.limits import Allowance

REQUEST_CONTEXT: Final = "confplane.request_context"
"""Key of the scope with the :class:`RequestContext`."""


@dataclass(eq=False, slots=True)
class RequestContext:
    """A request as the edge found it.

    One key of the scope has all of it: the scope is a dict of nearly the size at which it is made anew, and a key for
    each part would have each request pay for that.
    """

    headers: Mapping[bytes, bytes]
    """By name, the last value of a repeated one; Starlette searches the whole list."""
    request_id: str
    deadline: float
    """The end of the time for the answer, by ``time.monotonic()``."""
    access: Access | None = None
    """The access of the caller; None where none is needed."""
    allowance: Allowance | None = None
    """The limits of the caller; None where there are none."""
