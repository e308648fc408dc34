from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from confplane.client.dynamic import (
    CONFLUENT_KAFKA,
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicProducerConfig,
    Service,
)
from confplane.client.dynamic import config as module
from confplane.client.dynamic.config_follower import LastKnownGoodFile
from confplane.client.dynamic.source import DynamicValues, SourceUnavailable, SourceUnsupported, UnchangedValues
from tests.support.waiting import PATIENCE_S, run_ready_tasks, until, wait_for
from tests.unit.client.dynamic.scripted import OWN, SERVICE, Script

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from confplane.client.dynamic.source import Update

ALL, ONE = DynamicValues({"acks": "all"}), DynamicValues({"acks": "1"})
BOUND = ("http://confplane.test", "default", "user=alice,client-id=billing")


class Taken:
    """Takes settings over, unless it is told to refuse or to fail."""

    def __init__(self, *, refused: str | None = None, failures: int = 0) -> None:
        self.acks: list[Any] = []
        self.offered: list[Any] = []
        self.threads: set[str] = set()
        self._refused = refused
        self._failures = failures

    def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
        self.offered.append(settings.get("acks"))
        if settings.get("acks") == self._refused:
            raise ValueError("not these")

    async def reconfigure(self, settings: Mapping[str, Any]) -> None:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("not now")
        self.threads.add(threading.current_thread().name)
        self.acks.append(settings.get("acks"))


async def followed(*updates: Update, taken: Taken | None = None, **options: Any) -> AsyncDynamicProducerConfig:
    script = Script(*updates)
    own = {**OWN, "acks": "-1"}
    dynamic = AsyncDynamicProducerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=script, **options)
    if taken is not None:
        assert dynamic.add(taken) == {**OWN, "acks": "-1"}
    async with dynamic:
        await until(lambda: script.exhausted)
    return dynamic


async def test_settings_follow_and_a_removed_key_goes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "confplane.client.dynamic")
    taken = Taken()
    dynamic = await followed(ALL, ALL, UnchangedValues(), ONE, DynamicValues({}), taken=taken)
    assert taken.acks == ["all", "1", "-1"]
    assert dynamic.settings == {**OWN, "acks": "-1"}
    label = "producer user=alice,client-id=billing"
    assert [record.getMessage() for record in caplog.records] == [
        f"{label}: accepted the dynamic config acks=all",
        f"{label}: accepted the dynamic config acks=1",
        f"{label}: the dynamic config acks is gone, its own setting is back",
    ]


async def test_what_is_dropped_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    wrong = DynamicValues({"acks": "seven"})
    dynamic = await followed(wrong, wrong, SourceUnavailable("lost"), SourceUnavailable("lost again"), wrong)
    (dropped,) = dynamic.decision.dropped
    assert [record.getMessage().partition("billing: ")[2] for record in caplog.records] == [
        f"dropped the dynamic config acks=seven: {dropped.reason}",
        "dynamic configs can't be read, those in force stay: lost",
    ]


async def test_an_outage_leaves_the_values_in_force() -> None:
    taken = Taken()
    dynamic = await followed(ALL, *[SourceUnavailable("lost")] * 50, taken=taken)
    assert dynamic.settings["acks"] == "all"
    assert taken.acks == ["all"]


