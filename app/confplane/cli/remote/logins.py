"""Logins: tokens of people, kept in files that only their owner can read.

A file is below ``$XDG_STATE_HOME/confplane/logins`` (``~/.local/state``), one for each service and client. Processes
that renew or replace the same token take turns: issuers may accept a refresh token only once, and a renewal must not
bring back a login that was removed or replaced.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confplane.cli.remote.profiles import ProfileError
from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confplane.cli.remote.profiles import Profile
    from confplane.client.device import LoginTokens

_EARLY_S: Final = 30.0
"""Seconds before its expiry at which a token is renewed."""
RENEWAL: Final = threading.Lock()
"""Held by a thread that renews a token until the new one is stored: if the process ended before, the login would be
lost."""


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """The tokens of a person, bound to a service and a client of its issuer."""

    url: str
    client_id: str
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None
    resource: str | None
    access: str
    expires_at: float | None
    """Seconds since 1970."""
    refresh: str | None

    @property
    def is_usable(self) -> bool:
        """True while the access token need not be renewed."""
        return self.expires_at is None or time.time() < self.expires_at - _EARLY_S

    def renewed(self, tokens: LoginTokens) -> StoredLogin:
        """Return the login with other tokens."""
        return replace(self, access=tokens.access, expires_at=tokens.expires_at, refresh=tokens.refresh)


def file_of(profile: Profile) -> Path:
    """Return the file of a profile's login, which may be absent."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    bound = json.dumps([profile.url, profile.client_id]).encode()
    return Path(base) / "confplane" / "logins" / f"{hashlib.sha256(bound).hexdigest()[:32]}.json"


def read(profile: Profile) -> StoredLogin | None:
    """Return the login of a profile, or None if there is no login or the file belongs to another service or client."""
    try:
        login = StoredLogin(**json.loads(file_of(profile).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return login if (login.url, login.client_id) == (profile.url, profile.client_id) else None


def write(profile: Profile, login: StoredLogin) -> None:
    """Replace the login of a profile, after a renewal in progress.

    Raises:
        ProfileError: The file can't be written.
    """
    with _turn(profile):
        _store(profile, login)


def remove(profile: Profile) -> StoredLogin | None:
    """Remove the login of a profile, after a renewal in progress, and return it; None if there is none.

    Raises:
        ProfileError: The file can't be removed.
    """
    with _turn(profile):
        login = read(profile)
        try:
            file_of(profile).unlink(missing_ok=True)
        except OSError as error:
            raise ProfileError(f"{file_of(profile)} can't be removed: {error.strerror}") from None
    return login


def access_token(profile: Profile, renew: Callable[[StoredLogin, str], LoginTokens]) -> str:
    """Return the access token of a profile's login. It is renewed shortly before its expiry.

    Args:
        profile: A profile with a client id.
        renew: Requests new tokens from the issuer, given the login and its refresh token.

    Raises:
        ProfileError: There is no login, or it has expired.
    """
    login = read(profile)
    if login is not None and login.is_usable:
        return login.access
    with _turn(profile):
        login = read(profile)  # another process may have renewed it
        if login is None:
            raise ProfileError(f"You are not logged in to {profile.url}: {_again(profile)}")
        if login.is_usable:
            return login.access
        if login.refresh is None:
            raise ProfileError(f"The login to {profile.url} has ended: {_again(profile)}")
        with RENEWAL:
            login = login.renewed(renew(login, login.refresh))
            _store(profile, login)
        return login.access


def _store(profile: Profile, login: StoredLogin) -> None:
    path = file_of(profile)
    try:
        with atomic_write(path, mode=0o600) as file:
            json.dump(asdict(login), file)
    except OSError as error:
        raise ProfileError(f"{path} can't be written: {error.strerror}") from None


def _again(profile: Profile) -> str:
    return "run `confplane login" + (f" --profile {profile.name}`" if profile.name else "`")


@contextmanager
def _turn(profile: Profile) -> Iterator[None]:
    """Hold the lock of a login. The operating system releases it when the process ends."""
    path = file_of(profile).with_suffix(".lock")
    try:
        _make_directory(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ProfileError(f"{path} can't be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_directory(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
