"""Settings of the connections that both clients pass to httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

import httpx

if TYPE_CHECKING:
    import ssl

TRIES: Final = 4
"""Number of times that a request may be sent, by default."""
TIMEOUT_S: Final = 30.0


class HttpxSettings(TypedDict):
    """Arguments of httpx's clients."""

    base_url: str
    timeout: float
    verify: ssl.SSLContext | bool
    trust_env: bool
    limits: httpx.Limits


def settings(url: str, *, timeout_s: float, verify: ssl.SSLContext | bool) -> HttpxSettings:
    """Return the arguments for httpx's clients."""
    return {
        "base_url": url,
        "timeout": timeout_s,
        # Redirects are not followed, so plain HTTP stays plain; loading all certificate authorities takes a while.
        "verify": False if httpx.URL(url).scheme == "http" else verify,
        "trust_env": False,
        "limits": httpx.Limits(max_connections=1024, max_keepalive_connections=1024),
    }
