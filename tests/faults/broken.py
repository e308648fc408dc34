"""Small runs that each break one rule, and the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confplane.services.ports.trail import EXTERNAL_PRINCIPAL
from tests.faults import kinds
from tests.faults.checks import answers, external, feed, reads, refusals, requests, reverts, temporary, trail
from tests.faults.history import FeedEvent, InjectedFault, Kind, Mode, PartResult
from tests.faults.world import ADMIN, ALICE, BOB, KEY, OURS, World, ops_of, part

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.history import Call, Part

    Break = Callable[[World], None]

NODE = "/config/users/alice"


def some() -> World:
    """A few calls of every kind, all of them as they should be."""
    world = World()
    first = world.write(part(value=1))
    world.write(part(value=2), key="one")
    world.read(min_revision=first.revision)
    world.write_externally(value=3)
    world.write(part(BOB, 4), part("user=bob,client-id=billing", 5), atomic=True)
    world.write(part(value=6), answered=False)
    world.write(part(value=7), applied=False)
    world.write(part(value=8), applied=False, answered=False)
    world.read(strong=True)
    return world


def last(items: list[Any], **changed: Any) -> None:
    """Replace fields of the last of some rows."""
    items[-1] = replace(items[-1], **changed)


def _trail(world: World, intent: dict[str, Any], entity: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Replace fields of the last change in the trail."""
    last(world.intents, entities=(replace(world.intents[-1].entities[0], **entity), *world.intents[-1].entities[1:]))
    last(world.intents, **intent)
    last(world.outcomes, **outcome)


def trail_of_write(*, applied: bool = True, answered: bool = True, **changed: dict[str, Any]) -> Break:
    """A write, and fields of its intent, its entity or its outcome that are otherwise; not answered if not applied."""

    def breaks(world: World) -> None:
        world.write(part(value=20), applied=applied, answered=answered and applied)
        _trail(world, **{"intent": {}, "entity": {}, "outcome": {}, **changed})

    return breaks


def trail_of_external(entity_id: str = ALICE, **changed: dict[str, Any]) -> Break:
    """An external write, and the same of its row."""

    def breaks(world: World) -> None:
        world.write_externally(entity_id, value=20)
        _trail(world, **{"intent": {}, "entity": {}, "outcome": {}, **changed})

    return breaks


def refused(status: int, code: int, asked: Part | None = None) -> Break:
    """A write that was refused with this status and Kafka's code, without a cause."""
    return lambda world: world.refuse(world.write(asked or part(value=20), applied=False), status, code)


def unsettled(world: World) -> None:
    world.write(part(value=20), applied=False, answered=False)
    world.outcomes.pop()


def untrailed(world: World) -> None:
    world.write(part(value=20), answered=False)
    world.outcomes.pop()
    world.intents.pop()


def unclaimed_session(world: World) -> None:
    """Neither a writer of Confplane nor a known external one."""
    untrailed(world)
    last(world.events, session=0x9999)


def claimed_twice(world: World) -> None:
    """Another change claims the same version."""
    world.write(part(value=20))
    cut_off = world.call(part(value=20))
    intent = replace(world.intents[-1], change_id="twin", request_id=cut_off.request_id)
    world.intents.append(intent)
    world.outcomes.append(replace(world.outcomes[-1], change_id="twin"))


def claimed_and_marked_twice(world: World) -> None:
    claimed_twice(world)
    world._event("/confplane/commits/twin", 0, '{"state":"committed"}', OURS)


def unmarked(world: World) -> None:
    """The transaction has the marker of the other change only."""
    world.write(part(value=20), part("user=carol", 21), together=True)
    [*_, marker] = (event for event in world.events if event.path.startswith("/confplane/commits/"))
    world.events.remove(marker)


def marked_as_aborted(world: World) -> None:
    world.write(part(value=20))
    [*_, index] = (index for index, event in enumerate(world.events) if event.path.startswith("/confplane/commits/"))
    world.events[index] = replace(world.events[index], data='{"version":1,"state":"aborted"}')