async def test_away_at_start_the_last_known_good_values_are_in_force(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert (await followed(SourceUnavailable("lost"), last_known_good=kept)).settings["acks"] == "-1"
    assert not kept.exists()
    await followed(ONE, ALL, last_known_good=kept)
    assert LastKnownGoodFile(kept, BOUND).load() == {"acks": "all"}
    assert (await followed(SourceUnavailable("lost"), last_known_good=kept)).settings["acks"] == "all"
    assert (await followed(SourceUnavailable("lost"), ONE, last_known_good=kept)).settings["acks"] == "1"


async def test_values_that_could_not_be_kept_are_kept_later_and_never_in_the_loops_own_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(28, "No space left on device")] * 2
    threads: list[threading.Thread] = []
    save = LastKnownGoodFile.save

    def full(kept: LastKnownGoodFile, configs: Mapping[str, str]) -> None:
        threads.append(threading.current_thread())
        if failures:
            raise failures.pop()
        save(kept, configs)

    monkeypatch.setattr(LastKnownGoodFile, "save", full)
    await followed(ALL, *[UnchangedValues()] * 5, last_known_good=tmp_path / "kept.json")
    assert LastKnownGoodFile(tmp_path / "kept.json", BOUND).load() == {"acks": "all"}
    assert caplog.text.count("can't be kept") == 1
    assert threading.current_thread() not in threads
    assert len(threads) == 3, "values that are kept are not written again"


async def test_kept_values_of_a_service_that_lacks_the_feature_are_not_used(tmp_path: Path) -> None:
    await followed(ALL, last_known_good=tmp_path / "kept.json")
    script = Script(SourceUnsupported("404 Not found"))
    options: dict[str, Any] = {"library": CONFLUENT_KAFKA, "service": SERVICE, "source": script}
    async with AsyncDynamicProducerConfig(OWN, last_known_good=tmp_path / "kept.json", **options) as dynamic:
        assert dynamic.settings == OWN
    assert not script.exhausted


async def test_a_service_that_does_not_answer_holds_a_start_up_for_two_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert module.FIRST_FETCH_S == 2
    monkeypatch.setattr(module, "FIRST_FETCH_S", 0.05)
    LastKnownGoodFile(tmp_path / "kept.json", BOUND).save({"acks": "0"})
    late = asyncio.Event()

    class Late(Script):
        async def next(self) -> Update:
            await late.wait()
            return await super().next()

    taken = Taken()
    dynamic = AsyncDynamicProducerConfig(
        OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Late(ALL), last_known_good=tmp_path / "kept.json"
    )
    await dynamic.start()
    assert dynamic.settings["acks"] == "0"
    assert dynamic.add(taken)["acks"] == "0"
    late.set()
    await until(lambda: taken.acks == ["all"])
    await dynamic.stop()


async def test_refused_settings_are_not_offered_again_until_they_change(caplog: pytest.LogCaptureFixture) -> None:
    taken = Taken(refused="1")
    await followed(ALL, ONE, ONE, ONE, DynamicValues({"acks": "0"}), ONE, taken=taken)
    assert taken.acks == ["all", "0"]
    assert taken.offered == ["all", "1", "0", "1"]
    assert len(caplog.records) == 2


async def test_a_failed_reconfiguration_is_tried_after_the_next_poll(caplog: pytest.LogCaptureFixture) -> None:
    taken = Taken(failures=2)
    await followed(ALL, UnchangedValues(), UnchangedValues(), UnchangedValues(), taken=taken)
    assert taken.acks == ["all"]
    assert taken.offered == ["all"] * 3
    assert len(caplog.records) == 2


async def test_a_defect_of_a_validation_is_logged_and_the_settings_are_offered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Hasty(Taken):
        def validate_reconfiguration(self, settings: Mapping[str, Any]) -> None:
            if len(self.offered) < 2:
                self.offered.append("a failure")
                raise KeyError("acks")
            super().validate_reconfiguration(settings)

    taken = Hasty()
    await followed(ALL, UnchangedValues(), UnchangedValues(), ONE, taken=taken)
    assert taken.offered == ["a failure", "a failure", "all", "1"]
    assert taken.acks == ["all", "1"]
    assert caplog.text.count("could not be applied") == 2


