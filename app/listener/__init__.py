"""The listener: connections, bytes and HTTP. The only package that knows uvicorn."""

from app.listener.connections import Connections
from app.listener.server import make_connections, serve, uvicorn_options

__all__ = ["Connections", "make_connections", "serve", "uvicorn_options"]
