"""The peer of the side by side: a Kafka broker as Kafka ships it, and the load that its own AdminClient makes."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
from kazoo.client import KazooClient

from tests.interop.admin import JavaCalls
from tests.support.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.rounds import Sample

JUTE_MAXBUFFER = 64 * 1024 * 1024
"""The broker's limit on what it reads from ZooKeeper at once: its default, 1 MiB, ends at some 37,000 children."""

LOAD = Path(__file__).with_name("KafkaLoad.java")
"""The load that Kafka's own AdminClient makes."""

_ANSWER_S = 1800.0
_POLL_S = 0.0002
_SAID_S = 60.0
_CHANGES = "/config/changes"
SHIPPED = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The options that kafka-server-start.sh and kafka-run-class.sh give the JVM."""


class BenchBroker(Broker):
    """A broker with the options of JVM and broker that Kafka ships, but for what it needs to run here."""

    start_seconds = 1800.0
    java_options: Sequence[str] = (*SHIPPED, f"-Djute.maxbuffer={JUTE_MAXBUFFER}")

    def _properties(self) -> str:
        return f"""\
broker.id={self.broker_id}
zookeeper.connect={self._connect}
zookeeper.session.timeout.ms=60000
listeners=PLAINTEXT://127.0.0.1:{self.port}
log.dirs={self.data_dir / "logs"}
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
controlled.shutdown.enable=false
"""

    def _prepare(self) -> None:
        self._read = 0
        self._unread = b""
        super()._prepare()

    def _answers(self) -> bool:
        return self.says(re.compile(rb"\[KafkaServer id=%d\] started" % self.broker_id))

    def says(self, pattern: re.Pattern[bytes]) -> bool:
        """Look for a pattern in what it logged since it was last asked; its log is long, so nothing is read twice."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        lines = self._unread + new
        self._unread = lines.rpartition(b"\n")[2]
        return pattern.search(lines) is not None

    def wait_until_it_says(self, pattern: re.Pattern[bytes]) -> float:
        """Wait for a pattern and return the time on the clock of ``time.perf_counter()``."""
        end = time.monotonic() + _SAID_S
        while not self.says(pattern):
            if time.monotonic() > end:
                raise AssertionError(f"the broker did not say {pattern.pattern!r} in {_SAID_S} s")
            time.sleep(_POLL_S)
        return time.perf_counter()

    @property
    def cpu_s(self) -> float:
        """The processor time that it took so far."""
        return float(sum(psutil.Process(self.pid).cpu_times()[:2]))


class Peer:
    """Brokers on a chroot, warmed up, and a process of AdminClients for the first of them.

    Args:
        directory: Where they keep what they keep.
        class_path: Kafka's.
        connect: The chroot.
        brokers: How many.
    """

    def __init__(self, directory: Path, *, class_path: str, connect: str, brokers: int = 1) -> None:
        self._directory = directory
        self._class_path = class_path
        self._connect = connect
        self._stack = ExitStack()
        self.brokers = [
            BenchBroker(directory / f"broker-{number}", class_path=class_path, connect=connect, broker_id=number)
            for number in range(brokers)
        ]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in self.brokers:
                stack.enter_context(broker)
            # Two cores: the load's JVM should take no more of them than it must.
            self._load = JavaCalls(
                LOAD,
                self._directory / "load.log",
                class_path=self._class_path,
                bootstrap=self.brokers[0].bootstrap,
                options=["-Xmx1G", "-XX:+UseSerialGC"],
            )
            stack.enter_context(self._load)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rate(self, what: str, **fields: Any) -> Sample:
        """Describe or alter for a while: requests a second, the broker's CPU time for one in µs, the median in ms."""
        before = self.brokers[0].cpu_s
        result = self._load.call(what, answer_s=_ANSWER_S, **fields)
        spent = self.brokers[0].cpu_s - before
        return result["rate"], spent / result["all_replies"] * 1e6, result["p50_ms"]

    def alter_many(self, entities: int, value: int) -> float:
        """Alter entities in one request; the seconds."""
        return float(self._load.call("alterMany", answer_s=_ANSWER_S, entities=entities, value=value)["seconds"])

    def describe_all(self) -> tuple[float, int]:
        """Describe all entities; the seconds, and how many there were."""
        result = self._load.call("describeAll", answer_s=_ANSWER_S)
        return float(result["seconds"]), int(result["entities"])

    def forget_changes(self) -> None:
        """Delete the notifications. A broker lists all of a quarter of an hour at each change."""
        client = KazooClient(self._connect)
        client.start()
        under_way = [client.delete_async(f"{_CHANGES}/{child}") for child in client.get_children(_CHANGES)]
        for reply in under_way:
            reply.wait()
        client.stop()
        client.close()