async def test_settings_that_the_application_changes_are_a_copy_of_its_own() -> None:
    class Changing(Taken):
        async def reconfigure(self, settings: Mapping[str, Any]) -> None:
            await super().reconfigure(settings)
            dict.clear(settings)  # type: ignore[arg-type]  # what an application should not do

    first, second, script = Changing(), Taken(), Script(ALL, UnchangedValues(), UnchangedValues())
    dynamic = AsyncDynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=script)
    dynamic.add(first)["client.id"] = "another"
    dynamic.add(second)
    async with dynamic:
        await until(lambda: script.exhausted)
    assert first.acks == second.acks == ["all"]


async def test_a_change_is_spread_over_the_stated_time() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    for _ in range(20):
        await followed(ALL, UnchangedValues(), ONE, taken=Taken(), spread_s=30, sleep=sleep)
    assert len(pauses) == 40
    assert all(0 <= pause <= 30 for pause in pauses)
    assert max(pauses) - min(pauses) > 10


@pytest.mark.parametrize("switch", ["false", False])
async def test_turned_off_nothing_is_asked_and_the_switch_is_not_passed_on(switch: object) -> None:
    script = Script(ALL)
    own = {**OWN, "enable.dynamic.config": switch}
    dynamic = AsyncDynamicProducerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=script)
    async with dynamic:
        await run_ready_tasks()
    assert dynamic.settings == OWN
    assert not script.exhausted


async def test_a_consumer_of_the_new_protocol_is_warned_where_its_timeouts_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(DynamicValues({"session.timeout.ms": "20000"}))
    own = {"group.id": "g", "group.protocol": "consumer"}
    async with AsyncDynamicConsumerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=script) as dynamic:
        assert dynamic.settings == own
    assert "the group's config consumer.session.timeout.ms" in caplog.text


async def test_in_a_thread_the_settings_follow_too() -> None:
    taken, script = Taken(), Script(ALL, ONE)
    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=script)
    dynamic.add(taken)
    with dynamic:
        await until(lambda: script.exhausted)
    assert dynamic.settings["acks"] == "1"
    assert taken.acks == ["all", "1"]
    assert taken.threads == {"dynamic producer user=alice,client-id=billing"}
    assert all(thread.name not in taken.threads for thread in threading.enumerate())


async def test_a_thread_ends_where_the_service_lacks_the_feature() -> None:
    dynamic = DynamicProducerConfig(
        OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script(SourceUnsupported("404"))
    )
    with dynamic:
        await until(lambda: all("dynamic producer" not in thread.name for thread in threading.enumerate()))
    assert dynamic.settings == OWN


class Blocking(Taken):
    """Takes settings over in the thread that follows them, and takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def reconfigure(self, settings: Mapping[str, Any]) -> None:  # type: ignore[override]  # either is allowed
        self.begun.set()
        self.go_on.wait()
        self.acks.append(settings.get("acks"))


def test_neither_start_nor_stop_waits_for_a_swap(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert module.STOP_S == 5
    monkeypatch.setattr(module, "STOP_S", 0.05)
    taken = Blocking()
    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script(ALL))
    dynamic.add(taken)
    dynamic.start()
    assert dynamic.settings["acks"] == "all"
    assert taken.begun.wait(PATIENCE_S)
    dynamic.stop()
    assert "stopped while a swap, or a request, is under way" in caplog.text
    assert taken.acks == []
    taken.go_on.set()
    wait_for(lambda: all("dynamic producer" not in thread.name for thread in threading.enumerate()))
    assert taken.acks == ["all"]


async def test_an_object_that_takes_settings_over_may_stop_its_own_settings() -> None:
    class Stopping(Taken):
        async def reconfigure(self, settings: Mapping[str, Any]) -> None:
            await super().reconfigure(settings)
            threaded.stop()

    class AsyncStopping(Taken):
        async def reconfigure(self, settings: Mapping[str, Any]) -> None:
            await super().reconfigure(settings)
            await dynamic.stop()

    options: dict[str, Any] = {"library": CONFLUENT_KAFKA, "service": SERVICE}
    stopping, async_stopping = Stopping(), AsyncStopping()
    threaded = DynamicProducerConfig(OWN, source=Script(ALL), **options)
    threaded.add(stopping)
    threaded.start()
    await until(lambda: all("dynamic producer" not in thread.name for thread in threading.enumerate()))
    script = Script(ALL, *[UnchangedValues()] * 50, ONE, ALL)
    dynamic = AsyncDynamicProducerConfig(OWN, source=script, **options)
    await dynamic.start()
    dynamic.add(async_stopping)
    await until(lambda: async_stopping.acks)
    await run_ready_tasks()
    assert (stopping.acks, async_stopping.acks, script.exhausted) == (["all"], ["1"], False)


def test_a_start_for_which_there_is_no_loop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        raise OSError(24, "Too many open files")

    dynamic = DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=SERVICE, source=Script(ALL))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run", full)
        with pytest.raises(OSError, match="Too many open files"):
            dynamic.start()
    with dynamic:
        assert dynamic.settings["acks"] == "all"


def test_in_a_process_that_was_forked_settings_follow_once_they_are_started_again() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "parent all\nchild all\nchild 1\n", done.stderr


_FORKS = """
import os, threading
from confplane.client.dynamic import CONFLUENT_KAFKA, DynamicProducerConfig
from confplane.client.dynamic.source import DynamicValues
from tests.unit.client.dynamic.scripted import SERVICE, Script

