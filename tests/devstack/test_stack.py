"""A data directory survives every way in which its stack can end, and only one live process ever has it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
from pathlib import Path

import psutil
import psycopg
import pytest

from confplane.devstack import process
from confplane.devstack.errors import DevStackError
from confplane.devstack.postgres import OWNER, Postgres
from confplane.devstack.stack import InUseError, Stack
from tests.support import servers
from tests.support.processes import program, wait_gone

DRIVER = Path(__file__).with_name("driver.py")


def _long_path(base: Path) -> Path:
    path = base / "with a blank" / "it's odd"
    return path / ("x" * (150 - len(str(path)))) if len(str(path)) < 148 else path


def _znode(stack: Stack, path: str, *, create: bool) -> bool:
    for client in servers.raw_client(stack.zookeeper.hosts):
        if create:
            client.create(path)
        return client.exists(path) is not None
    raise AssertionError


def _assert_secrets_are_for_the_owner_only(stack: Stack) -> None:
    for path in (stack.token_file, stack.settings_file, stack.data_dir / "postgres" / "passwords.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = [
        argument for pid in (stack.zookeeper.pid, stack.postgres.pid) for argument in psutil.Process(pid).cmdline()
    ]
    passwords = json.loads((stack.data_dir / "postgres" / "passwords.json").read_text())
    assert len(passwords) == 3
    assert not any(secret in argument for argument in shown for secret in passwords.values())


def test_secrets_are_for_the_owner_and_a_second_start_finds_the_data_and_the_token_again(tmp_path: Path) -> None:
    directory = _long_path(tmp_path)
    with Stack(directory, durable=False) as first:
        token = first.token_file.read_text()
        _znode(first, "/kept", create=True)
        with psycopg.connect(first.postgres.dsn(OWNER)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        endpoints = json.loads(first.endpoints_file.read_text())
        assert endpoints["zookeeper"]["pid"] == first.zookeeper.pid
        assert endpoints["postgres"]["address"] == f"127.0.0.1:{first.postgres.port}"
        assert endpoints["pid"] == os.getpid()
        _assert_secrets_are_for_the_owner_only(first)
    assert not first.endpoints_file.exists()
    with Stack(directory, durable=False) as second:
        assert second.token_file.read_text() == token
        assert _znode(second, "/kept", create=False)
        with psycopg.connect(second.postgres.dsn(OWNER)) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_servers_end_by_themselves_after_kill_9_and_on_sigterm(tmp_path: Path) -> None:
    with program([DRIVER, tmp_path / "d"]) as running:
        running.read_until("ready")
        started = running.children()
        os.killpg(running.process.pid, signal.SIGKILL)
        running.wait()
        wait_gone(started)
    with program([DRIVER, tmp_path / "d"]) as again:
        again.read_until("ready")
        started = again.children()
        assert {child.name() for child in started} >= {"java", "postgres"}
        os.killpg(again.process.pid, signal.SIGTERM)
        assert again.wait() == 0
        wait_gone(started)
    assert not (tmp_path / "d" / "postgres" / "data" / "postmaster.pid").exists()


def lasting(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Leave out the workers of Postgres: an autovacuum worker ends by itself at any moment."""
    left = []
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = each.parent()
            if parent is None or parent.name() != "postgres":
                left.append(each)
    return left


def test_orphans_of_a_killed_run_are_ended_and_no_others(tmp_path: Path) -> None:
    with (
        program([DRIVER, tmp_path / "other"]) as neighbour,
        program([DRIVER, tmp_path / "d"]) as running,
    ):
        running.read_until("ready")
        neighbour.read_until("ready")
        neighbours = lasting(neighbour.children())
        started = lasting(running.children())
        orphans = [child for child in started if child.name() in {"java", "postgres"}]
        for child in started:
            if child.name() not in {"java", "postgres"}:
                child.kill()  # the watchers; without them nothing ends the servers
        running.process.kill()
        running.wait()
        assert all(orphan.is_running() for orphan in orphans)
        with program([DRIVER, tmp_path / "d"]) as again:
            again.read_until("ready")
            assert "Ended ZooKeeper" in again.output
            assert "Ended Postgres" in again.output
            wait_gone(orphans)
            assert all(child.is_running() for child in neighbours)


