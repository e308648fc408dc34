"""Login of a person without a browser on the same machine: OAuth's device flow.

The service names its issuers (RFC 9728), and the issuer names its endpoints (OpenID Connect Discovery). The person
opens the issuer's page in any browser and enters a code, while the program polls for the token (RFC 8628). No password
and no token is typed or shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from confplane.client.core.answers import FAILURES
from confplane.client.errors import ClientError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_DISCOVERY: Final = "/.well-known/openid-configuration"
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUT_S: Final = 30.0
_INTERVAL_S: Final = 5.0
"""Seconds between two polls for the token if the issuer names no interval. Each ``slow_down`` adds as many."""
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}


class LoginError(ClientError):
    """A login or its renewal failed. The text has the reason and no token."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server of the service, and its endpoints."""

    url: str
    token_endpoint: str
    device_endpoint: str
    revocation_endpoint: str | None


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A login that a person has to confirm."""

    code: str
    user_code: str
    page: str
    """The page for the person; it needs the code where ``page_with_code`` is None."""
    page_with_code: str | None
    expires_at: float
    """Seconds since 1970."""
    interval_s: float


@dataclass(frozen=True, slots=True)
class LoginTokens:
    """The tokens of a login."""

    access: str
    expires_at: float | None
    """Seconds since 1970; None if the issuer did not specify it."""
    refresh: str | None


class DeviceLogin:
    """A client of a service and of its issuer for one login.

    Args:
        verify: The TLS context; True for the certificate authorities of the system.
        transport: Another httpx transport, for tests.
    """

    def __init__(self, *, verify: ssl.SSLContext | bool = True, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(verify=verify, transport=transport, timeout=_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def issuers_of(self, url: str) -> tuple[str, ...]:
        """Return the issuers whose tokens a service accepts.

        Raises:
            LoginError: The service names no issuer, or describes another service (RFC 9728, section 3.3).
        """
        found = self._json("GET", url.rstrip("/") + _RESOURCE)
        resource = found.get("resource")
        if resource != url.rstrip("/"):
            raise LoginError(f"{url} describes itself as {resource}: log in at that URL, if you trust it")
        servers = found.get("authorization_servers")
        if not isinstance(servers, list) or not servers:
            raise LoginError(f"{url} names no issuer of access tokens: its setting oidc has none")
        return tuple(map(str, servers))

    def issuer(self, url: str) -> Issuer:
        """Return an issuer with its endpoints.

        Raises:
            LoginError: The document is that of another issuer, the issuer has no device flow, or an endpoint is not
            https.
        """
        found = self._json("GET", _secure(url, "The issuer").rstrip("/") + _DISCOVERY)
        if found.get("issuer") != url:
            raise LoginError(f"The issuer {url} describes itself as {found.get('issuer')}; its tokens can't be trusted")
        device = found.get("device_authorization_endpoint")
        if not isinstance(device, str):
            raise LoginError(f"The issuer {url} has no device flow; use a token_command of its own tool instead")
        revocation = found.get("revocation_endpoint")
        return Issuer(
            url,
            _secure(str(found.get("token_endpoint")), "The token endpoint"),
            _secure(device, "The device endpoint"),
            None if revocation is None else _secure(str(revocation), "The revocation endpoint"),
        )

    def begin(self, issuer: Issuer, client_id: str, *, scope: str, resource: str | None) -> DeviceCode:
        """Request a code for the person (RFC 8628, section 3.1); ``resource`` is that of RFC 8707.

        Raises:
            LoginError: The issuer refuses the client.
        """
        form = {"client_id": client_id, "scope": scope}
        found = self._json("POST", issuer.device_endpoint, form | _naming(resource))
        try:
            return DeviceCode(
                code=str(found["device_code"]),
                user_code=str(found["user_code"]),
                page=str(found["verification_uri"]),
                page_with_code=found.get("verification_uri_complete"),
                expires_at=time.time() + float(found.get("expires_in", 0)),
                interval_s=float(found.get("interval", _INTERVAL_S)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LoginError(f"{issuer.device_endpoint} answered without a device code: {error}") from None

    def wait(self, issuer: Issuer, client_id: str, device: DeviceCode, *, resource: str | None) -> LoginTokens:
        """Poll for the token until the person has confirmed the login (RFC 8628, sections 3.4 and 3.5).

        Raises:
            LoginError: The person refused, or the code has expired.
        """
        form = {"grant_type": _DEVICE_GRANT, "device_code": device.code, "client_id": client_id}
        form |= _naming(resource)
        interval_s = device.interval_s
        while time.time() < device.expires_at:
            time.sleep(interval_s)
            answer = self._sent("POST", issuer.token_endpoint, form)
            error = answer.get("error")
            if error is None:
                return _tokens(answer, None)
            if error == "slow_down":
                interval_s += _INTERVAL_S
            elif error != "authorization_pending":
                raise LoginError(_refused(error, answer))
        raise LoginError("The code has expired; begin again with `confplane login`")

    def refresh(self, token_endpoint: str, client_id: str, refresh_token: str, *, resource: str | None) -> LoginTokens:
        """Renew tokens (RFC 6749, section 6).

        Raises:
            LoginError: The issuer refuses, for example after the end of a session.
        """
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
        return _tokens(self._json("POST", token_endpoint, form | _naming(resource)), refresh_token)

    def revoke(self, endpoint: str, client_id: str, token: str) -> None:
        """Revoke a token at the issuer (RFC 7009).

        Raises:
            LoginError: The issuer refuses, or does not answer.
        """
        self._json("POST", endpoint, {"token": token, "client_id": client_id})

    def _json(self, method: str, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        answer = self._sent(method, url, form)
        if (error := answer.get("error")) is not None:
            raise LoginError(_refused(error, answer))
        return answer

    def _sent(self, method: str, url: str, form: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the JSON of an answer, including that of an OAuth error."""
        try:
            response = self._http.request(method, url, data=form, headers={"Accept": "application/json"})
        except FAILURES as error:
            raise LoginError(f"{url} did not answer: {type(error).__name__}: {error}") from None
        if not response.content and response.is_success:
            return {}
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or (not response.is_success and "error" not in body):
            raise LoginError(f"{url} answered {response.status_code} {response.reason_phrase}, and no JSON of OAuth")
        return body


