"""The sign-in of a person at an issuer: OAuth's code flow with PKCE (RFC 7636), for the web console.

The id token is verified: it proves that the code was given for this browser's sign-in. The access token is the one that
requests are authenticated with, as if the person had sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import ssl
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx

from confplane.domain.base64url import encode_base64url
from confplane.domain.errors import UnauthenticatedError, UnavailableError
from confplane.identity_settings import check_url
from confplane.security.oidc import compact
from confplane.security.oidc.keys import is_signed
from confplane.security.oidc.provider import fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.security.oidc.provider import Provider

_SECRET_BYTES: Final = 32
_EXCHANGES: Final = 8
"""Codes of one issuer that are exchanged at one time; further ones wait."""
_EXCHANGES_OF_ADDRESS: Final = 2
"""Of them, those from one address: anybody can send made-up codes, and must not keep others from signing in."""
_WAIT_S: Final = 5.0
"""Seconds that a code waits for its exchange."""


class SignInSecrets(NamedTuple):
    """The secrets of one sign-in, which the browser holds sealed until it comes back."""

    state: str
    nonce: str
    verifier: str


class CodeFlow:
    """The sign-in at one issuer.

    Args:
        provider: The issuer, whose settings name the console's client.
        redirect_uri: The address to which the issuer sends people back.
    """

    def __init__(self, provider: Provider, redirect_uri: str) -> None:
        assert provider.settings.console_client_id is not None  # noqa: S101 - for the type checker
        self.issuer: Final = provider.settings.issuer
        self._client_id: Final = provider.settings.console_client_id
        self._provider = provider
        self._redirect_uri = redirect_uri
        self._exchanges: Counter[str] = Counter()
        """Codes that are being exchanged, by address."""
        self._exchanged = asyncio.Condition()

    @property
    def names_itself(self) -> bool:
        """True if the issuer says that its answers name it (RFC 9207), so that one without a name is not its own."""
        return self._provider.names_itself

    @property
    def is_reached(self) -> bool:
        """False while the address of the page on which people sign in is not known."""
        try:
            return bool(self._endpoint("authorization_endpoint"))
        except UnavailableError:
            return False

    def begin(self) -> tuple[str, SignInSecrets]:
        """Return the address of the issuer's page, and the secrets of this sign-in.

        Raises:
            UnavailableError: The issuer was not reached yet.
        """
        made = SignInSecrets(*(secrets.token_urlsafe(_SECRET_BYTES) for _ in SignInSecrets._fields))
        settings = self._provider.settings
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": settings.console_scope,
            "state": made.state,
            "nonce": made.nonce,
            "code_challenge": encode_base64url(hashlib.sha256(made.verifier.encode()).digest()),
            "code_challenge_method": "S256",
            **({} if settings.console_resource is None else {"resource": settings.console_resource}),
        }
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}", made

    async def finish(self, code: str, nonce: str, verifier: str, address: str) -> str:
        """Exchange a code, verify the id token, and return the access token.

        Args:
            code: The code that the issuer sent.
            nonce: The nonce of :meth:`begin`.
            verifier: The verifier of :meth:`begin`.
            address: The address of the client.

        Raises:
            UnauthenticatedError: The issuer refused the code, or its id token is not valid.
            UnavailableError: The issuer does not answer, or too many codes are being exchanged.
        """
        try:
            async with self._turn(address):
                answer = await self._exchange(code, verifier)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ssl.SSLError) as error:
            raise UnavailableError(f"The issuer {self.issuer} does not answer; try again later") from error
        except ValueError as error:
            raise UnauthenticatedError(
                f"The issuer {self.issuer} refused the code of this sign-in, or has used it already. Sign in again"
            ) from error
        access_token, id_token = answer.get("access_token"), answer.get("id_token")
        if not isinstance(access_token, str) or not access_token or not isinstance(id_token, str):
            raise UnauthenticatedError(f"The issuer {self.issuer} answered without an access token or an id token")
        try:
            self._check(id_token.encode(), nonce)
        except ValueError as error:
            raise UnauthenticatedError(f"The id token of {self.issuer} is not valid: {error}") from None
        return access_token

    @contextlib.asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        """Wait until a code from an address may be exchanged.

        Raises:
            UnavailableError: That takes too long.
        """
        try:
            async with asyncio.timeout(_WAIT_S), self._exchanged:
                await self._exchanged.wait_for(
                    lambda: self._exchanges[address] < _EXCHANGES_OF_ADDRESS and self._exchanges.total() < _EXCHANGES
                )
                self._exchanges[address] += 1
        except TimeoutError:
            raise UnavailableError("Too many people are signing in at the moment; try again", retry_after_s=1) from None
        try:
            yield
        finally:
            self._exchanges -= Counter({address: 1})  # which forgets an address without codes
            async with self._exchanged:
                self._exchanged.notify_all()

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        settings = self._provider.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": self._client_id,
            "code_verifier": verifier,
            **({} if settings.console_resource is None else {"resource": settings.console_resource}),
        }
        endpoint = self._endpoint("token_endpoint")
        async with httpx.AsyncClient(verify=self._provider.tls, follow_redirects=False) as client:
            return compact.strict_object(await fetch(client, "POST", endpoint, form))

    def _check(self, id_token: bytes, nonce: str) -> None:
        """Check the id token (OpenID Connect Core, section 3.1.3.7).

        Raises:
            ValueError: It is not valid.
            UnavailableError: The key that signed it can't be fetched now.
        """
        settings = self._provider.settings
        if not compact.is_compact(id_token):
            raise ValueError("it is not a signed token")
        try:
            token = compact.read(id_token)
        except UnauthenticatedError as error:
            raise ValueError(error.detail) from None
        if token.issuer != settings.issuer:
            raise ValueError("it is from another issuer")
        if token.algorithm not in settings.algorithms:
            raise ValueError("its algorithm is not allowed for the issuer")
        key = self._provider.find(token.kid, token.algorithm)
        if key is None or not is_signed(id_token, key, token.algorithm):
            raise ValueError("its signature does not fit a key of the issuer")
        self._check_claims(token.claims, nonce)

    def _check_claims(self, claims: dict[str, Any], nonce: str) -> None:
        audience, expires, found = claims.get("aud"), claims.get("exp"), claims.get("nonce")
        if self._client_id not in (audience if isinstance(audience, list) else [audience]):
            raise ValueError("it is for another client")
        if claims.get("azp", self._client_id) != self._client_id:
            raise ValueError("it was issued to another client")
        if isinstance(expires, bool) or not isinstance(expires, int | float):
            raise ValueError("it has no expiry (exp)")  # noqa: TRY004 - of the content
        if expires + self._provider.settings.clock_skew_s <= time.time():
            raise ValueError("it has expired")
        if not isinstance(found, str) or not secrets.compare_digest(found.encode(), nonce.encode()):
            raise ValueError("it is for another sign-in")

    def _endpoint(self, name: str) -> str:
        """Return an address of the issuer.

        Raises:
            UnavailableError: It is not known yet, or can't be used.
        """
        found = self._provider.endpoints.get(name)
        if found is None:
            raise UnavailableError(f"The service has not reached the issuer {self.issuer} yet", retry_after_s=5)
        try:
            check_url(name, found, insecure_http=self._provider.settings.insecure_http)
        except ValueError as error:
            raise UnavailableError(f"Nobody can sign in at {self.issuer}: {error}") from None
        return found