def test_a_second_live_instance_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    first = Stack(tmp_path)
    first.acquire()
    try:
        with program([DRIVER, tmp_path]) as second:
            assert second.wait() == 1
            assert f"in use: `confplane dev` runs there as process {os.getpid()}" in second.output
    finally:
        first.stop()


def test_a_lock_file_that_was_left_does_not_matter(tmp_path: Path) -> None:
    # With the id of a live process in it, too: what counts is the kernel's lock.
    (tmp_path / "lock").write_text(f"{os.getppid()}\n")
    stack = Stack(tmp_path)
    assert stack.acquire() == []
    with pytest.raises(InUseError):
        Stack(tmp_path).acquire()
    stack.stop()
    stack.acquire()
    stack.stop()


def test_a_recorded_id_that_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    # This very process, with its true start time: only the command line tells that it is no server of this directory.
    record = tmp_path / "zookeeper" / "process.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"pid": os.getpid(), "started": psutil.Process().create_time()}))
    stack = Stack(tmp_path)
    assert stack.acquire() == []
    stack.stop()
    assert not record.exists()


def test_postgres_starts_on_its_port_over_a_left_lock_whose_id_came_round_again(tmp_path: Path) -> None:
    with Postgres(tmp_path, durable=False) as server:
        port = server.port
        server.query("CREATE TABLE kept AS SELECT 42 AS answer")
        content = (tmp_path / "data" / "postmaster.pid").read_text().splitlines()
        server.kill()
        (tmp_path / "data" / "postmaster.pid").write_text("\n".join([str(os.getppid()), *content[1:]]) + "\n")
        server.start()
        assert server.query("SELECT answer FROM kept") == "42"
        assert server.port == port


def test_postgres_starts_over_an_empty_lock(tmp_path: Path) -> None:
    with Postgres(tmp_path, durable=False) as server:
        server.query("CREATE TABLE kept AS SELECT 42 AS answer")
        server.kill()
        (tmp_path / "data" / "postmaster.pid").write_text("")
        server.start()
        assert server.query("SELECT answer FROM kept") == "42"


def test_data_of_another_postgres_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("13\n")
    with pytest.raises(DevStackError, match=r"holds data of PostgreSQL 13.*pg_dumpall.*--data-dir"):
        Postgres(tmp_path).start()
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_an_interrupted_first_start_is_made_good(tmp_path: Path) -> None:
    (tmp_path / "data.partial-1").mkdir()
    (tmp_path / "data.partial-1" / "PG_VERSION").write_text("18\n")
    with Postgres(tmp_path, durable=False) as server:
        assert server.query("SELECT 1") == "1"
    assert not (tmp_path / "data.partial-1").exists()


def test_a_server_that_ends_by_itself_ends_the_stack_with_its_log(tmp_path: Path) -> None:
    with program([DRIVER, tmp_path / "d"]) as running:
        running.read_until("ready")
        started = running.children()
        (java,) = [child for child in started if child.name() == "java"]
        java.kill()
        assert running.wait() == 1
        assert "ZooKeeper was ended by signal 9. The end of" in running.output
        wait_gone(started)


def test_cancelling_ends_a_start_that_is_under_way(tmp_path: Path) -> None:
    stack = Stack(tmp_path, durable=False)
    stack.cancel()
    with pytest.raises(DevStackError, match="start of ZooKeeper was cancelled"):
        stack.start()
    assert not stack.zookeeper.running()
    stack.acquire()
    stack.stop()


def test_a_free_port_can_be_listened_on() -> None:
    assert process.port_is_free(process.free_port())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list the memory of a process")
def test_shared_memory_of_a_server_of_the_tests_goes_with_its_files(postgres: Postgres) -> None:
    maps = Path(f"/proc/{postgres.pid}/maps").read_text()
    assert f"{postgres.data_dir}/data/pg_dynshmem/" in maps
    assert "/dev/shm/PostgreSQL" not in maps  # noqa: S108 - nothing is written there
