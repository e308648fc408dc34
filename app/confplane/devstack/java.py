"""Finds the Java runtime that ZooKeeper (and Spark) run on."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from confplane.devstack.errors import DevStackError

MINIMUM = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@functools.cache
def find_java() -> Path:
    """Return a ``java`` of version 17 or later: the one in JAVA_HOME, else the first on the PATH.

    Raises:
        DevStackError: There is no such Java; the message names the versions found and the software to install.
    """
    found: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").is_file():
        found.append(f"JAVA_HOME is {home}, which has no bin/java")
    for candidate in (str(Path(home, "bin", "java")) if home else None, shutil.which("java")):
        if candidate is None or not Path(candidate).is_file():
            continue
        major = _major(candidate)
        if major is not None and major >= MINIMUM:
            return Path(candidate)
        found.append(f"{candidate} {'does not run' if major is None else f'is version {major}'}")
    raise DevStackError(
        f"Java {MINIMUM} or later is needed and was not found"
        + (f" ({'; '.join(found)})" if found else "")
        + ". Install a Java runtime (for example the package openjdk-17-jre-headless) or set JAVA_HOME."
    )


def _major(java: str) -> int | None:
    # The command is run, because a path proves nothing: the `java` of macOS and some distributions only prints where to
    # get Java.
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None
