"""A real Kafka broker in ZooKeeper mode, as a process of the tests."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from confplane.devstack.java import find_java
from confplane.devstack.process import Server
from tests.support.java import java_environment, quick_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BROKER_ID = 0
ENCODER_SECRET = "the secret of the broker's encoder"
STORE_PASSWORD = "first-store-password"

_LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""


class Broker(Server):
    """One broker on 127.0.0.1, with three listeners: PLAINTEXT, SASL_PLAINTEXT (SCRAM) and SSL.

    Args:
        data_dir: Its logs, its ``server.properties``, its ``kafka.log``.
        class_path: Of Kafka, as Java takes it.
        connect: ZooKeeper's connect string, with a chroot that nobody else uses.
    """

    name = "Kafka"
    # A slow machine with two cores may need minutes for what takes four seconds elsewhere.
    start_seconds = 180.0
    stop_seconds = 30.0
    java_options: Sequence[str] = ()
    """Options of the JVM; by default those of one that starts soon and takes little."""

    def __init__(self, data_dir: Path, *, class_path: str, connect: str, broker_id: int = BROKER_ID) -> None:
        super().__init__(data_dir)
        self.broker_id = broker_id
        self._class_path = class_path
        self._connect = connect
        self._said_before = ""

    @property
    def properties_file(self) -> Path:
        """Its ``server.properties``, there once it was started."""
        return self.data_dir / "server.properties"

    @property
    def bootstrap(self) -> str:
        """The address of its PLAINTEXT listener."""
        return f"127.0.0.1:{self.port}"

    def listener(self, protocol: str) -> tuple[str, int]:
        """The address of a listener, by its protocol, as the broker registered it."""
        client = KazooClient(hosts=self._connect)
        client.start(timeout=60)
        try:
            registration: dict[str, Any] = json.loads(client.get(f"/brokers/ids/{self.broker_id}")[0])
        finally:
            client.stop()
            client.close()
        (found,) = [endpoint for endpoint in registration["endpoints"] if endpoint.startswith(f"{protocol}://")]
        host, _, port = found.removeprefix(f"{protocol}://").rpartition(":")
        return host, int(port)

    def said(self) -> str:
        """All of its log, with that of earlier starts."""
        return self._said_before + self._said_now()

    def _said_now(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def errors(self) -> list[str]:
        """The lines of its log that are errors, each with what follows it up to the next line of its own."""
        found: list[str] = []
        wanted = False
        for line in self.said().splitlines():
            fields = line.split(" ", 3)
            if len(fields) == 4 and fields[2] in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}:
                wanted = fields[2] in {"ERROR", "FATAL"}
                if wanted:
                    found.append(line)
            elif wanted:
                found[-1] += f"\n{line}"
        return found

    def timeouts_of_leavers(self, group: str) -> list[int]:
        """The session timeouts, milliseconds, of the members that have left a group."""
        left = rf"sessionTimeoutMs=(\d+),[^\n]*\) has left group {re.escape(group)} "
        return [int(timeout) for timeout in re.findall(left, self.said())]

    def _prepare(self) -> None:
        self._said_before += self._said_now()  # the next start puts it away
        (self.data_dir / "log4j.properties").write_text(_LOG4J)
        self.properties_file.write_text(self._properties())

    def _properties(self) -> str:
        """Return its ``server.properties``."""
        keystore = self.data_dir / "first.p12"
        if not keystore.exists():
            make_keystore(keystore, password=STORE_PASSWORD)
        return f"""\
broker.id={self.broker_id}
zookeeper.connect={self._connect}
zookeeper.session.timeout.ms=60000
zookeeper.connection.timeout.ms=120000
listeners=PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.ssl.ssl.keystore.location={keystore}
listener.name.ssl.ssl.keystore.password={STORE_PASSWORD}
listener.name.ssl.ssl.key.password={STORE_PASSWORD}
password.encoder.secret={ENCODER_SECRET}
log.dirs={self.data_dir / "logs"}
num.network.threads=2
num.io.threads=2
background.threads=2
# More than the cleaner's least, and far less than its default, which is a quarter of this heap.
log.cleaner.dedupe.buffer.size=4194304
log.retention.hours=48
log.roll.ms=7200000
log.segment.bytes=104857600
# In other forms than their types', and what only plug-ins or nobody knows: describes show these as they are.
num.partitions=03
log.cleanup.policy=delete , compact
unclean.leader.election.enable=FALSE
log.cleaner.min.cleanable.ratio=5e-1
log.initial.task.delay.ms=30000
listener.name.plaintext.connections.max.reauth.ms=00
acme.static.setting=\\u00fc and \\\
  more
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
controlled.shutdown.enable=false
"""

    def _command(self) -> Sequence[str]:
        return [
            str(find_java()),
            *(self.java_options or quick_java("512m")),
            "-XX:+ExitOnOutOfMemoryError",
            "-Dfile.encoding=UTF-8",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j.configuration={(self.data_dir / 'log4j.properties').as_uri()}",
            "-cp",
            self._class_path,
            "kafka.Kafka",
            str(self.properties_file),
        ]

    def _environment(self) -> Mapping[str, str]:
        return java_environment()

    def _answers(self) -> bool:
        return f"[KafkaServer id={self.broker_id}] started" in self._said_now()


def make_keystore(path: Path, *, password: str) -> None:
    """Make a keystore with a new key and its self-signed certificate, each for the same name and address."""
    keytool = find_java().resolve().with_name("keytool")
    if not keytool.is_file():
        pytest.fail(f"there is no keytool beside {find_java()}")
    # Java 9 and later write PKCS12, which a broker reads as JKS as well; its key has the store's password.
    subprocess.run(
        [str(keytool), "-genkeypair", "-keystore", str(path), "-alias", "broker", "-keyalg", "EC", "-storepass", password,
         "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-validity", "3650"],
        check=True, capture_output=True, timeout=120, env=java_environment(),
    )  # fmt: skip
