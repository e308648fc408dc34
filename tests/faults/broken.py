"""Small runs in each of which one thing is not as it must be, and the rule that this breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.faults.checks import answers, keys, outside, reads, trail
from tests.faults.history import Kind, Mode, PartResult
from tests.faults.world import BOB, KEY, World, part

if TYPE_CHECKING:
    from collections.abc import Callable

NODE = "/config/users/alice"


def some() -> World:
    """A few calls of every kind, all of them as they should be."""
    world = World()
    first = world.write(part(value=1))
    world.write(part(value=2), key="one")
    world.read(min_revision=first.revision)
    world.outside(value=3)
    world.write(part(BOB, 4), part("user=bob,client-id=billing", 5), atomic=True)
    world.write(part(value=6), answered=False)
    world.write(part(value=7), applied=False)
    world.write(part(value=8), applied=False, answered=False)
    world.read(strong=True)
    return world


def last(items: list[Any], **changed: Any) -> None:
    """Replace fields of the last of some rows."""
    items[-1] = replace(items[-1], **changed)


def unsettled(world: World) -> None:
    world.write(part(value=20), applied=False, answered=False)
    world.outcomes.pop()


def without_intent(world: World) -> None:
    world.write(part(value=20), applied=False, answered=False)
    last(world.outcomes, attempt=2)


def phantom(world: World) -> None:
    """The trail has it as committed, and nobody was told so."""
    world.write(part(value=20), applied=False, answered=False)
    last(world.outcomes, committed=True, revision=9999, versions={NODE: 6})


def rejected_but_applied(world: World) -> None:
    """Its caller never heard of it."""
    world.write(part(value=20), answered=False)
    last(world.outcomes, committed=False, revision=None, versions={})


def untrailed(world: World) -> None:
    world.write(part(value=20), answered=False)
    world.outcomes.pop()
    world.intents.pop()


def unclaimed_session(world: World) -> None:
    """Neither a writer of ours nor anybody who was told to."""
    untrailed(world)
    last(world.events, session=0x9999)


def two_of_one_revision(world: World) -> None:
    world.write(part(value=20))
    intent = replace(world.intents[-1], change_id="twin", request_id="nobody")
    world.intents.append(intent)
    world.outcomes.append(replace(world.outcomes[-1], change_id="twin"))


def other_version(world: World) -> None:
    world.write(part(value=20))
    last(world.outcomes, versions={NODE: 77})


def unseen(world: World) -> None:
    """It was planned on the version before, and there was a write in between."""
    world.write(part(value=20))
    [entity] = world.intents[-1].entities
    assert entity.version_read is not None
    last(world.intents, entities=(replace(entity, version_read=entity.version_read - 1),))


def told_other_before(world: World) -> None:
    world.write(part(value=20))
    last(world.intents, entities=(replace(world.intents[-1].entities[0], before={KEY: "19"}),))


def told_other_after(world: World) -> None:
    world.write(part(value=20))
    last(world.intents, entities=(replace(world.intents[-1].entities[0], after={KEY: "21"}),))


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


def other_effect(world: World) -> None:
    world.write(part(value=20)).parts = (part(value=19),)


def key_of_another_kept(world: World) -> None:
    world.write(part(set={"consumer_byte_rate": 1, KEY: 20}))
    asked = part(mode=Mode.ALTER, remove=("consumer_byte_rate",))
    world.write(asked, answered=False).parts = (replace(asked, remove=(KEY,)),)


def nothing_to_do(world: World) -> None:
    """Answered as done without a change, and it never was so."""
    world.write(part(value=20))
    world.write(part(value=20)).parts = (part(value=21),)


def nothing_to_do_any_more(world: World) -> None:
    """It had been so, until a write that was answered before it began."""
    world.write(part(value=20))
    world.write(part(value=20)).parts = (part(value=6),)


def not_applied_but_was(world: World) -> None:
    call = world.write(part(value=20))
    call.status, call.outcome, call.change_id = 503, "not_applied", None
    call.content = call.etag = None


def entry_not_applied_but_was(world: World) -> None:
    call = world.write(part(value=20), part("user=carol", 21))
    call.status = 207
    call.results = (call.results[0], PartResult(error_code=13, error_name="NETWORK_EXCEPTION", outcome="not_applied"))


def applied_twice(world: World) -> None:
    """A lost reply was followed by another try, under another change."""
    world.write(part(value=20), answered=False)
    world.outside(value=21)
    world.write(part(value=20), answered=False)
    last(world.intents, request_id=world.intents[-3].request_id)


def key_applied_twice(world: World) -> None:
    world.write(part(value=20), key="two", answered=False)
    world.outside(value=21)
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
    call = world.write(part(value=20), part("user=carol", 21), atomic=True)
    # The other failed, and it is told that this one did not.
    call.parts = (call.parts[0], part("user=dave", 21))
    call.results = (call.results[0], PartResult(error_code=42, error_name="INVALID_REQUEST"))


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


def outside_lost(world: World) -> None:
    world.call(part(value=99, facet="node", mode=Mode.NODE), process=None, kind=Kind.OUTSIDE).status = 200
    world.calls[-1].revision = 5000


def read_of_nothing(world: World) -> None:
    call = world.read()
    call.content, call.etag = {KEY: 12345}, None


def read_of_an_absence(world: World) -> None:
    """Bob's node is there since before the revision that it tells."""
    call = world.read(BOB)
    call.status, call.content, call.etag = 404, {}, None


