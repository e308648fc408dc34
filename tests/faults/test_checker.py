"""The checker finds each kind of violation, as that kind and no other, and nothing where all is well."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults import checker, kinds
from tests.faults.broken import BROKEN, NODE, last, some, with_a_key_that_another_process_showed
from tests.faults.checker import check
from tests.faults.checks import answers, external, feed, reads, refusals, requests, reverts, temporary, trail
from tests.faults.corrupted import CORRUPTED
from tests.faults.history import InjectedFault, Mode, NodeEvent, Znode
from tests.faults.world import ALICE, BOB, KEY, OURS, THEIRS, World, part, rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.history import Call, Part, Run


def test_a_clean_run_has_no_violation() -> None:
    world = some()
    world.followed = True
    assert check(world.run()) == []


@pytest.mark.parametrize(("breaks", "rule"), [pytest.param(*given, id=name) for name, *given in BROKEN])
def test_each_violation_is_found_as_what_it_is(breaks: Callable[[World], None], rule: str) -> None:
    world = some()
    breaks(world)
    found = check(world.run())
    assert rules(found) == {rule}, "\n".join(map(str, found))
    assert all("\n    " in violation.detail for violation in found)  # with its evidence


@pytest.mark.parametrize(("corrupt", "rule"), CORRUPTED, ids=[corrupt.__name__ for corrupt, _ in CORRUPTED])
def test_a_history_that_is_spoiled_throughout_is_found(corrupt: Callable[[Run], Run], rule: str) -> None:
    world = some()
    began = world.wait(1)
    world.wait(5)
    world.read().stale_ms = 5_500
    world.faults.append(
        InjectedFault(kinds.connection_cut("ZooKeeper"), ("connection 0 ZooKeeper",), began, world.wait(1))
    )
    run = world.run()
    assert check(run) == []
    assert rule in rules(check(corrupt(run)))


def test_no_rule_is_without_a_run_that_breaks_it() -> None:
    modules = (trail, requests, answers, refusals, reads, external, feed, temporary, reverts)
    known = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }
    assert known - {reads.OTHER_MIRROR} == {rule for *_, rule in BROKEN}


def test_temporary_changes_lead_back_to_the_value_before_the_first() -> None:
    world = some()
    world.write(part(value=20))
    below, above = (world.write(part(value=value), temporary=True) for value in (21, 22))
    # Of two that cover each other the lower one may end first: the upper one returns to the value before both.
    world.end(below, applied=False)
    world.end(above, value=20)
    below, above = (world.write(part(value=value), temporary=True) for value in (23, 24))
    world.end(above, early=True)
    world.end(below)
    assert world.config(NODE) == {KEY: "20"}
    # The upper one may end between the beginning of the lower one's end and its record.
    below, above = (world.write(part(value=value), temporary=True) for value in (21, 22))
    world.end(above, value=20)
    world.end(below, applied=False, early=True)
    # A revert leads back to the value of a change that has ended, and the end to the value before both.
    below, above = (world.write(part(value=value), temporary=True) for value in (21, 22))
    world.end(below, applied=False)
    world.revert(above)
    world.end(above, value=20)
    begun = world.write(part(value=23), temporary=True)
    world.revert(begun)
    world.end(begun, applied=False)
    kept = world.write(part(value=25), temporary=True)
    world.write(part(value=26))
    world.end(kept, applied=False)
    # An external write may go unseen, or take the key away.
    for applied in (True, False):
        begun = world.write(part(value=27 + applied), temporary=True)
        world.write_externally(value=29)
        world.end(begun, applied=applied)
    assert check(world.run()) == []


def test_what_was_put_back_in_a_kafka_cluster_is_no_change() -> None:
    world = some()
    world.put_back(value=5_000)
    world.write(part(value=31))
    # Clients and external writers may set just that value afterwards.
    world.write(part(value=5_000))
    world.put_back(value=5_001)
    world.write_externally(value=5_001)
    world.put_back(value=5_002)
    assert check(world.run()) == []
    # A committed change would be one that never was.
    last(world.outcomes, committed=True, revision=9999, versions={NODE: 99})
    assert check(world.run()) != []


def test_what_nobody_was_notified_of_nobody_has_to_know() -> None:
    """As with Kafka's tools, which write the node first and its notification second."""
    world = some()
    before = world.read()
    world.write_externally(value=20, notified=False)
    after = world.read(strong=True)
    after.content, after.etag = before.content, before.etag
    assert check(world.run()) == []
    world.write_externally(value=21)
    late = world.read(strong=True)
    late.content, late.etag = before.content, before.etag
    assert rules(check(world.run())) == {reads.OLDER_THAN_TOLD}


