"""The HTTP client library."""

from app.client.client import Answer, ConfplaneClient
from app.client.errors import ClientError, ConnectionFailedError, ProblemError

__all__ = ["Answer", "ClientError", "ConfplaneClient", "ConnectionFailedError", "ProblemError"]
