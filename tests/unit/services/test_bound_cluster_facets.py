"""Facets of a cluster as a caller may read them, compared with a plain filter over all nodes."""

from __future__ import annotations

import uuid
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType
from confplane.domain.changes import Node
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import ForbiddenError, TopicForbiddenError
from confplane.domain.facets import Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.access import AccessControl
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.ports.cluster_states import Place
from confplane.store.mirror.nodes import Mirror
from tests.support.catalogs import ZOOKEEPER
from tests.support.grants import Grants, access_of
from tests.support.stores import facets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.domain.access.ranges import NameRanges
    from confplane.domain.facets import Facet

FACET = ClientConfigsFacet(
    ZOOKEEPER, extra_keys=frozenset(), min_session_timeout_ms=6000, max_session_timeout_ms=1_800_000
)
NAMES = ["a", "ab", "a-b", "a,b", "b", "c d", "~"]
IDS = [
    *(Entity.of(user=name).id for name in [*NAMES, None]),
    *(Entity.of(user=name, client_id=client).id for name in [*NAMES, None] for client in ("x", "a", None)),
    *(Entity.of(client_id=name).id for name in ("x", "a", None)),
    *(Entity.of(ip=name).id for name in ("10.0.0.1", None)),
]
PATTERNS = st.tuples(
    st.sampled_from([ResourceType.USER, ResourceType.CLIENT_ID, ResourceType.CLUSTER, ResourceType.IP]),
    st.sampled_from(PatternType),
    st.sampled_from([*NAMES, "x", "*", "1"]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


class Store:
    """Two trees of a mirror."""

    name = "default"

    def __init__(self, config: set[str], other: set[str], *, moving: bool) -> None:
        self._mirror = Mirror({Tree.CONFIG: facets(), Tree.CLIENT_CONFIGS: facets()})
        for tree, ids in ((Tree.CONFIG, config), (Tree.CLIENT_CONFIGS, other)):
            for entity_id in ids:
                items = ("acks", tree.value, "producer_byte_rate", "1")
                self._mirror.trees[tree].put_node(Node(entity_id, items, 0, 1, 1, 0))
        self._source = Tree.CONFIG if moving else None
        self.looked_up = 0

    def place(self) -> Place:
        return Place(Tree.CLIENT_CONFIGS, self._source)

    def get(self, tree: Tree, entity_id: str) -> Node | None:
        self.looked_up += 1
        return self._mirror.trees[tree].nodes.get(entity_id)

    def with_keys(
        self, tree: Tree, facet: str, *, after: str | None = None, prefix: str = "", within: NameRanges | None = None
    ) -> Iterator[Node]:
        return self._mirror.trees[tree].with_keys(facet, after=after, prefix=prefix, within=within)

    def with_client_id(
        self, tree: Tree, client_id: str | None, *, after: str | None = None, within: NameRanges | None = None
    ) -> Iterator[Node]:
        return self._mirror.trees[tree].with_client_id(client_id, after=after, within=within)


def collection(store: Store, facet: Facet = FACET) -> ClusterFacet:
    laid_out = facet is FACET
    return ClusterFacet(facet, Tree.CONFIG, cast("Any", store), cast("Any", None), laid_out=laid_out)


def granted(patterns: list[tuple[ResourceType, PatternType, str, Permission]]) -> Grants:
    return Grants(
        *(
            Grant(
                uuid.uuid4(),
                "User:team",
                permission=permission,
                operation=Operation.DESCRIBE_CONFIGS,
                resource=kind,
                pattern=PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern,
                name="*" if kind is ResourceType.CLUSTER else name,
            )
            for kind, pattern, name, permission in patterns
        )
    )


def matches(kind: ResourceType, pattern: PatternType, name: str, entity: Entity) -> bool:
    """Read a grant by its words, without ranges."""
    first, own = entity.components[0]
    if kind is ResourceType.CLUSTER:
        return True
    if first.value != kind.value or own is None:
        return False
    return own.startswith(name) if pattern is PatternType.PREFIXED else name in {own, "*"}


@given(
    st.sets(st.sampled_from(IDS)),
    st.sets(st.sampled_from(IDS)),
    st.booleans(),
    st.lists(PATTERNS, max_size=5),
    st.sampled_from([FACET, ClientQuotasFacet()]),
)
def test_a_bound_collection_is_a_filter_of_the_whole_one(
    config: set[str],
    other: set[str],
    moving: bool,  # noqa: FBT001 - hypothesis gives it by place
    patterns: list[tuple[ResourceType, PatternType, str, Permission]],
    facet: Facet,
) -> None:
    whole = collection(Store(config, other, moving=moving), facet)
    bound = whole.visible_to(access_of("User:team", granted(patterns)))

    def visible(entity_id: str) -> bool:
        fitting = [
            permission
            for kind, pattern, name, permission in patterns
            if matches(kind, pattern, name, Entity.from_id(entity_id))
        ]
        return Permission.ALLOW in fitting and Permission.DENY not in fitting

    nodes = list(whole.with_keys())
    assert list(bound.with_keys()) == [node for node in nodes if visible(node.id)]
    for after in (None, "user=a", "user=a,client-id=x", "ip"):
        for prefix in ("", "user=a,", "user", "client-id", "ip"):
            expected = [node for node in whole.with_keys(after=after, prefix=prefix) if visible(node.id)]
            assert list(bound.with_keys(after=after, prefix=prefix)) == expected
    for client in ("x", "a", None, "nobody"):
        for after in (None, "user=a", "user=a,client-id=x"):
            expected = [node for node in whole.with_client_id(client, after=after) if visible(node.id)]
            assert list(bound.with_client_id(client, after=after)) == expected
    for entity_id in IDS:
        assert bound.find(entity_id) == (whole.get(entity_id) if visible(entity_id) else None)
        if visible(entity_id):
            assert bound.get(entity_id) == whole.get(entity_id)
        else:
            with pytest.raises(ForbiddenError):
                bound.get(entity_id)


def test_a_hidden_entity_is_refused_alike_and_before_any_lookup() -> None:
    store = Store({"user=a"}, {"user=a"}, moving=False)
    bound = collection(store).visible_to(access_of("User:team", Grants()))
    refusals = []
    for entity_id in ("user=a", "user=b"):
        with pytest.raises(ForbiddenError) as refused:
            bound.get(entity_id)
        refusals.append(refused.value.detail.replace(entity_id, "it").replace(entity_id.replace("=", ":"), "it"))
    assert refusals[0] == refusals[1]
    assert "DESCRIBE_CONFIGS on it of cluster default" in refusals[0]
    with pytest.raises(TopicForbiddenError):
        bound.get("topic=orders")
    assert store.looked_up == 0


def test_a_caller_who_needs_no_grant_reads_the_collection_itself() -> None:
    """Answers that are kept by collection stay few, and a poll costs no more."""
    whole = collection(Store(set(), set(), moving=False))
    admin = AccessControl(Grants()).access(Identity(ADMIN, Authentication.ADMIN_TOKEN), "", "")
    assert whole.visible_to(admin) is whole.whole is whole
    assert whole.visible_to(access_of("User:team", Grants())).whole is whole


def test_a_bound_collection_is_the_same_but_for_its_bounds() -> None:
    parts: dict[str, Any] = {field.name: object() for field in fields(ClusterFacet)}
    whole = ClusterFacet(**parts | {"access": None, "unbound": None})
    access = access_of("User:a", Grants())
    bound = whole.visible_to(access)
    assert bound is not whole
    found = {field.name: getattr(bound, field.name) for field in fields(ClusterFacet)}
    assert found == parts | {"access": access, "unbound": whole}


def test_an_application_resolves_its_own_client_configs_and_nothing_else() -> None:
    store = Store({"user=a"}, {"user=a", "user"}, moving=False)
    application = access_of("User:a", Grants())
    configs, quotas = (collection(store, facet).visible_to(application) for facet in (FACET, ClientQuotasFacet()))
    assert configs.around(Entity.of(user="a")) is configs.whole
    assert configs.around(Entity.of(user="a", client_id="x")) is configs.whole
    for refusing, entity in (
        (configs, Entity.of(user="ab")),
        (configs, Entity.of(user=None)),
        (quotas, Entity.of(user="a")),
    ):
        with pytest.raises(ForbiddenError):
            refusing.around(entity)
    with pytest.raises(ForbiddenError):
        configs.get("user=a")
    assert list(configs.with_keys()) == []