def in_another_order(world: World) -> None:
    world.write(part(value=20), part("user=carol", 21), together=True)
    first, second = [
        index
        for index, event in enumerate(world.events)
        if event.zxid == world._zxid and event.path.startswith("/config/changes/")
    ]
    events = world.events
    events[first], events[second] = (
        replace(events[first], data=events[second].data),
        replace(events[second], data=events[first].data),
    )


def unobserved(world: World) -> None:
    """A change planned on the version before another write."""
    world.write(part(value=20))
    [entity] = world.intents[-1].entities
    assert entity.version_read is not None
    last(world.intents, entities=(replace(entity, version_read=entity.version_read - 1),))


def hole(world: World) -> None:
    """ZooKeeper gave a version twice."""
    world.write(part(value=20))
    version = world.events[-1].version
    assert version is not None
    last(world.events, version=version - 1)
    last(world.outcomes, versions={NODE: version - 1})
    world.nodes[NODE] = replace(world.nodes[NODE], version=version - 1)


def stored_otherwise(world: World) -> None:
    world.write(part("user=carol", 20))
    world.nodes["/config/users/carol"] = replace(world.nodes["/config/users/carol"], mzxid=1)


def not_notified(world: World) -> None:
    world.write(part(value=20))
    world.events.pop(-2)


def batch_in_part(world: World) -> None:
    """One of its entities has no version at its revision."""
    world.write(part(value=20), part("user=carol", 21), atomic=True, answered=False)
    world.events.pop()
    del world.nodes["/config/users/carol"]
    del world.states["/config/users/carol"]


def lost(world: World) -> None:
    """Answered 200, and neither applied nor in the trail as such."""
    call = world.write(part(value=20), applied=False, answered=False)
    call.status, call.failure, call.change_id, call.revision = 200, None, world.intents[-1].change_id, 1


def lost_without_a_trace(world: World) -> None:
    world.write(part(value=20), part("user=carol", 21)).results = (
        PartResult(change_id="nowhere", revision=3),
        PartResult(change_id=world.intents[-1].change_id, revision=world.outcomes[-1].revision),
    )


def other_revision(world: World) -> None:
    call = world.write(part(value=20), part("user=carol", 21))
    call.results = (replace(call.results[0], revision=3), call.results[1])


def revision_too_low(world: World) -> None:
    world.write(part(value=20)).revision = 101


def request_otherwise(world: World, *parts: Part) -> None:
    """Have the last call ask for something else, in the trail too."""
    world.calls[-1].parts = parts
    rows = zip(world.intents[-1].entities, parts, strict=True)
    last(world.intents, entities=tuple(replace(row, ops=ops_of(each)) for row, each in rows))


def other_effect(world: World) -> None:
    world.write(part(value=20))
    request_otherwise(world, part(value=19))


def key_of_another_kept(world: World) -> None:
    world.write(part(set={"consumer_byte_rate": 1, KEY: 20}))
    asked = part(mode=Mode.ALTER, remove=("consumer_byte_rate",))
    world.write(asked, answered=False)
    request_otherwise(world, replace(asked, remove=(KEY,)))


def nothing_to_do(world: World) -> None:
    """Answered as done without a change, and it never was so."""
    world.write(part(value=20))
    world.write(part(value=20)).parts = (part(value=21),)


def nothing_to_do_any_more(world: World) -> None:
    """A write answered as without effect, though an earlier answered write had changed the value."""
    world.write(part(value=20))
    world.write(part(value=20)).parts = (part(value=6),)


def not_applied_but_was(world: World) -> None:
    call = world.write(part(value=20))
    world.refuse(call, 503, 13)
    call.change_id = call.content = call.etag = None


def entry_not_applied_but_was(world: World) -> None:
    call = world.write(part(value=20), part("user=carol", 21))
    call.status = 207
    call.results = (call.results[0], PartResult(error_code=13, error_name="NETWORK_EXCEPTION", outcome="not_applied"))


def applied_twice(world: World) -> None:
    """A lost reply was followed by another try, under another change."""
    world.write(part(value=20), answered=False)
    world.write_externally(value=21)
    world.write(part(value=20), answered=False)
    last(world.intents, request_id=world.intents[-3].request_id)


