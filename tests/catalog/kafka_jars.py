"""Runs Java on Kafka's own classes: Maven fetches an artifact and what it stands on."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>confplane</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


_KEPT: Final = Path(__file__).resolve().parents[2] / ".tools"
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Options of a JVM that runs for seconds: code that is compiled well takes longer to compile than it saves."""


class ToolError(Exception):
    """Maven or Java is missing or fails; the message says which, and how."""


def class_path(artifact: str, version: str, *, timeout_s: float) -> str:
    """Return the class path of one of Kafka's artifacts; Maven is asked once, and again where a jar of it is gone.

    Raises:
        ToolError: Maven is missing or fails.
    """
    kept = _KEPT / f"{artifact}-{version}.class-path"
    if kept.is_file() and all(map(os.path.isfile, (known := kept.read_text()).split(os.pathsep))):
        return known
    with tempfile.TemporaryDirectory() as folder:
        pom, output = Path(folder, "pom.xml"), Path(folder, "class-path")
        pom.write_text(_POM.format(artifact=artifact, version=version))
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
        run("mvn", "--quiet", "--batch-mode", f"--file={pom}", *goal, timeout_s=timeout_s)
        return _keep(kept, output.read_text().strip())


def said(source: Path, artifact: str, version: str, *, timeout_s: float) -> str:
    """Return what a Java program says of the classes of a release, which never change: a checkout asks each Java once.

    Args:
        source: The program; it has no arguments.
        artifact: One of Kafka's artifacts, the classes to run it on.
        version: The version of the artifact.
        timeout_s: The time within which Maven, and the program, end.

    Raises:
        ToolError: Maven or Java is missing or fails.
    """
    java = Path(shutil.which("java") or "java").resolve()
    of = hashlib.sha256(f"{java} {artifact} {version}\n{source.read_text()}".encode()).hexdigest()[:16]
    kept = _KEPT / f"{source.stem}-{version}-{of}.said"
    if kept.is_file():
        return kept.read_text()
    jars = class_path(artifact, version, timeout_s=timeout_s)
    return _keep(kept, run("java", *SHORT_LIVED, "-cp", jars, str(source), timeout_s=timeout_s))


def _keep(kept: Path, text: str) -> str:
    _KEPT.mkdir(exist_ok=True)
    beside = kept.with_suffix(f".{os.getpid()}")  # another process may ask at the same time
    beside.write_text(text)
    beside.replace(kept)
    return text


def run(*command: str, timeout_s: float) -> str:
    """Run a program and return what it prints.

    Raises:
        ToolError: It is missing, fails, or does not end in time.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ToolError(f"{command[0]} is not on the path")
    environment = {"MAVEN_OPTS": " ".join(SHORT_LIVED)} | os.environ
    try:
        done = subprocess.run(
            [program, *command[1:]], env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} did not end within {timeout_s} s") from None
    if done.returncode:
        raise ToolError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
