"""Authorization: checked when a change is drafted and when a read selects a cluster facet, never by a handler.

``Rights`` are the name ranges of a caller, computed from the grants once and kept until tokens or grants change.
``Access`` holds the rights of one request and is the only class that refuses operations.
"""

from __future__ import annotations

import shlex
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from typing_extensions import override

from confplane.domain.access.grants import ANY, Grant, GrantRules, narrowed
from confplane.domain.access.identities import Authentication, CredentialNarrowing, Identity
from confplane.domain.access.operations import OF_CLUSTER, Operation, ResourceType, forbidden_error
from confplane.domain.access.ranges import EVERYTHING, NameRanges
from confplane.domain.entities import desanitize
from confplane.domain.errors import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.ports.access import AccessCopy, SecurityEvents

CALLERS: Final = 4_096
"""Maximum number of callers whose rights are cached. The rights of further callers are computed again."""
_OF_WRITES: Final = frozenset({Operation.ALTER_CONFIGS, Operation.BYPASS_RULES})
_OWN: Final = UUID(int=0)
"""The id of the implicit grant: the right of a Kafka user to resolve its own client configs."""


class Rights:
    """The rights of a caller under the current grants.

    Args:
        identity: The caller.
        copy: Tokens and grants.
    """

    def __init__(self, identity: Identity, copy: AccessCopy) -> None:
        self.identity = identity
        self.unlimited = identity.is_admin and identity.narrowing is None and identity.behalf_of is None
        """True if every operation on every resource is allowed, now and later."""
        self._copy = copy
        self._behalf = None if identity.behalf_of is None else Rights(identity.behalf_of, copy)
        self._made: dict[tuple[str | None, Operation], NameRanges] = {}
        self._version = -1

    @property
    def grants(self) -> Sequence[Grant]:
        """The grants that apply to the caller; empty if it needs none."""
        return () if self.identity.is_admin else self._copy.grants_of(self.identity)

    def allowed(self, cluster: str | None, operation: Operation) -> NameRanges:
        """Return the resources on which the caller may run an operation.

        Args:
            cluster: The cluster; None: all clusters together.
            operation: The operation.

        Raises:
            UnauthenticatedError: The caller's token was revoked, or has expired.
            UnavailableError: The copy of tokens and grants is too old.
        """
        if self._version != self._copy.version:
            self._copy.check(self.identity)
            self._made = {}
            self._version = self._copy.version
        found = self._made.get((cluster, operation))
        if found is None:
            found = self._made[cluster, operation] = self._make(cluster, operation)
        return found

    def check(self) -> None:
        """Refuse a credential that is no longer valid; see :meth:`Access.check`."""
        self._copy.check(self.identity)

    def _make(self, cluster: str | None, operation: Operation) -> NameRanges:
        identity = self.identity
        found = self._granted(cluster, operation)
        if identity.narrowing is not None:
            found &= narrowed(identity.narrowing, cluster, operation)
        return found if self._behalf is None else found & self._behalf.allowed(cluster, operation)

    def _granted(self, cluster: str | None, operation: Operation, *, denies: bool = True) -> NameRanges:
        """Return what the grants give, without the limits of the credential; with ``denies`` off, as if none denied."""
        if self.identity.is_admin:
            return EVERYTHING
        grants = (*self._copy.grants_of(self.identity), *own_grants(self.identity))
        return GrantRules((grant for grant in grants if denies or grant.allows), cluster)[operation]

    def cause(self, cluster: str | None, operation: Operation, spelling: str) -> DeniedRight:
        """Return the reason why the caller may not run an operation on a resource."""
        if spelling not in self._granted(cluster, operation):
            denied = spelling in self._granted(cluster, operation, denies=False)
            return DeniedRight(Cause.DENY if denied else Cause.GRANT, self.identity)
        narrowing = self.identity.narrowing
        if self._behalf is None or (narrowing is not None and spelling not in narrowed(narrowing, cluster, operation)):
            return DeniedRight(Cause.LIMIT, self.identity)
        return self._behalf.cause(cluster, operation, spelling)


