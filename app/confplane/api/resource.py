"""This service as an OAuth 2.0 protected resource: it informs a client without a token where to get one.

Source: RFC 9728.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

PATH: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """The description of this service for clients of its authorization servers."""

    url: str
    """The origin at which clients reach the service, such as ``https://confplane.example.com``."""
    issuers: tuple[str, ...] = ()
    """The issuers whose access tokens are accepted."""

    @property
    def challenge(self) -> str:
        """The header ``WWW-Authenticate`` of a refused request."""
        return f'Bearer realm="confplane", resource_metadata="{self.url}{PATH}"'

    def metadata(self) -> dict[str, Any]:
        """Return the description as JSON; a member without values is omitted, as the RFC requires."""
        servers = {"authorization_servers": list(self.issuers)} if self.issuers else {}
        return {
            "resource": self.url,
            **servers,
            "bearer_methods_supported": ["header"],
            "resource_name": "Confplane",
            "resource_documentation": f"{self.url}/docs",
        }
