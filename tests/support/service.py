"""Confplane itself: as a process, run like a user does, and in a thread of the tests."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import httpx
from typing_extensions import override

from confplane import serving
from confplane.settings import Settings
from tests.support.facets import ConfplaneClient
from tests.support.ports import reserved_port
from tests.support.processes import ROOT, start
from tests.support.stepping import STEP_FILE_VARIABLE
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confplane.listener import HttpServer


class Service:
    """One ``confplane serve`` process.

    Args:
        directory: Where its log and its token are.
        connect: ZooKeeper's connect string.
        dsn: Of the service's role.
        cluster: Settings of the cluster, which is named ``default``.
        settings: More variables of its environment.
        module: The program, run with ``serve`` as its argument.
        port: The port; one of its own if None.
    """

    def __init__(
        self,
        directory: Path,
        *,
        connect: str,
        dsn: str,
        cluster: dict[str, Any] | None = None,
        settings: dict[str, str] | None = None,
        module: str = "confplane",
        port: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = reserved_port(self) if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_hex(24)
        self.log = directory / f"service-{self.port}.log"
        self.step_file = directory / f"step-{self.port}"
        """The file that requests a signal at a step, if the program is :mod:`tests.support.stepping`."""
        token_file = directory / f"token-{self.port}"
        token_file.write_text(self.token)
        clusters = {"default": {"zookeeper": connect, "session_timeout_ms": 4000, **(cluster or {})}}
        self._environment = {
            **os.environ,
            "CONFPLANE_CLUSTERS": json.dumps(clusters),
            "CONFPLANE_POSTGRES__DSN": dsn,
            "CONFPLANE_HTTP__PORT": str(self.port),
            "CONFPLANE_ADMIN_TOKEN_FILE": str(token_file),
            "CONFPLANE_HTTP__DRAIN_MS": "0",
            "CONFPLANE_CLASS_ARCHIVE": "false",
            STEP_FILE_VARIABLE: str(self.step_file),
            **(settings or {}),
        }
        self._module = module
        self.root = ROOT
        """The checkout that it is run from."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait_ready: bool = True) -> None:
        """Start, and wait until it is ready."""
        with self.log.open("ab") as log:
            command = ["-m", self._module, "serve"]
            self._process = start(command, environment=self._environment, stdout=log, stderr=log, cwd=self.root)
        if wait_ready:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until /readyz answers 200."""

        def ready() -> bool:
            assert self.running, f"the service ended:\n{self.tail()}"
            try:
                return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=5).status_code == 200
            except httpx.TransportError:
                return False

        wait_for(ready, timeout_s, why=self.tail)

    def wait_recorded(self, timeout_s: float = 120.0) -> None:
        """Wait until the trail knows every write, so that the past can be read."""
        headers = {"Authorization": f"Bearer {self.token}"}

        def recorded() -> bool:
            found = httpx.get(f"{self.url}/v1/clusters/default", headers=headers, trust_env=False).json()
            return (found["recorded"] or {}).get("since") is not None

        wait_for(recorded, timeout_s, why=self.tail)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self, *, kill: bool = False) -> int:
        """Stop it, by SIGTERM unless ``kill``, and return its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the service did not stop on SIGTERM:\n{self.tail()}") from None

    def dies_at(self, step: str) -> None:
        """Make it kill itself when it reaches the step (tests/support/stepping.py) the next time."""
        self.step_file.write_text(f"{step}:SIGKILL")

    def died(self) -> bool:
        """Wait for its end, and return True if it was killed."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S) == -signal.SIGKILL

    def client(self, **options: Any) -> ConfplaneClient:
        """A client of the service."""
        return ConfplaneClient(self.url, token=self.token, **options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()


class ServiceInThread(Service):
    """A service in a thread of the tests. It starts in a tenth of the time of a process, which has to import it.

    It can't be killed, and has no command line: the service of a process is for tests that need these, and for two
    replicas, which must not share memory.
    """

    _server: HttpServer | None = None
    _thread: threading.Thread | None = None

    @override
    def start(self, *, wait_ready: bool = True) -> None:
        assert self._module == "confplane", f"{self._module} needs a process"
        with mock.patch.dict(os.environ, self._environment, clear=True):
            settings = Settings()
            with ExitStack() as stack:
                stack.enter_context(_logging_to(self.log, settings.log_level))
                self._server = serving.make_server(settings)
                self._logging = stack.pop_all()
        self._thread = threading.Thread(target=self._server.run, name=f"service-{self.port}", daemon=True)
        self._thread.start()
        if wait_ready:
            self.wait_ready()

    @property
    @override
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @override
    def stop(self, *, kill: bool = False) -> int:
        assert self._server is not None
        assert self._thread is not None
        assert not kill
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the service did not stop:\n{self.tail()}"
        self._logging.close()
        return 0


@contextmanager
def _logging_to(file: Path, level: str) -> Iterator[None]:
    """Write what all threads but that of the tests log to a file."""
    handler, root = logging.FileHandler(file), logging.getLogger()
    handler.addFilter(lambda record: record.thread != threading.main_thread().ident)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()
