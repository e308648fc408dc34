"""Declarative rules on alters: the changes that a rule applies to, and the demands it makes.

A rule checks one entity's change. The first violated rule, in the order of the file, refuses the change; a change that
violates no rule is allowed. Nothing here compares or repeats a sensitive value: policies do not receive any.
"""

from __future__ import annotations

import re  # noqa: TC003 - Pydantic reads the types of the policy file's parts
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from confplane.domain.approvals import ApprovalDemand, Globs, Requirement
from confplane.domain.entities import DEFAULT_NODE, EntityType
from confplane.domain.errors import PolicyViolationError
from confplane.domain.numbers import java_trim, plain_number, stored_number
from confplane.domain.risks import RiskOptions
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confplane.domain.entities import Entity
    from confplane.domain.risks import Risk, RiskKind

KINDS: Final[Mapping[str, tuple[EntityType, ...]]] = MappingProxyType(
    {
        ",".join(types): types
        for types in (
            *((kind,) for kind in EntityType),
            (EntityType.USER, EntityType.CLIENT_ID),
        )
    }
)
"""The kinds of entity in the spelling of entity ids: ``user``, ``user,client-id``."""

FACET_KINDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "client-quotas": frozenset({"user", "client-id", "user,client-id", "ip"}),
        "client-configs": frozenset({"user", "user,client-id"}),
        "configs": frozenset({"topic", "broker", "group", "client-metrics"}),
    }
)
"""The kinds of entity of each facet."""

LONGEST_MATCHED: Final = 10_000
"""Characters of the longest value that is matched against a regular expression; longer values are refused unmatched."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """One entity's change as policies see it: valid, planned on the stored state, and not yet written.

    Values are as stored. Sensitive values are None in every member. Nothing in the request may be changed.
    """

    cluster: str
    principal: str
    """The principal in Kafka's form, ``User:name``."""
    facet: str
    """``client-quotas``, ``client-configs`` or ``configs``."""
    entity: Entity
    set: Mapping[str, str | None]
    """The keys whose stored value would change, with the value that would be stored."""
    removed: frozenset[str]
    """The keys that would be removed."""
    before: Mapping[str, str | None]
    """The facet's keys before the change."""
    after: Mapping[str, str | None]
    """The facet's keys after the change."""
    validate_only: bool
    pointers: Mapping[str, str]
    """Key -> JSON pointer of the part of the request body that names the key. Not every key has a pointer."""
    behalf_of: str | None = None
    """The user for whom ``principal`` acts, as ``User:name``; None if it acts for itself."""
    risks: tuple[Risk, ...] = ()
    """The risks of the change."""
    altered: frozenset[tuple[str, Entity]] = frozenset()
    """Facets and entities that the author alters with the same request, or altered in the last hour. They are known if
    a rule asks for approvals from a number of entities on."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Key -> owner, of the keys before the change that have one. They are known if a rule asks for owners."""
    taken_over: frozenset[str] = frozenset()
    """The keys that get another owner. They are changes of these keys for rules about owners."""


class NamePatterns:
    """Patterns of the names of one component; the pattern ``<default>`` means the default entity and never a name."""

    __slots__ = ("_default", "_globs")

    def __init__(self, texts: Iterable[str]) -> None:
        given = tuple(texts)
        self._default = DEFAULT_NODE in given
        self._globs = Globs(text for text in given if text != DEFAULT_NODE)

    def match(self, name: str | None) -> bool:
        """Return True if the patterns match a component with this name. None means the default entity."""
        return self._default if name is None else self._globs.match(name)


