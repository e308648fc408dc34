"""Errors of the wire protocol: each reports what happened and what to do, and none contains a secret."""

from __future__ import annotations

from typing import Final

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER_OR_FOLLOWER: Final = 6
INVALID_TOPIC_EXCEPTION: Final = 17
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_SASL_MECHANISM: Final = 33
UNSUPPORTED_VERSION: Final = 35
INVALID_CONFIG: Final = 40
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
RIGHTS: Final = frozenset({TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED})
_RESOURCES: Final = {29: "topic", 30: "group", 31: "cluster"}

NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    44: "POLICY_VIOLATION",
    56: "KAFKA_STORAGE_ERROR",
    58: "SASL_AUTHENTICATION_FAILED",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    100: "UNKNOWN_TOPIC_ID",
    104: "INCONSISTENT_CLUSTER_ID",
    129: "REBOOTSTRAP_REQUIRED",
}
"""Kafka's names of the error codes that describes, alters and fetches return."""
PASSING: Final = frozenset({5, 6, 7, 8, 13, 14, 41, 56, 74, 75})
"""Codes of temporary errors, or of errors that another node would not return."""


class KraftError(Exception):
    """The root of all errors of this package."""


class UnreachableError(KraftError):
    """A node does not respond: no connection, a lost connection, or no response in time. A retry may help."""


class UntrustedError(UnreachableError):
    """A node's certificate is not trusted."""


class KraftLoginError(KraftError):
    """A node refuses the login, or can't prove that it knows the password (SCRAM)."""


class RightsError(KraftError):
    """A node refuses a request because a right is missing.

    Args:
        what: The request or resource.
        code: 29, 30 or 31: the right is missing on a topic, a group or the cluster.
        said: The node's own message.
    """

    def __init__(self, what: str, code: int, said: str | None = None) -> None:
        super().__init__(f"{what} is not permitted: {said or f'a right on the {_RESOURCES[code]} is missing'}")
        self.code = code


class UnsupportedError(KraftError):
    """A node has no version of an API that this client supports."""


class WrongClusterError(KraftError):
    """A node belongs to another cluster.

    Args:
        address: The node's address.
        expected: The id of the cluster that is meant.
        found: The id of the node's cluster.
    """

    def __init__(self, address: str, expected: str, found: str | None) -> None:
        super().__init__(
            f"The node at {address} belongs to the cluster {found}, not to {expected}. Nothing was asked of it."
            " Correct the addresses of the brokers, or import the other cluster as a cluster of its own."
        )


class ProtocolError(KraftError):
    """Bytes that are not Kafka's protocol."""


class WireError(ProtocolError):
    """Bytes that can't be read as a message, or a message that can't be written as bytes.

    Args:
        name: The message, as spelled by Kafka.
        at: The offset in bytes at which reading ended; None if a message was written.
        why: The broken rule.
    """

    def __init__(self, name: str, at: int | None, why: str) -> None:
        super().__init__(f"{name}: {why}" if at is None else f"{name} at byte {at}: {why}")
        self.name = name
        self.at = at


class AnswerError(KraftError):
    """A node returns an error.

    Args:
        what: The request or resource.
        code: Kafka's number of the error.
        said: The node's own message.
    """

    def __init__(self, what: str, code: int, said: str | None = None) -> None:
        super().__init__(f"{what} is answered with {name_of(code)}{f': {said}' if said else ''}")
        self.code = code
        self.passing = code in PASSING
        """True for a temporary error, or one that another node would not return."""


def name_of(code: int) -> str:
    """Return Kafka's name of an error code, or its number."""
    return NAMES.get(code, f"error {code}")


def check(what: str, code: int, said: str | None = None) -> None:
    """Do nothing for the code 0.

    Raises:
        RightsError: For the codes of missing rights.
        AnswerError: For any other code.
    """
    if code in RIGHTS:
        raise RightsError(what, code, said)
    if code != 0:
        raise AnswerError(what, code, said)
