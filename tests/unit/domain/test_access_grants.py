"""Grants as ranges, held against an evaluation of one grant after the other, as Kafka's authorizer makes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from confplane.domain.access.grants import Grant, GrantRules, narrowed
from confplane.domain.access.identities import Authentication, CredentialNarrowing, Identity
from confplane.domain.access.operations import (
    OF_CLUSTER,
    OPERATIONS,
    OWN,
    ROLES,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Role,
    forbidden_error,
)
from confplane.domain.access.ranges import EVERYTHING, spell
from confplane.domain.errors import ForbiddenError, GroupForbiddenError, TopicForbiddenError

ID = UUID(int=1)
INCLUDED = {
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT},
    Operation.DESCRIBE_CONFIGS: {Operation.RESOLVE},
    Operation.RESOLVE: {Operation.REPORT},
    Operation.ALTER: {Operation.DESCRIBE},
    Operation.ALL: set(Operation),
}
"""The operations that another one includes, written out again."""
LESSER = {
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT},
    Operation.DESCRIBE_CONFIGS: {Operation.RESOLVE, Operation.REPORT},
    Operation.RESOLVE: {Operation.REPORT},
    Operation.ALTER: {Operation.DESCRIBE},
}
"""The operations that a denied one takes with it, from grants that include the denied one."""
NAMES = ["pay", "payments", "payments-a", "payroll", "*", "~", "a b"]


@dataclass(frozen=True)
class Resource:
    """A resource that is asked about; the name None is a default entity, or a type alone."""

    kind: ResourceType
    name: str | None

    @property
    def spelling(self) -> str:
        return spell(self.kind, self.name)


resources = st.builds(Resource, st.sampled_from(list(ResourceType)), st.none() | st.sampled_from(NAMES)).map(
    lambda each: replace(each, name=None) if each.kind is ResourceType.CLUSTER else each
)
patterns = st.tuples(st.just(PatternType.LITERAL), st.sampled_from(["*", *NAMES])) | st.tuples(
    st.just(PatternType.PREFIXED), st.sampled_from(["p", "pay", "payments-", "~", "*", "a "])
)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    """Draw grants as the service accepts them."""
    kind = draw(st.sampled_from(list(ResourceType)))
    pattern, name = (PatternType.LITERAL, "*") if kind is ResourceType.CLUSTER else draw(patterns)
    role = draw(st.none() | st.sampled_from(list(Role)))
    resource: ResourceType | None = kind
    if role is not None and (kind not in ROLES[role] or draw(st.booleans())):
        resource, pattern, name = None, PatternType.LITERAL, "*"
    return Grant(
        ID,
        draw(st.sampled_from(["User:alice", "User:bob", "User:*", "Group:payments"])),
        draw(st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY])),
        draw(st.sampled_from([None, "one", "two"])),
        None if role is not None else draw(st.sampled_from([Operation.ALL, *sorted(OPERATIONS[kind])])),
        role,
        resource,
        pattern,
        name,
    )


def named_by(grant: Grant, resource: Resource) -> set[Operation]:
    """The operations that a grant names on a resource."""
    if grant.role is None:
        operations = {each: {grant.operation} for each in ResourceType if each is grant.resource}
    else:
        bundle = ROLES[grant.role].items()
        operations = {kind: {*given_ones} for kind, given_ones in bundle if grant.resource in {None, kind}}
    found = set()
    for kind, given_ones in operations.items():
        of_cluster = kind is ResourceType.CLUSTER and resource.kind in {ResourceType.CLUSTER, *OF_CLUSTER}
        if of_cluster or (kind is resource.kind and matches(grant, resource)):
            found |= {each for each in given_ones if each is not None}
    return found


def matches(grant: Grant, resource: Resource) -> bool:
    """Compare a grant's pattern with a name, as Kafka does."""
    if resource.name is None:
        return resource.kind in OWN and grant.pattern is PatternType.LITERAL and grant.name == "*"
    if grant.pattern is PatternType.PREFIXED:
        return resource.name.startswith(grant.name)
    return grant.name in {"*", resource.name}


def allowed(given_grants: list[Grant], cluster: str | None, operation: Operation, resource: Resource) -> bool:
    """Decide one question by a walk over all grants: a deny first, then an allow that no deny has taken along."""
    denied = {
        each
        for grant in given_grants
        if not grant.allows and (cluster is None or grant.cluster in {None, cluster})
        for each in named_by(grant, resource)
    }
    needed = {operation, *INCLUDED.get(operation, set())}
    if operation is not Operation.ALL:
        needed -= {Operation.REPORT} - {operation}  # what includes reports is of use without them
    if denied & {Operation.ALL, *needed}:
        return False
    return any(
        operation in given_all and not any(operation in LESSER.get(each, set()) for each in denied & given_all)
        for grant in given_grants
        if grant.allows and (grant.cluster is None or (cluster is not None and grant.cluster == cluster))
        for given_one in named_by(grant, resource)
        for given_all in [{given_one, *INCLUDED.get(given_one, set())}]
    )


