"""A real Spark standalone cluster on this machine: one master and its workers, each a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.devstack.java import find_java
from confplane.devstack.process import Server
from tests.support.ports import reserved_port
from tests.support.processes import ROOT
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MEMORY: Final = "8g"
"""The maximum memory of a worker's executors, which Spark does not reserve: a driver that requests more waits."""


def _home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _scala() -> str:
    """The version of Scala that is in the names of Spark's jars; a worker asks for it when it starts an executor."""
    [core] = (_home() / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


def launched(*options: str, **environment: str) -> list[str]:
    """Return the command line of Java that Spark's launcher makes of options, for a driver in Python."""
    jars, java = f"{_home() / 'jars'}/*", str(find_java())
    done = subprocess.run(
        [
            *(java, "-cp", jars, "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"),
            *(*options, "pyspark-shell"),
        ],
        env={**os.environ, "SPARK_HOME": str(_home()), "SPARK_SCALA_VERSION": _scala(), **environment},
        capture_output=True, check=True,
    )  # fmt: skip
    return [part.decode() for part in done.stdout.split(b"\0")]


def submit(
    *arguments: str,
    master: str,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    seconds: float,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run ``confplane rollups`` by spark-submit to its end."""
    local = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return subprocess.run(
        [
            f"{os.path.dirname(sys.executable)}/spark-submit",  # noqa: PTH120 - links are not to be followed
            *("--master", master),
            *(part for item in {**local, **settings}.items() for part in ("--conf", "=".join(item))),
            str(ROOT / "app" / "confplane" / "rollups" / "__main__.py"),
            *arguments,
        ],
        cwd="/",
        env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=seconds,
        check=False,
    )


class _Daemon(Server):
    """One of Spark's own servers; its port is that of its web page."""

    start_seconds = 180.0

    def _prepare(self) -> None:
        pass

    def _java(self, main: str, *arguments: str) -> Sequence[str]:
        jars = f"{_home() / 'jars'}/*"
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [str(find_java()), *options, "-cp", jars, main, "--host", "127.0.0.1", *arguments]

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data_dir),
            "JAVA_HOME": str(find_java().parents[1]),
            "SPARK_HOME": str(_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": _scala(),
            "SPARK_WORKER_OPTS": "-Xmx256m",
            # The software on a worker's machine.
            "PYTHONPATH": str(ROOT),
        }

    def _answers(self) -> bool:
        return bool(self.state())

    def state(self) -> dict[str, Any]:
        """The state that the server itself reports; empty while it reports none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/json/")
            answer = connection.getresponse()
            said: dict[str, Any] = json.loads(answer.read()) if answer.status == http.client.OK else {}
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return said


class Master(_Daemon):
    name = "SparkMaster"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._rpc_port = reserved_port(self)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._rpc_port}"

    def _command(self) -> Sequence[str]:
        ports = ("--port", str(self._rpc_port), "--webui-port", str(self.port))
        return self._java("org.apache.spark.deploy.master.Master", *ports)


class Worker(_Daemon):
    """A worker with one core, and so with one executor at a time."""

    name = "SparkWorker"

    def __init__(self, data_dir: Path, master: Master) -> None:
        super().__init__(data_dir)
        self._master = master

    def _command(self) -> Sequence[str]:
        return self._java(
            "org.apache.spark.deploy.worker.Worker",
            *("--webui-port", str(self.port), "--cores", "1", "--memory", _MEMORY),
            *("--work-dir", str(self.data_dir / "work"), self._master.url),
        )

    def wait_ended(self, executors: int) -> None:
        """Wait until this many of its executors have ended, which may be after the end of their driver."""
        wait_for(lambda: len(self.state()["finishedexecutors"]) == executors)

    def lose(self) -> None:
        """End the worker with all of its processes, like the loss of a machine."""
        group = self.pid
        os.killpg(group, signal.SIGKILL)
        self.kill()


@contextlib.contextmanager
def cluster(directory: Path, workers: int = 2) -> Iterator[tuple[Master, list[Worker]]]:
    """Run a master and its workers, all of them known to it."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(Master(directory / "master"))
        started = [Worker(directory / f"worker-{number}", master) for number in range(workers)]
        for worker in started:
            stack.enter_context(worker)
        wait_for(lambda: master.state().get("aliveworkers") == workers, why=master.log.read_text)
        yield master, started