def test_external_writers_may_use_a_parent_that_we_created() -> None:
    world = some()
    world.write(part("user=dora,client-id=billing", 1))
    world.write_externally("user=dora", 2)
    last(world.intents, entities=(replace(world.intents[-1].entities[0], version_read=None, czxid_read=None),))
    assert check(world.run()) == []


def test_what_the_processes_show_at_the_end() -> None:
    run = some().run()
    [mirror] = run.mirrors
    facets = json.loads(json.dumps(mirror.facets))
    facets["client-quotas"][ALICE][KEY] = 0
    assert rules(check(replace(run, mirrors=[replace(mirror, facets=facets)]))) == {reads.OTHER_MIRROR}
    del facets["client-quotas"][ALICE]
    assert rules(check(replace(run, mirrors=[replace(mirror, facets=facets)]))) == {reads.OTHER_MIRROR}


@pytest.mark.parametrize(
    "warning",
    [
        "1 changes were given a second outcome that differs from the one that stands; the log names them",
        "default: 2 changes have had no outcome for up to 60 s and could not be settled yet: x",
        "default: markers of no change that the audit trail knows are left where they are: x",
    ],
)
def test_alarms_of_the_processes(warning: str) -> None:
    run = some().run()
    [mirror] = run.mirrors
    assert rules(check(replace(run, mirrors=[replace(mirror, warnings=(warning,))]))) == {checker.ALARM}
    assert check(replace(run, mirrors=[replace(mirror, warnings=("Postgres has fsync off",))])) == []


def test_a_run_that_was_never_quiet() -> None:
    assert rules(check(some().run(quiet_s=None))) == {checker.NOT_QUIET}


def test_a_history_of_another_run_can_not_be_checked() -> None:
    run = some().run()
    with pytest.raises(ValueError, match="request id"):
        check(replace(run, intents=[replace(intent, request_id="else") for intent in run.intents]))


# ---------------------------------------------------------------- what is no violation


def test_a_run_of_external_changes_may_be_one_row_and_needs_none_without_an_effect() -> None:
    world = World()
    world.write(part(value=1))
    before = world.nodes[NODE]
    for value in (2, 3, 3):
        world.write_externally(value=value, recorded=False)
    world._record(part(value=3), {KEY: "1"}, before)
    world.write_externally(value=3)
    world.write_externally(value=4, recorded=False)
    world.write_externally(value=3, recorded=False)
    world._account(NODE)
    assert check(world.run()) == []


def test_a_complete_state_in_the_feed_replaces_what_another_process_showed() -> None:
    world = World()
    with_a_key_that_another_process_showed(world, complete=True)
    assert check(world.run()) == []


def test_keys_of_an_external_change_are_compared_alongside_changes_of_ours() -> None:
    world = World()
    world.write(part(value=1))
    world.write_externally(value=2)
    assert check(world.run()) == []
    [entity] = world.intents[-1].entities
    for wrong in (replace(entity, before={}), replace(entity, after={**entity.after, "acks": "1"})):
        last(world.intents, entities=(wrong,))
        assert external.OTHER_CONTENT in rules(check(world.run()))


def made_again(world: World) -> Znode:
    """Recreate a znode externally, which is one row; return the earlier node."""
    old = world.nodes.pop(NODE)
    world._zxid += 1
    world._event(NODE, None, None, THEIRS)
    call = world.write_externally(value=2, recorded=False)
    call.parts = (*call.parts, part(facet="node", mode=Mode.NODE))
    world._record(part(value=2), {KEY: "1"}, old)
    return old


def test_external_deletion_and_recreation() -> None:
    world = World()
    world.write_externally(value=1)
    made_again(world)
    world._account(NODE)
    assert check(world.run()) == []


def test_external_deletion_and_recreation_during_a_change_of_ours() -> None:
    world = World()
    world.write(part(value=1))
    old = made_again(world)
    [entity] = world.intents[-1].entities
    last(world.intents, entities=(replace(entity, after={KEY: None}),))
    made = world.nodes[NODE].czxid
    world.write(part(value=3))
    [entity] = world.intents[-1].entities
    last(world.intents, entities=(replace(entity, czxid_read=old.czxid, before={KEY: "1"}),))
    assert rules(check(world.run())) == {trail.UNSEEN}
    last(world.outcomes, remade={NODE: old.czxid})
    assert rules(check(world.run())) == {trail.UNSEEN}
    last(world.outcomes, remade={NODE: made})
    assert check(world.run()) == []


