"""The listener: connections, bytes and HTTP. The only package that knows uvicorn."""

from confplane.listener.connections import Connections
from confplane.listener.server import HttpServer, make_connections, make_server, uvicorn_options
from confplane.listener.tls import ListenerTls

__all__ = ["Connections", "HttpServer", "ListenerTls", "make_connections", "make_server", "uvicorn_options"]