@dataclass(frozen=True, slots=True)
class Match:
    """The changes that a rule applies to. A criterion that is omitted matches everything."""

    facets: frozenset[str] = frozenset(FACET_KINDS)
    kinds: frozenset[tuple[EntityType, ...]] = frozenset(KINDS.values())
    names: Mapping[EntityType, NamePatterns] = field(default_factory=dict)
    """Patterns by type. Entities without one of these components do not match."""
    principals: Globs | None = None
    except_principals: Globs = field(default_factory=lambda: Globs(()))
    owners: Globs | None = None
    """Patterns of owners: changes of a key that one of them has."""

    def applies(self, request: PolicyRequest) -> bool:
        """Return True if the rule applies to a change."""
        return (
            self.covers(request.facet, request.entity)
            and self.concerns(request.principal, request.behalf_of)
            and self._is_owned(request)
        )

    def _is_owned(self, request: PolicyRequest) -> bool:
        if self.owners is None:
            return True
        keys = self.altered_keys(request)
        return any(self.owners.match(owner) for key, owner in request.owners.items() if key in keys)

    def altered_keys(self, request: PolicyRequest) -> frozenset[str]:
        """Return the keys that a change alters, as the rule sees it."""
        altered = request.removed.union(request.set)
        return altered if self.owners is None else altered | request.taken_over

    def covers(self, facet: str, entity: Entity) -> bool:
        """Return True if the rule applies to changes of an entity in a facet."""
        if facet not in self.facets or entity.types not in self.kinds:
            return False
        if self.names:
            components = dict(entity.components)
            for kind, names in self.names.items():
                if kind not in components or not names.match(components[kind]):
                    return False
        return True

    def concerns(self, principal: str, behalf_of: str | None) -> bool:
        """Return True if the rule applies to changes of a principal, and of the user for whom it acts."""
        actors = [principal] if behalf_of is None else [principal, behalf_of]
        if self.principals is not None and not any(map(self.principals.match, actors)):
            return False
        return not all(map(self.except_principals.match, actors))


class Demand(Protocol):
    """A rule's demand on a value."""

    @property
    def text(self) -> str:
        """The text after "the value must": ``be at most 5``."""

    def is_met(self, value: str) -> bool:
        """Return True if a stored value meets the demand."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number within inclusive bounds.

    At least one bound is set, and None means no bound. A text that is not a number is outside.
    """

    minimum: float | None = None
    maximum: float | None = None

    @property
    def text(self) -> str:
        """The text after "the value must"."""
        bounds = []
        if self.minimum is not None:
            bounds.append(f"at least {plain_number(self.minimum)}")
        if self.maximum is not None:
            bounds.append(f"at most {plain_number(self.maximum)}")
        return f"be a number, {' and '.join(bounds)}"

    def is_met(self, value: str) -> bool:
        """Return True if a stored value is a number within the bounds. NaN is never within the bounds."""
        number = stored_number(value)
        if number is None:
            return False
        # NaN is neither above nor below any bound.
        above = self.minimum is None or number >= self.minimum
        return above and (self.maximum is None or number <= self.maximum)


@dataclass(frozen=True, slots=True)
class AllowedValues:
    """One of some values: texts are compared as stored, numbers by value, true and false as Kafka reads them."""

    values: tuple[str | bool | float, ...]

    @property
    def text(self) -> str:
        """The text after "the value must"."""
        return f"be one of {clipped(', '.join(spelled(value) for value in self.values), 300)}"

    def is_met(self, value: str) -> bool:
        """Return True if a stored value is one of the allowed values."""
        return any(_equal(value, allowed) for allowed in self.values)