def test_without_the_recorder_external_changes_need_no_trail() -> None:
    world = World(recording=False)
    world.write(part(value=1))
    world.write_externally(value=2)
    world.write(part(value=3))
    assert check(world.run()) == []


def test_what_was_there_before_needs_no_trail() -> None:
    world = World()
    world._zxid = 50
    world.events.insert(0, NodeEvent(50, 0, 1, NODE, 0, '{"version":1,"config":{}}'))
    world.nodes[NODE] = Znode('{"version":1,"config":{}}', 50, 50, 0)
    world._zxid = 200
    world.write(part(value=1))
    assert check(world.run()) == []


def test_a_node_that_compaction_removed() -> None:
    world = World()
    world.write(part(value=1))
    world.write(part())
    node = world.nodes[NODE]
    world.write(part(value=2), answered=False)
    # That last one was none that set it, but one that removed it.
    del world.nodes[NODE], world.states[NODE]
    last(world.events, version=None, data=None)
    last(world.outcomes, versions={})
    last(world.intents, request_id="compact", entities=(replace(world.intents[-1].entities[0], after={}, keys=()),))
    assert node.version == 1
    assert check(world.run()) == []
    world.write(part(value=3))
    assert check(world.run()) == []


def test_a_read_may_be_of_any_moment_that_it_was_not_promised_to_be_after() -> None:
    world = World()
    world.write(part(value=1))
    old = world.read()
    world.write(part(value=2))
    late = world.read()
    late.content, late.etag, late.revision = old.content, old.etag, old.revision
    assert check(world.run()) == []


def test_a_value_that_came_twice_counts_as_the_later() -> None:
    world = World()
    for value in (1, 2, 1):
        call = world.write(part(value=value))
    world.read(min_revision=call.revision, strong=True)
    assert check(world.run()) == []


def test_numbers_are_equal_however_they_are_written() -> None:
    world = World()
    world.write(part(value=10.0))
    read = world.read()
    read.content = {KEY: 1e1}
    assert check(world.run()) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "cut", "rejected", "batch", "bulk", "atomic", "read", "strong", "external", "keyed", "match"]
        ),
        st.sampled_from([ALICE, BOB, "user=bob,client-id=billing", "client-id=billing"]),
        st.integers(1, 5),
    ),
    max_size=40,
)


@given(STEPS)
def test_clean_runs_have_no_violation(steps: list[tuple[str, str, int]]) -> None:
    found = check(lived(steps))
    assert found == [], "\n".join(map(str, found))


def lived(steps: list[tuple[str, str, int]]) -> Run:
    """The run of a world in which all this happened."""
    world = World()
    keyed: list[Call] = []

    def repeated(one: Part, value: int) -> None:
        call = world.write(one, key=f"key-{len(world.calls)}")
        if call.change_id is not None:
            keyed.append(call)
        if keyed:
            world.repeat(keyed[value % len(keyed)])

    ways: dict[str, Callable[[Part, Part, int], object]] = {
        "write": lambda one, _, __: world.write(one),
        "cut": lambda one, _, __: world.write(one, answered=False),
        "rejected": lambda one, _, __: world.write(one, applied=False),
        "batch": lambda one, other, _: world.write(one, other),
        "bulk": lambda one, other, _: world.write(one, other, together=True),
        "atomic": lambda one, other, _: world.write(one, other, atomic=True),
        "external": lambda one, _, value: world.write_externally(one.entity, 100 + value),
        "keyed": lambda one, _, value: repeated(one, value),
        "match": lambda one, _, __: world.write(replace(one, if_match=world.read(one.entity).etag)),
        "read": lambda one, _, __: world.read(one.entity),
        "strong": lambda one, _, __: world.read(one.entity, strong=True),
    }
    for what, entity, value in steps:
        ways[what](part(entity, value), part("user=carol", value + 1), value)
    return world.run()


def test_a_large_run_is_checked_in_time_that_grows_with_it() -> None:
    """Not timed against a bound: a check that looks at all calls for each call would not come to an end here."""
    world = World()
    users = [f"user=u{number}" for number in range(50)]
    for number in range(5_000):
        user = users[number % len(users)]
        world.write(part(user, number))
        if number % 10 == 0:
            world.read(user)
            world.write_externally(user, -1 - number)
    began = time.monotonic()
    assert check(world.run()) == []
    print(f"{len(world.calls)} calls were checked in {time.monotonic() - began:.1f} s")  # noqa: T201 - a measurement
    assert OURS in {event.session for event in world.events}
