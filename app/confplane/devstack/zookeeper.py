"""A real, standalone ZooKeeper, run from the jars that pyspark ships."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confplane.devstack.errors import DevStackError
from confplane.devstack.java import find_java
from confplane.devstack.process import Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"

# The server's jars. A short class path halves the startup time compared with all of Spark's jars.
JARS: Final = (
    r"zookeeper-\d",
    r"zookeeper-jute-\d",
    r"slf4j-api-\d",
    r"log4j-api-\d",
    r"log4j-core-\d",
    r"log4j-slf4j2-impl-\d",
    r"metrics-core-\d",
    r"snappy-java-\d",
    r"commons-io-\d",
)

_LOG4J = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:confplane.log}
appender.file.filePattern = ${sys:confplane.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def _jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DevStackError("The embedded ZooKeeper needs pyspark's jars: pip install 'confplane[dev-stack]'")
    directory = Path(spec.origin).parent / "jars"
    found = []
    for pattern in JARS:
        matches = [jar for jar in directory.glob("*.jar") if re.match(pattern, jar.name)]
        if not matches:
            return [directory / "*"]  # a pyspark whose jars have other names; the JVM expands the asterisk itself
        found += matches
    return found


class ZooKeeper(Server):
    """A ZooKeeper server on 127.0.0.1.

    Sessions may last from 1 s to 60 s (``tickTime`` 500 ms); connections of one address are not limited; the admin
    server is off; the commands ``srvr`` and ``mntr`` are enabled.

    Args:
        data_dir: The server's directory: snapshots and logs, configuration, ``zookeeper.log``.
        port: The port; a free one if None.
        max_heap: The JVM's ``-Xmx``.
        durable: False disables fsync and the JVM's slower compiler; for tests.
    """

    name = "ZooKeeper"

    def __init__(
        self, data_dir: Path, *, port: int | None = None, max_heap: str = "512m", durable: bool = True
    ) -> None:
        super().__init__(data_dir, port=port)
        self._max_heap = max_heap
        self._durable = durable

    @property
    def hosts(self) -> str:
        """The connect string, ``127.0.0.1:port``, with no chroot."""
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        """The JVM's own output, separate from the log that log4j writes and rolls."""
        return self.data_dir / "zookeeper.out"

    @property
    def _config(self) -> Path:
        return self.data_dir / "zoo.cfg"

    @property
    def _marker(self) -> str:
        return str(self._config)

    def _prepare(self) -> None:
        # Java properties: a backslash starts an escape. Blanks and all other characters need no escape within a value.
        data = str(self.data_dir / "data").replace("\\", "\\\\")
        self._config.write_text(
            f"dataDir={data}\n"
            "clientPortAddress=127.0.0.1\n"
            f"clientPort={self.port}\n"
            "tickTime=500\n"
            "minSessionTimeout=1000\n"
            "maxSessionTimeout=60000\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "autopurge.snapRetainCount=3\n"
            "autopurge.purgeInterval=1\n"
            "4lw.commands.whitelist=srvr,mntr\n",
            encoding="utf-8",
        )
        (self.data_dir / "log4j2.properties").write_text(_LOG4J)

    def _command(self) -> Sequence[str]:
        return [
            str(find_java()),
            f"-Xmx{self._max_heap}",
            "-XX:+UseSerialGC",
            # In the few minutes of a test run, the optimizing compiler costs more time than it saves.
            *(() if self._durable else ("-XX:TieredStopAtLevel=1",)),
            "-XX:+ExitOnOutOfMemoryError",
            "-Dfile.encoding=UTF-8",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j2.configurationFile={(self.data_dir / 'log4j2.properties').as_uri()}",
            "-Dlog4j2.disableJmx=true",
            f"-Dconfplane.log={self.log}",
            "-Dzookeeper.jmx.log4j.disable=true",
            f"-Dzookeeper.forceSync={'yes' if self._durable else 'no'}",
            "-Dzookeeper.preAllocSize=8192",
            "-cp",
            os.pathsep.join(str(jar) for jar in _jars()),
            _MAIN,
            str(self._config),
        ]

    def _environment(self) -> Mapping[str, str]:
        # Options for other Java programs of this user, which the JVM also prints to its output.
        dropped = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
        return {name: value for name, value in os.environ.items() if name not in dropped}

    def _answers(self) -> bool:
        # "srvr" reports a mode only while requests are served, and an error before that.
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode: standalone" in answer
