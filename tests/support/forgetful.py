"""A Postgres that loses all that it may lose: by a crash, or by the promotion of a disconnected standby."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY

from confplane.audit import open_changes
from confplane.audit.statements import WRITES
from confplane.devstack import unprivileged
from confplane.devstack.errors import DevStackError
from confplane.devstack.postgres import OWNER, Postgres
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import TextClause

_SETTINGS = {
    # Everything else that would sometimes write WAL to its files, so that only a commit that waits for it does.
    "autovacuum": "off",
    "bgwriter_lru_maxpages": "0",
    "checkpoint_timeout": "1h",
    "wal_writer_delay": "10s",
}


class Forgetful(Postgres):
    """A Postgres that can be made to keep asynchronous commits in memory, and then to crash."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, durable=False)
        self._settings = dict(_SETTINGS)
        self._set_up = True

    def hold_back(self) -> None:
        """Write WAL only for commits that wait for it, until the next crash."""
        os.kill(self._wal_writer(), signal.SIGSTOP)

    def crash(self) -> None:
        """Kill the server with SIGKILL."""
        wal_writer = self._wal_writer()
        os.kill(self.pid, signal.SIGKILL)
        _end(wal_writer)
        self.kill()

    def crash_and_start(self) -> None:
        """Kill the server with SIGKILL, and start it again."""
        self.crash()
        self.start()

    def crash_backend(self) -> None:
        """Kill the process of one connection with SIGKILL: the server ends all others, recovers, and continues."""
        wal_writer, before = self._wal_writer(), self.query("SELECT pg_postmaster_start_time()")
        with psycopg.connect(self.dsn(OWNER)) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            _end(wal_writer)
        wait_for(self._serves)
        assert self.query("SELECT pg_postmaster_start_time()") == before

    def _serves(self) -> bool:
        try:
            return self._wal_writer() > 0
        except (DevStackError, ValueError):
            return False

    def _wal_writer(self) -> int:
        return int(self.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"))

    def _command(self) -> Sequence[str]:
        return [*super()._command(), *(part for item in self._settings.items() for part in ("-c", "=".join(item)))]

    def _after_start(self) -> None:
        # Once the server has a standby, a commit waits for the standby, which writes nothing.
        if self._set_up:
            super()._after_start()

    def copy(self, data_dir: Path) -> Forgetful:
        """Return another server with the same data; this one is stopped."""
        self._copy(data_dir)
        return Forgetful(data_dir)

    def _copy(self, data_dir: Path) -> None:
        subprocess.run(["cp", "-a", str(self.data_dir), str(data_dir)], check=True)

    # -- standbys

    def with_standby(self, data_dir: Path) -> Standby:
        """Stop the server, start it with a synchronous standby, and return the standby."""
        self.stop()
        self._copy(data_dir)
        self._set_up = False
        self._settings["synchronous_standby_names"] = "*"
        self.start()
        standby = Standby(data_dir)
        standby.follow(self)
        return standby


class Standby(Forgetful):
    """A standby of a server."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._set_up = False

    def follow(self, server: Forgetful) -> None:
        """Start the standby, and wait until the server's commits wait for it."""
        mark = self._data / "standby.signal"
        mark.touch()
        unprivileged.own(mark)
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={server.port} user=postgres")
            file.write(f" password={server._passwords['postgres']}'\n")
        self.start()
        wait_for(lambda: server.query("SELECT sync_state FROM pg_stat_replication") == "sync")

    def cut_off(self) -> None:
        """Disconnect from the server."""
        self.query("ALTER SYSTEM SET primary_conninfo = ''")
        self.query("SELECT pg_reload_conf()")
        wait_for(lambda: self.query("SELECT count(*) FROM pg_stat_wal_receiver") == "0")

    def promote(self) -> None:
        """Become a primary."""
        assert self.query("SELECT pg_promote()") == "t"


def _end(process: int) -> None:
    """Kill the process, which may be stopped and would not react: it has the server's memory."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def marked_by_reading() -> TextClause:
    """Return the trail's query before the removal of markers, without the write that makes its result durable."""
    return text(open_changes.MARKED.text.replace(WRITES, "true")).bindparams(bindparam("ids", type_=ARRAY(Uuid)))