source = Script(DynamicValues({"acks": "all"}))
dynamic = DynamicProducerConfig({}, library=CONFLUENT_KAFKA, service=SERVICE, source=source)
dynamic.start()
print("parent", dynamic.settings["acks"], flush=True)
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("child", dynamic.settings["acks"], flush=True)
source._updates.append(DynamicValues({"acks": "1"}))
dynamic.start()
print("child", dynamic.settings["acks"], flush=True)
dynamic.stop()
os._exit(0)
"""


@pytest.mark.parametrize("switch", ["true", "false"])
@pytest.mark.parametrize("client_id", ["", ".", "..", "x" * 300])
def test_no_setting_of_the_application_hinders_it(
    client_id: str, switch: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"client.id": client_id, "metadata.max.age.ms": 0, "enable.dynamic.config": switch}
    dynamic = DynamicProducerConfig(own, library=CONFLUENT_KAFKA, service=SERVICE, source=Script(ALL))
    with dynamic:
        assert dynamic.settings.get("acks") == ("all" if switch == "true" else None)
    assert dynamic.settings["client.id"] == client_id
    said = [record.getMessage() for record in caplog.records]
    unnamed = f"user=alice: configs can't be set for the client-id {client_id!r}, those of the user apply"
    at_an_age = "producer user=alice: polls every five minutes, as metadata.max.age.ms is not a number above 0"
    if switch == "false":
        assert said == []
    elif client_id in {".", ".."}:
        assert said == [unnamed, at_an_age]
    else:
        assert at_an_age.removeprefix("producer user=alice") in said[-1]


def test_a_user_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="user: "):
        DynamicProducerConfig(OWN, library=CONFLUENT_KAFKA, service=Service("http://confplane.test", "", None))


async def test_a_defect_of_a_source_is_raised_at_the_start_and_logged_later(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Script):
        async def next(self) -> Update:
            if not self._updates:
                raise RuntimeError("a defect")
            return await super().next()

    options: dict[str, Any] = {"library": CONFLUENT_KAFKA, "service": SERVICE}
    threaded = DynamicProducerConfig(OWN, source=Broken(), **options)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a defect"):
            threaded.start()
        threaded.stop()
    with pytest.raises(RuntimeError, match="a defect"):
        await AsyncDynamicProducerConfig(OWN, source=Broken(), **options).start()
    caplog.clear()
    async with AsyncDynamicProducerConfig(OWN, source=Broken(ALL), **options) as dynamic:
        await until(lambda: "no longer followed" in caplog.text)
    assert dynamic.settings["acks"] == "all"


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(SERVICE)
