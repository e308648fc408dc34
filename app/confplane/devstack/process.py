"""One server process: started in a session of its own, watched, recorded on disk, and reliably ended.

A server must not outlive the process that started it, no matter how that process ends. Three things ensure this:
:meth:`Server.stop`; a watcher (a shell that waits on a pipe from us and signals the server once the pipe closes, which
the kernel does even after ``kill -9``); and the record of process id and start time, which the next start on the same
directory uses to end a server that is still running. The parent-death signal of Linux is not used: it fires when the
*thread* that forked ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final, Self

import psutil

from confplane.devstack.errors import DevStackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


_STEP_S: Final = 0.05


class Cancellation:
    """A flag that is set once, from any thread or signal handler, and can be waited for.

    This is not a ``threading.Event``, because a handler runs in the middle of the main thread. A handler that
    interrupts the event's own wait would find the event's lock held by its own thread, and would wait forever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set the flag."""
        self._set = True

    def is_set(self) -> bool:
        """Return True once the flag is set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, or at most for the given seconds. Return whether it is set."""
        end = time.monotonic() + seconds
        while not self._set and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_S))
        return self._set


_POLL_SECONDS = 0.02
_START_TIME_TOLERANCE_SECONDS = 2.0
_TAIL_BYTES = 4096
_TAIL_LINES = 15
_RECORD = "process.json"


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Return True if a server can currently listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def tail(path: Path) -> str:
    """Return the last lines of a log, or a note that there are none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace").strip()
    except FileNotFoundError:
        text = ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:]) or "(the log is empty)"


