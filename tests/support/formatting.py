"""Generated Python in the form of all other code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def formatted(files: dict[str, str], folder: Path) -> dict[str, str]:
    """Write the files into an empty folder, and return their texts in the form of all other code."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--config", str(ROOT / "pyproject.toml"), "--quiet", "--no-cache", str(folder)]
    subprocess.run([*ruff, "check", "--select", "I", "--fix", *settings], check=True)
    subprocess.run([*ruff, "format", *settings], check=True)
    return {name: (folder / name).read_text("utf-8") for name in files}
