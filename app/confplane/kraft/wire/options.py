"""Addresses of nodes, and everything that the connections to one cluster share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self

from confplane.kraft.wire import errors
from confplane.kraft.wire.messages import (
    AlterClientQuotasResponse,
    DescribeConfigsResponse,
    DescribeQuorumResponse,
    FetchResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from confplane.kraft.wire.sasl import SaslLogin


TIMEOUT: Final = "timeout"
"""No response arrived in time."""
DISCONNECTED: Final = "disconnected"
"""The connection ended before the response."""
MALFORMED: Final = "malformed"
"""The response was not a valid Kafka message."""
OTHER: Final = "OTHER"
"""A code without a name in :data:`confplane.kraft.wire.errors.NAMES`."""


class _Coded(Protocol):
    """A part of a response with a code of its own."""

    @property
    def error_code(self) -> int:
        """Kafka's number of the error, or 0 for no error."""


class RequestCounts:
    """The requests since the start of the process.

    Attributes:
        ends: The number of requests by API and end: Kafka's name of the code, or an end of this module. A response
            about several entities counts once for each of its codes. A response to Metadata counts only with the code
            of the whole.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def answered(self, api: str, answer: object) -> None:
        """Count a request by its response."""
        whole = getattr(answer, "error_code", 0)
        codes = {whole} if whole else {part.error_code for part in _parts(answer)} or {0}
        for name in {errors.NAMES.get(code, OTHER) for code in codes}:
            self.outcomes[api, name] += 1

    def repeated(self, api: str) -> None:
        """Count a request whose response is not read: its bytes are those of an earlier response without an error."""
        self.outcomes[api, errors.NAMES[0]] += 1

    def failed(self, api: str, end: str) -> None:
        """Count a request without a readable response, by an end of this module."""
        self.outcomes[api, end] += 1


def _parts(answer: object) -> Iterable[_Coded]:
    match answer:
        case AlterClientQuotasResponse():
            return answer.entries
        case IncrementalAlterConfigsResponse():
            return answer.responses
        case DescribeConfigsResponse():
            return answer.results
        case DescribeQuorumResponse():
            return [part for topic in answer.topics for part in topic.partitions]
        case FetchResponse():
            return [part for topic in answer.responses for part in topic.partitions]
    return ()


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