def key_applied_twice(world: World) -> None:
    world.write(part(value=20), key="two", answered=False)
    world.write_externally(value=21)
    world.write(part(value=20), key="two", answered=False, resend_of=1)


def key_answered_otherwise(world: World) -> None:
    first = world.write(part(value=20), key="two")
    again = world.repeat(first)
    again.content, again.etag = {KEY: 21}, None


def key_forgotten(world: World) -> None:
    first = world.write(part(value=20), part("user=carol", 21), key="two")
    again = world.write(part(value=20), part("user=carol", 21), key="two", resend_of=first.id)
    assert {result.change_id for result in again.results} == {None}


def atomic_as_two(world: World) -> None:
    world.write(part(value=20), part("user=carol", 21)).atomic = True


def atomic_without_one(world: World) -> None:
    """One part of it was as asked when it was planned, and no more when it was committed."""
    world.write(part("user=carol", 21))
    call = world.write(part(value=20), part("user=carol", 21), atomic=True, answered=False)
    call.parts = (call.parts[0], part("user=carol", 22))


def atomic_half_failed(world: World) -> None:
    call = world.write(part(value=20), part(BOB, 4), atomic=True)
    call.status = 207
    not_attempted = PartResult(error_code=55, error_name="OPERATION_NOT_ATTEMPTED", outcome="not_applied")
    call.results = (call.results[0], not_attempted)


def lost_update(world: World) -> None:
    read = world.read()
    world.write(part(value=20))
    world.write(part(value=21, if_match=read.etag), answered=False)


def created_over(world: World) -> None:
    world.write(part(value=21, if_none_match=True), answered=False)


def posted_over(world: World) -> None:
    world.write(part(value=21, mode=Mode.CREATE), answered=False)


def matched_nothing(world: World) -> None:
    world.write(part("user=carol", 21, if_match="*"), answered=False)


def one_tag_two_contents(world: World) -> None:
    read = world.read()
    world.write(part(value=20))
    world.read().etag = read.etag


def external_lost(world: World) -> None:
    world.call(part(value=99, facet="node", mode=Mode.NODE), process=None, kind=Kind.EXTERNAL).status = 200
    world.calls[-1].revision = 5000


def read_of_nothing(world: World) -> None:
    call = world.read()
    call.content, call.etag = {KEY: 12345}, None


def read_of_an_absence(world: World) -> None:
    """Bob's node has existed since before the revision of the response."""
    call = world.read(BOB)
    call.status, call.error_code, call.content, call.etag = 404, 91, {}, None


def read_of_the_future(world: World) -> None:
    """A read with the value of a write that began after the read had ended."""
    call = world.read()
    world.write(part(value=20))
    call.content, call.etag = {KEY: 20}, None


def read_of_less_than_asked(world: World) -> None:
    call = world.read()
    after = world.write(part(value=20))
    late = world.read(min_revision=after.revision)
    late.content, late.etag, late.revision = call.content, call.etag, call.revision


def read_of_less_than_strong(world: World) -> None:
    call = world.read()
    world.write(part(value=20))
    late = world.read(strong=True)
    late.content, late.etag, late.revision = call.content, call.etag, call.revision


def external_untrailed(world: World) -> None:
    world.write_externally(value=20, recorded=False)
    world._account(NODE)


def external_twice(world: World) -> None:
    world.write_externally(value=20)
    world.intents.append(replace(world.intents[-1], change_id="external-twin"))
    world.outcomes.append(replace(world.outcomes[-1], change_id="external-twin"))


def external_that_was_ours(world: World) -> None:
    world.write(part(value=20))
    entity = replace(world.intents[-1].entities[0], facet="node", ops=())
    who: dict[str, Any] = {"principal": EXTERNAL_PRINCIPAL, "request_id": "", "writes": 1}
    world.intents.append(replace(world.intents[-1], change_id="external", kind="external", entities=(entity,), **who))
    world.outcomes.append(replace(world.outcomes[-1], change_id="external"))


