"""A fork server: a process that has already imported Confplane, and forks each of its programs that tests start.

Starting Python and importing Confplane takes about two seconds of processor time, a fork some milliseconds. What runs
is the same: ``python -m <module> <arguments>`` with an environment of its own. :func:`start` forks where it can; tests
of the start itself ask for the program as shipped. Nothing outlives the process that runs the tests: the kernel ends
the forks when the fork server ends, and the fork server ends when the other end of its socket is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NoReturn, Protocol

from tests.support.signals import start_children_with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = "confplane" if (ROOT / "app" / "confplane").is_dir() else "app"
"""The import package of this checkout: earlier releases, which get a copy of this file, name it ``app``."""
_IMPORTED: Final = (
    *(
        "confplane.cli.commands",
        "confplane.cli.export_commands",
        "confplane.cli.service_commands",
        "confplane.cli.store_commands",
    ),
    "confplane.serving",
    "confplane.audit.migrate",
    *(f"confplane.cli.{name}" for name in ("compact", "export", "freeze", "import_kip5", "layout", "migrate")),
    *(f"confplane.cli.{name}" for name in ("secrets", "show_rollup", "upgrade_keys")),
    # Imports of uvicorn and psycopg at their start.
    *("httptools", "uvloop", "uvicorn.lifespan.on", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl"),
    "psycopg_binary",
    # Imports of commands over the API at run time.
    "anyio._backends._asyncio",
    *(
        f"confplane.cli.remote.{name}"
        for name in ("alter", "apply_results", "configs.command", "entities", "export.command")
    ),
    *(f"confplane.cli.remote.{name}" for name in ("audit", "drift", "get", "load", "profiles", "session")),
)
_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Prefixes of variables that are read when Python starts, too early for a fork."""
_HARMLESS: Final = {"PYTHONPATH"}
_PR_SET_PDEATHSIG: Final = 1
_MESSAGE_BYTES: Final = 1 << 20


class Process(Protocol):
    """The interface of a started program: a part of :class:`subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


def start(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdout: IO[bytes],
    stderr: IO[bytes],
    shipped: bool = False,
    root: Path = ROOT,
) -> Process:
    """Run ``python -m module arguments`` in the root of a checkout; ``shipped`` starts a Python of its own for it."""
    files = (stdout, stderr)
    return _started([module, *arguments], environment, files, root=root, directory=root, shipped=shipped)


def _started(
    words: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[IO[bytes]],
    *,
    root: Path,
    directory: Path,
    shipped: bool = False,
) -> Process:
    """Run a module of the checkout ``root`` in a directory; the files are for output, errors and optionally input."""
    if shipped or _fork_servers is None or _differs(environment):
        stdout, stderr, *more = files
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=directory,
            env={**environment, **({} if directory == root else {"PYTHONPATH": str(root)})},
            stdin=more[0] if more else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    return _fork_servers.setdefault(root, ForkServer(root)).start(words, environment, files, directory)


_PROGRAM: Final = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {most})
    channel.connect({path!r})
    asked = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}}
    socket.send_fds(channel, [json.dumps(asked).encode()], [1, 2, 0])
    sys.exit(int.from_bytes(channel.recv(4), "little", signed=True))
"""


_MODES: Final = ("wb", "wb", "rb")
"""The modes of the files that are passed to the program: its output, its errors and its input."""


@contextlib.contextmanager
def confplane() -> Iterator[Path]:
    """Yield a directory with the program ``confplane``, for the PATH of scripts: each call is a fork if possible."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        script = directory / "confplane"
        script.touch(0o755)
        if _fork_servers is None:
            script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}/app" exec "{sys.executable}" -m confplane "$@"\n')
            yield directory
            return
        path = directory / "socket"
        script.write_text(_PROGRAM.format(python=sys.executable, path=str(path), most=_MESSAGE_BYTES))
        with _answering(path):
            yield directory


@contextlib.contextmanager
def _answering(path: Path) -> Iterator[None]:
    """Run the programs that are requested over a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        server.listen()
        answering = threading.Thread(target=_answer, args=[server])
        answering.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends the wait for calls
            answering.join()


def _answer(server: socket.socket) -> None:
    """Run the requested programs, one after another."""
    while True:
        try:
            channel, _ = server.accept()
        except OSError:
            return
        with channel:
            message, files, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
            asked = json.loads(message)
            with contextlib.ExitStack() as stack:
                opened = [stack.enter_context(os.fdopen(each, mode)) for each, mode in zip(files, _MODES, strict=True)]
                words, directory = ["confplane", *asked["arguments"]], Path(asked["directory"])
                process = _started(words, asked["environment"], opened, root=ROOT, directory=directory)
                code = process.wait()
            channel.send(code.to_bytes(4, "little", signed=True))


def _differs(environment: Mapping[str, str]) -> bool:
    names = {name for name in (*environment, *os.environ) if name.startswith(_AT_START)} - _HARMLESS
    return any(environment.get(name) != os.environ.get(name) for name in names)


