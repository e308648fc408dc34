"""Dry runs before a commit: shared requests, each entity once in each, and every caller gets an answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from confplane.domain.entities import Entity
from confplane.domain.errors import UnavailableError
from confplane.services.kraft.apply import dry_run as asking_module
from confplane.services.kraft.apply.dry_run import DryRunValidator
from confplane.services.ports.applying import AlterApplied, AlterRetriable, AlterUnknown, DryRunResult
from confplane.services.ports.cluster_states import Target, TargetMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.services.ports.applying import Alteration, AlterOutcome

TOPICS = [Entity.of(topic=f"t{at}") for at in range(3)]


class Cluster:
    """A cluster that answers when it is let."""

    def __init__(self) -> None:
        self.requests: list[list[Entity]] = []
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.error: Exception | None = None
        self.end: AlterOutcome = AlterApplied()
        self.topic_ids_of: dict[str, str] | Exception = {}

    async def topic_ids(self, names: Sequence[str], _: float) -> dict[str, str]:
        if isinstance(self.topic_ids_of, Exception):
            raise self.topic_ids_of
        return {name: self.topic_ids_of[name] for name in names if name in self.topic_ids_of}

    async def alter_configs(self, asked: Sequence[Alteration], _: float, *, validate_only: bool) -> list[AlterOutcome]:
        assert validate_only
        self.requests.append([each.entity for each in asked])
        self.asked.set()
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return [self.end] * len(asked)


def dry_run_validator(cluster: Cluster, mode: TargetMode = TargetMode.ADOPT) -> DryRunValidator:
    async def no_secrets(*_: object) -> dict[str, Any]:
        return {}

    store: Any = SimpleNamespace(name="c", target=lambda: Target("id", mode), get=lambda *_: None)
    return DryRunValidator(cast("Any", cluster), store, cast("Any", None), cast("Any", SimpleNamespace(of=no_secrets)))


async def test_validations_that_arrive_during_a_request_share_the_next_one() -> None:
    cluster = Cluster()
    asking = dry_run_validator(cluster)
    first, second, third = TOPICS
    asked = [asyncio.create_task(asking.validate(first, {"k": "v"}, ["k"], None))]
    await cluster.asked.wait()
    asked += [asyncio.create_task(asking.validate(each, {"k": "v"}, ["k"], None)) for each in (second, third, second)]
    for _ in range(10):
        await asyncio.sleep(0)
    cluster.answers.set()
    assert await asyncio.gather(*asked) == [DryRunResult()] * 4
    assert cluster.requests == [[first], [second, third], [second]]


async def test_a_failed_question_is_answered_too() -> None:
    cluster = Cluster()
    cluster.answers.set()
    cluster.error = RuntimeError("a defect")
    asked = await dry_run_validator(cluster).validate(TOPICS[0], {}, ["k"], None)
    assert "the log has the error" in "".join(asked.warnings)


async def test_a_missing_right_is_a_warning() -> None:
    cluster = Cluster()
    cluster.answers.set()
    cluster.end = AlterRetriable("The alter is not permitted")
    asked = await dry_run_validator(cluster).validate(TOPICS[0], {}, ["k"], None)
    assert "".join(asked.warnings).endswith("The alter is not permitted")


async def test_an_unexpected_answer_is_a_warning_and_silences_nobody() -> None:
    cluster = Cluster()
    cluster.answers.set()
    cluster.end = AlterUnknown("UNKNOWN_SERVER_ERROR (code -1)", -1)
    asking = dry_run_validator(cluster)
    for _ in range(2):
        asked = await asking.validate(TOPICS[0], {}, ["k"], None)
        assert "".join(asked.warnings).endswith("UNKNOWN_SERVER_ERROR (code -1)")
    assert len(cluster.requests) == 2


async def test_an_observed_cluster_is_not_asked() -> None:
    cluster = Cluster()
    assert await dry_run_validator(cluster, TargetMode.OBSERVE).validate(TOPICS[0], {}, ["k"], None) == DryRunResult()
    assert cluster.requests == []


async def test_the_answer_about_a_topic_has_its_id_at_the_time_of_the_question() -> None:
    cluster = Cluster()
    cluster.answers.set()
    asking = dry_run_validator(cluster)
    cluster.topic_ids_of = {"t0": "id0"}
    assert await asking.validate(TOPICS[0], {}, ["k"], None) == DryRunResult(topic_id="id0")
    assert await asking.validate(TOPICS[1], {}, ["k"], None) == DryRunResult()
    assert await asking.validate(Entity.of(group="t0"), {}, ["k"], None) == DryRunResult()
    # Without the right to describe topics, a change goes on without it.
    cluster.topic_ids_of = UnavailableError("DESCRIBE is missing")
    assert await asking.validate(TOPICS[0], {}, ["k"], None) == DryRunResult()
    # A defect beside the question leaves nobody without an answer.
    cluster.topic_ids_of = RuntimeError("a defect")
    assert await asking.validate(TOPICS[0], {}, ["k"], None) == DryRunResult()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question waits a twentieth of a second."""
    monkeypatch.setattr(asking_module, "ANSWER_S", 0.05)


@pytest.mark.usefixtures("hurried")
async def test_no_question_waits_for_a_cluster_that_hangs() -> None:
    """The cluster keeps to no deadline; the line to it may hang anywhere."""
    cluster = Cluster()
    asking = dry_run_validator(cluster)
    asked = await asking.validate(TOPICS[0], {}, ["k"], None)
    assert "".join(asked.warnings).endswith("No answer came within 0 seconds")
    # Nobody is asked for a while, and then a question behind the hung request waits no longer either.
    assert (await asking.validate(TOPICS[1], {}, ["k"], None)).warnings == asked.warnings
    asking._backoff.clear()
    assert (await asking.validate(TOPICS[1], {}, ["k"], None)).warnings == asked.warnings
    assert cluster.requests == [[TOPICS[0]]]
    asking._backoff.clear()
    cluster.answers.set()
    await asyncio.wait(asking._tasks.values())
    assert await asking.validate(TOPICS[1], {}, ["k"], None) == DryRunResult()
    # Those that gave up are not asked about any more.
    assert cluster.requests == [[TOPICS[0]], [TOPICS[1]]]


async def test_a_caller_that_arrives_during_an_unanswered_request_waits_no_longer_than_it() -> None:
    cluster = Cluster()
    asking = dry_run_validator(cluster)
    cluster.error = UnavailableError("No broker answers")
    asked = [asyncio.create_task(asking.validate(TOPICS[0], {}, ["k"], None))]
    await cluster.asked.wait()
    asked.append(asyncio.create_task(asking.validate(TOPICS[1], {}, ["k"], None)))
    for _ in range(10):
        await asyncio.sleep(0)
    cluster.answers.set()
    assert {each.warnings for each in await asyncio.gather(*asked)} == {
        ("The Kafka cluster was not asked whether it takes the change: No broker answers",)
    }
    assert cluster.requests == [[TOPICS[0]]]