def validated_and_begun(world: World) -> None:
    world.write(part(value=20), applied=False, answered=False, validate_only=True)


def refused_without_saying_what_became_of_it(world: World) -> None:
    world.write(part(value=20), applied=False).outcome = None


def entry_refused_as_a_bug(world: World) -> None:
    call = world.write(part(value=20), part(BOB, 4))
    call.status = 207
    call.results = (
        call.results[0],
        PartResult(error_code=-1, error_name="UNKNOWN_SERVER_ERROR", outcome="not_applied"),
    )


def some_entries_failed_and_none_did(world: World) -> None:
    world.write(part(value=20), part("user=carol", 21)).status = 207


def read_refused(world: World, status: int, code: int) -> None:
    call = world.read()
    call.status, call.error_code, call.content, call.etag = status, code, None, None


def read_refused_as_a_bug(world: World) -> None:
    read_refused(world, 500, -1)


def read_refused_that_asked_for_nothing(world: World) -> None:
    """By a process with a mirror, since the response has a revision."""
    read_refused(world, 503, 13)


def precondition_failed_that_held(world: World) -> None:
    read = world.read()
    world.refuse(world.write(part(value=20, if_match=read.etag), applied=False), 412, 95)


def body_that_was_late_at_once(world: World) -> None:
    call = world.write(part(value=20), applied=False)
    world.refuse(call, 408, 7)
    call.outcome = None


def controller_that_did_not_move(world: World) -> None:
    world.refuse(world.write(part(value=20), applied=False), 409, 11)
    world.faults.append(InjectedFault(kinds.CONTROLLER_MOVED, ("controller",), world.wait(1), world.wait(1)))


def revision_not_reported(world: World) -> None:
    world.read().revision = None


def stale_and_not_marked(world: World) -> None:
    """A read of a value overwritten a while ago; a copy confirmed since then would show the new one."""
    call = world.read()
    world.write(part(value=20))
    world.wait(20)
    late = world.read()
    late.content, late.etag, late.revision = call.content, call.etag, call.revision


def cut_off_and_not_marked(world: World) -> None:
    began = world.wait(1)
    world.wait(4)
    world.read()
    world.faults.append(
        InjectedFault(kinds.connection_cut("ZooKeeper"), ("connection 0 ZooKeeper",), began, world.wait(1))
    )


def cut_off_for_longer_than_it_says(world: World) -> None:
    cut_off_and_not_marked(world)
    world.calls[-1].stale_ms = 1_000


def explained_otherwise(world: World) -> None:
    world.write_externally(value=20)
    world.states[NODE] = replace(world.states[NODE], version=1)


def in_the_feed(edit: Callable[[list[FeedEvent]], list[FeedEvent]], *, external: bool = False) -> Break:
    """Three changes of an entity, or also an external one, and a feed of them that is otherwise."""

    def breaks(world: World) -> None:
        for value in (20, 21, 22):
            world.write(part("user=carol", value))
        if external:
            world.write_externally("user=carol", 23)
        world.followed, world.feed = True, edit(world.feed)

    return breaks


def _with_other_values(events: list[FeedEvent]) -> list[FeedEvent]:
    [state] = events[-1].entities
    [(key, _, after)] = state.keys
    return [*events[:-1], replace(events[-1], entities=(replace(state, keys=((key, "19", after),)),))]


def _of_the_last(**changed: Any) -> Callable[[list[FeedEvent]], list[FeedEvent]]:
    """Edit the entity of the last event."""

    def edit(events: list[FeedEvent]) -> list[FeedEvent]:
        [state] = events[-1].entities
        return [*events[:-1], replace(events[-1], entities=(replace(state, **changed),))]

    return edit


def with_a_key_that_another_process_showed(world: World, *, complete: bool = False) -> None:
    """Of two external writes the first one has a further key, and the second one comes as both."""
    in_the_feed(_of_the_last(complete=complete), external=True)(world)
    [state] = world.feed[-1].entities
    shown = (*state.keys, ("consumer_byte_rate", None, 5))
    first = replace(world.feed[-1], entities=(replace(state, revision=state.revision - 1, keys=shown, complete=False),))
    world.feed.insert(-1, first)