class Cause(Enum):
    """The reason of a refusal."""

    GRANT = auto()
    """No grant allows the operation."""
    DENY = auto()
    """A deny takes it away."""
    LIMIT = auto()
    """The limits of the credential leave it out."""


class DeniedRight(NamedTuple):
    """The reason of a refusal, and who lacks the right: the caller, or the user for whom it acts."""

    cause: Cause
    identity: Identity


def own_grants(identity: Identity) -> tuple[Grant, ...]:
    """Return the implicit grants: a Kafka user may resolve and register its own applications."""
    own = identity.own_user
    if own is None or own == ANY:
        return ()
    return (Grant(_OWN, identity.principal, operation=Operation.RESOLVE, resource=ResourceType.USER, name=own),)


class Access:
    """The rights of one request's caller, with the identification of the request for security events.

    It never changes after its creation. It is not a dataclass, because every request creates one.

    Attributes:
        identity: The caller.
        unlimited: True if every operation on every resource is allowed, now and later.
    """

    __slots__ = ("events", "identity", "request_id", "rights", "source", "unlimited")

    def __init__(self, rights: Rights, source: str, request_id: str, events: SecurityEvents | None = None) -> None:
        self.rights = rights
        self.source = source
        self.request_id = request_id
        self.events = events
        self.identity = rights.identity
        self.unlimited = rights.unlimited

    def check(self) -> None:
        """Refuse a caller whose credential is no longer valid.

        Raises:
            UnauthenticatedError: The caller's token was revoked, or has expired.
            UnavailableError: The copy of tokens and grants is too old.
        """
        self.rights.check()

    def allowed(self, cluster: str | None, operation: Operation) -> NameRanges:
        """Return the resources on which the caller may run an operation; see :meth:`Rights.allowed`."""
        return self.rights.allowed(cluster, operation)

    def allows(self, cluster: str | None, operation: Operation, spelling: str) -> bool:
        """Return True if the caller may run an operation on a resource.

        Args:
            cluster: The cluster; None: all clusters together.
            operation: The operation.
            spelling: The id of an entity, or as :func:`confplane.domain.access.ranges.spell` gives it.
        """
        return spelling in self.rights.allowed(cluster, operation)

    def require(self, cluster: str | None, operation: Operation, spelling: str, *, pointer: str | None = None) -> None:
        """Refuse an operation that the caller may not run, and record the refusal.

        Args:
            cluster: The cluster; None: all clusters together.
            operation: The operation.
            spelling: As in :meth:`allows`.
            pointer: JSON pointer of the resource's name in the request.

        Raises:
            ForbiddenError: The grant is missing; the text names it.
        """
        if spelling in self.rights.allowed(cluster, operation):
            return
        if self.events is not None:
            self.events.denied(self.identity, self.source, self.request_id, operation, spelling)
        kind = _type_of(spelling)
        raise forbidden_error(kind)(
            _text(self.rights.cause(cluster, operation, spelling), cluster, operation, spelling),
            pointer=pointer,
            outcome=WriteOutcome.NOT_APPLIED if operation in _OF_WRITES else None,
        )


class AccessControl:
    """Creates the :class:`Access` of each request. One instance serves a process.

    Args:
        copy: Tokens and grants.
        events: Records refusals.
    """

    def __init__(self, copy: AccessCopy, events: SecurityEvents | None = None) -> None:
        self._copy = copy
        self._events = events
        self._rights = lru_cache(maxsize=CALLERS)(self._make)

    def access(self, identity: Identity, source: str, request_id: str) -> Access:
        """Return the access of a request.

        Raises:
            UnauthenticatedError: The credential is no longer valid.
            UnavailableError: The copy of tokens and grants is missing, or too old.
        """
        if not identity.is_admin:
            self._copy.check(identity)
        return Access(self._rights(identity), source, request_id, self._events)

    def rights(self, identity: Identity) -> Rights:
        """Return the rights of an identity without a request, to show them to another caller."""
        return self._rights(identity)

    def _make(self, identity: Identity) -> Rights:
        return Rights(identity, self._copy)


