"""The server: how uvicorn is set up, and how it stops."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import uvicorn

from app.listener.forwarded import Forwarded

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from app.services.readiness import Readiness
    from app.settings import HttpSettings

_ENDING_S: Final = 10
"""How long requests under way may take once the listener is closed."""


def uvicorn_config(app: ASGIApp, settings: HttpSettings) -> uvicorn.Config:
    """Return how the service is served: one process, uvloop and httptools, no access log."""
    return uvicorn.Config(
        Forwarded(app, settings.trusted_proxies) if settings.trusted_proxies else app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        server_header=False,
        log_config=None,
        # Uvicorn's own would trust loopback, and whatever else the environment's FORWARDED_ALLOW_IPS names.
        proxy_headers=False,
        # Longer than load balancers keep an idle connection: whoever closes it must not be the one that is sent to.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_ENDING_S,
    )


def serve(app: ASGIApp, settings: HttpSettings, readiness: Readiness) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: The application.
        settings: Where to listen, and the limits.
        readiness: Is told when the process is going to stop.
    """
    _Server(uvicorn_config(app, settings), readiness, settings.drain_ms / 1000).run()


class _Server(uvicorn.Server):
    """Stops in steps, so that clients and load balancers can go elsewhere before a request is refused.

    First it is not ready any more, and each answer asks its client to close the connection. After a while it takes no
    new connections and closes those that are idle, answers what is under way, and ends.
    """

    def __init__(self, config: uvicorn.Config, readiness: Readiness, drain_s: float) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._drain_s = drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; a second Ctrl-C ends the wait."""
        self._readiness.stopping = True
        until = time.monotonic() + self._drain_s
        while time.monotonic() < until and not self.force_exit:  # noqa: ASYNC110 - a signal's handler sets it
            await asyncio.sleep(min(0.1, self._drain_s))
        await super().shutdown(sockets)
