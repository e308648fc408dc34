"""An issuer and its keys, fetched in the background: no request waits for the issuer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from typing import TYPE_CHECKING, Final

import httpx

from confplane.domain.errors import UnavailableError
from confplane.identity_settings import check_url
from confplane.security.oidc.compact import strict_object
from confplane.security.oidc.keys import KeySet
from confplane.services.background import BackgroundService, BackgroundTask
from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confplane.identity_settings import OidcSettings
    from confplane.security.oidc.keys import Key

logger = logging.getLogger(__name__)

REFRESH_S: Final = 600.0
"""Seconds between two fetches of the keys."""
OLDEST_S: Final = 86_400.0
"""Seconds for which keys are used while the issuer is away."""
ASK_S: Final = 30.0
"""Seconds in which unknown key ids cause one fetch at most."""
_LATE_S: Final = 3 * REFRESH_S
"""Seconds after which the age of the keys is a warning."""
_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 60.0
_JITTER: Final = 0.1
"""The share by which waits vary, so that replicas do not ask at the same time."""
_FETCH_S: Final = 10.0
"""Seconds for one answer of the issuer."""
_MAX_BYTES: Final = 256 * 1024
"""The longest answer of the issuer in bytes."""
_DISCOVERY: Final = "/.well-known/openid-configuration"


class Provider(BackgroundService):
    """An issuer.

    Args:
        settings: The settings of the issuer.
        clock: Seconds from any fixed moment.

    Attributes:
        settings: The settings of the issuer.
        keys: The keys of the last successful fetch; None before. Another set of keys is another object.
        tls: The TLS of requests to the issuer.
        endpoints: The members of the discovery document that are texts, such as ``token_endpoint``; empty before.
        names_itself: True if the answers of the authorization endpoint name the issuer (RFC 9207).

    Raises:
        UnusableSettingsError: The file of authorities can't be used.
    """

    def __init__(self, settings: OidcSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.keys: KeySet | None = None
        self.endpoints: dict[str, str] = {}
        self.names_itself = False
        self._clock = clock
        self.tls = _tls(settings)
        self._background = BackgroundTask(self._refresh, name=f"keys of {settings.issuer}")
        self._fetched_at = clock()
        self._fetch_requested = asyncio.Event()
        self._fetch_requested_at = -ASK_S
        self._fetching = False
        self._failures = 0
        self._fault: str | None = "no answer yet"

    def check(self) -> KeySet:
        """Return the keys.

        Raises:
            UnavailableError: There are no keys, or only keys that are too old.
        """
        if self.keys is None or self._age() > OLDEST_S:
            raise UnavailableError("The keys of the access token's issuer are not known at the moment; try again later")
        return self.keys

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of a token, or None if the issuer has no such key.

        An unknown id makes the background fetch the keys, once in 30 seconds.

        Raises:
            UnavailableError: The keys are being fetched or cannot be fetched, so the key may exist.
        """
        keys = self.check()
        key = keys.find(kid, algorithm)
        if key is None and not keys.knows(kid):
            self._request_fetch()
            if self._fetch_requested.is_set() or self._fetching:
                raise UnavailableError("The keys of the access token's issuer are being fetched", retry_after_s=1)
            if self._fault is not None:
                raise UnavailableError("The access token's key is not known, and its issuer can't be asked for it now")
        return key

    def warnings(self) -> list[OperatorWarning]:
        """Return the warnings for operators."""
        if self.keys is not None and self._age() <= _LATE_S:
            return []
        issuer = self.settings.issuer
        if self.keys is None:
            state = "The keys of an OIDC issuer were never fetched, so its tokens are answered 503"
        elif self._age() > OLDEST_S:
            state = "The keys of an OIDC issuer are older than a day, so its tokens are answered 503"
        else:
            state = "The keys of an OIDC issuer are old; after a day its tokens are answered 503"
        return [OperatorWarning(f"{state}. Look at the issuer", f"{state}. The issuer is {issuer}: {self._fault}")]

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics; there is no age before the first fetch."""
        labels = (self.settings.issuer,)
        if self.keys is not None:
            yield Sample("oidc_keys_age_seconds", self._age(), labels)
        yield Sample("oidc_keys", 0 if self.keys is None else len(list(self.keys)), labels)
        yield Sample("oidc_fetch_failures", self._failures, labels)

    def _age(self) -> float:
        return self._clock() - self._fetched_at

    def _request_fetch(self) -> None:
        now = self._clock()
        if now - self._fetch_requested_at >= ASK_S:
            self._fetch_requested_at = now
            self._fetch_requested.set()

    async def _refresh(self) -> None:
        retry = _FIRST_RETRY_S
        async with httpx.AsyncClient(verify=self.tls, follow_redirects=False, timeout=_FETCH_S) as client:
            while True:
                await self._fetch(client)
                wait, retry = (
                    (REFRESH_S, _FIRST_RETRY_S) if self._fault is None else (retry, min(2 * retry, _LAST_RETRY_S))
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait * random.uniform(1 - _JITTER, 1 + _JITTER)):  # noqa: S311 - jitter
                        await self._fetch_requested.wait()

    async def _fetch(self, client: httpx.AsyncClient) -> None:
        """Fetch the keys once; a failure leaves the known keys as they are."""
        self._fetch_requested.clear()
        self._fetching = True
        try:
            keys = KeySet(await fetch(client, "GET", await self._jwks_uri(client)), self.settings.algorithms)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, ssl.SSLError) as error:
            self._failures += 1
            fault = f"{type(error).__name__}: {error}"[:300]
            if self._fault is None or self.keys is None:
                logger.warning("the keys of %s can't be fetched: %s", self.settings.issuer, fault)
            self._fault = fault
        else:
            if keys != self.keys:
                logger.info("the keys of %s are new", self.settings.issuer)
                self.keys = keys
            self._fetched_at = self._clock()
            self._fault = None
        finally:
            self._fetching = False

    async def _jwks_uri(self, client: httpx.AsyncClient) -> str:
        settings = self.settings
        if settings.jwks_uri is not None and settings.console_client_id is None:
            return settings.jwks_uri
        document = strict_object(await fetch(client, "GET", settings.issuer.rstrip("/") + _DISCOVERY))
        if document.get("issuer") != settings.issuer:
            raise ValueError("the discovery document is from another issuer; compare the setting with its 'issuer'")
        self.endpoints = {name: value for name, value in document.items() if isinstance(value, str)}
        self.names_itself = document.get("authorization_response_iss_parameter_supported") is True
        found = settings.jwks_uri or document.get("jwks_uri")
        if not isinstance(found, str):
            raise ValueError("the discovery document has no jwks_uri")  # noqa: TRY004 - of the content
        check_url("the discovery document's jwks_uri", found, insecure_http=settings.insecure_http)
        return found


def _tls(settings: OidcSettings) -> ssl.SSLContext:
    """Return the TLS of requests to an issuer; its certificate is always verified."""
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise UnusableSettingsError(
            f"oidc: ca_file of {settings.issuer}: {settings.ca_file} can't be used: {error.strerror or error}"
        ) from None


async def fetch(client: httpx.AsyncClient, method: str, url: str, data: dict[str, str] | None = None) -> bytes:
    """Return the content of an answer, within bounds of bytes and time.

    Raises:
        httpx.HTTPError: There is no answer, or it is that the issuer is overloaded or has failed: 429, or 5xx.
        TimeoutError: The answer takes too long.
        ValueError: The answer is another one than 200, or too long.
    """
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    content = bytearray()
    async with asyncio.timeout(_FETCH_S), client.stream(method, url, headers=headers, data=data) as answer:
        if answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise httpx.HTTPStatusError(f"{url} answers {answer.status_code}", request=answer.request, response=answer)
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answers {answer.status_code}")
        async for piece in answer.aiter_raw():
            content += piece
            if len(content) > _MAX_BYTES:
                raise ValueError(f"{url} answers more than {_MAX_BYTES} bytes")
    return bytes(content)