def allow(
    operation: Operation, kind: ResourceType, name: str = "*", pattern: PatternType = PatternType.LITERAL
) -> Grant:
    return Grant(ID, "User:alice", operation=operation, resource=kind, pattern=pattern, name=name)


def deny(
    operation: Operation, kind: ResourceType, name: str = "*", pattern: PatternType = PatternType.LITERAL
) -> Grant:
    return replace(allow(operation, kind, name, pattern), permission=Permission.DENY)


@given(
    st.lists(grants(), max_size=8),
    st.sampled_from([None, "one", "two", "three"]),
    st.sampled_from(list(Operation)),
    st.lists(resources, min_size=1, max_size=8),
)
@example(
    [deny(Operation.RESOLVE, ResourceType.USER, "pay"), allow(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)],
    "one",
    Operation.ALTER_CONFIGS,
    [Resource(ResourceType.USER, "pay"), Resource(ResourceType.USER, "payments"), Resource(ResourceType.USER, None)],
)
@example(
    [deny(Operation.DESCRIBE_CONFIGS, ResourceType.USER, "pay"), allow(Operation.ALL, ResourceType.CLUSTER)],
    "one",
    Operation.REPORT,
    [Resource(ResourceType.USER, "pay"), Resource(ResourceType.USER, "payments")],
)
def test_ranges_decide_as_a_walk_over_all_grants(
    given_grants: list[Grant], cluster: str | None, operation: Operation, asked: list[Resource]
) -> None:
    rules = GrantRules(given_grants, cluster)
    for resource in asked:
        assert (resource.spelling in rules[operation]) == allowed(given_grants, cluster, operation, resource), resource


@given(st.lists(grants(), max_size=6), st.sampled_from([None, "one"]))
def test_an_allowed_operation_includes_what_it_implies(given_grants: list[Grant], cluster: str | None) -> None:
    rules = GrantRules(given_grants, cluster)
    for operation, included in INCLUDED.items():
        for each in included if operation is Operation.ALL else included - {Operation.REPORT}:
            assert rules[operation] <= rules[each]


@given(st.lists(grants(), max_size=6))
def test_the_rights_in_all_clusters_are_rights_in_each(given_grants: list[Grant]) -> None:
    everywhere = GrantRules(given_grants, None)
    for cluster in ("one", "two", "three"):
        rules = GrantRules(given_grants, cluster)
        assert all(everywhere[operation] <= rules[operation] for operation in Operation)


@pytest.mark.parametrize("kind", [*sorted(OF_CLUSTER), ResourceType.TOPIC, ResourceType.GROUP])
@pytest.mark.parametrize(("pattern", "name"), [(PatternType.LITERAL, "*"), (PatternType.PREFIXED, "p")])
def test_no_pattern_covers_a_default_entity(kind: ResourceType, pattern: PatternType, name: str) -> None:
    rules = GrantRules([allow(Operation.ALTER_CONFIGS, kind, name, pattern)], "one")
    assert spell(kind, "payments") in rules[Operation.ALTER_CONFIGS]
    assert spell(kind) not in rules[Operation.DESCRIBE_CONFIGS]


@pytest.mark.parametrize("kind", list(ResourceType))
def test_the_clusters_grant_covers_the_types_that_kafka_asks_the_cluster_for(kind: ResourceType) -> None:
    rules = GrantRules([allow(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)], "one")
    covered = kind in {ResourceType.CLUSTER, *OF_CLUSTER}
    for operation in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.RESOLVE):
        assert (spell(kind) in rules[operation]) == (spell(kind, "x") in rules[operation]) == covered


def test_a_deny_of_a_name_leaves_the_names_around_it() -> None:
    rules = GrantRules(
        [allow(Operation.ALTER_CONFIGS, ResourceType.USER), deny(Operation.ALTER_CONFIGS, ResourceType.USER, "pay")],
        "one",
    )
    altered = rules[Operation.ALTER_CONFIGS]
    assert "user=pay" not in altered
    assert "user=pay,client-id=x" not in altered
    assert {
        each for each in ("user=pa", "user=pay-", "user=pay.", "user=pay0", "user=payments") if each in altered
    } == {
        "user=pa",
        "user=pay-",
        "user=pay.",
        "user=pay0",
        "user=payments",
    }
    assert "user=pay" not in rules[Operation.DESCRIBE_CONFIGS], "the lesser right goes with the denied one"


