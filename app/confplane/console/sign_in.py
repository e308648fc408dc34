"""Sign-in by a pasted token or at an OIDC issuer, and sign-out."""

import secrets
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from confplane.console.api import ApiRefusal, InProcessApi, TokenRefusedError
from confplane.console.page import (
    HOME,
    SESSION_COOKIE,
    Console,
    FormDep,
    FormFields,
    FormRefusedError,
    PageDep,
    console_of,
    read_form,
    redirect,
    render,
    request_id,
    return_path,
)
from confplane.domain.base64url import decode_base64url, encode_base64url
from confplane.domain.errors import ConfplaneError, UnauthenticatedError

if TYPE_CHECKING:
    from confplane.security.oidc.code_flow import CodeFlow  # which needs httpx: only services with issuers have it

router = APIRouter()

_PATH: Final = "/console/sign-in"
CALLBACK: Final = "/console/sign-in/callback"
"""The path to which an issuer sends people back."""
_FORM_COOKIE: Final = "confplane_form"
_FORM_S: Final = 3_600
_FLOW_COOKIE: Final = "confplane_flow"
_FLOW_S: Final = 600
_LONGEST: Final = 16 * 1_024
"""Characters of the longest token."""
_MAX_FORM_BYTES: Final = 2 * _LONGEST
"""Bytes of the longest form: anybody can send one, so the bound is close to what a token needs."""
_MAX_FIELDS: Final = 10
_UNAUTHENTICATED: Final = 401
_UNAVAILABLE: Final = 503


@router.get(_PATH)
async def sign_in_page(request: Request, return_to: str | None = None) -> Response:
    """The form of the sign-in."""
    return _sign_in_page(request, return_path(return_to))


def _sign_in_page(request: Request, return_to: str, error: str | None = None, status: int = 200) -> Response:
    console = console_of(request)
    cookie = encode_base64url(console.key.seal(secrets.token_bytes(16) + str(int(time.time())).encode(), _FORM_COOKIE))
    response = render(
        request,
        "sign_in.html",
        status=status,
        csrf=console.key.sign(cookie, _FORM_COOKIE),
        issuers=[(flow.issuer, flow.is_reached) for flow in console.flows],
        return_to=return_to,
        error=error,
    )
    console.set_cookie(response, _FORM_COOKIE, cookie, max_age=_FORM_S)
    return response


async def _sign_in_form(request: Request) -> FormFields:
    """Return the fields of the sign-in's form, which this browser was shown in the last hour."""
    form = await read_form(request, max_bytes=_MAX_FORM_BYTES, max_fields=_MAX_FIELDS)
    console = console_of(request)
    cookie = request.cookies.get(console.cookie_name(_FORM_COOKIE), "")
    made = _opened(console, cookie, _FORM_COOKIE)
    signed = console.key.is_signed(cookie, form.pop("csrf", ""), _FORM_COOKIE)
    if made is None or not signed or time.time() - int(made[16:]) > _FORM_S:
        raise FormRefusedError("This form is too old, or from another browser. Sign in again.")
    return form


SignInFormDep = Annotated[FormFields, Depends(_sign_in_form)]
"""The fields of the sign-in's form; see :data:`confplane.console.page.FormDep`."""


@router.post(_PATH)
async def sign_in(request: Request, form: SignInFormDep) -> Response:
    """Sign in with a token."""
    return_to, token = return_path(form.text("return_to")), form.get("token", "")
    if not token or not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST:
        return _sign_in_page(request, return_to, "This is not a token. Paste one API token or access token.", 400)
    return await _signed_in(request, token, return_to)


@router.post("/console/sign-in/issuer")
async def sign_in_at_issuer(request: Request, form: SignInFormDep) -> Response:
    """Lead to the sign-in of an issuer: by a page, so that the issuer may lead on to any origin."""
    return_to, console = return_path(form.text("return_to")), console_of(request)
    try:
        flow = _flow(console, form.get("issuer"))
        address, made = flow.begin()
    except ConfplaneError as error:
        return _sign_in_page(request, return_to, error.detail, _UNAVAILABLE)
    content = {"issuer": flow.issuer, "secrets": made._asdict(), "return_to": return_to, "at": int(time.time())}
    response = render(request, "issuer.html", issuer=flow.issuer, address=address)
    sealed = console.key.seal(orjson.dumps(content), _FLOW_COOKIE)
    console.set_cookie(response, _FLOW_COOKIE, encode_base64url(sealed), max_age=_FLOW_S)
    return response


