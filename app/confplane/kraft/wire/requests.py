"""The requests to the nodes of one cluster, counted by API and by Kafka's name of the response's error code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from confplane.kraft.wire import errors
from confplane.kraft.wire.messages import (
    AlterClientQuotasResponse,
    DescribeConfigsResponse,
    DescribeQuorumResponse,
    FetchResponse,
    FetchSnapshotResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        case DescribeQuorumResponse() | FetchSnapshotResponse():
            return [part for topic in answer.topics for part in topic.partitions]
        case FetchResponse():
            return [part for topic in answer.responses for part in topic.partitions]
    return ()