@dataclass(frozen=True, slots=True)
class Regex:
    """A text that a regular expression matches as a whole."""

    pattern: re.Pattern[str]

    @property
    def text(self) -> str:
        """The text after "the value must"."""
        return f"match the regular expression {clipped(self.pattern.pattern, 300)}"

    def is_met(self, value: str) -> bool:
        """Return True if all of a stored value matches."""
        return len(value) <= LONGEST_MATCHED and self.pattern.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It has at least one demand. ``None`` and empty values demand nothing."""

    name: str
    match: Match = field(default_factory=Match)
    description: str | None = None
    """A part of the refusal, which may name the next step."""
    protected: bool = False
    allow_keys: Globs | None = None
    deny_keys: Globs | None = None
    values: tuple[tuple[Globs, Demand], ...] = ()
    """Demands on the new values of keys; all demands that match a key count."""
    deny_removal: Globs | None = None
    deny_risks: frozenset[RiskKind] = frozenset()
    approvals: ApprovalDemand | None = None

    def check(self, request: PolicyRequest) -> None:
        """Refuse a change that violates this rule.

        Raises:
            PolicyViolationError: The change violates the rule. The text names the rule, the pointer is that of the
                first offending key in alphabetical order, if the request names that key.
        """
        if not self.match.applies(request):
            return
        for key, complaint in self._complaints(request):
            text = f"rule {self.name!r}: {complaint}"
            if self.description:
                text = f"{text}. {self.description}"
            raise PolicyViolationError(text, pointer=None if key is None else request.pointers.get(key))

    def measures(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if the rule asks for approvals of a change of an entity only from a number of entities on."""
        asked = self.approvals
        if asked is None or asked.min_entities == 1:
            return False
        return self.match.covers(facet, entity) and self.match.concerns(principal, behalf_of)

    def asks_for_owners(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if it depends on the owners of keys whether the rule applies to a change of an entity."""
        match = self.match
        return match.owners is not None and match.covers(facet, entity) and match.concerns(principal, behalf_of)

    def requirement(self, request: PolicyRequest) -> Requirement | None:
        """Return the approvals that the rule asks for; None if the change needs none."""
        asked = self.approvals
        if asked is None or not self.match.applies(request):
            return None
        if not any(map(asked.keys.match, self.match.altered_keys(request))):
            return None
        if asked.min_entities > 1:
            altered = {entity for facet, entity in request.altered if self.match.covers(facet, entity)}
            if len(altered | {request.entity}) < asked.min_entities:
                return None
        return Requirement(self.name, asked.count, asked.approvers)

    def _complaints(self, request: PolicyRequest) -> Iterator[tuple[str | None, str]]:
        altered = sorted(self.match.altered_keys(request))
        if self.protected and altered:
            yield None, f"{clipped(request.entity.id)} is protected from changes by {clipped(request.principal)}"
        for key in altered:
            if self.allow_keys is not None and not self.allow_keys.match(key):
                yield key, f"{clipped(key)} can't be altered here; only these can: {self.allow_keys}"
            if self.deny_keys is not None and self.deny_keys.match(key):
                yield key, f"{clipped(key)} can't be altered here"
        for key, value in sorted(request.set.items(), key=itemgetter(0)):
            yield from self._complaints_of_value(key, value)
        if self.deny_removal is not None:
            for key in filter(self.deny_removal.match, sorted(request.removed)):
                yield key, f"{clipped(key)} can't be removed here; it can be set to another value"
        for risk in request.risks:
            if risk.kind in self.deny_risks:
                yield risk.key, risk.text

    def _complaints_of_value(self, key: str, value: str | None) -> Iterator[tuple[str, str]]:
        for keys, demand in self.values:
            if not keys.match(key):
                continue
            if value is None:
                yield key, f"{clipped(key)} is sensitive, so its value can't be checked, as this rule demands"
            elif not demand.is_met(value):
                yield key, f"the value of {clipped(key)} must {demand.text}"


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """The content of a policy file."""

    rules: tuple[Rule, ...] = ()
    risks: RiskOptions = field(default_factory=RiskOptions)
    version: str = ""
    """A digest of the file."""


class RulePolicy:
    """The built-in policy: rules in the order of their file.

    Attributes:
        document: The content of the file, which is replaced as a whole when the file changes.
    """

    def __init__(self, name: str, document: PolicyDocument) -> None:
        self.name = name
        self.document = document

    def check(self, request: PolicyRequest) -> None:
        """Refuse a change by the first rule that it violates.

        Raises:
            PolicyViolationError: A rule is violated; the text names it.
        """
        for rule in self.document.rules:
            rule.check(request)

    def requirements(self, request: PolicyRequest) -> tuple[Requirement, ...]:
        """Return the approvals that the rules ask for, in the order of the file."""
        asked = (rule.requirement(request) for rule in self.document.rules)
        return tuple([each for each in asked if each is not None])

    def measures(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if a rule depends on the number of entities that the author alters; see :meth:`Rule.measures`."""
        return any(rule.measures(facet, entity, principal, behalf_of) for rule in self.document.rules)

    def asks_for_owners(self, facet: str, entity: Entity, principal: str, behalf_of: str | None) -> bool:
        """Return True if a rule depends on the owners of keys; see :meth:`Rule.asks_for_owners`."""
        return any(rule.asks_for_owners(facet, entity, principal, behalf_of) for rule in self.document.rules)


def _equal(stored: str, allowed: str | bool | float) -> bool:  # noqa: FBT001 - a value like the others
    if isinstance(allowed, str):
        return stored == allowed
    if isinstance(allowed, bool):
        return java_trim(stored).lower() == spelled(allowed)
    return stored_number(stored) == allowed


def spelled(value: str | bool | float) -> str:  # noqa: FBT001 - a value like the others
    """Return a value of YAML as the text that is stored."""
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else plain_number(value)
