"""The server: uvicorn's options, and the steps of a shutdown."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from confplane.listener.client_certificates import CertificateHeaderMiddleware
from confplane.listener.connections import ConnectionLimits, Connections
from confplane.listener.descriptors import connections_within
from confplane.listener.forwarded import ForwardedForMiddleware
from confplane.listener.protocol import ListenerConfig

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

    from confplane.listener.protocol import ErrorRenderer
    from confplane.listener.tls import ListenerTls
    from confplane.services.upkeep.readiness import Readiness
    from confplane.settings import HttpSettings

_ENDING_S: Final = 10
"""Seconds that running requests may take once the listener is closed."""


def uvicorn_options(settings: HttpSettings) -> dict[str, Any]:
    """Return uvicorn's options: one process, uvloop, no access log."""
    return {
        "host": settings.host,
        "port": settings.port,
        "loop": "uvloop",
        "ws": "none",
        "interface": "asgi3",
        "access_log": False,
        "server_header": False,
        "log_config": None,
        # Uvicorn's own handling would trust loopback, and all addresses in the environment's FORWARDED_ALLOW_IPS.
        "proxy_headers": False,
        "timeout_graceful_shutdown": _ENDING_S,
    }


def make_connections(settings: HttpSettings) -> Connections:
    """Return the process's connections, none open yet, with file descriptors for all of them."""
    return Connections(
        ConnectionLimits(
            connections=connections_within(settings.max_connections),
            head_bytes=settings.max_head_bytes,
            head_s=settings.head_timeout_ms / 1000,
            body_s=settings.request_deadline_ms / 1000,
            idle_s=settings.idle_timeout_ms / 1000,
        )
    )


def make_server(
    app: ASGIApp,
    settings: HttpSettings,
    *,
    connections: Connections,
    render_error: ErrorRenderer,
    readiness: Readiness,
    tls: ListenerTls | None,
) -> HttpServer:
    """Return a server, not started.

    Args:
        app: The application.
        settings: The listener's settings.
        connections: The process's connections, with their limits.
        render_error: Renders errors about bytes that do not form a request.
        readiness: Set to stopping when a shutdown begins.
        tls: The TLS of connections, or None for plain HTTP.
    """
    if settings.trusted_proxies:
        app = ForwardedForMiddleware(app, settings.trusted_proxies)
    if settings.client_certificate_header is not None:
        # Outermost, so it runs before the middleware above, which replaces the address of the proxy by the client's.
        app = CertificateHeaderMiddleware(app, settings.client_certificate_header, settings.certificate_proxies)
    options = uvicorn_options(settings)
    if tls is not None:
        options["ssl_context_factory"] = lambda *_: tls.context
    config = ListenerConfig(app, connections, render_error, **options)
    return HttpServer(config, readiness, settings.drain_ms / 1000)


class HttpServer(uvicorn.Server):
    """Serves until SIGTERM or SIGINT, or until ``should_exit`` is set if it runs outside the main thread.

    It stops in steps, so that clients and load balancers can leave before a request is refused.

    First the process is no longer ready, and each response asks its client to close the connection. After a while it
    accepts no new connections, closes the idle ones, completes the running requests, and ends.
    """

    config: ListenerConfig

    def __init__(self, config: ListenerConfig, readiness: Readiness, drain_s: float) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and monitor the connections."""
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
