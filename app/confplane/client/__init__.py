"""The HTTP client library: a blocking and an asynchronous client with the same typed operations (docs/python.md).

The clients, and httpx with them, are imported when they are first used, so that programs can import errors without
them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from confplane.client.core.calls import Answer
from confplane.client.errors import (
    ClientError,
    ClusterAuthorizationFailedError,
    ConnectionFailedError,
    DuplicateResourceError,
    FrozenError,
    GoneError,
    GroupAuthorizationFailedError,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    LayoutMovingError,
    NetworkError,
    NothingSetError,
    ObservedError,
    OperationNotAttemptedError,
    OutcomeUnknownError,
    PolicyViolationError,
    PreconditionFailedError,
    ProblemError,
    RequestTimedOutError,
    ResourceNotFoundError,
    RestoredStoreError,
    RevertConflictError,
    StaleControllerEpochError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationFailedError,
    UnauthenticatedError,
    UnknownClusterError,
    UnknownRouteError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from confplane.client.families.bodies import Change, ClientChange
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError as InvalidEntityError

if TYPE_CHECKING:
    from confplane.client.asynchronous import AsyncConfplane
    from confplane.client.blocking import Confplane
    from confplane.client.core.pages import AsyncPages, Pages

__all__ = [
    "Answer",
    "AsyncConfplane",
    "AsyncPages",
    "Change",
    "ClientChange",
    "ClientError",
    "ClusterAuthorizationFailedError",
    "Confplane",
    "ConnectionFailedError",
    "DuplicateResourceError",
    "Entity",
    "EntityType",
    "FrozenError",
    "GoneError",
    "GroupAuthorizationFailedError",
    "InvalidConfigError",
    "InvalidEntityError",
    "InvalidRequestError",
    "InvalidTopicError",
    "InvalidUpdateVersionError",
    "LayoutMovingError",
    "NetworkError",
    "NothingSetError",
    "ObservedError",
    "OperationNotAttemptedError",
    "OutcomeUnknownError",
    "Pages",
    "PolicyViolationError",
    "PreconditionFailedError",
    "ProblemError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "RestoredStoreError",
    "RevertConflictError",
    "StaleControllerEpochError",
    "ThrottlingQuotaExceededError",
    "TopicAuthorizationFailedError",
    "UnauthenticatedError",
    "UnknownClusterError",
    "UnknownRouteError",
    "UnknownServerError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
]


_MODULES: Final = {
    "AsyncConfplane": "asynchronous",
    "AsyncPages": "core.pages",
    "Confplane": "blocking",
    "Pages": "core.pages",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
