"""Errors of the client library.

::

    ClientError
    ├── ConnectionFailedError   no answer came; a write may or may not have been applied
    └── ProblemError            the service answered with a problem
"""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """Base of the errors that this library raises.

    Attributes:
        retriable: True where the same request may succeed later.
        retry_after_s: Seconds after which a retry makes sense, or None.
    """

    retriable: bool = False
    retry_after_s: float | None = None


class ConnectionFailedError(ClientError):
    """No answer came. Reads may be repeated; a write's outcome is unknown until a look-up.

    Attributes:
        may_be_applied: True for a write that may have reached the service.
    """

    retriable = True

    def __init__(self, message: str, *, may_be_applied: bool = False) -> None:
        super().__init__(message)
        self.may_be_applied = may_be_applied


class ProblemError(ClientError):
    """The service answered with ``application/problem+json``.

    Attributes:
        status: HTTP status.
        kafka_error_code: Kafka's error code, e.g. 42.
        outcome: ``not_applied`` or ``unknown`` for writes, else None.
        body: All members of the problem.
    """

    def __init__(self, status: int, body: dict[str, Any], *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status} {body.get('title', '')}: {body.get('detail', '')}")
        self.status = status
        self.kafka_error_code: int | None = body.get("kafkaErrorCode")
        self.retriable = bool(body.get("retriable", False))
        self.outcome: str | None = body.get("outcome")
        self.retry_after_s = retry_after_s
        self.body = body
