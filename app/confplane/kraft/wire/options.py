"""Addresses of nodes, and everything that the connections to one cluster share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from confplane.kraft.wire.requests import RequestCounts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from confplane.kraft.wire.sasl import SaslLogin

_PORTS: Final = range(1, 65536)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address of ``host:port`` or ``[::1]:port``.

        Raises:
            ValueError: The text has neither form.
        """
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""  # an IPv6 address without brackets, whose port is ambiguous
        digits = port.isascii() and port.isdecimal() and len(port) < 6  # noqa: PLR2004 - of the greatest port
        if not colon or not host or not digits or int(port) not in _PORTS:
            raise ValueError(f"{text!r} is not an address; write host:port, such as kafka1:9092 or [::1]:9092")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Options:
    """Options that are the same for all connections to a cluster."""

    client_id: str = "confplane"
    """Shown in the brokers' logs and metrics, and an entity of quotas."""
    software_version: str = "1"
    tls: Callable[[], ssl.SSLContext] | None = None
    """Creates the context of each connection, so that replaced files are read."""
    login: Callable[[], SaslLogin] | None = field(default=None, repr=False)
    """Creates the login of each connection, and of each renewal."""
    most_bytes: int = 256 * 1024 * 1024
    """The largest response in bytes. A describe of all quotas takes about 93 bytes per entity."""
    in_flight: int = 8
    """Concurrent requests on one connection. A node processes them one after the other."""
    requests: RequestCounts = field(default_factory=RequestCounts, repr=False, compare=False)
    """Counts the requests of all connections."""