@router.get(CALLBACK)
async def callback(
    request: Request, state: str = "", code: str = "", error: str | None = None, iss: str | None = None
) -> Response:
    """Finish a sign-in at an issuer, which this browser began."""
    console = console_of(request)
    begun = _begun(request, console)
    if begun is None or not secrets.compare_digest(state.encode(), begun["secrets"]["state"].encode()):
        return _ended(console, _sign_in_page(request, HOME, "This sign-in was not begun in this browser, or took too"
                      " long. Sign in again.", 400))  # fmt: skip
    return_to = return_path(begun["return_to"])
    if error is not None or not code:
        reason = f"The issuer did not sign you in: {(error or 'it sent no code')[:200]}"
        return _ended(console, _sign_in_page(request, return_to, reason, _UNAUTHENTICATED))
    try:
        flow = _flow(console, begun["issuer"])
        if iss != flow.issuer and (iss is not None or flow.names_itself):  # RFC 9207
            raise UnauthenticatedError("The answer is not from the issuer of this sign-in, or does not name it")
        address = "" if request.client is None else request.client.host
        token = await flow.finish(code, begun["secrets"]["nonce"], begun["secrets"]["verifier"], address)
    except ConfplaneError as refused:
        status = _UNAUTHENTICATED if isinstance(refused, UnauthenticatedError) else _UNAVAILABLE
        return _ended(console, _sign_in_page(request, return_to, refused.detail, status))
    return _ended(console, await _signed_in(request, token, return_to))


@router.post("/console/sign-out")
async def sign_out(page: PageDep, form: FormDep) -> Response:
    """End the session on every replica."""
    del form  # checked
    console = console_of(page.request)
    await console.sessions.end(page.session.cookie)
    response = redirect(_PATH)
    console.remove_cookie(response, SESSION_COOKIE)
    return response


def _flow(console: Console, issuer: str | None) -> "CodeFlow":
    for flow in console.flows:
        if flow.issuer == issuer:
            return flow
    raise UnauthenticatedError("Nobody can sign in at this issuer; choose one of the list")


def _opened(console: Console, cookie: str, purpose: str) -> bytes | None:
    """Return the content that a cookie seals; None if this service did not seal it for the purpose."""
    try:
        return console.key.open(decode_base64url(cookie), purpose)
    except ValueError:
        return None


def _begun(request: Request, console: Console) -> dict[str, Any] | None:
    """Return the sign-in that this browser began in the last ten minutes."""
    cookie = request.cookies.get(console.cookie_name(_FLOW_COOKIE), "")
    sealed = _opened(console, cookie, _FLOW_COOKIE)
    begun: dict[str, Any] | None = None if sealed is None else orjson.loads(sealed)
    return begun if begun is not None and time.time() - begun["at"] <= _FLOW_S else None


def _ended(console: Console, response: Response) -> Response:
    """End a sign-in at an issuer: its secrets are valid once."""
    console.remove_cookie(response, _FLOW_COOKIE)
    return response


async def _signed_in(request: Request, token: str, return_to: str) -> Response:
    """Create a session for a token that the API accepts, and end the browser's earlier one."""
    console = console_of(request)
    api = InProcessApi(console.api, token, request.scope, request_id(request))
    try:
        caller = await api.get("/v1/whoami")
        expires = caller["expiresAt"]
        ends = None if expires is None else datetime.fromisoformat(expires)
        cookie = await console.sessions.create(token, caller["principal"], ends)
        earlier = request.cookies.get(console.cookie_name(SESSION_COOKIE))
        if earlier is not None:
            await console.sessions.end(earlier)
    except (ApiRefusal, TokenRefusedError) as refused:
        status = refused.status if isinstance(refused, ApiRefusal) else _UNAUTHENTICATED
        return _sign_in_page(request, return_to, refused.detail, status)
    except ConfplaneError as error:
        return _sign_in_page(request, return_to, f"Nobody can sign in now: {error.detail}", _UNAVAILABLE)
    response = redirect(return_to)
    console.set_cookie(response, SESSION_COOKIE, cookie)
    console.remove_cookie(response, _FORM_COOKIE)
    return response
