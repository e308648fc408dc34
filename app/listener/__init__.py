"""The listener: connections, bytes and HTTP. The only package that knows uvicorn."""

from app.listener.server import serve, uvicorn_config

__all__ = ["serve", "uvicorn_config"]