@pytest.mark.parametrize(
    ("denied", "given_ones", "left"),
    [
        (Operation.DESCRIBE_CONFIGS, [Operation.ALTER_CONFIGS], set()),
        (Operation.DESCRIBE_CONFIGS, [Operation.DESCRIBE_CONFIGS], set()),
        (Operation.DESCRIBE_CONFIGS, [Operation.ALL], {Operation.IMPERSONATE}),
        (
            Operation.DESCRIBE_CONFIGS,
            [Operation.ALTER_CONFIGS, Operation.RESOLVE],
            {Operation.RESOLVE, Operation.REPORT},
        ),
        (Operation.DESCRIBE_CONFIGS, [Operation.ALTER_CONFIGS, Operation.REPORT], {Operation.REPORT}),
        (Operation.ALTER_CONFIGS, [Operation.ALTER_CONFIGS], set()),
        (
            Operation.ALTER_CONFIGS,
            [Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS],
            {Operation.DESCRIBE_CONFIGS, Operation.RESOLVE},
        ),
        (Operation.RESOLVE, [Operation.ALTER_CONFIGS, Operation.RESOLVE], set()),
        (Operation.RESOLVE, [Operation.RESOLVE, Operation.REPORT], {Operation.REPORT}),
        (Operation.REPORT, [Operation.RESOLVE], {Operation.RESOLVE}),
        (
            Operation.REPORT,
            [Operation.ALTER_CONFIGS],
            {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.RESOLVE},
        ),
        (Operation.IMPERSONATE, [Operation.RESOLVE], {Operation.RESOLVE, Operation.REPORT}),
        (Operation.ALL, [Operation.ALTER_CONFIGS, Operation.RESOLVE, Operation.REPORT], set()),
    ],
)
def test_a_deny_takes_along_what_only_the_denied_operation_gave(
    denied: Operation, given_ones: list[Operation], left: set[Operation]
) -> None:
    grants_to_alice = [allow(each, ResourceType.USER, "pay") for each in given_ones]
    rules = GrantRules([*grants_to_alice, deny(denied, ResourceType.USER, "pay")], "one")
    asked = OPERATIONS[ResourceType.USER] - {Operation.PROPOSE, Operation.BYPASS_RULES}
    assert {each for each in asked if "user=pay" in rules[each]} == left
    others = GrantRules([*grants_to_alice, deny(denied, ResourceType.USER, "other")], "one")
    assert all("user=pay" in others[each] for each in given_ones), "names around the denied one keep all"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR])
def test_a_reader_resolves_and_reports_nothing(role: Role) -> None:
    rules = GrantRules([Grant(ID, "User:alice", role=role)], "one")
    assert "user=pay" in rules[Operation.RESOLVE]
    assert not rules[Operation.REPORT]


@pytest.mark.parametrize(
    ("grant", "also"),
    [
        (
            deny(Operation.ALTER_CONFIGS, ResourceType.USER),
            {Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT},
        ),
        (deny(Operation.ALTER_CONFIGS, ResourceType.TOPIC), {Operation.DESCRIBE_CONFIGS}),
        (deny(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER), {Operation.RESOLVE, Operation.REPORT}),
        (deny(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC), set()),
        (deny(Operation.ALTER, ResourceType.TOKENS), {Operation.DESCRIBE}),
        (deny(Operation.RESOLVE, ResourceType.USER), set()),
        (deny(Operation.ALL, ResourceType.USER), set()),
        (allow(Operation.ALTER_CONFIGS, ResourceType.USER), set()),
        (
            Grant(ID, "User:alice", Permission.DENY, role=Role.VIEWER),
            {Operation.RESOLVE, Operation.REPORT},
        ),
    ],
)
def test_a_deny_whose_meaning_changed_says_what_it_also_denies(grant: Grant, also: set[Operation]) -> None:
    assert grant.also_denies() == also


@pytest.mark.parametrize(
    ("principal", "expected"),
    [("User:alice", True), ("User:*", True), ("Group:payments", True), ("User:bob", False), ("Group:alice", False)],
)
def test_a_grant_is_the_callers(principal: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    identity = Identity("User:alice", Authentication.TOKEN, frozenset({"Group:payments"}))
    assert (Grant(ID, principal, role=Role.VIEWER).principal in identity.grantees) is expected


def test_a_narrowing_leaves_what_it_names() -> None:
    for operation in Operation:
        read = operation in {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT}
        assert (narrowed(CredentialNarrowing(read_only=True), None, operation) == EVERYTHING) == read
    only = CredentialNarrowing(clusters=frozenset({"one"}))
    assert narrowed(only, "one", Operation.ALL) == EVERYTHING
    assert not narrowed(only, "two", Operation.DESCRIBE)
    assert not narrowed(only, None, Operation.DESCRIBE), "a right in one cluster is none in all clusters"
    some = CredentialNarrowing(operations=frozenset({Operation.ALTER_CONFIGS}))
    polls = {Operation.DESCRIBE_CONFIGS, Operation.RESOLVE, Operation.REPORT}
    assert {each for each in Operation if narrowed(some, "one", each)} == {Operation.ALTER_CONFIGS, *polls}
    assert {each for each in Operation if narrowed(replace(some, read_only=True), "one", each)} == polls


def test_roles_name_operations_that_their_resources_have() -> None:
    for role, bundle in ROLES.items():
        for kind, operations in bundle.items():
            assert operations <= OPERATIONS[kind] | {Operation.ALL}, (role, kind)
    assert set(OPERATIONS) == set(ResourceType)


def test_the_error_of_a_resource_is_kafkas() -> None:
    assert {kind: forbidden_error(kind) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TOKENS)} == {
        ResourceType.TOPIC: TopicForbiddenError,
        ResourceType.GROUP: GroupForbiddenError,
        ResourceType.TOKENS: ForbiddenError,
    }
