"""The server: how uvicorn is set up, and how it stops."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from app.listener.connections import Connections, Limits
from app.listener.descriptors import connections_within
from app.listener.forwarded import Forwarded
from app.listener.protocol import ListenerConfig

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from app.listener.protocol import Refuse
    from app.services.upkeep.readiness import Readiness
    from app.settings import HttpSettings

_ENDING_S: Final = 10
"""How long requests under way may take once the listener is closed."""


def uvicorn_options(settings: HttpSettings) -> dict[str, Any]:
    """Return how uvicorn is set up: one process, uvloop, no access log."""
    return {
        "host": settings.host,
        "port": settings.port,
        "loop": "uvloop",
        "ws": "none",
        "access_log": False,
        "server_header": False,
        "log_config": None,
        # Uvicorn's own would trust loopback, and whatever else the environment's FORWARDED_ALLOW_IPS names.
        "proxy_headers": False,
        "timeout_graceful_shutdown": _ENDING_S,
    }


def make_connections(settings: HttpSettings) -> Connections:
    """Return the connections of a process, none yet, with room for them among its file descriptors."""
    return Connections(
        Limits(
            connections=connections_within(settings.max_connections),
            head_bytes=settings.max_head_bytes,
            head_s=settings.head_timeout_ms / 1000,
            body_s=settings.request_deadline_ms / 1000,
            idle_s=settings.idle_timeout_ms / 1000,
        )
    )


def serve(
    app: ASGIApp, settings: HttpSettings, *, connections: Connections, refuse: Refuse, readiness: Readiness
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app: The application.
        settings: Where to listen.
        connections: Those of the process, with their limits.
        refuse: Renders what is refused before it is a request.
        readiness: Is told when the process is going to stop.
    """
    if settings.trusted_proxies:
        app = Forwarded(app, settings.trusted_proxies)
    config = ListenerConfig(app, connections, refuse, **uvicorn_options(settings))
    _Server(config, readiness, settings.drain_ms / 1000).run()


class _Server(uvicorn.Server):
    """Stops in steps, so that clients and load balancers can go elsewhere before a request is refused.

    First it is not ready any more, and each answer asks its client to close the connection. After a while it takes no
    new connections and closes those that are idle, answers what is under way, and ends.
    """

    config: ListenerConfig

    def __init__(self, config: ListenerConfig, readiness: Readiness, drain_s: float) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and watch the connections."""
        self.config.connections.start(asyncio.get_running_loop())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; a second Ctrl-C ends the wait."""
        self._readiness.stopping = True
        until = time.monotonic() + self._drain_s
        while time.monotonic() < until and not self.force_exit:  # noqa: ASYNC110 - a signal's handler sets it
            await asyncio.sleep(min(0.1, self._drain_s))
        await super().shutdown(sockets)
        self.config.connections.stop()
