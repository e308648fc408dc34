from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.client.dynamic import (
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
    Library,
    reports,
)
from confplane.client.dynamic.swap import SwappedConsumer
from confplane.client.dynamic.swap_async import AsyncSwappedConsumer
from tests.support.waiting import run_ready_tasks, until
from tests.unit.client.dynamic.scripted import OWN, Answering, body, values

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBLEM = {"title": "Refused", "detail": "for a reason"}


class FakeService:
    """A service with some configs at a revision, which takes reports or refuses them."""

    def __init__(self, **configs: str) -> None:
        self.revision = 1
        self.configs = configs
        self.polls_refused: httpx.Response | None = None
        self.reports_refused: httpx.Response | None = None
        self.polls = 0
        self.reports: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.service = Answering("http://confplane.test", "alice", "secret", answer=self._answer)
        self._turns: asyncio.Queue[None] = asyncio.Queue()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.paths.add(request.url.path)
            self.reports.append(body(request))
            return self.reports_refused or httpx.Response(200, json={"forgottenAfterMs": 900_000})
        self.polls += 1
        if self.polls_refused is not None:
            return self.polls_refused
        answer = values(request, f'"{sorted(self.configs.items())}"', **self.configs)
        answer.headers["Confplane-Revision"] = str(self.revision)
        return answer

    async def sleep(self, seconds: float) -> None:
        """The pause between polls: until the next :meth:`poll`."""
        if seconds:
            await self._turns.get()

    def poll(self) -> None:
        self._turns.put_nowait(None)

    def options(self, **given: Any) -> dict[str, Any]:
        return {"library": CONFLUENT_KAFKA, "service": self.service, "sleep": self.sleep, **given}

    async def says(self, revision: int, **refused: str) -> None:
        """Wait until the last report is this one."""
        wanted = [{"key": key.replace("_", "."), "reason": reason} for key, reason in refused.items()]
        await until(
            lambda: (
                self.reports
                and (self.reports[-1]["appliedRevision"], self.reports[-1]["refused"]) == (str(revision), wanted)
            ),
            why=lambda: self.reports,
        )


class Choosy:
    """Refuses the settings for which there is a reason, and fails while it is told to."""

    def __init__(self, **reasons: str) -> None:
        self.reasons = reasons
        self.failing = False

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        if reason := self.reasons.get(settings.get("acks", "own")):
            raise ValueError(reason)

    def reconfigure(self, _: Mapping[str, Any]) -> None:
        if self.failing:
            raise RuntimeError("not now")


