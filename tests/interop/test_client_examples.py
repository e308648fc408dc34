"""The examples of clients run as they are printed, and follow changes of their dynamic configs, and report them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import pytest

from confplane.devstack.java import find_java
from confplane.domain.entities import Entity
from tests.catalog.kafka_jars import SHORT_LIVED
from tests.interop.compare import new_topics
from tests.support.java import java_environment
from tests.support.processes import ROOT, ignoring_sigint
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.interop.admin import Admin
    from tests.support.broker import Broker
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FILES: Final = ("with_confluent_kafka.py", "with_kafka_python.py", "with_aiokafka.py")
SESSION_TIMEOUT_MS: Final = "290000"
"""A member that did not leave its group stays for longer than a test waits."""


class Example:
    """An example that runs.

    Args:
        command: Its command line, without the user and the topic.
        environment: Its environment, without the addresses.
        directory: A directory for its output.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], directory: Path) -> None:
        self._command = command
        self._environment = environment
        # Apart, since a line of one may be written in the middle of a line of the other.
        self._output = directory / "output"
        self._errors = directory / "errors"

    @property
    def text(self) -> str:
        return self._errors.read_text() + self._output.read_text()

    @property
    def read(self) -> list[int]:
        """The numbers that it read."""
        whole_lines, _, _ = self._output.read_text().rpartition("\n")
        return [int(line.split()[1]) for line in whole_lines.splitlines() if line.startswith("read ")]

    async def says(self, text: str) -> None:
        await until(lambda: text in self.text, why=lambda: f"{text}:\n{self.text}")

    @contextmanager
    def runs(
        self, user: str, service: Service, broker: Broker, *, ignores_sigint: bool = False
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run it for the length of a block, in a process group of its own, on a topic and a group named as the user."""
        addresses = {"CONFPLANE": service.url, "TOKEN": service.token, "KAFKA": broker.bootstrap, "GROUP": user}
        signals = ignoring_sigint() if ignores_sigint else nullcontext()
        with self._output.open("wb") as output, self._errors.open("wb") as errors, signals:
            process = subprocess.Popen(
                [*self._command, user, user],
                cwd=ROOT,
                env={**self._environment, **addresses},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    async def ends(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for its end, and return its exit code."""
        await until(lambda: process.poll() is not None, why=lambda: self.text)
        assert self.read == list(range(len(self.read)))
        code: int = process.returncode
        return code

    async def follows(self, service: Service, client: ConfplaneClient, broker: Broker, admin: Admin) -> None:
        """Run it, change its configs, and stop it."""
        user = f"example-{uuid.uuid4().hex}"
        await new_topics(client, admin, user)
        entity = Entity.of(user=user, client_id="example")
        await client.put("client-configs", entity, {"acks": "1"})
        with self.runs(user, service, broker) as process:
            await self.says("acks=1")
            await self.says("read 5")
            await client.put("client-configs", entity, {"acks": "all", "session.timeout.ms": "20000"})
            await self.says("acks=all")
            await self.says("session.timeout.ms=20000")
            await until(lambda: _reported(client, entity), why=lambda: self.text)
            before = len(self.read)
            await until(lambda: len(self.read) > before + 10, why=lambda: self.text)
            # Python ends by the signal, Java by its input.
            if self._command[0] == sys.executable:
                process.send_signal(signal.SIGINT)
            else:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            assert await self.ends(process) == 0, self.text

    async def leaves(
        self, service: Service, client: ConfplaneClient, broker: Broker, admin: Admin, *, ignores_sigint: bool
    ) -> int:
        """Run it, stop it by SIGTERM, and return its exit code. Its consumer has left its group by then."""
        user = f"example-{uuid.uuid4().hex}"
        await new_topics(client, admin, user)
        configs = {"session.timeout.ms": SESSION_TIMEOUT_MS}
        await client.put("client-configs", Entity.of(user=user, client_id="example"), configs)
        with self.runs(user, service, broker, ignores_sigint=ignores_sigint) as process:
            await self.says("read 5")
            process.send_signal(signal.SIGTERM)
            code = await self.ends(process)
        await until(lambda: broker.timeouts_of_leavers(user) == [int(SESSION_TIMEOUT_MS)], why=lambda: self.text)
        return code


async def _reported(client: ConfplaneClient, entity: Entity) -> bool:
    """Say whether producer and consumer report that they run with the latest configs, and refuse none."""
    found = (await client.request("GET", f"client-configs/{entity.id}/status")).body
    return bool(found["applied"] == found["instances"] == 2 and found["refused"] == [])


def _in_python(file: str, tmp_path: Path) -> Example:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    return Example([sys.executable, f"examples/clients/{file}"], environment, tmp_path)


def _in_java(compiled: str, tmp_path: Path) -> Example:
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", compiled, "DynamicConfigs"]
    return Example(command, java_environment(), tmp_path)


@pytest.mark.parametrize("file", FILES)
async def test_the_examples_in_python(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, tmp_path: Path, file: str
) -> None:
    example = _in_python(file, tmp_path)
    await example.follows(service, client, broker, admin)
    assert "Traceback" not in example.text


async def test_the_example_in_java(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, tmp_path: Path, compiled: str
) -> None:
    await _in_java(compiled, tmp_path).follows(service, client, broker, admin)


@pytest.mark.parametrize(
    ("file", "ignores_sigint"),
    [*((file, True) for file in FILES), *(pytest.param(file, False, marks=pytest.mark.long) for file in FILES)],
)
async def test_the_examples_in_python_leave_their_group_on_sigterm(
    broker: Broker,
    service: Service,
    client: ConfplaneClient,
    admin: Admin,
    tmp_path: Path,
    file: str,
    *,
    ignores_sigint: bool,
) -> None:
    example = _in_python(file, tmp_path)
    assert await example.leaves(service, client, broker, admin, ignores_sigint=ignores_sigint) == 0, example.text
    assert "Traceback" not in example.text


@pytest.mark.parametrize("ignores_sigint", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_the_example_in_java_leaves_its_group_on_sigterm(
    broker: Broker,
    service: Service,
    client: ConfplaneClient,
    admin: Admin,
    tmp_path: Path,
    compiled: str,
    *,
    ignores_sigint: bool,
) -> None:
    example = _in_java(compiled, tmp_path)
    code = await example.leaves(service, client, broker, admin, ignores_sigint=ignores_sigint)
    assert code == 128 + signal.SIGTERM, example.text


def test_the_example_in_java_passes_the_vectors(compiled: str) -> None:
    done = subprocess.run(
        [str(find_java()), *SHORT_LIVED, "-cp", compiled, "Vectors", str(ROOT / "tests/vectors/clients.json")],
        capture_output=True, text=True, check=False, timeout=300, env=java_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    checks, word = done.stdout.split("\n")[-2].split()
    assert (int(checks) > 70, word) == (True, "checks"), done.stdout
    assert "fails" not in done.stdout