class _Unrestricted:
    """A copy of tokens and grants for callers that need no grants."""

    version = 0

    def grants_of(self, identity: Identity) -> tuple[Grant, ...]:
        """Return no grants."""
        del identity
        return ()

    def check(self, identity: Identity) -> None:
        """Accept every credential."""


def of_operator(principal: str, source: str, request_id: str) -> Access:
    """Return the access of a command's caller, who has the service's settings and so needs no grant."""
    return Access(Rights(Identity(principal, Authentication.COMMAND), _Unrestricted()), source, request_id)


def unrestricted(access: Access) -> Access:
    """Return an access of the same caller that allows everything, to decide what is shown and never carried out."""
    rights = Rights(access.identity, _Unrestricted())
    rights.unlimited = True
    return Access(rights, access.source, access.request_id)


class _ApprovedRights(Rights):
    """The rights of an author whose change others approved: to read what the author may read, and to write anything."""

    def __init__(self, rights: Rights) -> None:
        super().__init__(rights.identity, _Unrestricted())
        self._rights = rights

    @override
    def allowed(self, cluster: str | None, operation: Operation) -> NameRanges:
        if operation is Operation.DESCRIBE_CONFIGS:
            return self._rights.allowed(cluster, operation)
        return EVERYTHING


def approved(rights: Rights, access: Access, request_id: str) -> Access:
    """Return an access that sees the configs that the rights show, and that needs no grant to write.

    Args:
        rights: The rights of the author.
        access: The access of the request.
        request_id: The id of the changes.
    """
    return Access(_ApprovedRights(rights), access.source, request_id)


def _text(refusal: DeniedRight, cluster: str | None, operation: Operation, spelling: str) -> str:
    """Return the text of a refusal, with what to do about it."""
    cause, identity = refusal
    kind = _type_of(spelling)
    where = "all clusters" if cluster is None else f"cluster {cluster}"
    what = f"{operation} on {where if kind is ResourceType.CLUSTER else f'{spelling} of {where}'}"
    who = identity.principal
    if cause is Cause.LIMIT:
        assert identity.narrowing is not None  # noqa: S101 - for the type checker: it is the cause
        limit = _limit(identity.narrowing, cluster, operation)
        return f"The credential of {who} is limited to {limit}, which leaves out {what}; use one without this limit"
    if cause is Cause.DENY:
        return f"A deny takes {what} from {who}; `confplane grants show` and GET /v1/whoami list the grants that decide"
    instead = f", or on the resource cluster of {where}" if kind in OF_CLUSTER else ""
    command = _command(who, cluster, operation, spelling)
    return f"{who} lacks the grant {what}{instead}; an administrator gives it with `{command}`"


def _limit(narrowing: CredentialNarrowing, cluster: str | None, operation: Operation) -> str:
    """Return the first limit of a credential that leaves an operation out, in words."""
    if narrowing.clusters is not None and cluster not in narrowing.clusters:
        return f"the clusters {', '.join(sorted(narrowing.clusters))}"
    if not narrowed(CredentialNarrowing(narrowing.read_only), cluster, operation):
        return "reads"
    return f"the operations {', '.join(sorted(narrowing.operations or ()))}"


def _command(principal: str, cluster: str | None, operation: Operation, spelling: str) -> str:
    """Return the command that creates a missing grant."""
    kind, equals, rest = spelling.partition(",")[0].partition("=")
    if equals:
        kind = f"{kind}:{desanitize(rest.replace('~', '%'))}"
    elif kind in OF_CLUSTER:
        kind = ResourceType.CLUSTER  # the type of a default entity
    given = ["--principal", principal, "--operation", operation, "--resource", kind]
    return shlex.join(["confplane", "grants", "create", *given, *([] if cluster is None else ["--cluster", cluster])])


def _type_of(spelling: str) -> ResourceType:
    return ResourceType(spelling.partition(",")[0].partition("=")[0])