def read_of_the_future(world: World) -> None:
    """It tells a value of a write that began after it had ended."""
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


def outside_untrailed(world: World) -> None:
    world.outside(value=20, recorded=False)
    world._account(NODE)


def outside_twice(world: World) -> None:
    world.outside(value=20)
    world.intents.append(replace(world.intents[-1], change_id="external-twin"))
    world.outcomes.append(replace(world.outcomes[-1], change_id="external-twin"))


def outside_that_was_ours(world: World) -> None:
    world.write(part(value=20))
    entity = replace(world.intents[-1].entities[0], facet="node")
    world.intents.append(
        replace(world.intents[-1], change_id="external", kind="external", request_id="", entities=(entity,))
    )
    world.outcomes.append(replace(world.outcomes[-1], change_id="external"))


def outside_that_never_was(world: World) -> None:
    world.outside(value=20)
    last(world.outcomes, versions={NODE: 55})


def outside_told_otherwise(world: World) -> None:
    world.outside("user=carol", 20)
    last(world.intents, entities=(replace(world.intents[-1].entities[0], after={KEY: "21"}),))


def accounted_otherwise(world: World) -> None:
    world.outside(value=20)
    world.states[NODE] = replace(world.states[NODE], version=1)


BROKEN: list[tuple[Callable[[World], None], str]] = [
    (unsettled, trail.UNSETTLED),
    (without_intent, trail.NO_INTENT),
    (phantom, trail.NEVER_WAS),
    (rejected_but_applied, trail.REJECTED_APPLIED),
    (untrailed, trail.NO_TRAIL),
    (unclaimed_session, trail.NO_TRAIL),
    (two_of_one_revision, trail.TWO_CLAIM),
    (other_version, trail.OTHER_VERSION),
    (unseen, trail.UNSEEN),
    (told_other_before, trail.OTHER_CONTENT),
    (told_other_after, trail.OTHER_CONTENT),
    (hole, trail.NOT_INCREASING),
    (stored_otherwise, trail.NOT_AS_LOGGED),
    (not_notified, trail.NOT_NOTIFIED),
    (batch_in_part, trail.IN_PART),
    (lost, answers.LOST),
    (lost_without_a_trace, answers.LOST),
    (other_revision, answers.OTHER_REVISION),
    (revision_too_low, answers.OTHER_REVISION),
    (other_effect, answers.OTHER_EFFECT),
    (key_of_another_kept, answers.OTHER_EFFECT),
    (nothing_to_do, answers.NOT_SO),
    (nothing_to_do_any_more, answers.NOT_SO),
    (not_applied_but_was, answers.NOT_APPLIED),
    (entry_not_applied_but_was, answers.NOT_APPLIED),
    (applied_twice, answers.TWICE),
    (key_applied_twice, keys.TWICE),
    (key_answered_otherwise, keys.UNEQUAL),
    (key_forgotten, keys.UNEQUAL),
    (atomic_as_two, answers.IN_PARTS),
    (atomic_without_one, answers.IN_PARTS),
    (atomic_half_failed, answers.IN_PARTS),
    (lost_update, answers.LOST_UPDATE),
    (created_over, answers.LOST_UPDATE),
    (posted_over, answers.LOST_UPDATE),
    (matched_nothing, answers.LOST_UPDATE),
    (one_tag_two_contents, answers.TWO_CONTENTS),
    (outside_lost, answers.OUTSIDE_LOST),
    (read_of_nothing, reads.NEVER_WAS),
    (read_of_an_absence, reads.OLDER_THAN_TOLD),
    (read_of_the_future, reads.NEVER_WAS),
    (read_of_less_than_asked, reads.OLDER_THAN_ASKED),
    (read_of_less_than_strong, reads.STALE),
    (outside_untrailed, outside.NO_TRAIL),
    (outside_twice, outside.TWICE),
    (outside_that_was_ours, outside.OURS),
    (outside_that_never_was, outside.NEVER_WAS),
    (outside_told_otherwise, outside.OTHER_CONTENT),
    (accounted_otherwise, outside.OTHER_STATE),
]
