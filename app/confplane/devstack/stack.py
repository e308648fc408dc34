"""The servers of one data directory: their owner, their addresses, and their end.

Below the directory (``.confplane`` by default) lie:

``lock``            held, with the process id in it, by the one process that runs the stack; the kernel releases it
                    when that process ends, so it can't become stale
``admin-token``     the bearer token of the service (0600), made once
``console-key``     the key of the web console's sessions (0600), made once
``settings.yaml``   the service's settings (0600), in the form of production
``endpoints.json``  while it runs: ports, process ids with their start times
``zookeeper/ postgres/ service/``  each server's data and logs
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil
import yaml

import confplane
from confplane.devstack.errors import DevStackError
from confplane.devstack.postgres import OWNER, SERVICE, Postgres
from confplane.devstack.process import Cancellation, Server, port_is_free
from confplane.devstack.zookeeper import ZooKeeper
from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_OK = 200
_OURS = "CONFPLANE_"
_KEPT = ("CONFPLANE_LOG_LEVEL", "CONFPLANE_CLUSTERS__DEFAULT__")
_NEVER_KEPT = ("CONFPLANE_CLUSTERS__DEFAULT__ZOOKEEPER", "CONFPLANE_CLUSTERS__DEFAULT__KAFKA")
_KEPT_WITH_KAFKA = ("CONFPLANE_CLUSTERS__DEFAULT__KAFKA__SASL", "CONFPLANE_CLUSTERS__DEFAULT__KAFKA__TLS")


class ConfplaneServer(Server):
    """``confplane serve`` on 127.0.0.1, with all settings from one file.

    Only the log level and the options of the cluster ``default`` are passed on from the environment: ``confplane dev``
    must never reach a production system whose variables happen to be exported.

    Args:
        data_dir: The working directory and the directory of the log.
        port: Port on 127.0.0.1; a free one if None.
        settings_file: A YAML file with the settings except for the port.
        kafka: True if the settings name a Kafka cluster, whose login and TLS may come from the environment.
    """

    name = "Service"
    stop_seconds = 25.0  # the service drains requests and changes for up to 20 s

    def __init__(self, data_dir: Path, *, port: int | None = None, settings_file: Path, kafka: bool = False) -> None:
        super().__init__(data_dir, port=port)
        self._kafka = kafka
        self._settings_file = settings_file

    @property
    def url(self) -> str:
        """The service's URL; known after the start."""
        return f"http://127.0.0.1:{self.port}"

    def check_port(self) -> None:
        """Check whether the port is taken before any server is started.

        Raises:
            DevStackError: The wanted port is taken; the message names the option for another.
        """
        if self._port is not None and not port_is_free(self._port):
            other = self._port + 1
            raise DevStackError(
                f"Port {self._port} is taken by another process. "
                f"Choose another: `confplane dev --port {other}`, or `make run PORT={other}`."
            )

    @property
    def _marker(self) -> str:
        return str(self._settings_file)

    def _prepare(self) -> None:
        pass

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "confplane", "serve", "--settings-file", str(self._settings_file)]

    def environment(self) -> dict[str, str]:
        """Return the environment of commands with this service's settings.

        It has no settings of any other service.
        """
        kept = {name: value for name, value in os.environ.items() if self._is_kept(name.upper())}
        # Works from any working directory, even if the project is not installed and its path is relative.
        root = str(Path(confplane.__file__).parents[1])
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
        }

    def _is_kept(self, variable: str) -> bool:
        if not variable.startswith(_OURS) or (self._kafka and variable.startswith(_KEPT_WITH_KAFKA)):
            return True
        return variable.startswith(_KEPT) and not variable.startswith(_NEVER_KEPT)

    def _environment(self) -> Mapping[str, str]:
        return {
            **self.environment(),
            "CONFPLANE_HTTP__HOST": "127.0.0.1",
            "CONFPLANE_HTTP__PORT": str(self.port),
            # There is no load balancer that needs a drain, and a person waits for the stop.
            "CONFPLANE_HTTP__DRAIN_MS": "0",
        }

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == _OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


_COMMAND_POLL_S: Final = 0.1


class InUseError(DevStackError):
    """Another running process runs the stack of this directory."""


