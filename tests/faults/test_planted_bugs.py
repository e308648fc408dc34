"""Each planted bug is found: the checker finds nothing in a scenario with the service as it is, and finds a violation in
the same scenario with the bug.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.faults import planted_bugs
from tests.faults.checker import check
from tests.faults.checks import answers, external, feed, reads, refusals, requests, trail
from tests.faults.ensemble import Ensemble
from tests.faults.scenario import CHANGES, COMMITS, NODE, open_scenario, path_of, ready
from tests.faults.world import rules
from tests.support import servers
from tests.support.forgetful import Forgetful
from tests.support.processes import stopped
from tests.support.proxy import proxy
from tests.support.stepping import STEP_FILE_VARIABLE, STEP_VARIABLE
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.faults.ensemble import LoggedZooKeeper
    from tests.faults.history import Call
    from tests.faults.scenario import Scenario
    from tests.support.servers import Database
    from tests.support.service import Service


def expect_findings(scenario: Scenario, bug: str | None, *expected: str) -> None:
    """Assert that the checker finds at least one of the expected violations with a bug, and nothing without one."""
    found = check(scenario.collected())
    findings = "\n".join(map(str, found))
    if bug is None:
        assert not found, findings
    else:
        assert rules(found) & set(expected), findings


@pytest.mark.parametrize("bug", [None, "no-version-check"])
async def test_a_write_meets_one_that_its_mirror_has_not_seen(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        scenario.write_externally(2, notified=False)
        call = await scenario.put(service, 3)
        assert call.status == 200
        await scenario.recorded()
    # It was planned on the first of the three, whatever it reports as its result.
    expect_findings(scenario, bug, trail.UNSEEN, trail.OTHER_VERSION)


@pytest.mark.parametrize("bug", [None, "mirror-decides"])
async def test_a_write_has_nothing_to_do_on_a_lagging_mirror(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        scenario.write_externally(2, notified=False)
        call = await scenario.put(service, 1)
        assert call.status == 200
        assert (call.change_id is not None) == (bug is None)
        await scenario.recorded()
    expect_findings(scenario, bug, answers.NOT_SO)


@pytest.mark.parametrize("bug", [None, "mirror-decides"])
async def test_a_precondition_fails_on_a_lagging_mirror(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service:
        await ready(service)
        await scenario.recorded()
        wanted = await scenario.put(service, 1)
        await scenario.put(service, 2)
        scenario.write_externally(1, notified=False)
        call = await scenario.put(service, 3, if_match=wanted.etag)
        assert call.status == (200 if bug is None else 412)
        await scenario.recorded()
    expect_findings(scenario, bug, refusals.CAUSELESS)


@pytest.mark.parametrize("bug", [None, "outcome-before-commit"])
async def test_a_process_dies_once_an_outcome_is_durable(scenario: Scenario, bug: str | None) -> None:
    step = scenario.directory / "step"
    # The one that dies neither settles nor records, which writes outcomes as well: it would die before its second write.
    # The other one may see the revision that was foretold before ZooKeeper reaches it, and must go on nevertheless.
    async with (
        scenario.service(bug, leads=False, records=False, settings={STEP_FILE_VARIABLE: str(step)}) as one,
        scenario.service(bug and "positions-unchecked") as two,
    ):
        await ready(one, two)
        await scenario.put(one, 1)
        step.write_text("outcome:SIGKILL")
        call = await scenario.put(one, 2)
        assert (call.status, step.with_suffix(".taken").exists()) == (None, True), call
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        assert (await scenario.put(two, 3)).status == 200
        await scenario.settled(3)
        await scenario.recorded()
    # If it was never sent, another's transaction may have got the revision that was foretold.
    expect_findings(scenario, bug, trail.NEVER_WAS, trail.UNMARKED)


@pytest.mark.parametrize("bug", [None, "no-marker"])
async def test_the_reply_to_an_applied_write_is_lost(scenario: Scenario, bug: str | None) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        await scenario.put(service, 1)
        line.lose(replies=True)
        writing = asyncio.create_task(scenario.put(service, 2))
        await until_thread(lambda: scenario.zk.exists(NODE).version == 1)
        line.restore()
        call = await writing
        assert (call.status == 200) == (bug is None)
        await scenario.settled(2)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("bug", [None, "no-last-marker"])
async def test_the_reply_to_a_bulk_that_was_applied_is_lost(scenario: Scenario, bug: str | None) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        call = await scenario.alter(service, {"alice": 1, "bob": 1})
        assert call.status == 200
        line.lose(replies=True)
        writing = asyncio.create_task(scenario.alter(service, {"alice": 2, "bob": 2}))
        await until_thread(lambda: scenario.zk.exists(NODE).version == 1)
        line.restore()
        call = await writing
        # Each is settled by its own marker.
        assert call.status == (200 if bug is None else 207)
        await scenario.settled(4)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED, trail.UNMARKED)


@pytest.mark.parametrize("bug", [None, "no-last-marker"])
async def test_each_change_of_a_bulk_has_its_marker(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service:
        await ready(service)
        await scenario.recorded()
        call = await scenario.alter(service, {"alice": 1, "bob": 1, "carol": 1})
        assert len({result.revision for result in call.results}) == 1
        await scenario.recorded()
    expect_findings(scenario, bug, trail.UNMARKED)


@pytest.mark.parametrize("bug", [None, "refused-taken-for-applied"])
async def test_one_of_a_bulk_meets_a_write_that_its_mirror_has_not_seen(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        scenario.write_externally(2, notified=False)
        call = await scenario.alter(service, {"bob": 3, "alice": 3, "carol": 3})
        assert call.status == 200
        bob, alice, carol = call.results
        assert bob.revision == carol.revision
        # The refused row is sent alone, later.
        assert (alice.revision == bob.revision) == (bug is not None)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.NEVER_WAS)


@pytest.mark.parametrize("bug", [None, "shared-in-the-order-of-arrival"])
async def test_changes_of_several_callers_share_a_transaction(scenario: Scenario, bug: str | None) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        await scenario.recorded()
        begun = await scenario.put_together(service, line, {"alice": 3, "bob": 4, "carol": 5})
        line.replies.set()
        await asyncio.gather(*begun)
        assert len({scenario.zk.exists(path_of(user)).mzxid for user in ("alice", "bob", "carol")}) == 1
        await scenario.recorded()
    expect_findings(scenario, bug, trail.OTHER_ORDER)


@pytest.mark.parametrize("bug", [None, "refused-taken-for-applied"])
async def test_one_of_several_callers_meets_a_write_that_its_mirror_has_not_seen(
    scenario: Scenario, bug: str | None
) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        begun = await scenario.put_together(service, line, {"bob": 3, "alice": 3, "carol": 3})
        scenario.write_externally(2, notified=False)
        line.replies.set()
        _, _, bob, alice, carol = await asyncio.gather(*begun)
        assert [call.status for call in (bob, alice, carol)] == [200] * 3
        # Not the revisions of the answers: these are of the mirror, which may be ahead of a change.
        wrote = {user: scenario.zk.exists(path_of(user)).mzxid for user in ("bob", "alice", "carol")}
        assert wrote["bob"] == wrote["carol"]
        # The refused change is sent alone, later, or never.
        assert (wrote["alice"] > wrote["bob"]) == (bug is None)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.NEVER_WAS)


@pytest.mark.parametrize("bug", [None, "shared-sent-again"])
async def test_the_reply_to_a_transaction_of_several_callers_is_lost(scenario: Scenario, bug: str | None) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        before = scenario.zk.exists(NODE).version
        begun = await scenario.put_together(service, line, {"alice": 3, "bob": 3})
        line.holding_after = b'"producer_byte_rate":"3"'
        line.replies.set()
        await until_thread(lambda: scenario.zk.exists(NODE).version > before)
        line.holding_after = None
        line.restore()
        calls = await asyncio.gather(*begun)
        assert bug is not None or [call.status for call in calls] == [200] * 4
        await scenario.settled(7)
        if bug is None:
            await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("bug", [None, "settled-by-reading"])
async def test_a_transaction_comes_after_its_change_was_settled(scenario: Scenario, bug: str | None) -> None:
    # The one takes a change for abandoned after a second, the other is in no hurry.
    async with (
        scenario.service(bug, deadline_ms=500) as impatient,
        scenario.service(bug, leads=False, settings={STEP_VARIABLE: "intent:SIGSTOP"}) as slow,
    ):
        await ready(impatient, slow)
        writing = asyncio.create_task(scenario.put(slow, 1, step=True))
        await until_thread(lambda: stopped(slow.pid))
        try:
            await scenario.settled(1)
        finally:
            os.kill(slow.pid, signal.SIGCONT)
        call = await writing
        assert (call.status == 503) == (bug is None)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("bug", [None, "fresh-for-ever"])
async def test_a_lost_reply_is_settled_after_its_marker_was_swept(scenario: Scenario, bug: str | None) -> None:
    async with (
        scenario.service(bug, deadline_ms=500) as impatient,
        proxy(scenario.server.hosts) as line,
        scenario.service(bug, through=line, leads=False) as slow,
    ):
        await ready(impatient, slow)
        await scenario.put(slow, 1)
        line.lose(replies=True)
        writing = asyncio.create_task(scenario.put(slow, 2))
        await until_thread(lambda: scenario.zk.exists(NODE).version == 1)
        line.accepting = False
        line.restore()
        # The other one takes it for abandoned, settles it as committed, and drops its marker after that.
        await scenario.settled(2)
        await until_thread(lambda: not scenario.zk.get_children(COMMITS))
        line.accepting = True
        call = await writing
        assert call.status == (200 if bug is None else 503)
        await scenario.recorded()
    expect_findings(scenario, bug, answers.NOT_APPLIED)


@pytest.mark.parametrize("bug", [None, "markers-go-once-read"])
async def test_postgres_crashes_after_a_marker_was_swept(
    tmp_path: Path, logged_zookeeper: LoggedZooKeeper, bug: str | None
) -> None:
    with Forgetful(tmp_path / "postgres") as postgres:
        database = servers.make_migrated(postgres)
        async with (
            open_scenario(tmp_path, logged_zookeeper, database) as scenario,
            # What a recorder writes would make all durable that came before.
            scenario.service(bug, records=False) as leader,
        ):
            await ready(leader)
            async with scenario.service(leads=False, records=False) as writer:
                await ready(writer)
                postgres.hold_back()
                call = await scenario.put(writer, 1)
                assert call.status == 200
            await until_thread(lambda: not scenario.zk.get_children(COMMITS))
            await asyncio.to_thread(postgres.crash_and_start)
            await scenario.settled(1)
            expect_findings(scenario, bug, trail.REJECTED_APPLIED)


async def stalled(scenario: Scenario, service: Service, reached: Path) -> asyncio.Task[Call]:
    """Begin a write that stalls at its intent. On a busy machine a session this short may be lost before that."""
    while True:
        writing = asyncio.create_task(scenario.put(service, 1, step=True))
        await until_thread(partial(lambda task: reached.exists() or task.done(), writing))
        if not writing.done():
            return writing
        assert (await writing).status == 503


@pytest.mark.parametrize("bug", [None, "no-writer-node"])
async def test_a_transaction_goes_out_under_a_session_that_kazoo_opened_by_itself(
    scenario: Scenario, bug: str | None
) -> None:
    """Its session has ended, its change was settled, its abort marker was swept, and its client is connected again before
    the event loop has heard of any of it. Only its missing writer node keeps it from committing.
    """
    go_on = scenario.directory / "go-on"
    async with (
        scenario.service(bug) as other,
        proxy(scenario.server.hosts) as line,
        scenario.service(
            bug,
            through=line,
            session_timeout_ms=2_000,
            leads=False,
            settings={planted_bugs.STALL_VARIABLE: str(go_on)},
        ) as slow,
    ):
        await ready(other, slow)
        writing = await stalled(scenario, slow, planted_bugs.stalled(go_on))
        line.accepting = False
        line.cut()
        # The other one leads: settles it once its session is gone, and drops the abort marker after that.
        await scenario.settled(1)
        await until_thread(lambda: not scenario.zk.get_children(COMMITS))
        go_on.touch()
        line.accepting = True
        call = await writing
        assert (call.status == 503) == (bug is None)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED)


# ---------------------------------------------------------------- a partitioned or killed follower


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    """Three ZooKeeper servers that can be partitioned."""
    async with AsyncExitStack() as stack:
        servers = Ensemble(tmp_path / "ensemble")
        await servers.add_proxies(stack)
        stack.push_async_callback(asyncio.to_thread, servers.stop)
        await asyncio.to_thread(servers.start)
        yield servers


@pytest.mark.parametrize("bug", [None, "strong-read-without-write"])
async def test_a_strong_read_through_a_follower_that_is_partitioned(
    tmp_path: Path, ensemble: Ensemble, migrated: Database, bug: str | None
) -> None:
    leader = ensemble.leader()
    assert leader is not None
    follower = (leader + 1) % len(ensemble.members)
    async with (
        open_scenario(tmp_path, ensemble, migrated) as scenario,
        proxy(ensemble.members[follower].hosts) as line,
        proxy(ensemble.members[leader].hosts) as to_leader,
        scenario.service(bug, through=line, deadline_ms=2_000, leads=False) as behind,
        scenario.service(bug, through=to_leader) as service,
    ):
        await ready(behind, service)
        await scenario.recorded()
        first = await scenario.put(service, 1)
        assert (await scenario.get(behind, min_revision=first.revision)).status == 200
        ensemble.partition(follower)
        assert (await scenario.put(service, 2)).status == 200
        call = await scenario.get(behind, strong=True)
        assert call.status == (503 if bug is None else 200)
        ensemble.heal(follower)
        await scenario.recorded()
        expect_findings(scenario, bug, reads.STALE)


@pytest.mark.parametrize("bug", [None, "no-marker"])
async def test_the_follower_of_a_replica_is_killed_before_it_forwards_a_reply(
    tmp_path: Path, ensemble: Ensemble, migrated: Database, bug: str | None
) -> None:
    leader = ensemble.leader()
    assert leader is not None
    follower = ensemble.members[(leader + 1) % len(ensemble.members)]
    async with (
        open_scenario(tmp_path, ensemble, migrated) as scenario,
        proxy(follower.hosts) as line,
        scenario.service(bug, through=line) as service,
    ):
        await ready(service)
        await scenario.put(service, 1)
        line.lose(replies=True)
        writing = asyncio.create_task(scenario.put(service, 2))
        await until_thread(lambda: scenario.zk.exists(NODE).version == 1)
        await asyncio.to_thread(follower.kill)
        line.restore()
        await asyncio.to_thread(ensemble.start)
        call = await writing
        assert (call.status == 200) == (bug is None)
        await scenario.settled(2)
        await scenario.recorded()
        expect_findings(scenario, bug, trail.REJECTED_APPLIED)


# ---------------------------------------------------------------- notifications, requests and responses that are lost


@pytest.mark.parametrize("bug", [None, "gap-ignored"])
async def test_a_notification_is_deleted_before_a_replica_read_it(scenario: Scenario, bug: str | None) -> None:
    async with proxy(scenario.server.hosts) as line, scenario.service(bug, through=line) as service:
        await ready(service)
        await scenario.recorded()
        await scenario.put(service, 1)
        before = set(scenario.zk.get_children(CHANGES))
        line.replies.clear()
        scenario.write_externally(2, notified=True)
        for name in set(scenario.zk.get_children(CHANGES)) - before:
            scenario.zk.delete(f"{CHANGES}/{name}")
        line.replies.set()
        await scenario.get(service, strong=True)
        await scenario.put(service, 3, user="bob")
        if bug is None:
            await scenario.recorded()
    expect_findings(scenario, bug, reads.STALE, reads.OLDER_THAN_TOLD)


@pytest.mark.parametrize("bug", [None, "intent-not-awaited"])
async def test_the_request_with_an_intent_is_lost(scenario: Scenario, bug: str | None) -> None:
    async with (
        proxy(scenario.postgres) as line,
        scenario.service(bug, postgres=line, deadline_ms=2_000, leads=False) as service,
        scenario.service() as leader,
    ):
        await ready(service, leader)
        await scenario.recorded()
        await scenario.put(service, 1)
        line.lose(requests=True)
        call = await scenario.put(service, 2)
        assert bug is not None or call.status == 503
        line.restore()
        await scenario.put(leader, 3)
        await scenario.recorded()
    # The recorder finds the change by its marker, but not what was requested.
    expect_findings(scenario, bug, requests.OTHER_REQUEST)


@pytest.mark.parametrize("bug", [None, "keys-forgotten"])
async def test_the_response_to_a_request_with_a_key_is_lost(scenario: Scenario, bug: str | None) -> None:
    async with scenario.service(bug) as service, proxy(f"127.0.0.1:{service.port}") as http:
        await ready(service)
        await scenario.recorded()
        http.lose(replies=True)
        writing = asyncio.create_task(scenario.put(service, 1, key="k", through=http))
        await scenario.settled(1)
        http.restore()
        first = await writing
        assert first.status is None
        await scenario.put(service, 2)
        again = await scenario.put(service, 1, key="k", resend_of=first, through=http)
        assert again.status == 200
        assert again.replayed == (bug is None)
        await scenario.recorded()
    expect_findings(scenario, bug, answers.KEY_TWICE)


# ---------------------------------------------------------------- kills of the leader

SHORT_SESSION_MS = 4_000
"""The session timeout of services whose successors have to wait for it."""


@pytest.mark.parametrize("bug", [None, "nothing-compared"])
async def test_the_next_leader_is_killed_as_it_takes_over(scenario: Scenario, bug: str | None) -> None:
    step = scenario.directory / "step"
    async with scenario.service(session_timeout_ms=SHORT_SESSION_MS) as first:
        await ready(first)
        await scenario.recorded()
        await scenario.put(first, 1)
        await scenario.recorded()
        settings = {STEP_FILE_VARIABLE: str(step)}
        async with scenario.service(session_timeout_ms=SHORT_SESSION_MS, settings=settings) as second:
            await ready(second)
            step.write_text("lead:SIGKILL")
            await asyncio.to_thread(first.stop, kill=True)
            scenario.write_externally(2, notified=True)
            await until_thread(lambda: not second.running)
    async with scenario.service(bug) as third:
        await ready(third)
        await scenario.recorded()
    expect_findings(scenario, bug, external.NO_TRAIL)


@pytest.mark.parametrize("bug", [None, "settled-marker-dropped"])
async def test_the_leader_is_killed_after_it_dropped_a_marker(scenario: Scenario, bug: str | None) -> None:
    step = scenario.directory / "step"
    step.write_text("swept:SIGKILL")
    settings = {STEP_FILE_VARIABLE: str(step)}
    async with scenario.service(leads=False, settings={STEP_VARIABLE: "transaction:SIGKILL"}) as writer:
        await ready(writer)
        call = await scenario.put(writer, 1, step=True)
        assert call.status is None
    async with scenario.service(bug, deadline_ms=500, session_timeout_ms=SHORT_SESSION_MS, settings=settings) as leader:
        await until_thread(lambda: not leader.running)
    async with scenario.service(bug, deadline_ms=500) as successor:
        await ready(successor)
        await scenario.settled(1)
        await scenario.recorded()
    expect_findings(scenario, bug, trail.REJECTED_APPLIED)


@pytest.mark.parametrize("bug", [None, "feed-passes-over"])
async def test_a_process_dies_before_the_outcome_that_a_feed_waits_for(scenario: Scenario, bug: str | None) -> None:
    step = scenario.directory / "step"
    async with scenario.service(settings={STEP_FILE_VARIABLE: str(step)}) as one, scenario.service(bug) as two:
        await ready(one, two)
        await scenario.recorded()
        reader = await scenario.follow(two)
        await scenario.put(one, 1)
        step.write_text("transaction:SIGKILL")
        await scenario.put(one, 2, step=True)
        assert await asyncio.to_thread(one.stop, kill=True) == -signal.SIGKILL
        await scenario.put(two, 3, user="bob")
        await scenario.settled(3)
        await scenario.recorded()
        await reader.stop()
    expect_findings(scenario, bug, feed.MISSED)
