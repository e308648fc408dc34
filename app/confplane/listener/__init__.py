"""The listener: connections, bytes and HTTP. The only package that knows uvicorn."""

from app.listener.connections import Connections
from app.listener.server import make_connections, serve, uvicorn_options
from app.listener.tls import ListenerTls

__all__ = ["Connections", "ListenerTls", "make_connections", "serve", "uvicorn_options"]
