"""The examples of clients run as they are printed, and follow changes of their dynamic configs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

from app.domain.entities import Entity
from tests.interop.compare import new_topics
from tests.support.service import ROOT
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from app.client import ConfplaneClient
    from tests.interop.admin import Admin
    from tests.interop.broker import Broker
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("example", ["with_confluent_kafka.py", "with_kafka_python.py", "with_aiokafka.py"])
async def test_the_examples_in_python(
    broker: Broker, service: Service, client: ConfplaneClient, admin: Admin, tmp_path: Path, example: str
) -> None:
    user = f"example-{uuid.uuid4().hex}"
    await new_topics(client, admin, user)
    entity = Entity.of(user=user, client_id="example")
    await client.put("client-configs", entity, {"acks": "1"})
    said = tmp_path / "said"
    environment = {"CONFPLANE": service.url, "TOKEN": service.token, "KAFKA": broker.bootstrap}
    with (
        said.open("wb") as output,
        subprocess.Popen(  # noqa: ASYNC220 - a start takes no time; its end is awaited
            [sys.executable, f"examples/clients/{example}", user, user],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            await until(lambda: "read 5" in said.read_text(), why=said.read_text)
            changed = {"acks": "all", "session.timeout.ms": "20000"}
            await client.put("client-configs", entity, changed)
            for key, value in changed.items():
                await until(partial(_says, said, f"config {key}={value}"), why=said.read_text)
            lines = said.read_text().count("read ")
            await until(lambda: said.read_text().count("read ") > lines + 20, why=said.read_text)
            process.send_signal(signal.SIGINT)
            await until(lambda: process.poll() is not None, why=said.read_text)
        finally:
            process.kill()
    text = said.read_text()
    assert process.returncode == 0, text
    assert "Traceback" not in text
    read = [int(line.split()[1]) for line in text.splitlines() if line.startswith("read ")]
    assert read == sorted(set(read))


def _says(said: Path, text: str) -> bool:
    return text in said.read_text()
