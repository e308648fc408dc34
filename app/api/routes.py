"""The route class of this API: the one way to a handler, and the one place where its errors become problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.api import problems
from app.api.binding import Binder
from app.api.traffic import HUNG_UP
from app.domain.errors import ConfplaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    Answer = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route whose arguments are found by :class:`Binder`.

    Attributes:
        answer: Answers a request, also one that fails.
    """

    answer: Answer

    def get_route_handler(self) -> Answer:
        """Return :attr:`answer`."""
        bind, handler = Binder(self.dependant), self.endpoint

        async def answer(request: Request) -> Response:
            try:
                response: Response = await handler(**await bind(request))
            except ConfplaneError as error:
                return problems.respond(request, error)
            except ClientDisconnect:
                return Response(status_code=HUNG_UP)  # nobody reads it
            except Exception as error:  # noqa: BLE001 - the last resort, for mistakes of ours
                return problems.internal(request, error)
            return response

        self.answer = answer
        return answer
