"""Credentials of requests: tokens from a profile's file, command or login, and the files of TLS."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Final

from confplane.cli.remote import logins
from confplane.cli.remote.profiles import ProfileError
from confplane.client.tokens import is_token
from confplane.domain.base64url import decode_base64url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.cli.remote.logins import StoredLogin
    from confplane.cli.remote.profiles import Profile
    from confplane.client.device import DeviceLogin, LoginTokens
    from confplane.client.tokens import Token

_COMMAND_S: Final = 60
_MARGIN_S: Final = 10
"""The time before its expiry at which a token is replaced."""


def token_of(profile: Profile) -> str | None:
    """Return the token of a profile, read now; None if the profile has no token.

    Raises:
        ProfileError: The file, the command or the environment provided no token, or there is no login. The text has no
            part of a token.
        LoginError: The issuer does not renew the token of a login.
    """
    if profile.token is not None:
        token, source = profile.token.strip(), "CONFPLANE_TOKEN"
    elif profile.token_file is not None:
        try:
            token = profile.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ProfileError(f"The token file {profile.token_file} can't be read: {reason}") from None
        source = f"The token file {profile.token_file}"
    elif profile.token_command is not None:
        token, source = _read_from_command(profile.token_command), f"The token command {profile.token_command[0]}"
    elif profile.client_id is not None:
        token = logins.access_token(profile, lambda login, refresh: _renew(profile, login, refresh))
        source = f"The login of the client {profile.client_id}"
    else:
        return None
    if not is_token(token):
        raise ProfileError(f"{source} gave no token: a token is one word of ASCII characters")
    return token


def tokens_of(profile: Profile) -> Token | None:
    """Return the token of a profile, as a function if it may be renewed while a command runs.

    Raises:
        ProfileError: As :func:`token_of`, for the first request.
        LoginError: As :func:`token_of`.
    """
    first = token_of(profile)
    if first is None or profile.token is not None:
        return first
    if profile.token_file is None and profile.token_command is not None:
        return _CommandToken(profile, first)
    return lambda: token_of(profile) or ""


class _CommandToken:
    """The token of a command, which runs again once its token has expired or is refused, not before: it may prompt."""

    def __init__(self, profile: Profile, first: str) -> None:
        self._profile = profile
        self._token = first
        self._is_refused = False
        """The command printed the same token again after the service had refused it."""
        self._lock = Lock()

    def __call__(self) -> str:
        with self._lock:
            if _has_expired(self._token):
                self._run()
            return self._token

    def renew(self, refused: str) -> str:
        """Return the token to send instead of a refused one: see :class:`confplane.client.tokens.CachedToken`."""
        with self._lock:
            # Another request may have replaced it by now.
            if self._token == refused and not self._is_refused:
                self._run()
                self._is_refused = self._token == refused
            return self._token

    def _run(self) -> None:
        self._token = token_of(self._profile) or ""
        self._is_refused = False


def _has_expired(token: str) -> bool:
    """Return True if a token is a JSON Web Token whose time is up."""
    try:
        expires_at = float(json.loads(decode_base64url(token.split(".")[1]))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return False
    return expires_at - _MARGIN_S <= time.time()


@contextmanager
def device_login(profile: Profile) -> Iterator[DeviceLogin]:
    """Return the device login of a profile, without the client certificate, which is only for the service.

    Raises:
        ProfileError: The file of certificate authorities can't be used.
    """
    from confplane.client.device import DeviceLogin  # noqa: PLC0415 - few commands log in

    speaker = DeviceLogin(verify=tls_of(replace(profile, certificate_file=None)))
    try:
        yield speaker
    finally:
        speaker.close()


def _renew(profile: Profile, login: StoredLogin, refresh: str) -> LoginTokens:
    with device_login(profile) as speaker:
        return speaker.refresh(login.token_endpoint, login.client_id, refresh, resource=login.resource)


def _read_from_command(command: tuple[str, ...]) -> str:
    try:
        # Standard error is inherited, because a program may prompt for a password there.
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)  # noqa: S603 - the user's own program
    except subprocess.TimeoutExpired:
        raise ProfileError(f"The token command {command[0]} did not end within {_COMMAND_S} seconds") from None
    except OSError as error:
        raise ProfileError(f"The token command {command[0]} can't be run: {error.strerror}") from None
    if ended.returncode:
        raise ProfileError(f"The token command {command[0]} failed with exit code {ended.returncode}")
    return ended.stdout.decode("utf-8", "replace").strip()


def tls_of(profile: Profile) -> ssl.SSLContext | bool:
    """Return the TLS context of a profile; True for the defaults.

    Raises:
        ProfileError: A file can't be used.
    """
    if profile.ca_file is None and profile.certificate_file is None:
        return True
    try:
        context = ssl.create_default_context(cafile=profile.ca_file)
        if profile.certificate_file is not None:
            context.load_cert_chain(profile.certificate_file, profile.key_file)
    except OSError as error:  # SSLError is one
        raise ProfileError(f"A file of TLS can't be used: {error.strerror or error}") from None
    return context