def end(process: psutil.Process, sig: signal.Signals, seconds: float) -> None:
    """Signal a process that is not our child, and kill it if it is still running after ``seconds``."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(sig)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(seconds)


def recorded(record: Path, marker: str) -> psutil.Process | None:
    """Return the live process that a record names, if it is that exact process.

    Args:
        record: A JSON file with ``pid`` and ``started`` (seconds since the epoch).
        marker: A part of the command line that only a process of this directory has. Process ids are reused, and a
        start time may repeat after a change of the clock, but all three together are unique.
    """
    try:
        content = json.loads(record.read_text())
        process = psutil.Process(int(content["pid"]))
        same_start = abs(process.create_time() - float(content["started"])) < _START_TIME_TOLERANCE_SECONDS
        alive = process.status() != psutil.STATUS_ZOMBIE
        ours = any(marker in argument for argument in process.cmdline())
    except (FileNotFoundError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return process if same_start and alive and ours else None


class Server:
    """Common life cycle of the embedded servers. Not thread-safe; one thread at a time may start or stop it.

    Args:
        data_dir: The server's directory; created if missing.
        port: Port on 127.0.0.1; a free one if None, kept for later starts of this object.
    """

    name: str
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    start_seconds: float = 60.0

    def __init__(self, data_dir: Path, *, port: int | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self._wanted_port = port
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self.cancelled = Cancellation()
        """A flag that another thread or a signal handler may set, which makes a running start fail."""

    # -- methods of each kind of server

    def _prepare(self) -> None:
        """Write configuration, create data; called before every start with the port known."""
        raise NotImplementedError

    def _command(self) -> Sequence[str]:
        """Return the command line."""
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        """Return the server's whole environment."""
        return os.environ

    def _answers(self) -> bool:
        """Return True if the server currently serves requests."""
        raise NotImplementedError

    def _clear_leftovers(self) -> None:
        """Remove leftovers of a killed run from the data directory; called when no such process is running."""

    def _after_start(self) -> None:
        """Run steps that need a serving server. A failure stops the server again."""

    @property
    def _marker(self) -> str:
        """A part of the command line that only servers of this directory have."""
        return str(self.data_dir)

    # -- state

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; known after the start."""
        if self._port is None:
            raise DevStackError(f"{self.name} was not started yet")
        return self._port

    @property
    def pid(self) -> int:
        """The running server's process id."""
        if self._process is None:
            raise DevStackError(f"{self.name} is not running")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file with the server's log."""
        return self.data_dir / f"{self.name.lower()}.log"

    @property
    def output(self) -> Path:
        """The file with the process's standard output and error; the log itself unless the server logs elsewhere."""
        return self.log

    def running(self) -> bool:
        """Return True if the process is alive."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise an error if a started server ended by itself.

        Raises:
            DevStackError: The server ended; the message has its exit code and the end of its log.
        """
        if self._process is not None and not self.running():
            self._disarm()
            code = self._process.returncode
            how = f"was ended by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
            raise DevStackError(f"{self.name} {how}. The end of {self.log}:\n{tail(self.log)}")

    # -- life cycle

    def start(self) -> Self:
        """Start the server and wait until it responds.

        Raises:
            DevStackError: The server can't run here, died, or did not respond in time; the message has the end of its
                log.
        """
        if self.running():
            return self
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.end_leftover()
        attempts = 3 if self._port is None else 1
        for attempt in range(1, attempts + 1):
            chosen = self._port is None
            self._port = free_port() if self._port is None else self._port
            try:
                self._start_once()
            except DevStackError:
                # Another process may have taken the port after the search for a free one.
                if attempt == attempts or port_is_free(self._port):
                    raise
                self._port = None if chosen else self._port
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def _start_once(self) -> None:
        if not port_is_free(self.port):
            raise DevStackError(f"port {self.port}, wanted for {self.name}, is taken by another process")
        self._prepare()
        if self.output.exists():
            self.output.replace(self.output.with_name(self.output.name + ".1"))  # the earlier run's
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command line is made by this package
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self._environment()),
                cwd=self.data_dir,
                start_new_session=True,
            )
        self._record(self._process.pid)
        self._watcher = self._watch(self._process.pid)
        try:
            self._wait_until(self._answers)
            self._after_start()
        except DevStackError:
            self.stop()
            raise

    def _record(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            record = {"pid": pid, "started": psutil.Process(pid).create_time()}
            (self.data_dir / _RECORD).write_text(json.dumps(record))

    def _watch(self, pid: int) -> subprocess.Popen[bytes]:
        script = 'read -r _; kill -s "$1" "$2"'
        sig = self.stop_signal.name.removeprefix("SIG")
        return subprocess.Popen(  # noqa: S603 - constant script, number and signal name as its arguments
            ["/bin/sh", "-c", script, "watcher", sig, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _disarm(self) -> None:
        # The watcher ends before the pipe is closed, because it would signal a process id that may belong to another
        # process by then.
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            if self._watcher.stdin is not None:
                self._watcher.stdin.close()
            self._watcher = None

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not ready():
            if self.cancelled.is_set():
                raise DevStackError(f"the start of {self.name} was cancelled")
            if not self.running():
                raise DevStackError(f"{self.name} ended while starting. The end of {self.output}:\n{tail(self.output)}")
            if time.monotonic() > deadline:
                raise DevStackError(
                    f"{self.name} did not answer within {self.start_seconds:.0f} s. "
                    f"The end of {self.output}:\n{tail(self.output)}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End the server and wait: its stop signal first, then SIGKILL. Does nothing when the server is not running."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._disarm()
        self._process = None
        (self.data_dir / _RECORD).unlink(missing_ok=True)

    def kill(self) -> None:
        """End the server at once, as a crash would: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.stop()

    def end_leftover(self) -> int | None:
        """End the server that an earlier, killed process left running on this directory, and remove its leftovers.

        Returns:
            The process id of the ended server, or None if there was none.
        """
        process = recorded(self.data_dir / _RECORD, self._marker)
        if process is not None:
            end(process, self.stop_signal, self.stop_seconds)
        self._clear_leftovers()
        (self.data_dir / _RECORD).unlink(missing_ok=True)
        return process.pid if process is not None else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
