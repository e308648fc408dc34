"""``.ci/install.sh``: what it checks, with which remedy, and that it installs when needed and only then.

It runs in a copy of the checkout's outline, with a PATH that has the system's small tools and stand-ins for Python and
Java that say what a case wants.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_TOOLS = ("awk", "cat", "cksum", "df", "dirname", "mkdir", "mv", "rm", "sed", "sh")

# Answers as the real one would where the script asks; keeps a list of what pip was called with.
_PYTHON = """\
#!/bin/sh
case "$*" in
*version_info*) {version} ;;
*ensurepip*) exit {venv} ;;
*probe.bind*) exec '{real}' "$@" ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
"-m pip "*) echo "$*" >>'{calls}'; {pip} ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


@dataclass
class Machine:
    """A checkout and a PATH."""

    checkout: Path
    bin: Path
    calls: Path

    def python(self, name: str, version: str | None, *, venv: bool = True, pip: str = ":") -> None:
        """Put a Python on the PATH; one without version is there but does not run, as a pyenv shim may be."""
        self._write(
            name,
            _PYTHON.format(
                version=f"echo {version}" if version else "echo no such version >&2; exit 127",
                venv=0 if venv else 1,
                real=sys.executable,
                calls=self.calls,
                pip=pip,
            ),
        )

    def java(self, answer: str, *, code: int = 0, directory: Path | None = None) -> None:
        """Put a Java on the PATH, or into a directory of its own."""
        self._write("java", f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\nexit {code}\n", directory)

    def _write(self, name: str, text: str, directory: Path | None = None) -> None:
        path = (directory or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # it may be a link to the machine's own tool, which must not be written through
        path.write_text(text)
        path.chmod(0o755)

    def install(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script."""
        return subprocess.run(
            ["/bin/sh", self.checkout / ".ci" / "install.sh", *arguments],
            env={"PATH": str(self.bin), **environment},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def pip_calls(self) -> list[str]:
        """Return what pip was asked to do since the last call."""
        if not self.calls.exists():
            return []
        lines = self.calls.read_text().splitlines()
        self.calls.unlink()
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    checkout = tmp_path / "a checkout" / ("x" * 100)
    checkout.mkdir(parents=True)
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for tool in (*_TOOLS, "cp"):
        found = shutil.which(tool)
        assert found is not None
        (binaries / tool).symlink_to(found)
    made = Machine(checkout, binaries, tmp_path / "calls")
    made.java('openjdk version "17.0.15" 2025-04-15')
    made.python("python3.12", "3.12.4")
    return made


def test_it_installs_from_the_lock_once(machine: Machine) -> None:
    first = machine.install()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "ok    Python 3.12.4 (python3.12)" in first.stdout
    assert "ok    Java 17" in first.stdout
    assert "a download of about 450 MB" in first.stdout
    tools, requirements, project = machine.pip_calls()
    assert "--require-hashes" in tools
    assert tools.endswith("-r .ci/build.lock")
    assert "--require-hashes --no-build-isolation -r .ci/requirements.lock" in requirements
    assert project.endswith("--no-deps --no-build-isolation -e .")
    second = machine.install()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert machine.pip_calls() == []


@pytest.mark.parametrize("changed", [".ci/requirements.lock", ".ci/build.lock", "pyproject.toml"])
def test_it_installs_again_when_the_lock_or_the_project_changed(machine: Machine, changed: str) -> None:
    machine.install()
    machine.pip_calls()
    with (machine.checkout / changed).open("a") as file:
        file.write("\n# changed\n")
    assert machine.install().returncode == 0
    assert len(machine.pip_calls()) == 3
    machine.install()
    assert machine.pip_calls() == []


def test_it_installs_again_where_the_checkout_was_moved(machine: Machine) -> None:
    machine.install()
    machine.pip_calls()
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
    assert machine.install().returncode == 0
    assert len(machine.pip_calls()) == 3


def test_an_interrupted_install_starts_over(machine: Machine) -> None:
    machine.python("python3.12", "3.12.4", pip='case "$*" in *requirements.lock) kill -9 $PPID ;; esac')
    assert machine.install().returncode != 0
    half = machine.checkout / ".venv" / "half-installed"
    half.touch()
    machine.pip_calls()
    machine.python("python3.12", "3.12.4")
    repaired = machine.install()
    assert repaired.returncode == 0, repaired.stderr
    assert not half.exists()
    assert len(machine.pip_calls()) == 3
    assert machine.install().stdout == ""


def test_a_failing_pip_fails_the_install(machine: Machine) -> None:
    machine.python("python3.12", "3.12.4", pip="exit 1")
    assert machine.install().returncode != 0
    assert machine.install().returncode != 0


def test_an_environment_whose_python_is_gone_is_recreated(machine: Machine) -> None:
    machine.install()
    machine.pip_calls()
    (machine.checkout / ".venv" / "bin" / "python").write_text("#!/nowhere/python\n")
    again = machine.install()
    assert again.returncode == 0, again.stderr
    assert "Removing .venv, which is not whole" in again.stdout
    assert len(machine.pip_calls()) == 3


def test_pythons_that_do_not_run_or_lack_venv_are_passed_over(machine: Machine) -> None:
    machine.python("python3.14", None)
    machine.python("python3.13", "3.13.1", venv=False)
    done = machine.install()
    assert done.returncode == 0
    assert "ok    Python 3.12.4 (python3.12)" in done.stdout


def test_each_python_that_will_not_do_is_named_with_the_remedy(machine: Machine) -> None:
    (machine.bin / "python3.12").unlink()
    machine.python("python3.14", None)
    machine.python("python3.11", "3.11.2", venv=False)
    machine.python("python3", "3.9.6")
    done = machine.install()
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "FAIL" in line]
    assert "python3.14 does not run" in line
    assert "python3.11 (3.11.2) lacks venv or ensurepip: install python3.11-venv" in line
    assert "python3 is 3.9.6" in line
    assert machine.pip_calls() == []


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, "java is version 11"),
        ('java version "1.8.0_292"', 0, "java is version 8"),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 1, "java does not run"),
    ],
)
def test_a_java_that_will_not_do_is_named_with_the_remedy(machine: Machine, answer: str, code: int, said: str) -> None:
    machine.java(answer, code=code)
    done = machine.install()
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "FAIL" in line]
    assert said in line
    assert "or set JAVA_HOME" in line


def test_no_java_at_all_is_said_also_after_the_install(machine: Machine) -> None:
    machine.install()
    (machine.bin / "java").unlink()
    done = machine.install()
    assert done.returncode == 1
    assert "FAIL  Java: a runtime of version 17 or later is needed. None was found" in done.stdout


@pytest.mark.parametrize("version", ["21.0.1", "25-ea"])
def test_java_home_comes_first(machine: Machine, tmp_path: Path, version: str) -> None:
    home = tmp_path / "a jdk"
    machine.java('java version "1.8.0_292"')
    machine.java(f'Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "{version}"', directory=home / "bin")
    done = machine.install(JAVA_HOME=str(home))
    assert done.returncode == 0
    assert f"ok    Java {version[:2]} ({home}/bin/java)" in done.stdout


def test_a_full_disk_is_found_before_the_download(machine: Machine) -> None:
    machine._write("df", "#!/bin/sh\necho Filesystem\necho /dev/sda1 9999999 9000000 1048576 90% /\n")
    done = machine.install()
    assert done.returncode == 1
    assert "FAIL  Disk: 1024 MB free in ., about 3000 MB are needed" in done.stdout
    assert machine.pip_calls() == []


def test_a_taken_port_is_found_first_and_another_is_named(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = machine.install("--port", str(port))
        assert done.returncode == 1
        assert f"FAIL  Port {port} is taken" in done.stdout
        assert f"make run PORT={port + 1}" in done.stdout
        assert machine.pip_calls() == []
    assert machine.install("--port", str(port)).returncode == 0
