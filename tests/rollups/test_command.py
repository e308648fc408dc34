"""``confplane rollups run`` as a person or spark-submit runs it."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from confplane.audit.rollup_runs import RollupRuns
from confplane.cli import rollup_commands, spark_session
from confplane.cli.rollup_options import READ_BY
from confplane.domain.errors import UnavailableError
from confplane.domain.rollups import ROLLUPS
from confplane.rollups import session
from confplane.rollups.java_settings import SETTINGS
from confplane.rollups.jobs import JOBS
from confplane.rollups.session import StageProgress
from tests.audit.rows import fetch, run
from tests.rollups.lake import current, runs
from tests.support.commands import Commands, Said, run_here
from tests.support.processes import ROOT, program, wait_gone
from tests.support.spark import submit
from tests.support.stalls import stalled
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    from confplane.rollups.job import Job
    from tests.support import servers

RUN: Final = ("-m", "confplane", "rollups", "run", "--cluster", "default")
SEEN = """
INSERT INTO registrations
  (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT 'seen', 'default', 'user=' || n, 'lib', '1', ARRAY['acks'], now(), current_date FROM generate_series(1, 7) AS n
"""


@pytest.fixture
def commands(migrated: servers.Database, chroot: str, tmp_path: Path) -> Commands:
    return Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn)


def submitted(commands: Commands, *arguments: str) -> tuple[int, str, str]:
    """Run a command by spark-submit, its standard error a terminal; return its exit code and what it said on both."""
    master, slave = pty.openpty()
    said: list[bytes] = []

    def listen() -> None:
        try:
            while piece := os.read(master, 4096):
                said.append(piece)
        except OSError:  # how a terminal ends
            pass

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        done = submit(
            *(*arguments, "--cluster", "default"),
            master="local[2]",
            settings={},
            environment={**commands.environment, "TERM": "xterm"},
            seconds=500,
            stderr=slave,
        )
    finally:
        os.close(slave)
        listener.join(60)
        os.close(master)
    return done.returncode, done.stdout, b"".join(said).decode(errors="replace")


def test_sigterm_fails_the_run_and_nothing_is_shown(
    commands: Commands, migrated: servers.Database, tmp_path: Path
) -> None:
    run(migrated.service_dsn, SEEN)
    with (
        stalled(migrated.owner_dsn, "UPDATE ON rollup_runs", "NEW.state = 'complete'") as completion,
        program([*RUN, "compatibility"], environment=commands.environment, cwd=tmp_path, ignores_sigint=True) as runner,
    ):
        completion.wait_for(runner, 400)
        started = runner.children()
        runner.process.send_signal(signal.SIGTERM)
        assert runner.wait() == 128 + signal.SIGTERM
        wait_gone(started)
    assert "Traceback" not in runner.output
    runs = fetch(migrated.owner_dsn, "SELECT state, error FROM rollup_runs")
    assert runs == [("failed", "It was interrupted")]


@pytest.mark.long
def test_killed_during_publishing_it_shows_nothing_and_the_next_run_cleans_up(
    spark: object, commands: Commands, migrated: servers.Database, tmp_path: Path
) -> None:
    del spark  # the next run takes the session that there is
    run(migrated.service_dsn, SEEN)
    lake = tmp_path / "lake"
    temporary, scratch, work = (tmp_path / name for name in ("temporary", "scratch", "work"))
    for directory in (temporary, scratch, work):
        directory.mkdir()
    environment = {
        **commands.environment,
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        # The Java of the PATH is used instead.
        "JAVA_HOME": "/nowhere",
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    with (
        # All of its rows are committed by then.
        stalled(migrated.owner_dsn, "UPDATE ON rollup_runs", "NEW.state = 'complete'") as completion,
        program([*RUN, "compatibility", "--output", lake], environment=environment, cwd=work) as runner,
    ):
        completion.wait_for(runner, 400)
        killed = [psutil.Process(runner.process.pid), *runner.children()]
        os.killpg(runner.process.pid, signal.SIGKILL)
        assert runner.wait() == -signal.SIGKILL
        # Spark's Python processes are a group of their own, and end by themselves.
        wait_gone(killed)
    # No process had the time to clean up, and no file that is left opens the database.
    password = migrated.service_dsn.split(":")[2].split("@")[0].encode()
    left = {directory: _files(directory) for directory in (temporary, scratch, work)}
    assert left[scratch]
    assert [path for paths in left.values() for path in paths if password in path.read_bytes()] == []
    # All of its files are written by then, and none is where readers look.
    assert [path for path in _files(lake) if path.suffix == ".parquet"]
    assert [path.name for path in lake.iterdir()] == ["_incomplete"]
    assert [path for path in _files(lake) if path.name == "_SUCCESS"] == []
    assert fetch(migrated.owner_dsn, "SELECT count(*) FROM rollup_rows") == [(7,)]
    said = commands.run("rollups", "show", "compatibility")
    assert said.code == 1
    assert said.err.startswith("The rollup compatibility was never run on default; run ")
    said = commands.run_here("rollups", "run", "compatibility", "--output", str(lake))
    assert said.code == 0, said
    lines = said.out.splitlines()
    [marker] = [path for path in _files(lake) if path.name == "_SUCCESS"]
    assert f"compatibility: {marker.parent}" in lines
    assert len(current(lake, "compatibility")) == 7
    assert {path.name for path in lake.iterdir() if _files(path)} == {"_current", "_schemas", "job=compatibility"}
    assert [line.split()[:2] for line in lines if line.split()[:1] == ["compatibility"]] == [["compatibility", "7"]]
    _assert_seven_are_shown(commands)
    runs = fetch(migrated.owner_dsn, "SELECT principal, state, row_count FROM rollup_runs ORDER BY started_at")
    assert runs == [("User:olga@cli", "failed", None), ("User:olga@cli", "complete", 7)]
    assert fetch(migrated.owner_dsn, "SELECT count(*), count(DISTINCT run_id) FROM rollup_rows") == [(7, 1)]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _assert_seven_are_shown(commands: Commands) -> None:
    said = commands.run("rollups", "show", "compatibility", "--json")
    assert said.code == 0, said.err
    assert [json.loads(line)["entityId"] for line in said.out.splitlines()] == [f"user={n}" for n in range(1, 8)]


@pytest.mark.long
def test_all_of_them_by_spark_submit_with_a_table_and_parquet(
    commands: Commands, migrated: servers.Database, tmp_path: Path
) -> None:
    run(migrated.service_dsn, SEEN)
    output = tmp_path / "lake"
    code, out, err = submitted(commands, "run", "all", "--output", str(output))
    table = {
        line.split()[0]: line.split()[1:]
        for line in out.splitlines()
        if line.split()[:1] and line.split()[0] in ROLLUPS
    }
    everything = [name for name, rollup in ROLLUPS.items() if not rollup.needs]
    assert list(table) == everything, (out, err)
    assert code == 0, (out, err)
    # Spark says little, and there is a line for each job.
    assert [f"{name} ({number} of {len(table)})" for number, name in enumerate(everything, 1)] == [
        line for line in err.splitlines() if re.fullmatch(r"\w+ \(\d of \d\)", line)
    ]
    assert len(err.splitlines()) < 60, err
    # Seven clients without a quota, and of four quotas a row each and one of all; the three defaults of four quotas.
    assert {name: cells[0] for name, cells in table.items()} == {
        "compatibility": "7", "drift": "0", "impact": "12", "quotas": "32", "activity": "0", "integrity": "0",
    }  # fmt: skip
    for name, (_, _, run_id, *_) in table.items():
        assert runs(output, name) == {run_id}
        [line] = [line for line in out.splitlines() if line.startswith(f"{name}: ")]
        assert line.startswith(f"{name}: {output}/job={name}/as_of_date=")
        assert line.endswith(f"/run_id={run_id}")
    _assert_seven_are_shown(commands)
    who = fetch(migrated.owner_dsn, "SELECT DISTINCT principal, state FROM rollup_runs WHERE state = 'complete'")
    assert who == [("User:olga@cli", "complete")]


def test_a_driver_of_spark_submit_is_known_by_the_port_of_its_java(monkeypatch: pytest.MonkeyPatch) -> None:
    # Shells of Spark set this one, and an application master of YARN none of them.
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not session.submitted()
    monkeypatch.delenv("SPARK_ENV_LOADED")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session.submitted()


def test_without_a_terminal_each_job_and_each_long_stage_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_session, "LONG_S", 0.01)
    polls, told = itertools.count(), list[str]()

    def stages() -> dict[int, StageProgress]:
        """The first stage ends between two polls, the second one runs on, and the third one is not running yet."""
        number = next(polls)
        return {
            7: StageProgress(3, 3, is_running=number == 0),
            9: StageProgress(number, 40, is_running=True),
            12: StageProgress(0, 5, is_running=False),
        }

    def lines() -> list[str]:
        told.extend(capfd.readouterr().err.splitlines())
        return told

    with spark_session.show_progress(stages, "drift (2 of 6)"):
        wait_for(lambda: len(lines()) == 2 and next(polls) > 10)
    assert lines()[0] == "drift (2 of 6)"
    assert re.fullmatch(r"drift \(2 of 6\): stage 2, \d+ of 40 tasks", told[1])
    assert len(told) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "all", "--output", "LAKE"],
        ["run", "all", "--source", "LAKE"],
        ["run", "usage", "--usage", "LAKE/used.csv"],
    ],
    ids=["export", "a lake", "usage"],
)
def test_what_reads_little_runs_with_the_settings_for_that(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    (tmp_path / "lake" / "_exports").mkdir(parents=True)
    day = {"day": "2026-01-31", "export_id": "x", "rows": 80_000, "open": 0}
    dataset: dict[str, Any] = {
        "export_id": "x", "as_of": "2026-01-31T12:00:00+00:00", "options": {}, "position": {}, "without": [],
        "pseudonyms": None, "days": [day], "version": 1,
    }  # fmt: skip
    manifest = {"format": 1, "cluster": "default", "datasets": {"trail": dataset}, "superseded": []}
    (tmp_path / "lake" / "_exports" / "default.json").write_text(json.dumps(manifest))
    (tmp_path / "lake" / "used.csv").write_text("time,user,client-id,metric,value\n")
    seen: list[dict[str, str]] = []

    def started(*_: object, settings: dict[str, str]) -> None:
        seen.append(settings)
        raise RuntimeError("seen enough")

    monkeypatch.setattr(spark_session, "session", started)
    given = [each.replace("LAKE", str(tmp_path / "lake")) for each in arguments]
    said = commands.run_here("rollups", *given, "--no-class-archive")
    assert (said.code, "seen enough" in said.err) == (1, True), said
    [settings] = seen
    assert settings.items() >= SETTINGS.items()
    assert "TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]


# -- what stands in the way is told, with what to do


def said_without(commands: Commands, script: str, **environment: str) -> Said:
    done = subprocess.run(
        [
            *(sys.executable, "-c", f"{script}\nfrom confplane.cli.commands import main\nmain()"),
            *("rollups", "run", "all", "--cluster", "default"),
        ],
        cwd=ROOT,
        env={**commands.environment, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_without_the_extra(commands: Commands) -> None:
    said = said_without(commands, "import sys; sys.modules['pyspark'] = None")
    assert (said.code, said.out) == (1, "")
    assert said.err == "`confplane rollups run` needs pyspark: pip install 'confplane[spark]'\n"


def test_without_java(commands: Commands, tmp_path: Path) -> None:
    said = said_without(commands, "", JAVA_HOME=str(tmp_path), PATH=str(tmp_path))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(
        f"Not run: Java 17 or later is needed and was not found (JAVA_HOME is {tmp_path}, which has no bin/java)"
    )


def test_without_postgres_or_its_tables(commands: Commands, migrated: servers.Database) -> None:
    away = {"CONFPLANE_POSTGRES__DSN": "postgresql://confplane:secret@127.0.0.1:1/confplane"}
    said = run_here("rollups", "run", "all", "--cluster", "default", environment=commands.environment | away)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Not run: ")
    assert "secret" not in said.err
    run(migrated.owner_dsn, "DROP TABLE rollup_runs")
    said = commands.run_here("rollups", "run", "all")
    assert said.code == 1
    assert "run `confplane migrate`" in said.err


@pytest.mark.parametrize("name", ["run", "export"])
def test_without_a_file_that_the_settings_name_on_a_worker(
    spark: object, migrated: servers.Database, chroot: str, tmp_path: Path, name: str
) -> None:
    del spark  # the command takes the session that there is
    absent = tmp_path / "absent"
    encoder = {"password_encoder": {"secret_file": str(absent)}}
    commands = Commands(tmp_path, connect=chroot, dsn=migrated.service_dsn, cluster=encoder)
    arguments = {"run": ["run", "drift"], "export": ["export", "znodes", "--output", str(tmp_path / "lake")]}[name]
    said = commands.run_here("rollups", *arguments)
    assert (said.code, said.out) == (1, "")
    line = said.err.splitlines()[-1]
    assert line.startswith("Not ")
    assert f"clusters.default.password_encoder.secret_file: {absent} can't be read" in line


def test_rollups_that_are_published_are_shown_where_postgres_goes_away_after_them(
    spark: object, migrated: servers.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # the command takes the session that there is
    run(migrated.service_dsn, SEEN)
    commands = Commands(tmp_path, connect="127.0.0.1:1", dsn=migrated.service_dsn)

    def away(self: RollupRuns, run_id: UUID, job: str, **given: Any) -> Any:
        if job == "activity":
            raise UnavailableError("Postgres is away")
        return begin(self, run_id, job, **given)

    begin = RollupRuns.begin
    monkeypatch.setattr(RollupRuns, "begin", away)
    monkeypatch.setattr(rollup_commands, "ROLLUPS", {name: ROLLUPS[name] for name in ("compatibility", "activity")})
    said = commands.run_here("rollups", "run", "all")
    assert said.code == 1
    assert [line.split()[:2] for line in said.out.splitlines()] == [
        ["ROLLUP", "ROWS"], ["compatibility", "7"], ["activity", "-"]
    ]  # fmt: skip
    # On a busy machine there are lines about the stages of Spark, too.
    assert [line for line in said.err.splitlines() if ": stage " not in line] == [
        "compatibility (1 of 2)", "activity (2 of 2)", "activity: Postgres is away"
    ]  # fmt: skip
    assert fetch(migrated.owner_dsn, "SELECT job, state FROM rollup_runs") == [("compatibility", "complete")]


def test_options_are_read_by_those_rollups_that_need_them() -> None:
    in_a_lake = {
        "changes", "refused_attempts", "registration_events", "registrations", "reports", "states", "topics", "znodes",
    }  # fmt: skip
    now_alone = {"other_znodes", "states", "usage", "znodes"}
    needing: dict[str, Callable[[Job], bool]] = {
        "--as-of": lambda job: not now_alone & {*job.inputs},
        "--capacity": lambda job: "capacity" in job.options,
        "--full": lambda job: job.incremental or job.fold is not None,
        "--since": lambda job: job.incremental or job.fold is not None,
        "--source": lambda job: in_a_lake >= {*job.inputs},
        "--teams": lambda job: "teams" in job.options,
        "--usage": lambda job: "usage" in job.inputs,
        "--with": lambda job: "other_znodes" in job.inputs,
    }
    assert {option: {*names} for option, names in READ_BY.items()} == {
        option: {job.name for job in JOBS.values() if needs(job)} for option, needs in needing.items()
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "all", "--output", "FILE: "], "is not a directory"),
        (["export", "all", "--output", "/lake/[a]"], "the path of a lake must not have '['"),
        (["export", "all", "--output", "/lake", "--master", "local[x]"], "'local[x]' is not a Spark master"),
        (["export", "all", "--output", "/lake", "--without", "principal"], "'principal' can't be left out. Available:"),
        (["export", "all", "--output", "/lake", "--pseudonyms", "FILE: fifteen bytes.."], "has fewer than 16 bytes"),
        (["export", "all", "--output", "/lake", "--read-dsn", "postgresql://u:open@a"], "must not have a password"),
        (["export", "all", "--output", "/lake", "--max-connections", "5"], "--max-connections"),
        (["export", "znodes", "--output", "/lake", "--without", "reason"], "--without is for trail"),
        (["export", "znodes", "--output", "/lake", "--pseudonyms", "FILE: 0123456789abcdef"], "--pseudonyms is for trail"),
        (["export", "changes", "--output", "/lake"], "Unknown name 'changes'. Available: trail, registrations, znodes, all"),
        (["run", "nothing"], "Available: compatibility"),
        (["run", "activity", "--since", "2026-01-01", "--full"], "either --since or --full"),
        (["run", "activity", "--since", "yesterday"], "not a date such as 2026-01-31"),
        (["run", "activity", "--as-of", "noon"], "'noon' is not a valid time. Use RFC 3339 with an offset"),
        (["run", "activity", "--as-of", "2999-01-01T00:00:00Z"], "2999-01-01T00:00:00+00:00 is in the future"),
        (["run", "activity", "--since", "2999-01-01"], "2999-01-01T00:00:00+00:00 is in the future"),
        (["run", "activity", "--source", "/lake", "--as-of", "2026-01-31T12:00:00Z"], "either --source"),
        (["run", "activity", "--teams", "FILE: {teams: {a: [User:x, User:x]}}"], "teams.a: 'User:x' is in 'a' already"),
        (["run", "activity", "--teams", "FILE: {teams: {a: [User:x], a: [User:y]}}"], "the key 'a' is there"),
        (["run", "drift", "--fail-on-mismatch"], "It is only for the rollup integrity."),
        (["run", "drift", "--max-connections", "5"], "--max-connections"),
        (["run", "drift", "--master", "spark:7077"], "'spark:7077' is not a Spark master. Use local[*]"),
        (["run", "drift", "--source", "/nowhere"], "/nowhere has no exports of default: run `confplane rollups export all`"),
        (["run", "drift", "--source", "/lake/*"], "the path of a lake must not have '*'"),
        (["run", "drift", "--output", "file:///proc/version/lake"], "/proc/version is not a directory"),
        (["run", "drift", "--output", ""], "The path of the output is empty"),
        (["run", "drift", "--read-dsn", "host=a", "--source", "/lake"], "either --source or --read-dsn"),
        (["run", "drift", "--read-dsn", "port=1"], "The connection string names no host"),
        (["run", "quotas", "--since", "2026-01-01"], "quotas does not read --since; it is for compatibility and activity"),
        (["run", "quotas", "--full"], "quotas does not read --full"),
        (["run", "usage"], "usage needs --usage FILE"),
        (["run", "usage", "--usage", "/nowhere.csv"], "/nowhere.csv does not exist"),
        (["run", "usage", "--usage", "/nowhere.yaml"], "No such file"),
        (["run", "compare"], "compare needs --with CLUSTER|TIME"),
        (["run", "compare", "--with", "2999-01-01T00:00:00Z"], "2999-01-01T00:00:00+00:00 is in the future"),
        (["run", "compare", "--with", "default"], "--with: 'default' is not a valid time. Use RFC 3339"),
        (["run", "compare", "--with", "2026-01-31"], "Or name another cluster of the settings (none)"),
        (["run", "quotas", "--capacity", "FILE: - 1"], "this must be a map of quota keys to numbers"),
        (["run", "quotas", "--capacity", "FILE: bytes: 1"], "'bytes' is not a quota of clients. Available: consumer_byte_rate"),
        (["run", "quotas", "--capacity", "FILE: producer_byte_rate: .inf"], "producer_byte_rate: inf is not a number above"),
        (["run", "quotas", "--capacity", "FILE: producer_byte_rate: true"], "producer_byte_rate: True is not a number above"),
        (["run", "quotas", "--capacity", "FILE: request_percentage: 0"], "request_percentage: 0 is not a number above"),
        (["run", "quotas", "--capacity", "FILE: ["], "while parsing"),
    ],
)  # fmt: skip
def test_options_that_are_not_valid(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    """An argument that begins with `FILE: ` is the content of the file that is given."""
    monkeypatch.setattr(spark_session, "session", lambda *_, **__: pytest.fail("Java was started"))
    file = tmp_path / "given.yaml"
    for argument in arguments:
        if argument.startswith("FILE: "):
            file.write_text(argument.removeprefix("FILE: "))
    said = commands.run_here("rollups", *(str(file) if each.startswith("FILE: ") else each for each in arguments))
    assert said.code == 2
    # The frame around a message breaks its lines.
    assert says.replace(" ", "") in "".join(character for character in said.out + said.err if character not in "│ \n")