class Forked:
    """A program that the fork server forked; used as if it were a :class:`subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], report: int) -> None:
        self._arguments = list(arguments)
        self._report = report
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.pid = self._read()

    def _read(self) -> int:
        number = os.read(self._report, 4)
        if not number:
            raise RuntimeError(f"The fork server ended before {self._arguments} did")
        return int.from_bytes(number, "little", signed=True)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        with self._lock:
            if self.returncode is None and select.select([self._report], [], [], 0)[0]:
                self.returncode = self._read()
                os.close(self._report)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended.

        Raises:
            subprocess.TimeoutExpired: The program still runs.
        """
        while (code := self.poll()) is None:
            with contextlib.suppress(OSError, ValueError):  # another thread's poll has closed it
                if not select.select([self._report], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
        return code

    def send_signal(self, sig: int, /) -> None:
        """Send a signal to the program, unless it has ended."""
        if self.poll() is None:
            # It may end, and be reaped by its parent, at this moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kill the program."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """This process's fork server for a checkout, started when it is first needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[IO[bytes]],
        directory: Path,
    ) -> Forked:
        """Fork for one program; ``files`` are its output, its errors, and optionally its input."""
        reading, writing = os.pipe()
        try:
            message = {"arguments": list(arguments), "environment": dict(environment), "directory": str(directory)}
            numbers = [writing, *(file.fileno() for file in files)]
            socket.send_fds(self._connected(), [json.dumps(message).encode()], numbers)
        finally:
            os.close(writing)
        return Forked(arguments, reading)

    def _connected(self) -> socket.socket:
        with self._lock:
            if self._socket is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                        cwd=self._root,
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
                self._socket = ours
            return self._socket

    def stop(self) -> None:
        """End the fork server and all of its forks."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()


_fork_servers: dict[Path, ForkServer] | None = None
"""The fork servers by checkout."""


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Start programs within the block as forks, if the system can end children with their parent."""
    global _fork_servers  # noqa: PLW0603 - one dict for the process that runs the tests
    if sys.platform != "linux":
        yield
        return
    _fork_servers = {}
    try:
        yield
    finally:
        for server in _fork_servers.values():
            server.stop()
        _fork_servers = None


class _Job:
    """A program to run in this process, which was forked for it."""

    def __init__(self, message: bytes, parent: int, stdout: int, stderr: int, stdin: int | None = None) -> None:
        self._message = json.loads(message)
        self._files = {1: stdout, 2: stderr} | ({} if stdin is None else {0: stdin})
        self._parent = parent

    def run(self) -> None:
        """Become the program."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._parent:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, file in self._files.items():
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(self._message["environment"])
        os.chdir(self._message["directory"])
        module, *arguments = self._message["arguments"]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


class _ForkLoop:
    """The loop of the fork server's own process: forks, and reports how each fork ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)

    def run(self) -> _Job | None:
        """Serve until the other end is closed. Also returns in each fork, with the job of that fork."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    message, files, _, _ = socket.recv_fds(self._channel, _MESSAGE_BYTES, 4)
                    if not message:
                        return None
                    job = self._fork(message, *files)
                    if job is not None:
                        return job
                else:
                    self._ended(key.fd, *key.data)

    def _fork(self, message: bytes, report: int, *files: int) -> _Job | None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            for key in list(self._selector.get_map().values()):
                if key.fileobj is not self._channel:
                    os.close(key.fd)
                    os.close(key.data[1])
            self._selector.close()
            self._channel.close()
            os.close(report)
            return _Job(message, parent, *files)
        for file in files:
            os.close(file)
        _report(report, pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))
        return None

    def _ended(self, handle: int, pid: int, report: int) -> None:
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        _report(report, os.waitstatus_to_exitcode(status))
        os.close(report)


def _report(file: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # it is no longer waited for
        os.write(file, number.to_bytes(4, "little", signed=True))


def _make_ready() -> None:
    """Import the modules of programs, and build what each program builds at its start: its commands and the catalog."""
    for name in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # another release may lack it
            importlib.import_module(name.replace("confplane", _PACKAGE, 1))
    with contextlib.suppress(ImportError, AttributeError):  # as may this
        commands = importlib.import_module(f"{_PACKAGE}.cli.commands")
        for _, module in commands._PLACES.values():
            commands._commands_of(module)
        definitions = importlib.import_module(f"{_PACKAGE}.domain.definitions")
        releases = importlib.import_module(f"{_PACKAGE}.domain.releases")
        definitions.catalog_of(releases.ON_ZOOKEEPER)


def _serve(channel: socket.socket) -> None:
    _make_ready()
    if threading.active_count() > 1:
        raise RuntimeError(f"A fork would lose threads: {threading.enumerate()}")
    gc.collect()
    gc.freeze()
    job = _ForkLoop(channel).run()
    if job is not None:
        _end(_code_of(job.run))


def _code_of(run: Callable[[], None]) -> int:
    """Run a program, and return its exit code; all other exits are handled by Python."""
    try:
        run()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        return end.code or 0
    return 0


def _end(code: int) -> NoReturn:
    """Exit like Python, but without freeing all objects, which would write to every page that forks share (100 ms)."""
    threading._shutdown()  # type: ignore[attr-defined]  # Python offers no other way
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    start_children_with_defaults()
    _serve(socket.socket(fileno=int(sys.argv[1])))
