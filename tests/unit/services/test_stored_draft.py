"""Stored drafts: edits that survive JSON, on the versions on which they were decided, without sensitive values."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.crypto.fingerprints import fingerprinter
from confplane.domain.changes import Node
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.configs import ConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.errors import EncoderSecretMissingError, InvalidRequestError, PreconditionFailedError
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName, Tree
from confplane.domain.ops import Op, OpType
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.changes.edits import Edit, Mode
from confplane.services.changes.entity_drafts import EntityDraft
from confplane.services.changes.stored_draft import ExpectedVersion, restore, store, to_supply
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from confplane.services.cluster_facet import ClusterFacet

PASSWORD = "ssl.key.password"
LISTENER_PASSWORD = "listener.name.internal.ssl.keystore.password"
ALICE, BROKER, TOPIC = Entity.of(user="alice"), Entity.of(broker="7"), Entity.of(topic="orders")
FACETS: dict[FacetName, ClusterFacet] = {
    facet.name: cast(
        "ClusterFacet",
        SimpleNamespace(facet=facet, name=facet.name, tree=Tree.CONFIG, managed_keys=lambda _entity: frozenset()),
    )
    for facet in (ClientQuotasFacet(), ClientConfigsFacet(ZOOKEEPER), ConfigsFacet(lambda: ZOOKEEPER))
}
_of_secret = fingerprinter("encoder secret", "default")


def fingerprint(broker_id: int | None, key: str, plain: str) -> str | None:
    assert broker_id == 7
    return _of_secret(key, plain)


def draft(facet: FacetName, edit: Edit, node: Node | None, after: dict[str, str]) -> EntityDraft:
    return EntityDraft.of(FACETS[facet], edit, node, after, [])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain_ops = st.builds(
    Op,
    st.sampled_from(["producer_byte_rate", "acks", "retention.ms", "log.cleaner.threads"]),
    st.just(OpType.SET),
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts, st.lists(texts, max_size=3)),
    st.sampled_from([None, "/ops/1"]),
)
deletions = st.builds(Op, st.sampled_from(["producer_byte_rate", PASSWORD, LISTENER_PASSWORD]), st.just(OpType.DELETE))
secrets = st.builds(
    Op,
    st.sampled_from([PASSWORD, LISTENER_PASSWORD, "unknown.to.kafka"]),
    st.just(OpType.SET),
    st.one_of(st.none(), texts, st.integers()),
)
nodes = st.one_of(
    st.none(),
    st.builds(
        Node, st.just(BROKER.id), st.just(()), st.integers(0, 2**31 - 1), st.integers(1, 2**62), st.just(9), st.just(1)
    ),
)
edits = st.one_of(
    st.tuples(st.just(FacetName.CLIENT_QUOTAS), st.just(ALICE), st.lists(plain_ops | deletions, max_size=3)),
    st.tuples(st.just(FacetName.CONFIGS), st.just(TOPIC), st.just([Op("retention.ms", OpType.APPEND, "5")])),
    st.tuples(
        st.just(FacetName.CONFIGS),
        st.just(BROKER),
        st.lists(secrets | deletions, max_size=3, unique_by=lambda op: op.key),
    ),
)


@given(st.lists(st.tuples(edits, st.sampled_from(Mode), nodes, st.lists(st.uuids(), max_size=2)), max_size=3))
def test_edits_come_back_as_they_were_on_the_version_that_was_read(some: list[Any]) -> None:
    given_edits = [
        (facet, Edit(entity, tuple(ops), mode, Precondition(if_match=("*",)), "/entries/1", reverts=tuple(reverts)))
        for (facet, entity, ops), mode, _, reverts in some
    ]
    found = [draft(facet, edit, node, {}) for (facet, edit), (*_, node, _) in zip(given_edits, some, strict=True)]
    kept = json.loads(json.dumps(store(found, fingerprint)))
    assert kept == store(found, fingerprint)
    values = {
        (edit.entity.id, op.key): op.value
        for _, edit in given_edits
        for op in edit.ops
        if edit.entity == BROKER and op.type is OpType.SET and op.value is not None
    }
    assert sorted(set(to_supply(kept))) == sorted(values)
    try:
        restored = restore(kept, FACETS, values, fingerprint)
    except InvalidRequestError:
        # Two edits of one entity that set a key to two values; a request with both is refused before it is decided.
        assert len({edit.entity for _, edit in given_edits}) < len(given_edits)
        return
    for (facet, edit), (cluster_facet, back), each in zip(given_edits, restored, found, strict=True):
        assert cluster_facet is FACETS[facet]
        assert (back.entity, back.mode, back.reverts) == (edit.entity, edit.mode, edit.reverts)
        assert [(op.key, op.type, op.value) for op in back.ops] == [(op.key, op.type, op.value) for op in edit.ops]
        assert back.is_conditional
        czxid, mtime_ms = (None, None) if each.node is None else (each.node.czxid, each.node.mtime_ms)
        assert back.expected == ExpectedVersion(each.path, each.expected, czxid, mtime_ms)
        back.expected.check(cluster_facet, edit.entity, each.node)


@pytest.mark.parametrize("mode", Mode)
def test_the_stored_form_has_no_secret(mode: Mode) -> None:
    planted = {"op": "pl4nted-0p", "before": "pl4nted-bef0re", "after": "pl4nted-enc0ded", "removed": "pl4nted-d3l"}
    ops = (
        Op(PASSWORD, OpType.SET, planted["op"]),
        Op("unknown.to.kafka", OpType.SET, planted["op"]),
        Op(LISTENER_PASSWORD, OpType.DELETE, planted["removed"]),
        Op("log.cleaner.threads", OpType.SET, "2"),
    )
    before = (PASSWORD, planted["before"], LISTENER_PASSWORD, planted["before"])
    after = {PASSWORD: planted["after"], "unknown.to.kafka": planted["op"], "log.cleaner.threads": "2"}
    one = draft(FacetName.CONFIGS, Edit(BROKER, ops, mode), Node(BROKER.id, before, 3, 5, 9, 1), after)
    kept = json.dumps(store([one], fingerprint))
    assert "pl4nted" not in kept
    assert "log.cleaner.threads" in kept
    assert to_supply(json.loads(kept)) == [(BROKER.id, PASSWORD), (BROKER.id, "unknown.to.kafka")]


def test_a_secret_has_to_be_supplied_and_has_to_be_the_same() -> None:
    one = draft(FacetName.CONFIGS, Edit(BROKER, (Op(PASSWORD, OpType.SET, "first"),)), None, {PASSWORD: "encoded"})
    kept = store([one], fingerprint)
    with pytest.raises(InvalidRequestError, match=rf"{PASSWORD} of {BROKER.id} is not stored; supply it again"):
        restore(kept, FACETS, {}, fingerprint)
    with pytest.raises(InvalidRequestError, match="is not the one that this change was decided with") as caught:
        restore(kept, FACETS, {(BROKER.id, PASSWORD): "second"}, fingerprint)
    assert "second" not in str(caught.value)
    with pytest.raises(EncoderSecretMissingError, match=PASSWORD):
        store([one], lambda *_: None)


@pytest.mark.parametrize(
    "now",
    [
        None,
        Node(ALICE.id, (), 4, 5, 9, 1),
        Node(ALICE.id, (), 3, 6, 9, 1),
        Node(ALICE.id, (), 3, 5, 9, 2),
    ],
    ids=["gone", "written", "created again", "written after a restore"],
)
def test_an_edit_is_refused_on_any_other_version(now: Node | None) -> None:
    edit = Edit(ALICE, (Op("producer_byte_rate", OpType.SET, 5),))
    read = Node(ALICE.id, (), 3, 5, 9, 1)
    kept = store([draft(FacetName.CLIENT_QUOTAS, edit, read, {})], fingerprint)
    [(cluster_facet, back)] = restore(kept, FACETS, {}, fingerprint)
    assert back.expected is not None
    back.expected.check(cluster_facet, ALICE, read)
    with pytest.raises(PreconditionFailedError, match="user=alice was changed after this change was decided"):
        back.expected.check(cluster_facet, ALICE, now)
    moved = cast("ClusterFacet", SimpleNamespace(tree=Tree.CLIENT_CONFIGS))
    with pytest.raises(PreconditionFailedError):
        back.expected.check(moved, ALICE, read)


def test_a_form_of_another_release_is_refused() -> None:
    with pytest.raises(ValueError, match="form 2"):
        restore({"form": 2, "edits": []}, FACETS, {}, fingerprint)