def position_refused(world: World) -> None:
    """A position is too old for another process."""
    world.followed = True
    world.feed_refusals.append("410: before-history")


def for_a_while(world: World, value: int = 20, entity: str = ALICE) -> Call:
    return world.write(part(entity, value), temporary=True)


def no_end(world: World) -> None:
    for_a_while(world)


def ended_twice(world: World) -> None:
    first, second = for_a_while(world), for_a_while(world, 21, BOB)
    world.end(first)
    world.end(second)
    last(world.intents, ends=first.change_id, request_id=f"end-{first.change_id}")


def not_restored(world: World) -> None:
    world.end(for_a_while(world), applied=False)


def end_over_another_change(world: World) -> None:
    begun = for_a_while(world)
    world.write(part(value=21))
    world.end(begun)


def end_over_a_covering_change(world: World) -> None:
    below, above = for_a_while(world), for_a_while(world, 21)
    world.end(below)
    world.end(above, applied=False)


def end_with_another_value(world: World) -> None:
    world.end(for_a_while(world), value=22)


def end_answered_as_not_applied(world: World) -> None:
    world.refuse(world.end(for_a_while(world), early=True), 409, 95)


def end_by_another(world: World) -> None:
    world.end(for_a_while(world))
    last(world.intents, principal="User:mallory")


def end_of_another_request(world: World) -> None:
    world.end(for_a_while(world))
    last(world.intents, request_id="end-another")


def end_of_another_change(world: World) -> None:
    world.end(for_a_while(world, 20, BOB), early=True).ends = "another"


def lasting_although_temporary(world: World) -> None:
    for_a_while(world)
    last(world.intents, temporary=False)


def lost_revert(world: World) -> None:
    world.revert(world.write(part(value=20)), applied=False).change_id = "another"


def revert_over_another_change(world: World) -> None:
    first = world.write(part(value=20))
    world.write(part(value=21))
    world.revert(first)


def revert_to_another_value(world: World) -> None:
    world.revert(world.write(part(value=20)), value=22)


def revert_of_another_change(world: World) -> None:
    world.revert(world.write(part(value=20)))
    last(world.intents, reverts=("another",))


