"""Reverts over the API: retried through another process, at once in two processes, and under an ETag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from confplane.client import ProblemError
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from tests.support.service import Service

RATE: Final = "producer_byte_rate"


async def test_a_revert_sent_again_through_another_process_is_done_once(pair: tuple[Service, Service]) -> None:
    entity, key = Entity.of(user="again"), "revert, once"
    async with pair[0].client() as one, pair[1].client() as two:
        await one.put("client-quotas", entity, {RATE: 1})
        wrong = await one.put("client-quotas", entity, {RATE: 2})
        selection = {"changeId": str(wrong.change_id)}
        first = await one.revert_changes(selection, reason="undo", idempotency_key=key)
        again = await two.revert_changes(selection, idempotency_key=key)
        assert (again.body, again.change_id, again.revision) == (first.body, first.change_id, first.revision)
        assert (first.replayed, again.replayed) == (False, True)
        shown = await two.get("client-quotas", entity, min_revision=first.revision)
        assert shown.body["quotas"] == {RATE: 1}
        newest = (await two.request("GET", "audit", params={"entity": entity.id})).body["items"]
        assert [each["reverts"] for each in newest] == [[wrong.change_id], None, None]
        assert newest[0]["reason"] == "undo"
        with pytest.raises(ProblemError) as caught:
            await two.revert_changes({**selection, "principal": "User:x"}, idempotency_key=key)
        assert caught.value.status in {400, 422}


async def test_reverts_of_one_change_at_once_in_two_processes_write_once(pair: tuple[Service, Service]) -> None:
    entity = Entity.of(user="both")
    async with pair[0].client() as one, pair[1].client() as two:
        wrong = await one.put("client-quotas", entity, {RATE: 2})
        selection = {"changeId": str(wrong.change_id)}
        await two.get("client-quotas", entity, min_revision=wrong.revision)
        answers = await asyncio.gather(*(each.revert_changes(selection) for each in (one, two) * 3))
        assert len([each for each in answers if each.change_id is not None]) == 1
        assert len([item async for item in two.items("audit", entity=entity.id, outcome="committed")]) == 2


async def test_an_entity_goes_back_over_the_api(pair: tuple[Service, Service]) -> None:
    entity = Entity.of(user="back")
    await asyncio.to_thread(pair[0].wait_recorded)
    async with pair[0].client() as one:
        first = await one.put("client-quotas", entity, {RATE: 1})
        second = await one.put("client-quotas", entity, {"consumer_byte_rate": 2})
        assert first.revision is not None
        with pytest.raises(ProblemError) as caught:
            await one.revert("client-quotas", entity, first.revision, if_match=first.etag)
        assert caught.value.status == 412
        shown = await one.revert("client-quotas", entity, first.revision, if_match=second.etag, validate_only=True)
        assert (shown.change_id, [each["key"] for each in shown.body["diff"]]) == (None, ["consumer_byte_rate", RATE])
        done = await one.revert("client-quotas", entity, first.revision, if_match=second.etag)
        assert done.body["reverts"] == [second.change_id]
        assert (await one.get("client-quotas", entity)).body["quotas"] == {RATE: 1}
