"""The recipes for rollups in deploy/rollups, checked as far as that goes without Kubernetes and Airflow."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from confplane.cli import callers
from confplane.cli.commands import cli
from confplane.domain.rollups import ROLLUPS
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

RECIPES: Final = ROOT / "deploy" / "rollups"
SETTINGS: Final = "/etc/confplane/settings.yaml"
MISMATCHED: Final = 4


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((RECIPES / name).read_text()))


def arguments_of_rollups(words: list[str]) -> list[str]:
    """The words behind the file that spark-submit runs, below the place of the packages."""
    [file] = [word for word in words if word.endswith("confplane/rollups/__main__.py")]
    assert (ROOT / "app" / file.partition("/opt/confplane/")[2]).is_file()
    return words[words.index(file) + 1 :]


# The checker may have to be built first.
@pytest.mark.interop
@pytest.mark.timeout(2400)
def test_the_manifests_of_the_native_way_are_valid_for_kubernetes(
    check_manifests: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    found = documents("cronjob.yaml")
    executor = next(each for each in found if each["kind"] == "ConfigMap")["data"]["executor.yaml"]
    said = check_manifests(yaml.safe_dump_all(found))
    assert (said.returncode, said.stderr) == (0, "")
    assert "CronJob/confplane-rollups" in said.stdout.splitlines()
    assert yaml.safe_load(executor)["spec"]["volumes"][0]["secret"]["secretName"] == "confplane-rollups"


PIP: Final = """#!/bin/sh
# Stands for a Python whose pip downloads nothing.
test "$2" = pip || exec "{python}" "$@"
echo "$@" > asked
mkdir -p packages/confplane packages/pyspark packages/pyspark-4.3.0.dist-info
echo "0" > packages/confplane/__init__.py
"""


@pytest.mark.parametrize("given", [(), ("a wheel",)])
def test_the_archive_has_all_but_spark(tmp_path: Path, given: tuple[str, ...]) -> None:
    python, work = tmp_path / "python", tmp_path / "a directory"
    python.write_text(PIP.format(python=sys.executable))
    python.chmod(0o700)
    work.mkdir()
    own = {**os.environ, "PYSPARK_PYTHON": str(python)}
    subprocess.run([RECIPES / "package.sh", *given], cwd=work, env=own, check=True)
    asked = (work / "asked").read_text().strip()
    assert asked == f"-m pip install --quiet --target packages {given[0] if given else 'confplane[spark]'}"
    assert sorted(path.name for path in (work / "packages").iterdir()) == ["confplane"]
    with zipfile.ZipFile(work / "packages.zip") as archive:
        assert sorted(archive.namelist()) == ["confplane/", "confplane/__init__.py"]


@pytest.mark.parametrize("name", ["cronjob.yaml", "scheduled-spark-application.yaml"])
def test_manifests_make_the_account_that_they_name_with_its_rights(name: str) -> None:
    found = documents(name)
    kinds = {each["kind"]: each for each in found}
    account = {"kind": "ServiceAccount", "name": kinds["ServiceAccount"]["metadata"]["name"]}
    assert kinds["RoleBinding"]["subjects"] == [account]
    assert kinds["RoleBinding"]["roleRef"]["name"] == kinds["Role"]["metadata"]["name"]
    (rule,) = kinds["Role"]["rules"]
    assert {"create", "delete", "watch"} <= {*rule["verbs"]}
    assert "pods" in rule["resources"]
    application = found[-1]["spec"]
    named = (
        application["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
        if found[-1]["kind"] == "CronJob"
        else application["template"]["driver"]["serviceAccount"]
    )
    assert named == account["name"]


def test_manifests_run_a_command_that_there_is() -> None:
    spec = documents("scheduled-spark-application.yaml")[-1]["spec"]["template"]
    words = [spec["mainApplicationFile"].removeprefix("local://"), *spec["arguments"]]
    assert finds_no_settings(arguments_of_rollups(words))
    assert spec["arguments"][-1] == "--fail-on-mismatch"
    job = next(each for each in documents("cronjob.yaml") if each["kind"] == "CronJob")["spec"]["jobTemplate"]["spec"]
    [driver] = job["template"]["spec"]["containers"]
    assert finds_no_settings(arguments_of_rollups(driver["command"]))
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [callers.INVALID, MISMATCHED]
    assert rule["onExitCodes"]["containerName"] == driver["name"]


def finds_no_settings(arguments: list[str]) -> bool:
    """True where a command is well-formed: it gets as far as the settings, which are not on this machine."""
    assert not Path(SETTINGS).exists()
    # The command sets the variable from its option; the runner puts back what it names here.
    own = {"COLUMNS": "200", "CONFPLANE_SETTINGS_FILE": None}
    done = CliRunner().invoke(cli, ["rollups", *arguments], env=own)
    return done.exit_code == callers.INVALID and SETTINGS in done.output


class Task:
    """A stand-in for a task of Airflow: notes its calls, and what follows what."""

    def __init__(self, work: Callable[..., None], name: str, made: list[Task]) -> None:
        self.work, self.name, self.made = work, name, made
        self.given: tuple[Any, ...] = ()
        self.after: str | None = None

    def override(self, task_id: str) -> Task:
        return Task(self.work, task_id, self.made)

    def __call__(self, *given: Any) -> Task:
        self.given = given
        self.made.append(self)
        return self

    def __rshift__(self, other: Task) -> Task:
        other.after = self.name
        return other


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Task], dict[str, Any]]:
    """The tasks of the DAG, and the globals of its file, run with stand-ins for Airflow, which is not installed."""
    made: list[Task] = []

    def task(work: Any = None, **_: Any) -> Any:
        return Task(work, work.__name__, made) if work is not None else task

    class Failed(Exception):  # noqa: N818 - as Airflow has them
        pass

    class FailedForGood(Failed):
        pass

    exceptions, sdk = ModuleType("airflow.sdk.exceptions"), ModuleType("airflow.sdk")
    vars(exceptions).update(AirflowException=Failed, AirflowFailException=FailedForGood)
    vars(sdk).update(dag=lambda **_: lambda work: work, task=task)
    for name, module in {
        "airflow": ModuleType("airflow"),
        "airflow.sdk.exceptions": exceptions,
        "airflow.sdk": sdk,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made, runpy.run_path(str(RECIPES / "airflow_dag.py"))


def test_the_dag_runs_each_rollup_then_the_gate_then_the_report(
    dag: tuple[list[Task], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, module = dag
    names = [task.name for task in tasks]
    assert set(names) == {name for name, rollup in ROLLUPS.items() if not rollup.needs} | {"report"}
    assert names[-2:] == ["integrity", "report"]
    assert [task.after for task in tasks] == [None, *names[:-1]]
    for task in tasks:
        [words] = ended(task, 0, monkeypatch)
        assert words[:2] == ["confplane", "rollups"]
        assert finds_no_settings([*words[2:], "--settings-file", SETTINGS])
    again, for_good = module["AirflowException"], module["AirflowFailException"]
    failures = {1: again, -9: again, callers.INVALID: for_good, MISMATCHED: for_good}
    for code, failure in failures.items():
        with pytest.raises(again) as raised:
            ended(tasks[-2], code, monkeypatch)
        assert raised.type is failure


def ended(task: Task, code: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Run a task whose commands end with this code; return the commands."""
    asked: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, code)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", run)
        task.work(*task.given)
    return asked
