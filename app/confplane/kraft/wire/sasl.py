"""Logins: SASL's SCRAM (RFC 5802), PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628), as implemented by Kafka."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from confplane.kraft.wire.errors import KraftLoginError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Send = Callable[[bytes], Awaitable[bytes]]
    """Sends the client's message and returns the server's. It raises KraftLoginError if the server refuses."""

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MOST_ITERATIONS: Final = 1_000_000  # half a second; Kafka's own values are from 4096 to 16384


class SaslLogin(Protocol):
    """A way to log in."""

    @property
    def mechanism(self) -> str:
        """The mechanism as named by Kafka, such as ``SCRAM-SHA-512``."""

    async def run(self, send: Send) -> None:
        """Exchange messages until the server accepts the login.

        Raises:
            KraftLoginError: The server does not prove that it knows the password, or its message is malformed.
        """


@dataclass(frozen=True, slots=True)
class Plain:
    """A user and a password in plain text, for TLS only."""

    username: str
    password: str = field(repr=False)
    mechanism: str = "PLAIN"

    async def run(self, send: Send) -> None:
        """Send the user and the password."""
        await send(f"\0{self.username}\0{self.password}".encode())


@dataclass(frozen=True, slots=True)
class Scram:
    """A user and a password. The client proves that it knows the password without sending it, and so does the server.

    Args:
        username: The user's name. Kafka uses it unchanged, without SASLprep.
        password: The user's password.
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
    """

    username: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"

    async def run(self, send: Send) -> None:
        """Exchange the two messages of each side."""
        nonce = secrets.token_urlsafe(24)
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={nonce}"
        said = await send(f"n,,{first}".encode())
        salt, iterations, both = _server_first(said, nonce)
        digest = _DIGESTS[self.mechanism]
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), salt, iterations)
        last = f"c=biws,r={both}"
        text = b",".join((first.encode(), said, last.encode()))
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), text, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        answer = await send(f"{last},p={base64.b64encode(proof).decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), text, digest)
        if not hmac.compare_digest(_server_signature(answer), expected):
            raise KraftLoginError("The server does not know the password that it asks for. Is it the right server?")


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise KraftLoginError("The server's SCRAM message is not UTF-8") from None
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _server_first(message: bytes, nonce: str) -> tuple[bytes, int, str]:
    found = _attributes(message)
    try:
        salt, iterations, both = base64.b64decode(found["s"], validate=True), int(found["i"]), found["r"]
    except (KeyError, ValueError, binascii.Error):
        raise KraftLoginError("The server's SCRAM message lacks salt, iterations or nonce") from None
    if not both.startswith(nonce) or len(both) == len(nonce):
        raise KraftLoginError("The server's SCRAM message answers another login")
    if not 1 <= iterations <= _MOST_ITERATIONS:
        raise KraftLoginError(f"The server requests {iterations} SCRAM iterations; the maximum is {_MOST_ITERATIONS}")
    return salt, iterations, both


def _server_signature(message: bytes) -> bytes:
    try:
        return base64.b64decode(_attributes(message)["v"], validate=True)
    except (KeyError, ValueError, binascii.Error):
        raise KraftLoginError("The server's SCRAM message lacks its signature") from None


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """An access token, requested at each login."""

    token: Callable[[], str] = field(repr=False)
    """Returns the token; called once for each login, so a token in a file may be replaced at any time."""
    mechanism: str = "OAUTHBEARER"

    async def run(self, send: Send) -> None:
        """Send the token.

        A server that refuses it responds with a text, which the client acknowledges before the login fails.
        """
        token = self.token().strip()
        if not token or any(not 33 <= ord(letter) <= 126 for letter in token):  # noqa: PLR2004 - visible ASCII
            raise KraftLoginError(
                "The token is empty or has letters that no token has. Write a new token into its file."
            )
        if await send(f"n,,\x01auth=Bearer {token}\x01\x01".encode()):
            await send(b"\x01")
            raise KraftLoginError("The server refuses the token")
