"""Planted bugs are caught: each scene is played with the service as it is, where the checker finds nothing, and with one
part of the write protocol left out or misplaced, where it finds what that breaks.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.faults import mutants
from tests.faults.checker import check
from tests.faults.checks import answers, refusals, trail
from tests.faults.scenes import COMMITS, NODE, ready, set_up_scene
from tests.faults.world import rules
from tests.support import servers
from tests.support.forgetful import Forgetful
from tests.support.processes import stopped
from tests.support.proxy import proxy
from tests.support.stepping import STEP_FILE_VARIABLE, STEP_VARIABLE
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.faults.history import Call
    from tests.faults.scenes import Scene
    from tests.support.service import Service


def expect_findings(scene: Scene, mutant: str | None, *expected: str) -> None:
    """The checker finds what a mutant breaks (one of these at least, what follows from it besides), and else nothing."""
    found = check(scene.collected())
    told = "\n".join(map(str, found))
    if mutant is None:
        assert not found, told
    else:
        assert rules(found) & set(expected), told


@pytest.mark.parametrize("mutant", [None, "no-version-check"])
async def test_a_write_meets_one_that_its_mirror_has_not_seen(scene: Scene, mutant: str | None) -> None:
    async with scene.service(mutant) as service:
        await ready(service)
        await scene.recorded()
        await scene.put(service, 1)
        scene.write_outside(2, notified=False)
        call = await scene.put(service, 3)
        assert call.status == 200
        await scene.recorded()
    # It was planned on the first of the three, whatever it says that it left.
    expect_findings(scene, mutant, trail.UNSEEN, trail.OTHER_VERSION)


@pytest.mark.parametrize("mutant", [None, "mirror-decides"])
async def test_a_write_has_nothing_to_do_on_a_lagging_mirror(scene: Scene, mutant: str | None) -> None:
    async with scene.service(mutant) as service:
        await ready(service)
        await scene.recorded()
        await scene.put(service, 1)
        scene.write_outside(2, notified=False)
        call = await scene.put(service, 1)
        assert call.status == 200
        assert (call.change_id is not None) == (mutant is None)
        await scene.recorded()
    expect_findings(scene, mutant, answers.NOT_SO)


@pytest.mark.parametrize("mutant", [None, "mirror-decides"])
async def test_a_precondition_fails_on_a_lagging_mirror(scene: Scene, mutant: str | None) -> None:
    async with scene.service(mutant) as service:
        await ready(service)
        await scene.recorded()
        wanted = await scene.put(service, 1)
        await scene.put(service, 2)
        scene.write_outside(1, notified=False)
        call = await scene.put(service, 3, if_match=wanted.etag)
        assert call.status == (200 if mutant is None else 412)
        await scene.recorded()
    expect_findings(scene, mutant, refusals.CAUSELESS)


@pytest.mark.parametrize("mutant", [None, "outcome-before-commit"])
async def test_a_process_dies_once_an_outcome_is_durable(scene: Scene, mutant: str | None) -> None:
    step = scene.directory / "step"
    async with scene.service(mutant, settings={STEP_FILE_VARIABLE: str(step)}) as one, scene.service() as two:
        await ready(one, two)
        await scene.put(one, 1)
        step.write_text("outcome:SIGKILL")
        call = await scene.put(one, 2)
        assert call.status is None
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        await scene.put(two, 3)
        await scene.settled(3)
    # Where it never went out, another's transaction may have got the revision that was foretold.
    expect_findings(scene, mutant, trail.NEVER_WAS, trail.UNMARKED)


@pytest.mark.parametrize("mutant", [None, "no-marker"])
async def test_the_reply_to_an_applied_write_is_lost(scene: Scene, mutant: str | None) -> None:
    async with proxy(scene.server.hosts) as line, scene.service(mutant, through=line) as service:
        await ready(service)
        await scene.put(service, 1)
        line.replies.clear()
        writing = asyncio.create_task(scene.put(service, 2))
        await until_thread(lambda: scene.zk.exists(NODE).version == 1)
        line.cut()
        line.replies.set()
        call = await writing
        assert (call.status == 200) == (mutant is None)
        await scene.settled(2)
    expect_findings(scene, mutant, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("mutant", [None, "no-last-marker"])
async def test_the_reply_to_a_bulk_that_was_applied_is_lost(scene: Scene, mutant: str | None) -> None:
    async with proxy(scene.server.hosts) as line, scene.service(mutant, through=line) as service:
        await ready(service)
        call = await scene.alter(service, {"alice": 1, "bob": 1})
        assert call.status == 200
        line.replies.clear()
        writing = asyncio.create_task(scene.alter(service, {"alice": 2, "bob": 2}))
        await until_thread(lambda: scene.zk.exists(NODE).version == 1)
        line.cut()
        line.replies.set()
        call = await writing
        # Each is settled by its own marker.
        assert call.status == (200 if mutant is None else 207)
        await scene.settled(4)
    expect_findings(scene, mutant, trail.REJECTED_APPLIED, trail.UNMARKED)


@pytest.mark.parametrize("mutant", [None, "no-last-marker"])
async def test_each_change_of_a_bulk_has_its_marker(scene: Scene, mutant: str | None) -> None:
    async with scene.service(mutant) as service:
        await ready(service)
        await scene.recorded()
        call = await scene.alter(service, {"alice": 1, "bob": 1, "carol": 1})
        assert len({result.revision for result in call.results}) == 1
        await scene.recorded()
    expect_findings(scene, mutant, trail.UNMARKED)


@pytest.mark.parametrize("mutant", [None, "refused-taken-for-applied"])
async def test_one_of_a_bulk_meets_a_write_that_its_mirror_has_not_seen(scene: Scene, mutant: str | None) -> None:
    async with scene.service(mutant) as service:
        await ready(service)
        await scene.recorded()
        await scene.put(service, 1)
        scene.write_outside(2, notified=False)
        call = await scene.alter(service, {"bob": 3, "alice": 3, "carol": 3})
        assert call.status == 200
        bob, alice, carol = call.results
        assert bob.revision == carol.revision
        # What was refused goes alone, later.
        assert (alice.revision == bob.revision) == (mutant is not None)
        await scene.recorded()
    expect_findings(scene, mutant, trail.NEVER_WAS)


@pytest.mark.parametrize("mutant", [None, "settled-by-reading"])
async def test_a_transaction_comes_after_its_change_was_settled(scene: Scene, mutant: str | None) -> None:
    # The one takes a change for abandoned after a second, the other is in no hurry.
    async with (
        scene.service(mutant, deadline_ms=500) as impatient,
        scene.service(mutant, leads=False, settings={STEP_VARIABLE: "intent:SIGSTOP"}) as slow,
    ):
        await ready(impatient, slow)
        writing = asyncio.create_task(scene.put(slow, 1, step=True))
        await until_thread(lambda: stopped(slow.pid))
        try:
            await scene.settled(1)
        finally:
            os.kill(slow.pid, signal.SIGCONT)
        call = await writing
        assert (call.status == 503) == (mutant is None)
    expect_findings(scene, mutant, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("mutant", [None, "fresh-for-ever"])
async def test_a_lost_reply_is_settled_after_its_marker_was_swept(scene: Scene, mutant: str | None) -> None:
    async with (
        scene.service(mutant, deadline_ms=500) as impatient,
        proxy(scene.server.hosts) as line,
        scene.service(mutant, through=line, leads=False) as slow,
    ):
        await ready(impatient, slow)
        await scene.put(slow, 1)
        line.replies.clear()
        writing = asyncio.create_task(scene.put(slow, 2))
        await until_thread(lambda: scene.zk.exists(NODE).version == 1)
        line.accepting = False
        line.cut()
        line.replies.set()
        # The other one takes it for abandoned, settles it as committed, and drops its marker after that.
        await scene.settled(2)
        await until_thread(lambda: not scene.zk.get_children(COMMITS))
        line.accepting = True
        call = await writing
        assert call.status == (200 if mutant is None else 503)
    expect_findings(scene, mutant, answers.NOT_APPLIED)


@pytest.mark.parametrize("mutant", [None, "markers-go-once-read"])
async def test_postgres_crashes_after_a_marker_was_swept(
    tmp_path: Path, logged_zookeeper: ZooKeeper, mutant: str | None
) -> None:
    with Forgetful(tmp_path / "postgres") as postgres:
        database = servers.make_migrated(postgres)
        async with (
            set_up_scene(tmp_path, logged_zookeeper, database) as scene,
            # What a recorder writes would make all durable that came before.
            scene.service(mutant, records=False) as leader,
        ):
            await ready(leader)
            async with scene.service(leads=False, records=False) as writer:
                await ready(writer)
                postgres.hold_back()
                call = await scene.put(writer, 1)
                assert call.status == 200
            await until_thread(lambda: not scene.zk.get_children(COMMITS))
            await asyncio.to_thread(postgres.crash_and_start)
            await scene.settled(1)
            expect_findings(scene, mutant, trail.REJECTED_APPLIED)


async def stalled(scene: Scene, service: Service, reached: Path) -> asyncio.Task[Call]:
    """Begin a write that stands still at its intent. A session this short may be lost before that, on a busy machine."""
    while True:
        writing = asyncio.create_task(scene.put(service, 1, step=True))
        await until_thread(partial(lambda task: reached.exists() or task.done(), writing))
        if not writing.done():
            return writing
        assert (await writing).status == 503


@pytest.mark.parametrize("mutant", [None, "no-writer-node"])
async def test_a_transaction_goes_out_under_a_session_that_kazoo_opened_by_itself(
    scene: Scene, mutant: str | None
) -> None:
    """Its session has ended, its change was settled, its abort marker was swept, and its client is connected again before
    the event loop has heard of any of it. Only its writer node, which is gone, is left to stand in its way.
    """
    go_on = scene.directory / "go-on"
    async with (
        scene.service(mutant) as other,
        proxy(scene.server.hosts) as line,
        scene.service(
            mutant,
            through=line,
            session_timeout_ms=2_000,
            leads=False,
            settings={mutants.STALL_VARIABLE: str(go_on)},
        ) as slow,
    ):
        await ready(other, slow)
        writing = await stalled(scene, slow, mutants.stalled(go_on))
        line.accepting = False
        line.cut()
        # The other one leads: settles it once its session is gone, and drops the abort marker after that.
        await scene.settled(1)
        await until_thread(lambda: not scene.zk.get_children(COMMITS))
        go_on.touch()
        line.accepting = True
        call = await writing
        assert (call.status == 503) == (mutant is None)
    expect_findings(scene, mutant, trail.REJECTED_APPLIED)
