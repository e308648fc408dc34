"""The frame of every page: the session, the API with its token, the layout, and the checks of a form.

A page is one module with plain handlers and one template. A handler takes ``page: PageDep``, reads the API with
``page.api``, and returns ``page.render(template, ...)``. A handler of a form takes ``form: FormDep`` as well.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from uuid_utils import uuid7

from confplane.console.api import InProcessApi, encoded
from confplane.console.assets import asset
from confplane.console.rights import may_use
from confplane.console.texts import FILTERS, ShellCommand
from confplane.domain.access.operations import Operation, ResourceType
from confplane.pages import environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import ASGIApp

    from confplane.console.sessions import ConsoleSession, SessionKeeper
    from confplane.crypto import ConsoleKey
    from confplane.security.oidc.code_flow import CodeFlow

HOME: Final = "/console/"
NAVIGATION: Final = (
    ("Overview", HOME),
    ("Entities", "/console/clusters/{cluster}/entities"),
    ("Manifest", "/console/clusters/{cluster}/manifest"),
    ("Requests", "/console/clusters/{cluster}/requests"),
    ("Schedules", "/console/clusters/{cluster}/schedules"),
    ("Audit", "/console/clusters/{cluster}/audit"),
    ("Webhooks", "/console/clusters/{cluster}/webhooks"),
    ("Rollups", "/console/clusters/{cluster}/rollups"),
    ("Definitions", "/console/clusters/{cluster}/definitions"),
    ("Access", "/console/clusters/{cluster}/access"),
)
"""The pages of the navigation. A path with ``{cluster}`` is that of the chosen cluster."""
_NEEDED: Final = {"Webhooks": ResourceType.WEBHOOKS}
"""Pages that only callers with a grant on a type of resources have in their navigation."""
MAX_FORM_BYTES: Final = 1_048_576
"""Bytes of the longest form of a session."""
_MAX_FIELDS: Final = 10_000
_MAX_RETURN_PATH: Final = 1_024
"""Characters of the longest page to return to: the cookie of a sign-in holds it, and browsers drop long cookies."""
SESSION_COOKIE: Final = "confplane_session"
_THEME_COOKIE: Final = "confplane_theme"
_THEMES: Final = ("light", "dark")
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_SAME: Final = frozenset({"same-origin", "none"})

_TEMPLATES: Final = environment("confplane.console")
_TEMPLATES.filters.update(FILTERS)
_TEMPLATES.globals.update(asset=asset)


class SignInNeededError(Exception):
    """The request has no session that is valid now."""


class FormRefusedError(Exception):
    """A form was not sent from a page of this session. The text is for people."""


@dataclass(frozen=True, slots=True)
class Console:
    """The parts that the pages share."""

    api: ASGIApp
    sessions: SessionKeeper
    key: ConsoleKey
    public_url: str | None
    """The origin at which browsers reach the service; None if only loopback does."""
    secure: bool
    """True if cookies are for TLS alone: everywhere except on loopback."""
    flows: Sequence[CodeFlow] = ()
    """The issuers at which people sign in."""

    def cookie_name(self, name: str) -> str:
        """Return the name of a cookie, which browsers refuse from unencrypted pages where the prefix says so."""
        return f"__Secure-{name}" if self.secure else name

    def set_cookie(self, response: Response, name: str, value: str, *, max_age: int | None = None) -> None:
        """Set a cookie that no script can read."""
        response.set_cookie(
            self.cookie_name(name),
            value,
            max_age=max_age,
            path="/console",
            secure=self.secure,
            httponly=True,
            samesite="lax",
        )

    def remove_cookie(self, response: Response, name: str) -> None:
        """Remove a cookie."""
        self.set_cookie(response, name, "", max_age=0)

    def origin(self, request: Request) -> str:
        """Return the origin of the service's own pages."""
        return self.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}"


def console_of(request: Request) -> Console:
    """Return the parts that the pages share."""
    found: Console = request.app.state.console
    return found


