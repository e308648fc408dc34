"""Tools of other worlds that some tests need: found where they are installed, else built once with Go.

What is built lies in ``.tools/`` of the checkout, named by its version, and is kept. A test gets a tool through
:func:`obtain`, which skips it where there is none, or fails it when ``CONFPLANE_REQUIRE_INTEROP=1``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS_DIR: Final = ROOT / ".tools"
REQUIRE_VARIABLE: Final = "CONFPLANE_REQUIRE_INTEROP"

HELM_VERSION: Final = "v3.22.0"
# The Kubernetes that this Helm was made for. Its own build sets it at link time; without, it believes in 1.20.
_HELM_KUBERNETES: Final = ("1", "37")
_HELM_MODULE: Final = "helm.sh/helm/v3"
MANIFESTCHECK_SOURCE: Final = ROOT / "tests" / "deploy" / "manifestcheck"

_LOOKUP_S: Final = 60
_BUILD_S: Final = 1800
# Tools run for seconds: optimizing them costs more than half of the build's time again. No C compiler is needed.
_BUILD_FLAGS: Final = ("-trimpath", "-gcflags=all=-N -l")
_BUILD_ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOWORK": "off"}


class ToolMissingError(Exception):
    """This machine has no such tool and no means to build it. The text says what is missing."""


def obtain(tool: Callable[[], Path]) -> Path:
    """Return the path of a tool such as :func:`helm`; skip the test where it can't be had, or fail if it must be."""
    try:
        return tool()
    except ToolMissingError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{error} ({REQUIRE_VARIABLE}=1 forbids to skip)", pytrace=False)
        pytest.skip(str(error))


def helm() -> Path:
    """Find Helm on PATH, or build it: minutes the first time.

    Raises:
        ToolMissingError: No Helm, and no Go or no Go modules.
    """
    found = shutil.which("helm")
    return Path(found) if found else _built(f"helm-{HELM_VERSION}", _build_helm)


def manifestcheck() -> Path:
    """Build the program that decodes Kubernetes manifests strictly.

    Raises:
        ToolMissingError: No Go or no Go modules.
        AssertionError: The program does not compile.
    """
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MANIFESTCHECK_SOURCE / name).read_bytes())
    return _built(f"manifestcheck-{digest.hexdigest()[:12]}", _build_manifestcheck)


def _build_helm(directory: Path) -> Path:
    # Asked first since it answers at once, where a build without modules would retry for long.
    _go(["list", "-m", f"{_HELM_MODULE}@{HELM_VERSION}"], timeout_s=_LOOKUP_S, cwd=directory)
    major, minor = _HELM_KUBERNETES
    defines = {
        f"{_HELM_MODULE}/pkg/chartutil.k8sVersionMajor": major,
        f"{_HELM_MODULE}/pkg/chartutil.k8sVersionMinor": minor,
        f"{_HELM_MODULE}/pkg/lint/rules.k8sVersionMajor": major,
        f"{_HELM_MODULE}/pkg/lint/rules.k8sVersionMinor": minor,
        f"{_HELM_MODULE}/internal/version.version": HELM_VERSION,
    }
    link = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in defines.items())])
    _go(
        ["install", *_BUILD_FLAGS, f"-ldflags={link}", f"{_HELM_MODULE}/cmd/helm@{HELM_VERSION}"],
        timeout_s=_BUILD_S,
        cwd=directory,
        environment={"GOBIN": str(directory)},
    )
    return directory / "helm"


def _build_manifestcheck(directory: Path) -> Path:
    _go(["mod", "download"], timeout_s=_BUILD_S, cwd=MANIFESTCHECK_SOURCE)
    program = directory / "manifestcheck"
    try:
        _go(
            ["build", *_BUILD_FLAGS, "-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "."],
            timeout_s=_BUILD_S,
            cwd=MANIFESTCHECK_SOURCE,
        )
    except ToolMissingError as error:
        # The modules are here, so this is a fault of the program and no reason to skip anything.
        raise AssertionError(str(error)) from error
    return program


def _built(name: str, build: Callable[[Path], Path]) -> Path:
    """Return ``.tools/<name>``, built first where it is not there; runs at the same time wait for each other."""
    target = TOOLS_DIR / name
    if target.is_file():
        return target
    TOOLS_DIR.mkdir(exist_ok=True)
    with (TOOLS_DIR / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            with tempfile.TemporaryDirectory(dir=TOOLS_DIR, prefix=f"{name}.") as directory:
                build(Path(directory)).replace(target)
    return target


def _go(arguments: Sequence[str], *, timeout_s: float, cwd: Path, environment: Mapping[str, str] | None = None) -> None:
    go = shutil.which("go")
    if go is None:
        raise ToolMissingError("Neither the tool nor Go to build it is on PATH")
    # Builds share the machine with what else runs on it.
    nice = shutil.which("nice")
    command = [*([nice, "-n", "15"] if nice else []), go, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **_BUILD_ENVIRONMENT, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolMissingError(f"`go {arguments[0]}` took more than {timeout_s:g} seconds") from error
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise ToolMissingError(f"`go {arguments[0]}` failed, which it does without network: {last}")
