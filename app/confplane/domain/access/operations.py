"""Operations and resources that a grant names, and the roles that bundle them.

Operations and resource types are Kafka's where Kafka has them; the others are the service's own.

Source: clients/src/main/java/org/apache/kafka/common/acl/AclOperation.java, resource/ResourceType.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.enums import StrEnum
from confplane.domain.errors import ForbiddenError, GroupForbiddenError, TopicForbiddenError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Operation(StrEnum):
    """A right on a resource."""

    ALL = "ALL"
    """Every operation."""
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    DESCRIBE = "DESCRIBE"
    """Read a resource of the service's own."""
    ALTER = "ALTER"
    """Create, change and remove a resource of the service's own."""
    RESOLVE = "RESOLVE"
    """Read the effective client configs of a user's applications: an application's poll."""
    REPORT = "REPORT"
    """Register the software of a user's applications, and report the configs that they have applied."""
    FREEZE = "FREEZE"
    """Freeze and thaw a cluster."""
    IMPERSONATE = "IMPERSONATE"
    """Act for a user (``Confplane-On-Behalf-Of``)."""
    PROPOSE = "PROPOSE"
    """Propose a change for others to approve."""
    BYPASS_RULES = "BYPASS_RULES"
    """Change what the cluster's rules refuse."""
    TAKE_OVER = "TAKE_OVER"
    """Give keys of an owner to another one."""


IMPLIES: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.ALL: frozenset(Operation) - {Operation.ALL},
    Operation.ALTER_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.RESOLVE}),
    Operation.RESOLVE: frozenset({Operation.REPORT}),
    Operation.ALTER: frozenset({Operation.DESCRIBE}),
}
"""The operations that an allow of an operation includes. It is not transitive: readers of configs report nothing."""
_FOLLOWS: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.ALTER_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.RESOLVE, Operation.REPORT}),
    Operation.RESOLVE: frozenset({Operation.REPORT}),
    Operation.ALTER: frozenset({Operation.DESCRIBE}),
}


def denies(denied: Operation, operation: Operation) -> bool:
    """Return True if a deny of one operation denies another always: the same, and each that includes it.

    A deny of REPORT leaves the operations that include REPORT: without it they are as useful.
    """
    if denied in {operation, Operation.ALL}:
        return True
    return denied in IMPLIES.get(operation, ()) and (denied is not Operation.REPORT or operation is Operation.ALL)


def follows_of(denied: Operation) -> frozenset[Operation]:
    """Return the operations that a deny takes away as well, unless a grant allows them without the denied operation."""
    return _FOLLOWS.get(denied, frozenset())


def gives(granted: Operation, operation: Operation) -> bool:
    """Return True if an allow of one operation allows another: the same, and each that it includes."""
    return granted is operation or operation in IMPLIES.get(granted, ())


class ResourceType(StrEnum):
    """The type of a resource."""

    CLUSTER = "cluster"
    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    TOKENS = "tokens"
    """The API tokens of the principals that match the name."""
    GRANTS = "grants"
    """The grants of the principals that match the name."""
    AUDIT = "audit"
    ROLLUPS = "rollups"
    MANIFESTS = "manifests"
    """The owners of keys that the name matches."""
    CHANGE_REQUESTS = "change-requests"
    """The change requests of the authors that match the name."""
    WEBHOOKS = "webhooks"


OF_CLUSTER: Final = (
    ResourceType.USER,
    ResourceType.CLIENT_ID,
    ResourceType.IP,
    ResourceType.BROKER,
    ResourceType.CLIENT_METRICS,
)
"""The types whose entities the cluster's grant covers, defaults too: Kafka asks for the cluster there."""
_CONFIGS: Final = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.PROPOSE})
_OWN: Final = frozenset({Operation.DESCRIBE, Operation.ALTER})
_NAMED: Final = (ResourceType.CLIENT_ID, ResourceType.IP, ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP)
OWN: Final = (
    ResourceType.TOKENS,
    ResourceType.GRANTS,
    ResourceType.AUDIT,
    ResourceType.ROLLUPS,
    ResourceType.MANIFESTS,
    ResourceType.CHANGE_REQUESTS,
    ResourceType.WEBHOOKS,
)
"""The types of the service's own resources."""
OF_SERVICE: Final = frozenset({ResourceType.TOKENS, ResourceType.GRANTS, ResourceType.AUDIT})
"""The types whose resources are of no cluster: they are decided for all clusters together."""
OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.CLUSTER: _CONFIGS
    | {
        Operation.RESOLVE,
        Operation.REPORT,
        Operation.FREEZE,
        Operation.IMPERSONATE,
        Operation.BYPASS_RULES,
    },
    ResourceType.USER: _CONFIGS | {Operation.RESOLVE, Operation.REPORT, Operation.IMPERSONATE, Operation.BYPASS_RULES},
    **dict.fromkeys((*_NAMED, ResourceType.CLIENT_METRICS), _CONFIGS | {Operation.BYPASS_RULES}),
    **dict.fromkeys(OWN, _OWN),
    ResourceType.MANIFESTS: _OWN | {Operation.TAKE_OVER},
}
"""The operations of each type of resource, besides ALL."""


class PatternType(StrEnum):
    """The way in which a grant's name matches names."""

    LITERAL = "literal"
    """This name; ``*`` is every name."""
    PREFIXED = "prefixed"
    """Names that begin with this text."""


class Permission(StrEnum):
    """The effect of a grant."""

    ALLOW = "allow"
    DENY = "deny"


class Role(StrEnum):
    """A bundle of operations."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    APPLICATION = "application"
    AUDITOR = "auditor"


_READ_CONFIGS: Final = {
    kind: frozenset({Operation.DESCRIBE_CONFIGS})
    for kind in (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP, *OF_CLUSTER)
}
_READ: Final = frozenset({Operation.DESCRIBE})
ROLES: Final[Mapping[Role, Mapping[ResourceType, frozenset[Operation]]]] = {
    Role.VIEWER: {**_READ_CONFIGS, ResourceType.ROLLUPS: _READ},
    Role.OPERATOR: {
        **{kind: frozenset({Operation.ALTER_CONFIGS, Operation.PROPOSE}) for kind in _READ_CONFIGS},
        ResourceType.CLUSTER: frozenset({Operation.ALTER_CONFIGS, Operation.PROPOSE, Operation.FREEZE}),
        ResourceType.ROLLUPS: _READ,
        ResourceType.AUDIT: _READ,
    },
    Role.ADMIN: {kind: frozenset({Operation.ALL}) for kind in ResourceType},
    Role.APPLICATION: {ResourceType.USER: frozenset({Operation.RESOLVE})},
    Role.AUDITOR: {
        **_READ_CONFIGS,
        **dict.fromkeys(OWN, _READ),
    },
}
"""The operations of each role, by the type of resource. A grant of a role names a resource, or covers all of these."""

_FORBIDDEN: Final[Mapping[ResourceType, type[ForbiddenError]]] = {
    ResourceType.TOPIC: TopicForbiddenError,
    ResourceType.GROUP: GroupForbiddenError,
}


def forbidden_error(kind: ResourceType) -> type[ForbiddenError]:
    """Return the error of a resource: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED."""
    return _FORBIDDEN.get(kind, ForbiddenError)