def _naming(resource: str | None) -> dict[str, str]:
    """Return the form member that names a resource."""
    return {} if resource is None else {"resource": resource}


def _secure(url: str, what: str) -> str:
    """Return the URL if tokens may be sent to it: https, or loopback for trials.

    Raises:
        LoginError: Tokens must not be sent to this URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return url
    raise LoginError(f"{what} {url} is not https")


def _tokens(answer: Mapping[str, Any], refresh: str | None) -> LoginTokens:
    """Read an answer with tokens; an issuer may omit a refresh token that stays the same.

    Raises:
        LoginError: The answer has no bearer token, or its lifetime is not a number.
    """
    access = answer.get("access_token")
    if not isinstance(access, str) or str(answer.get("token_type", "")).lower() != "bearer":
        raise LoginError("The issuer answered without a bearer token")
    lifetime = answer.get("expires_in")
    try:
        expires_at = None if lifetime is None else time.time() + float(lifetime)
    except (TypeError, ValueError):
        raise LoginError("The issuer answered with an expires_in that is not a number") from None
    return LoginTokens(access, expires_at, answer.get("refresh_token", refresh))


def _refused(error: object, answer: Mapping[str, Any]) -> str:
    if error == "access_denied":
        return "The login was refused on the issuer's page"
    if error == "expired_token":
        return "The code has expired; begin again with `confplane login`"
    described = answer.get("error_description")
    return f"The issuer refused: {error}" + (f" ({described})" if described else "")