class Stack:
    """ZooKeeper, Postgres and the service that uses them, below one directory.

    The methods are called from one thread, except :meth:`cancel`, which may be called from any thread and from signal
    handlers.

    Args:
        data_dir: The directory; created if missing; data of an earlier run are reused.
        http_port: The service's port on 127.0.0.1; 0 for a free port.
        zookeeper_port: ZooKeeper's port; a free one if None.
        durable: False disables fsync; for tests.
        kafka: ``host:port`` of brokers of a Kafka cluster without ZooKeeper; empty for no Kafka cluster.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        http_port: int = 8080,
        zookeeper_port: int | None = None,
        durable: bool = True,
        kafka: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.token_file = self.data_dir / "admin-token"
        self.console_key_file = self.data_dir / "console-key"
        self.webhooks_key_file = self.data_dir / "webhooks-key"
        self.settings_file = self.data_dir / "settings.yaml"
        self.endpoints_file = self.data_dir / "endpoints.json"
        self.zookeeper = ZooKeeper(self.data_dir / "zookeeper", port=zookeeper_port, durable=durable)
        self.postgres = Postgres(self.data_dir / "postgres", durable=durable)
        self.service = ConfplaneServer(
            self.data_dir / "service", port=http_port or None, settings_file=self.settings_file, kafka=bool(kafka)
        )
        self._servers: tuple[Server, ...] = (self.zookeeper, self.postgres, self.service)
        self._kafka = kafka
        self._lock: int | None = None
        self._cancelled = Cancellation()
        for server in self._servers:
            server.cancelled = self._cancelled

    # -- start

    def acquire(self) -> list[str]:
        """Acquire the directory for this process, and end the servers that a killed run left running in it.

        Returns:
            One sentence for each recovery.

        Raises:
            InUseError: Another running process has the directory; the message names its id.
            DevStackError: The directory can't be used.
        """
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DevStackError(f"{self.data_dir} can't be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode().strip() or "unknown"
            os.close(lock)
            raise InUseError(
                f"{self.data_dir} is in use: `confplane dev` runs there as process {holder}. "
                "Stop that one, or give this one a directory of its own with --data-dir."
            ) from None
        except OSError as error:
            os.close(lock)
            raise DevStackError(f"{self.data_dir} can't be locked: {error.strerror}") from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        recovered = []
        for server in reversed(self._servers):
            pid = server.end_leftover()
            if pid is not None:
                recovered.append(f"Ended {server.name} (process {pid}), which a killed run had left behind.")
        return recovered

    def start(self) -> Self:
        """Start ZooKeeper and Postgres, after acquiring the directory if necessary.

        Raises:
            DevStackError: A server can't be started; the servers that were started first are stopped again.
        """
        if self._lock is None:
            self.acquire()
        try:
            for file in (self.token_file, self.console_key_file, self.webhooks_key_file):
                _make_secret(file)
            self.zookeeper.start()
            self.postgres.start()
            self._write_settings()
            self._write_endpoints()
        except BaseException:
            self.stop()
            raise
        return self

    def serve(self) -> str:
        """Start the service on the migrated database, wait until it is ready, and return its URL.

        Raises:
            DevStackError: The service did not become ready.
        """
        self.service.start()
        self._write_endpoints()
        return self.service.url

    def command(self, *arguments: str) -> int:
        """Run a command of Confplane with this stack's settings, on this process's terminal, and return its exit code.

        Cancelling ends the command; its exit code is then that of the signal.
        """
        process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
            [sys.executable, "-m", "confplane", *arguments, "--settings-file", str(self.settings_file)],
            env=self.service.environment(),
        )
        while True:
            try:
                return process.wait(_COMMAND_POLL_S)
            except subprocess.TimeoutExpired:
                if self.cancelled:
                    process.terminate()
                    return process.wait()

    def _write_settings(self) -> None:
        cluster: dict[str, object] = {"zookeeper": self.zookeeper.hosts}
        if self._kafka:
            cluster["kafka"] = {"bootstrap": list(self._kafka)}
        settings = {
            "clusters": {"default": cluster},
            "postgres": {"dsn": self.postgres.dsn(SERVICE), "migration_dsn": self.postgres.dsn(OWNER)},
            "admin_token_file": str(self.token_file),
            "console_key_file": str(self.console_key_file),
            # Receivers on this machine, for trials.
            "webhooks": {"key_file": str(self.webhooks_key_file), "insecure_http": True},
        }
        _write_private(self.settings_file, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))

    def _write_endpoints(self) -> None:
        endpoints: dict[str, object] = {"pid": os.getpid(), "started": psutil.Process().create_time()}
        for server in self._servers:
            if server.running():
                process = psutil.Process(server.pid)
                endpoints[server.name.lower()] = {
                    "address": f"127.0.0.1:{server.port}",
                    "pid": process.pid,
                    "started": process.create_time(),
                }
        if self.service.running():
            endpoints["url"] = self.service.url
        _write_private(self.endpoints_file, json.dumps(endpoints, indent=2) + "\n")

    # -- while it runs

    def cancel(self) -> None:
        """Make a running start fail soon, and :meth:`wait` return."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """True after :meth:`cancel` was called."""
        return self._cancelled.is_set()

    def wait(self) -> None:
        """Wait until :meth:`cancel`.

        Raises:
            DevStackError: A server ended by itself; the message has the end of its log.
        """
        while not self._cancelled.wait(0.5):
            for server in self._servers:
                server.check()

    # -- end

    def stop(self, report: Callable[[str], None] | None = None) -> None:
        """Stop the running servers, in order: the service, Postgres, ZooKeeper; then release the directory.

        Args:
            report: Called with the name of each server before its stop.
        """
        with contextlib.ExitStack() as rest:
            rest.callback(self._release)
            for server in self._servers:  # run from last to first, each even if another one fails
                rest.callback(_stop, server, report)

    def _release(self) -> None:
        if self._lock is not None:
            self.endpoints_file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _stop(server: Server, report: Callable[[str], None] | None) -> None:
    if server.running() and report is not None:
        report(server.name)
    server.stop()


def _make_secret(path: Path) -> None:
    if path.exists() and path.read_text().strip():
        path.chmod(0o600)
    else:
        _write_private(path, secrets.token_urlsafe(32) + "\n")


def _write_private(path: Path, text: str) -> None:
    """Replace a file, atomically, by a file that only the owner may read."""
    with atomic_write(path, mode=0o600) as file:
        file.write(text)
