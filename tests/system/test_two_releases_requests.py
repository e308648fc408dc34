"""An earlier release on the same change requests and plans, while this one writes what that one does not know."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import Entity
from confplane.services.requests.proposals import RequestTerms
from tests.integration.test_change_requests import BOB, DEV, OPS, started
from tests.integration.test_idempotency import opened
from tests.integration.test_manifest_requests import interrupt
from tests.integration.test_reverted_requests import applied, reverted
from tests.support.releases import EARLIER_REQUESTING, EARLIER_REVERTING, PRESENT, earlier
from tests.support.stores import ALICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from tests.support.service import Service
    from tests.support.world import World

PATH = "/change-requests"
MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    await asyncio.to_thread(service.start)
    try:
        async with opened(service) as http:
            yield http
    finally:
        await asyncio.to_thread(service.stop)


@pytest.fixture
def earlier_service(world: World, tmp_path: Path) -> Service:
    return earlier(tmp_path / "files", EARLIER_REQUESTING).service(world)


async def test_an_earlier_release_shows_and_applies_requests_that_revert_others(
    world: World, earlier_service: Service
) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2))
    revert = await reverted(one, first)
    await one.approve(revert, OPS)
    async with running(earlier_service) as http:

        async def states() -> list[tuple[str, list[str]]]:
            listed = (await http.get(PATH, params={"state": "applied"})).json()["items"]
            shown = [(await http.get(f"{PATH}/{each['id']}")).json() for each in listed]
            return [(each["id"], [event["state"] for event in each["events"]]) for each in shown]

        assert await states() == [(str(first.id), ["open", "approved", "applying", "applied", "applied"])]
        # The earlier release writes the request without the one that it reverts.
        answer = await http.post(f"{PATH}/{revert.id}:apply", json={})
        assert answer.status_code == 200, answer.text
        await one.pass_(2 * MINUTE)
        found = await one.found(first)
        assert (found.state, found.reverted_by) == ("reverted", revert.id)
        await one.service.reviews.comment(one.cluster, first.id, "thanks", one.caller(DEV))
        events = await one.service.reader.events(first)
        assert [(each.action, each.state) for each in events[-3:]] == [
            ("revert", "reverting"), ("finish-revert", "reverted"), ("comment", "reverted"),
        ]  # fmt: skip
        assert [request_id for request_id, _ in await states()] == [str(revert.id), str(first.id)]
        assert await one.store.ended_reverts("default", 9) == []
        assert await one.store.late("default", 9) == []


async def test_an_earlier_release_records_that_only_some_keys_are_reverted(
    world: World, earlier_service: Service
) -> None:
    one = await started(world)
    first = await applied(one, one.entry(ALICE, producer_byte_rate=2), one.entry(BOB, producer_byte_rate=2))
    await one.replica.alter(BOB, producer_byte_rate=7)
    revert = await reverted(one, first, partly=True)
    await one.approve(revert, OPS)
    async with running(earlier_service) as http:
        answer = await http.post(f"{PATH}/{revert.id}:apply", json={})
        assert answer.status_code == 200, answer.text
        await one.pass_(2 * MINUTE)
    found = await one.found(first)
    assert (found.state, found.reverted_by) == ("reverted-partly", revert.id)


@pytest.mark.parametrize("commit", [EARLIER_REQUESTING, EARLIER_REVERTING])
async def test_an_earlier_release_lists_requests_in_forms_that_it_does_not_know(
    world: World, tmp_path: Path, commit: str
) -> None:
    one = await started(world)
    entry = one.entry(ALICE, producer_byte_rate=2)
    caller = one.caller(DEV)
    draft = await one.service.proposals.create(one.cluster, [entry], RequestTerms(), caller, draft=True)
    both = one.manifest(entry, one.entry(BOB, producer_byte_rate=2))
    partly = await one.approve(await one.propose_manifest(DEV, both), OPS)
    await interrupt(one, partly, ALICE)
    await one.scheduler.round()
    proposed = await one.propose_manifest(DEV, both)
    other = one.entry(Entity.of(user="carol"), producer_byte_rate=2)
    first = await applied(one, other)
    revert = await reverted(one, first)
    plain = await one.propose(DEV, one.entry(BOB, request_percentage=5))
    made = [draft, partly, proposed, first, revert, plain]
    assert [await one.state(each) for each in made] == ["draft", "partly-applied", "open", "reverting", "open", "open"]
    service = earlier(tmp_path / "files", commit).service(world)
    async with running(service) as http:

        async def listed(**query: str | int) -> list[str]:
            found: list[str] = []
            token = ""
            while True:
                answer = await http.get(
                    PATH, params={**query, "pageSize": 2, **({"pageToken": token} if token else {})}
                )
                assert answer.status_code == 200, answer.text
                page = answer.json()
                found += [each["id"] for each in page["items"]]
                if not (token := page.get("nextPageToken")):
                    return found

        expected = [str(each.id) for each in reversed(made)]
        assert await listed() == expected
        assert await listed(state="open") == [str(each.id) for each in (plain, revert, proposed)]
        assert await listed(entity=BOB.id) == [str(each.id) for each in (plain, proposed, partly)]
        for request in made:
            answer = await http.get(f"{PATH}/{request.id}")
            assert answer.status_code == 200, answer.text
        # What the earlier release does with the others is not disturbed either.
        await http.post(f"{PATH}/{plain.id}:comment", json={"comment": "fine"})
        applying = await one.approve(plain, OPS)
        answer = await http.post(f"{PATH}/{applying.id}:apply", json={})
        assert (answer.status_code, answer.json()["state"]) == (200, "applied"), answer.text
        # It does not act on what is a draft, and the present release continues the run.
        assert await one.state(draft) == "draft"
    assert (await one.found(partly)).state == "partly-applied"


def manifest(names: str) -> dict[str, Any]:
    return {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "entities": [{"id": f"user={name}", "quotas": {"producer_byte_rate": 1}} for name in names],
    }


async def test_both_releases_make_the_same_plan_where_no_policies_are_asked(
    world: World, earlier_service: Service
) -> None:
    body = manifest("ab")
    async with running(earlier_service) as before, running(PRESENT.service(world)) as now:
        plans = [(await http.post("/manifests:plan", json=body)).json()["planId"] for http in (before, now)]
        assert plans[0] == plans[1]
        answer = await now.post("/manifests:apply", json={**body, "planId": plans[0]})
        assert (answer.status_code, answer.json()["failed"]) == (200, 0), answer.text
