"""The decision on an observed entity: each row is one case of declared, delivered, observed and mode."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from confplane.domain.changes import Node
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity
from confplane.domain.observed import Observation, ObservedRules
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.kraft.decisions import (
    ClusterDecisions,
    EntityDecision,
    EntityObservation,
    FollowDecision,
    decide,
    puts_back,
)
from confplane.services.ports.applying import (
    NO_STATE,
    AlterRefused,
    DriftCause,
    DriftRecord,
    RefusedValue,
    TargetState,
)
from confplane.services.ports.cluster_states import TargetMode
from confplane.services.ports.trail import ObservedRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.services.ports.store import ClusterStore

CATALOG: Final = catalog_of("4.4")
RULES: Final = ObservedRules(ClientQuotasFacet(), ConfigsFacet(lambda: CATALOG), lambda: CATALOG, lambda: True)
TOPIC, BROKERS = Entity.of(topic="t"), Entity.from_id("broker")
KEY, OTHER, MANAGED = "retention.ms", "flush.ms", "min.insync.replicas"
OBSERVE, ADOPT, ENFORCE = TargetMode.OBSERVE, TargetMode.ADOPT, TargetMode.ENFORCE
MODES, CLIENTS = (OBSERVE, ADOPT, ENFORCE), (ADOPT, ENFORCE)
SAME, STALE, PENDING = FollowDecision.SAME, FollowDecision.STALE, FollowDecision.PENDING
REFUSED, ENFORCED, WRITTEN = FollowDecision.REFUSED, FollowDecision.ENFORCED, FollowDecision.WRITTEN
REMOVED, RECREATED = FollowDecision.REMOVED, FollowDecision.RECREATED
REVISION: Final = 7
OURS, THEIRS, NOTHING = {KEY: "1"}, {KEY: "2"}, dict[str, str]()


def znode(
    config: Mapping[str, str],
    *pending: str,
    topic_id: str | None = "A",
    followed: tuple[int, int] = (50, 60),
    mzxid: int = REVISION,
) -> Node:
    """A znode that followed the cluster up to offset 60, with the keys that clients changed since."""
    extra: dict[str, Any] = {"followed": followed}
    extra |= {} if topic_id is None else {"topic_id": topic_id}
    extra |= {"altered": pending} if pending else {}
    items = tuple(each for pair in config.items() for each in pair)
    return Node(TOPIC.id, items, version=1, czxid=1, mzxid=mzxid, mtime_ms=0, extra=json.dumps(extra).encode())


def poll(config: Mapping[str, str] | None, *, after: int = 80, topic_id: str | None = "A") -> EntityObservation:
    """A poll of the topic by a broker at an offset. None means that the topic is gone."""
    shown = None if config is None else Observation(config, frozenset())
    return EntityObservation(
        TOPIC, ObservedRange(50, after + 1, 0), after, shown, topic_id=None if config is None else topic_id
    )


def records(*of: tuple[str, str | None], until: int = 80, topic_id: str | None = "A") -> EntityObservation:
    """Records of the log up to an offset."""
    exact = ObservedRange(until - 1, until, 0, exact=True, writes=len(of))
    return EntityObservation(TOPIC, exact, until, records=of, topic_id=topic_id)


def logged_topic(*, topic_id: str, created: bool) -> EntityObservation:
    """A record of a topic that was created or removed."""
    shown = Observation({}, frozenset()) if created else None
    return EntityObservation(TOPIC, ObservedRange(79, 80, 0, exact=True), 80, shown, topic_id=topic_id)


def sent(
    mzxid: int = REVISION, *, applied: int = 0, offset: int = 70, refused: bool = False, **more: Any
) -> TargetState:
    """The state after a delivery of a revision; ``applied`` is the revision that the cluster has taken."""
    refusal = AlterRefused(40, "Invalid value") if refused else None
    return TargetState(mzxid, applied, offset, {}, refused=refusal, **more)


TAKEN: Final = sent(applied=REVISION)

CASES: Final[list[Any]] = [
    # What differs, in any mode, without client changes.
    ("no znode, nothing observed", MODES, None, NO_STATE, poll(NOTHING), SAME, NOTHING),
    ("equal", MODES, znode(OURS), NO_STATE, poll(OURS), SAME, OURS),
    ("equal, in another spelling", MODES, znode(OURS), NO_STATE, poll({KEY: " 01"}), SAME, OURS),
    ("equal, and the broker lags behind", MODES, znode(OURS), NO_STATE, poll(OURS, after=10), SAME, OURS),
    ("first config", (OBSERVE, ADOPT), None, NO_STATE, poll(THEIRS), WRITTEN, THEIRS),
    ("another value", (OBSERVE, ADOPT), znode(OURS), NO_STATE, poll(THEIRS), WRITTEN, THEIRS),
    ("another key", (OBSERVE, ADOPT), znode(OURS), NO_STATE, poll({OTHER: "3"}), WRITTEN, {OTHER: "3"}),
    ("removed key", (OBSERVE, ADOPT), znode(OURS), NO_STATE, poll(NOTHING), WRITTEN, NOTHING),
    ("a foreign key stays", (OBSERVE, ADOPT), znode({"acme.x": "9"}), NO_STATE, poll(THEIRS), WRITTEN, {"acme.x": "9"} | THEIRS),
    ("the broker lags behind", (OBSERVE, ADOPT), znode(OURS), NO_STATE, poll(THEIRS, after=59), STALE, THEIRS),
    ("the broker is just current", (OBSERVE, ADOPT), znode(OURS), NO_STATE, poll(THEIRS, after=60), WRITTEN, THEIRS),
    # Topics are their ids.
    ("gone", MODES, znode(OURS), NO_STATE, poll(None), REMOVED, NOTHING),
    ("gone, by a broker that lags behind", MODES, znode(OURS), NO_STATE, poll(None, after=10), STALE, NOTHING),
    ("gone, and no config is left", MODES, znode(NOTHING, topic_id=None), NO_STATE, poll(None), SAME, NOTHING),
    ("gone, and there is no znode", MODES, None, NO_STATE, poll(None), SAME, NOTHING),
    ("recreated with the same config", MODES, znode(OURS), NO_STATE, poll(OURS, topic_id="B"), RECREATED, NOTHING),
    ("recreated without a config", MODES, znode(OURS), NO_STATE, poll(NOTHING, topic_id="B"), RECREATED, NOTHING),
    ("recreated, and the broker lags behind", MODES, znode(OURS), NO_STATE, poll(OURS, topic_id="B", after=10), STALE, NOTHING),
    ("no id yet", MODES, znode(OURS, topic_id=None), NO_STATE, poll(OURS), SAME, OURS),
    ("gone, with a pending change", CLIENTS, znode(OURS, KEY), NO_STATE, poll(None), REMOVED, NOTHING),
    ("gone, by a poll before the delivery", CLIENTS, znode(OURS, KEY), TAKEN, poll(None, after=69), STALE, NOTHING),
    ("gone after the delivery", CLIENTS, znode(OURS, KEY), TAKEN, poll(None, after=70), REMOVED, NOTHING),
    ("recreated after the delivery", CLIENTS, znode(OURS, KEY), TAKEN, poll(OURS, topic_id="B"), RECREATED, NOTHING),
    ("the id is that of the delivery", CLIENTS, znode(OURS, KEY, topic_id=None), sent(applied=REVISION, topic_id="A"),
     poll(THEIRS, topic_id="B"), RECREATED, NOTHING),
    # Client changes.
    ("not sent yet", CLIENTS, znode(OURS, KEY), NO_STATE, poll(THEIRS), PENDING, THEIRS),
    ("an earlier revision was taken", CLIENTS, znode(OURS, KEY), sent(6, applied=6), poll(THEIRS), PENDING, THEIRS),
    ("no outcome", CLIENTS, znode(OURS, KEY), sent(), poll(THEIRS), PENDING, THEIRS),
    ("no outcome of keys sent again", CLIENTS, znode(OURS), sent(8, applied=REVISION), poll(THEIRS), PENDING, THEIRS),
    ("sent again is due", CLIENTS, znode(OURS, KEY), sent(applied=REVISION, reapply=frozenset({KEY})), poll(THEIRS),
     PENDING, THEIRS),
    ("taken, seen before", CLIENTS, znode(OURS, KEY), TAKEN, poll(THEIRS, after=69), STALE, THEIRS),
    ("taken, changed after, adopt", (ADOPT,), znode(OURS, KEY), TAKEN, poll(THEIRS, after=70), WRITTEN, THEIRS),
    ("taken, changed after, enforce", (ENFORCE,), znode(OURS, KEY), TAKEN, poll(THEIRS, after=70), ENFORCED, OURS),
    ("taken and equal", CLIENTS, znode(OURS, KEY), TAKEN, poll(OURS), SAME, OURS),
    ("refused", CLIENTS, znode(OURS, KEY), sent(refused=True), poll(THEIRS), REFUSED, THEIRS),
    ("refused, but taken before", CLIENTS, znode(OURS, KEY), sent(applied=REVISION, refused=True), poll(THEIRS),
     REFUSED, THEIRS),
    ("an earlier revision was refused", CLIENTS, znode(OURS, KEY), sent(6, refused=True), poll(THEIRS), PENDING, THEIRS),
    ("a client changed the mode to observe", (OBSERVE,), znode(OURS, KEY), sent(), poll(THEIRS), WRITTEN, THEIRS),
    # Enforced.
    ("another value", (ENFORCE,), znode(OURS), NO_STATE, poll(THEIRS), ENFORCED, OURS),
    ("an extra key", (ENFORCE,), znode(OURS), NO_STATE, poll(OURS | {OTHER: "3"}), ENFORCED, OURS),
    ("first config", (ENFORCE,), None, NO_STATE, poll(THEIRS), ENFORCED, NOTHING),
    ("a removed key", (ENFORCE,), znode(OURS), NO_STATE, poll(NOTHING), ENFORCED, OURS),
    ("the broker lags behind", (ENFORCE,), znode(OURS), NO_STATE, poll(THEIRS, after=59), STALE, THEIRS),
    ("the mirror lags behind", (ENFORCE,), znode(OURS), sent(9, applied=9), poll(THEIRS), STALE, OURS),
    ("an earlier revision was refused, and followed", (ENFORCE,), znode(OURS), sent(6, refused=True), poll(THEIRS),
     REFUSED, OURS),
    # The metadata log.
    ("a record", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2")), WRITTEN, THEIRS),
    ("records in order", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, None), (OTHER, "3")), WRITTEN, {OTHER: "3"}),
    ("a record that changes nothing", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "1")), WRITTEN, OURS),
    ("a record of an unknown key", (OBSERVE,), znode(OURS), NO_STATE, records(("acme.x", "9")), WRITTEN, OURS),
    ("a record that was written already", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2"), until=50), SAME, OURS),
    ("a record within a poll", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2"), until=55), STALE, OURS),
    ("a record at the end of a poll", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2"), until=60), STALE, OURS),
    ("the same within a poll", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "1"), until=55), SAME, OURS),
    ("a record after a poll", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2"), until=61), WRITTEN, THEIRS),
    ("a record of a recreated topic", (OBSERVE,), znode(OURS), NO_STATE, records((KEY, "2"), topic_id="B"), RECREATED, NOTHING),
    ("a created topic", (OBSERVE,), znode(OURS), NO_STATE, logged_topic(topic_id="B", created=True), RECREATED, NOTHING),
    ("a removed topic", (OBSERVE,), znode(OURS), NO_STATE, logged_topic(topic_id="A", created=False), REMOVED, NOTHING),
    ("a removed topic of an earlier id", (OBSERVE,), znode(OURS), NO_STATE, logged_topic(topic_id="B", created=False), SAME, OURS),
    ("a record of a type that clients write", CLIENTS, znode(OURS), NO_STATE, records((KEY, "2")), SAME, OURS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "declared", "delivered", "observed", "kind", "config"),
    [
        pytest.param(mode, *case, id=f"{name}, {mode}" if len(modes) > 1 else name)
        for name, modes, *case in CASES
        for mode in modes
    ],
)
def test_decisions(
    mode: TargetMode,
    declared: Node | None,
    delivered: TargetState,
    observed: EntityObservation,
    kind: FollowDecision,
    config: dict[str, str],
) -> None:
    observed = replace(observed, state=delivered)
    assert decide(declared, observed, mode, RULES, imported=True) == EntityDecision(kind, config)


def test_an_import_writes_the_id_of_an_unchanged_topic() -> None:
    declared = znode(OURS, topic_id=None)
    assert decide(declared, poll(OURS), OBSERVE, RULES, imported=False) == EntityDecision(WRITTEN, OURS)


@pytest.mark.parametrize("mode", CLIENTS)
def test_the_configs_of_a_recreated_topic_follow_the_change_that_emptied_the_znode(mode: TargetMode) -> None:
    emptied = znode(NOTHING, topic_id=None, followed=(50, 81), mzxid=9)
    observed = poll(THEIRS, topic_id="B")
    assert decide(emptied, observed, ADOPT, RULES, imported=True).kind is STALE
    kind = decide(emptied, replace(observed, emptied=9), mode, RULES, imported=True).kind
    assert kind is (WRITTEN if mode is ADOPT else ENFORCED)


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_the_cluster_manages_is_followed_in_every_mode(mode: TargetMode) -> None:
    declared = znode({MANAGED: "1"}, topic_id=None)
    observed = replace(poll({MANAGED: "2"}), entity=BROKERS, topic_id=None)
    assert decide(declared, observed, mode, RULES, imported=True) == EntityDecision(WRITTEN, {MANAGED: "2"})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (TOPIC, "leader.replication.throttled.replicas"),
        (TOPIC, "follower.replication.throttled.replicas"),
        (BROKERS, "leader.replication.throttled.rate"),
        (Entity.of(broker="1"), "follower.replication.throttled.rate"),
        (Entity.of(broker="1"), "replica.alter.log.dirs.io.max.bytes.per.second"),
    ],
)
def test_a_throttle_of_a_reassignment_is_followed_in_every_mode(mode: TargetMode, entity: Entity, key: str) -> None:
    topic_id = "A" if entity == TOPIC else None
    for before, now in ((NOTHING, {key: "1"}), ({key: "1"}, {key: "2"}), ({key: "1"}, NOTHING)):
        observed = replace(poll(now), entity=entity, topic_id=topic_id)
        decision = decide(znode(before, topic_id=topic_id), observed, mode, RULES, imported=True)
        assert decision == EntityDecision(WRITTEN, now)


@pytest.mark.parametrize(
    ("declared", "delivered", "after", "expected"),
    [
        (znode(OURS, KEY), NO_STATE, 80, False),
        (znode(OURS, KEY), TAKEN, 80, True),
        (znode(OURS, KEY), TAKEN, 69, False),
        (znode(OURS, KEY), sent(), 80, False),
        (znode(OURS, KEY), sent(refused=True), 80, False),
        (znode(OURS), TAKEN, 80, True),
        (znode(OURS), sent(9, applied=9), 80, False),
    ],
)
def test_stale_writes_are_put_back_once_no_change_waits(
    declared: Node, delivered: TargetState, after: int, *, expected: bool
) -> None:
    assert puts_back(declared, replace(poll(THEIRS, after=after), state=delivered)) is expected


UNCERTAIN: Final = replace(TAKEN, uncertain={KEY: ("2", None)})
"""The cluster has taken the stored value, after deliveries of two others whose outcomes are unknown."""
SECRET: Final = replace(poll(NOTHING), observation=Observation({}, frozenset({KEY})))
REFUSAL: Final = DriftRecord(DriftCause.REFUSED, None, 0, RefusedValue("1", 40, "Invalid value"))
REFUSED_KEY: Final = replace(UNCERTAIN, drift={KEY: REFUSAL})

WITH_STATE: Final[list[Any]] = [
    ("a value that arrived late", UNCERTAIN, poll(THEIRS), NOTHING, {KEY}, THEIRS),
    ("a removal that arrived late", UNCERTAIN, poll(NOTHING), NOTHING, {KEY}, {KEY: None}),
    ("the value sent later", UNCERTAIN, poll(OURS), OURS, set(), {}),
    ("an external value", UNCERTAIN, poll({KEY: "3"}), {KEY: "3"}, set(), {}),
    ("a poll before the later delivery", UNCERTAIN, poll(THEIRS, after=69), THEIRS, set(), {}),
    ("no outcome of the later delivery", replace(UNCERTAIN, applied_mzxid=0), poll(THEIRS), THEIRS, set(), {}),
    ("deliveries to an earlier topic", replace(UNCERTAIN, topic_id="B"), poll(THEIRS), THEIRS, set(), {}),
    ("a key that the cluster does not show", UNCERTAIN, SECRET, NOTHING, {KEY}, {}),
    ("a refused key", REFUSED_KEY, poll(THEIRS), NOTHING, {KEY}, {}),
    ("a refused key that has the value", REFUSED_KEY, poll(OURS), OURS, set(), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "observed", "config", "hidden", "stale"), [pytest.param(*case, id=name) for name, *case in WITH_STATE]
)
def test_a_poll_shows_neither_stale_writes_nor_refused_keys(
    state: TargetState,
    observed: EntityObservation,
    config: dict[str, str],
    hidden: set[str],
    stale: dict[str, str | None],
) -> None:
    store = SimpleNamespace(get=lambda _tree, _entity_id: znode(OURS, KEY))
    found = ClusterDecisions(cast("ClusterStore", store), RULES).with_state(observed, state)
    assert found.observation == Observation(config, frozenset(hidden))
    assert (found.stale_writes, found.state) == (stale, state)
