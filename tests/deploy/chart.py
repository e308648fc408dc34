"""Renders the chart with the real Helm and hands back what came out of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support import tools

CHART: Final = tools.ROOT / "deploy" / "helm" / "confplane"
VALUES: Final = Path(__file__).parent / "values"
RELEASE: Final = "demo"
KUBERNETES: Final = ("1.30.0", "1.37.2")
"""The oldest version that the chart supports, and the newest that its objects are checked for."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HelmError(Exception):
    """Helm refused; ``str()`` is what it told the user."""

    text: str

    def __str__(self) -> str:
        return self.text


def run(helm: Path, home: Path, *arguments: str) -> str:
    """Run Helm with a home of its own, so that neither plugins nor repositories of the user play a part."""
    homes = {name: str(home / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    done = subprocess.run(
        [str(helm), *arguments], env={**os.environ, **homes}, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise HelmError(done.stdout + done.stderr)
    return done.stdout


def values_file(name: str) -> Path:
    """Return a values file: one of the tests, or the trial's, which belongs to the chart."""
    return CHART / "trial.yaml" if name == "trial" else VALUES / f"{name}.yaml"


def merged(name: str, changes: Manifest | None = None) -> Manifest:
    """Return a values file's content with ``changes`` laid over it: maps are merged, everything else is replaced."""
    values: Manifest = yaml.safe_load(values_file(name).read_text())
    lay_over(values, changes or {})
    return values


def lay_over(values: Manifest, changes: Manifest) -> None:
    """Lay changes over values: maps are merged, everything else is replaced."""
    for key, change in changes.items():
        if isinstance(change, dict) and isinstance(values.get(key), dict):
            lay_over(values[key], change)
        else:
            values[key] = change


def leaves(values: Manifest, prefix: str = "") -> dict[str, Any]:
    """Return every value that is no map, or an empty one, by its dotted path."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found |= leaves(value, f"{path}.")
        else:
            found[path] = value
    return found
