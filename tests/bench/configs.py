"""The time that one ``confplane configs --describe`` takes, beside Kafka's own tool on the same cluster."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from confplane.devstack.java import find_java
from tests.bench.broker import BenchBroker
from tests.bench.caller import QUOTAS, Caller
from tests.bench.rounds import Figure, alternate, column
from tests.support.java import java_environment
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.rounds import Sample
    from tests.bench.world import World

REFERENCE: Final = "kafka-configs.sh"
_LINE: Final = ("--describe", "--entity-type", "users", "--entity-name", "bench")
# What kafka-run-class.sh gives the JVM of a tool.
_JVM: Final = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-Djava.awt.headless=true")


def measure(world: World, class_path: str, *, rounds: int) -> Iterator[Figure]:
    """Yield wall and processor time, of the whole process from its start to its end."""
    connect = world.chroot()
    directory = world.directory / "configs"
    with (
        BenchBroker(directory / "broker", class_path=class_path, connect=connect) as broker,
        world.service(connect, cluster={"client_configs_layout": "separate"}) as service,
    ):
        Caller(service)("PUT", f"{QUOTAS}/user=bench", '{"quotas": {"producer_byte_rate": 1024}}')
        token = directory / "token"
        token.write_text(service.token)
        own = os.environ | {"CONFPLANE_URL": service.url, "CONFPLANE_TOKEN_FILE": str(token)}
        ours = [sys.executable, "-m", "confplane", "configs", *_LINE]
        bootstrap = ("--bootstrap-server", broker.bootstrap)
        theirs = [str(find_java()), *_JVM, "-cp", class_path, "kafka.admin.ConfigCommand", *bootstrap, *_LINE]
        confplane, kafka = alternate(
            "configs --describe | kafka-configs.sh, s",
            rounds,
            lambda _: _spent(ours, own),
            lambda _: _spent(theirs, java_environment()),
            decimals=2,
        )
    for index, name in enumerate(("wall time", "processor time")):
        yield Figure(
            f"One `configs --describe` of a user: {name}",
            "s",
            column(confplane, index),
            REFERENCE,
            column(kafka, index),
            decimals=2,
            less_is_better=True,
        )


def _spent(command: Sequence[str], environment: Mapping[str, str]) -> Sample:
    """Run a command, which must print the line of the user's quotas; return its seconds, by the clock and of processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.stdout != "Quota configs for user-principal 'bench' are producer_byte_rate=1024.0\n":
        raise AssertionError(f"{command[-8:]} printed {done.stdout!r} and {done.stderr!r}")
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
