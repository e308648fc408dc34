"""Helm, and the program that checks what Helm renders; both skip the test where they cannot be had."""

from __future__ import annotations

import functools
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.deploy import chart
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Helm with the given arguments; :class:`chart.HelmError` when it refuses."""
    return functools.partial(chart.run, tools.obtain(tools.helm), tmp_path_factory.mktemp("helm"))


@pytest.fixture
def template(helm: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Renders the chart with the given values, as text."""

    def render(values: chart.Manifest, *arguments: str, kubernetes: str = chart.KUBERNETES[0]) -> str:
        path = tmp_path / "values.json"
        path.write_text(json.dumps(values))
        where = ("--namespace", "kafka", "--kube-version", kubernetes)
        return helm("template", chart.RELEASE, str(chart.CHART), "--values", str(path), *where, *arguments)

    return render


@pytest.fixture
def manifests(template: Callable[..., str]) -> Callable[..., dict[str, chart.Manifest]]:
    """Renders the chart with the given values: ``kind/name`` -> manifest."""

    def render(values: chart.Manifest, *arguments: str, **options: str) -> dict[str, chart.Manifest]:
        documents = [document for document in yaml.safe_load_all(template(values, *arguments, **options)) if document]
        found = {f"{document['kind']}/{document['metadata']['name']}": document for document in documents}
        assert len(found) == len(documents)
        return found

    return render


@pytest.fixture(scope="session")
def check_manifests() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Decodes manifests as strictly as the API server can; the names of the valid ones are on its standard output."""

    def check(text: str, kubernetes: str = chart.KUBERNETES[-1]) -> subprocess.CompletedProcess[str]:
        program = tools.obtain(
            {chart.KUBERNETES[0]: tools.manifestcheck_oldest, chart.KUBERNETES[-1]: tools.manifestcheck}[kubernetes]
        )
        return subprocess.run([str(program)], input=text, capture_output=True, text=True, timeout=60, check=False)

    return check
