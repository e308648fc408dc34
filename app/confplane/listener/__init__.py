"""The listener: connections, bytes and HTTP. The only package that knows uvicorn."""

from confplane.listener.connections import Connections
from confplane.listener.server import make_connections, serve, uvicorn_options
from confplane.listener.tls import ListenerTls

__all__ = ["Connections", "ListenerTls", "make_connections", "serve", "uvicorn_options"]
