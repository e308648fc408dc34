"""Sessions: a random id in a cookie, and a row in Postgres with the token.

A row is read again a second after the last read, so that the end of a session is known to every replica in two seconds.
While Postgres is unavailable, sessions that this process knows remain in use.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.crypto import ConsoleKey
    from confplane.services.ports.console_sessions import ConsoleSessions

LIFETIME_S: Final = 12 * 3_600
"""Seconds from the sign-in to the end of a session."""
IDLE_S: Final = 3_600
"""Seconds without use after which a session ends."""
_RECHECK_S: Final = 1.0
"""Seconds for which a row is used without reading it again."""
_TOUCH_S: Final = 30.0
"""Seconds between two stored uses of a session."""
_MOST: Final = 4_096
"""Sessions that a process knows; the least recently used is forgotten first."""
_ID_BYTES: Final = 32
_COOKIE: Final = "session"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A session that has not ended."""

    cookie: str
    token: str
    principal: str


@dataclass(slots=True)
class _KnownSession:
    """A session as a process knows it. Times are those of the monotonic clock."""

    session: ConsoleSession
    checked_at: float
    used_at: float
    touched_at: float
    ends_at: float


class SessionKeeper:
    """Creates, finds and ends sessions.

    Args:
        store: The rows.
        key: Signs ids and seals tokens.
        clock: A monotonic clock.
    """

    def __init__(self, store: ConsoleSessions, key: ConsoleKey, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._known: OrderedDict[bytes, _KnownSession] = OrderedDict()

    async def create(self, token: str, principal: str, expires_at: datetime | None) -> str:
        """Store a session, and return the value of its cookie.

        Args:
            token: The token, which the API has accepted.
            principal: The principal of the token.
            expires_at: The end of the token; None if it has none.

        Raises:
            UnavailableError: Postgres is unavailable.
        """
        session_id = secrets.token_urlsafe(_ID_BYTES)
        # Signed, so that made-up ids cost no statement.
        cookie = f"{session_id}.{self._key.sign(session_id, _COOKIE)}"
        latest = datetime.now(UTC) + timedelta(seconds=LIFETIME_S)
        digest = _digest(cookie)
        ends = latest if expires_at is None else min(latest, expires_at)
        await self._store.add(digest, self._key.seal(token.encode(), _purpose(digest)), principal, ends)
        return cookie

    async def find(self, cookie: str, *, use: bool = True) -> ConsoleSession | None:
        """Return the session of a cookie, or None if it has ended.

        Args:
            cookie: The value of the cookie.
            use: False for what goes on without a person: it does not keep the session from ending.

        Raises:
            UnavailableError: Postgres is unavailable, and this process does not know the session.
        """
        session_id, _, signature = cookie.partition(".")
        if not self._key.is_signed(session_id, signature, _COOKIE):
            return None
        digest, now = _digest(cookie), self._clock()
        known = self._known.get(digest)
        if known is not None and not (now < known.ends_at and now - known.used_at < IDLE_S):
            known = None  # the row decides: another process may know of a later use
        if known is None or now - known.checked_at >= _RECHECK_S:
            try:
                known = await self._read(digest, cookie, known, use=use)
            except UnavailableError:
                if known is None:
                    raise
                known.checked_at = now
        if known is None:
            self._known.pop(digest, None)
            return None
        if use:
            known.used_at = now
        self._known[digest] = known
        self._known.move_to_end(digest)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return known.session

    async def end(self, cookie: str) -> None:
        """End a session.

        Raises:
            UnavailableError: Postgres is unavailable; the session remains valid.
        """
        digest = _digest(cookie)
        await self._store.remove(digest)
        self._known.pop(digest, None)

    async def _read(
        self, digest: bytes, cookie: str, known: _KnownSession | None, *, use: bool
    ) -> _KnownSession | None:
        now = self._clock()
        row = await self._store.find(digest)
        if row is None:
            return None
        token = self._key.open(row.token, _purpose(digest))
        if token is None:  # of an earlier key
            return None
        touched_at = now - _TOUCH_S if known is None else known.touched_at
        if use and now - touched_at >= _TOUCH_S:
            await self._store.touch(digest)
            touched_at = now
        session = ConsoleSession(cookie, token.decode(), row.principal)
        used_at = now if known is None else known.used_at
        return _KnownSession(session, now, used_at, touched_at, now + row.remaining_s)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="surrogatepass")).digest()


def _purpose(digest: bytes) -> str:
    """Return the purpose of a sealed token: it is of one row, and is not valid in another."""
    return f"token of session {digest.hex()}"
