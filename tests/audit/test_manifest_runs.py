"""The runs of plans in Postgres: one request at a time executes a plan, and one plan of an owner is executed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from confplane.audit import PostgresManifestRuns
from confplane.services.ports.manifest_runs import ManifestRun

if TYPE_CHECKING:
    from confplane.audit import Database

RUN = ManifestRun("payments", "plan", "request", "writer", b"bases")


@pytest.mark.parametrize("owner", [None, "team"])
async def test_a_request_whose_time_was_up_does_not_end_the_run_of_the_next_one(
    pool: Database, owner: str | None
) -> None:
    runs, run = PostgresManifestRuns(pool), replace(RUN, owner=owner)
    assert await runs.begin(run, 0)
    found = await runs.find(run.cluster, run.plan_id)
    assert found is not None
    assert await runs.resume(found, "another writer", 60)
    await runs.end(run)
    found = await runs.find(run.cluster, run.plan_id)
    assert found is not None
    assert (found.in_time, found.writer) == (True, "another writer")
    await runs.end(found)
    found = await runs.find(run.cluster, run.plan_id)
    assert found is not None
    assert not found.in_time


async def test_a_run_continues_if_the_reply_to_its_resumption_is_lost(pool: Database) -> None:
    runs = PostgresManifestRuns(pool)
    assert await runs.begin(RUN, 0)
    found = await runs.find(RUN.cluster, RUN.plan_id)
    assert found is not None
    assert await runs.resume(found, "another writer", 60)
    # The statement is sent again.
    assert await runs.resume(found, "another writer", 60)
    assert not await runs.resume(found, "a third writer", 60)


async def test_another_plan_of_an_owner_is_refused_also_under_the_same_request_id(pool: Database) -> None:
    runs, run = PostgresManifestRuns(pool), replace(RUN, owner="team")
    assert await runs.begin(run, 60)
    assert not await runs.begin(replace(run, plan_id="another plan"), 60)
    assert await runs.find(run.cluster, "another plan") is None
    # The statement may be sent again after a lost reply.
    assert await runs.begin(run, 60)


@pytest.mark.parametrize("owner", [None, "team"])
async def test_a_request_with_the_same_request_id_does_not_take_a_run_over(pool: Database, owner: str | None) -> None:
    runs, run = PostgresManifestRuns(pool), replace(RUN, owner=owner)
    assert await runs.begin(run, 60)
    assert not await runs.begin(replace(run, writer="another writer"), 60)
    found = await runs.find(run.cluster, run.plan_id)
    assert found is not None
    assert found.writer == "writer"
