"""The way from the first page of the documentation to a rendered installation, with the commands as they are printed."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy import chart
from tests.support import documents, tools
from tests.support.processes import ROOT

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Helm may have to be built first.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(2400)]

GUIDE = (chart.CHART / "README.md").read_text()
KUBECTL = """#!/bin/sh
# Stands for kubectl: notes the Secrets that are created, by name and key.
test "$1 $2 $3" = "create secret generic" || exit 1
case "$5" in --from-literal=*=?*) ;; *) exit 1 ;; esac
name=$4; shift 4
for each; do each=${each#--from-literal=}; echo "$name ${each%%=*}" >>"$SECRETS"; done
"""
DOCKER = """#!/bin/sh
# Stands for make and docker: notes the images that are pushed.
case "$(basename "$0") $1" in "make images" | "docker tag") ;; "docker push") echo "$2" >>"$PUSHED" ;; *) exit 1 ;; esac
"""
HELM = """#!{python}
# Stands for helm: renders what it would install.
import os, sys
assert sys.argv[1] == "install", sys.argv
os.execv("{helm}", ["helm", "template", *sys.argv[2:], "--kube-version", "{version}"])
"""


def section(heading: str) -> str:
    """Return a section of the guide."""
    found = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert found
    return found


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of an operator without a Kubernetes: kubectl and helm are stand-ins."""
    programs = tmp_path / "bin"
    programs.mkdir()
    helm = HELM.format(python=sys.executable, helm=tools.obtain(tools.helm), version=chart.KUBERNETES[0])
    for name, text in {"kubectl": KUBECTL, "helm": helm, "make": DOCKER, "docker": DOCKER}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "secrets").touch()
    homes = {name: str(tmp_path / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    noted = {"SECRETS": str(tmp_path / "secrets"), "PUSHED": str(tmp_path / "pushed")}
    return os.environ | homes | noted | {"PATH": path}


def installed(blocks: list[str], directory: Path, machine: dict[str, str]) -> list[chart.Manifest]:
    """Run commands of the guide, and return the objects that the last one would create."""
    printed = documents.run(blocks, directory, machine)
    return [document for document in yaml.safe_load_all(printed[-1]) if document]


def secrets_of(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the key of each Secret that objects name."""
    if isinstance(node, list):
        for each in node:
            yield from secrets_of(each)
    elif isinstance(node, dict):
        if "secretName" in node and "items" in node:
            yield from ((node["secretName"], item["key"]) for item in node["items"])
        if reference := node.get("secretKeyRef"):
            yield reference["name"], reference["key"]
        yield from secrets_of([*node.values()])


def images_of(node: Any) -> Iterator[str]:
    """Yield the images of all containers of objects."""
    if isinstance(node, list):
        for each in node:
            yield from images_of(each)
    elif isinstance(node, dict):
        if isinstance(image := node.get("image"), str):
            yield image
        yield from images_of([*node.values()])


def test_the_first_page_leads_to_the_guide() -> None:
    assert "(../deploy/helm/confplane/README.md)" in (ROOT / "docs" / "index.md").read_text()


def test_an_installation_with_everything_that_the_guide_shows(
    machine: dict[str, str], tmp_path: Path, check_manifests: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    values: chart.Manifest = {}
    for heading in ("Install", "Routes", "Metrics", "Rollups"):
        for block in documents.blocks(section(heading), "yaml"):
            chart.lay_over(values, yaml.safe_load(block))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    blocks = [block for heading in ("The image", "Routes", "Install") for block in documents.blocks(section(heading))]
    found = installed(blocks, tmp_path, machine)
    checked = check_manifests(yaml.safe_dump_all(found))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert {"CronJob", "Deployment", "Ingress", "Job", "PrometheusRule", "ServiceMonitor"} <= {
        each["kind"] for each in found
    }
    # Each Secret that an object names was created, with the key that it names.
    created = {tuple(line.split()) for line in (tmp_path / "secrets").read_text().splitlines()}
    assert set(secrets_of(found)) == created
    assert len(created) == 5
    assert {*images_of(found)} == {*(tmp_path / "pushed").read_text().split()}


def test_the_least_installation(machine: dict[str, str], tmp_path: Path) -> None:
    install = section("Install")
    (values,) = documents.blocks(install, "yaml")
    (tmp_path / "values.yaml").write_text(values)
    assert "Deployment" in {each["kind"] for each in installed(documents.blocks(install), tmp_path, machine)}


def test_the_trial(machine: dict[str, str], tmp_path: Path) -> None:
    (block,) = documents.blocks(section("A trial"))
    lines = block.splitlines()
    assert [shlex.split(line)[:2] for line in lines[:2]] == [["make", "images"], ["kind", "load"]]
    found = installed(lines[2:], tmp_path, machine)
    (image,) = {
        container["image"]
        for each in found
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        if container["name"] == "confplane"
    }
    assert shlex.split(lines[1])[-1] == image
