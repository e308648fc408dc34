"""Commands and examples of the documents, run as they are printed."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def blocks(document: str, language: str = "sh") -> list[str]:
    """Return the blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)


def run(scripts: Sequence[str], directory: Path, environment: Mapping[str, str]) -> list[str]:
    """Run shell blocks one after another in one bash, and return what each printed, without spaces around it.

    The first that fails ends the test.
    """
    done = subprocess.run(
        ["bash", "-c", "set -eu -o pipefail\n" + "echo '#'\n".join(scripts)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [each.strip() for each in done.stdout.split("#\n")]
