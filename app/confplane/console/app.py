"""The application of the console, and the front that passes requests to it or to the API."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from confplane.console import (
    access,
    assets,
    audit,
    awaiting,
    change_requests,
    definitions,
    design,
    edit,
    entities,
    entity,
    live,
    manifest,
    overview,
    revert,
    rollups,
    schedules,
    sign_in,
    webhooks,
)
from confplane.console.api import ApiRefusal, TokenRefusedError
from confplane.console.page import (
    FormRefusedError,
    SignInNeededError,
    redirect,
    render,
    request_id,
    sign_in_path,
)
from confplane.domain.errors import ConfplaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from confplane.console.page import Console

_log: Final = logging.getLogger(__name__)

PAGES: Final = (
    sign_in,
    overview,
    awaiting,
    entities,
    edit,
    entity,
    audit,
    live,
    revert,
    change_requests,
    schedules,
    webhooks,
    rollups,
    manifest,
    definitions,
    access,
    design,
    assets,
)
"""The modules of the pages, each with a ``router``. A new page is a module here, and a line in ``page.NAVIGATION``."""
_PATH: Final = "/console"
_BELOW: Final = f"{_PATH}/"
_NOT_FOUND: Final = 404
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The content security policy. No form leads to an issuer: browsers would apply ``form-action`` to each origin to which
the issuer redirects."""
_OFF: Final = "The web console is off: the setting console_key_file is missing, or console is false (docs/console.md)\n"


class Front:
    """Passes requests below ``/console`` to the console, and all others to the API.

    Args:
        api: The API.
        console: The parts of the console; None if it is off.
    """

    def __init__(self, api: ASGIApp, console: Console | None) -> None:
        self.api = api
        self._console = None if console is None else _application(console)
        home = "/docs" if console is None else _BELOW
        self._home = RedirectResponse(home, 303)
        self._console_home = PlainTextResponse(_OFF, 404) if console is None else self._home

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        path = scope.get("path", "")
        app: ASGIApp = self.api
        if path == "/" and scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}:
            app = self._home
        elif path == _PATH:
            app = self._console_home
        elif path.startswith(_BELOW):
            app = self._console or self._console_home
        return app(scope, receive, send)


def _application(console: Console) -> ASGIApp:
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # As of the API (api/app.py): it sends URLs, and texts of errors.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.console = console
    for module in PAGES:
        app.include_router(module.router)
    app.add_exception_handler(SignInNeededError, _sign_in)
    # The session stays: this process may not know a new token yet, and one that was revoked is refused everywhere.
    app.add_exception_handler(TokenRefusedError, _sign_in)
    app.add_exception_handler(ApiRefusal, _refused)
    app.add_exception_handler(FormRefusedError, _form_refused)
    app.add_exception_handler(ConfplaneError, _unavailable)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _internal)
    return _Headers(app)


class _Headers:
    """Adds the headers of every page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[tuple[bytes, bytes]] = message["headers"]
                headers += [
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"same-origin"),  # with no-referrer, forms would have the origin null
                    (b"content-security-policy", _POLICY),
                    (b"cross-origin-opener-policy", b"same-origin"),
                    (b"cross-origin-resource-policy", b"same-origin"),
                ]
                if all(name != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                page_id = scope.get("state", {}).get("request_id")
                if page_id is not None:
                    headers.append((b"x-request-id", page_id.encode()))
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _sign_in(request: Request, _error: Exception) -> Response:
    path = sign_in_path(request)
    if request.headers.get("hx-request") == "true":  # htmx would put the page into a part of this one
        return Response(headers={"HX-Redirect": path})
    return redirect(path)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiRefusal)  # noqa: S101 - registered for this class
    problem = error.problem
    return _problem(request, error.status, problem["title"], problem["detail"], retry=error.retry_after is not None)


async def _form_refused(request: Request, error: Exception) -> Response:
    return _problem(request, 403, "The form was refused", str(error))


async def _unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, ConfplaneError)  # noqa: S101 - registered for this class
    return _problem(request, 503, "The service can't show this page now", error.detail, retry=True)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    absent = error.status_code == _NOT_FOUND
    detail = "There is no such page." if absent else "The request is not valid, so nothing was done."
    return _problem(request, error.status_code, str(error.detail), detail)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    fields = ", ".join(sorted({str(each["loc"][-1]) for each in error.errors()}))
    return _problem(request, 400, "The address is not valid", f"These parts of it are missing or not valid: {fields}")


async def _internal(request: Request, error: Exception) -> Response:
    _log.error("unhandled error for request %s", request_id(request), exc_info=error)
    return _problem(request, 500, "An error on our side", "The log of the service has the details, with the id below.")


def _problem(request: Request, status: int, title: str, detail: str, *, retry: bool = False) -> Response:
    """Return a page about an error: with the navigation if the request got as far as a page."""
    values = {"title": title, "detail": detail, "retry": retry, "status_code": status, "id": request_id(request)}
    page = getattr(request.state, "page", None)
    if page is not None:
        rendered: Response = page.render("problem.html", status=status, **values)
        return rendered
    return render(request, "problem_alone.html", status=status, **values)