BROKEN: list[tuple[str, Break, str]] = [
    ("lost_revert", lost_revert, reverts.LOST),
    ("revert_over_another_change", revert_over_another_change, reverts.OVERWRITTEN),
    ("revert_to_another_value", revert_to_another_value, reverts.OTHER_VALUE),
    ("revert_of_another_change", revert_of_another_change, requests.OTHER_REQUEST),
    ("no_end", no_end, temporary.NOT_ENDED),
    ("ended_twice", ended_twice, temporary.TWICE),
    ("not_restored", not_restored, temporary.NOT_RESTORED),
    ("end_over_another_change", end_over_another_change, temporary.OVERWRITTEN),
    ("end_over_a_covering_change", end_over_a_covering_change, temporary.COVERED),
    ("end_with_another_value", end_with_another_value, temporary.OTHER_VALUE),
    ("end_answered_as_not_applied", end_answered_as_not_applied, temporary.NOT_APPLIED),
    ("end_by_another", end_by_another, requests.OTHER_CALLER),
    ("end_of_another_request", end_of_another_request, requests.NOBODYS),
    ("end_of_another_change", end_of_another_change, requests.OTHER_REQUEST),
    ("lasting_although_temporary", lasting_although_temporary, requests.OTHER_REQUEST),
    ("unsettled", unsettled, trail.UNSETTLED),
    ("attempt_without_intent", trail_of_write(applied=False, outcome={"attempt": 2}), trail.NO_INTENT),
    (
        "committed_and_never_was",
        trail_of_write(applied=False, outcome={"committed": True, "revision": 9999, "versions": {NODE: 6}}),
        trail.NEVER_WAS,
    ),
    (
        "rejected_but_applied",
        trail_of_write(answered=False, outcome={"committed": False, "revision": None, "versions": {}}),
        trail.REJECTED_APPLIED,
    ),
    ("untrailed", untrailed, trail.NO_TRAIL),
    ("unclaimed_session", unclaimed_session, trail.NO_TRAIL),
    ("claimed_twice", claimed_twice, trail.UNMARKED),
    ("claimed_and_marked_twice", claimed_and_marked_twice, trail.TWO_CLAIM),
    ("unmarked", unmarked, trail.UNMARKED),
    ("marked_as_aborted", marked_as_aborted, trail.UNMARKED),
    ("in_another_order", in_another_order, trail.OTHER_ORDER),
    ("other_version", trail_of_write(outcome={"versions": {NODE: 77}}), trail.OTHER_VERSION),
    ("unobserved", unobserved, trail.UNSEEN),
    ("reported_other_before", trail_of_write(entity={"before": {KEY: "19"}}), trail.OTHER_CONTENT),
    ("reported_other_after", trail_of_write(entity={"after": {KEY: "21"}}), trail.OTHER_CONTENT),
    ("hole", hole, trail.NOT_INCREASING),
    ("stored_otherwise", stored_otherwise, trail.NOT_AS_LOGGED),
    ("not_notified", not_notified, trail.NOT_NOTIFIED),
    ("batch_in_part", batch_in_part, trail.IN_PART),
    ("lost", lost, answers.LOST),
    ("lost_without_a_trace", lost_without_a_trace, answers.LOST),
    ("other_revision", other_revision, answers.OTHER_REVISION),
    ("revision_too_low", revision_too_low, answers.OTHER_REVISION),
    ("other_effect", other_effect, answers.OTHER_EFFECT),
    ("key_of_another_kept", key_of_another_kept, answers.OTHER_EFFECT),
    ("nothing_to_do", nothing_to_do, answers.NOT_SO),
    ("nothing_to_do_any_more", nothing_to_do_any_more, answers.NOT_SO),
    ("not_applied_but_was", not_applied_but_was, answers.NOT_APPLIED),
    ("entry_not_applied_but_was", entry_not_applied_but_was, answers.NOT_APPLIED),
    ("applied_twice", applied_twice, answers.TWICE),
    ("key_applied_twice", key_applied_twice, answers.KEY_TWICE),
    ("key_answered_otherwise", key_answered_otherwise, answers.KEY_UNEQUAL),
    ("key_forgotten", key_forgotten, answers.KEY_UNEQUAL),
    ("atomic_as_two", atomic_as_two, answers.IN_PARTS),
    ("atomic_without_one", atomic_without_one, answers.IN_PARTS),
    ("atomic_half_failed", atomic_half_failed, answers.IN_PARTS),
    ("lost_update", lost_update, answers.LOST_UPDATE),
    ("created_over", created_over, answers.LOST_UPDATE),
    ("posted_over", posted_over, answers.LOST_UPDATE),
    ("matched_nothing", matched_nothing, answers.LOST_UPDATE),
    ("one_tag_two_contents", one_tag_two_contents, answers.TWO_CONTENTS),
    ("validated_and_begun", validated_and_begun, answers.VALIDATED),
    ("external_lost", external_lost, answers.EXTERNAL_LOST),
    ("refused_as_a_bug", refused(500, -1), refusals.UNEXPECTED),
    ("refused_with_another_status", refused(412, 13), refusals.UNEXPECTED),
    ("refused_without_saying_what_became_of_it", refused_without_saying_what_became_of_it, refusals.UNEXPECTED),
    ("entry_refused_as_a_bug", entry_refused_as_a_bug, refusals.UNEXPECTED),
    ("some_entries_failed_and_none_did", some_entries_failed_and_none_did, refusals.UNEXPECTED),
    ("read_refused_as_a_bug", read_refused_as_a_bug, refusals.UNEXPECTED),
    ("read_refused_that_asked_for_nothing", read_refused_that_asked_for_nothing, refusals.CAUSELESS),
    ("refused_precondition_that_it_does_not_have", refused(412, 95), refusals.CAUSELESS),
    ("precondition_failed_that_held", precondition_failed_that_held, refusals.CAUSELESS),
    ("already_there_and_was_not", refused(409, 92, part("user=carol", 20, mode=Mode.CREATE)), refusals.CAUSELESS),
    ("external_changes_that_never_happened", refused(409, 95, part("user=carol", 20)), refusals.CAUSELESS),
    ("body_that_was_late_at_once", body_that_was_late_at_once, refusals.CAUSELESS),
    ("controller_that_did_not_move", controller_that_did_not_move, refusals.CAUSELESS),
    ("revision_not_reported", revision_not_reported, refusals.UNTOLD),
    ("of_no_request", trail_of_write(applied=False, intent={"request_id": "call-999"}), requests.NOBODYS),
    ("of_another_principal", trail_of_write(intent={"principal": "User:mallory"}), requests.OTHER_CALLER),
    ("external_by_a_client", trail_of_external(intent={"principal": ADMIN}), requests.OTHER_CALLER),
    ("with_another_reason", trail_of_write(intent={"reason": None}), requests.OTHER_REASON),
    ("with_another_ticket", trail_of_write(intent={"ticket": "T-2"}), requests.OTHER_REASON),
    ("with_other_ops", trail_of_write(entity={"ops": ops_of(part(value=21))}), requests.OTHER_REQUEST),
    ("of_another_facet", trail_of_write(entity={"facet": "client-configs"}), requests.OTHER_REQUEST),
    ("external_with_ops", trail_of_external(entity={"ops": ops_of(part(value=20))}), requests.OTHER_REQUEST),
    ("without_keys", trail_of_write(entity={"keys": ()}), requests.OTHER_KEYS),
    ("external_keys_left_out", trail_of_external(entity={"keys": ("consumer_byte_rate",)}), requests.OTHER_KEYS),
    ("read_of_nothing", read_of_nothing, reads.NEVER_WAS),
    ("read_of_an_absence", read_of_an_absence, reads.OLDER_THAN_TOLD),
    ("read_of_the_future", read_of_the_future, reads.NEVER_WAS),
    ("read_of_less_than_asked", read_of_less_than_asked, reads.OLDER_THAN_ASKED),
    ("read_of_less_than_strong", read_of_less_than_strong, reads.STALE),
    ("stale_and_not_marked", stale_and_not_marked, reads.UNMARKED),
    ("cut_off_and_not_marked", cut_off_and_not_marked, reads.UNMARKED),
    ("cut_off_for_longer_than_it_says", cut_off_for_longer_than_it_says, reads.UNMARKED),
    ("external_untrailed", external_untrailed, external.NO_TRAIL),
    ("external_twice", external_twice, external.TWICE),
    ("external_that_was_ours", external_that_was_ours, external.OURS),
    ("external_that_never_was", trail_of_external(outcome={"versions": {NODE: 55}}), external.NEVER_WAS),
    (
        "external_with_other_content",
        trail_of_external("user=carol", entity={"after": {KEY: "21"}}),
        external.OTHER_CONTENT,
    ),
    ("external_with_other_count", trail_of_external(intent={"writes": 2}), external.OTHER_COUNT),
    ("explained_otherwise", explained_otherwise, external.OTHER_STATE),
    ("not_in_the_feed", in_the_feed(lambda events: [*events[:-2], events[-1]]), feed.MISSED),
    ("twice_in_the_feed", in_the_feed(lambda events: [*events, events[-1]]), feed.TWICE),
    (
        "in_another_order",
        in_the_feed(lambda events: [*events[:-3], events[-2], events[-3], events[-1]]),
        feed.OTHER_ORDER,
    ),
    ("with_other_values", in_the_feed(_with_other_values), feed.OTHER_VALUES),
    ("with_a_key_that_another_process_showed", with_a_key_that_another_process_showed, feed.OTHER_END),
    ("complete_without_a_key", in_the_feed(_of_the_last(complete=True, keys=()), external=True), feed.OTHER_END),
    ("without_the_last_external", in_the_feed(lambda events: events[:-1], external=True), feed.OTHER_END),
    ("position_refused", position_refused, feed.REFUSED),
]