class ConsolePage:
    """One page for a signed-in person.

    Args:
        request: The browser's request.
        session: The session.

    Attributes:
        api: The API with the session's token.
        principal: The principal that signed in.
        cluster: The cluster that the path names; None if it names none.
        csrf: The token of this session's forms.
        caller: The answer of `/v1/whoami`, once the page is loaded.
        is_disconnected: True if the process is not connected to the cluster's ZooKeeper, once the page is loaded.
        frozen: The reason of the cluster's freeze, once the page is loaded; None if it is not frozen.
    """

    def __init__(self, request: Request, session: ConsoleSession) -> None:
        console = console_of(request)
        self.request = request
        self.session = session
        self.principal = session.principal
        self.cluster: str | None = request.path_params.get("cluster")
        self.csrf = console.key.sign(session.cookie, "form")
        self.api = InProcessApi(console.api, session.token, request.scope, request_id(request))
        self.caller: dict[str, Any] = {}
        self.is_disconnected = False
        self.frozen: str | None = None
        self._clusters: list[str] = []

    async def load(self) -> None:
        """Read what the layout shows.

        Raises:
            ApiRefusal: The API refused, such as for a token that was revoked.
        """
        listed, caller = await asyncio.gather(self.api.get("/v1/clusters"), self.api.get("/v1/whoami"))
        self.caller = caller
        self._clusters = [each["name"] for each in listed["items"]]
        here: dict[str, Any] = next((each for each in listed["items"] if each["name"] == self.cluster), {})
        self.is_disconnected = here.get("connected") is False
        self.frozen = here.get("frozen")

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page from a template of this package; a missing value is an error."""
        chosen = self.cluster if self.cluster in self._clusters else next(iter(self._clusters), "")
        links = [
            (title, path.replace("{cluster}", quote(chosen, safe="")))
            for title, path in NAVIGATION
            if self._has(title, chosen)
        ]
        here = self.request.url.path
        current = max((path for _, path in links if here.startswith(path)), key=len, default=HOME)
        return render(
            self.request,
            template,
            status=status,
            page=self,
            clusters=self._clusters,
            links=[(title, path, path == current) for title, path in links],
            **values,
        )

    def _has(self, title: str, cluster: str) -> bool:
        kind = _NEEDED.get(title)
        return kind is None or may_use(self.caller, cluster, kind, Operation.DESCRIBE)

    def partial(self, template: str, **values: Any) -> Response:
        """Return a part of a page, for htmx."""
        return render(self.request, template, page=self, **values)

    @property
    def is_partial(self) -> bool:
        """True if htmx asks for a part of the page."""
        headers = self.request.headers
        return headers.get("hx-request") == "true" and headers.get("hx-history-restore-request") != "true"

    def command(
        self,
        method: str,
        path: str,
        *cli: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> ShellCommand:
        """Return the command lines that do the same as this page.

        Args:
            method: The HTTP method.
            path: The path of the API.
            cli: The arguments of `confplane`; without them the page shows curl alone.
            query: Parameters; those with the value None are left out.
            body: The JSON that is sent; None for none.
            headers: Further headers.
        """
        raw_path, parameters = encoded(path, query)
        url = console_of(self.request).origin(self.request) + raw_path + (f"?{parameters}" if parameters else "")
        return ShellCommand.of(method, url, cli, body=body, headers=headers or {})


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page, of a session or of none."""
    theme = request.cookies.get(_THEME_COOKIE)
    content = _TEMPLATES.get_template(template).render(theme=theme if theme in _THEMES else None, **values)
    return HTMLResponse(content, status)


def request_id(request: Request) -> str:
    """Return the id of a browser's request, which all of its requests to the API have."""
    state = request.state
    if not hasattr(state, "request_id"):
        state.request_id = str(uuid7())
    found: str = state.request_id
    return found