@pytest.fixture
def _each_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls as if four minutes lay between them."""
    monkeypatch.setattr(reports, "FRESH_S", 0)


async def test_between_two_polls_of_four_minutes_changes_alone_are_reported() -> None:
    told = FakeService(acks="all")
    async with AsyncDynamicProducerConfig(OWN, **told.options()) as dynamic:
        await told.says(1)
        for revision in range(2, 5):  # of changes elsewhere
            told.revision, polls = revision, told.polls
            told.poll()
            await until(lambda: told.polls > polls)  # noqa: B023 - is called at once
        told.revision, told.configs = 5, {"acks": "1"}
        told.poll()
        await told.says(5)
        told.revision, told.configs = 6, {"acks": "1", "linger.ms": "5"}
        told.poll()
        await until(lambda: len(told.reports) == 3)
        assert dynamic.decision.dropped
    assert [report["appliedRevision"] for report in told.reports] == ["1", "5", "6"]


@pytest.mark.usefixtures("_each_poll")
async def test_each_answer_that_the_client_runs_with_is_reported() -> None:
    told = FakeService(acks="all")
    async with AsyncDynamicProducerConfig(OWN, **told.options(instance="billing-7")):
        await told.says(1)
        told.revision = 2
        told.poll()
        await told.says(2)
        told.revision, told.configs = 3, {"acks": "1"}
        told.poll()
        await told.says(3)
    software = {"softwareName": "confluent-kafka", "softwareVersion": CONFLUENT_KAFKA.version}
    assert told.reports[0] == {**software, "appliedRevision": "1", "refused": []}
    assert told.paths == {"/v1/clusters/default/client-configs/user=alice,client-id=billing/instances/billing-7"}


@pytest.mark.usefixtures("_each_poll")
async def test_a_change_that_fails_is_not_reported_before_it_is_applied() -> None:
    told, choosy = FakeService(acks="all"), Choosy()
    async with AsyncDynamicProducerConfig(OWN, **told.options()) as dynamic:
        dynamic.add(choosy)
        await told.says(1)
        choosy.failing, told.revision, told.configs = True, 2, {"acks": "1"}
        before = len(told.reports)
        told.poll()
        await until(lambda: len(told.reports) > before)
        await told.says(1)
        choosy.failing = False
        told.poll()
        await told.says(2)


async def test_what_the_rules_drop_and_what_the_application_refuses_is_reported_with_the_reason() -> None:
    own = {**OWN, "sasl.password": "hunter2\n"}
    choosy = Choosy(all="too slow here", own=f"{own} will not do")
    told = FakeService(acks="1", linger_ms="5")
    async with AsyncDynamicProducerConfig(own, **told.options()) as dynamic:
        dynamic.add(choosy)
        dropped = "not among the configs that this producer takes over: acks"
        await told.says(1, linger_ms=dropped)
        told.revision, told.configs = 2, {"acks": "all"}
        told.poll()
        await told.says(2, acks="too slow here")
        # To go back to its own value is refused as well, by a text that quotes a password.
        told.revision, told.configs = 3, {}
        told.poll()
        await told.says(3, acks="refused by the application, whose log has the reason")
        told.revision, told.configs = 4, {"acks": "1"}
        told.poll()
        await told.says(4)


@pytest.mark.usefixtures("_each_poll")
async def test_a_consumer_runs_with_its_timeouts_once_it_is_swapped() -> None:
    told = FakeService(session_timeout_ms="20000")

    async def done(_: Any) -> None:
        pass

    def waits(consumer: Any) -> bool:
        return bool(consumer.waiting)

    async with AsyncDynamicConsumerConfig(OWN, **told.options()) as dynamic:
        swapped = AsyncSwappedConsumer(dynamic, build=dict, join=done, close=done)
        await swapped.start()
        await told.says(1)
        told.revision, told.configs = 2, {"session.timeout.ms": "30000"}
        told.poll()
        await until(lambda: swapped.waiting and len(told.reports) == 2)
        told.poll()
        await until(lambda: len(told.reports) == 3)
        await told.says(1)
        await swapped.current()
        await told.says(2)

    with DynamicConsumerConfig(OWN, **told.options(sleep=asyncio.sleep)) as threaded:
        consumer = SwappedConsumer(threaded, build=dict, join=len, close=len)
        consumer.reconfigure({"session.timeout.ms": "40000"})
        assert waits(consumer)
        before = len(told.reports)
        consumer.current()
        assert not waits(consumer)
        await until(lambda: len(told.reports) > before)


async def test_a_stop_while_a_report_becomes_due_ends() -> None:
    told = FakeService(acks="all")
    for steps in range(8):
        dynamic = AsyncDynamicProducerConfig(OWN, **told.options())
        await dynamic.start()
        await until(lambda: told.reports)
        await run_ready_tasks()
        dynamic.taken_over()
        for _ in range(steps):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(dynamic.stop())
        await until(stopping.done)


async def test_without_polls_the_last_report_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPEATED_AFTER_S", 0.01)
    monkeypatch.setattr(reports, "FRESH_S", 0)
    told = FakeService(acks="all")
    async with AsyncDynamicProducerConfig(OWN, **told.options()):
        await until(lambda: len(told.reports) >= 3)
    assert {report["appliedRevision"] for report in told.reports} == {"1"}


@pytest.mark.parametrize(("status", "code"), [(404, None), (405, None), (501, None), (400, 35), (400, 42)])
async def test_a_service_without_reports_hears_no_more_of_them(
    status: int, code: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "REPEATED_AFTER_S", 0.001)
    told = FakeService(acks="all")
    told.reports_refused = httpx.Response(status, json=PROBLEM | {"kafkaErrorCode": code})
    async with AsyncDynamicProducerConfig(OWN, **told.options()) as dynamic:
        await until(lambda: "the service takes no reports" in caplog.text)
        told.configs = {"acks": "1"}
        told.poll()
        await until(lambda: dynamic.settings["acks"] == "1")
    assert len(told.reports) == 1
    assert len(caplog.records) == 1


async def test_an_outage_of_reports_disturbs_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "confplane.client")
    told = FakeService(acks="all")
    told.reports_refused = httpx.Response(503, json=PROBLEM)
    async with AsyncDynamicProducerConfig(OWN, **told.options()) as dynamic:
        for number in range(1, 4):
            await until(lambda: len(told.reports) == number)  # noqa: B023 - is called at once
            told.poll()
        await until(lambda: len(told.reports) == 4)
        assert len(caplog.records) == 1
        told.reports_refused, told.revision, told.configs = None, 2, {"acks": "1"}
        told.poll()
        await told.says(2)
        assert dynamic.settings["acks"] == "1"


async def test_no_failure_of_a_report_ends_the_reports(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Choosy):
        failing_once = True

        @property
        def waiting(self) -> bool:
            failing, self.failing_once = self.failing_once, False
            if failing:
                raise RuntimeError("a defect of the application")
            return False

    told = FakeService(acks="all")

    def strange(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" and len(told.reports) < 2:
            told.reports.append({})
            raise ValueError("strange")
        return told._answer(request)

    options = told.options(service=Answering("http://confplane.test", "alice", "secret", answer=strange))
    async with AsyncDynamicProducerConfig(OWN, **options) as dynamic:
        dynamic.add(Odd())
        for _ in range(4):
            polls = told.polls
            told.poll()
            await until(lambda: told.polls > polls)  # noqa: B023 - is called at once
        await until(lambda: len(told.reports) > 2, why=lambda: caplog.text)
        await told.says(1)
    assert caplog.text.count("can't be reported") == 1


async def test_each_start_has_an_instance_of_its_own() -> None:
    told = FakeService(acks="all")
    dynamic = AsyncDynamicProducerConfig(OWN, **told.options())
    for starts in range(1, 3):
        async with dynamic:
            await until(lambda: len(told.paths) == starts)  # noqa: B023 - is called at once


async def test_a_client_without_an_answer_reports_nothing() -> None:
    told = FakeService()
    told.polls_refused = httpx.Response(503, json=PROBLEM)
    async with AsyncDynamicProducerConfig(OWN, **told.options()):
        told.poll()
        told.polls_refused = None
        told.poll()
        await told.says(1)
    assert len(told.reports) == 1


async def test_texts_that_the_service_would_refuse_are_made_fit() -> None:
    told = FakeService(acks="1", **{"k\0" * 200: "v"})
    library = Library("n" * 300)
    async with AsyncDynamicProducerConfig(OWN, **told.options(library=library)):
        await until(lambda: told.reports)
    (report,) = told.reports
    assert report["softwareName"] == "n" * 249
    assert report["refused"][0]["key"] == ("k?" * 200)[:249]
    assert reports._sendable("a lone \ud800") == "a lone ?"


@pytest.mark.parametrize("instance", [".", "..", "a b", "x" * 129, "a\n"])
def test_a_name_that_is_none_is_refused(instance: str) -> None:
    with pytest.raises(ValueError, match="1 to 128 letters"):
        AsyncDynamicProducerConfig(OWN, **FakeService().options(instance=instance))