async def session_of(request: Request, *, use: bool = True) -> ConsoleSession:
    """Return the session of a request.

    Args:
        request: The request.
        use: False if the browser sends such requests by itself.

    Raises:
        SignInNeededError: There is none.
        UnavailableError: Postgres is unavailable, and this process does not know the session.
    """
    console = console_of(request)
    cookie = request.cookies.get(console.cookie_name(SESSION_COOKIE))
    found = None if cookie is None else await console.sessions.find(cookie, use=use)
    if found is None:
        raise SignInNeededError
    return found


async def _page(request: Request) -> ConsolePage:
    page = ConsolePage(request, await session_of(request))
    await page.load()
    request.state.page = page
    return page


PageDep = Annotated[ConsolePage, Depends(_page)]
"""The page of a signed-in person; without a session the response leads to the sign-in."""


class FormFields(dict[str, str]):
    """The fields of a form, without surrounding spaces except in values of keys; of a repeated field the last value."""

    def text(self, name: str) -> str | None:
        """Return a field, or None if it is absent or empty."""
        return self.get(name) or None


def whole_number(form: FormFields, name: str, noun: str, least: int, most: int) -> int:
    """Return the number of a field.

    Raises:
        ValueError: It has another text, or is out of the bounds. The text is for people.
    """
    typed = form.get(name, "")
    if not _NUMBER.fullmatch(typed) or not least <= int(typed) <= most:
        raise ValueError(f"{noun} must be a whole number from {least} to {most}. Nothing was done.")
    return int(typed)


async def read_form(request: Request, *, max_bytes: int = MAX_FORM_BYTES, max_fields: int = _MAX_FIELDS) -> FormFields:
    """Return the fields of a form that was sent from a page of this service.

    Raises:
        FormRefusedError: It was sent from a page of another origin, is not a form, is too long, or has too many fields.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if (site is not None and site not in _SAME) or (
        origin is not None and origin != console_of(request).origin(request)
    ):
        raise FormRefusedError("The form was sent from a page of another site, so nothing was done.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        raise FormRefusedError("The request is not a form, so nothing was done.")
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > max_bytes:
            raise FormRefusedError(f"The form has more than {max_bytes} bytes, so nothing was done.")
    if content.count(b"&") >= max_fields:
        raise FormRefusedError(f"The form has more than {max_fields} fields, so nothing was done.")
    fields = parse_qs(content.decode(errors="replace"), keep_blank_values=True)
    return FormFields(
        {name: values[-1] if name.startswith("value ") else values[-1].strip() for name, values in fields.items()}
    )


async def _form(request: Request) -> FormFields:
    session = await session_of(request)
    form = await read_form(request)
    if not console_of(request).key.is_signed(session.cookie, form.pop("csrf", ""), "form"):
        raise FormRefusedError("The form is from another session, so nothing was done. Open the page again.")
    return form


FormDep = Annotated[FormFields, Depends(_form)]
"""The fields of a form, which was sent from a page of this session. Every handler of a POST takes it."""


def redirect(path: str) -> Response:
    """Lead the browser to another page of the console."""
    return Response(status_code=303, headers={"Location": quote(path, safe="/:=,~?&%#+")})


def return_path(given: str | None) -> str:
    """Return the page to show after a sign-in: a given one if it is below ``/console/``, otherwise the first."""
    if not given or len(given) > _MAX_RETURN_PATH or not given.startswith(HOME):
        return HOME
    if not given.isascii() or not given.isprintable() or "\\" in given:
        return HOME
    if any(unquote(part) in {".", ".."} for part in urlsplit(given).path.split("/")):
        return HOME
    return given


def sign_in_path(request: Request) -> str:
    """Return the path of the sign-in that leads back to a page: for htmx to the one that the browser shows."""
    if request.headers.get("hx-request") == "true":
        wanted = _shown_path(request.headers.get("hx-current-url", ""))
    else:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = return_path(path) if request.method == "GET" else HOME
    return "/console/sign-in" if wanted == HOME else f"/console/sign-in?{urlencode({'return_to': wanted})}"


def _shown_path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return HOME
    return return_path(parts._replace(scheme="", netloc="", fragment="").geturl())
